// test/test_team.c: ranks meet, differences are refused with both values, and nobody disappears unnoticed.
#include "comm/team/internal.h"
#include "comm/team/settings.h"
#include "test/support/team.h"

// --- meeting ---------------------------------------------------------------------------------------------------------

static void neighbours_meet(void **state) {
    (void)state;
    static const int worlds[] = {1, 2, 5, 64};
    for (int i = 0; i < 4; i++) {
        scene *s = scene_open(1, &worlds[i]);
        s->body = wait_for_all;
        double start = now_s();
        run_all(s);
        all_well(s);
        assert_true(now_s() - start < 10);
        scene_close(s);
    }
}

// Every pair exchanges two bytes, a thousand times over.
static void use_links(scene *s, team *t, result *r) {
    const launch *at = team_at(t);
    team_link l[RANKS];
    uint8_t out[1000], in[1000];
    wait_for_all(s, t, r);
    for (int p = 0; p < at->world; p++) {
        if (team_take_link(t, 0, p, &l[p]) != ERR_OK) r->links = -1000;
        r->link[p] = l[p];
        memset(out, at->rank * 16 + p, sizeof out);
        if (l[p].fd >= 0 && !(fcntl(l[p].fd, F_GETFL) & O_NONBLOCK)) r->links = -1000;
        if (l[p].fd >= 0 && send(l[p].fd, out, sizeof out, MSG_NOSIGNAL) != sizeof out) r->links = -1000;
    }
    for (int p = 0; p < at->world; p++) {
        if (l[p].fd < 0) continue;
        size_t got = 0;
        while (got < sizeof in && poll(&(struct pollfd){.fd = l[p].fd, .events = POLLIN}, 1, 5000) == 1) {
            ssize_t n = recv(l[p].fd, in + got, sizeof in - got, 0);
            if (n <= 0) break;
            got += (size_t)n;
        }
        memset(out, p * 16 + at->rank, sizeof out);
        r->links += got == sizeof in && memcmp(in, out, sizeof in) == 0;
    }
    if (team_wire(t) <= 0) r->links = -1000;
}

static void check_links(const scene *s) {
    int node[RANKS], world = 0;
    static const uint8_t zero[TEAM_KEY];
    for (int n = 0; n < s->nodes; n++)
        for (int i = 0; i < s->ranks[n]; i++) node[world++] = n;
    for (int a = 0; a < world; a++) {
        int expected = 0;
        for (int b = 0; b < world; b++) {
            const team_link *ab = &s->b->rank[a].link[b], *ba = &s->b->rank[b].link[a];
            assert_int_equal(ab->fd >= 0, node[a] != node[b]);
            if (node[a] == node[b]) continue;
            expected++;
            assert_memory_equal(ab->send_key, ba->recv_key, TEAM_KEY);
            assert_memory_not_equal(ab->send_key, ab->recv_key, TEAM_KEY);
            assert_memory_not_equal(ab->send_key, zero, TEAM_KEY);
            for (int c = 0; c < b; c++) assert_memory_not_equal(ab->send_key, s->b->rank[a].link[c].send_key, TEAM_KEY);
        }
        assert_int_equal(s->b->rank[a].links, expected);
    }
}

static void nodes_meet_and_link(void **state) {
    (void)state;
    static const int layouts[][4] = {{1, 1}, {2, 2}, {1, 1, 1, 1}, {3, 1, 2, 2}};
    static const int nodes[] = {2, 2, 4, 4};
    for (int i = 0; i < 4; i++) {
        scene *s = scene_open(nodes[i], layouts[i]);
        s->o.links = true;
        s->body = use_links;
        run_all(s);
        all_well(s);
        check_links(s);
        scene_close(s);
    }
}

// Channel 1 connects all, 2 ranks that differ by an odd number, 3 nobody.
enum { CHANNELS = 3 };
static bool needed(const void *ctx, int channel, int a, int b) {
    return (void)ctx, channel == 1 || (channel == 2 && (b - a) % 2 == 1);
}

