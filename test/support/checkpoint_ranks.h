// test/support/checkpoint_ranks.h: checkpoints of several ranks: a state of a few tensors whose every bit follows from
// its step, dealt to forked ranks in any way, on nodes that have a directory each; and jobs that all ranks do, with
// what came of them in shared memory.
#ifndef TEST_SUPPORT_CHECKPOINT_RANKS_H
#define TEST_SUPPORT_CHECKPOINT_RANKS_H

#include "test/support/checkpoint.h"
#include "test/support/pipe_comm.h"

#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { TENSORS = 5, MOST_NODES = 5, SECONDS_MOST = 60 };

// 24 chunks, the last one short, so that files are more than one piece on their way; 2 whole ones; less than one,
// twice; 2, the last one short.
static const struct {
    const char *name;
    int dims;
    int64_t size[4];
} table_of_tensors[TENSORS] = {
    {"emb", 2, {10, 38000}}, {"w", 2, {2, CHUNK}}, {"b.bias", 1, {4}}, {"s", 0, {0}}, {"h", 3, {1, 3, 7001}},
};

// How the tensors may be sliced, along which axis; the first: not at all.
static const struct {
    int axis, slices;
    ckpt_split split;
} slicings[][TENSORS] = {
    {{0, 0, {0}}, {0, 0, {0}}, {0, 0, {0}}, {0, 0, {0}}, {0, 0, {0}}},
    {{1, 4, {0}},
     {1, 2, {0}},
     {0, 2, {0}},
     {0, 1, {0}},
     {1, 3, {0}}},  // of emb 6 chunks each, the last one short; of w whole chunks; of the others less than one
    {{1, 8, {0}}, {1, 4, {0}}, {0, 4, {0}}, {0, 0, {0}}, {0, 1, {0}}},
    {{0, 5, {0}}, {0, 2, {0}}, {0, 2, {0}}, {0, 1, {0}}, {1, 3, {0}}},  // by rows: stored as they were
    {{0, 4, {.padded = 12}},
     {1, 2, {0}},
     {0, 2, {.rows = {2, 2}}},
     {0, 0, {0}},
     {1, 3, {0}}},  // of emb 3, 3, 3 rows and 1; of b.bias a half of each half
    // of w and b.bias most slices are empty
    {{0, 2, {.rows = {2, 6, 2}}}, {0, 8, {.padded = 32}}, {0, 4, {.padded = 8}}, {0, 0, {0}}, {0, 0, {0}}},
};

// --- nodes -----------------------------------------------------------------------------------------------------------

typedef struct nodes {
    char base[256], dir[MOST_NODES][300];
} nodes;

