// test/test_plan_ranks.c: a plan of one rank of each kind says what a plan of every rank says, byte for byte, in
// layouts of all sorts on even and uneven nodes and racks. And of a large cluster there are few kinds.
#include "test/support/ranks.h"
#include "trainer/plan/plan_ranks.h"

#include <inttypes.h>

static const char gpt[] =
    "[model]\nlayers = 3\nheads = 4\nembed = 32\ncontext = 16\nvocab = 131\n[reduce]\nbucket_mb = 0.02\n";
static const char wide[] =  // rows of several chunks
    "[model]\nlayers = 2\nheads = 8\nembed = 192\ncontext = 16\nvocab = 257\n[reduce]\nbucket_mb = 0.5\n";
static const char even[] =  // whose rows tensor ranks share evenly
    "[model]\nlayers = 2\nheads = 8\nembed = 64\ncontext = 128\nvocab = 256\n[reduce]\nbucket_mb = 0.1\n";
static const char llama[] =
    "[model]\ntype = llama\nlayers = 4\nheads = 4\nkv_heads = 2\nembed = 128\ncontext = 16\nvocab = 131\ntied = yes\n";
static const char mlp[] =
    "[model]\ntype = mlp\ninputs = 24\nhidden = 40 300 40 200\nclasses = 10\n[sample]\ntokens = 0\n";
static const char resnet[] = "[model]\ntype = resnet\ndepth = 20\nclasses = 10\n[sample]\ntokens = 0\n";

// Nodes by their ranks: "8.8/8.3" are two racks of two nodes each; ":4" at the end: of each node 4 are joined.
typedef struct layout {
    const char *model, *batch, *more, *nodes;
} layout;

