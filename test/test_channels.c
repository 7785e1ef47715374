// test/test_channels.c: communicators that are in calls at the same time. Every rank is a process with a real team, on
// one node (shared memory), on several (connections over the loopback device), or both; in each, one thread calls each
// communicator of a layout (comm/groups.h). The same over the nccl transport, with the stand-in in NCCL's place
// (test/standin/nccl.c). What must hold: every byte is the right one, none waits for another, and a failure that one of
// them notices ends them all, with one record.
#include "test/support/channels.h"

#include <pthread.h>

// --- heap calls are counted ------------------------------------------------------------------------------------------

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include "test/support/heap.h"
// of a timeout that is waited for: a busy machine must not reach it elsewhere
enum { CALLS = 200, SLOWER = 1, SHORT_MS = 600 };
#else
static atomic_long heap_calls, heap_own;
enum { CALLS = 60, SLOWER = 4, SHORT_MS = 2500 };
#endif

enum { LARGEST = 300000, WORLD_MOST = 16 };

// --- one communicator and its thread ---------------------------------------------------------------------------------

typedef struct worker {
    comm *c;
    uint32_t seed, dice, calls;  // the same on all its ranks
    char *out, *in;              // LARGEST bytes and more
    pthread_t thread;
    pthread_barrier_t *together;
    atomic_uint *made;
    err_t rc;  // of the call that failed
    char text[ERR_TEXT];
    bool false_bytes;
} worker;

static uint32_t mix(uint32_t x) {
    x ^= x >> 16, x *= 2246822519u, x ^= x >> 13, x *= 3266489917u;
    return x ^ x >> 16;
}

static uint32_t roll(worker *w, uint32_t sides) { return mix(w->seed * 40503u + ++w->dice) % sides; }

static size_t size_of(uint32_t key) {
    static const size_t usual[] = {0, 1, 15, 16, 63, 64, 65, 1000};
    uint32_t x = mix(key), kind = x % 16;
    return kind < 8 ? usual[kind] : kind < 13 ? x / 16 % 5000 : kind < 15 ? x / 16 % 70000 : x / 16 % LARGEST;
}

static void fill(char *p, size_t n, uint32_t key) {
    uint32_t x = mix(key) | 1;
    for (size_t i = 0; i < n; i++) p[i] = (char)((x * (uint32_t)(i + 1)) >> 24);
}

static void compare(worker *w, const char *p, size_t n, uint32_t key, const char *what) {
    uint32_t x = mix(key) | 1;
    for (size_t i = 0; i < n && !w->false_bytes; i++) {
        if (p[i] == (char)((x * (uint32_t)(i + 1)) >> 24)) continue;
        snprintf(w->text, sizeof w->text, "%s, call %u of seed %u: byte %zu of %zu is wrong", what, w->calls, w->seed,
                 i, n);
        w->false_bytes = true;
    }
}

// What a rank says in this call: the k-th of its messages.
static uint32_t key_of(const worker *w, int rank, int k) {
    return w->seed * 977u + w->calls * 131u + (uint32_t)rank * 17u + (uint32_t)k;
}

// Two messages round the ring of ranks, of other sizes from every rank.
static err_t try_exchange(worker *w) {
    comm *c = w->c;
    int right = (c->rank + 1) % c->world, left = (c->rank + c->world - 1) % c->world;
    comm_part send[2], recv[2];
    size_t from = 0, to = 0;
    for (int k = 0; k < 2; k++) {
        send[k] = (comm_part){right, w->out + to, size_of(key_of(w, c->rank, k)) / (1 + (size_t)k * 5)};
        recv[k] = (comm_part){left, w->in + from, size_of(key_of(w, left, k)) / (1 + (size_t)k * 5)};
        fill(send[k].data, send[k].bytes, key_of(w, c->rank, k));
        to += send[k].bytes, from += recv[k].bytes;
    }
    TRY(c->table->exchange(c, send, 2, recv, 2, own));
    for (int k = 0; k < 2; k++) compare(w, recv[k].data, recv[k].bytes, key_of(w, left, k), "exchange");
    return ERR_OK;
}

// One way, as over a link: the first rank sends in one call, the last one in the next.
static err_t try_one_way(worker *w) {
    comm *c = w->c;
    int from = w->calls % 2 ? 0 : c->world - 1, to = c->world - 1 - from;
    size_t n = size_of(key_of(w, from, 0));
    if (c->rank == from) {
        fill(w->out, n, key_of(w, from, 0));
        return comm_send(c, to, w->out, n, own);
    }
    if (c->rank != to) return ERR_OK;
    TRY(comm_recv(c, from, w->in, n, own));
    compare(w, w->in, n, key_of(w, from, 0), "a message");
    return ERR_OK;
}

