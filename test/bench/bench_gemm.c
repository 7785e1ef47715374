// test/bench/bench_gemm.c: the matrix product at the shapes that a GPT makes of it, against the processor's peak and,
// where they are installed, against oneDNN (dnnl_sgemm) and OpenBLAS (cblas_sgemm).
//
//     OPENBLAS_CORETYPE=SkylakeX bench_gemm [threads] [quick|tiny]
//
// (OpenBLAS knows processors by number and takes those newer than itself for older ones: name it the kernels of this
// one.)
//
// Ours and theirs take turns within one process, and so do the peaks: what loops of register FMAs of the same width
// reach at the same number of threads. A figure is that of the fastest turn: what disturbs a machine only takes away,
// on a shared one for seconds and never from all alike; rounds in which a peak was missed come again, up to twice as
// many as there should be. The peers are opened at run time and nothing is needed when they are absent. GFLOP/s. `line`
// is how many ns a line of cache took from one thread to another at the best moment of the shape: several times as many
// between two dies of a processor as on one, and whatever threads share is so much dearer then. Quick: fewer shapes and
// turns. Tiny, for tests: small sizes and one turn, no figures to be quoted.
#include "gpu/cpu/kernel/kernel.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

typedef err_t (*matmul_fn)(const matmul_args *, stream *);
typedef int (*dnnl_fn)(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *, int64_t,
                       float, float *, int64_t);
typedef void (*cblas_fn)(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *,
                         int);

typedef struct shape {
    const char *name;
    bool ta, tb, accumulate;
    int64_t m, n, k;
} shape;

typedef struct problem {
    shape s;
    tensor d, a, b;
} problem;

typedef struct contender {
    const char *name;
    matmul_fn ours;
    dnnl_fn dnnl;
    cblas_fn cblas;
    stream *st;
    void (*peak_loop)(long);  // of its vectors, of so many floats; NULL: none
    int floats;
    double peak, seconds;  // of a shape: the highest peak in GFLOP/s, the fastest turn
} contender;

typedef struct effort {
    bool quick;
    int64_t divide;  // every size by this
    double warm;     // seconds of untimed calls, after a pause of twice as long
} effort;

// The least of all shapes, and where it was, and how many shapes miss the goal that each is held against.
typedef struct least {
    double goal, share;
    char shape[48];
    int missed, shapes;
} least;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// --- peak ------------------------------------------------------------------------------------------------------------

#if defined(__x86_64__)
// Twelve chains of FMA in registers, eight times over: more than latency times ports anywhere.
#define CHAINS(r) \
    "vfmadd231ps %%" r "13,%%" r "12,%%" r "0\nvfmadd231ps %%" r "13,%%" r "12,%%" r "1\n" \
    "vfmadd231ps %%" r "13,%%" r "12,%%" r "2\nvfmadd231ps %%" r "13,%%" r "12,%%" r "3\n" \
    "vfmadd231ps %%" r "13,%%" r "12,%%" r "4\nvfmadd231ps %%" r "13,%%" r "12,%%" r "5\n" \
    "vfmadd231ps %%" r "13,%%" r "12,%%" r "6\nvfmadd231ps %%" r "13,%%" r "12,%%" r "7\n" \
    "vfmadd231ps %%" r "13,%%" r "12,%%" r "8\nvfmadd231ps %%" r "13,%%" r "12,%%" r "9\n" \
    "vfmadd231ps %%" r "13,%%" r "12,%%" r "10\nvfmadd231ps %%" r "13,%%" r "12,%%" r "11\n"
#define PEAK(name, r) \
    static void name(long n) { \
        __asm__ volatile("vzeroall\n1:\n.rept 8\n" CHAINS(r) ".endr\ndec %0\njnz 1b\nvzeroupper\n" \
                         : "+r"(n)::"cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", \
                           "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"); \
    }
PEAK(peak_zmm, "zmm")
PEAK(peak_ymm, "ymm")

#endif

enum { PEAK_LOOPS = 20000, PEAK_ITEMS = 8, PEAK_FMAS = 96 };

typedef struct peak_job {
    void (*loop)(long);
} peak_job;
static void peak_item(void *ctx, int64_t item, int thread) {
    (void)item, (void)thread;
    ((peak_job *)ctx)->loop(PEAK_LOOPS);
}