#define BATCH(global, lanes) "[batch]\nmicro = 2\nglobal = " #global "\nlanes = " #lanes "\n"
#define MUON "[optimizer]\ntype = muon\n"
#define ANY "[reduce]\norder = any\n"
static const layout layouts[] = {
    {gpt, BATCH(16, 8), "", "8"},
    {gpt, BATCH(16, 8), "[parallel]\nzero = 1\n", "7"},
    {gpt, BATCH(16, 8), "[parallel]\nzero = 2\n", "3.2.1"},
    {gpt, BATCH(32, 16), "[parallel]\nzero = 3\n", "4.4/4.1"},
    {gpt, BATCH(32, 16), "[parallel]\nzero = 1\n", "8:2"},
    {gpt, BATCH(32, 16), "[parallel]\nzero = 3\n", "4.2/6:2"},
    {wide, BATCH(64, 32), "[parallel]\nzero = 2\nslices = 4\ntensor = 2\n", "8.8:4"},
    {gpt, BATCH(32, 16), "[parallel]\nzero = 2\n", "4.4/1.4"},
    {gpt, BATCH(32, 16), "[parallel]\nzero = 1\ndeal = 3,2,1,0,4,1,2,3\n", "4.4"},
    {gpt, BATCH(32, 16), "[parallel]\nzero = 2\ndeal = 3,2,1,0,4,1,2,3\n", "4.2/2"},
    {gpt, BATCH(32, 16), "[parallel]\nbalance = auto\n", "4.4.2"},
    {gpt, BATCH(64, 8), "[parallel]\nzero = 1\n", "1.1.1.1/1.1.1.1"},
    {gpt, BATCH(64, 32), "[reduce]\norder = any\n", "6.3"},
    {gpt, BATCH(64, 32), "[reduce]\norder = any\n[parallel]\nzero = 2\n", "3.3.3"},
    {gpt, BATCH(64, 32), "[reduce]\ncompress = int8\n", "3.3.3"},
    {gpt, BATCH(64, 32), "[parallel]\nzero = 1\nrecompute = block\n", "16.16"},
    {gpt, BATCH(128, 64), "[parallel]\nzero = 1\n", "16.16.16.16"},
    {gpt, BATCH(128, 64), "[precision]\ncompute = bf16\n[parallel]\nzero = 3\n", "8.8.8.8/8.8.8.8"},
    {wide, BATCH(32, 16), "", "8.8"},
    {wide, BATCH(32, 16), "[parallel]\nzero = 1\n", "8.8"},
    {wide, BATCH(32, 16), "[parallel]\nzero = 2\n[precision]\ncompute = bf16\n", "5.5.5"},
    {wide, BATCH(64, 32), "[parallel]\nzero = 3\n", "5.5/5.5"},
    {wide, BATCH(64, 32), "[parallel]\nzero = 1\nslices = 8\ntensor = 2\n", "8.8"},
    {wide, BATCH(64, 32), "[parallel]\nzero = 1\nslices = 8\ntensor = 8\n", "8.8.8.8"},
    {wide, BATCH(64, 32), "[parallel]\nzero = 1\nslices = 8\ntensor = 8\nsequence = yes\n", "12.12"},
    {wide, BATCH(64, 32), "[parallel]\nzero = 2\nslices = 4\ntensor = 4\npipeline = 2\n", "8.8.8.8"},
    {wide, BATCH(64, 32), "[parallel]\nslices = 4\ntensor = 2\n[reduce]\norder = any\n", "8.8"},
    {wide, BATCH(64, 32), "[parallel]\nslices = 4\ntoken_slices = 4\ncontext = 4\nzero = 2\n", "8.8"},
    {wide, BATCH(64, 32), "[parallel]\nslices = 4\ntoken_slices = 2\ncontext = 2\ntensor = 2\nzero = 3\n", "6.6/6.6"},
    {wide, BATCH(64, 8), "[parallel]\noffload = yes\nzero = 1\n", "4.4"},
    {wide, BATCH(64, 32), "[parallel]\noffload = yes\nzero = 2\n[precision]\ncompute = bf16\n", "5.5.5"},
    {wide, BATCH(64, 32), "[parallel]\noffload = yes\nzero = 3\n", "8.8/8.3"},
    {llama, BATCH(64, 16), "[parallel]\noffload = yes\npipeline = 2\ntensor = 2\nslices = 2\n", "9.7.8"},
    {wide, BATCH(64, 32), "[checkpoint]\nasync = yes\n[parallel]\nzero = 2\n", "7.6/7.6"},
    {llama, BATCH(64, 16), "[checkpoint]\nasync = yes\n[parallel]\npipeline = 2\nzero = 1\noffload = yes\n", "9.9"},
    {wide, BATCH(64, 8), "[parallel]\noffload = nvme\nzero = 2\n", "4.4"},
    {wide, BATCH(64, 32), "[parallel]\noffload = nvme\nzero = 1\n", "5.5/5.5"},
    {wide, BATCH(64, 32), "[parallel]\noffload = nvme\nzero = 3\n[precision]\ncompute = bf16\n", "8.8/8.3"},
    {gpt, BATCH(128, 64), "[parallel]\noffload = nvme\nzero = 2\n", "8.8.8/8.8.8"},
    {llama, BATCH(64, 16), "[parallel]\noffload = nvme\npipeline = 2\nzero = 1\n", "4.4.4"},
    {llama, BATCH(64, 16), "[parallel]\noffload = nvme\nzero = 1\ntensor = 2\nslices = 2\n", "8.8"},
    {mlp, BATCH(64, 32), "[optimizer]\ntype = lars\n[parallel]\noffload = nvme\nzero = 1\n", "8.8"},
    {wide, BATCH(64, 8), "[checkpoint]\nasync = yes\n[parallel]\nzero = 1\n", "3.3"},
    {wide, BATCH(64, 8), "[cluster]\nelastic = yes\n", "3.3"},
    {wide, BATCH(64, 8), "[cluster]\nelastic = yes\n", "2.2/2.1"},
    {gpt, BATCH(32, 16), "[server]\ncount = 2\n[parallel]\nzero = 1\n", "4.2"},
    {gpt, BATCH(16, 8), "[server]\ncount = 1\nweight = 0.5\n[parallel]\nzero = 2\n", "3.2"},
    {wide, BATCH(64, 8), "[server]\ncount = 4\n[parallel]\nzero = 3\n[cluster]\nelastic = yes\n", "4.4/4"},
    {wide, BATCH(64, 32), "[server]\ncount = 1\n[parallel]\nzero = 2\nslices = 4\ntensor = 2\n", "4.4"},
    {wide, BATCH(16, 8), "[outer]\nislands = 2\nevery = 1\n[parallel]\nzero = 1\n", "4.4"},
    {llama, BATCH(32, 16), "[parallel]\npipeline = 2\nzero = 1\n", "8.8"},
    {llama, BATCH(32, 16), "[parallel]\npipeline = 4\nschedule = zb-h1\nzero = 2\n", "4.4/4.4"},
    {llama, BATCH(64, 16), "[parallel]\npipeline = 2\nschedule = interleaved\nchunks = 2\n", "4.4.4"},
    {llama, BATCH(64, 16), "[parallel]\npipeline = 2\nschedule = zb-v\nzero = 3\n", "4.4.4"},
    {llama, BATCH(64, 16), "[parallel]\npipeline = 2\ntensor = 2\nslices = 2\n", "3.3.3.3"},
    // ranks that differ only in where the others are that share their positions
    {even, BATCH(128, 64), ANY "[parallel]\nslices = 4\ntoken_slices = 4\ncontext = 4\nzero = 3\n",
     "3.3.2.6.2.3.2.2.3.1.3.1.1"},
    // ranks that differ only in whether the next stage is in another rack, or in another node of theirs
    {llama, BATCH(128, 64), ANY "[parallel]\npipeline = 4\n", "4/2.2.2.2/2.4.4.2.2.2.4"},
    {mlp, BATCH(64, 32), "[parallel]\nzero = 3\n", "16.3"},
    {mlp, BATCH(64, 32), "[optimizer]\ntype = lars\n[parallel]\nzero = 1\n", "8.8"},
    {mlp, BATCH(64, 32), "[optimizer]\ntype = sgd\nmomentum = 0.9\n[parallel]\nzero = 2\npipeline = 3\n", "6.6"},
    {wide, BATCH(64, 32), "[optimizer]\ntype = muon\n[parallel]\nzero = 1\n", "5.5.5"},
    {wide, BATCH(64, 32), "[optimizer]\ntype = muon\n[parallel]\nzero = 2\nslices = 4\ntensor = 2\n", "8.8"},
    {wide, BATCH(64, 32), "[optimizer]\ngroups = h.*.weight: type=muon\n[parallel]\nzero = 1\n", "5.5.5"},
    {wide, BATCH(64, 32), "[optimizer]\ngroups = h.0.*: frozen\n[parallel]\nzero = 2\n", "5.5"},
    {wide, BATCH(64, 32), MUON "[parallel]\nzero = 3\n", "8.8/8.8"},
    {wide, BATCH(64, 32), MUON, "8.8"},
    {wide, BATCH(64, 32), MUON "[parallel]\nzero = 1\ndeal = 3,5,4,4,2,6,4,4\n", "4.4"},
    {wide, BATCH(64, 32), MUON "[parallel]\nzero = 2\noffload = yes\n", "8.8.8.8"},
    {wide, BATCH(64, 32), MUON "[parallel]\nzero = 1\nslices = 8\ntensor = 8\n", "8.8.8.8"},
    {even, BATCH(64, 32), MUON "[parallel]\nzero = 3\nslices = 8\ntensor = 8\n", "8.8.8.8/8.8.8.8"},
    {even, BATCH(64, 32), MUON "[parallel]\nzero = 1\nslices = 8\ntensor = 4\npipeline = 4\n", "8.8.8.8/8.8.8.8"},
    {even, BATCH(64, 32), MUON "[parallel]\nslices = 8\ntensor = 2\npipeline = 2\nschedule = zb-v\nzero = 2\n",
     "8.8.8.8"},
    {even, BATCH(64, 32), MUON "[parallel]\nzero = 2\nslices = 8\ntoken_slices = 8\ncontext = 4\n", "8.8.8.8/8.8.8.8"},
    {even, BATCH(64, 32), MUON "[parallel]\nzero = 1\nslices = 8\ntensor = 4\n", "36.28:4"},
    {llama, BATCH(256, 64), MUON "[parallel]\nzero = 1\npipeline = 2\n", "16.16.16.16"},
    {llama, BATCH(64, 16), MUON "[parallel]\nzero = 2\npipeline = 2\ntensor = 2\nslices = 2\n", "9.7.8/8.8.8"},
    {llama, BATCH(64, 32), MUON "[parallel]\nzero = 3\n[precision]\ncompute = bf16\n", "16.3"},
    {llama, BATCH(128, 64), MUON "[parallel]\nzero = 1\nbalance = auto\n", "32.32"},
    {llama, BATCH(64, 32), MUON "[server]\ncount = 2\n[parallel]\nzero = 1\n", "4.4.2"},
    {llama, BATCH(64, 32), MUON ANY "[parallel]\nzero = 1\n", "8.8/8.6"},
    {llama, BATCH(64, 32), MUON ANY "[parallel]\nzero = 3\nslices = 2\ntensor = 2\n", "16.16"},
    {gpt, BATCH(64, 32), ANY "[parallel]\nzero = 1\n", "6.3"},
    {gpt, BATCH(64, 32), ANY "[parallel]\nzero = 3\n", "8.8/8.8"},
    {gpt, BATCH(64, 32), ANY, "8.8:4"},
    {gpt, BATCH(64, 32), ANY, "8:2"},
    {gpt, BATCH(64, 32), ANY "[parallel]\nzero = 1\n", "8:2"},
    {gpt, BATCH(64, 32), ANY "[parallel]\nzero = 2\n", "7:3"},
    {gpt, BATCH(64, 32), ANY "[parallel]\nzero = 2\ndeal = 3,5,4,4,2,6,4,4\n", "4.4"},
    {wide, BATCH(64, 32), ANY "[parallel]\nzero = 1\ndeal = 3,5,4,4,2,6,8,0\n", "3.5"},
    {gpt, BATCH(128, 64), ANY "[parallel]\nzero = 3\n", "9.7.8/8.8.8"},
    {gpt, BATCH(128, 64), ANY "[parallel]\nzero = 1\n", "16.16.16.16:4"},
    {gpt, BATCH(128, 64), ANY MUON "[parallel]\nzero = 2\n", "64:8"},
    {gpt, BATCH(128, 64), ANY, "9.7.8/8.8.8"},
    {gpt, BATCH(128, 64), ANY "[parallel]\nzero = 2\n[precision]\ncompute = bf16\n", "64"},
    {gpt, BATCH(128, 64), ANY, "64"},
    {wide, BATCH(64, 32), ANY "[parallel]\nzero = 2\noffload = yes\n", "5.5/5.5"},
    {wide, BATCH(64, 32), ANY "[parallel]\nzero = 1\noffload = nvme\n", "5.5"},
    {wide, BATCH(64, 32), ANY "[parallel]\nzero = 1\nslices = 8\ntensor = 8\nsequence = yes\n", "12.12"},
    {llama, BATCH(64, 16), ANY "[parallel]\nzero = 1\npipeline = 2\n", "9.7"},
    {llama, BATCH(32, 16), ANY "[parallel]\npipeline = 4\nschedule = zb-h1\nzero = 2\n", "4.4/4.4"},
    {llama, BATCH(64, 16), ANY "[parallel]\npipeline = 2\nschedule = interleaved\nchunks = 2\n", "4.4.4"},
    {llama, BATCH(64, 16), ANY "[parallel]\npipeline = 2\nschedule = zb-v\nzero = 3\n", "4.4.4"},
    {even, BATCH(64, 32), ANY "[parallel]\nslices = 8\ntensor = 8\nzero = 1\n", "8.8.8.8/8.8.8.8"},
    {even, BATCH(64, 32), ANY "[parallel]\nslices = 8\ntensor = 8\nsequence = yes\nzero = 1\n", "64"},
    {even, BATCH(64, 32), ANY "[parallel]\nslices = 8\ntensor = 8\nsequence = yes\nzero = 2\n", "16.16"},
    {even, BATCH(64, 32), ANY "[parallel]\nslices = 8\ntensor = 4\nzero = 3\n", "8.8.8.8.4"},
    {even, BATCH(64, 32), ANY "[parallel]\nslices = 8\ntensor = 4\n", "36.28:4"},
    {even, BATCH(64, 32), ANY "[parallel]\nslices = 8\ntoken_slices = 8\ncontext = 4\nzero = 3\n", "8.8.8.8/8.8.8.8"},
    {llama, BATCH(64, 32), ANY "[parallel]\nzero = 3\nslices = 2\ntensor = 2\nsequence = yes\n", "21.12.15:3"},
    {resnet, BATCH(32, 16), ANY "[parallel]\nzero = 1\n", "4.4"},
    {mlp, BATCH(64, 32), ANY "[optimizer]\ntype = lars\n[parallel]\nzero = 1\n", "8.8"},
    {mlp, BATCH(64, 32), ANY "[parallel]\nzero = 3\n", "16.3"},
    {llama, BATCH(64, 16), "[lora]\nrank = 4\ntargets = q_proj v_proj\n[parallel]\nzero = 1\npipeline = 2\n", "4.4.4"},
    {gpt, BATCH(128, 64), "", "64"},
    {gpt, BATCH(128, 64), "", "8.8.8.8.8.8.8.8"},
    {gpt, BATCH(128, 64), "[parallel]\nzero = 1\n", "9.7.8/8.8.8"},
    {gpt, BATCH(128, 64), "[parallel]\nzero = 2\n", "8.8.8/8.8.8"},
    {gpt, BATCH(256, 64), "[parallel]\nzero = 2\npipeline = 2\n", "8.8.8.8/8.8.8.8"},
    {gpt, BATCH(128, 64), "[parallel]\nzero = 3\n", "16.16.16.13"},
    {gpt, BATCH(256, 64), "[parallel]\nzero = 2\npipeline = 2\n", "40.24"},  // links of one stage, near and far
    {even, BATCH(64, 32), "[parallel]\nslices = 8\ntensor = 4\npipeline = 2\n", "36.28"},
    {gpt, BATCH(128, 64), "[parallel]\nzero = 1\nbalance = auto\n", "32.32"},
    {even, BATCH(64, 32), "[parallel]\nslices = 8\ntensor = 8\n", "8.8.8.8/8.8.8.8"},
    {even, BATCH(64, 32), "[parallel]\nslices = 8\ntensor = 8\nsequence = yes\nzero = 1\n", "64"},
    {even, BATCH(64, 32), "[parallel]\nslices = 8\ntensor = 4\nzero = 2\n", "8.8.8.8.4"},
    {even, BATCH(64, 32), "[parallel]\nslices = 8\ntensor = 4\nzero = 1\n", "6.6.6.6"},
    {even, BATCH(64, 32), "[parallel]\nslices = 8\ntensor = 4\npipeline = 4\nzero = 1\n", "8.8.8.8/8.8.8.8"},
    {even, BATCH(64, 32), "[parallel]\nslices = 8\ntensor = 2\npipeline = 2\nschedule = zb-v\n", "8.8.8.8"},
    {even, BATCH(64, 32),
     "[model]\nvocab = 251\n[parallel]\nslices = 8\ntensor = 8\nzero = 3\n[precision]\ncompute = bf16\n", "16.16.16"},
    {even, BATCH(64, 32), "[parallel]\nslices = 8\ntoken_slices = 8\ncontext = 4\nzero = 3\n", "8.8.8.8/8.8.8.8"},
    {even, BATCH(64, 32), "[parallel]\nslices = 8\ntensor = 2\npipeline = 4\nzero = 2\nrecompute = block\n",
     "16.16.16.16"},
    {even, BATCH(64, 32), "[reduce]\norder = any\n[parallel]\nslices = 8\ntensor = 4\npipeline = 2\n", "8.8.8.8"},
    {resnet, BATCH(32, 16), "[parallel]\nzero = 1\n", "4.4"},
    {resnet, BATCH(32, 16), "[batch]\nbn_span = 4\n", "2.2"},
};

