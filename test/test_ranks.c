// test/test_ranks.c: bits against bits: any number of ranks, on any number of nodes, in any ZeRO stage, is one rank.
//
// Each rank is a process of its own with shared memory, sockets and the real transport between them; what it found goes back through a pipe.
#include "test/support/run.h"

#include "trainer/evaluate.h"
#include "trainer/plan.h"

#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

static const char small_model[] =
    "[data]\nformat = raw16\n[model]\nlayers = 2\nheads = 3\nembed = 36\ncontext = 24\nvocab = 128\n"
    "[batch]\nglobal = 16\nmicro = 2\nlanes = 8\n[optimizer]\nlr = 3e-3\n[schedule]\nwarmup = 4\n[device]\nthreads = 1\n[reduce]\nbucket_mb = 0.02\n"
    "[cluster]\ntimeout = 20\n";

// What one rank found.
typedef struct finding {
    char hash[17], state_hash[17], error[ERR_TEXT];
    double loss, eval;
    int64_t memory, planned, sent, planned_sent, sent_far, planned_far;
    err_t code;
} finding;

enum { STEPS = 3, RANKS_MOST = 8 };

typedef struct world {
    char *dir;
    const char *more;
    int nodes, ranks[4];
    int steps;
} world;

static char secret_path[64];

static int world_size(const world *w) {
    int n = 0;
    for (int i = 0; i < w->nodes; i++) n += w->ranks[i];
    return n;
}

static err_t measure(session *x, finding *f) {
    step_result s;
    int64_t windows;
    comm_traffic before;
    TRY(session_init(x));
    TRY(session_feed(x, STEPS));
    for (int i = 0; i < STEPS; i++) {
        TRY(session_settle(x));
        before = x->ranks->traffic;
        TRY(session_step(x, &s));
        TRY(session_settle(x));
    }
    f->sent = x->ranks->traffic.sent - before.sent;
    f->sent_far = x->ranks->traffic.sent_far - before.sent_far;
    f->loss = s.loss;
    TRY(evaluate(&x->runner, x->val, 0, &f->eval, &windows));
    TRY(session_settle(x));
    TRY(session_counters(x));
    TRY(ckpt_hash(&x->state.ckpt, f->hash));
    return ckpt_state_hash(&x->state.ckpt, f->state_hash);
}

static err_t compare_plan(session *x, const config *c, finding *f) {
    plan_rank p;
    TRY(plan_one(c, x->ranks->rank, x->ranks->world, x->ranks->place, &p));
    f->memory = (int64_t)(state_bytes(&x->state) + x->runner.memory.bytes + x->runner.staging.bytes + x->ring_bytes);
    f->planned = (int64_t)plan_bytes(&p);
    f->planned_sent = p.sent;
    f->planned_far = p.sent_far;
    return ERR_OK;
}

static err_t live(const world *w, const config *c, const launch *at, finding *f) {
    session x;
    (void)w;
    err_t rc = session_open(&x, c, SESSION_TRAIN, at);
    if (rc == ERR_OK) rc = measure(&x, f);
    if (rc == ERR_OK) rc = compare_plan(&x, c, f);
    if (rc != ERR_OK) {
        snprintf(f->error, sizeof f->error, "%s", err_last()->text);
        if (x.ranks) x.ranks->table->abort(x.ranks, f->error);
    }
    session_close(&x);
    return rc;
}

static void rank_main(const world *w, const config *c, launch *at, int local, finding *all) {
    alarm(60);
    launch_become(at, local);
    finding *f = &all[at->rank];
    f->code = live(w, c, at, f);
    launch_close(at);
    _exit(f->code);
}

// Forks all ranks of all nodes and waits for them.
static void run_world(const world *w, int port, finding *all) {
    static const char *const hosts[] = {"127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"};
    char cluster[256];
    config c;
    int n = world_size(w);
    snprintf(cluster, sizeof cluster, "%s[cluster]\nport = %d\nsecret_file = %s\n", w->more, port, secret_path);
    load_config(&c, w->dir, small_model, cluster);
    fflush(NULL);
    for (int node = 0; node < w->nodes; node++) {
        launch l;
        OK(launch_open(&l, w->nodes, w->ranks, hosts, node));
        for (int i = 0; i < w->ranks[node]; i++)
            if (fork() == 0) rank_main(w, &c, &l, i, all);
        launch_close(&l);
    }
    for (int i = 0; i < n; i++) {
        int status;
        assert_true(wait(&status) > 0);
        if (WIFSIGNALED(status)) all[0].code = ERR_INTERNAL;
    }
}

