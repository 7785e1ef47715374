// gpu/cuda/embedding.cu: rows of two tables, added. Backward turns a scatter, whose sums would depend on the order of
// the threads, into a gather: positions are sorted by token in a counting sort that keeps their order, then every
// vocabulary row sums its own.
//
// The sort cuts the positions into segments. Each segment has its own counter for each token, so that after two prefix
// sums (over the segments of a token, then over the tokens) a warp can place its segment alone, in order. All counters
// together fit the stream's scratch: vocabularies beyond WINDOW are sorted one window of tokens after the other.
#include "gpu/cuda/kernel.h"

enum {
    BLOCK = 256,
    SCAN_BLOCK = 1024,
    SCAN_EACH = 4,
    WINDOW = 1 << 18,  // tokens sorted at a time
    SEGMENTS = 128,    // most segments
    SEGMENT = 256,     // fewest positions of one
    LIST = 32,         // rows that a warp has in flight while it sums
};

static inline unsigned blocks_of(int64_t n, int64_t size) { return (unsigned)ceil_div(n, size); }

// --- forward ---------------------------------------------------------------------------------------------------------

// x[b,t] = factor * wte[token[b,t]] + wpe[t], or wpe[places[b,t]], or without it. A warp a position. Of a part of the
// table, whose first row is that of token `first`, other tokens give zeros.
// moves      3 * sizeof(E) bytes an element; memory bound
// reference  gpu/cpu/kernel/embedding.c: embedding_forward
template <class T, bool PACKED>
__global__ void __launch_bounds__(BLOCK)
    embed_kernel(T *x, const int32_t *tokens, const int32_t *places, const T *wte, const T *wpe, int64_t positions,
                 int64_t length, int64_t width, int64_t vocabulary, bool part, int64_t first, float factor) {
    constexpr int W = 16 / sizeof(T);
    int64_t p = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (p >= positions) return;
    int64_t token = tokens[p] - first;
    const bool here = token >= 0 && token < vocabulary;
    assert(part || here);
    if (!here) token = 0;
    const int64_t row = places ? places[p] : p % length;
    const T *word = wte + token * width, *place = wpe ? wpe + row * width : NULL;
#pragma unroll 4
    for (int64_t i = threadIdx.x * W; i < width; i += WARP * W) {
        float u[W], v[W];
        load_row<PACKED>(u, word, i, width);
        if (place) load_row<PACKED>(v, place, i, width);
#pragma unroll
        for (int k = 0; k < W; k++) u[k] = !here ? 0.0f : place ? factor * u[k] + v[k] : factor * u[k];
        store_row<PACKED>(x + p * width, u, i, width);
    }
}

err_t cuda_embedding_forward(const embedding_forward_args *args, stream *s) {
    int64_t positions = tensor_count(args->tokens), length = args->tokens->size[1], vocabulary = args->wte->size[0],
            width = args->wte->size[1];
    assert(args->tokens->type == INT32 && args->tokens->dims == 2 && args->wte->type == args->x->type);
    const tensor *wpe = args->wpe;
    assert(tensor_count(args->x) == positions * width && args->factor != 0);
    assert(!wpe || (wpe->type == args->x->type && wpe->size[1] == width && (wpe->size[0] >= length || args->places)));
    assert(!args->places || (wpe && args->places->type == INT32 && tensor_count(args->places) == positions));
    const int32_t *token = (const int32_t *)args->tokens->data,
                  *places = args->places ? (const int32_t *)args->places->data : NULL;
    const int64_t first = args->part ? args->first : 0;
    dim3 grid(blocks_of(positions, BLOCK / WARP)), block(WARP, BLOCK / WARP);
    BY_TYPE(args->x->type, T, {
        T *out = (T *)args->x->data;
        const T *word = (const T *)args->wte->data, *place = wpe ? (const T *)wpe->data : NULL;
        if (packs<T>(out, width) && packs<T>(word, width) && packs<T>(place, width))
            LAUNCH((embed_kernel<T, true>), grid, block, 0, s, out, token, places, word, place, positions, length,
                   width, vocabulary, args->part, first, args->factor);
        else
            LAUNCH((embed_kernel<T, false>), grid, block, 0, s, out, token, places, word, place, positions, length,
                   width, vocabulary, args->part, first, args->factor);
    });
    return ERR_OK;
}

// --- backward: the sort ----------------------------------------------------------------------------------------------

typedef struct sort_args {
    int32_t *order;         // (positions) sorted by token, equal tokens in order of position
    int32_t *begin;         // (vocabulary + 1) where in order each token begins
    int32_t *counters;      // (segments, window)
    const int32_t *tokens;  // (positions)
    int32_t positions, segment, segments;
    int32_t first, window;  // tokens [first, first + window) are sorted now, counted from `from`
    int32_t from;
} sort_args;

