// test/test_comm.c: the tcp transport. Every test forks ranks, on one "node" that shares memory or on several that are
// joined by connections over the loopback device, and compares what they hold with what one process computes. Values
// are small whole numbers wherever sums are compared, so that every order of additions gives the same bits, and they
// are compared without a tolerance.
#include "base/philox.h"
#include "comm/cost.h"
#include "comm/tcp/sum.h"
#include "test/support/comm_ranks.h"

#include <inttypes.h>

// --- heap calls are counted, as in test/test_heap.c ------------------------------------------------------------------

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include "test/support/heap.h"
#else
static atomic_long heap_calls, heap_own;
#endif

// --- numbers ---------------------------------------------------------------------------------------------------------

// Everybody can compute what anybody has: value i of rank `rank` in call `call` is a whole number from -500 to 499.
static int value(uint32_t call, int rank, size_t i) {
    uint32_t x = (uint32_t)i * 2654435761u ^ call * 40503u ^ (uint32_t)rank * 97u;
    x ^= x >> 15, x *= 2246822519u, x ^= x >> 13;
    return (int)(x % 1000) - 500;
}

static void put(void *p, dtype t, size_t i, int v) {
    if (t == FP32) ((float *)p)[i] = (float)v;
    else if (t == FP64) ((double *)p)[i] = v;
    else ((int32_t *)p)[i] = v;
}

static double get(const void *p, dtype t, size_t i) {
    return t == FP32   ? (double)((const float *)p)[i]
           : t == FP64 ? ((const double *)p)[i]
                       : (double)((const int32_t *)p)[i];
}

static int reduced(uint32_t call, int world, size_t i, reduce_op op) {
    int all = value(call, 0, i);
    for (int r = 1; r < world; r++) {
        int v = value(call, r, i);
        all = op == REDUCE_SUM ? all + v : v > all ? v : all;
    }
    return all;
}

static const char GUARD = 0x5e;

// A buffer with a guard on either side, that must not move, misaligned as callers' data may be.
typedef struct buffer {
    char *base, *data;
    size_t bytes;
} buffer;

static buffer get_buffer(size_t bytes, size_t shift) {
    buffer b = {.base = malloc(bytes + 128), .bytes = bytes};
    memset(b.base, GUARD, bytes + 128);
    b.data = b.base + 32 + shift;
    return b;
}

static void drop_buffer(buffer *b, const char *what) {
    for (char *p = b->base; p < b->base + b->bytes + 128; p++)
        CHECK((p >= b->data && p < b->data + b->bytes) || *p == GUARD, "%s wrote outside its %zu bytes, at %td", what,
              b->bytes, p - b->data);
    free(b->base);
}

typedef struct dice {
    uint32_t key, n;
} dice;  // the same on all ranks

static uint32_t roll(dice *d, uint32_t sides) {
    uint32_t w[4];
    philox4x32(w, d->key, d->n++, 7, 7, 7);
    return w[0] % sides;
}

static size_t roll_size(dice *d, size_t most) {
    static const size_t usual[] = {0, 1, 2, 3, 7, 63, 64, 65, 1023, 2048, 2049, 16385};
    uint32_t kind = roll(d, 20);
    return kind < 12 ? usual[kind] : kind < 18 ? roll(d, 30000) : roll(d, (uint32_t)most);
}

static void roll_cut(dice *d, size_t *cut, int world, size_t total) {
    cut[0] = 0, cut[world] = total;
    for (int r = 1; r < world; r++) cut[r] = roll(d, 5) == 0 ? (roll(d, 2) ? total : 0) : roll(d, (uint32_t)total + 1);
    for (int r = 1; r < world; r++)
        for (int q = r; q > 0 && cut[q] < cut[q - 1]; q--) {
            size_t x = cut[q];
            cut[q] = cut[q - 1], cut[q - 1] = x;
        }
}

// --- one call each, checked ------------------------------------------------------------------------------------------