// GFLOP/s of a loop that does `floats` at once, on all threads.
static double peak_gflops(pool *p, void (*loop)(long), int floats) {
    peak_job j = {loop};
    int items = PEAK_ITEMS * pool_threads(p);
    double t = now();
    pool_run(p, items, peak_item, &j);
    return 2.0 * PEAK_LOOPS * PEAK_FMAS * floats * items / (now() - t) * 1e-9;
}

// --- how far threads are from each other -----------------------------------------------------------------------------

enum { PASSES = 100 };

typedef struct passing {
    _Alignas(128) atomic_int line;
    _Alignas(128) double seconds;
} passing;

// Two threads take turns to add one, each at its parity. The clock starts when both are awake.
static void pass_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    passing *p = ctx;
    double start = 0;
    for (int i = 0; i <= PASSES; i++) {
        while (atomic_load_explicit(&p->line, memory_order_acquire) != 2 * i + (int)item) {}
        if (i == 1) start = now();
        atomic_store_explicit(&p->line, 2 * i + (int)item + 1, memory_order_release);
    }
    if (item == 1) p->seconds = now() - start;
}

static double line_ns(pool *workers) {
    passing p = {0};
    pool_run(workers, 2, pass_item, &p);
    return 1e9 * p.seconds / (2 * PASSES);
}

// --- runs ------------------------------------------------------------------------------------------------------------

static void once(contender *c, problem *p) {
    const shape *s = &p->s;
    float beta = s->accumulate ? 1.0f : 0.0f;
    int64_t lda = p->a.size[1], ldb = p->b.size[1];
    if (c->ours) {
        if (c->ours(&(matmul_args){.d = &p->d,
                                   .a = &p->a,
                                   .ta = s->ta,
                                   .b = &p->b,
                                   .tb = s->tb,
                                   .epilogue = s->accumulate ? MATMUL_ACCUMULATE : 0},
                    c->st) != ERR_OK) {
            fprintf(stderr, "%s\n", err_last()->text);
            exit(ERR_INTERNAL);
        }
    } else if (c->dnnl) {
        c->dnnl(s->ta ? 'T' : 'N', s->tb ? 'T' : 'N', s->m, s->n, s->k, 1.0f, p->a.data, lda, p->b.data, ldb, beta,
                p->d.data, s->n);
    } else {
        c->cblas(101, s->ta ? 112 : 111, s->tb ? 112 : 111, (int)s->m, (int)s->n, (int)s->k, 1.0f, p->a.data, (int)lda,
                 p->b.data, (int)ldb, beta, p->d.data, (int)s->n);
    }
}

// One turn: untimed calls, then `calls` timed ones. A pause before it lets the peers' idle threads stop spinning
// (libgomp's do so for some 5 ms after their last work, and would take a core from what runs next).
static double turn(contender *c, problem *p, const effort *e, int calls) {
    nanosleep(&(struct timespec){0, (long)(2e9 * e->warm)}, NULL);
    double t = now();
    do once(c, p);  // until its own threads are awake: a core that has slept is slow to come back
    while (now() - t < e->warm);
    t = now();
    for (int i = 0; i < calls; i++) once(c, p);
    return (now() - t) / calls;
}

static float *floats(int64_t n, uint32_t seed) {
    float *p = NULL;
    if (posix_memalign((void **)&p, 2 << 20, (size_t)n * sizeof *p)) exit(ERR_INTERNAL);
    madvise(p, (size_t)n * sizeof *p, MADV_HUGEPAGE);  // as the device's memory is
    for (int64_t i = 0; i < n; i++)
        p[i] = (float)((((uint32_t)i + seed) * 2654435761u) >> 8 & 0xffff) / 65536.0f - 0.5f;
    return p;
}

static void note(least *l, double share, const char *shape) {
    l->shapes++;
    l->missed += share < l->goal;
    if (l->shape[0] && l->share <= share) return;
    l->share = share;
    snprintf(l->shape, sizeof l->shape, "%s", shape);
}

// One line: speeds, of ours the share of the peak, ours / theirs, and ours / the faster of theirs.
static void print_row(const char *shape, const contender *c, int contenders, double flops, double line, least *share,
                      least *ratio) {
    double ours = 0, theirs = 0;
    printf("%-30s", shape);
    for (int i = 0; i < contenders; i++) {
        double g = flops / c[i].seconds * 1e-9;
        if (i == 0) ours = g;
        printf("%9.1f", g);
        if (c[i].peak > 0) {
            printf(" %4.0f%%", 100 * g / c[i].peak);
            note(&share[i], g / c[i].peak, shape);
        }
        if (c[i].ours) continue;
        printf(" %5.2f", ours / g);
        if (g > theirs) theirs = g;
    }
    if (theirs > 0) {
        printf(" %7.2f", ours / theirs);
        note(ratio, ours / theirs, shape);
    }
    if (line < INFINITY) printf(" %5.0f", line);
    printf("\n");
    fflush(stdout);
}

