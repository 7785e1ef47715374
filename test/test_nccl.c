// test/test_nccl.c: the nccl transport, without a GPU: every rank is a forked process that opens the stand-in
// (test/standin/nccl.c) in NCCL's place. What it is not: a test of NCCL, of CUDA, or of speed.
#include "test/support/nccl_ranks.h"

// --- collectives against computed results, and against tcp -----------------------------------------------------------

// Whole numbers, so that sums are exact in any order.
static float value(int rank, size_t i, int salt) { return (float)((rank + 1) * (int)(i % 97 + 1) + salt); }

static void fill(float *x, size_t n, int rank, int salt) {
    for (size_t i = 0; i < n; i++) x[i] = value(rank, i, salt);
}

static float sum(int world, size_t i, int salt) {
    float x = 0;
    for (int r = 0; r < world; r++) x += value(r, i, salt);
    return x;
}

static void same_traffic(job *j, comm *c, comm *other, comm_traffic a, comm_traffic b, const char *what) {
    long long sent = c->traffic.sent - a.sent, received = c->traffic.received - a.received;
    long long tcp_sent = other->traffic.sent - b.sent, tcp_received = other->traffic.received - b.received;
    CHECK(sent == tcp_sent && received == tcp_received, "%s: %lld bytes sent, %lld received; tcp: %lld and %lld", what,
          sent, received, tcp_sent, tcp_received);
    CHECK(c->traffic.calls == a.calls + 1 && c->traffic.sent_far == 0, "%" PRId64 " calls", c->traffic.calls);
}

static float *twins[2];  // the same call by nccl and by tcp, and what became of both buffers

static void twin_start(job *j, int salt, comm_traffic before[2]) {
    for (int k = 0; k < 2; k++) fill(twins[k], ELEMENTS, j->c->rank, salt);
    before[0] = j->c->traffic;
    before[1] = j->over->traffic;
}

static void check_all_reduce(job *j) {
    comm *pair[2] = {j->c, j->over};
    comm_traffic before[2];
    twin_start(j, 1, before);
    for (int k = 0; k < 2; k++) RUN(pair[k]->table->all_reduce(pair[k], twins[k], ELEMENTS, FP32, REDUCE_SUM, j->s));
    same_traffic(j, j->c, j->over, before[0], before[1], "all_reduce");
    for (size_t i = 0; i < ELEMENTS; i++)
        CHECK(twins[0][i] == sum(j->c->world, i, 1), "element %zu is %g", i, (double)twins[0][i]);
    CHECK(memcmp(twins[0], twins[1], ELEMENTS * sizeof(float)) == 0, "other than tcp");
    double most[3] = {j->c->rank, -j->c->rank, 0.5};
    RUN(j->c->table->all_reduce(j->c, most, 3, FP64, REDUCE_MAX, j->s));
    CHECK(most[0] == j->c->world - 1 && most[1] == 0 && most[2] == 0.5, "%g %g %g", most[0], most[1], most[2]);
    int32_t many[2] = {1 << j->c->rank, -1};
    RUN(j->c->table->all_reduce(j->c, many, 2, INT32, REDUCE_SUM, j->s));
    CHECK(many[0] == (1 << j->c->world) - 1 && many[1] == -j->c->world, "%d %d", many[0], many[1]);
    FAILS(j->c->table->all_reduce(j->c, many, 2, BF16, REDUCE_SUM, j->s), ERR_INTERNAL, "FP32");
}

static void cuts_of(size_t *cut, int world, int kind) {
    const size_t unequal[2][RANKS] = {{5, 0, 130, 7}, {0, 1000, 3, 0}};
    cut[0] = 0;
    for (int r = 0; r < world; r++) cut[r + 1] = cut[r] + (kind < 2 ? unequal[kind][r] : ELEMENTS / 16);
}

