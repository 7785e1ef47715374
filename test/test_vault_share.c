// test/test_vault_share.c: snapshots of several nodes: whichever node is lost with all that it has, the others find the
// newest one, wherever it is, and all its bits; and a rank that is killed while it copies one leaves none.
#include "test/support/checkpoint_ranks.h"
#include "trainer/checkpoint/vault.h"

#include <signal.h>

enum { FIRST = 2, BEFORE = 4, NEWEST = 6, SALT = 3 };

// A job of ranks, and the file of each directory's node.
typedef struct vaults {
    job j;
    int fd[MOST_NODES];
} vaults;

static void open_vaults(vaults *x, const nodes *n, int count, const int *ranks) {
    *x = (vaults){.j = {.where = n, .nodes = count, .deal = 1, .salt = SALT}};
    for (int k = 0; k < count; k++) {
        x->j.ranks[k] = ranks[k], x->j.on[k] = k;
        x->fd[k] = vault_make();
        if (x->fd[k] < 0) fail_msg("%s", err_last()->text);
    }
}

static void close_vaults(vaults *x, int count) {
    for (int k = 0; k < count; k++) close(x->fd[k]);
    if (x->j.out) end_job(&x->j);
}

static void open_own(vault *v, const rank_of *r) {
    const vaults *x = (const vaults *)(const void *)r->j;
    vault_open(v, x->fd[r->j->on[r->node]], r->c->place[r->rank].local);
}

static void keep(rank_of *r, vault *v, int64_t step) {
    fill_dealt(&r->d, step, r->j->salt);
    DOES(vault_save(v, &r->d.s, &r->d.at, step - 1));
    DOES(vault_mirror(v, r->c, r->d.s.s));
}

// A world that is over leaves no memory of its snapshots mapped, its own or copies.
static int still_mapped(void) {
    char line[IO_PATH + 256];
    int n = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f)) n += strstr(line, "lockstep vault") != NULL;
    return f ? fclose(f), n : -1;
}

static void body_keep_two(rank_of *r) {
    vault v;
    open_own(&v, r);
    keep(r, &v, BEFORE);
    keep(r, &v, NEWEST);
    MUST(still_mapped() > 0, "the name of the memory has changed");
    vault_close(&v);
    MUST(still_mapped() == 0, "%d parts are still mapped", still_mapped());
}

static void body_find(rank_of *r) {
    vault v;
    vault_recall found = {.live = -1};
    fill_dealt(&r->d, 999, 0);
    open_own(&v, r);
    r->d.s.ranks = r->c;  // also where it is alone
    DOES(vault_gather(&v, &r->d.s, &found, &r->d.at));
    r->out->step = found.step;
    if (found.step < 0) MUST(dealt_is(&r->d, 999, 0), "something was changed");
    else MUST(dealt_is(&r->d, found.step, SALT) && found.saved == found.step - 1, "other bits");
    vault_close(&v);
}

// The nodes but `lost`, each with as many ranks as before, go on: their parts are dealt otherwise.
static int64_t found_without(vaults *x, int count, const int *ranks, int lost) {
    x->j.nodes = 0, x->j.deal++;
    for (int k = 0; k < count; k++)
        if (k != lost) x->j.on[x->j.nodes] = k, x->j.ranks[x->j.nodes++] = ranks[k];
    all_ranks_do(&x->j, body_find);
    return same_on_all(&x->j)->step;
}

// --- a node is lost --------------------------------------------------------------------------------------------------

static void any_node_may_be_lost(void **state) {
    static const struct {
        int count, ranks[3];
    } of[] = {{2, {1, 1}}, {2, {2, 1}}, {2, {1, 3}}, {3, {3, 1, 2}}, {3, {1, 2, 2}}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        vaults x;
        wipe(*state);
        open_vaults(&x, *state, of[i].count, of[i].ranks);
        all_ranks_do(&x.j, body_keep_two);
        for (int lost = -1; lost < of[i].count; lost++) {
            int64_t step = found_without(&x, of[i].count, of[i].ranks, lost);
            if (step != NEWEST) fail_msg("nodes %d: without node %d step %d", (int)i, lost, (int)step);
        }
        close(x.fd[0]), x.fd[0] = vault_make();  // an empty machine takes the first one's place
        assert_int_equal(found_without(&x, of[i].count, of[i].ranks, -1), NEWEST);
        close_vaults(&x, of[i].count);
    }
}

// Of three nodes that stand in a circle two neighbours are lost: what one had is with the other.
static void who_is_lost_with_its_keeper_is_missed(void **state) {
    const int ranks[] = {2, 1, 1};
    vaults x;
    wipe(*state);
    open_vaults(&x, *state, 3, ranks);
    all_ranks_do(&x.j, body_keep_two);
    x.j.nodes = 1, x.j.on[0] = 2, x.j.ranks[0] = 2;
    all_ranks_do(&x.j, body_find);
    assert_int_equal(same_on_all(&x.j)->step, -1);
    close_vaults(&x, 3);
}