static void try_all_reduce(comm *c, uint32_t call, dice *d) {
    static const dtype types[] = {FP32, FP64, INT32};
    dtype t = types[roll(d, 3)];
    reduce_op op = roll(d, 3) ? REDUCE_SUM : REDUCE_MAX;
    size_t n = roll_size(d, 700000);
    buffer b = get_buffer(n * dtype_bytes(t), 8 * roll(d, 2));
    for (size_t i = 0; i < n; i++) put(b.data, t, i, value(call, c->rank, i));
    RUNS(c->table->all_reduce(c, b.data, n, t, op, NULL));
    for (size_t i = 0; i < n; i++)
        CHECK(get(b.data, t, i) == reduced(call, c->world, i, op),
              "all_reduce #%u of %zu, type %d, op %d: element %zu is %g, expected %d", call, n, (int)t, (int)op, i,
              get(b.data, t, i), reduced(call, c->world, i, op));
    drop_buffer(&b, "all_reduce");
}

static void try_reduce_scatter(comm *c, uint32_t call, dice *d) {
    size_t n = roll_size(d, 1200000), cut[65];
    roll_cut(d, cut, c->world, n);
    buffer b = get_buffer(n * 4, 4 * roll(d, 2));
    for (size_t i = 0; i < n; i++) put(b.data, FP32, i, value(call, c->rank, i));
    RUNS(c->table->reduce_scatter(c, b.data, cut, FP32, NULL));
    for (size_t i = cut[c->rank]; i < cut[c->rank + 1]; i++)
        CHECK(get(b.data, FP32, i) == reduced(call, c->world, i, REDUCE_SUM),
              "reduce_scatter #%u of %zu: element %zu is %g, expected %d", call, n, i, get(b.data, FP32, i),
              reduced(call, c->world, i, REDUCE_SUM));
    drop_buffer(&b, "reduce_scatter");
}

static char byte(uint32_t call, int from, int to, size_t i) { return (char)value(call, from + 64 * to, i); }

static void fill_bytes(char *p, size_t n, uint32_t call, int from, int to) {
    for (size_t i = 0; i < n; i++) p[i] = byte(call, from, to, i);
}

static void check_bytes(const char *p, size_t n, uint32_t call, int from, int to, const char *what) {
    for (size_t i = 0; i < n; i++)
        CHECK(p[i] == byte(call, from, to, i), "%s #%u: byte %zu of %zu from rank %d is %d, expected %d", what, call, i,
              n, from, p[i], byte(call, from, to, i));
}

static void try_all_gather(comm *c, uint32_t call, dice *d) {
    size_t n = roll_size(d, 3000000), cut[65];
    roll_cut(d, cut, c->world, n);
    buffer b = get_buffer(n, roll(d, 17));
    memset(b.data, 1, n);
    fill_bytes(b.data + cut[c->rank], cut[c->rank + 1] - cut[c->rank], call, c->rank, 0);
    RUNS(c->table->all_gather(c, b.data, cut, NULL));
    for (int r = 0; r < c->world; r++) check_bytes(b.data + cut[r], cut[r + 1] - cut[r], call, r, 0, "all_gather");
    drop_buffer(&b, "all_gather");
}

static void try_broadcast(comm *c, uint32_t call, dice *d) {
    size_t n = roll_size(d, 3000000);
    int root = (int)roll(d, (uint32_t)c->world);
    buffer b = get_buffer(n, roll(d, 17));
    memset(b.data, 1, n);
    if (c->rank == root) fill_bytes(b.data, n, call, root, 0);
    RUNS(c->table->broadcast(c, b.data, n, root, NULL));
    check_bytes(b.data, n, call, root, 0, "broadcast");
    drop_buffer(&b, "broadcast");
}

