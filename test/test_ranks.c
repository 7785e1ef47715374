// test/test_ranks.c: bits against bits: any number of ranks, on any number of nodes, in any ZeRO stage, is one rank.
// The vocabulary of 131 has 256 rows in memory: every run here also looks at what lies past the 131.
//
// Each rank is a process of its own with shared memory, sockets and the real transport between them; what it found goes
// back through a pipe.
#include "test/support/padding.h"
#include "test/support/run.h"

#include "model/safetensors.h"
#include "trainer/session/evaluate.h"
#include "trainer/plan/plan.h"
#include "trainer/session/restore.h"

#include <inttypes.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

static const char small_model[] = SMALL_GPT(2, 3, 36, 24, 131) SMALL_BATCH(
    16, 2, 8) "[optimizer]\nlr = 3e-3\n[schedule]\nwarmup = 4\n[device]\nthreads = 1\n[reduce]\nbucket_mb = 0.02\n"
              "[cluster]\ntimeout = 20\n";

enum { ASKED = 6 };

// What one rank found.
typedef struct finding {
    char hash[17], state_hash[17], error[ERR_TEXT];
    double loss, eval, eval_published, asked[ASKED];  // asked: bits per byte of a text, and the sums of choices
    int64_t memory, planned;
    comm_cost sent, planned_sent;
    err_t code;
} finding;

enum { STEPS = 3, RANKS_MOST = 8 };

typedef struct world {
    char *dir;
    const char *more;
    int nodes, ranks[4], rack[4], joined;
    bool resumes;
    int saves;     // the step after which it saves and ends, 0: none
    bool redeals;  // before each step the lanes are dealt anew, before the last one as they were at first
} world;

static char secret_path[64];

static int world_size(const world *w) {
    int n = 0;
    for (int i = 0; i < w->nodes; i++) n += w->ranks[i];
    return n;
}

// --- runs ------------------------------------------------------------------------------------------------------------

static err_t begin(session *x, const world *w) {
    bool found;
    monitor m = {0};
    if (!w->resumes) return session_init(x);
    TRY(session_resume(x, &found, &m));
    return found ? ERR_OK : err_set(ERR_DATA, "%s: no checkpoint to go on from", x->dir);
}

// One text, and questions of five choices.
static err_t answer(session *x, double asked[ASKED]) {
    text_marks text;
    answers a;
    TRY(exam_text(&x->exam, &x->evaluator, &text));
    asked[0] = text.bits_per_byte;
    TRY(exam_questions(&x->exam, &x->evaluator, &a));
    if (questions_about(x->exam.questions).rows != ASKED - 1)
        return err_set(ERR_INTERNAL, "expected %d rows", ASKED - 1);
    memcpy(asked + 1, x->exam.sums, (ASKED - 1) * sizeof *asked);
    return ERR_OK;
}

// One that all ranks draw.
static err_t deal_anew(session *x) {
    int64_t deal[RANKS_MOST] = {0}, step = x->progress.step;
    int ranks = grid_workers(&x->shape);
    uint32_t seed = (uint32_t)step + 7;
    for (int64_t i = 0; i < x->cfg->resolved.lanes; i++) {
        seed = seed * 1664525 + 1013904223;
        deal[(seed >> 8) % (uint32_t)ranks]++;
    }
    for (int k = 0; k < ranks && step == STEPS - 1; k++)
        deal[k] = lane_deal_of(x->cfg->resolved.lanes, ranks, k, false).count;
    return session_deal(x, deal);
}

// Memory for a snapshot is asked for by state_saved: for all that a checkpoint has of this rank, and for no more than
// the rows with what fills them up.
static err_t look_at_room(const session *x) {
    const ckpt_state *c = &x->state.ckpt;
    int64_t values = 0, most = 0, room = state_saved(&x->state);
    for (int g = 0; g < c->groups; g++)
        for (int i = 0; i < c->params; i++) values += c->group[g].tensor[i].count;
    for (int i = 0; i < x->net->params; i++) {
        const param *p = &x->net->param[i];
        if (p->tied < 0) most += param_slice_room(p) * param_slices(p) - shape_count(p->dims, p->size) + 64;
    }
    if (values <= room && room - values <= c->groups * most) return ERR_OK;
    return err_set(ERR_INTERNAL, "%" PRId64 " values are saved, and there is room for %" PRId64, values, room);
}