static void check_cuts(job *j, int kind) {
    comm *pair[2] = {j->c, j->over};
    comm_traffic before[2];
    size_t cut[RANKS + 1], bytes[RANKS + 1];
    int world = j->c->world, self = j->c->rank;
    cuts_of(cut, world, kind);
    for (int r = 0; r <= world; r++) bytes[r] = cut[r] * sizeof(float);
    twin_start(j, kind, before);
    for (int k = 0; k < 2; k++) RUN(pair[k]->table->reduce_scatter(pair[k], twins[k], cut, FP32, j->s));
    same_traffic(j, j->c, j->over, before[0], before[1], "reduce_scatter");
    for (size_t i = cut[self]; i < cut[self + 1]; i++) {
        CHECK(twins[0][i] == sum(world, i, kind), "element %zu is %g", i, (double)twins[0][i]);
        CHECK(twins[0][i] == twins[1][i], "element %zu is other than tcp's", i);
    }
    for (size_t i = cut[world]; i < ELEMENTS; i++)
        CHECK(twins[0][i] == value(self, i, kind), "element %zu past the end was written", i);
    twin_start(j, kind, before);
    for (int k = 0; k < 2; k++) RUN(pair[k]->table->all_gather(pair[k], twins[k], bytes, j->s));
    same_traffic(j, j->c, j->over, before[0], before[1], "all_gather");
    for (int r = 0; r < world; r++)
        for (size_t i = cut[r]; i < cut[r + 1]; i++)
            CHECK(twins[0][i] == value(r, i, kind), "element %zu is %g", i, (double)twins[0][i]);
    CHECK(memcmp(twins[0], twins[1], ELEMENTS * sizeof(float)) == 0, "other than tcp");
}

static void check_broadcast(job *j) {
    for (int root = 0; root < j->c->world; root++) {
        fill(twins[0], ELEMENTS, j->c->rank, 9);
        RUN(j->c->table->broadcast(j->c, twins[0], 4 * 1001 + 1, root, j->s));
        for (size_t i = 0; i < 1001; i++)
            CHECK(twins[0][i] == value(root, i, 9), "element %zu from %d is %g", i, root, (double)twins[0][i]);
        CHECK(twins[0][1002] == value(j->c->rank, 1002, 9), "too much from %d", root);
    }
}

static void check_all_to_all(job *j) {
    comm_traffic before[2];
    int world = j->c->world;
    enum { ROW = 100 };
    twin_start(j, 3, before);
    float *in = twins[0], *out = twins[1], tcp[RANKS * ROW];
    memset(out, 0, ELEMENTS * sizeof *out);
    RUN(j->c->table->all_to_all(j->c, out, in, ROW * sizeof *in, j->s));
    RUN(j->over->table->all_to_all(j->over, tcp, in, ROW * sizeof *in, j->s));
    same_traffic(j, j->c, j->over, before[0], before[1], "all_to_all");
    for (int r = 0; r < world; r++)
        for (size_t i = 0; i < ROW; i++)
            CHECK(out[(size_t)r * ROW + i] == value(r, (size_t)j->c->rank * ROW + i, 3), "row %d, element %zu", r, i);
    CHECK(memcmp(out, tcp, (size_t)world * ROW * sizeof *out) == 0, "other than tcp");
}

// Two messages to every other rank, of other sizes for every pair, some empty, listed in orders that would deadlock if
// taken one by one.
static size_t part_bytes(int from, int to, int k) {
    return k ? (size_t)(from * 7 + to * 3) * 50 : (size_t)((from + to) % 3) * 11;
}

static int list_parts(job *j, comm_part *list, char *base, bool out) {
    int n = 0, self = j->c->rank, world = j->c->world;
    for (int k = 0; k < 2; k++)
        for (int i = 1; i < world; i++) {
            int peer = (self + (out ? i : world - i)) % world;
            list[n++] = (comm_part){peer, base, out ? part_bytes(self, peer, k) : part_bytes(peer, self, k)};
            memset(base, out ? 1 + self * 10 + k : 0, list[n - 1].bytes);
            base += list[n - 1].bytes;
        }
    return n;
}

static void check_exchange(job *j) {
    comm_part send[2 * RANKS], recv[2 * RANKS];
    comm *pair[2] = {j->c, j->over};
    comm_traffic before[2];
    twin_start(j, 0, before);
    int sends = list_parts(j, send, (char *)twins[0], true);
    for (int k = 0; k < 2; k++) {
        int recvs = list_parts(j, recv, (char *)twins[1], false);
        RUN(pair[k]->table->exchange(pair[k], send, sends, recv, recvs, j->s));
        for (int i = 0; i < recvs; i++)
            for (size_t b = 0; b < recv[i].bytes; b++)
                CHECK(((char *)recv[i].data)[b] == 1 + recv[i].peer * 10 + i / (j->c->world - 1),
                      "message %d from %d, byte %zu", i, recv[i].peer, b);
    }
    same_traffic(j, j->c, j->over, before[0], before[1], "exchange");
    int next = (j->c->rank + 1) % j->c->world, before_me = (j->c->rank + j->c->world - 1) % j->c->world, got = -1;
    RUN(j->c->table->exchange(j->c, &(comm_part){next, &j->c->rank, sizeof(int)}, 1,
                              &(comm_part){before_me, &got, sizeof got}, 1, j->s));
    CHECK(got == before_me, "%d", got);
}