static void places_of(plan_world *w, const char *nodes) {
    int rank = 0;
    *w = (plan_world){.nodes = 1, .racks = 1, .place = calloc(256, sizeof *w->place)};
    for (const char *p = nodes; *p; p++) {
        int n = (int)strtol(p, (char **)&p, 10);
        for (int i = 0; i < n; i++, rank++)
            w->place[rank] = (comm_place){.node = w->nodes - 1, .local = i, .rank = rank, .rack = w->racks - 1};
        if (!*p || *p == ':') break;
        w->nodes++, w->racks += *p == '/';
    }
    w->world = rank;
    const char *joined = strchr(nodes, ':');
    w->joined = joined ? atoi(joined + 1) : 0;
    for (int r = 0; joined && r < rank; r++) w->place[r].join = w->place[r].local / w->joined;
}

// The same ranks, whose places are computed, as those of clusters that need not exist. False: they do not lie evenly.
static bool even_of(plan_world *w, const plan_world *of) {
    int node = 1, rack = 1;
    while (node < of->world && of->place[node].node == 0) node++;
    while (rack < of->world && of->place[rack].rack == 0) rack++;
    *w = *of;
    w->place = NULL, w->even = (comm_even){.node = node, .rack = rack, .join = of->joined};
    for (int r = 0; r < of->world; r++) {
        comm_spot at = plan_where(w, r), was = plan_where(of, r);
        if (at.node != was.node || at.local != was.local || at.rack != was.rack || at.join != was.join) return false;
    }
    return true;
}