static err_t measure(session *x, const world *w, finding *f) {
    step_result s;
    int64_t windows, last = w->saves ? w->saves : STEPS;
    comm_traffic before = x->ranks->traffic;
    TRY(begin(x, w));
    TRY(session_feed(x, STEPS));
    while (x->progress.step < last) {
        TRY(session_settle(x));
        if (w->redeals) TRY(deal_anew(x));
        before = x->ranks->traffic;
        TRY(session_step(x, &s));
        TRY(session_settle(x));
    }
    f->sent = cost_between(&before, &x->ranks->traffic);
    f->loss = s.loss;
    TRY(eval_loss(x, 0, &f->eval, &windows));
    TRY(answer(x, f->asked));
    TRY(session_settle(x));
    TRY(look_at_padding(x));
    TRY(look_at_room(x));
    TRY(session_fetch(x));
    if (w->saves) TRY(ckpt_save(x->dir, &x->state.ckpt, &x->progress, 1, NULL));
    TRY(ckpt_hash(&x->state.ckpt, f->hash));
    TRY(ckpt_state_hash(&x->state.ckpt, &x->progress, f->state_hash));
    // as after a restart: what follows from masters and counters is what the updates had left
    TRY(state_publish(&x->state));
    TRY(eval_loss(x, 0, &f->eval_published, &windows));
    return session_settle(x);
}

static err_t compare_plan(session *x, const config *c, finding *f) {
    plan_rank p;
    TRY(plan_one(c, x->ranks->rank, x->ranks->world, x->ranks->place, &p));
    f->memory = (int64_t)(state_bytes(&x->state) + x->runner.memory.bytes + x->runner.staging.bytes + x->ring_bytes);
    f->planned = (int64_t)plan_bytes(&p);
    for (int g = 0; g < PLAN_GROUPS; g++) f->planned_sent = cost_add(f->planned_sent, p.to[g]);
    if (f->planned_sent.sent != p.sent || f->planned_sent.sent_far != p.sent_far ||
        f->planned_sent.sent_racks != p.sent_racks)
        return err_set(ERR_INTERNAL, "the groups are not all that is sent");
    return ERR_OK;
}

static err_t live(const world *w, const config *c, const launch *at, finding *f) {
    session x;
    err_t rc = session_open(&x, c, SESSION_TRAIN, at);
    if (rc == ERR_OK) rc = measure(&x, w, f);
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

// A rank ends with the code that it left in its finding. Whatever ends it earlier (a signal, a sanitizer, which exits
// with 1) does so without.
static void note_end(pid_t pid, finding *f) {
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == (int)f->code) return;
    f->code = ERR_INTERNAL;
    snprintf(f->error, sizeof f->error, "it ended with status 0x%x", (unsigned)status);
}

// Forks all ranks of all nodes and waits for them.
static void run_world(const world *w, int port, finding *all) {
    static const char *const hosts[] = {"127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"};
    char cluster[4096];
    config c;
    pid_t pid[RANKS_MOST];
    int n = world_size(w), started = 0;
    snprintf(cluster, sizeof cluster,
             "%s[cluster]\nport = %d\nsecret_file = %s\n[eval]\ntext = %s/part.txt\nchoices = %s/q.jsonl\n", w->more,
             port, secret_path, w->dir, w->dir);
    load_config(&c, w->dir, small_model, cluster);
    fflush(NULL);
    for (int node = 0; node < w->nodes; node++) {
        launch l;
        OK(launch_open(&l, w->nodes, w->ranks, hosts, node));
        launch_racks(&l, w->rack);
        launch_joined(&l, w->joined);
        for (int i = 0; i < w->ranks[node]; i++, started++) {
            pid[started] = fork();
            assert_true(pid[started] >= 0);
            if (pid[started] == 0) rank_main(w, &c, &l, i, all);
        }
        launch_close(&l);
    }
    for (int k = 0; k < n; k++) note_end(pid[k], &all[k]);
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
        if (strlen(all[k].hash) != 16 || strlen(all[k].state_hash) != 16)
            fail_msg("%s: rank %d of %d has no hash", what, k, n);
        if (strcmp(all[k].hash, one->hash) != 0 || strcmp(all[k].state_hash, one->state_hash) != 0)
            fail_msg("%s: rank %d of %d: hash %s state %s, expected %s and %s", what, k, n, all[k].hash,
                     all[k].state_hash, one->hash, one->state_hash);
        if (all[k].loss != one->loss || all[k].eval != one->eval)
            fail_msg("%s: rank %d of %d: loss %.17g eval %.17g, expected %.17g and %.17g", what, k, n, all[k].loss,
                     all[k].eval, one->loss, one->eval);
        for (int i = 0; i < ASKED; i++)
            if (!(all[k].asked[i] == one->asked[i] && one->asked[i] > 0))
                fail_msg("%s: rank %d of %d: likelihood %d is %.17g, expected %.17g", what, k, n, i, all[k].asked[i],
                         one->asked[i]);
        if (all[k].eval_published != all[k].eval)
            fail_msg("%s: rank %d of %d: eval %.17g, of the weights published anew %.17g", what, k, n, all[k].eval,
                     all[k].eval_published);
        if (all[k].memory != all[k].planned)
            fail_msg("%s: rank %d of %d holds %" PRId64 " bytes, planned %" PRId64, what, k, n, all[k].memory,
                     all[k].planned);
        const comm_cost *found = &all[k].sent, *want = &all[k].planned_sent;
        if (found->sent != want->sent || found->sent_far != want->sent_far)
            fail_msg("%s: rank %d of %d sent %" PRId64 " bytes (%" PRId64 " far), planned %" PRId64 " (%" PRId64 ")",
                     what, k, n, found->sent, found->sent_far, want->sent, want->sent_far);
        if (found->messages != want->messages || found->messages_far != want->messages_far)
            fail_msg("%s: rank %d of %d sent %" PRId64 " messages (%" PRId64 " far), planned %" PRId64 " (%" PRId64 ")",
                     what, k, n, found->messages, found->messages_far, want->messages, want->messages_far);
        if (found->sent_apart != want->sent_apart || found->messages_apart != want->messages_apart)
            fail_msg("%s: rank %d of %d sent %" PRId64 " bytes in %" PRId64 " messages to ranks that are not joined "
                     "with it, planned %" PRId64 " in %" PRId64,
                     what, k, n, found->sent_apart, found->messages_apart, want->sent_apart, want->messages_apart);
        if (found->sent_racks != want->sent_racks || found->messages_racks != want->messages_racks)
            fail_msg("%s: rank %d of %d sent %" PRId64 " bytes in %" PRId64 " messages to other racks, planned %" PRId64
                     " in %" PRId64,
                     what, k, n, found->sent_racks, found->messages_racks, want->sent_racks, want->messages_racks);
    }
}