// Each connection carries its channel's number, and has keys of its own.
static void use_channels(scene *s, team *t, result *r) {
    const launch *at = team_at(t);
    static team_link taken[CHANNELS + 1][RANKS];
    wait_for_all(s, t, r);
    for (int k = 0; k <= CHANNELS; k++)
        for (int p = 0; p < at->world; p++) {
            const team_link *l = &taken[k][p];
            if (team_take_link(t, k, p, &taken[k][p]) != ERR_OK) r->links -= 1000;
            bool wanted = at->place[p].node != at->node &&
                          (k == 0 || needed(NULL, k, at->rank < p ? at->rank : p, at->rank < p ? p : at->rank));
            if ((l->fd >= 0) != wanted) r->links -= 1000;
            uint8_t said[2 + TEAM_KEY] = {(uint8_t)k, (uint8_t)at->rank};
            memcpy(said + 2, l->send_key, TEAM_KEY);
            if (l->fd >= 0 && send(l->fd, said, sizeof said, MSG_NOSIGNAL) != sizeof said) r->links -= 1000;
            for (int j = 0; j < k; j++)
                r->links -= wanted && memcmp(l->send_key, taken[j][p].send_key, TEAM_KEY) == 0 ? 1000 : 0;
        }
    for (int k = 0; k <= CHANNELS; k++)
        for (int p = 0; p < at->world; p++) {
            const team_link *l = &taken[k][p];
            uint8_t got[2 + TEAM_KEY];
            if (l->fd < 0) continue;
            fcntl(l->fd, F_SETFL, 0);
            bool right = read_all(l->fd, got, sizeof got) && got[0] == k && got[1] == p &&
                         memcmp(got + 2, l->recv_key, TEAM_KEY) == 0;
            r->links += right ? 1 : -1000;
        }
}

static void channels_have_connections_of_their_own(void **state) {
    (void)state;
    scene *s = scene_open(3, (int[]){1, 2, 3});
    s->plan = (channel_plan){.channels = CHANNELS, .seats = 1, .needs = needed};
    s->o.links = true;
    s->body = use_channels;
    run_all(s);
    all_well(s);
    static const int node[] = {0, 1, 1, 2, 2, 2};
    for (int r = 0; r < 6; r++) {
        int n = 0;
        for (int p = 0; p < 6; p++) n += node[p] != node[r] ? 2 + (p + r) % 2 : 0;
        assert_int_equal(s->b->rank[r].links, n);
    }
    scene_close(s);
}

// A connection has one user: the second is refused, and nothing of the keys is left to use them again.
static void take_twice(scene *s, team *t, result *r) {
    int other = 1 - team_at(t)->rank;
    wait_for_all(s, t, r);
    r->links = (int)team_take_link(t, 0, other, &r->link[0]);
    r->links = 1000 * r->links + (int)team_take_link(t, 0, other, &r->link[1]);
    keep_text(r->text, ERR_INTERNAL);
    static const uint8_t zero[TEAM_KEY];
    if (memcmp(t->link[other].send_key, zero, TEAM_KEY) != 0 || memcmp(t->link[other].recv_key, zero, TEAM_KEY) != 0)
        r->links = -2;
    if (team_take_link(t, 0, team_at(t)->rank, &r->link[2]) != ERR_OK) r->links = -1;  // none to itself
}

static void a_connection_is_given_once(void **state) {
    (void)state;
    static const uint8_t zero[TEAM_KEY];
    scene *s = scene_open(2, (int[]){1, 1});
    s->o.links = true;
    s->body = take_twice;
    run_all(s);
    all_well(s);
    for (int k = 0; k < 2; k++) {
        const result *r = &s->b->rank[k];
        assert_int_equal(r->links, ERR_INTERNAL);
        assert_text(r->text, k ? "to rank 0 (127.0.0.1) on channel 0 is taken already"
                               : "to rank 1 (127.0.0.2) on channel 0 is taken already");
        assert_true(r->link[0].fd >= 0);
        assert_memory_not_equal(r->link[0].send_key, zero, TEAM_KEY);
        assert_int_equal(r->link[1].fd, -1);
        assert_memory_equal(r->link[1].send_key, zero, TEAM_KEY);
        assert_int_equal(r->link[2].fd, -1);
    }
    scene_close(s);
}

static void late(scene *s, launch *l, team_options *o) {
    (void)s, (void)o;
    nap(l->rank == 0 ? 0.5 : 0);
}

// Who is there before rank 0 keeps trying.
static void rank_0_comes_last(void **state) {
    (void)state;
    scene *s = scene_open(2, (int[]){2, 2});
    s->o.links = true;
    s->tweak = late;
    s->body = use_links;
    run_all(s);
    all_well(s);
    check_links(s);
    assert_true(s->b->rank[3].join_s > 0.4 && s->b->rank[3].join_s < 3);
    scene_close(s);
}