static void try_all_to_all(comm *c, uint32_t call, dice *d) {
    size_t each = roll_size(d, 400000), n = each * (size_t)c->world;
    buffer in = get_buffer(n, roll(d, 17)), out = get_buffer(n, roll(d, 17));
    for (int r = 0; r < c->world; r++) fill_bytes(in.data + (size_t)r * each, each, call, c->rank, r);
    RUNS(c->table->all_to_all(c, out.data, in.data, each, NULL));
    for (int r = 0; r < c->world; r++) check_bytes(out.data + (size_t)r * each, each, call, r, c->rank, "all_to_all");
    drop_buffer(&in, "all_to_all (in)");
    drop_buffer(&out, "all_to_all (out)");
}

// The k-th message from a to b of an exchange, or -1 when there is none.
static long message_size(uint32_t call, int a, int b, int k) {
    uint32_t w[4];
    philox4x32(w, call, 11, (uint32_t)a, (uint32_t)b, 0);
    if (k >= (int)(w[0] % 6)) return -1;
    philox4x32(w, call, 12, (uint32_t)a, (uint32_t)b, (uint32_t)k);
    if (w[0] % 4 == 0) return 0;
    if (w[0] % 4 == 1) return (long)(w[1] % 100);
    if (w[0] % 4 == 2) return (long)(w[1] % 5000);
    return w[1] % 8 ? (long)(w[1] % 70000) : (long)(w[2] % 1500000);
}

enum { PARTS = 5 * 64 };

// Lists all messages of this rank in an order of its own: those to one peer stay in theirs.
static int list_parts(comm *c, uint32_t call, bool sends, comm_part *part, buffer *buf, dice *own) {
    int n = 0, at[64] = {0}, peers = c->world;
    for (int left = peers; left > 0;) {
        int peer = (int)roll(own, (uint32_t)peers), k = at[peer];
        long bytes = k < 0 || peer == c->rank ? -1
                     : sends                  ? message_size(call, c->rank, peer, k)
                                              : message_size(call, peer, c->rank, k);
        if (k >= 0 && bytes < 0) at[peer] = -1, left--;
        if (bytes < 0) continue;
        at[peer]++;
        buf[n] = get_buffer((size_t)bytes, roll(own, 17));
        if (sends) fill_bytes(buf[n].data, (size_t)bytes, call + (uint32_t)k, c->rank, peer);
        part[n] = (comm_part){peer, buf[n].data, (size_t)bytes};
        n++;
    }
    return n;
}

static void try_exchange(comm *c, uint32_t call, dice *d) {
    static comm_part send[PARTS], recv[PARTS];
    static buffer out[PARTS], in[PARTS];
    (void)d;
    dice own = {call, 1000u * (uint32_t)c->rank};
    int sends = list_parts(c, call, true, send, out, &own), recvs = list_parts(c, call, false, recv, in, &own),
        k[64] = {0};
    RUNS(c->table->exchange(c, send, sends, recv, recvs, NULL));
    for (int i = 0; i < recvs; i++)
        check_bytes(recv[i].data, recv[i].bytes, call + (uint32_t)k[recv[i].peer]++, recv[i].peer, c->rank, "exchange");
    for (int i = 0; i < sends; i++) drop_buffer(&out[i], "exchange (sent)");
    for (int i = 0; i < recvs; i++) drop_buffer(&in[i], "exchange (received)");
}

static void try_barrier(comm *c, uint32_t call, dice *d) {
    (void)call, (void)d;
    RUNS(c->table->barrier(c, NULL));
}

typedef void attempt(comm *c, uint32_t call, dice *d);
static attempt *const attempts[] = {try_all_reduce, try_reduce_scatter, try_all_gather, try_broadcast,
                                    try_all_to_all, try_exchange,       try_barrier};

static void mixed_calls(comm *c, uint32_t seed, int calls) {
    dice d = {seed, 0};
    for (int i = 0; i < calls; i++) attempts[roll(&d, 7)](c, seed + (uint32_t)i, &d);
}

// --- tests of results ------------------------------------------------------------------------------------------------