static void check_nothing(job *j) {
    const size_t cut[RANKS + 1] = {0};
    RUN(j->c->table->all_reduce(j->c, NULL, 0, FP32, REDUCE_SUM, j->s));
    RUN(j->c->table->reduce_scatter(j->c, NULL, cut, FP32, j->s));
    RUN(j->c->table->all_gather(j->c, NULL, cut, j->s));
    RUN(j->c->table->broadcast(j->c, NULL, 0, 0, j->s));
    RUN(j->c->table->all_to_all(j->c, NULL, NULL, 0, j->s));
    RUN(j->c->table->exchange(j->c, NULL, 0, NULL, 0, j->s));
    RUN(j->c->table->exchange(j->c, &(comm_part){!j->c->rank, NULL, 0}, 1, &(comm_part){!j->c->rank, NULL, 0}, 1,
                              j->s));
}

static void all_collectives(job *j) {
    for (int k = 0; k < 2; k++) twins[k] = calloc(ELEMENTS, sizeof(float));
    open_nccl(j);
    check_all_reduce(j);
    for (int kind = 0; kind < 3; kind++) check_cuts(j, kind);
    check_broadcast(j);
    check_all_to_all(j);
    check_exchange(j);
    check_nothing(j);
    for (int r = 0; r < 3; r++) RUN(j->c->table->barrier(j->c, j->s));
    int64_t most = 10 + j->c->rank;
    RUN(comm_agree_max(j->c, &most, j->s));
    CHECK(most == 9 + j->c->world, "%" PRId64, most);
    RUN(j->c->table->query(j->c));
    for (int k = 0; k < 2; k++) free(twins[k]);
}

static void collectives_give_what_tcp_gives(void **state) {
    (void)state;
    for (int world = 2; world <= RANKS; world++) run(&(plan){.world = world, .body = all_collectives});
}

// A rank that comes late is waited for: in progress is not an error.
static void late_rank(job *j) {
    open_nccl(j);
    for (int i = 0; i < 3; i++) {
        float x = 1;
        if (j->at.rank == i) sleep_ms(150);
        RUN(j->c->table->all_reduce(j->c, &x, 1, FP32, REDUCE_SUM, j->s));
        CHECK(x == 3, "%g", (double)x);
    }
}

static void a_late_rank_is_waited_for(void **state) {
    (void)state;
    run(&(plan){.world = 3, .body = late_rank});
}

// --- groups ----------------------------------------------------------------------------------------------------------

static void splits(job *j) {
    comm *half, *some, *single, *again;
    open_nccl(j);
    int r = j->c->rank;
    RUN(j->c->table->split(j->c, r % 2, -r, 0, &half));  // ranked the other way round
    CHECK(half->world == 2 && half->rank == 1 - r / 2 && half->host != j->over, "rank %d of %d", half->rank,
          half->world);
    CHECK(strcmp(half->table->name, "nccl") == 0, "%s", half->table->name);
    sum_in(j, half, (float)(1 << r), r % 2 ? 10 : 5);
    float from = (float)r;
    RUN(half->table->broadcast(half, &from, sizeof from, 0, j->s));
    CHECK(from == (r % 2 ? 3 : 2), "%g", (double)from);
    RUN(half->table->barrier(half, j->s));
    sum_in(j, j->c, (float)(1 << r), 15);  // the old one still works

    RUN(j->c->table->split(j->c, r == 1 ? -1 : 7, 0, 0, &some));  // rank 1 stays outside
    CHECK((some == NULL) == (r == 1), "rank 1 is in it");
    if (some) sum_in(j, some, 1, 3);

    RUN(j->c->table->split(j->c, r < 3 ? 0 : 1, 0, 0, &single));  // rank 3 is alone
    CHECK(strcmp(single->table->name, r < 3 ? "nccl" : "self") == 0, "%s", single->table->name);
    sum_in(j, single, 1, r < 3 ? 3 : 1);

    RUN(half->table->split(half, 0, 0, 0, &again));  // a group of a group
    sum_in(j, again, (float)(1 << r), r % 2 ? 10 : 5);
    comm *in_order[] = {again, single, some, half};
    for (int i = 0; i < 4; i++)
        if (in_order[i]) in_order[i]->table->close(in_order[i]);
    sum_in(j, j->c, 1, 4);
    CHECK(counted(j, "live") == 1 && counted(j, "aborts") == 0, "%d communicators left, %d aborted", counted(j, "live"),
          counted(j, "aborts"));
}