static err_t try_all_gather(worker *w) {
    size_t cut[WORLD_MOST + 1] = {0};
    comm *c = w->c;
    for (int r = 0; r < c->world; r++) cut[r + 1] = cut[r] + size_of(key_of(w, r, 0)) / (size_t)c->world;
    fill(w->in + cut[c->rank], cut[c->rank + 1] - cut[c->rank], key_of(w, c->rank, 0));
    TRY(c->table->all_gather(c, w->in, cut, own));
    for (int r = 0; r < c->world; r++) compare(w, w->in + cut[r], cut[r + 1] - cut[r], key_of(w, r, 0), "all_gather");
    return ERR_OK;
}

static err_t try_all_reduce(worker *w) {
    comm *c = w->c;
    size_t n = size_of(key_of(w, 0, 0)) / 4;
    int32_t *x = (int32_t *)w->in, sum = c->world * (c->world - 1) / 2;
    for (size_t i = 0; i < n; i++) x[i] = (int32_t)mix((uint32_t)i + w->calls) / 64 + c->rank;
    TRY(c->table->all_reduce(c, x, n, INT32, REDUCE_SUM, own));
    for (size_t i = 0; i < n && !w->false_bytes; i++)
        w->false_bytes = x[i] != (int32_t)mix((uint32_t)i + w->calls) / 64 * c->world + sum;
    if (w->false_bytes)
        snprintf(w->text, sizeof w->text, "all_reduce, call %u of seed %u: a wrong sum", w->calls, w->seed);
    return ERR_OK;
}

static err_t try_broadcast(worker *w) {
    comm *c = w->c;
    int root = (int)(w->calls % (uint32_t)c->world);
    size_t n = size_of(key_of(w, root, 0));
    if (c->rank == root) fill(w->in, n, key_of(w, root, 0));
    TRY(c->table->broadcast(c, w->in, n, root, own));
    compare(w, w->in, n, key_of(w, root, 0), "broadcast");
    return ERR_OK;
}

static err_t try_barrier(worker *w) { return w->c->table->barrier(w->c, own); }

typedef err_t attempt(worker *w);
static attempt *const attempts[] = {try_exchange,   try_one_way,   try_all_gather,
                                    try_all_reduce, try_broadcast, try_barrier};

static void make_calls(worker *w, uint32_t calls) {
    for (uint32_t i = 0; i < calls && w->rc == ERR_OK && !w->false_bytes; i++) {
        w->calls++;
        // ranks are late by different times
        if (roll(w, 8) == 0) nap(1e-6 * (double)(mix(key_of(w, w->c->rank, 9)) % 2000));
        w->rc = attempts[roll(w, 6)](w);
        atomic_fetch_add(w->made, 1);
    }
    if (w->rc != ERR_OK) snprintf(w->text, sizeof w->text, "%s", err_last()->text);
}

enum { ENDLESS = 1 << 30 };
static uint32_t wanted;  // calls of each worker, set before the threads start

static void *work(void *arg) {
    worker *w = arg;
    if (w->together) pthread_barrier_wait(w->together);
    make_calls(w, wanted);
    if (w->together) pthread_barrier_wait(w->together);
    return NULL;
}

// One worker for each communicator of the layout that has more than one rank, the world's among them.
enum { WORKERS = 1 + GROUP_KINDS + 2 * LINK_KINDS };
typedef struct team_of_workers {
    worker of[WORKERS];
    int n;
    atomic_uint made;
    pthread_barrier_t together;
} crew;

static void hire(crew *w, comm *c, int kind, int color, bool counted) {
    if (!c || c->world == 1) return;
    worker *x = &w->of[w->n++];
    *x = (worker){
        .c = c, .seed = (uint32_t)(kind * 1000 + color), .made = &w->made, .together = counted ? &w->together : NULL};
    x->out = malloc(3 * LARGEST), x->in = malloc(3 * LARGEST);
}

static void hire_all(crew *w, const groups *g, bool counted) {
    int rank = g->world->rank;
    *w = (crew){0};
    hire(w, g->world, 50, 0, counted);
    for (int k = 0; k < GROUP_KINDS; k++)
        if (g->group[k] != g->world)
            hire(w, g->group[k], k, grid_group_split(&g->shape, (group_kind)k, rank).color, counted);
    for (int k = 0; k < LINK_KINDS; k++) {
        hire(w, g->after[k], 10 + k, rank, counted);
        hire(w, g->before[k], 10 + k, grid_link_peer(&g->shape, (link_kind)k, rank, false), counted);
    }
    for (int i = 0; i < w->n; i++) {  // the two ends of a link that closes the line name it differently
        comm *c = w->of[i].c;
        if (c != g->world && c->world == 2 && w->of[i].seed >= 10 * 1000 && w->of[i].seed < 50 * 1000)
            w->of[i].seed = w->of[i].seed / 1000 * 1000;
    }
    if (counted) pthread_barrier_init(&w->together, NULL, (unsigned)w->n + 1);
    for (int i = 0; i < w->n; i++) pthread_create(&w->of[i].thread, NULL, work, &w->of[i]);
}