static void expect_same(const plan_ranks *a, const plan_ranks *b, int world, size_t i, const char *what) {
    for (int r = 0; r < world; r++)
        if (memcmp(plan_of(a, r), plan_of(b, r), sizeof(plan_rank)) != 0)
            fail_msg("layout %zu, %s on %s, %s: rank %d has %zu bytes and sends %" PRId64
                     ", by its kind %zu and %" PRId64,
                     i, layouts[i].more, layouts[i].nodes, what, r, plan_bytes(plan_of(b, r)), plan_of(b, r)->sent,
                     plan_bytes(plan_of(a, r)), plan_of(a, r)->sent);
}

static void each_kind_is_every_rank(void **state) {
    (void)state;
    char *dir = rank_dir();
    int fewer = 0, evens = 0;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const layout *l = &layouts[i];
        char more[1024];
        config c;
        plan_world w, even;
        plan_ranks kinds, each, computed;
        snprintf(more, sizeof more, "%s%s", l->batch, l->more);
        rank_config(&c, dir, l->model, more);
        places_of(&w, l->nodes);
        OK(config_fits(&c, w.world));
        OK(plan_ranks_open(&kinds, &c, &w, false));
        OK(plan_ranks_open(&each, &c, &w, true));
        assert_int_equal(each.kinds, w.world);
        expect_same(&kinds, &each, w.world, i, "each planned");
        if (even_of(&even, &w)) {
            evens++;
            OK(plan_ranks_open(&computed, &c, &even, false));
            expect_same(&kinds, &computed, w.world, i, "their places computed");
            plan_ranks_close(&computed);
        }
        fewer += 4 * kinds.kinds <= 3 * w.world;
        plan_ranks_close(&kinds), plan_ranks_close(&each), plan_world_close(&w);
    }
    assert_true(fewer >= 45 && evens >= 60);
    drop_dir(dir);
}