static void try_this(const char *name, const world *w, finding *one) {
    finding *all = shared_findings();
    for (int attempt = 0; attempt < 5; attempt++) {  // a port may be taken
        memset(all, 0, RANKS_MOST * sizeof *all);
        run_world(w, random_port(), all);
        if (w->nodes == 1 || !strstr(all[0].error, "in use")) break;
    }
    if (!one->hash[0]) *one = all[0];
    expect_same(name, all, world_size(w), one);
    munmap(all, RANKS_MOST * sizeof *all);
}

static void try_world(const char *name, char *dir, const char *more, int nodes, const int *ranks, finding *one) {
    world w = {.dir = dir, .more = more, .nodes = nodes};
    for (int i = 0; i < nodes; i++) w.ranks[i] = ranks[i];
    try_this(name, &w, one);
}

static char *texts_dir(void) {
    char *dir = data_dir(), bytes[64];
    write_text(dir, "part.txt",
               "7 bottles and d walls; 14 bottles and 1a walls; and then some 21 bottles and 27 walls, all of them\n");
    write_text(dir, "q.jsonl",
               "{\"query\": \"7 bottles and\", \"choices\": [\"d walls\", \"x\", \"no\"], \"gold\": 0}\n"
               "{\"ctx\": \"walls;\", \"endings\": [\"14\", \"15 or 6\"], \"label\": 1}\n");
    memset(bytes, 'x', sizeof bytes);
    snprintf(secret_path, sizeof secret_path, "%s/secret", dir);
    OK(io_write_file(secret_path, bytes, sizeof bytes, NULL));
    assert_int_equal(chmod(secret_path, 0600), 0);
    return dir;
}

static void any_number_of_ranks_in_any_stage_gives_the_same_bits(void **state) {
    (void)state;
    char *dir = texts_dir(), name[64], more[256];
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
    static const char *const kinds[] = {
        "[precision]\ncompute = bf16\n[model]\ndropout = 0.1\n", "[precision]\ncompute = fp16\n[batch]\nlanes = 4\n",
        "[batch]\nlanes = 4\n[model]\ndropout = 0.1\n",
        // with tensors of more than a chunk, whose owners round a part each
        "[precision]\ncompute = bf16\nrounding = stochastic\n[model]\nlayers = 1\nembed = 72\nvocab = 512\n"};
    char *dir = texts_dir(), name[64], more[512];
    for (int k = 0; k < 4; k++) {
        finding one = {.hash = ""};
        try_world("one rank", dir, kinds[k], 1, (int[]){1}, &one);
        for (int zero = 0; zero <= 3; zero++)
            for (int offload = 0; offload <= (zero > 0); offload++) {
                const char *to = offload == 0 ? "none" : (zero + k) % 3 ? "nvme" : "host";
                snprintf(name, sizeof name, "kind %d, 3 ranks, zero %d, offload %s", k, zero, to);
                snprintf(more, sizeof more, "%s[parallel]\nzero = %d\noffload = %s\n", kinds[k], zero, to);
                try_world(name, dir, more, 1, (int[]){3}, &one);
            }
        snprintf(more, sizeof more, "%s[parallel]\noffload = %s\n", kinds[k], k % 2 ? "yes" : "no");
        try_world("zero 0, as offload was spelled", dir, more, 1, (int[]){3}, &one);
    }
    drop_dir(dir);
}