static void dismiss(crew *w) {
    for (int i = 0; i < w->n; i++) {
        pthread_join(w->of[i].thread, NULL);
        free(w->of[i].out), free(w->of[i].in);
    }
    if (w->n && w->of[0].together) pthread_barrier_destroy(&w->together);
}

// --- all at once -----------------------------------------------------------------------------------------------------

// All communicators, all the time. Between the two barriers of the threads the heap is not called.
static void storm(scene *s, team *t, result *r) {
    static crew w;
    groups g;
    comm *c = open_world(s, t, r, 30);
    if (!c) return;
    RUNS(r, groups_open(&g, &shape, c));
    wanted = CALLS;
    hire_all(&w, &g, true);
    pthread_barrier_wait(&w.together);
    atomic_long *counter = carrier_is_fabric() ? &heap_own : &heap_calls;  // libfabric's providers make some
    long before = atomic_load(counter);
    pthread_barrier_wait(&w.together);
    long made = atomic_load(counter) - before;
    dismiss(&w);
    for (int i = 0; i < w.n; i++) NEEDS(r, w.of[i].rc == ERR_OK && !w.of[i].false_bytes, "%s", w.of[i].text);
    NEEDS(r, made == 0 || by_nccl, "%ld heap calls in %u calls, expected 0", made, atomic_load(&w.made));
    NEEDS(r, !by_nccl || standin_counts("together") > 1, "%d communicators of NCCL worked together",
          standin_counts("together"));
    NEEDS(r, atomic_load(&w.made) == (unsigned)w.n * CALLS, "%u calls", atomic_load(&w.made));
    RUNS(r, c->table->barrier(c, own));
    groups_close(&g);
    if (by_nccl) NEEDS(r, standin_counts("live") == 1, "%d communicators are left", standin_counts("live"));
    c->table->close(c);
    r->links = r->links < 0 ? -1 : 1;
}

static const trial one_node[] = {
    {.nodes = 1, .ranks = {2}, .tensor = 1, .pipeline = 2}, {.nodes = 1, .ranks = {3}, .tensor = 1, .pipeline = 3},
    {.nodes = 1, .ranks = {4}, .tensor = 2, .pipeline = 1}, {.nodes = 1, .ranks = {4}, .tensor = 1, .pipeline = 4},
    {.nodes = 1, .ranks = {8}, .tensor = 2, .pipeline = 2}, {.nodes = 1, .ranks = {3}, .tensor = 1, .pipeline = 1},
};
static const trial links_only[] = {
    {.nodes = 2, .ranks = {1, 1}, .tensor = 2, .pipeline = 1},
    {.nodes = 3, .ranks = {1, 1, 1}, .tensor = 1, .pipeline = 3},
    {.nodes = 4, .ranks = {1, 1, 1, 1}, .tensor = 2, .pipeline = 2},
};
static const trial mixed[] = {
    {.nodes = 2, .ranks = {2, 2}, .tensor = 2, .pipeline = 2},
    {.nodes = 3, .ranks = {3, 1, 2}, .tensor = 2, .pipeline = 3},
    {.nodes = 2, .ranks = {4, 4}, .tensor = 2, .pipeline = 2},
};

static const trial through_nccl[] = {
    {.nodes = 1, .ranks = {3}, .tensor = 1, .pipeline = 3, .nccl = true},
    {.nodes = 1, .ranks = {8}, .tensor = 2, .pipeline = 2, .nccl = true},
    {.nodes = 2, .ranks = {2, 2}, .tensor = 2, .pipeline = 2, .nccl = true},
};

static void storm_over(const trial *x, int n) {
    for (int i = 0; i < n; i++) {
        scene *s = trial_open(&x[i], storm);
        run_trial(s, -1);
        all_well(s);
        scene_close(s);
    }
}

static void threads_of_one_node_get_the_right_bytes(void **state) {
    (void)state;
    storm_over(one_node, sizeof one_node / sizeof *one_node);
}

static void so_do_those_of_several_nodes(void **state) {
    (void)state;
    storm_over(links_only, sizeof links_only / sizeof *links_only);
}