// What keeps a plan of thousands of ranks fast.
static void large_clusters_have_few_kinds(void **state) {
    (void)state;
    static const struct {
        const char *more, *cluster;
        int most;
    } of[] = {{"", "128x8", 30},
              {"[parallel]\nzero = 1\n", "128x8x4", 60},
              {"[parallel]\nzero = 3\n", "1024x1", 60},
              {MUON "[parallel]\nzero = 1\n", "128x8x4", 100},  // owners of matrices of each size
              {MUON ANY "[parallel]\nzero = 3\n", "128x8", 60},
              {ANY, "128x8", 30},
              {ANY "[parallel]\nzero = 2\n", "1024x1", 60}};
    char *dir = rank_dir();
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        config c;
        plan_world w;
        plan_ranks p;
        char more[256];
        snprintf(more, sizeof more, BATCH(2048, 1024) "%s", of[i].more);
        rank_config(&c, dir, gpt, more);
        OK(plan_world_made(&w, &c, of[i].cluster));
        assert_int_equal(w.world, 1024);
        OK(plan_ranks_open(&p, &c, &w, false));
        if (p.kinds > of[i].most)
            fail_msg("%s: %d kinds of 1,024 ranks, expected %d", of[i].cluster, p.kinds, of[i].most);
        plan_ranks_close(&p), plan_world_close(&w);
    }
    drop_dir(dir);
}