static void body_mixed(comm *c, void *ctx) { mixed_calls(c, 100u * (uint32_t)c->world + *(uint32_t *)ctx, 60); }

static void mixed_on(const layout *l, uint32_t seed) { run_ranks(l, 30, body_mixed, &seed, 0); }

static void ranks_of_one_host_get_what_was_computed(void **state) {
    (void)state;
    const layout *const all[] = {&near2, &near3, &near4, &near5, &near8, &near11};
    for (uint32_t i = 0; i < 6; i++) mixed_on(all[i], i);
}

// Rings of the least size, and far more ranks than cores.
static void body_crowd(comm *c, void *ctx) { (void)ctx, mixed_calls(c, 6400, 12); }

static void sixty_four_ranks_of_one_host_do_too(void **state) {
    (void)state;
    run_ranks(&near64, 60, body_crowd, NULL, 0);
}

static void ranks_of_several_hosts_get_what_was_computed(void **state) {
    (void)state;
    const layout *const all[] = {&far2, &far3, &mixed4, &mixed5, &mixed12, &racks4, &racks8, &racks12};
    for (uint32_t i = 0; i < 8; i++) mixed_on(all[i], 50 + i);
}

// A part has its ranks in the order of the keys, may be split again, and lives beside the whole.
static void body_split(comm *c, void *ctx) {
    (void)ctx;
    comm *part, *again, *none;
    RUNS(c->table->split(c, c->rank % 2, -c->rank, 0, &part));
    int members = (c->world + 1 - c->rank % 2) / 2;
    CHECK(part->world == members && part->rank == members - 1 - c->rank / 2, "rank %d of %d, expected %d of %d",
          part->rank, part->world, members - 1 - c->rank / 2, members);
    for (int r = 0; r < part->world; r++) {
        int there = c->rank % 2 + 2 * (part->world - 1 - r);
        CHECK(strcmp(part->place[r].host, c->place[there].host) == 0, "rank %d of the part is on %s", r,
              part->place[r].host);
        CHECK(part->place[r].node >= 0 && part->place[r].node < comm_nodes(part) && part->place[0].node == 0, "node %d",
              part->place[r].node);
    }
    for (uint32_t i = 0; i < 3; i++) {
        mixed_calls(part, 7000 + 100 * i + (uint32_t)(c->rank % 2), 8);
        mixed_calls(c, 8000 + 100 * i, 4);
    }
    RUNS(part->table->split(part, 0, 0, 0, &again));
    CHECK(again->world == part->world && again->rank == part->rank, "rank %d of %d after an equal split", again->rank,
          again->world);
    mixed_calls(again, 9000, 6);
    RUNS(c->table->split(c, c->rank == 0 ? -1 : 5, 0, 0, &none));
    CHECK((none == NULL) == (c->rank == 0), "split: color -1 gives no communicator, others do");
    if (none) mixed_calls(none, 9500, 6), none->table->close(none);
    again->table->close(again);
    part->table->close(part);
    mixed_calls(c, 9900, 4);
}

static void parts_of_a_communicator_work_beside_it(void **state) {
    (void)state;
    run_ranks(&near5, 30, body_split, NULL, 0);
    run_ranks(&near8, 30, body_split, NULL, 0);
    run_ranks(&mixed5, 30, body_split, NULL, 0);
    run_ranks(&mixed12, 30, body_split, NULL, 0);
    run_ranks(&racks8, 30, body_split, NULL, 0);
    run_ranks(&racks12, 30, body_split, NULL, 0);
}