// Counts each segment's tokens. Integer atomics: the order of integer additions does not matter.
__global__ void __launch_bounds__(BLOCK) count_kernel(sort_args a) {
    int64_t p = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (p >= a.positions) return;
    int64_t token = (int64_t)a.tokens[p] - a.from - a.first;
    if (token >= 0 && token < a.window) atomicAdd(&a.counters[p / a.segment * a.window + token], 1);
}

// Turns a token's counts into the number of its positions in the segments before, and leaves their total in the next
// token's begin.
__global__ void __launch_bounds__(BLOCK) segments_kernel(sort_args a) {
    enum { AHEAD = 16 };
    int64_t token = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (token >= a.window) return;
    int32_t total = 0, *counter = a.counters + token;
    for (int32_t from = 0; from < a.segments; from += AHEAD) {
        int32_t n[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) n[k] = from + k < a.segments ? counter[(int64_t)(from + k) * a.window] : 0;
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (from + k < a.segments) counter[(int64_t)(from + k) * a.window] = total;
            total += n[k];
        }
    }
    a.begin[a.first + token + 1] = total;
}

// Makes sums of begin (first, first + window], on top of begin[first]. One block: a vocabulary is a few dozen tiles.
__global__ void __launch_bounds__(SCAN_BLOCK) scan_kernel(sort_args a) {
    K_SMEM(int32_t, room, [2][WARP]);
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, tile = 0;
    int32_t carry = a.first ? a.begin[a.first] : 0, *from = a.begin + a.first + 1;
    if (!a.first && threadIdx.x == 0) a.begin[0] = 0;
    for (int32_t at = 0; at < a.window; at += SCAN_BLOCK * SCAN_EACH, tile ^= 1) {
        int32_t i = at + (int32_t)threadIdx.x * SCAN_EACH;
        int32_t n[SCAN_EACH], sum = 0;
#pragma unroll
        for (int k = 0; k < SCAN_EACH; k++) sum += i + k < a.window ? from[i + k] : 0, n[k] = sum;
        int32_t upto = sum;  // of the warp's lanes up to this one
#pragma unroll
        for (int step = 1; step < WARP; step *= 2) {
            int32_t below = __shfl_up_sync(0xffffffffu, upto, step);
            if (lane >= step) upto += below;
        }
        if (lane == WARP - 1) room[tile][warp] = upto;
        __syncthreads();  // one a turn: the next turn writes the other row
        int32_t warps = room[tile][lane];
#pragma unroll
        for (int step = 1; step < WARP; step *= 2) {
            int32_t below = __shfl_up_sync(0xffffffffu, warps, step);
            if (lane >= step) warps += below;
        }
        int32_t before = carry + (warp ? __shfl_sync(0xffffffffu, warps, warp - 1) : 0) + upto - sum;
#pragma unroll
        for (int k = 0; k < SCAN_EACH; k++)
            if (i + k < a.window) from[i + k] = before + n[k];
        carry += __shfl_sync(0xffffffffu, warps, WARP - 1);
    }
}

// One warp a segment, 32 positions a turn, in order: the place of a position is where its token begins, plus those of
// the segments and turns before (the counter), plus those of the lanes below.
__global__ void __launch_bounds__(WARP) place_kernel(sort_args a) {
    int lane = threadIdx.x;
    int32_t *counter = a.counters + (int64_t)blockIdx.x * a.window;
    int64_t first = (int64_t)blockIdx.x * a.segment, end = min(first + a.segment, (int64_t)a.positions);
    for (int64_t at = first; at < end; at += WARP) {
        int64_t token = at + lane < end ? (int64_t)a.tokens[at + lane] - a.from - a.first : -1;
        bool mine = token >= 0 && token < a.window;
        int32_t key = mine ? (int32_t)token : -1, place = mine ? a.begin[a.first + key] + counter[key] : 0;
        uint32_t same = 0;
#pragma unroll
        for (int l = 0; l < WARP; l++) same |= (uint32_t)(__shfl_sync(0xffffffffu, key, l) == key) << l;
        int below = __popc(same & ((1u << lane) - 1));
        __syncwarp();  // all lanes have read the counters
        if (mine) {
            a.order[place + below] = (int32_t)(at + lane);
            if (!(same >> lane >> 1)) counter[key] += below + 1;  // the last of its kind
        }
        __syncwarp();
    }
}