static void groups_are_split(void **state) {
    (void)state;
    run(&(plan){.world = 4, .body = splits});
}

static void registers(job *j) {
    static float x[64], y[64];
    open_nccl(j);
    RUN(transport_register(j->c, x, sizeof x));
    RUN(transport_register(j->over, x, sizeof x));  // nothing to do
    RUN(nccl_register(j->c, y, sizeof y));
    RUN(nccl_register(j->c, y, 0));
    CHECK(counted(j, "registered") == 2, "%d", counted(j, "registered"));
    RUN(j->c->table->all_reduce(j->c, x, 64, FP32, REDUCE_SUM, j->s));
    for (int i = 2; i < NCCL_REGISTERED; i++) RUN(nccl_register(j->c, x, sizeof x));
    FAILS(nccl_register(j->c, x, sizeof x), ERR_INTERNAL, "64");
    j->c->table->close(j->c);
    CHECK(counted(j, "registered") == 0 && counted(j, "live") == 0, "%d registered, %d live", counted(j, "registered"),
          counted(j, "live"));
    RUN(comm_tcp_open(&j->over, j->t, &j->o));  // a second one after the first
    open_nccl(j);
    sum_in(j, j->c, 2, 4);
}

static void buffers_are_registered_and_forgotten(void **state) {
    (void)state;
    run(&(plan){.world = 2, .body = registers});
}

// --- failures --------------------------------------------------------------------------------------------------------

// The record is the same ever after, and nothing of NCCL is left.
static void stays_failed(job *j) {
    float x = 1;
    char text[ERR_TEXT];
    comm *none;
    FAILS(j->c->table->query(j->c), ERR_UNAVAILABLE, "rank");
    snprintf(text, sizeof text, "%s", err_last()->text);
    FAILS(j->c->table->all_reduce(j->c, &x, 1, FP32, REDUCE_SUM, j->s), ERR_UNAVAILABLE, text);
    FAILS(j->c->table->barrier(j->c, j->s), ERR_UNAVAILABLE, text);
    FAILS(j->c->table->exchange(j->c, NULL, 0, NULL, 0, j->s), ERR_UNAVAILABLE, text);
    FAILS(nccl_register(j->c, &x, sizeof x), ERR_UNAVAILABLE, text);
    CHECK(j->c->table->split(j->c, 0, 0, 0, &none) == ERR_UNAVAILABLE && !none, "a split after a failure");
    // the watcher's abort may be still to come
    for (double until = now() + 2; counted(j, "live") && now() < until;) sleep_ms(5);
    CHECK(counted(j, "live") == 0 && counted(j, "aborts") == 1, "%d live, %d aborted", counted(j, "live"),
          counted(j, "aborts"));
}

static void until_all_fail(job *j, int calls) {
    float x = 1;
    double start = now();
    err_t rc = ERR_OK;
    for (int i = 0; i < calls && rc == ERR_OK; i++) rc = j->c->table->all_reduce(j->c, &x, 1, FP32, REDUCE_SUM, j->s);
    CHECK(rc == ERR_UNAVAILABLE, "%d after %d calls", rc, calls);
    CHECK(now() - start < 5, "it took %.1f s", now() - start);
}

// The last rank dies when all others have come here, and have gone on a little.
static void last_one_dies(job *j) {
    if (j->at.rank < j->at.world - 1) {
        atomic_fetch_add(j->arrived, 1);
        return;
    }
    while (atomic_load(j->arrived) < j->at.world - 1) sleep_ms(1);
    sleep_ms(30);
    raise(SIGKILL);
}

static void killed_in_a_call(job *j) {
    open_nccl(j);
    sum_in(j, j->c, 1, (float)j->c->world);
    last_one_dies(j);
    until_all_fail(j, 1);
    char lost[COMM_NAME];
    FAILS(j->c->table->query(j->c), ERR_UNAVAILABLE, comm_rank_text(j->c, j->at.world - 1, lost), "is lost");
    stays_failed(j);
}