// A turn of each. Was the machine calm: did every peak nearly reach the highest one of this shape?
static bool run_round(problem *p, contender *c, int contenders, const effort *e, int calls) {
    bool calm = true;
    for (int i = 0; i < contenders; i++) {
        double seconds = turn(&c[i], p, e, calls),
               peak = c[i].peak_loop ? peak_gflops(c[i].st->workers, c[i].peak_loop, c[i].floats) : 0;
        if (seconds < c[i].seconds) c[i].seconds = seconds;
        if (peak > c[i].peak) c[i].peak = peak;
        calm &= peak >= 0.97 * c[i].peak;
    }
    return calm;
}

static int64_t divided(int64_t n, const effort *e) { return (n + e->divide - 1) / e->divide; }

static void run_shape(const shape *full, contender *c, int contenders, const effort *e, least *share, least *ratio) {
    problem p = {.s = *full};
    shape *s = &p.s;
    s->m = divided(s->m, e), s->n = divided(s->n, e), s->k = divided(s->k, e);
    p.a = (tensor){floats(s->m * s->k, 1), FP32, 2, {s->ta ? s->k : s->m, s->ta ? s->m : s->k}};
    p.b = (tensor){floats(s->k * s->n, 7), FP32, 2, {s->tb ? s->n : s->k, s->tb ? s->k : s->n}};
    p.d = (tensor){floats(s->m * s->n, 3), FP32, 2, {s->m, s->n}};
    double flops = 2.0 * (double)s->m * (double)s->n * (double)s->k;
    double first = turn(&c[0], &p, e, 1);
    int calls = 1 + (int)((e->quick ? 0.001 : 0.004) / first), turns = e->divide > 1             ? 1
                                                                       : e->quick || first > 0.1 ? 5
                                                                                                 : 15;
    for (int i = 0; i < contenders; i++) c[i].seconds = INFINITY, c[i].peak = 0;
    double line = INFINITY;
    for (int r = 0, calm = 0; calm < turns && r < 3 * turns; r++) {
        calm += run_round(&p, c, contenders, e, calls);
        if (pool_threads(c[0].st->workers) > 1) line = fmin(line, line_ns(c[0].st->workers));
    }
    char size[48];
    snprintf(size, sizeof size, "%s %" PRId64 "x%" PRId64 "x%" PRId64, s->name, s->m, s->n, s->k);
    print_row(size, c, contenders, flops, line, share, ratio);
    free(p.a.data), free(p.b.data), free(p.d.data);
}

static void *open_peer(const char *const *files, const char *symbol) {
    for (; *files; files++) {
        void *lib = dlopen(*files, RTLD_NOW | RTLD_LOCAL), *f = lib ? dlsym(lib, symbol) : NULL;
        if (f) return f;
    }
    return NULL;
}

static int find_contenders(contender *c, stream *st) {
    int n = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        c[n++] =
            (contender){.name = "avx512", .ours = cpu_ops_avx512.matmul, .st = st, .peak_loop = peak_zmm, .floats = 16};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        c[n++] = (contender){.name = "avx2", .ours = cpu_ops_avx2.matmul, .st = st, .peak_loop = peak_ymm, .floats = 8};
#elif defined(__aarch64__)
    c[n++] = (contender){.name = "neon", .ours = cpu_ops_neon.matmul, .st = st};
#endif
    if (!n) c[n++] = (contender){.name = "portable", .ours = cpu_ops_portable.matmul, .st = st};
    void *f = open_peer((const char *[]){"libdnnl.so.3", "libdnnl.so.2", NULL}, "dnnl_sgemm");
    if (f) {
        c[n].name = "oneDNN";
        memcpy(&c[n++].dnnl, &f, sizeof f);
    }
    const char *const openblas[] = {"libopenblas.so.0", NULL};
    f = open_peer(openblas, "cblas_sgemm");
    if (f) {
        char *(*core)(void) = NULL;
        void *name = open_peer(openblas, "openblas_get_corename");
        memcpy(&core, &name, sizeof core);
        if (core) printf("# OpenBLAS runs its kernels for %s\n", core());
        c[n].name = "OpenBLAS";
        memcpy(&c[n++].cblas, &f, sizeof f);
    }
    return n;
}