static void clusters_are_made(void **state) {
    (void)state;
    static const char *const wrong[] = {"",      "8",   "8x",  "x8",      "8x8x", "8x8x3",
                                        "8x8x0", "0x8", "8x0", "8x8x2x2", "8x8 ", "200000x1"};
    char *dir = rank_dir();
    config c;
    plan_world w;
    rank_config(&c, dir, gpt, BATCH(128, 64));
    OK(plan_world_made(&w, &c, "6x4x3"));
    assert_int_equal(w.nodes, 6);
    assert_int_equal(w.racks, 3);
    assert_int_equal(plan_where(&w, 23).node, 5);
    assert_int_equal(plan_where(&w, 23).local, 3);
    assert_int_equal(plan_where(&w, 23).rack, 2);
    assert_int_equal(plan_where(&w, 7).rack, 0);
    assert_int_equal(plan_where(&w, 8).rack, 1);
    plan_world_close(&w);
    rank_config(&c, dir, gpt, BATCH(128, 64) "[cluster]\njoined = 4\n");
    OK(plan_world_made(&w, &c, "2x8"));
    assert_int_equal(w.joined, 4);
    for (int r = 0; r < 16; r++) assert_int_equal(plan_where(&w, r).join, r / 4 % 2);
    plan_world_close(&w);
    assert_int_equal(plan_world_made(&w, &c, "2x6"), ERR_CONFIG);
    assert_non_null(strstr(err_last()->text, "joined = 4, and each node has 6 ranks"));
    rank_config(&c, dir, gpt, BATCH(128, 64));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(plan_world_made(&w, &c, wrong[i]), ERR_USAGE);
        assert_non_null(strstr(err_last()->text, "128x8x4"));
    }
    assert_int_equal(plan_world_made(&w, &c, "65x1"), ERR_CONFIG);  // of 64 lanes
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_kind_is_every_rank),
                                       cmocka_unit_test(large_clusters_have_few_kinds),
                                       cmocka_unit_test(clusters_are_made)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