static void so_do_those_of_both(void **state) {
    (void)state;
    storm_over(mixed, sizeof mixed / sizeof *mixed);
}

static void so_do_those_through_nccl(void **state) {
    (void)state;
    storm_over(through_nccl, sizeof through_nccl / sizeof *through_nccl);
}

// --- none waits for another ------------------------------------------------------------------------------------------

typedef struct receiver {
    comm *c;
    int from, got;
    err_t rc;
    char text[ERR_TEXT];
    atomic_int done;
    pthread_t thread;
} receiver;

static void *receive(void *arg) {
    receiver *x = arg;
    x->rc = comm_recv(x->c, x->from, &x->got, sizeof x->got, own);
    if (x->rc != ERR_OK) snprintf(x->text, sizeof x->text, "%s", err_last()->text);
    atomic_store(&x->done, 1);
    return NULL;
}

static err_t some_calls(comm *c, int n) {
    int out[2] = {c->rank, 7}, in[2], peer = !c->rank;
    for (int i = 0; i < n; i++) {
        TRY(c->table->exchange(c, &(comm_part){peer, out, sizeof out}, 1, &(comm_part){peer, in, sizeof in}, 1, own));
        if (in[0] != peer) return err_set(ERR_INTERNAL, "%d was received", in[0]);
    }
    return ERR_OK;
}

// Rank 1 of three stages waits for rank 0 over one link. Meanwhile its other link of that kind, another kind of link to
// rank 0, and the world's communicator go on; only then rank 0 sends.
static void patience(scene *s, team *t, result *r) {
    groups g;
    comm *c = open_world(s, t, r, 30);
    if (!c) return;
    RUNS(r, groups_open(&g, &shape, c));
    receiver x = {.c = g.before[LINK_FORWARD], .from = 0};
    if (c->rank == 1) {
        pthread_create(&x.thread, NULL, receive, &x);
        nap(0.05);  // it sleeps by now
    }
    if (c->rank > 0) RUNS(r, some_calls(c->rank == 1 ? g.after[LINK_FORWARD] : g.before[LINK_FORWARD], 100));
    if (c->rank < 2) RUNS(r, some_calls(c->rank == 0 ? g.after[LINK_BACKWARD] : g.before[LINK_BACKWARD], 100));
    for (int i = 0; i < 20; i++) RUNS(r, c->table->barrier(c, own));
    NEEDS(r, atomic_load(&x.done) == 0, "a message was received that nobody sent");
    RUNS(r, c->table->barrier(c, own));
    if (c->rank == 0) RUNS(r, comm_send(g.after[LINK_FORWARD], 1, &(int){4711}, sizeof(int), own));
    if (c->rank == 1) {
        pthread_join(x.thread, NULL);
        NEEDS(r, x.rc == ERR_OK && x.got == 4711, "%d, %s", x.got, x.text);
    }
    groups_close(&g);
    c->table->close(c);
    r->links = r->links < 0 ? -1 : 1;
}

static const trial three_stages[] = {
    {.nodes = 1, .ranks = {3}, .tensor = 1, .pipeline = 3},
    {.nodes = 3, .ranks = {1, 1, 1}, .tensor = 1, .pipeline = 3},
    {.nodes = 2, .ranks = {2, 1}, .tensor = 1, .pipeline = 3},
    {.nodes = 1, .ranks = {3}, .tensor = 1, .pipeline = 3, .nccl = true},
};
enum { THREE_STAGES = sizeof three_stages / sizeof *three_stages };

static void over_three_stages(body *f) {
    for (int i = 0; i < THREE_STAGES; i++) {
        scene *s = trial_open(&three_stages[i], f);
        run_trial(s, -1);
        scene_close(s);
    }
}

static void a_link_that_waits_holds_up_no_other(void **state) {
    (void)state;
    over_three_stages(patience);
}

// --- names -----------------------------------------------------------------------------------------------------------

// "rank 5 (127.0.0.2, stage 2, tensor 1)": what every message calls this rank of the world.
static const char *named(const scene *s, int rank) {
    static char name[2][COMM_NAME];
    static int turn;
    char role[COMM_ROLE], *dst = name[turn ^= 1];
    int node = 0;
    for (int left = rank; left >= s->ranks[node]; node++) left -= s->ranks[node];
    snprintf(dst, COMM_NAME, "rank %d (%s%s)", rank, hosts[node], grid_role(&shape, rank, role));
    return dst;
}