// Gradient descent keeps one array, or none, where AdamW keeps two. LARS adds up squares of masters, which each rank
// has of its chunks, and rows of several chunks have several owners.
static void another_optimizer_does_not_matter(void **state) {
    (void)state;
    static const char *const kinds[] = {
        "[optimizer]\ntype = sgd\nlr = 0.1\nmomentum = 0.9\nnesterov = yes\n",
        "[optimizer]\ntype = sgd\nlr = 0.1\n[precision]\ncompute = bf16\nrounding = stochastic\n"
        "[model]\nlayers = 1\nembed = 72\nvocab = 512\n",
        "[optimizer]\ntype = lars\nlr = 0.5\ntrust = 0.02\nmomentum = 0.9\n[precision]\ncompute = bf16\n"
        "[model]\nlayers = 1\nembed = 72\nvocab = 512\n",
        "[optimizer]\ntype = lars\nlr = 0.5\ntrust = 0.02\n[model]\nlayers = 1\nembed = 72\nvocab = 512\n"};
    char *dir = texts_dir(), name[64], more[512];
    for (int k = 0; k < 4; k++) {
        finding one = {.hash = ""}, saved = {.hash = ""};
        try_world("one rank", dir, kinds[k], 1, (int[]){1}, &one);
        for (int world = 2; world <= 3; world++)
            for (int zero = 0; zero <= 3; zero++) {
                const char *offload = (world + zero) % 2 == 0 ? "none" : zero ? "nvme" : "host";
                snprintf(name, sizeof name, "kind %d, %d ranks, zero %d, offload %s", k, world, zero, offload);
                snprintf(more, sizeof more, "%s[parallel]\nzero = %d\noffload = %s\n", kinds[k], zero, offload);
                try_world(name, dir, more, 1, &world, &one);
            }
        snprintf(more, sizeof more, "%s[parallel]\nzero = 3\noffload = %s\n", kinds[k], k ? "nvme" : "none");
        try_this("saved by 3 ranks", &(world){.dir = dir, .more = more, .nodes = 1, .ranks = {3}, .saves = 2}, &saved);
        // In stage 0 every rank updates all with what the owners have read.
        snprintf(more, sizeof more, "%s[parallel]\nzero = %d\noffload = %s\n", kinds[k], k,
                 k == 2 ? "nvme"
                 : k    ? "host"
                        : "none");
        try_this("saved by 3 ranks, continued by 2",
                 &(world){.dir = dir, .more = more, .nodes = 1, .ranks = {2}, .resumes = true}, &one);
        snprintf(more, sizeof more, "%s/runs", dir);
        OK(io_remove_tree(more));
    }
    drop_dir(dir);
}