static void killed_meanwhile(job *j) {
    open_nccl(j);
    last_one_dies(j);
    double start = now();  // nobody calls anything: the watcher sees it and aborts
    while (counted(j, "live") && now() - start < 10) sleep_ms(5);
    CHECK(now() - start < 5, "it took %.1f s", now() - start);
    stays_failed(j);
}

static void a_killed_rank_is_told_of(void **state) {
    (void)state;
    for (int world = 2; world <= RANKS; world++) {
        run(&(plan){.world = world, .body = killed_in_a_call, .killed = 1});
        run(&(plan){.world = world, .body = killed_meanwhile, .killed = 1});
    }
}

static void killed_in_a_split(job *j) {
    comm *half;
    open_nccl(j);
    last_one_dies(j);
    double start = now();
    CHECK(j->c->table->split(j->c, j->at.rank % 2, 0, 0, &half) == ERR_UNAVAILABLE && !half,
          "a split with a dead rank");
    CHECK(now() - start < 5, "it took %.1f s", now() - start);
}

// There is no communicator yet that could be aborted; the one that was to be split is.
static void refused_split(job *j) {
    comm *half;
    open_nccl(j);
    CHECK(j->c->table->split(j->c, 0, 0, 0, &half) == ERR_UNAVAILABLE && !half, "a split that is refused");
    stays_failed(j);
}

static void a_split_that_is_refused_fails(void **state) {
    (void)state;
    run(&(plan){.world = 2, .body = refused_split, .standin = {"split-no", "split-no"}});
}

static void a_split_with_a_dead_rank_fails(void **state) {
    (void)state;
    run(&(plan){.world = 4, .body = killed_in_a_split, .killed = 1});
}

static void init_fails(job *j) {
    double start = now();
    FAILS(comm_nccl_open(&j->c, j->t, j->over, &j->o, j->s), ERR_UNAVAILABLE, "nccl init", "within 0.7 s", "rank ");
    CHECK(now() - start > 0.5 && now() - start < 4, "%.1f s", now() - start);
    CHECK(!j->c && counted(j, "live") == 0, "%d left", counted(j, "live"));
}

static void an_init_that_hangs_meets_the_deadline(void **state) {
    (void)state;
    run(&(plan){.world = 3, .body = init_fails, .standin = {NULL, "hang-init", NULL}, .timeout_s = 0.7});
    run(&(plan){.world = 2, .body = init_fails, .standin = {"hang-init", "hang-init"}, .timeout_s = 0.7});
}

static void fails_on_the_way(job *j) {
    open_nccl(j);
    until_all_fail(j, 3);
    stays_failed(j);
}

static void *die_soon(void *arg) {
    (void)arg;
    sleep_ms(200);
    raise(SIGKILL);
    return NULL;
}

static void killed_in_init(job *j) {
    pthread_t thread;
    char lost[COMM_NAME];
    double start = now();
    if (j->at.rank == j->at.world - 1) CHECK(pthread_create(&thread, NULL, die_soon, NULL) == 0, "no thread");
    FAILS(comm_nccl_open(&j->c, j->t, j->over, &j->o, j->s), ERR_UNAVAILABLE,
          comm_rank_text(j->over, j->at.world - 1, lost), "is lost");
    CHECK(now() - start < 5, "%.1f s", now() - start);
}

static void an_init_with_a_killed_rank_ends_long_before_the_deadline(void **state) {
    (void)state;
    run(&(plan){.world = 3, .body = killed_in_init, .standin = {"hang-init", "hang-init", "hang-init"}, .killed = 1});
}

static void a_failed_call_is_told_to_all(void **state) {
    (void)state;
    run(&(plan){.world = 3, .body = fails_on_the_way, .standin = {NULL, NULL, "return@2"}});
    run(&(plan){.world = 3, .body = fails_on_the_way, .standin = {"async@3", NULL, NULL}});
    run(&(plan){.world = 2, .body = fails_on_the_way, .standin = {NULL, "hang@2"}, .timeout_s = 0.7});
}

static void who_and_where(job *j) {
    float x = 1;
    char self[COMM_NAME];
    open_nccl(j);
    atomic_fetch_add(j->arrived, 1);  // a rank that is still opening would see the failure there
    while (atomic_load(j->arrived) < j->at.world) sleep_ms(1);
    j->c->phase.what = "reduce bucket", j->c->phase.step = 17, j->c->phase.number = 3;
    err_t rc = j->c->table->all_reduce(j->c, &x, 1, FP32, REDUCE_SUM, j->s);
    if (rc == ERR_OK) rc = j->c->table->barrier(j->c, j->s);
    if (j->at.rank == 0)
        FAILS(rc, ERR_UNAVAILABLE, comm_rank_text(j->c, 0, self), "nccl all_reduce #1", "reduce bucket 3 of step 17",
              "unhandled system error", "asked to fail");
    CHECK(rc == ERR_UNAVAILABLE, "%d", rc);
}

