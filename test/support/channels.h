// test/support/channels.h: the ranks of a layout, each a process with a real team, over tcp or over NCCL's stand-in.
#ifndef TEST_SUPPORT_CHANNELS_H
#define TEST_SUPPORT_CHANNELS_H

#include "comm/groups.h"
#include "comm/transport.h"
#include "test/support/carrier.h"
#include "test/support/standin.h"
#include "test/support/team.h"

#include <dlfcn.h>

enum { ALL_LINKS = (1 << LINK_KINDS) - 1 };

// What a test runs: nodes and ranks, and how they are divided.
typedef struct trial {
    int nodes, ranks[NODES], tensor, pipeline;
    bool nccl;
} trial;

// A rank that finds something wrong says so in r->text, with r->links = -1; all is well with r->links = 1.
static inline void wrong(result *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static inline void wrong(result *r, const char *fmt, ...) {
    va_list a;
    va_start(a, fmt);
    if (r->links >= 0) vsnprintf(r->text, sizeof r->text, fmt, a);
    r->links = -1;
    va_end(a);
}

#define NEEDS(r, cond, ...) \
    do { \
        if (!(cond)) { \
            wrong(r, __VA_ARGS__); \
            return; \
        } \
    } while (0)
#define RUNS(r, call) NEEDS(r, (call) == ERR_OK, "%d: %s: %s", __LINE__, #call, err_last()->text)

static bool by_nccl;  // of the trial that runs: the stand-in's, else tcp
static stream *own;   // of a rank: a CPU's compute stream works in whichever thread calls

static inline comm *open_world(scene *s, team *t, result *r, double timeout_s) {
    comm *over = NULL, *c = NULL;
    char library[512];
    device *host = NULL;
    find_library(library);
    wait_for_all(s, t, r);
    err_t rc = device_open(&host, &(device_options){.kind = DEVICE_CPU, .threads = 1});
    transport_options o = {.dev = host, .timeout_s = timeout_s, .nccl_path = library, .infiniband = -1};
    if (rc == ERR_OK) rc = stream_open(host, &own);
    if (rc == ERR_OK) rc = carrier_open(&over, t, &o);
    if (rc == ERR_OK && by_nccl) rc = comm_nccl_open(&c, t, over, &o, own);
    else c = over;
    if (rc != ERR_OK) wrong(r, "%s", err_last()->text);
    return rc == ERR_OK ? c : NULL;
}

static inline int standin_counts(const char *what) {
    char library[512];
    int (*count)(const char *) = NULL;
    find_library(library);
    void *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD), *symbol = handle ? dlsym(handle, "ncclStandInCount") : NULL;
    memcpy(&count, &symbol, sizeof symbol);
    return count ? count(what) : -1;
}

typedef void body(scene *s, team *t, result *r);

static grid shape;  // of the trial that runs

static inline scene *trial_open(const trial *x, body *f) {
    by_nccl = x->nccl;
    scene *s = scene_open(x->nodes, x->ranks);
    int world = 0;
    for (int n = 0; n < x->nodes; n++) world += x->ranks[n];
    assert_int_equal(
        grid_of(&shape, world, &(grid){.data = 0, .tensor = x->tensor, .pipeline = x->pipeline, .links = ALL_LINKS}),
        ERR_OK);
    s->plan = grid_channels(&shape);
    s->o.links = true;
    s->body = f;
    return s;
}

// killed: a rank that ends by itself, -1: none.
static inline void run_trial(scene *s, int killed) {
    for (int n = 0; n < s->nodes; n++) start_node(s, n, -1);
    int bad = reap(s);
    for (int r = 0; r < world_of(s); r++)
        if (r != killed && s->b->rank[r].links != 1)
            print_message("rank %d of %d on %d nodes: %s%s\n", r, world_of(s), s->nodes, s->b->rank[r].text,
                          s->b->rank[r].later);
    assert_int_equal(bad, killed >= 0);
    for (int r = 0; r < world_of(s); r++)
        if (r != killed) assert_int_equal(s->b->rank[r].links, 1);
}

#endif