// In stage 3 a layer's weights are gathered for its backward pass, which is when they are needed for its forward pass
// again.
static void recomputation_does_not_matter(void **state) {
    (void)state;
    static const char kind[] = "[precision]\ncompute = bf16\n[model]\nlayers = 4\ndropout = 0.1\n[batch]\nlanes = 4\n";
    static const char *const modes[] = {"selective", "block"};
    char *dir = texts_dir(), name[64], more[512];
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

// 48 rows: four chunks of 10 and one of 8.
static void chunks_of_the_head_do_not_matter(void **state) {
    (void)state;
    static const char kind[] =
        "[precision]\ncompute = bf16\n[model]\nhead_chunks = 5\ndropout = 0.1\n[parallel]\nrecompute = block\n";
    char *dir = texts_dir(), name[64], more[512];
    finding one = {.hash = ""};
    try_world("one rank", dir, kind, 1, (int[]){1}, &one);
    for (int world = 2; world <= 4; world += 2)
        for (int zero = 0; zero <= 3; zero++) {
            snprintf(name, sizeof name, "%d ranks, zero %d, five chunks", world, zero);
            snprintf(more, sizeof more, "%szero = %d\n", kind, zero);
            try_world(name, dir, more, 1, &world, &one);
        }
    drop_dir(dir);
}

static void any_number_of_nodes_gives_the_same_bits(void **state) {
    (void)state;
    static const struct {
        int nodes, ranks[4];
    } worlds[] = {{2, {1, 1}}, {2, {2, 2}}, {3, {3, 1, 2}}, {4, {1, 1, 1, 1}}, {2, {4, 4}}, {2, {1, 4}}};
    char *dir = texts_dir(), name[64], more[128];
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

// Racks of as many nodes, and of unlike ones; with lanes dealt by hand, and anew; ranks that are joined.
static void racks_give_the_same_bits(void **state) {
    (void)state;
    static const struct {
        world at;
        const char *more;
    } worlds[] = {{{.nodes = 4, .ranks = {1, 1, 1, 1}, .rack = {0, 0, 1, 1}}, ""},
                  {{.nodes = 4, .ranks = {2, 2, 2, 2}, .rack = {0, 0, 1, 1}}, ""},
                  {{.nodes = 4, .ranks = {2, 1, 2, 2}, .rack = {0, 0, 0, 1}}, ""},
                  {{.nodes = 3, .ranks = {1, 2, 2}, .rack = {0, 1, 1}}, "deal = 3,0,1,3,1\n"},
                  {{.nodes = 4, .ranks = {1, 2, 1, 1}, .rack = {0, 0, 1, 1}}, "balance = auto\n"},
                  {{.nodes = 1, .ranks = {4}, .joined = 2}, ""},
                  {{.nodes = 2, .ranks = {4, 2}, .rack = {0, 1}, .joined = 2}, "deal = 2,0,3,1,1,1\n"}};
    char *dir = texts_dir(), name[64], more[128];
    finding one = {.hash = ""};
    try_world("one rank", dir, "", 1, (int[]){1}, &one);
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++)
        for (int zero = 0; zero <= 3; zero++) {
            world w = worlds[i].at;
            if (i > 0 && zero % 2 != (int)i % 2) continue;
            snprintf(name, sizeof name, "racks %zu, zero %d", i, zero);
            snprintf(more, sizeof more, "[parallel]\nzero = %d\n%s", i == 4 ? zero / 2 : zero, worlds[i].more);
            w.dir = dir, w.more = more, w.redeals = i == 4;
            try_this(name, &w, &one);
        }
    drop_dir(dir);
}

// By hand: some ranks without lanes, nodes without lanes, ranges that cut every subtree. Each as much memory, and as
// many bytes, as planned.
static void any_deal_gives_the_same_bits(void **state) {
    (void)state;
    static const struct {
        int nodes, ranks[4];
        const char *deal;
    } worlds[] = {{1, {4}, "4,2,1,1"},         {1, {3}, "1,0,7"},           {1, {2}, "0,8"},
                  {2, {2, 2}, "0,0,3,5"},      {2, {1, 3}, "3,0,4,1"},      {3, {2, 1, 2}, "1,2,0,2,3"},
                  {1, {8}, "0,3,0,0,1,0,4,0"}, {4, {1, 1, 1, 1}, "7,0,1,0"}};
    char *dir = texts_dir(), name[64], more[128];
    finding one = {.hash = ""};
    try_world("one rank", dir, "", 1, (int[]){1}, &one);
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++)
        for (int zero = 0; zero <= 3; zero++) {
            if (i > 2 && zero % 2 != (int)i % 2) continue;
            snprintf(name, sizeof name, "deal %s, zero %d", worlds[i].deal, zero);
            snprintf(more, sizeof more, "[parallel]\nzero = %d\ndeal = %s\n", zero, worlds[i].deal);
            try_world(name, dir, more, worlds[i].nodes, worlds[i].ranks, &one);
        }
    drop_dir(dir);
}

static void lanes_dealt_anew_between_steps_give_the_same_bits(void **state) {
    (void)state;
    static const struct {
        int nodes, ranks[2];
        const char *more;
    } worlds[] = {{1, {4}, "zero = 0\n"},
                  {1, {3}, "zero = 1\n"},
                  {2, {2, 3}, "zero = 1\n"},
                  {1, {5}, "zero = 1\n[server]\ncount = 2\n"},
                  {2, {3, 1}, "zero = 0\n"},
                  {1, {8}, "zero = 0\n"},
                  {1, {4}, "zero = 1\n[batch]\nmicro = 1\n"}};
    char *dir = texts_dir(), more[128];
    finding one = {.hash = ""}, smaller = {.hash = ""};
    try_world("one rank", dir, "", 1, (int[]){1}, &one);
    try_world("one rank, two micro-batches a lane", dir, "[batch]\nmicro = 1\n", 1, (int[]){1}, &smaller);
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        snprintf(more, sizeof more, "[parallel]\nbalance = auto\n%s", worlds[i].more);
        world w = {.dir = dir, .more = more, .nodes = worlds[i].nodes, .redeals = true};
        memcpy(w.ranks, worlds[i].ranks, sizeof worlds[i].ranks);
        try_this(worlds[i].more, &w, strstr(more, "micro") ? &smaller : &one);
    }
    drop_dir(dir);
}