static finding *shared_findings(void) {
    void *p = mmap(NULL, RANKS_MOST * sizeof(finding), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

static int random_port(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 20000 + (int)((t.tv_nsec / 1000 + getpid() * 37L) % 6900);
}

// All ranks agree with each other, and with `one` where there is one.
static void expect_same(const char *what, const finding *all, int n, const finding *one) {
    for (int k = 0; k < n; k++) {
        if (all[k].code != ERR_OK) fail_msg("%s: rank %d of %d: %s", what, k, n, all[k].error);
        if (strcmp(all[k].hash, one->hash) != 0 || strcmp(all[k].state_hash, one->state_hash) != 0)
            fail_msg("%s: rank %d of %d: hash %s state %s, expected %s and %s", what, k, n, all[k].hash, all[k].state_hash, one->hash, one->state_hash);
        if (all[k].loss != one->loss || all[k].eval != one->eval)
            fail_msg("%s: rank %d of %d: loss %.17g eval %.17g, expected %.17g and %.17g", what, k, n, all[k].loss, all[k].eval, one->loss, one->eval);
        if (all[k].memory != all[k].planned) fail_msg("%s: rank %d of %d holds %lld bytes, planned %lld", what, k, n, (long long)all[k].memory, (long long)all[k].planned);
        if (all[k].sent != all[k].planned_sent || all[k].sent_far != all[k].planned_far)
            fail_msg("%s: rank %d of %d sent %lld bytes (%lld far), planned %lld (%lld)", what, k, n, (long long)all[k].sent, (long long)all[k].sent_far,
                     (long long)all[k].planned_sent, (long long)all[k].planned_far);
    }
}

static void try_world(const char *name, char *dir, const char *more, int nodes, const int *ranks, finding *one) {
    world w = {.dir = dir, .more = more, .nodes = nodes};
    finding *all = shared_findings();
    for (int i = 0; i < nodes; i++) w.ranks[i] = ranks[i];
    for (int attempt = 0; attempt < 5; attempt++) {  // a port may be taken
        memset(all, 0, RANKS_MOST * sizeof *all);
        run_world(&w, random_port(), all);
        if (nodes == 1 || !strstr(all[0].error, "in use")) break;
    }
    if (!one->hash[0]) *one = all[0];
    expect_same(name, all, world_size(&w), one);
    munmap(all, RANKS_MOST * sizeof *all);
}

static char *data_dir(void) {
    char *dir = make_dir(), bytes[64];
    write_tokens(dir, "text.bin", 6000);
    write_tokens(dir, "val.bin", 1500);
    memset(bytes, 'x', sizeof bytes);
    snprintf(secret_path, sizeof secret_path, "%s/secret", dir);
    OK(io_write_file(secret_path, bytes, sizeof bytes, NULL));
    assert_int_equal(chmod(secret_path, 0600), 0);
    return dir;
}

static void any_number_of_ranks_in_any_stage_gives_the_same_bits(void **state) {
    (void)state;
    char *dir = data_dir(), name[64], more[256];
    finding one = {.hash = ""};
    try_world("one rank", dir, "", 1, (int[]){1}, &one);
    for (int world = 2; world <= 8; world++) {
        for (int zero = 0; zero <= 3; zero++) {
            if (world > 5 && world < 8 && zero != world % 4) continue;
            snprintf(name, sizeof name, "%d ranks, zero %d", world, zero);
            snprintf(more, sizeof more, "[parallel]\nzero = %d\n", zero);
            try_world(name, dir, more, 1, &world, &one);
        }
    }
    drop_dir(dir);
}

static void precision_dropout_and_offload_do_not_matter(void **state) {
    (void)state;
    static const char *const kinds[] = {"[precision]\ncompute = bf16\n[model]\ndropout = 0.1\n", "[precision]\ncompute = fp16\n[batch]\nlanes = 4\n",
                                        "[batch]\nlanes = 4\n[model]\ndropout = 0.1\n"};
    char *dir = data_dir(), name[64], more[512];
    for (int k = 0; k < 3; k++) {
        finding one = {.hash = ""};
        try_world("one rank", dir, kinds[k], 1, (int[]){1}, &one);
        for (int zero = 0; zero <= 3; zero++)
            for (int offload = 0; offload <= 1; offload++) {
                snprintf(name, sizeof name, "kind %d, 3 ranks, zero %d, offload %d", k, zero, offload);
                snprintf(more, sizeof more, "%s[parallel]\nzero = %d\noffload = %s\n", kinds[k], zero, offload ? "yes" : "no");
                try_world(name, dir, more, 1, (int[]){3}, &one);
            }
    }
    drop_dir(dir);
}

// In stage 3 a layer's weights are gathered for its backward pass, which is when they are needed for its forward pass again.
static void recomputation_does_not_matter(void **state) {
    (void)state;
    static const char kind[] = "[precision]\ncompute = bf16\n[model]\nlayers = 4\ndropout = 0.1\n[batch]\nlanes = 4\n";
    static const char *const modes[] = {"selective", "block"};
    char *dir = data_dir(), name[64], more[512];
    finding one = {.hash = ""};
    try_world("one rank", dir, kind, 1, (int[]){1}, &one);
    for (int mode = 0; mode < 2; mode++)
        for (int zero = 0; zero <= 3; zero++) {
            snprintf(name, sizeof name, "3 ranks, zero %d, recompute %s", zero, modes[mode]);
            snprintf(more, sizeof more, "%s[parallel]\nzero = %d\nrecompute = %s\n", kind, zero, modes[mode]);
            try_world(name, dir, more, 1, (int[]){3}, &one);
        }
    drop_dir(dir);
}

static void any_number_of_nodes_gives_the_same_bits(void **state) {
    (void)state;
    static const struct { int nodes, ranks[4]; } worlds[] = {{2, {1, 1}}, {2, {2, 2}}, {3, {3, 1, 2}}, {4, {1, 1, 1, 1}}, {2, {4, 4}}, {2, {1, 4}}};
    char *dir = data_dir(), name[64], more[128];
    finding one = {.hash = ""};
    try_world("one rank", dir, "", 1, (int[]){1}, &one);
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++)
        for (int zero = (int)i % 2; zero <= 3; zero += 2) {
            snprintf(name, sizeof name, "world %zu of %d nodes, zero %d", i, worlds[i].nodes, zero);
            snprintf(more, sizeof more, "[parallel]\nzero = %d\n", zero);
            try_world(name, dir, more, worlds[i].nodes, worlds[i].ranks, &one);
        }
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_ranks_in_any_stage_gives_the_same_bits),
        cmocka_unit_test(precision_dropout_and_offload_do_not_matter),
        cmocka_unit_test(recomputation_does_not_matter),
        cmocka_unit_test(any_number_of_nodes_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