// The first and the last member of a communicator fail, one after the other: the others hear it from a rank of the
// world.
static void hear_of(scene *s, result *r, comm *c, const int *member) {
    char name[COMM_NAME], text[ERR_TEXT];
    for (int i = 0; i < c->world; i++)
        NEEDS(r, strcmp(comm_rank_text(c, i, name), named(s, member[i])) == 0, "\"%s\", expected \"%s\"", name,
              named(s, member[i]));
    for (int who = 0; who < c->world; who += c->world - 1) {
        snprintf(text, sizeof text, "%s%sthe disk is full", c->rank == who ? "" : named(s, member[who]),
                 c->rank == who ? "" : ": ");
        err_t rc = comm_agree_ok(c, c->rank == who ? err_set(ERR_IO, "the disk is full") : ERR_OK, own);
        NEEDS(r, rc == ERR_IO && strcmp(err_last()->text, text) == 0, "\"%s\", expected \"%s\"", err_last()->text,
              text);
    }
}

static void name_each_other(scene *s, team *t, result *r) {
    groups g;
    int member[WORLD_MOST];
    comm *c = open_world(s, t, r, 30);
    if (!c) return;
    RUNS(r, groups_open(&g, &shape, c));
    for (int i = 0; i < c->world; i++) member[i] = i;
    hear_of(s, r, c, member);
    for (int k = 0; k < GROUP_KINDS && r->links >= 0; k++) {
        int n = grid_group_size(&shape, (group_kind)k);
        for (int i = 0; i < n; i++) member[i] = grid_group_member(&shape, (group_kind)k, c->rank, i);
        if (n > 1) hear_of(s, r, g.group[k], member);
    }
    for (int turn = 0; turn < 2 && r->links >= 0;
         turn++) {  // a stage's link to the next one, then the other end: no two ranks wait for each other
        bool after = grid_at(&shape, c->rank).stage % 2 == turn;
        int peer = grid_link_peer(&shape, LINK_FORWARD, c->rank, after), low = peer < c->rank ? peer : c->rank;
        member[0] = low, member[1] = low == peer ? c->rank : peer;
        if (peer >= 0) hear_of(s, r, after ? g.after[LINK_FORWARD] : g.before[LINK_FORWARD], member);
    }
    RUNS(r, c->table->barrier(c, own));
    groups_close(&g);
    c->table->close(c);
    r->links = r->links < 0 ? -1 : 1;
}

static void a_part_names_ranks_of_the_world(void **state) {
    (void)state;
    const trial *const all[] = {&one_node[3], &one_node[4],     &links_only[2],
                                &mixed[1],    &through_nccl[1], &through_nccl[2]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        scene *s = trial_open(all[i], name_each_other);
        run_trial(s, -1);
        scene_close(s);
    }
}

// --- failures --------------------------------------------------------------------------------------------------------

// All threads work without end; one rank dies. Every thread of every other rank must come back, with one record.
static void die(scene *s, team *t, result *r) {
    static crew w;
    groups g;
    comm *c = open_world(s, t, r, 10);
    if (!c) return;
    RUNS(r, groups_open(&g, &shape, c));
    wanted = ENDLESS;
    hire_all(&w, &g, false);
    if (c->rank == s->number) {
        while (atomic_load(&w.made) < 200 / SLOWER) nap(0.001);
        s->b->moment = now_s();
        raise(SIGKILL);
    }
    dismiss(&w);
    double took = now_s() - s->b->moment;
    const char *name = named(s, s->number);
    for (int i = 0; i < w.n; i++) {
        NEEDS(r, w.of[i].rc == ERR_UNAVAILABLE && !w.of[i].false_bytes, "thread %d: %d, %s", i, w.of[i].rc,
              w.of[i].text);
        NEEDS(r, strstr(w.of[i].text, name), "\"%s\" does not name %s", w.of[i].text, name);
        NEEDS(r, strcmp(w.of[i].text, w.of[0].text) == 0, "\"%s\" and \"%s\"", w.of[i].text, w.of[0].text);
        NEEDS(r, w.of[i].c->table->query(w.of[i].c) == ERR_UNAVAILABLE, "a communicator is well");
    }
    NEEDS(r, took < 5, "it took %.1f s", took);
    groups_close(&g);
    c->table->close(c);
    r->links = r->links < 0 ? -1 : 1;
}

static void die_over(const trial *x, int who) {
    scene *s = trial_open(x, die);
    s->number = who;
    run_trial(s, who);
    scene_close(s);
}

static void a_killed_rank_ends_all_threads_of_all_others(void **state) {
    (void)state;
    die_over(&one_node[4], 5);
    die_over(&one_node[1], 0);
    die_over(&links_only[1], 1);
    die_over(&mixed[1], 3);
    die_over(&through_nccl[0], 1);
    die_over(&through_nccl[1], 6);
    die_over(&through_nccl[2], 0);
}