// Numbers that do not add up exactly: everybody must still hold the same bits, and the same in every run.
static void body_same_bits(comm *c, void *ctx) {
    static const size_t sizes[] = {1, 1000, 2048, 2049, 100003};
    float *first = ctx;
    for (int k = 0; k < 5; k++)
        for (int again = 0; again < 2; again++) {
            size_t n = sizes[k];
            float *x = malloc(n * 4), *y = malloc(n * 4);
            for (size_t i = 0; i < n; i++)
                x[i] = (float)value((uint32_t)k, c->rank, i) / 7.0f * (float)(1 + value(9, c->rank, i) % 100);
            RUNS(c->table->all_reduce(c, x, n, FP32, REDUCE_SUM, NULL));
            memcpy(y, x, n * 4);
            RUNS(c->table->broadcast(c, y, n * 4, c->world - 1, NULL));
            CHECK(memcmp(x, y, n * 4) == 0, "all_reduce of %zu: other bits than on rank %d", n, c->world - 1);
            if (again) CHECK(memcmp(x, first, n * 4) == 0, "all_reduce of %zu: other bits in another call", n);
            else memcpy(first, x, n * 4);
            free(x), free(y);
        }
}

static void sums_have_the_same_bits_everywhere_and_always(void **state) {
    (void)state;
    float *first = malloc(100003 * 4);
    const layout *const all[] = {&near3, &near8, &near11, &far3, &mixed5};
    for (int i = 0; i < 5; i++) run_ranks(all[i], 30, body_same_bits, first, 0);
    free(first);
}

static void loops_of_sums(void **state) {
    (void)state;
    float x[9], y[9];
    for (int i = 0; i < 9; i++) x[i] = (float)i, y[i] = i % 2 ? 100.0f : -100.0f;
    y[4] = __builtin_nanf(""), x[6] = __builtin_nanf("");
    sum_of(FP32, REDUCE_MAX)(x, y, sizeof x);
    for (int i = 0; i < 9; i++)
        if (i == 4 || i == 6) assert_true(x[i] != x[i]);
        else assert_true(x[i] == (i % 2 ? 100.0f : (float)i));
    int32_t a[3] = {INT32_MAX, -5, 3}, b[3] = {1, 7, -9};
    sum_of(INT32, REDUCE_SUM)(a, b, sizeof a);
    assert_true(a[0] == INT32_MIN && a[1] == 2 && a[2] == -6);
    assert_null(sum_of(BF16, REDUCE_SUM));
}

// --- tests of counters -----------------------------------------------------------------------------------------------

static int64_t wire_of(size_t bytes) {
    int64_t full = ((int64_t)bytes + 262143) / 262144, frames = full ? full : 1;
    return (int64_t)bytes + 40 * frames + 16 * full;
}

// n: messages, of these n_far to other nodes.
static void expect_traffic(comm *c, const char *what, int64_t sent, int64_t received, int64_t far, int64_t n,
                           int64_t n_far) {
    comm_traffic *t = &c->traffic;
    CHECK(t->messages == n && t->messages_far == n_far,
          "%s on rank %d: %" PRId64 " messages, %" PRId64 " far; expected %" PRId64 ", %" PRId64, what, c->rank,
          t->messages, t->messages_far, n, n_far);
    CHECK(t->sent == sent && t->received == received && t->sent_far == far,
          "%s on rank %d: %" PRId64 " sent, %" PRId64 " received, %" PRId64 " far; expected %" PRId64 ", %" PRId64
          ", %" PRId64,
          what, c->rank, t->sent, t->received, t->sent_far, sent, received, far);
    CHECK(t->calls == 1, "%s: %" PRId64 " calls, expected 1", what, t->calls);
    CHECK((t->wire > 0) == (far > 0 || (c->world == 2 && comm_nodes(c) == 2)), "%s: %" PRId64 " bytes on the wire",
          what, t->wire);
    *t = (comm_traffic){0};
}