static err_t sort_by_token(sort_args a, int64_t vocabulary, stream *s) {
    for (int64_t first = 0; first < vocabulary; first += WINDOW) {
        a.first = (int32_t)first,
        a.window = (int32_t)(vocabulary - first < WINDOW ? vocabulary - first : (int64_t)WINDOW);
        int64_t fit = CUDA_SCRATCH / ((int64_t)sizeof(int32_t) * a.window),
                most = fit < SEGMENTS ? fit : (int64_t)SEGMENTS;
        int64_t each = ceil_div(ceil_div(a.positions, most), WARP) * WARP;
        a.segment = (int32_t)(each < SEGMENT ? (int64_t)SEGMENT : each);
        a.segments = (int32_t)ceil_div(a.positions, a.segment);
        a.counters = (int32_t *)s->scratch;
        CUDA(cudaMemsetAsync(a.counters, 0, (size_t)a.segments * (size_t)a.window * sizeof(int32_t), s->native));
        LAUNCH(count_kernel, blocks_of(a.positions, BLOCK), BLOCK, 0, s, a);
        LAUNCH(segments_kernel, blocks_of(a.window, BLOCK), BLOCK, 0, s, a);
        LAUNCH(scan_kernel, 1, SCAN_BLOCK, 0, s, a);
        LAUNCH(place_kernel, (unsigned)a.segments, WARP, 0, s, a);
    }
    return ERR_OK;
}

// --- backward: the sums ----------------------------------------------------------------------------------------------

// W columns of a lane: 4 bytes where rows allow it, one element elsewhere. A sum in order of position cannot be
// divided, so a frequent token is fast only if many of its rows are in flight: 32, of few columns each. A warp still
// reads whole lines of 128 bytes.
template <int BYTES> struct few_bits { typedef uint32_t type; };
template <> struct few_bits<2> { typedef uint16_t type; };

template <class T> struct embed_back_args {
    float *dwte, *dwpe;
    const int32_t *order, *begin;
    const T *dx;
    int64_t samples, length, width, vocabulary;
    int64_t slices, groups;  // of columns; of tokens: group g has the tokens g, g + groups, ...
    float factor;
};

// The columns stay packed until they are added: half the registers.
template <class T, int W> using few = typename few_bits<sizeof(T) * W>::type;
template <class T, int W> __device__ __forceinline__ few<T, W> load_few(const T *p) {
    few<T, W> bits;
    memcpy(&bits, __builtin_assume_aligned(p, sizeof bits), sizeof bits);
    return bits;
}
template <class T, int W> __device__ __forceinline__ void add_few(float *sum, few<T, W> bits) {
    T v[W];
    memcpy((void *)v, &bits, sizeof v);
#pragma unroll
    for (int w = 0; w < W; w++) sum[w] += to_float(v[w]);
}

// dwte[v] (+=) factor * the sum of its positions' dx: from zero, in order of position, then multiplied and added once.
// A warp takes one slice of columns of the tokens of a group; these are spread out, because frequent tokens often have
// neighbouring numbers. A token without positions costs one check.
// moves      sizeof(E) bytes an element of dx, 8 bytes an element of the rows that occur, and the sort's counters;
//            memory bound
// reference  gpu/cpu/kernel/embedding.c: embedding_backward; the same bits
template <class T, int W> __global__ void __launch_bounds__(BLOCK, 3) embed_words_kernel(embed_back_args<T> a) {
    int lane = threadIdx.x;
    int64_t task = (int64_t)blockIdx.x * blockDim.y + threadIdx.y, group = task / a.slices;
    int64_t column = (task % a.slices * WARP + lane) * W;
    if (group >= a.groups) return;
    bool inside = column < a.width;
    const T *dx = a.dx + (inside ? column : 0);
    int64_t word = group + lane * a.groups;
    int32_t begins = word < a.vocabulary ? a.begin[word] : 0,
            counts = word < a.vocabulary ? a.begin[word + 1] - begins : 0;
    uint32_t used = __ballot_sync(0xffffffffu, counts > 0);
    for (; used; used &= used - 1) {
        int who = __ffs((int)used) - 1;
        int64_t at = __shfl_sync(0xffffffffu, begins, who), end = at + __shfl_sync(0xffffffffu, counts, who);
        float sum[W] = {};
        for (; at < end; at += LIST) {
            int n = end - at < LIST ? (int)(end - at) : (int)LIST;
            int32_t mine = lane < n ? a.order[at + lane] : 0;
            few<T, W> v[LIST];
#pragma unroll
            for (int k = 0; k < LIST; k++) {
                int64_t row = __shfl_sync(0xffffffffu, mine, k);
                if (k < n) v[k] = load_few<T, W>(dx + row * a.width);
            }
#pragma unroll
            for (int k = 0; k < LIST; k++)
                if (k < n) add_few<T, W>(sum, v[k]);
        }
        float *out = a.dwte + (group + who * a.groups) * a.width + column;
        if (inside)
            for (int w = 0; w < W; w++) out[w] += a.factor * sum[w];
    }
}

