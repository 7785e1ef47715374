// test/test_recall.c: what a world goes on from after another one that was lost: the newest step that all its ranks
// find in memory, whichever ranks had come further, or the checkpoint on disk where that is newer.
#include "test/support/ranks.h"

#include "trainer/checkpoint/vault_file.h"
#include "trainer/session/machine.h"
#include "trainer/node/yard.h"
#include "trainer/session/restore.h"

enum { SEALED = 2, LAST = 4 };

static const char small_model[] =
    "[run]\nsteps = 10\n[data]\nformat = raw16\n[model]\nlayers = 2\nheads = 2\nembed = 24\ncontext = 16\nvocab = 130\n"
    "[batch]\nglobal = 8\nmicro = 2\nlanes = 4\n[optimizer]\nlr = 3e-3\n[schedule]\nwarmup = 4\ndecay_steps = 10\n"
    "[cluster]\nelastic = yes\n[snapshot]\nevery = 2\n[device]\nthreads = 1\n";

// A world that was lost, and what the next one is to find.
typedef struct loss {
    rank_world before, after;
    unsigned ahead;    // ranks that have copied step LAST, too, when the others are lost
    int saved;         // the step of which there is a checkpoint; 0: none
    bool logged;       // the snapshot knows of it
    int found;         // the step that is found in memory; 0: none
    bool is_unlogged;  // a checkpoint that the snapshot knows nothing of
    // Ranks of the next world that have kept what they held alike after step LAST, and one more that says it was after
    // the step before. The log goes on to step LAST where `told`, else to the one before.
    unsigned kept, behind;
    bool told;
    bool damaged;  // a bit of rank 0's copy of step LAST has flipped
} loss;

typedef struct book {
    int fd[RANK_NODES];
    const loss *of;
    char hash[LAST + 1][17], dir[512];
} book;

static err_t open_rank(session *x, launch *own, yard *y, const config *c, const launch *at, const book *k) {
    *own = *at, own->yard = y;
    *y = (yard){.fd = -1, .vault = k->fd[at->node]};
    TRY(session_machine(x, c, SESSION_TRAIN, 0));
    size_t n = strlen(x->dir);  // nodes share no disk
    snprintf(x->dir + n, sizeof x->dir - n, "-node%d", at->node);
    return session_enter(x, own);
}

static err_t keep(session *x, book *k, int step, int64_t saved) {
    char hash[17];
    TRY(session_settle(x));
    TRY(session_fetch(x));
    TRY(ckpt_hash(&x->state.ckpt, hash));
    if (x->ranks->rank == 0) strcpy(k->hash[step], hash);
    if (step == SEALED) TRY(session_snapshot(x, saved, &(monitor){0}));
    bool alone = k->of->ahead >> x->ranks->rank & 1;
    if (step != LAST || !alone) return ERR_OK;
    TRY(vault_save(&x->vault, &x->state.ckpt, &x->progress, saved));
    vault_area *a = &x->vault.own[x->vault.newest];
    if (k->of->damaged && x->ranks->rank == 0) a->at[vault_values(vault_head_of(a))] ^= 1;
    return ERR_OK;
}

static err_t keep_live(session *x, const book *k) {
    bool kept, keeps = k->of->kept >> x->ranks->rank & 1;
    if (!keeps) return ERR_OK;
    TRY(session_settle(x));
    TRY(session_keep(x, LAST, 0, -1, &kept));
    return kept ? ERR_OK : err_set(ERR_INTERNAL, "nothing was kept");
}

static err_t save(session *x) {
    TRY(session_settle(x));
    TRY(session_fetch(x));
    return ckpt_save(x->dir, &x->state.ckpt, &x->progress, 0, NULL);
}