// Some ranks own all of the state, or most of it, and have no lanes; some of the others own none. Nodes of servers
// alone; lanes dealt by hand to the others; what such ranks saved others continue.
static void servers_give_the_same_bits(void **state) {
    (void)state;
    static const char *const kinds[] = {
        "", "[batch]\nmicro = 1\n[precision]\ncompute = bf16\n[model]\ndropout = 0.1\n",
        "[optimizer]\ntype = muon\nlr = 0.004\n"
        "[precision]\ncompute = fp16\nrounding = stochastic\n[model]\nlayers = 1\nembed = 72\nvocab = 512\n"};
    static const struct {
        int kind, zero, nodes, ranks[4];
        const char *more;
    } worlds[] = {{0, 1, 1, {2}, "1\n"},
                  {0, 2, 1, {4}, "2\n"},
                  {0, 3, 1, {3}, "1\n"},
                  {0, 3, 2, {2, 2}, "2\n"},
                  {0, 1, 2, {3, 2}, "1\nweight = 0.25\n"},
                  {0, 1, 1, {5}, "4\n[parallel]\noffload = host\n"},
                  {0, 2, 1, {4}, "2\n[parallel]\ndeal = 3,5\n"},
                  {1, 1, 1, {3}, "1\n"},
                  {1, 2, 1, {4}, "1\n[parallel]\ndeal = 8,0,0\n"},
                  {1, 2, 2, {2, 1}, "1\n"},
                  {1, 3, 1, {4}, "2\nweight = 1\n[parallel]\noffload = nvme\n"},
                  {2, 1, 1, {4}, "2\n"},
                  {2, 2, 3, {2, 1, 2}, "2\nweight = 0.1\n"},
                  {2, 3, 1, {3}, "1\n"}};
    char *dir = texts_dir(), name[64], more[512];
    finding one[3] = {{.hash = ""}};
    for (int k = 0; k < 3; k++) try_world("one rank", dir, kinds[k], 1, (int[]){1}, &one[k]);
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        snprintf(name, sizeof name, "servers %zu, zero %d", i, worlds[i].zero);
        snprintf(more, sizeof more, "%s[parallel]\nzero = %d\n[server]\ncount = %s", kinds[worlds[i].kind],
                 worlds[i].zero, worlds[i].more);
        try_world(name, dir, more, worlds[i].nodes, worlds[i].ranks, &one[worlds[i].kind]);
    }
    drop_dir(dir);
}

#define CODED "[model]\nlayers = 1\nembed = 72\nvocab = 512\n"
static const char *const coded[] = {
    CODED "[reduce]\ncompress = int4\n",
    CODED "[reduce]\ncompress = int8\ncompress_back = int4\n[batch]\nmicro = 1\n",
    CODED
    "dropout = 0.1\n[precision]\ncompute = fp16\n[batch]\nlanes = 4\n[reduce]\ncompress = fp16\ncompress_back = fp16\n",
    CODED "[optimizer]\ntype = sgd\nmomentum = 0.9\nnesterov = yes\ngrad_clip = 0\n[reduce]\ncompress = topk\n"
          "density = 0.02\n[batch]\nmicro = 1\n",
    CODED "[reduce]\ncompress = int8\ncompress_back = int8\ncompress_span = 2\n[batch]\nmicro = 1\n",
};

// [reduce] compress: each lane is coded by itself, with what was left out of it before. Tensors of several chunks,
// whose parts have several owners. As many bytes are sent as planned, and as much memory is held.
static void lanes_in_codes_give_the_same_bits(void **state) {
    (void)state;
    static const struct {
        int nodes, ranks[4];
        bool dealt;
    } worlds[] = {{1, {2}, false},    {1, {3}, false},    {1, {8}, false},
                  {2, {1, 2}, false}, {2, {2, 2}, false}, {1, {3}, true}};
    char *dir = texts_dir(), name[64], more[512];
    for (int k = 0; k < 5; k++) {
        finding one = {.hash = ""}, plain = {.hash = ""};
        try_world("one rank", dir, coded[k], 1, (int[]){1}, &one);
        try_world("one rank, lanes as they are", dir, CODED, 1, (int[]){1}, &plain);
        assert_string_not_equal(one.hash, plain.hash);
        for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++)
            for (int zero = 0; zero <= 3; zero++) {
                if ((k == 2 || k == 4) && worlds[i].ranks[0] > 4) continue;  // of 4 lanes, or spans
                const char *deal = !worlds[i].dealt ? "" : k == 2 ? "deal = 2,0,2\n" : "deal = 2,0,6\n";
                snprintf(name, sizeof name, "kind %d, world %zu, zero %d", k, i, zero);
                snprintf(more, sizeof more, "%s[parallel]\nzero = %d\noffload = %s\n%s", coded[k], zero,
                         (i + (size_t)zero) % 3 ? "no" : "yes", deal);
                try_world(name, dir, more, worlds[i].nodes, worlds[i].ranks, &one);
            }
    }
    drop_dir(dir);
}