// Rank 0 waits over a link for rank 1, which never sends; other threads are in other calls, in other phases, and have
// time left.
static void be_late(scene *s, team *t, result *r) {
    groups g;
    comm *c = open_world(s, t, r, 1e-3 * SHORT_MS);
    if (!c) return;
    RUNS(r, groups_open(&g, &shape, c));
    comm *link = c->rank == 0 ? g.after[LINK_BACKWARD] : c->rank == 1 ? g.before[LINK_BACKWARD] : NULL;
    receiver x = {.c = link, .from = 1};
    if (c->rank == 0) {
        link->phase = (comm_phase){"receive gradients", 17, 3};
        pthread_create(&x.thread, NULL, receive, &x);
    }
    nap(0.1);
    c->phase = (comm_phase){"evaluate", 16, 2};
    RUNS(r, c->table->barrier(c, own));
    err_t rc = ERR_OK;
    for (double end = now_s() + 10; rc == ERR_OK && now_s() < end; nap(0.01)) rc = c->table->query(c);
    NEEDS(r, rc == ERR_UNAVAILABLE, "%d", rc);
    char text[ERR_TEXT];
    keep_text(text, rc);
    const char *by_tcp[] = {named(s, 0), "no progress for ", named(s, 1), "has not entered it (in exchange #",
                            "receive gradients 3 of step 17"};
    const char *nccl[] = {named(s, 0), "nccl exchange #1", "not every rank has come to it within ", named(s, 1),
                          "receive gradients 3 of step 17"};
    const char *const *says = by_nccl ? nccl : by_tcp;
    for (int i = 0; i < 5; i++) NEEDS(r, strstr(text, says[i]), "\"%s\" does not say \"%s\"", text, says[i]);
    NEEDS(r, !strstr(text, "evaluate"), "\"%s\"", text);
    if (c->rank == 0) {
        pthread_join(x.thread, NULL);
        NEEDS(r, x.rc == ERR_UNAVAILABLE && strcmp(x.text, text) == 0, "\"%s\"", x.text);
    }
    NEEDS(r, c->table->barrier(c, own) == ERR_UNAVAILABLE && strcmp(err_last()->text, text) == 0, "\"%s\"",
          err_last()->text);
    if (link)
        NEEDS(r, link->table->barrier(link, own) == ERR_UNAVAILABLE && strcmp(err_last()->text, text) == 0, "\"%s\"",
              err_last()->text);
    groups_close(&g);
    c->table->close(c);
    r->links = r->links < 0 ? -1 : 1;
}

static void a_timeout_has_the_phase_of_who_noticed_it(void **state) {
    (void)state;
    over_three_stages(be_late);
}

// A rank says on another channel that it is at work, or all are to be patient: then a link is waited for longer than
// the timeout.
static void be_slow(scene *s, team *t, result *r) {
    groups g;
    comm *c = open_world(s, t, r, 1e-3 * SHORT_MS);
    if (!c) return;
    RUNS(r, groups_open(&g, &shape, c));
    if (s->number == 2) comm_be_patient(c, true);
    receiver x = {.c = g.before[LINK_FORWARD], .from = 0};
    if (c->rank == 1) pthread_create(&x.thread, NULL, receive, &x);
    for (double end = now_s() + 2.5e-3 * SHORT_MS; now_s() < end; nap(0.05))
        if (s->number == 1 && c->rank == 2) g.before[LINK_DOWN_FORWARD]->table->alive(g.before[LINK_DOWN_FORWARD]);
    if (c->rank == 0) RUNS(r, comm_send(g.after[LINK_FORWARD], 1, &(int){4711}, sizeof(int), own));
    if (c->rank == 1) {
        pthread_join(x.thread, NULL);
        NEEDS(r, x.rc == ERR_OK && x.got == 4711, "%d, %s", x.got, x.text);
    }
    groups_close(&g);
    c->table->close(c);
    r->links = r->links < 0 ? -1 : 1;
}

static void signs_of_life_count_for_all_channels(void **state) {
    (void)state;
    for (int number = 1; number <= 2; number++)
        for (int i = 0; i < (number == 1 ? 3 : 1); i++) {  // by NCCL the time is that of the launch
            scene *s = trial_open(&three_stages[i], be_slow);
            s->number = number;
            run_trial(s, -1);
            scene_close(s);
        }
}