static err_t train_and_be_lost(const config *c, const launch *at, void *ctx) {
    book *k = ctx;
    launch own;
    yard y;
    session x;
    step_result s;
    TRY(open_rank(&x, &own, &y, c, at, k));
    TRY(session_init(&x));
    TRY(session_feed(&x, LAST));
    for (int step = 1; step <= LAST; step++) {
        bool knows = k->of->logged && k->of->saved <= step;
        TRY(session_step(&x, &s));
        if (step % SEALED == 0) TRY(keep(&x, k, step, knows ? k->of->saved : -1));
        if (step == k->of->saved) TRY(save(&x));
    }
    TRY(keep_live(&x, k));
    session_close(&x);
    return ERR_OK;
}

static err_t go_on(const config *c, const launch *at, void *ctx) {
    book *k = ctx;
    const loss *of = k->of;
    launch own;
    yard y;
    session x;
    monitor m = {0};
    session_recalled from = {.least = RECALL_NEWEST, .logged = -1, .kept = RECALL_NEW, .saved = -7};
    char hash[17] = "";
    if (of->kept) from.logged = of->told ? LAST : LAST - 1;
    if (of->kept >> at->rank & 1) from.kept = of->behind >> at->rank & 1 ? LAST - 1 : LAST;
    TRY(open_rank(&x, &own, &y, c, at, k));
    TRY(session_recall(&x, &from, &m));
    bool found = from.found;
    int step = found ? (int)x.progress.step : 0;
    if (found) TRY(session_fetch(&x));
    if (found) TRY(ckpt_hash(&x.state.ckpt, hash));
    session_close(&x);
    if (found && from.live != (of->kept && step == LAST))
        return err_set(ERR_INTERNAL, "step %d: live %d", step, from.live);
    if (step != of->found) return err_set(ERR_INTERNAL, "step %d was found, expected %d", step, of->found);
    if (found && strcmp(hash, k->hash[step]) != 0)
        return err_set(ERR_INTERNAL, "step %d: hash %s, expected %s", step, hash, k->hash[step]);
    if (from.unlogged != of->is_unlogged || (found && from.saved != (of->saved ? of->saved : -1)))
        return err_set(ERR_INTERNAL, "unlogged %d, saved %d", from.unlogged, (int)from.saved);
    return ERR_OK;
}

// What was damaged is said once, and not with what is recalled or copied later.
static err_t go_on_twice(const config *c, const launch *at, void *ctx) {
    static const sink *const events[] = {&sink_events, NULL};
    const book *k = ctx;
    launch own;
    yard y;
    session x;
    monitor m = {0};
    int said = 0;
    TRY(open_rank(&x, &own, &y, c, at, k));
    if (at->rank == 0) TRY(monitor_open_list(&m, &(log_setup){.dir = k->dir, .c = c}, events));
    for (int i = 0; i < 2; i++) {
        session_recalled from = {.least = RECALL_NEWEST, .logged = -1, .kept = RECALL_NEW, .saved = -7};
        TRY(session_recall(&x, &from, &m));
        if (!from.found || x.progress.step != k->of->found) return err_set(ERR_INTERNAL, "another step was found");
    }
    monitor_close(&m);
    session_close(&x);
    if (at->rank != 0) return ERR_OK;
    char path[IO_PATH], *bytes;
    size_t n;
    TRY(io_path(path, "%s/events.jsonl", k->dir));
    TRY(io_read_file(path, 1 << 20, &bytes, &n));
    for (char *s = bytes; (s = strstr(s, "\"damaged\"")); s++) said++;
    free(bytes);
    return said == 1 ? ERR_OK : err_set(ERR_INTERNAL, "damage was said %d times", said);
}

static void expect_by(rank_work body, const char *what, const char *more, const loss *of) {
    char *dir = rank_dir();
    config c;
    book *k = share_memory(sizeof *k);
    rank_config(&c, dir, small_model, more);
    k->of = of;
    snprintf(k->dir, sizeof k->dir, "%s", dir);
    for (int i = 0; i < RANK_NODES; i++)
        if ((k->fd[i] = vault_make()) < 0) fail_msg("%s", err_last()->text);
    run_ranks(what, &of->before, &c, train_and_be_lost, k);
    run_ranks(what, &of->after, &c, body, k);
    for (int i = 0; i < RANK_NODES; i++) close(k->fd[i]);
    munmap(k, sizeof *k);
    drop_dir(dir);
}