static void over_ipv6(scene *s, launch *l, team_options *o) {
    (void)s, (void)o;
    for (int r = 0; l->place[r].node == 0; r++) strcpy(l->place[r].host, "::1");
}

static void meet_over_ipv6(void **state) {
    (void)state;
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool have = fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0;
    if (fd >= 0) close(fd);
    if (!have) skip();
    scene *s = scene_open(2, (int[]){2, 2});
    s->o.links = true;
    s->tweak = over_ipv6;
    s->body = use_links;
    run_all(s);
    all_well(s);
    check_links(s);
    scene_close(s);
}

// --- refused ---------------------------------------------------------------------------------------------------------

static void no_secret(void **state) {
    (void)state;
    launch l;
    team *t;
    int port = free_port();
    assert_int_equal(launch_open(&l, 2, (int[]){1, 1}, hosts, 0), ERR_OK);
    launch_become(&l, 0);
    assert_int_equal(team_join(&t, &(team_options){.at = &l, .port = port, .timeout_s = 5, .heartbeat_s = 1}),
                     ERR_AUTH);
    assert_null(t);
    assert_text(err_last()->text, "secret_file");
    launch_close(&l);
}

static void port_taken(void **state) {
    (void)state;
    launch l;
    team *t;
    int port = free_port(), fd = listen_at(0, port);
    char where[64];
    snprintf(where, sizeof where, "127.0.0.1:%d", port);
    assert_int_equal(launch_open(&l, 2, (int[]){2, 1}, hosts, 0), ERR_OK);
    launch_become(&l, 0);
    assert_int_equal(
        team_join(&t, &(team_options){.at = &l, .port = port, .has_secret = true, .timeout_s = 5, .heartbeat_s = 1}),
        ERR_UNAVAILABLE);
    assert_text(err_last()->text, where);
    assert_text(err_last()->text, strerror(EADDRINUSE));
    assert_text(err_last()->text, "[cluster] port");
    close(fd);
    launch_close(&l);
    // of a network for documentation (RFC 5737): not this machine's
    const char *foreign[2] = {"192.0.2.1", "192.0.2.2"};
    assert_int_equal(launch_open(&l, 2, (int[]){1, 1}, foreign, 0), ERR_OK);
    launch_become(&l, 0);
    assert_int_equal(
        team_join(&t, &(team_options){.at = &l, .port = port, .has_secret = true, .timeout_s = 5, .heartbeat_s = 1}),
        ERR_UNAVAILABLE);
    assert_text(err_last()->text, "192.0.2.1");
    launch_close(&l);
}

// The port of one rank's data connections is taken: it says so, and the others say who is missing.
static void data_port_taken(void **state) {
    (void)state;
    char where[64];
    scene *s = scene_open(3, (int[]){1, 2, 1});
    s->o.links = true;
    s->o.timeout_s = 1;
    int fd = listen_at(1, s->port + 2);
    snprintf(where, sizeof where, "127.0.0.2:%d", s->port + 2);
    run_all(s);
    assert_int_equal(s->b->rank[2].joined, ERR_UNAVAILABLE);
    assert_text(s->b->rank[2].text, where);
    for (int r = 0; r < 4; r++) {
        if (r == 2) continue;
        assert_int_equal(s->b->rank[r].joined, ERR_UNAVAILABLE);
        assert_text(s->b->rank[r].text, "1 of 4 ranks did not come within 1 s: rank 2 (127.0.0.2)");
    }
    close(fd);
    scene_close(s);
}

typedef enum other {
    OTHER_BUILD,
    OTHER_CONFIG,
    OTHER_DATA,
    OTHER_JOB,
    OTHER_WORLD,
    OTHER_EPOCH,
    OTHER_NODE,
    TWICE,
    RANK_OF_NODE_0,
    OUT_OF_RANGE,
    OTHER_CHANNELS,
    OTHERS
} other;

// What differs on the last rank.
static void differ(scene *s, launch *l, team_options *o) {
    if (l->rank != world_of(s) - 1) return;
    switch (s->number) {
    case OTHER_BUILD: strcpy(o->build, "3c4d"); break;
    case OTHER_CONFIG: strcpy(o->config_hash, "beef"); break;
    case OTHER_DATA: strcpy(o->data_hash, "feed\n"); break;
    case OTHER_JOB: strcpy(o->job, "huge"); break;
    case OTHER_WORLD: l->world = 3; break;
    case OTHER_EPOCH: o->epoch = 2; break;
    case OTHER_NODE: l->node = 1; break;
    case TWICE: l->rank = 2; break;
    case RANK_OF_NODE_0: l->rank = 1, l->node = 0; break;
    case OUT_OF_RANGE: l->rank = 9; break;
    case OTHER_CHANNELS: l->plan.channels = 2; break;
    }
    nap(0.3);  // the others are there
    if (s->number == RANK_OF_NODE_0) l->node = 1, l->place[1].node = 1;
}