// Ends in one of the exchanges of the third snapshot, which takes the place of the first one; reach: only ranks below
// it still hear of that.
static void body_lose_one(rank_of *r) {
    const job *j = r->j;
    pipe_comm *c = (pipe_comm *)(void *)r->c;
    vault v;
    open_own(&v, r);
    keep(r, &v, FIRST), keep(r, &v, BEFORE);
    if (r->rank == j->victim) c->die_in = j->die_in, c->reach = j->reach;
    fill_dealt(&r->d, NEWEST, j->salt);
    DOES(vault_save(&v, &r->d.s, &r->d.at, NEWEST - 1));
    r->out->rc = vault_mirror(&v, r->c, r->d.s.s);
    r->out->n = 1;
    vault_close(&v);
}

// With its node, at each of them: what is found is a whole snapshot, of one step.
static void a_node_may_be_lost_while_copies_are_sent(void **state) {
    static const struct { int nodes, ranks[2], victim, reach; } of[] = {{2, {1, 1}, 0, 0}, {2, {2, 1}, 2, 1}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        int found[NEWEST + 1] = {0}, die_in = 0;
        for (bool died = true; died;) {
            vaults x;
            wipe(*state);
            open_vaults(&x, *state, of[i].nodes, of[i].ranks);
            x.j.victim = of[i].victim, x.j.reach = of[i].reach, x.j.die_in = ++die_in;
            all_ranks_do(&x.j, body_lose_one);
            died = x.j.out[of[i].victim].n == 0;
            int lost = of[i].victim >= of[i].ranks[0];
            int64_t step = found_without(&x, of[i].nodes, of[i].ranks, died ? lost : -1);
            assert_true(step == BEFORE || step == NEWEST);
            found[step]++;
            close_vaults(&x, of[i].nodes);
        }
        assert_true(die_in > 3 && found[BEFORE] > 0 && found[NEWEST] > 0);
    }
}

// --- what is newer than the step from which all go on ----------------------------------------------------------------

static void find(rank_of *r, vault *v, int64_t step) {
    vault_recall found = {.live = -1};
    fill_dealt(&r->d, 999, 0);
    DOES(comm_agree_ok(r->c, ERR_OK, r->d.s.s));  // no rank writes while another one reads
    DOES(vault_gather(v, &r->d.s, &found, &r->d.at));
    MUST(found.step == step && dealt_is(&r->d, step, SALT), "step %" PRId64, found.step);
}

// The victim alone has written a newer step, with a bit that has flipped. All go back; then the others write that step
// as it should be, and the victim is lost before it does.
static void body_write_again(rank_of *r) {
    vault v;
    bool early = r->rank == r->j->victim;
    open_own(&v, r);
    keep(r, &v, BEFORE);
    for (int turn = 0; turn < 2; turn++) {
        fill_dealt(&r->d, NEWEST, early ? SALT + 1 : SALT);
        if (early == (turn == 0)) DOES(vault_save(&v, &r->d.s, &r->d.at, NEWEST - 1));
        find(r, &v, BEFORE);
    }
    vault_close(&v);
}

// Whichever node's it is.
static void what_is_newer_is_forgotten_on_all_nodes(void **state) {
    const int ranks[] = {1, 2};
    for (int victim = 0; victim < 3; victim++) {
        vaults x;
        wipe(*state);
        open_vaults(&x, *state, 2, ranks);
        x.j.victim = victim;
        all_ranks_do(&x.j, body_write_again);
        close_vaults(&x, 2);
    }
}

// --- many pieces -----------------------------------------------------------------------------------------------------

enum { EACH = 1500, MANY = 400, MOST = 1000 };

// What the rank has, in pieces of EACH elements.
static int in_pieces(const dealt *d, vault_range range[MOST]) {
    int n = 0;
    for (int g = 0; g < 3; g++)
        for (int i = 0; i < TENSORS; i++) {
            const ckpt_tensor *t = &d->tensor[g][i];
            for (int64_t at = 0; at < t->count && n < MOST; at += EACH)
                range[n++] = (vault_range){.group = g,
                                           .tensor = i,
                                           .first = t->first + at,
                                           .count = t->count - at < EACH ? t->count - at : EACH,
                                           .of = t->first,
                                           .data = t->data + at};
        }
    return n;
}

static void body_keep_pieces(rank_of *r) {
    vault_range *range = calloc(MOST, sizeof *range);
    vault v;
    open_own(&v, r);
    fill_dealt(&r->d, NEWEST, SALT);
    r->out->n = in_pieces(&r->d, range);
    DOES(vault_save_live(&v, &r->d.s, range, (int)r->out->n, &r->d.at, NEWEST - 1, NULL));
    vault_close(&v);
    free(range);
}