// dwpe[t] (+=) the sum of dx[.,t], in order of samples. A warp takes one slice of columns of one t.
template <class T, int W> __global__ void __launch_bounds__(BLOCK) embed_places_kernel(embed_back_args<T> a) {
    int64_t task = (int64_t)blockIdx.x * blockDim.y + threadIdx.y, t = task / a.slices;
    int64_t column = (task % a.slices * WARP + threadIdx.x) * W;
    if (t >= a.length || column >= a.width) return;
    const T *dx = a.dx + t * a.width + column;
    float sum[W] = {}, *out = a.dwpe + t * a.width + column;
#pragma unroll 8
    for (int64_t b = 0; b < a.samples; b++) add_few<T, W>(sum, load_few<T, W>(dx + b * a.length * a.width));
    for (int w = 0; w < W; w++) out[w] += sum[w];
}

template <class T, int W> static err_t embed_back(embed_back_args<T> *a, stream *s) {
    enum { ENOUGH_WARPS = 32768 };
    a->slices = ceil_div(a->width, WARP * W);
    int64_t each = a->vocabulary * a->slices / ENOUGH_WARPS;  // tokens of a warp, 32 at most: a lane each
    a->groups = ceil_div(a->vocabulary, each < 1 ? 1 : each < WARP ? each : (int64_t)WARP);
    dim3 block(WARP, BLOCK / WARP);
    LAUNCH((embed_words_kernel<T, W>), blocks_of(a->groups * a->slices, BLOCK / WARP), block, 0, s, *a);
    if (a->dwpe) LAUNCH((embed_places_kernel<T, W>), blocks_of(a->length * a->slices, BLOCK / WARP), block, 0, s, *a);
    return ERR_OK;
}

template <class T> static err_t embed_back_of(embed_back_args<T> *a, stream *s) {
    constexpr int W = 4 / sizeof(T);
    if (a->width % W == 0 && (uintptr_t)a->dx % 4 == 0) return embed_back<T, W>(a, s);
    return embed_back<T, 1>(a, s);
}

// Rows of positions are those of a vocabulary of places.
template <class T>
static err_t embed_back_places(embed_back_args<T> a, sort_args sort, const embedding_backward_args *args, stream *s) {
    const int64_t rows = args->dwpe->size[0];
    assert(args->places->type == INT32 && tensor_count(args->places) == sort.positions && rows < INT32_MAX);
    assert(tensor_count(args->scratch) >= sort.positions + rows + 1);
    sort.tokens = (const int32_t *)args->places->data, sort.from = 0;
    TRY(sort_by_token(sort, rows, s));
    a.dwte = (float *)args->dwpe->data, a.dwpe = NULL, a.vocabulary = rows, a.factor = 1;
    return embed_back_of(&a, s);
}

err_t cuda_embedding_backward(const embedding_backward_args *args, stream *s) {
    int64_t samples = args->tokens->size[0], length = args->tokens->size[1], positions = samples * length;
    int64_t vocabulary = args->dwte->size[0], width = args->dwte->size[1];
    assert(args->tokens->type == INT32 && args->tokens->dims == 2 && args->dwte->type == FP32 &&
           positions <= INT32_MAX);
    assert(args->scratch->type == INT32 && tensor_count(args->scratch) >= positions + vocabulary + 1 &&
           vocabulary < INT32_MAX);
    tensor *dwpe = args->dwpe;
    assert(tensor_count(args->dx) == positions * width && args->factor != 0);
    assert(!dwpe || (dwpe->type == FP32 && dwpe->size[1] == width && (dwpe->size[0] >= length || args->places)));
    int32_t *order = (int32_t *)args->scratch->data, *begin = order + positions;
    sort_args sort = {};
    sort.order = order, sort.begin = begin, sort.tokens = (const int32_t *)args->tokens->data,
    sort.positions = (int32_t)positions;
    sort.from = args->part ? (int32_t)args->first : 0;
    TRY(sort_by_token(sort, vocabulary, s));
    if (args->fresh_wte) TRY(cuda_zero(s, args->dwte->data, tensor_bytes(args->dwte)));
    if (dwpe && args->fresh_wpe) TRY(cuda_zero(s, dwpe->data, tensor_bytes(dwpe)));
    BY_TYPE(args->dx->type, T, {
        embed_back_args<T> a = {(float *)args->dwte->data,
                                dwpe && !args->places ? (float *)dwpe->data : NULL,
                                order,
                                begin,
                                (const T *)args->dx->data,
                                samples,
                                length,
                                width,
                                vocabulary,
                                0,
                                0,
                                args->factor};
        TRY(embed_back_of(&a, s));
        if (dwpe && args->places) TRY(embed_back_places(a, sort, args, s));
    });
    return ERR_OK;
}