static void body_traffic(comm *c, void *ctx) {
    (void)ctx;
    size_t cut[65], n = 100000, world = (size_t)c->world;
    int64_t others = c->world - 1, far = 0;
    bool one_host = comm_nodes(c) == 1;
    char *x = calloc(world, 4 * n), *y = calloc(world, 4 * n);
    for (int r = 0; r < c->world; r++) far += c->place[r].node != c->place[c->rank].node;
    for (size_t r = 0; r <= world; r++) cut[r] = r * 1000 + (r == world ? 77 : 0);
    int64_t total = (int64_t)cut[world], own = c->rank == c->world - 1 ? 1077 : 1000, last = c->world - 1;
    RUNS(c->table->all_to_all(c, y, x, 1001, NULL));
    expect_traffic(c, "all_to_all", others * 1001, others * 1001, far * 1001, others, far);
    RUNS(c->table->all_reduce(c, x, 10, FP64, REDUCE_MAX, NULL));
    expect_traffic(c, "small all_reduce", others * 80, others * 80, far * 80, others, far);
    if (one_host) {
        RUNS(c->table->reduce_scatter(c, x, cut, FP32, NULL));
        expect_traffic(c, "reduce_scatter", 4 * (total - own), 4 * own * others, 0, others, 0);
        RUNS(c->table->all_gather(c, x, cut, NULL));
        expect_traffic(c, "all_gather", own * others, total - own, 0, others, 0);
        RUNS(c->table->all_reduce(c, x, 64 * 1000 * world, FP32, REDUCE_SUM, NULL));
        expect_traffic(c, "all_reduce", 2 * 4 * 64000 * others, 2 * 4 * 64000 * others, 0, 2 * others, 0);
    } else {
        int next = (c->rank + 1) % c->world;
        bool next_far = c->place[next].node != c->place[c->rank].node;
        // each piece crosses to each other node once, and is handed on there
        int64_t here = others - far, nodes = comm_nodes(c), handed = 0, handed_bytes = 0;
        for (int r = 0; r < c->world; r++) {
            const comm_place *p = &c->place[r], *me = &c->place[c->rank];
            if (p->node == me->node || p->local % (here + 1) != me->local) continue;
            handed++, handed_bytes += r == last ? 1077 : 1000;
        }
        RUNS(c->table->all_gather(c, x, cut, NULL));
        expect_traffic(c, "all_gather over nodes", own * (here + nodes - 1) + handed_bytes * here, total - own,
                       own * (nodes - 1), here + nodes - 1 + handed * here, nodes - 1);
        RUNS(c->table->reduce_scatter(c, x, cut, FP32, NULL));
        int prev = (c->rank + c->world - 1) % c->world;
        int64_t in = total - (prev == last ? 1077 : 1000);
        expect_traffic(c, "reduce_scatter in a ring", 4 * (total - own), 4 * in, next_far ? 4 * (total - own) : 0,
                       others, next_far ? others : 0);
    }
    RUNS(c->table->broadcast(c, x, 300000, 0, NULL));
    int next = (c->rank + 1) % c->world;
    bool sends = c->rank < last, sends_far = sends && c->place[next].node != c->place[c->rank].node;
    expect_traffic(c, "broadcast", sends ? 300000 : 0, c->rank > 0 ? 300000 : 0, sends_far ? 300000 : 0, sends,
                   sends_far);
    RUNS(c->table->barrier(c, NULL));  // messages without payload
    CHECK(c->traffic.sent == 0 && c->traffic.messages == others && c->traffic.messages_far == far,
          "barrier: %" PRId64 " messages", c->traffic.messages);
    free(x), free(y);
}

static void traffic_is_counted_to_the_byte(void **state) {
    (void)state;
    run_ranks(&near2, 30, body_traffic, NULL, 0);
    run_ranks(&near5, 30, body_traffic, NULL, 0);
    run_ranks(&far3, 30, body_traffic, NULL, 0);
    run_ranks(&mixed5, 30, body_traffic, NULL, 0);
}