static void an_error_names_rank_phase_and_reason(void **state) {
    (void)state;
    run(&(plan){.world = 2, .body = who_and_where, .standin = {"async@1"}});
}

// The other rank may hear of the error before it has seen that its own call ended well.
static void call_before_error(job *j) {
    float x = 1;
    err_t rc = j->c->table->all_reduce(j->c, &x, 1, FP32, REDUCE_SUM, j->s);
    CHECK(rc == ERR_OK || (j->at.rank == 0 && rc == ERR_UNAVAILABLE), "%s", err_last()->text);
}

static void error_by_itself(job *j) {
    open_nccl(j);
    double start = now(), last = start, gap = 0;
    call_before_error(j);
    for (err_t rc = ERR_OK; rc == ERR_OK && last - start < 5;) {
        sleep_ms(2);
        rc = j->c->table->query(j->c);
        double t = now();
        if (t - last > gap) gap = t - last;
        last = t;
    }
    FAILS(j->c->table->query(j->c), ERR_UNAVAILABLE, "rank 1", "unhandled system error", "some time later");
    CHECK(last - start < 3, "%.1f s", last - start);
    // The watcher looks twice a second: it can only have been first when this process stood still.
    CHECK(gap > 0.3 || strstr(err_last()->text, "between calls"), "%s", err_last()->text);
    stays_failed(j);
}

// The same, seen by the watcher: the rank itself calls nothing at all.
static void error_seen_by_nobody(job *j) {
    open_nccl(j);
    call_before_error(j);
    double start = now();
    while (counted(j, "aborts") == 0 && now() - start < 5) sleep_ms(5);
    FAILS(team_query(j->t), ERR_UNAVAILABLE, "rank 1", "some time later");
    stays_failed(j);
}

static void an_error_between_calls_is_seen(void **state) {
    (void)state;
    run(&(plan){.world = 2, .body = error_by_itself, .standin = {NULL, "later@1"}});
    run(&(plan){.world = 2, .body = error_seen_by_nobody, .standin = {NULL, "later@1"}});
}

static void *abort_soon(void *arg) {
    comm *c = arg;
    sleep_ms(200);
    c->table->abort(c, "rank 0 has had enough");
    return NULL;
}

static void aborts_from_a_thread(job *j) {
    float x = 1;
    pthread_t thread;
    open_nccl(j);
    if (j->at.rank == 0) CHECK(pthread_create(&thread, NULL, abort_soon, j->c) == 0, "no thread");
    double start = now();
    if (j->at.rank != 2)  // so that the call cannot end by itself
        FAILS(j->c->table->all_reduce(j->c, &x, 1, FP32, REDUCE_SUM, j->s), ERR_UNAVAILABLE, "had enough");
    else
        while (j->c->table->query(j->c) == ERR_OK && now() - start < 5) sleep_ms(2);
    CHECK(now() - start < 3, "%.1f s", now() - start);
    if (j->at.rank == 0) pthread_join(thread, NULL);
    stays_failed(j);
}

static void abort_ends_what_others_wait_for(void **state) {
    (void)state;
    run(&(plan){.world = 3, .body = aborts_from_a_thread});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_give_what_tcp_gives),
        cmocka_unit_test(a_late_rank_is_waited_for),
        cmocka_unit_test(groups_are_split),
        cmocka_unit_test(buffers_are_registered_and_forgotten),
        cmocka_unit_test(a_killed_rank_is_told_of),
        cmocka_unit_test(a_split_that_is_refused_fails),
        cmocka_unit_test(a_split_with_a_dead_rank_fails),
        cmocka_unit_test(an_init_that_hangs_meets_the_deadline),
        cmocka_unit_test(an_init_with_a_killed_rank_ends_long_before_the_deadline),
        cmocka_unit_test(a_failed_call_is_told_to_all),
        cmocka_unit_test(an_error_names_rank_phase_and_reason),
        cmocka_unit_test(an_error_between_calls_is_seen),
        cmocka_unit_test(abort_ends_what_others_wait_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