// One thread gives up on its communicator: all the others come back.
static void give_up(scene *s, team *t, result *r) {
    static crew w;
    groups g;
    comm *c = open_world(s, t, r, 30);
    if (!c) return;
    RUNS(r, groups_open(&g, &shape, c));
    wanted = ENDLESS;
    hire_all(&w, &g, false);
    while (atomic_load(&w.made) < 100 / SLOWER && c->table->query(c) == ERR_OK) nap(0.001);
    if (c->rank == 1) g.after[LINK_FORWARD]->table->abort(g.after[LINK_FORWARD], "the loss is not a number");
    dismiss(&w);
    for (int i = 0; i < w.n; i++) {
        NEEDS(r, w.of[i].rc == ERR_UNAVAILABLE, "thread %d: %d, %s", i, w.of[i].rc, w.of[i].text);
        NEEDS(r, strstr(w.of[i].text, named(s, 1)) && strstr(w.of[i].text, "the loss is not a number"), "\"%s\"",
              w.of[i].text);
    }
    groups_close(&g);
    c->table->close(c);
    r->links = r->links < 0 ? -1 : 1;
}

static void an_abort_ends_all_threads(void **state) {
    (void)state;
    over_three_stages(give_up);
}

// --- what is not allowed ---------------------------------------------------------------------------------------------

// Two communicators of one channel between the same ranks, at the same time.
static void collide(scene *s, team *t, result *r) {
    comm *a, *b, *c = open_world(s, t, r, 30);
    if (!c) return;
    RUNS(r, c->table->split(c, 0, 0, 1, &a));
    RUNS(r, c->table->split(c, 0, 0, 1, &b));
    for (int i = 0; i < 10; i++) {  // one after the other is well
        RUNS(r, some_calls(a, 3));
        RUNS(r, some_calls(b, 2));
    }
    receiver x = {.c = a, .from = 1};
    err_t rc = ERR_OK;
    if (c->rank == 0) {
        pthread_create(&x.thread, NULL, receive, &x);
        nap(0.2);
        rc = comm_recv(b, 1, &(int){0}, sizeof(int), own);
    } else
        while ((rc = c->table->query(c)) == ERR_OK) nap(0.01);
    NEEDS(r, rc == ERR_UNAVAILABLE && strstr(err_last()->text, "another call uses the connection to rank 1 ("),
          "%d, %s", rc, err_last()->text);
    NEEDS(r, strstr(err_last()->text, "on channel 1: "), "%s", err_last()->text);
    if (c->rank == 0) pthread_join(x.thread, NULL);
    b->table->close(b);
    a->table->close(a);
    c->table->close(c);
    r->links = r->links < 0 ? -1 : 1;
}

static void calls_that_share_a_connection_are_found_out(void **state) {
    (void)state;
    static const int near[] = {2}, far[] = {1, 1};
    for (int nodes = 1; nodes <= 2; nodes++) {
        by_nccl = false;
        scene *s = scene_open(nodes, nodes == 1 ? near : far);
        s->plan = (channel_plan){.channels = 1, .seats = 2};
        s->o.links = true;
        s->body = collide;
        run_trial(s, -1);
        scene_close(s);
    }
}

static bool not_0_and_2(const void *ctx, int channel, int a, int b) {
    return (void)ctx, channel != 2 || a != 0 || b != 2;
}

#define REFUSES(r, c, color, channel, says) \
    do { \
        comm *none_; \
        err_t rc_ = (c)->table->split((c), (color), 0, (channel), &none_); \
        NEEDS(r, rc_ == ERR_INTERNAL && !none_, "line %d: %d", __LINE__, rc_); \
        NEEDS(r, strstr(err_last()->text, says), "line %d: \"%s\" does not say \"%s\"", __LINE__, err_last()->text, \
              says); \
    } while (0)