static void who_differs_is_refused(void **state) {
    (void)state;
    static const char *const both[OTHERS][3] = {
        {"build 3c4d", "1a2b", "copy one binary"},
        {"configuration beef", "c0ffee", "INI"},
        {"dataset feed?", "d00d", "same data"},
        {"job huge", "tiny", "port of its own; of one job, [run] name is misspelt on one node"},
        {"world size 3", "has 4", "nodes"},
        {"epoch 2", "has 1", "restart"},
        {"node number 1", "has 2", "LOCKSTEP_NODE"},
        {"rank 2 (127.0.0.2) has node number 2", "has 1", "machine"},
        {"rank 1 (127.0.0.1)", "has node number 1, rank 0 (127.0.0.1) has 0", "machine"},
        {"rank 9 (at 127.0.0.1", "counts 4 ranks, 0 to 3", "nodes"},
        {"number of channels 2", "has 0", "[parallel]"}};
    for (int i = 0; i < OTHERS; i++) {
        scene *s = scene_open(3, (int[]){2, 1, 1});
        s->tweak = differ;
        s->number = i;
        run_all(s);
        for (int r = 0; r < 4; r++) {
            const result *x = &s->b->rank[r];
            if (x->joined != ERR_CONFIG) print_message("case %d, rank %d: %s\n", i, r, x->text);
            assert_int_equal(x->joined, ERR_CONFIG);
            for (int k = 0; k < 3; k++) assert_text(x->text, both[i][k]);
            assert_string_equal(x->text, s->b->rank[0].text);
        }
        scene_close(s);
    }
}

static void a_rank_comes_twice(void **state) {
    (void)state;
    scene *s = scene_open(3, (int[]){1, 1, 1});
    s->o.timeout_s = 5;
    start_node(s, 0, -1);
    start_node(s, 1, -1);
    start_node(s, 1, RANKS);
    assert_int_equal(reap(s), 0);
    assert_int_equal(s->b->rank[0].joined, ERR_CONFIG);
    assert_int_equal(s->b->rank[1].joined, ERR_CONFIG);
    assert_int_equal(s->b->rank[RANKS].joined, ERR_CONFIG);
    assert_text(s->b->rank[0].text, "rank 1 (127.0.0.2) has come twice");
    scene_close(s);
}

static void say_stage(const void *ctx, int rank, char dst[COMM_ROLE]) {
    (void)ctx, snprintf(dst, COMM_ROLE, ", stage %d", rank);
}

static void so_is_what_they_do(void **state) {
    (void)state;
    scene *s = scene_open(2, (int[]){1, 3});
    s->o.timeout_s = 0.7;
    s->plan.role = say_stage;
    start_node(s, 0, -1);
    assert_int_equal(reap(s), 0);
    assert_string_equal(
        s->b->rank[0].text,
        "3 of 4 ranks did not come within 0.7 s: rank 1 (127.0.0.2, stage 1), rank 2 (127.0.0.2, stage 2), "
        "rank 3 (127.0.0.2, stage 3)");
    scene_close(s);
}

static void the_missing_are_named(void **state) {
    (void)state;
    scene *s = scene_open(4, (int[]){2, 1, 3, 1});
    s->o.timeout_s = 0.7;
    start_node(s, 0, -1);
    start_node(s, 1, -1);
    assert_int_equal(reap(s), 0);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(s->b->rank[r].joined, ERR_UNAVAILABLE);
        assert_string_equal(s->b->rank[r].text,
                            "4 of 7 ranks did not come within 0.7 s: rank 3, 4, 5 (127.0.0.3), rank 6 (127.0.0.4)");
        assert_true(s->b->rank[r].join_s < 3);
    }
    scene_close(s);
    s = scene_open(2, (int[]){1, 1});
    s->o.timeout_s = 0.5;
    start_node(s, 1, -1);
    assert_int_equal(reap(s), 0);
    assert_int_equal(s->b->rank[1].joined, ERR_UNAVAILABLE);
    assert_text(s->b->rank[1].text, "rank 0 (127.0.0.1)");
    assert_text(s->b->rank[1].text, strerror(ECONNREFUSED));
    scene_close(s);
}