// What all ranks together sent to other nodes and other racks since the last call.
static void expect_crossed(comm *c, const char *what, int64_t far, int64_t racks) {
    double sum[2] = {(double)c->traffic.sent_far, (double)c->traffic.sent_racks};
    RUNS(c->table->all_reduce(c, sum, 2, FP64, REDUCE_SUM, NULL));
    CHECK(sum[0] == (double)far && sum[1] == (double)racks,
          "%s: %.0f bytes between nodes, of these %.0f between racks; expected %" PRId64 " and %" PRId64, what, sum[0],
          sum[1], far, racks);
    c->traffic = (comm_traffic){0};
}

static void expect_cost(const comm *c, const char *what, comm_cost want) {
    comm_cost got = cost_between(&(comm_traffic){0}, &c->traffic);
    CHECK(memcmp(&got, &want, sizeof got) == 0,
          "%s on rank %d: %" PRId64 " bytes, %" PRId64 " far, %" PRId64 " to racks, in %" PRId64 " messages, %" PRId64
          " far, %" PRId64 " to racks; planned %" PRId64 " %" PRId64 " %" PRId64 ", %" PRId64 " %" PRId64 " %" PRId64,
          what, c->rank, got.sent, got.sent_far, got.sent_racks, got.messages, got.messages_far, got.messages_racks,
          want.sent, want.sent_far, want.sent_racks, want.messages, want.messages_far, want.messages_racks);
}

// ctx: the number of racks. Bytes enter each node once, and each rack once, whichever rank they come from.
static void body_levels(comm *c, void *ctx) {
    int64_t nodes = comm_nodes(c), racks = *(int *)ctx, n = 300000;
    size_t cut[65] = {0};
    char *x = calloc((size_t)n, 1);
    for (int r = 0; r < c->world; r++) cut[r + 1] = cut[r] + (size_t)(r % 3 ? 1000 * r : 0);
    RUNS(c->table->all_gather(c, x, cut, NULL));
    expect_cost(c, "all_gather", cost_all_gather(c, cut));
    expect_crossed(c, "all_gather", (nodes - 1) * (int64_t)cut[c->world], (racks - 1) * (int64_t)cut[c->world]);
    for (int root = 0; root < c->world; root++) {
        RUNS(c->table->broadcast(c, x, (size_t)n, root, NULL));
        expect_crossed(c, "broadcast", (nodes - 1) * n, (racks - 1) * n);
    }
    free(x);
}

static void bytes_enter_each_rack_once(void **state) {
    (void)state;
    int one = 1, two = 2, three = 3;
    run_ranks(&mixed12, 30, body_levels, &one, 0);
    run_ranks(&racks4, 30, body_levels, &two, 0);
    run_ranks(&racks8, 30, body_levels, &two, 0);
    run_ranks(&racks12, 30, body_levels, &three, 0);
}

// Each algorithm of sums, and sizes at which one gives way to the next.
static void body_sums(comm *c, void *ctx) {
    static const size_t sizes[] = {1, 2047, 2048, 2049, 16384, 16385, 100000};
    float *x = calloc(100000, sizeof *x);
    (void)ctx;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t cut[65];
        for (int r = 0; r <= c->world; r++) cut[r] = sizes[i] * (size_t)r / (size_t)c->world;
        c->traffic = (comm_traffic){0};
        RUNS(c->table->all_reduce(c, x, sizes[i], FP32, REDUCE_SUM, NULL));
        expect_cost(c, "all_reduce", cost_all_reduce(c, sizes[i], sizeof *x));
        c->traffic = (comm_traffic){0};
        RUNS(c->table->reduce_scatter(c, x, cut, FP32, NULL));
        expect_cost(c, "reduce_scatter", cost_reduce_scatter(c, cut, sizeof *x));
    }
    free(x);
}

static void sums_send_what_is_planned(void **state) {
    (void)state;
    const layout *const all[] = {&near3, &near8, &near11, &far3, &mixed5, &mixed12, &racks12};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) run_ranks(all[i], 30, body_sums, NULL, 0);
}