// Owners have whole matrices.
static void muon_gives_the_same_bits(void **state) {
    (void)state;
    static const char muon[] = "[optimizer]\ntype = muon\nlr = 0.004\n[parallel]\n";
    static const struct {
        int nodes, ranks[2];
        const char *more;
    } worlds[] = {{1, {1}, ""},
                  {2, {1, 2}, "zero = 2\n"},
                  {1, {4}, "zero = 3\n[reduce]\nbucket_mb = 0.02\n"},
                  {1, {3}, "zero = 1\noffload = host\n"}};
    char *dir = texts_dir(), name[64], more[512];
    finding one = {.hash = ""};
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        snprintf(name, sizeof name, "world %zu", i);
        snprintf(more, sizeof more, "%s%s", muon, worlds[i].more);
        try_world(name, dir, more, worlds[i].nodes, worlds[i].ranks, &one);
    }
    drop_dir(dir);
}

// Each lane is coded once, and decoded once by its owners. Sums are coded once, and decoded by their owners, in stage 0
// by all; or they are copied as they are, in stage 0 alone. Without codes each lane is added once.
static void a_plan_counts_what_is_coded(void **state) {
    (void)state;
    enum { WORLD = 3, LANES = 8 };
    comm_place place[WORLD];
    char *dir = texts_dir(), more[512];
    for (int r = 0; r < WORLD; r++) place[r] = (comm_place){.local = r, .rank = r};
    for (int zero = 0; zero <= 3; zero++)
        for (int back = 0; back <= 1; back++) {
            config c;
            plan_rank p;
            plan_codes sum = {0};
            snprintf(more, sizeof more, "%s[parallel]\nzero = %d\n", coded[back], zero);
            load_config(&c, dir, small_model, more);
            for (int r = 0; r < WORLD; r++) {
                OK(plan_one(&c, r, WORLD, place, &p));
                sum.encoded += p.codes.encoded, sum.decoded += p.codes.decoded, sum.added += p.codes.added;
                sum.back_encoded += p.codes.back_encoded, sum.back_decoded += p.codes.back_decoded;
                sum.copied += p.codes.copied;
            }
            int64_t values = sum.encoded / LANES;
            assert_true(values > 72 * 512);
            assert_int_equal(sum.encoded, LANES * values);
            assert_int_equal(sum.decoded, LANES * values);
            assert_int_equal(sum.back_encoded, back ? values : 0);
            assert_int_equal(sum.back_decoded, !back ? 0 : zero ? values : WORLD * values);
            assert_int_equal(sum.copied, back || zero ? 0 : (1 + WORLD) * values);
            assert_int_equal(sum.added, (LANES - 1) * values);
        }
    drop_dir(dir);
}

// Two steps by `from` ranks, which save, and the third by `to` ranks, which must end as `one` did.
typedef struct party {
    int ranks;
    const char *more;
} party;

static void hand_over(const char *what, char *dir, party from, party to, finding *saved, finding *one) {
    char name[96], runs[512];
    snprintf(runs, sizeof runs, "%s/runs", dir);
    OK(io_remove_tree(runs));
    snprintf(name, sizeof name, "%s, saved by %d ranks", what, from.ranks);
    try_this(name, &(world){.dir = dir, .more = from.more, .nodes = 1, .ranks = {from.ranks}, .saves = 2}, saved);
    snprintf(name, sizeof name, "%s, saved by %d ranks, continued by %d", what, from.ranks, to.ranks);
    try_this(name, &(world){.dir = dir, .more = to.more, .nodes = 1, .ranks = {to.ranks}, .resumes = true}, one);
}

// The residual of a lane goes where the lane goes.
static void what_was_left_out_is_saved_with_its_lane(void **state) {
    (void)state;
    static const struct { int ranks, zero; } worlds[] = {{1, 0}, {3, 3}, {2, 1}, {4, 0}};
    char *dir = texts_dir(), name[64], from[512], to[512];
    for (int k = 1; k < 4; k++) {
        finding one = {.hash = ""}, saved = {.hash = ""};
        try_world("one rank", dir, coded[k], 1, (int[]){1}, &one);
        for (int i = 0; i < 4; i++) {
            int next = (i + 1) % 4;
            snprintf(name, sizeof name, "kind %d", k);
            snprintf(from, sizeof from, "%s[parallel]\nzero = %d\n", coded[k], worlds[i].zero);
            snprintf(to, sizeof to, "%s[parallel]\nzero = %d\n", coded[k], worlds[next].zero);
            hand_over(name, dir, (party){worlds[i].ranks, from}, (party){worlds[next].ranks, to}, &saved, &one);
        }
    }
    drop_dir(dir);
}