static void run_shapes(contender *c, int n, const effort *e, least *share, least *ratio) {
    for (int i = 0; i < (e->quick ? 1 : 2); i++) {
        int64_t m = i ? 1024 : 256;
        const shape gpt2[] = {
            {"qkv", 0, 1, 0, m, 2304, 768},       {"attproj", 0, 1, 0, m, 768, 768},
            {"fc", 0, 1, 0, m, 3072, 768},        {"fcproj", 0, 1, 0, m, 768, 3072},
            {"head", 0, 1, 0, m, 50304, 768},     {"dX fc", 0, 0, 0, m, 768, 3072},
            {"dX head", 0, 0, 0, m, 768, 50304},  {"dW fc", 1, 0, 1, 3072, 768, m},
            {"dW fcproj", 1, 0, 1, 768, 3072, m}, {"dW head", 1, 0, 1, 50304, 768, m},
        };
        for (size_t s = 0; s < sizeof gpt2 / sizeof *gpt2; s++) run_shape(&gpt2[s], c, n, e, share, ratio);
    }
    const shape small[] = {
        {"qkv", 0, 1, 0, 768, 384, 128},   {"fc", 0, 1, 0, 768, 512, 128},        {"fcproj", 0, 1, 0, 768, 128, 512},
        {"head", 0, 1, 0, 768, 256, 128},  {"dX fc", 0, 0, 0, 768, 128, 512},     {"dW qkv", 1, 0, 1, 384, 128, 768},
        {"dW fc", 1, 0, 1, 512, 128, 768}, {"dW fcproj", 1, 0, 1, 128, 512, 768},
    };
    for (size_t s = 0; s < sizeof small / sizeof *small; s++) run_shape(&small[s], c, n, e, share, ratio);
}

static void print_header(const contender *c, int n, int threads) {
    printf("# %d thread%s, GFLOP/s of the fastest turn; after a peer: ours / peer%s\n%-30s", threads,
           threads > 1 ? "s" : "", c[n - 1].ours ? "" : ", last: ours / the faster peer", "# m x n x k");
    for (int i = 0; i < n; i++) printf("%9s%s", c[i].name, c[i].peak_loop ? "  peak" : c[i].ours ? "" : " ratio");
    printf("%s%s\n", c[n - 1].ours ? "" : "  faster", threads > 1 ? "  line" : "");
}

int main(int argc, char **argv) {
    enum { MOST = 8 };
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    bool tiny = argc > 2 && !strcmp(argv[2], "tiny"), quick = tiny || (argc > 2 && !strcmp(argv[2], "quick"));
    if (threads < 1) return fprintf(stderr, "usage: bench_gemm [threads] [quick|tiny]\n"), ERR_USAGE;
    effort e = {.quick = quick, .divide = tiny ? 16 : 1, .warm = tiny ? 0 : 0.01};
    char text[16];
    snprintf(text, sizeof text, "%d", threads);
    setenv("OMP_NUM_THREADS", text, 1);  // all before the peers are loaded
    setenv("OPENBLAS_NUM_THREADS", text, 1);
    stream st = {0};
    if (pool_open(&st.workers, threads) != ERR_OK) return fprintf(stderr, "%s\n", err_last()->text), ERR_INTERNAL;
    contender c[MOST] = {0};
    least share[MOST], ratio = {.goal = 0.95};
    for (int i = 0; i < MOST; i++) share[i] = (least){.goal = 0.85};
    int n = find_contenders(c, &st);
    print_header(c, n, threads);
    run_shapes(c, n, &e, share, &ratio);
    for (int i = 0; i < n; i++)
        if (c[i].peak > 0)
            printf("# least of %s's peak: %.0f%%, %s; below %.0f%%: %d of %d shapes\n", c[i].name, 100 * share[i].share,
                   share[i].shape, 100 * share[i].goal, share[i].missed, share[i].shapes);
    if (ratio.shape[0])
        printf("# least of the faster peer: %.2f, %s; below %.2f: %d of %d shapes\n", ratio.share, ratio.shape,
               ratio.goal, ratio.missed, ratio.shapes);
    pool_close(st.workers);
    return 0;
}