static void body_find_pieces(rank_of *r) {
    vault v;
    vault_recall found = {.live = NEWEST};
    fill_dealt(&r->d, 999, 0);
    open_own(&v, r);
    DOES(vault_gather(&v, &r->d.s, &found, &r->d.at));
    MUST(found.step == NEWEST && found.is_live && dealt_is(&r->d, NEWEST, SALT), "other bits");
    vault_close(&v);
}

// Each rank has what the other one needs: all of it is sent, and comes.
static void any_number_of_pieces_is_sent(void **state) {
    const int ranks[] = {1, 1};
    vaults x;
    wipe(*state);
    open_vaults(&x, *state, 2, ranks);
    x.j.deal = 0;
    all_ranks_do(&x.j, body_keep_pieces);
    assert_true(x.j.out[0].n > MANY && x.j.out[1].n > MANY);
    x.j.on[0] = 1, x.j.on[1] = 0;
    all_ranks_do(&x.j, body_find_pieces);
    close_vaults(&x, 2);
}

// --- a rank is killed ------------------------------------------------------------------------------------------------

static void save_alone(int fd, int64_t step, uint32_t salt, bool dies) {
    dealt *d = calloc(1, sizeof *d);
    vault v;
    open_dealt(d, 0, 0, 0, 1);
    fill_dealt(d, step, salt);
    if (dies) d->tensor[2][1].data = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    vault_open(&v, fd, 0);
    OK(vault_save(&v, &d->s, &d->at, step - 1));
    vault_close(&v);
    close_dealt(d);
    free(d);
}

// It goes back, as after a lie, and writes a snapshot of a step that it has: what it leaves is not of that step.
static void killed_while_it_copies_the_same_step_again(void **state) {
    (void)state;
    int fd = vault_make(), status;
    device *dev;
    stream *s;
    comm *self;
    vault_recall found = {.live = -1};
    OK(device_open(&dev, &(device_options){.kind = DEVICE_CPU, .threads = 1}));
    OK(stream_open(dev, &s));
    OK(comm_self_open(&self));
    assert_true(fd >= 0);
    save_alone(fd, BEFORE, 0, false);
    save_alone(fd, NEWEST, 0, false);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        save_alone(fd, NEWEST, 1, true);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    dealt *d = calloc(1, sizeof *d);
    vault v;
    open_dealt(d, 0, 0, 0, 1);
    vault_open(&v, fd, 0);
    d->s.ranks = self, d->s.s = s;
    OK(vault_gather(&v, &d->s, &found, &d->at));
    assert_int_equal(found.step, BEFORE);
    assert_true(dealt_is(d, BEFORE, 0));
    vault_close(&v);
    d->s.ranks = NULL;
    close_dealt(d);
    free(d);
    self->table->close(self);
    stream_close(s);
    device_close(dev);
    close(fd);
}

// As many places as there may be, with small tensors: one rank finds what is in all of them.
static void any_number_of_ranks_has_snapshots(void **state) {
    (void)state;
    enum { PLACES = 1000, SMALL = 2 };
    int fd = vault_make();
    device *dev;
    stream *s;
    comm *self;
    vault_recall found = {.live = -1};
    vault v;
    dealt *d = calloc(1, sizeof *d);
    OK(device_open(&dev, &(device_options){.kind = DEVICE_CPU, .threads = 1}));
    OK(stream_open(dev, &s));
    OK(comm_self_open(&self));
    assert_true(fd >= 0);
    open_dealt(d, 0, 0, 0, 1);
    d->s.params = 2;
    for (int g = 0; g < 3; g++) d->group[g].tensor = &d->tensor[g][SMALL];
    for (int64_t step = BEFORE; step <= NEWEST; step += NEWEST - BEFORE) {
        fill_dealt(d, step, SALT);
        for (int place = 0; place < PLACES; place++) {
            vault_open(&v, fd, place);
            OK(vault_save(&v, &d->s, &d->at, step - 1));
            vault_close(&v);
        }
    }
    for (int g = 0; g < 3; g++) memset(d->group[g].tensor[0].data, 0, (size_t)d->group[g].tensor[0].count * 4);
    vault_open(&v, fd, 0);
    d->s.ranks = self, d->s.s = s;
    OK(vault_gather(&v, &d->s, &found, &d->at));
    assert_int_equal(found.step, NEWEST);
    assert_true(dealt_is(d, NEWEST, SALT));
    vault_close(&v);
    close_dealt(d);
    free(d);
    self->table->close(self);
    stream_close(s);
    device_close(dev);
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        NODES(any_node_may_be_lost),
        NODES(who_is_lost_with_its_keeper_is_missed),
        NODES(a_node_may_be_lost_while_copies_are_sent),
        NODES(what_is_newer_is_forgotten_on_all_nodes),
        NODES(any_number_of_pieces_is_sent),
        cmocka_unit_test(killed_while_it_copies_the_same_step_again),
        cmocka_unit_test(any_number_of_ranks_has_snapshots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
