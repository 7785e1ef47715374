// test/test_loader.c: the order of windows, and the loader that delivers them. What the loader hands out is compared
// with a direct computation, from any step, for any share of the lanes.
#include "base/io.h"
#include "base/philox.h"
#include "data/loader.h"
#include "data/sampler.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static atomic_int heap_calls;
#else
static atomic_int heap_calls;
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void *malloc(size_t n) {
    atomic_fetch_add(&heap_calls, 1);
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t m) {
    atomic_fetch_add(&heap_calls, 1);
    return __libc_calloc(n, m);
}
void *realloc(void *p, size_t n) {
    atomic_fetch_add(&heap_calls, 1);
    return __libc_realloc(p, n);
}
#endif

#define assert_ok(call) \
    do { \
        if ((call) != ERR_OK) fail_msg("%s: %s", #call, err_last()->text); \
    } while (0)

enum { TOKENS = 20011, T = 16, WINDOWS = (TOKENS - 1) / T };

// A directory with one raw16 file whose token k is k (mod 2^16).
typedef struct place {
    char dir[256], file[300];
    fault_list faults;
    source *data;
} place;

// What a model of T tokens reads.
static const tensor_spec window[] = {{.name = "tokens", .type = INT32, .dims = 1, .size = {T, 1, 1}},
                                     {.name = "targets", .type = INT32, .dims = 1, .size = {T, 1, 1}}};

static err_t open_source(place *p, source **out, int retry) {
    return source_open(
        out, &(source_options){.files = p->file, .wanted = window, .inputs = 2, .retry = retry, .faults = &p->faults});
}

static int32_t token_of(const batch *b, int64_t i) { return ((const int32_t *)b->in[0])[i]; }
static int32_t target_of(const batch *b, int64_t i) { return ((const int32_t *)b->in[1])[i]; }

static int enter(void **state) {
    place *p = calloc(1, sizeof *p);
    const char *tmp = getenv("TMPDIR");
    static uint8_t bytes[2 * TOKENS];
    for (int i = 0; i < 2 * TOKENS; i++) bytes[i] = (uint8_t)(i / 2 >> 8 * (i % 2));
    snprintf(p->dir, sizeof p->dir, "%.200s/lockstep-loader-XXXXXX", tmp ? tmp : "/tmp");
    *state = p;
    if (!mkdtemp(p->dir)) return -1;
    snprintf(p->file, sizeof p->file, "%s/raw.bin", p->dir);
    if (io_write_file(p->file, bytes, sizeof bytes, NULL) != ERR_OK) return -1;
    return open_source(p, &p->data, 3) == ERR_OK ? 0 : -1;
}

static int leave(void **state) {
    place *p = *state;
    source_close(p->data);
    err_t rc = io_remove_tree(p->dir);
    free(p);
    return (int)rc;
}

static void pause_ms(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// --- sampler ---------------------------------------------------------------------------------------------------------

// A window needs the token after it, its last target.
static void test_windows(void **state) {
    place *p = *state;
    static const struct {
        int64_t tokens, T, windows;
    } cases[] = {{9, 8, 1}, {16, 8, 1}, {17, 8, 2}, {8, 8, 0}, {2, 1, 1}, {1, 1, 0}};
    for (int i = 0; i < 6; i++) {
        tensor_spec in[2] = {window[0], window[1]};
        source *s;
        assert_int_equal(truncate(p->file, 2 * cases[i].tokens), 0);
        in[0].size[0] = in[1].size[0] = cases[i].T;
        err_t rc = source_open(&s, &(source_options){.files = p->file, .wanted = in, .inputs = 2});
        assert_int_equal(rc, cases[i].windows ? ERR_OK : ERR_DATA);
        if (rc == ERR_OK) assert_int_equal(source_about(s).samples, cases[i].windows);
        source_close(s);
    }
}

// Each epoch is a permutation of [0,W), for every small W, and around squares and powers of two.
static void check_permutation(int64_t W, uint64_t seed, int64_t epoch) {
    uint8_t *seen = calloc(1, (size_t)W);
    for (int64_t i = 0; i < W; i++) {
        int64_t w = sampler_at(seed, epoch * W + i, W, true);
        assert_true(w >= 0 && w < W);
        if (seen[w]++) fail_msg("W %" PRId64 ": window %" PRId64 " comes twice", W, w);
    }
    free(seen);
}

static void test_bijective(void **state) {
    (void)state;
    for (int64_t W = 1; W <= 300; W++)
        for (int64_t epoch = 0; epoch < 3; epoch++) check_permutation(W, 42 + (uint64_t)W, epoch);
    for (int bits = 9; bits <= 16; bits++)
        for (int64_t d = -1; d <= 1; d++) check_permutation((INT64_C(1) << bits) + d, 7, 1);
    for (int64_t a = 99; a <= 101; a++)
        for (int64_t d = -1; d <= 1; d++) check_permutation(a * a + d, UINT64_MAX, 5);
}

// Seeds and epochs give different orders; without shuffling the order is that of the stream.
static void test_keys(void **state) {
    (void)state;
    int same_seed = 0, same_epoch = 0, fixed = 0;
    for (int64_t i = 0; i < 1000; i++) {
        int64_t w = sampler_at(1, i, 1000, true);
        same_seed += w == sampler_at(2, i, 1000, true);
        same_epoch += w == sampler_at(1, i + 1000, 1000, true);
        fixed += w == i;
        assert_int_equal(sampler_at(1, i, 300, false), i % 300);
    }
    assert_true(same_seed < 10 && same_epoch < 10 && fixed < 10);  // 1 is expected; 10 has a chance of 1e-7
}

// Each of the W! orders of a small W comes about as often as any other: chi-square over 6000 seeds, far beyond the 1e-6
// tail.
static void test_small_orders(void **state) {
    (void)state;
    static const struct {
        int W, orders;
        double limit;
    } cases[] = {{2, 2, 24}, {3, 6, 36}, {4, 24, 78}};
    for (int c = 0; c < 3; c++) {
        int count[256] = {0}, used = 0;
        double chi = 0, mean = 6000.0 / cases[c].orders;
        for (uint64_t seed = 0; seed < 6000; seed++) {
            int code = 0;
            for (int i = 0; i < cases[c].W; i++) code = code * 4 + (int)sampler_at(seed, i, cases[c].W, true);
            count[code]++;
        }
        for (int i = 0; i < 256; i++) used += count[i] > 0;
        for (int i = 0; i < 256; i++)
            if (count[i]) chi += (count[i] - mean) * (count[i] - mean) / mean;
        assert_int_equal(used, cases[c].orders);
        if (chi > cases[c].limit) fail_msg("W %d: chi-square %g, expected below %g", cases[c].W, chi, cases[c].limit);
    }
}

static void test_huge(void **state) {
    (void)state;
    static const int64_t sizes[] = {(INT64_C(1) << 32) + 1, (INT64_C(1) << 62) - 1, INT64_MAX};
    for (int k = 0; k < 3; k++) {
        int high = 0;
        for (int64_t i = 0; i < 1000; i++) {
            int64_t w = sampler_at(3, sizes[k] / 1000 * i, sizes[k], true);
            assert_true(w >= 0 && w < sizes[k]);
            high += w > sizes[k] / 2;
        }
        assert_in_range(high, 400, 600);
    }
}

// --- loader ----------------------------------------------------------------------------------------------------------

static loader_options options(int64_t global, int64_t micro, int64_t lanes, int depth) {
    return (loader_options){.seed = 11,
                            .shuffle = true,
                            .in = window,
                            .inputs = 2,
                            .global = global,
                            .micro = micro,
                            .lanes = lanes,
                            .first_lane = 0,
                            .lane_count = lanes,
                            .lane_stride = 1,
                            .first_step = 1,
                            .last_step = 1,
                            .depth = depth};
}

static loader *open_loader(place *p, loader_options *o) {
    loader *l;
    assert_int_equal(loader_bytes(o) % 4096, 0);
    o->memory = aligned_alloc(4096, (size_t)loader_bytes(o));
    memset(o->memory, 0xee, (size_t)loader_bytes(o));
    assert_ok(loader_open(&l, p->data, o));
    return l;
}

static void close_loader(loader *l, loader_options *o) {
    loader_close(l);
    free(o->memory);
}

// The batch is what the definition says, computed here from nothing but the options.
static void check_batch(const loader_options *o, const batch *b, int64_t step, int64_t lane, int64_t micro) {
    assert_int_equal(b->step, step);
    assert_int_equal(b->lane, lane);
    assert_int_equal(b->micro, micro);
    assert_int_equal(b->first, lane * o->global / o->lanes + micro * o->micro);
    const char *end = (const char *)o->memory + loader_bytes(o);
    assert_true(b->in[0] >= o->memory && (const char *)b->in[1] + o->micro * T * (int64_t)sizeof(int32_t) <= end);
    for (int64_t i = 0; i < o->micro; i++) {
        int64_t n = (step - 1) * o->global + b->first + i, w = sampler_at(o->seed, n, WINDOWS, o->shuffle);
        for (int64_t t = 0; t < T; t++) {
            assert_int_equal(token_of(b, i * T + t), w * T + t);
            assert_int_equal(target_of(b, i * T + t), w * T + t + 1);
        }
    }
}

static void check_run(place *p, loader_options o) {
    loader *l = open_loader(p, &o);
    batch b;
    for (int64_t step = o.first_step; step <= o.last_step; step++)
        for (int64_t lane = o.first_lane; lane < o.first_lane + o.lane_count * o.lane_stride; lane += o.lane_stride)
            for (int64_t micro = 0; micro < o.global / o.lanes / o.micro; micro++) {
                assert_ok(loader_next(l, &b));
                check_batch(&o, &b, step, lane, micro);
            }
    for (int i = 0; i < 2; i++) assert_int_equal(loader_next(l, &b), ERR_DATA);
    assert_non_null(strstr(err_last()->text, "no batch after step"));
    close_loader(l, &o);
}

// Any depth, any share of the lanes, any first step (a resumed run), over the end of an epoch.
static void test_order(void **state) {
    place *p = *state;
    for (int depth = 1; depth <= 9; depth += depth < 3 ? 1 : 3) {
        loader_options o = options(24, 3, 4, depth);
        o.last_step = 120;  // 2880 samples: more than two epochs
        check_run(p, o);
        o.first_step = 37;
        check_run(p, o);
        o.first_lane = 1;
        o.lane_count = 2;
        check_run(p, o);
        o.lane_stride = 2;  // lanes 1 and 3, as one of two ranks that take turns
        check_run(p, o);
        o.shuffle = false;
        check_run(p, o);
        o.first_step = o.last_step + 1;  // nothing left
        check_run(p, o);
    }
}

// Every window exactly once an epoch, whatever the number of ranks and however the lanes are dealt out.
static void every_window_once(place *p, bool turns) {
    enum { G = 50, B = 5 };  // 10 lanes; 1250 windows are 25 steps
    assert_int_equal(WINDOWS % G, 0);
    for (int ranks = 1; ranks <= 8; ranks++) {
        uint8_t seen[2][WINDOWS] = {{0}};
        for (int r = 0; r < ranks; r++) {
            loader_options o = options(G, B, G / B, 3);
            o.first_lane = r == 0 ? 0 : (10 - ranks) * r / ranks + r;  // uneven, none empty
            int64_t next = r == ranks - 1 ? 10 : (10 - ranks) * (r + 1) / ranks + r + 1;
            o.lane_count = next - o.first_lane;
            if (turns) o.first_lane = r, o.lane_stride = ranks, o.lane_count = (10 - r + ranks - 1) / ranks;
            o.last_step = 2 * WINDOWS / G;
            loader *l = open_loader(p, &o);
            batch b;
            for (int64_t k = 0; k < o.last_step * o.lane_count; k++) {
                assert_ok(loader_next(l, &b));
                for (int i = 0; i < B; i++) {
                    assert_int_equal(token_of(&b, i * T) % T, 0);
                    seen[(b.step - 1) * G / WINDOWS][token_of(&b, i * T) / T]++;
                }
            }
            close_loader(l, &o);
        }
        for (int i = 0; i < 2 * WINDOWS; i++) assert_int_equal(seen[i / WINDOWS][i % WINDOWS], 1);
    }
}

static void test_once_an_epoch(void **state) {
    for (int turns = 0; turns <= 1; turns++) every_window_once(*state, turns);
}

// A batch is left alone until the next one is asked for, even when the ring is full.
static void test_batch_stays(void **state) {
    place *p = *state;
    for (int depth = 1; depth <= 3; depth++) {
        loader_options o = options(4, 4, 1, depth);
        o.last_step = 12;
        loader *l = open_loader(p, &o);
        batch b;
        for (int64_t step = 1; step <= o.last_step; step++) {
            assert_ok(loader_next(l, &b));
            pause_ms(2);
            check_batch(&o, &b, step, 0, 0);
        }
        close_loader(l, &o);
    }
}

// A look ahead takes nothing: the next batch is the one that was seen, in the same memory. Where there is room for one
// batch alone nothing is seen while it is held, and nothing after the last.
static void test_peek(void **state) {
    place *p = *state;
    for (int depth = 1; depth <= 3; depth++) {
        loader_options o = options(4, 4, 1, depth);
        o.last_step = 12;
        loader *l = open_loader(p, &o);
        batch b, seen;
        for (int64_t step = 1; step <= o.last_step; step++) {
            bool here = false;
            for (int tries = 0; !here && tries < (depth > 1 || step == 1 ? 5000 : 3); tries++, pause_ms(1))
                here = loader_peek(l, &seen);
            assert_true(here == (depth > 1 || step == 1));
            if (here) check_batch(&o, &seen, step, 0, 0);
            assert_ok(loader_next(l, &b));
            check_batch(&o, &b, step, 0, 0);
            if (here) assert_ptr_equal(b.in[0], seen.in[0]);
        }
        assert_false(loader_peek(l, &seen));
        close_loader(l, &o);
    }
}

static void test_wrong_options(void **state) {
    place *p = *state;
    static char memory[1 << 16];
    loader *l;
    loader_options o = options(24, 3, 4, 2);
    o.memory = memory;
    o.global = 25;
    assert_int_equal(loader_open(&l, p->data, &o), ERR_CONFIG);
    o.global = 28;
    assert_int_equal(loader_open(&l, p->data, &o), ERR_CONFIG);
    o.global = 24;
    o.inputs = 0;
    assert_int_equal(loader_open(&l, p->data, &o), ERR_INTERNAL);
    o.inputs = 2;
    o.first_lane = 1;
    assert_int_equal(loader_open(&l, p->data, &o), ERR_INTERNAL);
    assert_null(l);
}

// The depth grows while the trainer has to wait and goes back when it never does.
static void test_depth(void **state) {
    place *p = *state;
    loader_options o = options(2, 2, 1, 12);
    batch b;
    o.last_step = 6000;
    assert_ok(fault_parse(&p->faults, "read@1"));
    loader *l = open_loader(p, &o);
    assert_int_equal(loader_about(l).depth, 2);
    for (int i = 0, depth = 2; i < 2000 && depth < 12; i++) {
        assert_ok(loader_next(l, &b));  // as fast as it can
        int was = depth;
        depth = loader_about(l).depth;
        assert_true(depth == was || depth == 2 * was || (was == 8 && depth == 12));
        if (i == 0) assert_int_equal(depth, 2);  // its read fails once, so it was waited for, as the first always is
    }
    assert_int_equal(loader_about(l).depth, 12);
    assert_true(loader_about(l).wait_s > 0);
    assert_int_equal(loader_about(l).retries, 1);
    int calls = 0;
    for (; calls < 3500 && loader_about(l).depth == 12; calls++) {
        pause_ms(1);
        assert_ok(loader_next(l, &b));
    }
    assert_int_equal(loader_about(l).depth, 11);
    assert_true(calls > 200);  // slowly
    close_loader(l, &o);
}

// A read that fails for good comes out of loader_next with its file and offset, after the batches before it, and again.
static void test_fault(void **state) {
    place *p = *state;
    loader_options o = options(4, 4, 1, 3);
    batch b;
    o.last_step = 10;
    assert_ok(fault_parse(&p->faults, "read@10x4"));  // in the third batch; 3 retries are one too few
    loader *l = open_loader(p, &o);
    for (int step = 1; step <= 2; step++) {
        assert_ok(loader_next(l, &b));
        check_batch(&o, &b, step, 0, 0);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(loader_next(l, &b), ERR_IO);
        assert_non_null(strstr(err_last()->text, "raw.bin: read of 34 bytes at offset "));
        assert_non_null(strstr(err_last()->text, "after 4 tries"));
        assert_true(err_last()->depth > 1);
    }
    close_loader(l, &o);
    assert_ok(fault_parse(&p->faults, "read@10x3"));  // just enough
    l = open_loader(p, &o);
    for (int step = 1; step <= 10; step++) {
        assert_ok(loader_next(l, &b));
        check_batch(&o, &b, step, 0, 0);
    }
    assert_int_equal(loader_about(l).retries, 1);
    close_loader(l, &o);
}

// --- chance ----------------------------------------------------------------------------------------------------------

// A source whose samples are their number and what chance made of them: a function of seed and position alone.
typedef struct chance_source {
    source head;
} chance_source;

static err_t chance_read(source *s, const source_draw *d, void *const *out) {
    (void)s;
    int32_t *to = out[0], *beside = out[1];
    uint32_t word[4];
    philox4x32(word, d->seed, (uint32_t)d->n, 0x5eed, (uint32_t)(d->n >> 32), 0);
    for (int t = 0; t < T; t++) to[t] = (int32_t)d->sample, beside[t] = d->train ? (int32_t)(word[t % 4] >> 8) : -1;
    return ERR_OK;
}

static void chance_cancel(source *s, bool cancelled) { (void)s, (void)cancelled; }

static const source_type chance_type = {.read = chance_read, .cancel = chance_cancel};

// Whatever lanes a rank has, and wherever it begins: each position of the run has the same chance; the same sample in
// another epoch has another one; and without training there is none.
static void test_chance(void **state) {
    enum { G = 12, B = 3, STEPS = 8, SAMPLES = 30 };  // 96 positions of 30 samples
    static int32_t seen[STEPS * G][2];
    chance_source s = {
        .head = {.type = &chance_type, .about = {.samples = SAMPLES - 5}, .inputs = 2, .place = {0, 1}, .first = 5}};
    (void)state;
    for (int deal = 0; deal < 6; deal++) {
        loader_options o = options(G, B, 4, 2 + deal);
        batch b;
        loader *l;
        int ranks = deal < 4 ? deal + 1 : 2;
        for (int r = 0; r < ranks; r++) {
            o.first_lane = r, o.lane_stride = ranks, o.lane_count = (4 - r + ranks - 1) / ranks,
            o.first_step = deal == 5 ? 4 : 1, o.last_step = STEPS;
            o.memory = aligned_alloc(4096, (size_t)loader_bytes(&o));
            assert_ok(loader_open(&l, &s.head, &o));
            for (int64_t k = 0; k < (STEPS - o.first_step + 1) * o.lane_count; k++) {
                assert_ok(loader_next(l, &b));
                for (int i = 0; i < B; i++) {
                    int64_t n = (b.step - 1) * G + b.first + i;
                    int32_t sample = token_of(&b, i * T), made = target_of(&b, i * T);
                    assert_int_equal(sample, 5 + source_at(&s.head, o.seed, n, true));
                    if (deal == 0) seen[n][0] = sample, seen[n][1] = made;
                    assert_true(sample == seen[n][0] && made == seen[n][1] && made >= 0);
                }
            }
            close_loader(l, &o);
        }
    }
    int again = 0;
    for (int n = 0; n < STEPS * G; n++)
        for (int k = 0; k < n; k++)
            if (seen[k][0] == seen[n][0]) assert_true(seen[k][1] != seen[n][1]), again++;
    assert_true(again > 50);
    int32_t sample[T], made[T];
    assert_ok(source_look(&s.head, 7, (void *[]){sample, made}));
    assert_true(sample[0] == 12 && made[0] == -1);
    assert_int_equal(source_look(&s.head, SAMPLES - 5, (void *[]){sample, made}), ERR_INTERNAL);
}

// Closing does not wait for a full ring, an unread error or a read that is waiting to be tried again; the dataset lives
// on.
static void test_close_early(void **state) {
    place *p = *state;
    int32_t tokens[T], targets[T];
    batch b;
    for (int i = 0; i < 60; i++) {
        loader_options o = options(4, 2, 2, 1 + i % 4);
        o.last_step = 1000000;
        loader *l = open_loader(p, &o);
        for (int k = 0; k < i % 5; k++) assert_ok(loader_next(l, &b));
        if (i % 3) pause_ms(i % 3);
        double from = now();
        close_loader(l, &o);
        assert_true(now() - from < 1);
    }
    source *d;
    loader *l;
    loader_options o = options(4, 2, 2, 2);
    assert_ok(open_source(p, &d, 1000));
    assert_ok(fault_parse(&p->faults, "read@1x1000000"));
    o.memory = aligned_alloc(4096, (size_t)loader_bytes(&o));
    assert_ok(loader_open(&l, d, &o));
    pause_ms(1400);  // by now it sleeps for 1280 ms or longer
    double from = now();
    close_loader(l, &o);
    assert_true(now() - from < 0.8);
    p->faults.first[FAULT_READ] = 0;
    assert_ok(source_look(d, 9, (void *[]){tokens, targets}));
    assert_int_equal(tokens[0], 9 * T);
    source_close(d);
    loader_close(NULL);
}

// The latencies of reads are those of the last 1024, whatever came before: slow reads are seen, and forgotten again.
static void test_latency(void **state) {
    place *p = *state;
    loader_options o = options(2, 2, 1, 2);
    loader_stats s;
    batch b;
    o.last_step = 2000;
    assert_ok(fault_parse(&p->faults, "slow@9"));  // in the fifth micro-batch of two samples
    int64_t opened = source_about(p->data).read;
    loader *l = open_loader(p, &o);
    for (int k = 0; k < 4; k++) assert_ok(loader_next(l, &b));
    assert_ok(loader_next(l, &b));
    s = loader_about(l);
    assert_true(s.wait_s > 0.15 && s.read_p99_s >= 1e-3 * FAULT_SLOW_MS && s.read_p99_s < 5);
    assert_true(s.read_p50_s > 0 && s.read_p50_s < s.read_p99_s / 2);
    for (int k = 5; k < 250; k++) assert_ok(loader_next(l, &b));
    assert_true(loader_about(l).read_p99_s < 1e-3 * FAULT_SLOW_MS);  // one of 250 is less than one of 100
    for (int k = 250; k < 290; k++) assert_ok(loader_next(l, &b));
    pause_ms(50);
    loader_about(l);  // the ring is full, so the list of faults is not being read
    // five micro-batches of 300
    p->faults = (fault_list){.first[FAULT_SLOW] = 1, .count[FAULT_SLOW] = 10, .only[FAULT_SLOW] = -1};
    for (int k = 290; k < 300; k++) assert_ok(loader_next(l, &b));
    s = loader_about(l);
    assert_true(s.read_p99_s >= 2e-3 * FAULT_SLOW_MS && s.read_p50_s < 1e-3 * FAULT_SLOW_MS);
    for (int k = 300; k < 2000; k++) assert_ok(loader_next(l, &b));
    s = loader_about(l);
    assert_true(s.read_p99_s < 1e-3 * FAULT_SLOW_MS && s.read_p50_s <= s.read_p99_s);
    assert_int_equal(s.bytes - opened, 4000 * 2 * (T + 1));  // 16-bit tokens, and the target of each window's last
    assert_int_equal(s.retries, 0);
    close_loader(l, &o);
}

// The percentiles are those of sorted times, while the first 256 come and after. Times are not known beforehand: a slow
// share of all reads moves the median.
static void test_many_slow_reads(void **state) {
    place *p = *state;
    loader_options o = options(1, 1, 1, 2);
    batch b;
    o.last_step = 8;
    assert_ok(fault_parse(&p->faults, "slow@4x5"));
    loader *l = open_loader(p, &o);
    for (int k = 0; k < 6; k++) assert_ok(loader_next(l, &b));
    assert_true(loader_about(l).read_p50_s < 0.1);
    for (int k = 6; k < 8; k++) assert_ok(loader_next(l, &b));
    assert_true(loader_about(l).read_p50_s >= 1e-3 * FAULT_SLOW_MS);  // of five of eight
    close_loader(l, &o);
    o.first_step = o.last_step + 1;
    l = open_loader(p, &o);
    assert_true(loader_about(l).read_p50_s == 0 && loader_about(l).read_p99_s == 0);  // nothing to read
    close_loader(l, &o);
}

static void test_no_heap(void **state) {
    place *p = *state;
    loader_options o = options(4, 2, 2, 4);
    batch b;
    o.last_step = 1000;
    loader *l = open_loader(p, &o);
    for (int k = 0; k < 10; k++) assert_ok(loader_next(l, &b));
    int before = heap_calls;
    for (int k = 10; k < 2000; k++) {
        assert_ok(loader_next(l, &b));
        assert_true(loader_about(l).read_p99_s > 0);
    }
    assert_int_equal(heap_calls, before);
    close_loader(l, &o);
}

// SIGTERM sent to the process while it is blocked everywhere but in the loader's thread stays pending: that thread
// blocks it too.
static void test_signals(void **state) {
    place *p = *state;
    sigset_t term, before, after;
    loader_options o = options(4, 2, 2, 2);
    o.last_step = 1000;
    loader *l = open_loader(p, &o);
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    assert_false(sigismember(&after, SIGTERM));  // loader_open has put the caller's mask back
    pthread_sigmask(SIG_BLOCK, &term, &before);
    kill(getpid(), SIGTERM);  // would end the process if the thread took it
    pause_ms(20);
    assert_int_equal(sigtimedwait(&term, NULL, &(struct timespec){5, 0}), SIGTERM);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    close_loader(l, &o);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, enter, leave)
    const struct CMUnitTest tests[] = {
        TEST(test_windows),
        cmocka_unit_test(test_bijective),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_small_orders),
        cmocka_unit_test(test_huge),
        TEST(test_order),
        TEST(test_once_an_epoch),
        TEST(test_batch_stays),
        TEST(test_peek),
        TEST(test_wrong_options),
        TEST(test_depth),
        TEST(test_fault),
        TEST(test_close_early),
        TEST(test_chance),
        TEST(test_latency),
        TEST(test_many_slow_reads),
        TEST(test_no_heap),
        TEST(test_signals),
    };
    return cmocka_run_group_tests_name("loader", tests, NULL, NULL);
}
