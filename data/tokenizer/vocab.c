// data/tokenizer/vocab.c: byte-pair encoding of one piece. Of all neighbours that may merge, those of the lowest rank
// do, the leftmost first, until none may. Short pieces are scanned for it each time. Long ones keep a heap of what may
// merge:
//
//   h e l l o   ->   h e ll o   ->   he ll o   ->   ...     a merged node keeps the place of its left half; its
//   neighbours' entries in the heap
//                                                           are then of nodes that are gone or changed, and are dropped
//                                                           when they come up
#include "data/tokenizer/vocab.h"

#include <string.h>

enum { SHORT = 96 };

// --- tables ----------------------------------------------------------------------------------------------------------

err_t vocab_add(vocab *v, int32_t id, const void *text, int64_t n, bool whole, bool *taken) {
    struct {
        vocab_token *at;
        int64_t room;
    } list = {v->token, v->room};
    err_t rc = ERR_OK;
    *taken = false;
    if (id >= v->room) {
        void *grown = room_grow(list.at, &list.room, (int64_t)id + 1, sizeof *list.at);
        if (!grown) return err_set(ERR_INTERNAL, "no memory for %d tokens", id);
        v->token = grown;
        for (int64_t i = v->room; i < list.room; i++) v->token[i] = (vocab_token){.at = -1};
        v->room = list.room;
    }
    if (v->token[id].at >= 0) return *taken = true, rc;
    ROOM_FOR(&v->text, v->text.n + n + 1);
    if (n) memcpy(v->text.at + v->text.n, text, (size_t)n);
    v->token[id] = (vocab_token){v->text.n, (int32_t)n, whole};
    v->text.n += n;
    if (id >= v->size) v->size = id + 1;
    return rc;
}

static uint64_t pair_key(int32_t left, int32_t right) { return (uint64_t)(uint32_t)left << 32 | (uint32_t)right; }

static inline const vocab_pair *find_pair(const vocab *v, int32_t left, int32_t right) {
    uint64_t key = pair_key(left, right), h = hash_mix(key, 0) & v->pair_mask;
    while (v->pair[h].key != key && v->pair[h].key != UINT64_MAX) h = (h + 1) & v->pair_mask;
    return &v->pair[h];
}

static uint64_t slots_for(int64_t count) {
    uint64_t slots = 16;
    while (slots < 2 * (uint64_t)count) slots *= 2;
    return slots;
}

err_t vocab_pairs(vocab *v, int64_t count) {
    uint64_t slots = slots_for(count);
    v->pair = malloc(slots * sizeof *v->pair);
    if (!v->pair) return err_set(ERR_INTERNAL, "no memory for %lld merges", (long long)count);
    v->pair_mask = slots - 1;
    for (uint64_t i = 0; i < slots; i++) v->pair[i] = (vocab_pair){UINT64_MAX, INT32_MAX, -1};
    return ERR_OK;
}

void vocab_merge(vocab *v, int32_t left, int32_t right, int32_t rank, int32_t id) {
    vocab_pair *p = (vocab_pair *)find_pair(v, left, right);
    *p = (vocab_pair){pair_key(left, right), rank, id};
}

static uint64_t hash_bytes(const uint8_t *s, int64_t n) {
    uint64_t h = (uint64_t)n, part;
    for (; n >= 8; s += 8, n -= 8) memcpy(&part, s, 8), h = hash_mix(h, part);
    part = 0;
    if (n) memcpy(&part, s, (size_t)n);
    return hash_mix(h, part);
}

static uint64_t find_word(const vocab *v, const uint8_t *s, int64_t n) {
    uint64_t h = hash_bytes(s, n) & v->word_mask;
    for (; v->word[h] >= 0; h = (h + 1) & v->word_mask) {
        const vocab_token *t = &v->token[v->word[h]];
        if (t->bytes == n && memcmp(v->text.at + t->at, s, (size_t)n) == 0) break;
    }
    return h;
}

err_t vocab_words(vocab *v) {
    uint64_t slots = slots_for(v->size);
    v->word = malloc(slots * sizeof *v->word);
    if (!v->word) return err_set(ERR_INTERNAL, "no memory for %d tokens", v->size);
    v->word_mask = slots - 1;
    memset(v->word, 0xFF, slots * sizeof *v->word);
    for (int32_t id = 0; id < v->size; id++) {
        const vocab_token *t = &v->token[id];
        if (t->at >= 0 && t->whole) v->word[find_word(v, v->text.at + t->at, t->bytes)] = id;
    }
    return ERR_OK;
}