// --- settings --------------------------------------------------------------------------------------------------------

static const char usual[] =
    "run.seed=1337\nmodel.type=gpt\nmodel.layers=2\nbatch.lanes=8\noptimizer.lr=0.001\nrun.name=tiny\nparallel.zero=0\n";

static void settings_are_compared_by_key(void **state) {
    (void)state;
    static const struct {
        const char *theirs, *text;
    } rows[] = {
        {"", ""},
        {usual, ""},
        {"run.seed=1337\n", ""},
        {"run.seed=2\n", "[run] seed = 2 and 1337"},
        {"run.seed=\n", "[run] seed = (empty) and 1337"},
        {"run.seed=1337", ""},
        {"run.seed=133", "[run] seed = 133 and 1337"},
        {"run.seed\n", "[run] seed = (empty) and 1337"},
        {"run.seeds=1337\nmodel.type=llama\n", ""},  // no such key here: what follows can't be compared
        {"run.seed=1337\nmodel.type=llama\nmodel.kv_heads=2\nbatch.lanes=4\n", "[model] type = llama and gpt"},
        {"run.seed=2\nmodel.type=g\033pt\nmodel.layers=3\nbatch.lanes=4\noptimizer.lr=0.01\nrun.name=x\n",
         "[run] seed = 2 and 1337; [model] type = g?pt and gpt; [model] layers = 3 and 2; [batch] lanes = 4 and 8; and 2 more"},
    };
    char text[400], little[24];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(settings_differ(text, sizeof text, rows[i].theirs, usual), *rows[i].text != 0);
        assert_string_equal(text, rows[i].text);
        settings_differ(little, sizeof little, rows[i].theirs, usual);
        assert_true(strlen(little) < sizeof little);
    }
}

// Long ones: more than a socket takes at once.
static char long_settings[2][60000];
static void settings_of_node_1(scene *s, launch *l, team_options *o) {
    o->settings = s->number == 1 ? long_settings[l->node == 1]
                  : l->node == 1 ? "run.seed=2\noptimizer.lr=0.01\n"
                                 : "run.seed=1337\noptimizer.lr=0.01\n";
    if (l->node == 1) strcpy(o->config_hash, "beef"), strcpy(o->data_hash, "feed");
    if (l->node == 1 && !s->number) l->plan.channels = 2;  // as another [parallel] has
    if (l->node == 1 && s->number == 2) strcpy(o->build, "3c4d");
}

static void who_has_other_settings_is_told_the_key(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++)
        for (size_t n = 0; n + 40 < sizeof *long_settings;)
            n += (size_t)sprintf(long_settings[k] + n, "data.file_%zu=%s\n", n,
                                 n > sizeof *long_settings - 100 && k ? "other" : "same");
    for (int many = 0; many < 3; many++) {
        scene *s = scene_open(3, (int[]){1, 2, 1});
        s->number = many;
        s->o.timeout_s = 3;
        s->tweak = settings_of_node_1;
        run_all(s);
        for (int r = 0; r < 4; r++) {
            const result *x = &s->b->rank[r];
            assert_int_equal(x->joined, x->joined == ERR_UNAVAILABLE && r ? ERR_UNAVAILABLE : ERR_CONFIG);
            if (x->joined == ERR_UNAVAILABLE) continue;  // it came when rank 0 had gone
            if (many == 2) {                             // another build may know other settings: that is said first
                assert_text(x->text, " (127.0.0.2) runs build 3c4d, rank 0 (127.0.0.1) runs 1a2b");
                continue;
            }
            assert_text(x->text, " (127.0.0.2) and rank 0 (127.0.0.1) have different settings: ");
            assert_text(x->text, many ? "] file_" : "settings: [run] seed = 2 and 1337: the INI must be the same");
            if (many) assert_text(x->text, " = other and same");
        }
        assert_int_equal(s->b->rank[0].joined, ERR_CONFIG);
        scene_close(s);
    }
}

// --- waiting ---------------------------------------------------------------------------------------------------------

// Keeps the last words, and how often there were any; asks rank s->number to stop at the third time.
typedef struct listener {
    scene *s;
    int rank, calls, most;
} listener;

static err_t listen_in(void *ctx, double waited_s, const char *text) {
    listener *l = ctx;
    result *r = &l->s->b->rank[l->rank];
    snprintf(r->later, sizeof r->later, "%s", text);
    r->noticed_s = waited_s;
    r->links++;
    if (l->most && ++l->calls >= l->most) return err_set(ERR_INTERRUPTED, "stopped on request");
    return ERR_OK;
}