static inline int enter_nodes(void **state) {
    nodes *n = calloc(1, sizeof *n);
    const char *base = getenv("TMPDIR");
    char made[256];
    snprintf(made, sizeof made, "%s/ckpt-ranks-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(made)) return -1;
    strcpy(n->base, made);
    for (int k = 0; k < MOST_NODES; k++) snprintf(n->dir[k], sizeof n->dir[k], "%s/node-%c", made, 'a' + k);
    *state = n;
    return 0;
}

static inline int leave_nodes(void **state) {
    nodes *n = *state;
    int rc = io_remove_tree(n->base) == ERR_OK ? 0 : -1;
    free(n);
    return rc;
}

static inline void wipe(const nodes *n) {
    for (int k = 0; k < MOST_NODES; k++) {
        OK(io_remove_tree(n->dir[k]));
        assert_int_equal(mkdir(n->dir[k], 0755), 0);
    }
}

static inline void node_path(char path[IO_PATH], const nodes *n, int node, int64_t step, const char *file) {
    snprintf(path, IO_PATH, "%s/ckpt/step-%08" PRId64 "%s%s", n->dir[node], step, *file ? "/" : "", file);
}

// --- a state, dealt --------------------------------------------------------------------------------------------------

typedef struct dealt {
    ckpt_state s;
    run_progress at;
    int slicing;
    ckpt_tensor tensor[3][TENSORS];  // masters, m, v
    ckpt_group group[3];
} dealt;

static inline int64_t elements_of(int i) {
    int64_t n = 1;
    for (int d = 0; d < table_of_tensors[i].dims; d++) n *= table_of_tensors[i].size[d];
    return n;
}

static inline int slices_of(int slicing, int i) {
    return slicings[slicing][i].slices > 1 ? slicings[slicing][i].slices : 1;
}

// By its coordinates: the place in row-major order of what is stored as element k.
static inline int64_t logical_of(int slicing, int i, int64_t k) {
    int axis = slicings[slicing][i].axis, dims = table_of_tensors[i].dims;
    int64_t each = elements_of(i) / slices_of(slicing, i), slice = k / each, at[4], logical = 0;
    const ckpt_split *split = &slicings[slicing][i].split;
    if (split->padded) return k;
    if (split->rows[0]) {
        int64_t inner = elements_of(i) / table_of_tensors[i].size[0], row = k / inner % (each / inner), above = 0;
        for (int p = 0;; above += split->rows[p++]) {
            int64_t share = split->rows[p] / slices_of(slicing, i);
            if (row < share) return (above + slice * share + row) * inner + k % inner;
            row -= share;
        }
    }
    k %= each;
    for (int d = dims - 1; d >= 0; d--) {
        int64_t size = table_of_tensors[i].size[d] / (d == axis ? slices_of(slicing, i) : 1);
        at[d] = k % size + (d == axis ? slice * size : 0);
        k /= size;
    }
    for (int d = 0; d < dims; d++) logical = logical * table_of_tensors[i].size[d] + at[d];
    return logical;
}

static inline int64_t slice_size(int slicing, int i) {
    const ckpt_split *split = &slicings[slicing][i].split;
    int64_t rows = split->padded ? split->padded / slices_of(slicing, i) : 0;
    return rows ? rows * (elements_of(i) / table_of_tensors[i].size[0]) : elements_of(i) / slices_of(slicing, i);
}

// Where chunk c begins; of the number of all chunks: where the tensor ends.
static inline int64_t chunk_begin(int slicing, int i, int64_t c) {
    int64_t each = slice_size(slicing, i), chunks = (each + CHUNK - 1) / CHUNK,
            k = c / chunks * each + c % chunks * CHUNK;
    return k < elements_of(i) ? k : elements_of(i);
}

static inline int64_t chunks_in(int slicing, int i) {
    int64_t each = slice_size(slicing, i), all = elements_of(i);
    return (each + CHUNK - 1) / CHUNK * (all / each) + (all % each + CHUNK - 1) / CHUNK;
}

// Chunks `a` to `b` are rank r's. Deal 0: the same number of each tensor's for all; others: cut where dice say, which
// leaves some with nothing, and cuts m and v elsewhere than masters.
static inline void deal_chunks(uint32_t deal, int64_t chunks, int group, int tensor, int rank, int world, int64_t *a,
                               int64_t *b) {
    int64_t cut[PIPE_RANKS + 1] = {0};
    for (int r = 1; r < world; r++) {
        uint32_t word[4];
        philox4x32(word, deal, (uint32_t)group, (uint32_t)tensor, (uint32_t)r, (uint32_t)world);
        cut[r] = deal ? word[0] % (chunks + 1) : chunks * r / world;
        for (int k = r; k > 0 && cut[k] < cut[k - 1]; k--) {
            int64_t other = cut[k];
            cut[k] = cut[k - 1], cut[k - 1] = other;
        }
    }
    cut[world] = chunks;
    *a = cut[rank], *b = cut[rank + 1];
}

static inline void open_dealt(dealt *d, uint32_t deal, int slicing, int rank, int world) {
    memset(d, 0, sizeof *d);
    for (int g = 0; g < 3; g++)
        for (int i = 0; i < TENSORS; i++) {
            ckpt_tensor *t = &d->tensor[g][i];
            int64_t a, b;
            deal_chunks(deal, chunks_in(slicing, i), g, i, rank, world, &a, &b);
            *t = (ckpt_tensor){.dims = table_of_tensors[i].dims,
                               .axis = slicings[slicing][i].axis,
                               .slices = slicings[slicing][i].slices,
                               .split = slicings[slicing][i].split};
            strcpy(t->name, table_of_tensors[i].name);
            memcpy(t->size, table_of_tensors[i].size, sizeof t->size);
            if (a == b) continue;
            t->first = chunk_begin(slicing, i, a), t->count = chunk_begin(slicing, i, b) - t->first;
            t->data = malloc((size_t)t->count * 4);  // of its own size, so that the sanitizer sees an element too far
        }
    d->slicing = slicing;
    for (int g = 0; g < 3; g++) d->group[g] = (ckpt_group){g == 0 ? "" : g == 1 ? "m" : "v", d->tensor[g]};
    d->s = (ckpt_state){
        .params = TENSORS, .groups = 3, .group = d->group, .data_hash = "0123456789abcdef", .build = "test-1"};
    d->s.compress = CKPT_COMPRESS;
    add_key(&d->s, "batch.global", "24");
    add_key(&d->s, "model.type", "gpt");
}

static inline void close_dealt(dealt *d) {
    for (int g = 0; g < 3; g++)
        for (int i = 0; i < TENSORS; i++) free(d->tensor[g][i].data);
}

// Words k .. k+3 of a tensor, k a multiple of 4, of the state of this step and salt.
static inline void words_of(uint32_t word[4], int64_t step, uint32_t salt, int g, int i, int64_t k) {
    philox4x32(word, (uint32_t)step * 1000 + salt, (uint32_t)k, (uint32_t)g, (uint32_t)i, 77);
    if (k % 1024 == 4) word[0] = 0x80000000, word[1] = 0x7fc00123, word[2] = 0xff800001, word[3] = 0x7f800000;
}

static inline run_progress counters_of(int64_t step, uint32_t salt) {
    return (run_progress){.step = step,
                          .updates = step - 1 + salt,
                          .skipped = 1,
                          .loss_scale = 32768,
                          .good_steps = 7,
                          .best_loss = 1.0 / 3,
                          .best_step = step,
                          .log_bytes = 1000 * step};
}

// Fills in, or compares with, what this rank has of the state. Scrambled first when it is to be loaded.
static inline bool visit_dealt(dealt *d, int64_t step, uint32_t salt, bool fill) {
    for (int g = 0; g < 3; g++)
        for (int i = 0; i < TENSORS; i++) {
            const ckpt_tensor *t = &d->tensor[g][i];
            int64_t most = slices_of(d->slicing, i) > 1 ? 1 : 4, n;
            for (int64_t k = 0; k < t->count; k += n) {
                uint32_t word[4];
                int64_t at = logical_of(d->slicing, i, t->first + k);
                n = t->count - k < most ? t->count - k : most;
                words_of(word, step, salt, g, i, at & ~3);
                if (fill) memcpy(t->data + k, word + at % 4, 4 * (size_t)n);
                else if (memcmp(t->data + k, word + at % 4, 4 * (size_t)n) != 0) return false;
            }
        }
    return true;
}

static inline void fill_dealt(dealt *d, int64_t step, uint32_t salt) {
    visit_dealt(d, step, salt, true);
    d->at = counters_of(step, salt);
}

static inline bool dealt_is(dealt *d, int64_t step, uint32_t salt) {
    run_progress at = counters_of(step, salt);
    return visit_dealt(d, step, salt, false) && memcmp(&d->at, &at, sizeof at) == 0;
}

// --- jobs ------------------------------------------------------------------------------------------------------------

// What came of a job on one rank.
typedef struct outcome {
    err_t rc;
    bool found;
    int64_t step;
    int complaints;
    char hash[17], state_hash[17], text[ERR_TEXT], complaint[ERR_TEXT];
    long n;
} outcome;

typedef struct job job;
typedef struct rank_of {
    const job *j;
    comm *c;
    int rank, node;
    const char *dir;
    dealt d;
    outcome *out;
} rank_of;

struct job {
    const nodes *where;
    int nodes, ranks[MOST_NODES], on[MOST_NODES];  // node k is directory on[k]
    uint32_t deal;
    int slicing, turned;  // turned: rank r has what is dealt to rank r + turned
    void (*body)(rank_of *r);
    int64_t step;
    uint32_t salt;
    int keep, victim, die_in, reach;
    const char *text;
    outcome *out;  // [PIPE_RANKS], shared
    pipe_mesh mesh;
    pid_t pid[PIPE_RANKS];
};

// In a rank: there is no cmocka here. What is wrong is said, and the rank fails.
#define MUST(truth, ...) \
    do { \
        if (truth) break; \
        fprintf(stderr, "%s:%d: rank %d: %s: ", __FILE__, __LINE__, r->rank, #truth); \
        fprintf(stderr, __VA_ARGS__); \
        fputc('\n', stderr); \
        _exit(1); \
    } while (0)
#define DOES(call) \
    do { \
        err_t does_ = (call); \
        MUST(does_ == ERR_OK, "%d: %s", does_, err_last()->text); \
    } while (0)

static inline void be_rank(job *j, int rank) {
    rank_of *r = calloc(1, sizeof *r);
    device *dev;
    alarm(SECONDS_MOST);
    comm *c = pipe_comm_open(&j->mesh, rank);
    *r = (rank_of){.j = j,
                   .c = c,
                   .rank = rank,
                   .node = c->place[rank].node,
                   .dir = j->where->dir[j->on[c->place[rank].node]],
                   .out = &j->out[rank]};
    open_dealt(&r->d, j->deal, j->slicing, (rank + j->turned) % c->world, c->world);
    if (c->world > 1) r->d.s.ranks = c;
    DOES(device_open(&dev, &(device_options){.kind = DEVICE_CPU, .threads = 1}));
    DOES(stream_open(dev, &r->d.s.s));
    DOES(ckpt_prepare(&r->d.s));
    j->body(r);
    ckpt_release(&r->d.s);
    stream_close(r->d.s.s);
    device_close(dev);
    close_dealt(&r->d);
    c->table->close(c);
    free(r);
    _exit(0);
}

static inline void start(job *j) {
    if (!j->out) {
        j->out = mmap(NULL, PIPE_RANKS * sizeof *j->out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(j->out != MAP_FAILED);
    }
    memset(j->out, 0, PIPE_RANKS * sizeof *j->out);
    pipe_mesh_open(&j->mesh, j->nodes, j->ranks);
    for (int r = 0; r < j->mesh.world; r++) {
        j->pid[r] = fork();
        assert_true(j->pid[r] >= 0);
        if (j->pid[r] == 0) be_rank(j, r);
    }
    pipe_mesh_close(&j->mesh, -1);
}

// True when all ended well. `killed`: some may have been killed.
static inline bool reap(job *j, bool killed) {
    bool well = true;
    for (int r = 0; r < j->mesh.world; r++) {
        int status;
        assert_int_equal(waitpid(j->pid[r], &status, 0), j->pid[r]);
        bool ended = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        well = well && ended;
        if (!ended && !(killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
            fail_msg("rank %d ended with status %x", r, (unsigned)status);
    }
    return well;
}

static inline void all_ranks_do(job *j, void (*body)(rank_of *r)) {
    j->body = body;
    start(j);
    reap(j, false);
}

static inline void end_job(job *j) { munmap(j->out, PIPE_RANKS * sizeof *j->out); }

static inline void count_complaint(void *ctx, const err_record *why) {
    outcome *o = ctx;
    o->complaints++;
    snprintf(o->complaint, sizeof o->complaint, "%s", why->text);
}

// --- bodies ----------------------------------------------------------------------------------------------------------

static inline void note_hashes(rank_of *r) {
    DOES(ckpt_hash(&r->d.s, r->out->hash));
    DOES(ckpt_state_hash(&r->d.s, &r->d.at, r->out->state_hash));
    r->out->step = r->d.at.step;
}

static inline void body_save(rank_of *r) {
    fill_dealt(&r->d, r->j->step, r->j->salt);
    r->out->rc = ckpt_save(r->dir, &r->d.s, &r->d.at, r->j->keep, NULL);
    if (r->out->rc != ERR_OK) snprintf(r->out->text, sizeof r->out->text, "%s", err_last()->text);
    note_hashes(r);
}

// As a run begins: cleaned up, then resumed. out->n: the salt of what was found; it must be a state that was saved,
// whole.
static inline void body_resume(rank_of *r) {
    enum { SALTS = 64 };
    fill_dealt(&r->d, 999, 0);
    DOES(ckpt_clean(r->dir, &r->d.s));
    r->out->rc = ckpt_resume(r->dir, &r->d.s, &r->d.at, &r->out->found, count_complaint, r->out);
    if (r->out->rc != ERR_OK) snprintf(r->out->text, sizeof r->out->text, "%s", err_last()->text);
    if (r->out->rc != ERR_OK || !r->out->found) return;
    note_hashes(r);
    r->out->n = r->d.at.updates - r->d.at.step + 1;
    MUST(r->out->n >= 0 && r->out->n < SALTS && dealt_is(&r->d, r->d.at.step, (uint32_t)r->out->n),
         "step %" PRId64 " is not as it was saved", r->d.at.step);
}

// As evaluation does: the masters alone, whatever the settings were.
static inline void body_load_masters(rank_of *r) {
    char path[IO_PATH];
    ckpt_release(&r->d.s);
    r->d.s.groups = 1;
    DOES(ckpt_prepare(&r->d.s));
    fill_dealt(&r->d, r->j->step, r->j->salt);
    for (int i = 0; i < TENSORS; i++)
        if (r->d.tensor[0][i].count) memset(r->d.tensor[0][i].data, 0x55, (size_t)r->d.tensor[0][i].count * 4);
    snprintf(path, sizeof path, "%s/ckpt/step-%08" PRId64, r->dir, r->j->step);
    DOES(ckpt_load(path, &r->d.s, &r->d.at, true));
    MUST(dealt_is(&r->d, r->j->step, r->j->salt), "other bits");
}

// The hashes that a state has on one rank.
static inline void hashes_of(outcome *o, int slicing, int64_t step, uint32_t salt) {
    dealt *d = calloc(1, sizeof *d);
    open_dealt(d, 0, slicing, 0, 1);
    fill_dealt(d, step, salt);
    OK(ckpt_hash(&d->s, o->hash));
    OK(ckpt_state_hash(&d->s, &d->at, o->state_hash));
    close_dealt(d);
    free(d);
}

// What all ranks must agree upon.
static inline const outcome *same_on_all(const job *j) {
    const outcome *o = j->out;
    for (int r = 1; r < j->mesh.world; r++)
        if (o[r].rc != o->rc || o[r].found != o->found || o[r].step != o->step || o[r].n != o->n ||
            o[r].complaints != o->complaints || strcmp(o[r].hash, o->hash) != 0 ||
            strcmp(o[r].state_hash, o->state_hash) != 0)
            fail_msg("rank %d: %d step %" PRId64 " hash %s complaints %d (%s); rank 0: %d step %" PRId64
                     " hash %s complaints %d (%s)",
                     r, o[r].rc, o[r].step, o[r].hash, o[r].complaints, o[r].text, o->rc, o->step, o->hash,
                     o->complaints, o->text);
    return o;
}

static inline void saves(job *j, int64_t step, uint32_t salt) {
    j->step = step, j->salt = salt;
    all_ranks_do(j, body_save);
    const outcome *o = same_on_all(j);
    if (o->rc != ERR_OK) fail_msg("save of step %" PRId64 ": %s", step, o->text);
}

// Resumes at this step and salt, having complained so often.
static inline const outcome *resumes_at(job *j, int64_t step, uint32_t salt, int complaints) {
    all_ranks_do(j, body_resume);
    const outcome *o = same_on_all(j);
    if (o->rc != ERR_OK || !o->found || o->step != step || o->n != salt || o->complaints != complaints)
        fail_msg("%d, found %d: step %" PRId64 " salt %ld, complaints %d; expected step %" PRId64
                 " salt %u, %d; %s; %s",
                 o->rc, o->found, o->step, o->n, o->complaints, step, salt, complaints, o->text, o->complaint);
    return o;
}

// Everything of a step is in a node's directory, and nothing lies about.
static inline void node_has(const nodes *n, int node, int64_t step, const outcome *as) {
    char path[IO_PATH], hash[17], state_hash[17];
    node_path(path, n, node, step, "");
    OK(ckpt_hash_dir(path, hash, state_hash));
    assert_string_equal(hash, as->hash);
    assert_string_equal(state_hash, as->state_hash);
}

#define NODES(f) cmocka_unit_test_setup_teardown(f, enter_nodes, leave_nodes)

#endif