static void ask_for_too_much(scene *s, team *t, result *r) {
    comm *a, *b, *c = open_world(s, t, r, 30);
    if (!c) return;
    REFUSES(r, c, 0, 3, "channel 3, expected 0 to 2");
    REFUSES(r, c, 0, -1, "channel -1, expected 0 to 2");
    REFUSES(r, c, 0, 2, "rank 0 (127.0.0.1) and rank 2 (127.0.0.2) have no connection on channel 2");
    REFUSES(r, c, 0, c->rank == 1 ? 2 : 1, "rank 1 (127.0.0.1) splits for channel 2, rank 0 (127.0.0.1) for channel 1");
    RUNS(r, c->table->split(c, c->rank < 2 ? 0 : 1, 0, 2, &a));  // without 0 and 2 in one it can be done
    NEEDS(r, a->world == 2 && a->rank == c->rank % 2, "rank %d of %d", a->rank, a->world);
    RUNS(r, some_calls(a, 3));
    REFUSES(r, c, 0, 1, "rank 0 (127.0.0.1) has 1 communicators of further channels already");
    RUNS(r, c->table->split(c, -1, 0, 1, &b));  // takes no seat
    NEEDS(r, !b, "a communicator for nobody");
    RUNS(r, c->table->split(c, c->rank, 0, 1, &b));  // nor does who is alone
    RUNS(r, b->table->barrier(b, own));
    b->table->close(b);
    a->table->close(a);
    RUNS(r, c->table->split(c, 0, -c->rank, 1, &a));  // the seat is free again
    NEEDS(r, a->rank == c->world - 1 - c->rank, "rank %d", a->rank);
    RUNS(r, a->table->split(a, a->rank % 2, 0, 0, &b));  // a part that shares the connections of its whole
    RUNS(r, some_calls(b, 3));
    RUNS(r, a->table->barrier(a, own));
    b->table->close(b);
    a->table->close(a);
    RUNS(r, c->table->barrier(c, own));
    c->table->close(c);
    r->links = r->links < 0 ? -1 : 1;
}

static void what_was_not_declared_is_refused_by_all(void **state) {
    (void)state;
    scene *s = scene_open(2, (int[]){2, 2});
    s->plan = (channel_plan){.channels = 2, .seats = 1, .needs = not_0_and_2};
    s->o.links = true;
    s->body = ask_for_too_much;
    run_trial(s, -1);
    all_well(s);
    scene_close(s);
}

// --- memory ----------------------------------------------------------------------------------------------------------

static long resident(void *base, size_t bytes) {
    static unsigned char page[1 << 20];
    long n = 0;
    if (bytes / 4096 > sizeof page || mincore(base, bytes, page) != 0) return -1;
    for (size_t i = 0; i < (bytes + 4095) / 4096; i++) n += page[i] & 1;
    return n;
}

// Channels that are declared cost address space; those that are used, as many pages as bytes have gone through them.
static void count_pages(scene *s, team *t, result *r) {
    const launch *at = team_at(t);
    comm *a, *c = open_world(s, t, r, 30);
    if (!c) return;
    NEEDS(r, at->more_bytes > 16 << 20, "%zu bytes", at->more_bytes);
    NEEDS(r, resident(at->more, at->more_bytes) == 0, "%ld pages before the first split",
          resident(at->more, at->more_bytes));
    RUNS(r, c->table->barrier(c, own));
    RUNS(r, c->table->split(c, c->rank / 2, 0, 2, &a));
    RUNS(r, some_calls(a, 1));
    RUNS(r, c->table->barrier(c, own));
    long pages = resident(at->more, at->more_bytes);
    NEEDS(r, pages > 0 && pages <= 12, "%ld pages for four rings of a few bytes", pages);
    RUNS(r, c->table->barrier(c, own));
    a->table->close(a);
    c->table->close(c);
    r->links = r->links < 0 ? -1 : 1;
}

static bool only_0_and_2(const void *ctx, int channel, int a, int b) {
    return (void)ctx, channel == 2 && a == 0 && b == 2;
}

static void channels_that_are_not_used_cost_no_memory(void **state) {
    (void)state;
    launch l;
    assert_int_equal(launch_open(&l, 1, (int[]){4}, NULL, 0), ERR_OK);
    assert_int_equal(launch_channels(&l, &(channel_plan){.channels = 3, .seats = 5, .needs = only_0_and_2}), ERR_OK);
    assert_int_equal(l.more_bytes, team_more_bytes(4, 5, 2));  // one ring each way
    launch_close(&l);
    scene *s = scene_open(1, (int[]){4});
    s->plan = (channel_plan){.channels = 8, .seats = 8};
    s->body = count_pages;
    run_trial(s, -1);
    scene_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_of_one_node_get_the_right_bytes),
        cmocka_unit_test(so_do_those_of_several_nodes),
        cmocka_unit_test(so_do_those_of_both),
        cmocka_unit_test(so_do_those_through_nccl),
        cmocka_unit_test(a_link_that_waits_holds_up_no_other),
        cmocka_unit_test(a_part_names_ranks_of_the_world),
        cmocka_unit_test(a_killed_rank_ends_all_threads_of_all_others),
        cmocka_unit_test(a_timeout_has_the_phase_of_who_noticed_it),
        cmocka_unit_test(signs_of_life_count_for_all_channels),
        cmocka_unit_test(an_abort_ends_all_threads),
        cmocka_unit_test(calls_that_share_a_connection_are_found_out),
        cmocka_unit_test(what_was_not_declared_is_refused_by_all),
        cmocka_unit_test(channels_that_are_not_used_cost_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