static listener ears;
static void with_a_listener(scene *s, launch *l, team_options *o) {
    ears = (listener){s, l->rank, 0, l->rank == s->number ? 3 : 0};
    o->waiting = (team_waiting){listen_in, &ears, NULL};
}

static void who_waits_says_for_whom(void **state) {
    (void)state;
    scene *s = scene_open(4, (int[]){2, 1, 2, 1});
    s->o.timeout_s = 1.2;
    s->number = -1;
    s->tweak = with_a_listener;
    start_node(s, 0, -1);
    start_node(s, 2, -1);
    assert_int_equal(reap(s), 0);
    const result *r = s->b->rank;
    // four times a second at most
    for (int i = 0; i < 5; i++) assert_true(i == 2 || (r[i].links >= 1 && r[i].links <= 8));
    assert_string_equal(r[0].later, "waiting for 127.0.0.2, 127.0.0.4 (2 of 4 nodes are here)");
    assert_string_equal(r[1].later, "waiting for other ranks");
    assert_string_equal(r[3].later, "joined 127.0.0.1; waiting for other nodes");
    scene_close(s);

    s = scene_open(2, (int[]){1, 1});
    char where[64];
    snprintf(where, sizeof where, "waiting for 127.0.0.1:%d: Connection refused", s->port);
    s->o.timeout_s = 0.6;
    s->number = -1;
    s->tweak = with_a_listener;
    start_node(s, 1, -1);
    assert_int_equal(reap(s), 0);
    assert_string_equal(s->b->rank[1].later, where);
    scene_close(s);
}

// A caller that is none of them: it may be the node that is missing, with something wrong.
static void who_waits_says_whom_it_sent_away(void **state) {
    (void)state;
    scene *s = scene_open(2, (int[]){1, 1});
    s->o.timeout_s = 1;
    s->number = -1;
    s->tweak = with_a_listener;
    start_node(s, 0, -1);
    uint8_t noise[HELLO_BYTES];
    memset(noise, 'x', sizeof noise);
    int fd = dial(0, s->port);
    assert_true(fd >= 0 && write_all(fd, noise, sizeof noise) && hangs_up(fd));
    close(fd);
    assert_int_equal(reap(s), 0);
    assert_text(s->b->rank[0].later, "waiting for 127.0.0.2 (1 of 2 nodes are here); sent away: ");
    assert_text(s->b->rank[0].later, "127.0.0.1");
    scene_close(s);
}

// Whoever is asked to stop while it waits, all that have joined end at once, with that reason.
static void who_waits_can_be_stopped(void **state) {
    (void)state;
    for (int who = 0; who < 3; who++) {
        scene *s = scene_open(3, (int[]){1, 2, 1});
        s->o.timeout_s = 20;
        s->number = who;
        s->tweak = with_a_listener;
        start_node(s, 0, -1);
        start_node(s, 1, -1);
        assert_int_equal(reap(s), 0);
        for (int r = 0; r < 3; r++) {
            const result *x = &s->b->rank[r];
            assert_int_equal(x->joined, ERR_INTERRUPTED);
            assert_text(x->text, "stopped on request");
            if (who > 0 && r != who) assert_text(x->text, who == 1 ? "rank 1 (127.0.0.2)" : "rank 2 (127.0.0.2)");
            assert_true(x->join_s < 5);
        }
        scene_close(s);
    }
}

// --- loss ------------------------------------------------------------------------------------------------------------

// Works until the team fails, and notes how long after the moment that was.
static void work(scene *s, team *t, result *r) {
    team_progress(t, "reduce bucket", 17, team_at(t)->rank);
    wait_for_all(s, t, r);
    if (s->number == 1 && team_at(t)->rank == 2) {  // this one gives up
        nap(0.2);
        atomic_store(&s->b->moment, now_s());
        if (team_fail(t, "the disk is on fire") != ERR_UNAVAILABLE) return;
    }
    struct pollfd p = {.fd = team_fd(t), .events = POLLIN};
    int woken = poll(&p, 1, 15000);
    r->noticed_s = woken == 1 && team_query(t) != ERR_OK ? now_s() - atomic_load(&s->b->moment) : 1e9;
    double known, alive;
    team_failed_at(t, &known, &alive);
    r->silent_s = known - alive;
    nap(0.1);
}