void vocab_free(vocab *v) {
    free(v->token);
    free(v->text.at);
    free(v->pair);
    free(v->word);
}

// --- short pieces ----------------------------------------------------------------------------------------------------

static err_t encode_short(const vocab *v, const uint8_t *text, int n, id_list *out) {
    const vocab_pair *next[SHORT];  // how id[i] and id[i+1] merge
    int32_t id[SHORT];
    for (int i = 0; i < n; i++) id[i] = v->byte_id[text[i]];
    for (int i = 0; i + 1 < n; i++) next[i] = find_pair(v, id[i], id[i + 1]);
    for (;;) {
        int32_t rank = INT32_MAX;
        int best = 0;
        for (int i = 0; i + 1 < n; i++)
            if (next[i]->rank < rank) rank = next[i]->rank, best = i;
        if (rank == INT32_MAX) break;
        id[best] = next[best]->id;
        n--;
        memmove(id + best + 1, id + best + 2, (size_t)(n - best - 1) * sizeof *id);
        if (best + 1 < n) {
            memmove(next + best + 1, next + best + 2, (size_t)(n - best - 2) * sizeof *next);
            next[best] = find_pair(v, id[best], id[best + 1]);
        }
        if (best > 0) next[best - 1] = find_pair(v, id[best - 1], id[best]);
    }
    ROOM_FOR(out, out->n + n);
    memcpy(out->at + out->n, id, (size_t)n * sizeof *id);
    out->n += n;
    return ERR_OK;
}

// --- long pieces -----------------------------------------------------------------------------------------------------

static bool earlier(const merge_step *a, const merge_step *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

// What node `at` and the one after it merge to, if anything, goes into the heap.
static err_t push(const vocab *v, merge_work *w, int32_t at) {
    const merge_node *node = w->nodes.at;
    int32_t after = at >= 0 ? node[at].after : -1;
    if (after < 0) return ERR_OK;
    const vocab_pair *p = find_pair(v, node[at].id, node[after].id);
    if (p->id < 0) return ERR_OK;
    ROOM_FOR(&w->heap, w->heap.n + 1);
    merge_step *heap = w->heap.at, step = {p->rank, at, node[at].id, node[after].id, p->id};
    int64_t i = w->heap.n++;
    for (; i > 0 && earlier(&step, &heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = step;
    return ERR_OK;
}

static merge_step pop(merge_work *w) {
    merge_step *heap = w->heap.at, first = heap[0], last = heap[--w->heap.n];
    int64_t i = 0, n = w->heap.n;
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= n) break;
        if (child + 1 < n && earlier(&heap[child + 1], &heap[child])) child++;
        if (!earlier(&heap[child], &last)) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return first;
}

static err_t encode_long(const vocab *v, const uint8_t *text, int32_t n, merge_work *w, id_list *out) {
    ROOM_FOR(&w->nodes, n);
    merge_node *node = w->nodes.at;
    for (int32_t i = 0; i < n; i++) node[i] = (merge_node){v->byte_id[text[i]], i - 1, i + 1 < n ? i + 1 : -1};
    w->heap.n = 0;
    for (int32_t i = 0; i < n; i++) TRY(push(v, w, i));
    while (w->heap.n > 0) {
        merge_step s = pop(w);
        int32_t after = node[s.at].after;
        if (node[s.at].id != s.left || after < 0 || node[after].id != s.right) continue;
        node[s.at] = (merge_node){s.id, node[s.at].before, node[after].after};
        node[after].id = -1;
        if (node[s.at].after >= 0) node[node[s.at].after].before = s.at;
        TRY(push(v, w, s.at));
        TRY(push(v, w, node[s.at].before));
    }
    for (int32_t i = 0; i >= 0; i = node[i].after) TRY(ids_add(out, node[i].id));
    return ERR_OK;
}

err_t vocab_encode(const vocab *v, const uint8_t *text, int64_t n, merge_work *work, id_list *out) {
    if (v->word) {
        int32_t id = v->word[find_word(v, text, n)];
        if (id >= 0) return ids_add(out, id);
    }
    if (n <= SHORT) return encode_short(v, text, (int)n, out);
    if (n > INT32_MAX)
        return err_set(ERR_DATA, "a piece of %lld bytes can't be encoded, expected less than 2^31", (long long)n);
    return encode_long(v, text, (int32_t)n, work, out);
}

void merge_work_free(merge_work *work) {
    free(work->nodes.at);
    free(work->heap.at);
}