// Over libfabric a receiver sends 40 bytes to grant or to confirm one frame or several.
static int64_t most_beside(size_t bytes) {
    return carrier_is_fabric() ? 40 * (((int64_t)bytes + 262143) / 262144 + 1) : 0;
}

// 40 bytes of head and tag for each frame, 16 for the tag of its payload.
static void body_wire(comm *c, void *ctx) {
    (void)ctx;
    static const size_t sizes[] = {0, 1, 262143, 262144, 262145, 1000000};
    char *x = calloc(2, 1000000);
    for (int i = 0; i < 6; i++) {
        int64_t before = c->traffic.wire;
        RUNS(c->table->exchange(c, &(comm_part){!c->rank, x, sizes[i]}, 1,
                                &(comm_part){!c->rank, x + 1000000, sizes[i]}, 1, NULL));
        int64_t most = wire_of(sizes[i]) + most_beside(sizes[i]);
        CHECK(c->traffic.wire - before >= wire_of(sizes[i]) && c->traffic.wire - before <= most,
              "%zu bytes make %" PRId64 " on the wire, expected %" PRId64, sizes[i], (c->traffic.wire - before),
              wire_of(sizes[i]));
    }
    free(x);
}

static void bytes_on_the_wire_are_counted(void **state) {
    (void)state;
    run_ranks(&far2, 30, body_wire, NULL, 0);
}

static void body_heap(comm *c, void *ctx) {
    (void)ctx;
    size_t n = 300000, cut[65];
    char *x = calloc((size_t)c->world, 4 * n), *y = calloc((size_t)c->world, 4 * n);
    for (size_t r = 0; r <= (size_t)c->world; r++) cut[r] = r * n;
    // libfabric's providers make some; nothing else does
    atomic_long *counter = carrier_is_fabric() ? &heap_own : &heap_calls;
    long before = atomic_load(counter);
    for (int i = 0; i < 3; i++) {
        RUNS(c->table->all_reduce(c, x, 5, FP32, REDUCE_SUM, NULL));
        RUNS(c->table->all_reduce(c, x, n, FP32, REDUCE_SUM, NULL));
        RUNS(c->table->reduce_scatter(c, x, cut, FP32, NULL));
        RUNS(c->table->all_gather(c, x, cut, NULL));
        RUNS(c->table->broadcast(c, x, n, 1, NULL));
        RUNS(c->table->all_to_all(c, y, x, n, NULL));
        RUNS(c->table->barrier(c, NULL));
        RUNS(c->table->exchange(c, &(comm_part){(c->rank + 1) % c->world, x, n}, 1,
                                &(comm_part){(c->rank + c->world - 1) % c->world, y, n}, 1, NULL));
        RUNS(c->table->query(c));
    }
    long made = atomic_load(counter) - before;
    CHECK(made == 0, "%ld heap calls, expected 0", made);
    free(x), free(y);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    CHECK(atomic_load(counter) == before + 2, "the counter does not count");
#endif
}

static void no_heap_call_after_open(void **state) {
    (void)state;
    run_ranks(&near4, 30, body_heap, NULL, 0);
    run_ranks(&mixed4, 30, body_heap, NULL, 0);
    run_ranks(&mixed12, 30, body_heap, NULL, 0);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loops_of_sums),
        cmocka_unit_test(ranks_of_one_host_get_what_was_computed),
        cmocka_unit_test(sixty_four_ranks_of_one_host_do_too),
        cmocka_unit_test(ranks_of_several_hosts_get_what_was_computed),
        cmocka_unit_test(parts_of_a_communicator_work_beside_it),
        cmocka_unit_test(sums_have_the_same_bits_everywhere_and_always),
        cmocka_unit_test(traffic_is_counted_to_the_byte),
        cmocka_unit_test(bytes_enter_each_rack_once),
        cmocka_unit_test(sums_send_what_is_planned),
        cmocka_unit_test(bytes_on_the_wire_are_counted),
        cmocka_unit_test(no_heap_call_after_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