// Signals `victim` once all are there and have said what they do.
static void strike(scene *s, int victim, int signal) {
    for (int n = 0; n < s->nodes; n++) start_node(s, n, -1);
    await_count(&s->b->joined, world_of(s));
    nap(0.3);
    atomic_store(&s->b->moment, now_s());
    assert_int_equal(kill(s->b->rank[victim].pid, signal), 0);
}

static void check_noticed(const scene *s, int victim, double limit_s, const char *const *says) {
    double most = 0;
    for (int r = 0; r < world_of(s); r++) {
        const result *x = &s->b->rank[r];
        if (r == victim) continue;
        assert_int_equal(x->joined, ERR_OK);
        assert_int_equal(x->after, ERR_UNAVAILABLE);
        for (int i = 0; says[i]; i++) assert_text(x->later, says[i]);
        if (x->noticed_s > limit_s) fail_msg("rank %d noticed after %.2f s: %s", r, x->noticed_s, x->later);
        if (x->noticed_s > most) most = x->noticed_s;
        assert_true(x->left && x->leave_s < 2);
    }
    print_message("noticed within %.3f s: %s\n", most, s->b->rank[victim ? 0 : 1].later);
}

static void a_killed_rank(void **state) {
    (void)state;
    static const char *const names[] = {"rank 0 (127.0.0.1) is lost", "rank 1 (127.0.0.1) is lost",
                                        "rank 2 (127.0.0.2) is lost"};
    static const char *const phases[] = {"in reduce bucket 0 of step 17", "in reduce bucket 1 of step 17",
                                         "in reduce bucket 2 of step 17"};
    for (int victim = 0; victim < 3; victim++) {
        scene *s = scene_open(2, (int[]){2, 2});
        s->o.links = true;
        s->body = work;
        strike(s, victim, SIGKILL);
        assert_int_equal(reap(s), 1);
        check_noticed(
            s, victim, 0.5,
            (const char *[]){names[victim], "connection ended", phases[victim], "last sign of life 0.", NULL});
        for (int r = 0; r < 4; r++)
            assert_true(r == victim || (s->b->rank[r].silent_s >= 0 && s->b->rank[r].silent_s < 0.1));
        scene_close(s);
    }
}

static void a_stopped_rank(void **state) {
    (void)state;
    static const char *const names[] = {"rank 0 (127.0.0.1) is lost", "rank 1 (127.0.0.1) is lost",
                                        "rank 2 (127.0.0.2) is lost"};
    for (int victim = 0; victim < 3; victim++) {
        scene *s = scene_open(2, (int[]){2, 2});
        s->o.timeout_s = 1;
        s->body = work;
        strike(s, victim, SIGSTOP);
        nap(2);
        kill(s->b->rank[victim].pid, SIGKILL);
        assert_int_equal(reap(s), 1);
        check_noticed(s, victim, 1.3, (const char *[]){names[victim], "no sign of life", "of step 17", NULL});
        for (int r = 0; r < 4; r++) assert_true(r == victim || s->b->rank[r].noticed_s > 0.8);
        // one of them has judged, and the others are told
        for (int r = 0; r < 4; r++)
            assert_true(r == victim || (s->b->rank[r].silent_s > 0.95 && s->b->rank[r].silent_s < 1.3));
        scene_close(s);
    }
}

static void a_rank_gives_up(void **state) {
    (void)state;
    scene *s = scene_open(2, (int[]){2, 2});
    s->body = work;
    s->number = 1;
    run_all(s);
    check_noticed(s, -1, 0.5,
                  (const char *[]){"rank 2 (127.0.0.2): the disk is on fire (in reduce bucket 2 of step 17)", NULL});
    scene_close(s);
}

// One that failed alone still says so through team_query; the first reason stays.
static void first_failure_wins(void **state) {
    (void)state;
    launch l;
    team *t;
    assert_int_equal(launch_open(&l, 1, (int[]){1}, NULL, 0), ERR_OK);
    launch_become(&l, 0);
    assert_int_equal(team_join(&t, &(team_options){.at = &l, .timeout_s = 1, .heartbeat_s = 1}), ERR_OK);
    struct pollfd p = {.fd = team_fd(t), .events = POLLIN};
    assert_int_equal(team_query(t), ERR_OK);
    assert_int_equal(poll(&p, 1, 0), 0);
    assert_int_equal(team_fail(t, "one"), ERR_UNAVAILABLE);
    assert_int_equal(team_fail(t, "two"), ERR_UNAVAILABLE);
    assert_string_equal(err_last()->text, "rank 0 (localhost): one");
    assert_int_equal(poll(&p, 1, 0), 1);
    team_leave(t);
    launch_close(&l);
}

