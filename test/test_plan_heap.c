// test/test_plan_heap.c: what a plan takes of this machine's memory, in bytes that are allocated at once. The devices
// of a cluster that need not exist are not kept: of thousands of them a step is predicted in what the ranks of one
// data group take, and a plan of all has a few numbers of each beside that.
#include "test/support/search.h"
#ifndef __SANITIZE_ADDRESS__
#include "test/support/heap.h"
#else
static long heap_bytes, heap_most;
#define COUNTS_NOTHING 1
#endif

enum { RANKS = 10000, MEMBERS = 250, OF_A_MEMBER = 2200, OF_A_RANK = 32 };

static const char forty[] =
    "[model]\ntype = llama\nlayers = 40\nheads = 8\nkv_heads = 8\nembed = 128\ncontext = 16\nvocab = 131\n";
#define LANES(n) "[batch]\nmicro = 1\nglobal = " #n "\nlanes = " #n "\n"
#define SHARED "[parallel]\nslices = 8\ntensor = 8\nzero = 1\n"

// 64 devices, and 10,000 with as many lanes each. *kinds: of a plan of all ranks; NULL: a step is predicted.
static const char *const clusters[2] = {"8x8", "1250x8x25"};
static const char *const layouts[2] = {LANES(8) SHARED, LANES(256) SHARED "pipeline = 5\n"};

static long most_of(const char *dir, int which, const costs *k, int *kinds) {
    config c;
    plan_world w;
    plan_ranks p;
    search_result *r = malloc(sizeof *r);
    rank_config(&c, dir, forty, layouts[which]);
    long before = heap_most = heap_bytes;
    world_of(&w, clusters[which]);
    OK(kinds ? plan_ranks_open(&p, &c, &w, false) : search_run(r, &c, &w, k, &(search_free){.own = true}));
    if (kinds) *kinds = p.kinds, plan_ranks_close(&p);
    plan_world_close(&w);
    free(r);
    return heap_most - before;
}

static void devices_are_not_kept(void **state) {
    (void)state;
#ifdef COUNTS_NOTHING
    skip();
#endif
    char *dir = rank_dir();
    costs k;
    int few_kinds, many_kinds;
    table_of(&k, 1e12, 1);
    long few = most_of(dir, 0, &k, NULL), many = most_of(dir, 1, &k, NULL);
    if (many - few > (long)MEMBERS * OF_A_MEMBER)
        fail_msg("a step of 64 devices is predicted in %ld bytes, of %d in %ld", few, RANKS, many);
    few = most_of(dir, 0, NULL, &few_kinds), many = most_of(dir, 1, NULL, &many_kinds);
    long kinds = (long)(many_kinds - few_kinds) * (long)sizeof(plan_rank);
    if (many - few > (long)MEMBERS * OF_A_MEMBER + (long)RANKS * OF_A_RANK + kinds)
        fail_msg("64 devices are planned in %ld bytes, %d in %ld, with %ld of kinds", few, RANKS, many, kinds);
    costs_free(&k);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(devices_are_not_kept)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