static void expect(const char *what, const char *more, const loss *of) { expect_by(go_on, what, more, of); }

static void the_newest_step_in_common_is_found(void **state) {
    (void)state;
    expect("all have both", "", &(loss){ONE(2), ONE(2), .ahead = 3, .found = LAST});
    expect("rank 0 is ahead", "", &(loss){ONE(2), ONE(2), .ahead = 1, .found = SEALED});
    expect("rank 1 is ahead", "[parallel]\nzero = 3\n", &(loss){ONE(2), ONE(2), .ahead = 2, .found = SEALED});
    expect("one of three", "[parallel]\nzero = 1\n", &(loss){ONE(3), ONE(2), .ahead = 2, .found = SEALED});
    expect("of stages", "[parallel]\npipeline = 2\nzero = 1\n", &(loss){ONE(4), ONE(2), .ahead = 9, .found = SEALED});
}

static void so_it_is_over_nodes(void **state) {
    (void)state;
    const char *zero = "[parallel]\nzero = 2\n";
    expect("node 0 is ahead", zero, &(loss){TWO(2, 1), TWO(2, 1), .ahead = 3, .found = SEALED});
    expect("all have both", zero, &(loss){TWO(1, 1), TWO(1, 1), .ahead = 3, .found = LAST});
    expect("others", zero, &(loss){TWO(2, 1), TWO(1, 2), .ahead = 4, .found = SEALED});
}

static void damage_is_said_once(void **state) {
    (void)state;
    const loss flipped = {ONE(2), ONE(2), .ahead = 3, .damaged = true, .found = SEALED};
    expect_by(go_on_twice, "a bit has flipped", "", &flipped);
}

// On disk: what is newer than all in memory; what is as old as the snapshot that knows nothing of it.
static void disk_and_memory(void **state) {
    (void)state;
    expect("newer", "", &(loss){ONE(2), ONE(2), .saved = 3});
    expect("newer than one", "", &(loss){ONE(2), ONE(2), .ahead = 1, .saved = 3});
    expect("older", "", &(loss){ONE(2), ONE(2), .saved = 1, .logged = true, .found = SEALED});
    expect("as old", "", &(loss){ONE(2), ONE(2), .saved = SEALED, .found = SEALED, .is_unlogged = true});
    expect("as old, and known", "", &(loss){ONE(2), ONE(2), .saved = SEALED, .logged = true, .found = SEALED});
    expect("over nodes", "", &(loss){TWO(1, 1), TWO(1, 1), .saved = SEALED, .found = SEALED, .is_unlogged = true});
    expect("over nodes, newer", "", &(loss){TWO(1, 1), TWO(1, 1), .saved = 3});
}

// Ranks of one world keep what they hold alike: all that are left must have done so after the same step, and the log
// must have it. One that came later, rank 2 here, has kept nothing, and asks for nothing.
static void live_state_of_a_logged_step(void **state) {
    (void)state;
    const char *live = "[snapshot]\nlive = yes\n";
    expect("all have kept it", live, &(loss){ONE(3), ONE(2), .kept = 3, .told = true, .found = LAST});
    expect("the log lacks it", live, &(loss){ONE(3), ONE(2), .kept = 3, .found = SEALED});
    expect("one is behind", live, &(loss){ONE(3), ONE(2), .kept = 3, .behind = 1, .told = true, .found = SEALED});
    expect("one came later", live, &(loss){ONE(3), ONE(3), .kept = 3, .told = true, .found = LAST});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_step_in_common_is_found),
        cmocka_unit_test(so_it_is_over_nodes),
        cmocka_unit_test(damage_is_said_once),
        cmocka_unit_test(disk_and_memory),
        cmocka_unit_test(live_state_of_a_logged_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