// Lost before all were there.
static void killed_while_joining(void **state) {
    (void)state;
    scene *s = scene_open(3, (int[]){2, 1, 1});
    start_node(s, 0, -1);
    start_node(s, 1, -1);
    nap(0.5);
    kill(s->b->rank[2].pid, SIGKILL);
    assert_int_equal(reap(s), 1);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(s->b->rank[r].joined, ERR_UNAVAILABLE);
        assert_text(s->b->rank[r].text, "rank 2 (127.0.0.2) is lost");
    }
    scene_close(s);
}

// --- leaving ---------------------------------------------------------------------------------------------------------

static void leave_in_order(scene *s, team *t, result *r) {
    wait_for_all(s, t, r);
    int rank = team_at(t)->rank;
    nap(0.15 * (double)((rank * s->number) % world_of(s)));
}

static void leaving_is_no_failure(void **state) {
    (void)state;
    static const int orders[] = {1, 4, 2, 0};  // rank 0 is always among the first
    for (int i = 0; i < 4; i++) {
        scene *s = scene_open(2, (int[]){3, 2});
        s->o.links = true;
        s->body = leave_in_order;
        s->number = orders[i];
        run_all(s);
        all_well(s);
        for (int r = 0; r < 5; r++) assert_true(s->b->rank[r].leave_s < (r == 0 ? 2 : 0.5));
        scene_close(s);
    }
}

static void stay_long(scene *s, team *t, result *r) {
    wait_for_all(s, t, r);
    if (team_at(t)->rank != 0) nap(team_at(t)->rank == 3 ? 2.5 : 0.2);
}

// Rank 0 waits for a bounded time only; who is left does not take that for a failure.
static void rank_0_does_not_wait_forever(void **state) {
    (void)state;
    scene *s = scene_open(2, (int[]){2, 2});
    s->o.timeout_s = 1;
    s->body = stay_long;
    run_all(s);
    all_well(s);
    assert_true(s->b->rank[0].leave_s > 0.9 && s->b->rank[0].leave_s < 1.8);
    scene_close(s);
}

static void leave_or_work(scene *s, team *t, result *r) {
    wait_for_all(s, t, r);
    if (team_at(t)->rank != 0) work(s, t, r);
}

// While rank 0 waits for the good-byes it still says which rank is lost.
static void news_while_rank_0_leaves(void **state) {
    (void)state;
    scene *s = scene_open(2, (int[]){2, 2});
    s->body = leave_or_work;
    strike(s, 3, SIGKILL);
    assert_int_equal(reap(s), 1);
    for (int r = 1; r < 3; r++) {
        assert_int_equal(s->b->rank[r].after, ERR_UNAVAILABLE);
        assert_text(s->b->rank[r].later, "rank 3 (127.0.0.2) is lost");
        assert_true(s->b->rank[r].noticed_s < 0.5);
    }
    scene_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_meet),
        cmocka_unit_test(nodes_meet_and_link),
        cmocka_unit_test(channels_have_connections_of_their_own),
        cmocka_unit_test(a_connection_is_given_once),
        cmocka_unit_test(rank_0_comes_last),
        cmocka_unit_test(meet_over_ipv6),
        cmocka_unit_test(no_secret),
        cmocka_unit_test(port_taken),
        cmocka_unit_test(data_port_taken),
        cmocka_unit_test(who_differs_is_refused),
        cmocka_unit_test(a_rank_comes_twice),
        cmocka_unit_test(the_missing_are_named),
        cmocka_unit_test(so_is_what_they_do),
        cmocka_unit_test(settings_are_compared_by_key),
        cmocka_unit_test(who_has_other_settings_is_told_the_key),
        cmocka_unit_test(who_waits_says_for_whom),
        cmocka_unit_test(who_waits_says_whom_it_sent_away),
        cmocka_unit_test(who_waits_can_be_stopped),
        cmocka_unit_test(a_killed_rank),
        cmocka_unit_test(a_stopped_rank),
        cmocka_unit_test(a_rank_gives_up),
        cmocka_unit_test(first_failure_wins),
        cmocka_unit_test(killed_while_joining),
        cmocka_unit_test(leaving_is_no_failure),
        cmocka_unit_test(rank_0_does_not_wait_forever),
        cmocka_unit_test(news_while_rank_0_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