// Files know nothing of rows in memory.
static void expect_saved_shapes(const char *dir) {
    char path[512];
    st_file f;
    snprintf(path, sizeof path, "%s/runs/default/ckpt/step-%08d/model.safetensors", dir, 2);
    OK(st_open(&f, path));
    const st_tensor *wte = st_find(&f, "wte.weight");
    assert_non_null(wte);
    assert_null(st_find(&f, "lm_head.weight"));
    assert_int_equal(wte->size[0], 131);
    assert_int_equal(wte->size[1], 36);
    assert_int_equal(wte->bytes, 131 * 36 * 4);
    st_close(&f);
}

// Saved after two steps by some ranks, continued by others. embed = 252: a vocabulary of three chunks, the last one
// short, in the memory of four. The matrices are large and many runs evaluate: so on fewer windows than the other
// tests.
static void what_some_ranks_saved_others_continue(void **state) {
    (void)state;
    static const struct {
        int ranks;
        const char *zero;
    } worlds[] = {{1, "[parallel]\noffload = nvme\n"},
                  {3, "[parallel]\nzero = 3\n"},
                  {2, "[parallel]\nzero = 1\noffload = nvme\n"},
                  {4, "[parallel]\nzero = 2\noffload = host\n"}};
    static const char *const widths[] = {"", "[model]\nembed = 252\nlayers = 1\n[precision]\ncompute = bf16\n"};
    char *dir = texts_dir(), name[64], from[256], to[256];
    write_tokens(dir, "val.bin", 300);
    for (int k = 0; k < 2; k++) {
        finding one = {.hash = ""}, saved = {.hash = ""};
        try_world("one rank", dir, widths[k], 1, (int[]){1}, &one);
        for (int i = 0; i < 4; i++) {
            int next = (i + 1) % 4;
            snprintf(name, sizeof name, "width %d", k);
            snprintf(from, sizeof from, "%s%s", widths[k], worlds[i].zero);
            snprintf(to, sizeof to, "%s%s", widths[k], worlds[next].zero);
            hand_over(name, dir, (party){worlds[i].ranks, from}, (party){worlds[next].ranks, to}, &saved, &one);
            if (k == 0 && worlds[i].ranks == 1) expect_saved_shapes(dir);
        }
    }
    drop_dir(dir);
}

// Tensors of several chunks, of which every rank reads its own part from the file. Samples are short and few are
// evaluated: what is tested is which bytes are read.
static void ranks_begin_from_a_file_as_one_does(void **state) {
    (void)state;
    static const char wide[] = "[model]\nembed = 252\nlayers = 1\ncontext = 8\n";
    char *dir = texts_dir(), name[64], more[1024];
    finding one = {.hash = ""}, saved = {.hash = ""};
    write_tokens(dir, "val.bin", 300);
    try_this("saved", &(world){.dir = dir, .more = wide, .nodes = 1, .ranks = {1}, .saves = 2}, &saved);
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int zero = 0; zero <= 3; zero++) {
            if (ranks == 1 ? zero > 0 : ranks == 4 && zero != 3) continue;
            snprintf(name, sizeof name, "%d ranks, zero %d, from a file", ranks, zero);
            snprintf(more, sizeof more,
                     "%sinit_from = %s/runs/default/ckpt/step-%08d/model.safetensors\n[parallel]\nzero = %d\n", wide,
                     dir, 2, zero);
            try_world(name, dir, more, 1, &ranks, &one);
        }
    assert_string_not_equal(one.hash, saved.hash);
    drop_dir(dir);
}

// test_ranks [PATTERN]: the tests whose name it matches, as in a shell.
int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_ranks_in_any_stage_gives_the_same_bits),
        cmocka_unit_test(precision_dropout_and_offload_do_not_matter),
        cmocka_unit_test(another_optimizer_does_not_matter),
        cmocka_unit_test(recomputation_does_not_matter),
        cmocka_unit_test(chunks_of_the_head_do_not_matter),
        cmocka_unit_test(any_number_of_nodes_gives_the_same_bits),
        cmocka_unit_test(racks_give_the_same_bits),
        cmocka_unit_test(any_deal_gives_the_same_bits),
        cmocka_unit_test(lanes_dealt_anew_between_steps_give_the_same_bits),
        cmocka_unit_test(servers_give_the_same_bits),
        cmocka_unit_test(lanes_in_codes_give_the_same_bits),
        cmocka_unit_test(muon_gives_the_same_bits),
        cmocka_unit_test(a_plan_counts_what_is_coded),
        cmocka_unit_test(what_was_left_out_is_saved_with_its_lane),
        cmocka_unit_test(what_some_ranks_saved_others_continue),
        cmocka_unit_test(ranks_begin_from_a_file_as_one_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
