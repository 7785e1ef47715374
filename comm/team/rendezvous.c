// comm/team/rendezvous.c: how the ranks of a run become a team.
//
//   1. A rank that will receive data connections listens, before any other rank may call it.
//   2. Every rank connects to rank 0: through its socket pair on rank 0's own node, through TCP from other nodes. Rank
//      0 compares what they run.
//   3. When all are there rank 0 says go, and from then on the watcher (control.c) owns the control connections.
//   4. Ranks of different nodes connect to each other, the higher to the lower, with the same handshake: once for each
//      channel that connects the two, all at the port of the lower one's data connections.
//
// Everything has a deadline, and an error names the missing ranks. Rank 0 sends every error that it finds to all ranks
// that have joined, so that all report the same.
#include "comm/team/internal.h"

#include "base/text.h"
#include "comm/team/settings.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

// --- what must agree -------------------------------------------------------------------------------------------------

// Text from another process, made fit for a message: printable, and never empty.
static const char *printable(char dst[TEAM_TEXT], const char *src) {
    int i = 0;
    for (; i < TEAM_TEXT - 1 && src[i]; i++) dst[i] = src[i] >= 32 && src[i] < 127 ? src[i] : '?';
    dst[i] = 0;
    return i ? dst : "(none)";
}

static bool text_differs(char *why, const char *who, const char *what, const char *theirs, const char *ours,
                         const launch *at, const char *hint) {
    if (strcmp(theirs, ours) == 0) return false;
    char name[COMM_NAME], a[TEAM_TEXT], b[TEAM_TEXT];
    snprintf(why, FRAME_TEXT, "%s runs %s %s, %s runs %s: %s", who, what, printable(a, theirs), rank_text(at, 0, name),
             printable(b, ours), hint);
    return true;
}

static bool number_differs(char *why, const char *who, const char *what, uint32_t theirs, uint32_t ours,
                           const launch *at, const char *hint) {
    if (theirs == ours) return false;
    char name[COMM_NAME];
    snprintf(why, FRAME_TEXT, "%s has %s %u, %s has %u: %s", who, what, theirs, rank_text(at, 0, name), ours, hint);
    return true;
}

#define SAME_INI "the INI must be the same on all nodes, but for local keys (`lockstep config` prints it)"

static bool runs_differ(char *why, const char *who, const hello *h, const hello *o, const launch *at) {
    return number_differs(why, who, "protocol version", h->version, o->version, at,
                          "install the same binary on all nodes") ||
           text_differs(why, who, "job", h->job, o->job, at,
                        "each job needs a [cluster] port of its own; of one job, [run] name is misspelt on one node") ||
           text_differs(why, who, "build", h->build, o->build, at,
                        "copy one binary to all nodes (`lockstep version` shows its sources)") ||
           number_differs(why, who, "epoch", h->epoch, o->epoch, at,
                          "one of them was restarted and the other was not; restart both") ||
           number_differs(why, who, "world size", h->world, o->world, at,
                          "[cluster] nodes and [device] ranks must be the same on all nodes") ||
           text_differs(why, who, "configuration", h->config_hash, o->config_hash, at, SAME_INI) ||
           (h->role == ROLE_CONTROL && number_differs(why, who, "number of channels", h->channel, o->channel, at,
                                                      "[parallel] must be the same on all nodes")) ||
           text_differs(why, who, "dataset", h->data_hash, o->data_hash, at, "copy the same data to all nodes");
}

// True if the visitor, which has proven that it knows the secret, does not belong here. `why` then says so, with both
// values.
static bool refused(char why[FRAME_TEXT], const meeting *m, const visitor *v) {
    const hello *h = &v->shake.theirs, *o = &m->mine;
    const launch *at = m->t->at;
    char who[COMM_NAME + DOOR_TEXT], from[DOOR_TEXT], name[COMM_NAME];
    peer_text(v->fd, from);
    bool in_range = h->rank < (uint32_t)at->world;
    if (in_range) rank_text(at, (int)h->rank, who);
    else snprintf(who, sizeof who, "rank %u (at %s)", h->rank, from);
    if (runs_differ(why, who, h, o, at)) return true;
    if (!in_range) {
        snprintf(why, FRAME_TEXT,
                 "%s is out of range, %s counts %d ranks, 0 to %d: [cluster] nodes must be the same on all nodes", who,
                 rank_text(at, 0, name), at->world, at->world - 1);
        return true;
    }
    const char *hint =
        "each entry of [cluster] nodes must be one machine, and LOCKSTEP_NODE, where it is set, different on each";
    uint32_t node = (uint32_t)at->place[h->rank].node;
    if (number_differs(why, who, "node number", h->node, node, at, hint)) return true;
    bool here = node == 0, twice = h->rank == 0 || m->t->control[h->rank].fd >= 0;
    if (!twice && here == v->local) return false;
    snprintf(why, FRAME_TEXT, "%s has come twice, the second time from %s%s: %s", who, from,
             here && !v->local ? ", which is not rank 0's node" : "", hint);
    return true;
}

// --- rank 0 ----------------------------------------------------------------------------------------------------------

static int absent(const team *t) {
    int n = 0;
    for (int r = 1; r < t->at->world; r++) n += t->control[r].fd < 0;
    return n;
}

// Each with what it does, for as many as there is room; then how many more there are.
static void list_roles(text *t, const launch *at, const bool *missing) {
    char name[COMM_NAME];
    size_t before = t->n;
    int more = 0;
    for (int r = 0; r < at->world; r++) {
        if (!missing[r]) continue;
        if (t->n + sizeof name + 32 < t->room) text_put(t, "%s%s", t->n > before ? ", " : "", rank_text(at, r, name));
        else more++;
    }
    if (more) text_put(t, " and %d more", more);
}

// "rank 4, 5, 6 (10.0.0.3), rank 9 (10.0.0.4)": those for whom missing[rank] is set.
static void list_ranks(text *t, const launch *at, const bool *missing) {
    size_t before = t->n;
    if (at->place[0].role[0]) {
        list_roles(t, at, missing);
        return;
    }
    for (int r = 0, node = -1; r < at->world; r++) {
        if (!missing[r] || t->n + 16 + COMM_HOST >= t->room) continue;
        bool more = at->place[r].node == node;
        node = at->place[r].node;
        text_put(t, more ? ", %d" : t->n > before ? ", rank %d" : "rank %d", r);
        int next = r + 1;
        while (next < at->world && at->place[next].node == node && !missing[next]) next++;
        if (next == at->world || at->place[next].node != node) text_put(t, " (%s)", at->place[r].host);
    }
}

static err_t not_all_came(const meeting *m, double timeout_s) {
    const team *t = m->t;
    bool missing[TEAM_RANKS_MAX] = {0};
    char names[600] = "", visits[DOOR_TEXT + 80] = "";
    for (int r = 1; r < t->at->world; r++) missing[r] = t->control[r].fd < 0;
    list_ranks(&(text){.at = names, .room = sizeof names}, t->at, missing);
    if (m->strangers)
        snprintf(visits, sizeof visits, "; %d other callers were sent away, the last one: %s", m->strangers,
                 m->stranger);
    return err_set(ERR_UNAVAILABLE, "%d of %d ranks did not come within %g s: %s%s", absent(t), t->at->world, timeout_s,
                   names, visits);
}

static void answer_caller(conn *c, err_t code, const char *text) {
    frame f = {.type = FRAME_FAIL, .code = (uint32_t)code};
    snprintf(f.text, sizeof f.text, "%s", text);
    conn_queue(c, &f);
    conn_flush(c);
}

// Where the settings are what differs, puts the keys in the place of two hashes. It may take seconds, in which others
// wait: the meeting is over in any case.
static void name_settings(char why[FRAME_TEXT], const meeting *m, const hello *h, conn *c) {
    const launch *at = m->t->at;
    char keys[FRAME_TEXT - 300], who[COMM_NAME], me[COMM_NAME], rest[FRAME_TEXT];
    hello same = *h;  // but for the settings, and what depends on them
    same.channel = m->mine.channel;
    memcpy(same.config_hash, m->mine.config_hash, TEAM_TEXT);
    memcpy(same.data_hash, m->mine.data_hash, TEAM_TEXT);
    bool only = strcmp(h->config_hash, m->mine.config_hash) != 0 && h->rank < (uint32_t)at->world &&
                !runs_differ(rest, "", &same, &m->mine, at);
    char *theirs = only && m->t->settings ? malloc(SETTINGS_MAX) : NULL;
    if (theirs && settings_ask(c, theirs) && settings_differ(keys, sizeof keys, theirs, m->t->settings))
        snprintf(why, FRAME_TEXT, "%s and %s have different settings: %s: " SAME_INI, rank_text(at, (int)h->rank, who),
                 rank_text(at, 0, me), keys);
    free(theirs);
}

// A rank has come to rank 0.
static err_t came_to_star(meeting *m, visitor *v) {
    char why[FRAME_TEXT];
    int rank = (int)v->shake.theirs.rank;
    bool local = v->local;
    if (refused(why, m, v)) {
        conn c;
        conn_open(&c, v->fd, !local, -1, &v->shake.keys);
        v->fd = -1;
        name_settings(why, m, &v->shake.theirs, &c);
        answer_caller(&c, ERR_CONFIG, why);
        conn_close(&c);
        return err_set(ERR_CONFIG, "%s", why);
    }
    conn_open(&m->t->control[rank], v->fd, !local, rank, &v->shake.keys);
    v->fd = -1;
    return ERR_OK;
}

// A rank that has joined sends something before all have joined: that can only be a failure, or the end of its
// connection.
static err_t heard_early(team *t, conn *c) {
    frame f;
    char name[COMM_NAME];
    conn_news news = conn_read(c, &f);
    if (news == CONN_NOTHING) return ERR_OK;
    rank_text(t->at, c->peer, name);
    if (news == CONN_FRAME && f.type == FRAME_FAIL)
        return err_set(f.code ? (err_t)f.code : ERR_UNAVAILABLE, "%s: %s", name, f.text);
    int why = news == CONN_ENDED ? errno : 0;
    return err_set(ERR_UNAVAILABLE, "%s is lost: its connection ended%s%s while others were still to come", name,
                   why ? ": " : "", why ? strerror(why) : "");
}

// --- while others are still to come ----------------------------------------------------------------------------------

static const double look_s = 0.25;  // between two calls of `waiting`

static double until_look(const team *t, double until) {
    return t->waiting.call && t->look_at < until ? t->look_at : until;
}

static bool look_is_due(const team *t) { return t->waiting.call && clock_now() >= t->look_at; }

static err_t tell_waiting(team *t, const char *text) {
    t->look_at = clock_now() + look_s;
    return t->waiting.call(t->waiting.ctx, clock_now() - t->began, text);
}

void absent_text(char *dst, size_t room, const launch *at, const bool *missing) {
    int nodes = 0, last = -1, more = 0;
    text t = {.at = dst, .room = room};
    text_put(&t, "waiting for ");
    if (at->nodes == 1) {
        list_ranks(&t, at, missing);
        return;
    }
    for (int r = 1; r < at->world; r++) {
        if (!missing[r] || at->place[r].node == last) continue;
        last = at->place[r].node, nodes++;
        if (t.n + COMM_HOST + 64 < room) text_put(&t, "%s%s", nodes > 1 ? ", " : "", at->place[r].host);
        else more++;
    }
    if (more) text_put(&t, " and %d more", more);
    text_put(&t, " (%d of %d nodes are here)", at->nodes - nodes, at->nodes);
}

static err_t tell_absent(const meeting *m) {
    const team *t = m->t;
    char text[TEAM_WAIT_TEXT];
    bool missing[TEAM_RANKS_MAX] = {0};
    if (!look_is_due(t)) return ERR_OK;
    for (int r = 1; r < t->at->world; r++) missing[r] = t->control[r].fd < 0;
    absent_text(text, sizeof text - DOOR_TEXT - 40, t->at, missing);
    size_t n = strlen(text);
    if (m->strangers) snprintf(text + n, sizeof text - n, "; sent away: %s", m->stranger);
    return tell_waiting(m->t, text);
}

static err_t gather_all(meeting *m, double timeout_s) {
    team *t = m->t;
    double until = clock_now() + timeout_s;
    while (absent(t)) {
        int rank[TEAM_RANKS_MAX], n = 0;
        for (int r = 1; r < t->at->world; r++) {
            if (t->control[r].fd < 0) continue;
            m->poll[n] = (struct pollfd){.fd = t->control[r].fd, .events = POLLIN};
            rank[n++] = r;
        }
        m->watched = n;
        TRY(meeting_turn(m, until_look(t, until)));
        for (int i = 0; i < n; i++)
            if (m->poll[i].revents) TRY(heard_early(t, &t->control[rank[i]]));
        if (absent(t)) TRY(tell_absent(m));
        if (absent(t) && clock_now() >= until) return not_all_came(m, timeout_s);
    }
    return ERR_OK;
}

// Sends to all that have joined. Nothing was sent to them before, so there is room in their sockets.
static void say_all(team *t, const frame *f) {
    for (int r = 1; r < t->at->world; r++) {
        if (!conn_queue(&t->control[r], f)) continue;
        atomic_fetch_add(&t->wire, conn_flush(&t->control[r]));
    }
}

static int star_port(const team_options *o) { return o->star_port ? o->star_port : o->port; }

static err_t be_star(team *t, const team_options *o, const hello *mine) {
    const launch *at = t->at;
    meeting m = {.t = t, .secret = o->secret, .mine = *mine, .came = came_to_star};
    err_t rc;
    TRY_GOTO(meeting_open(&m, at->locals, 0, at->world), out);
    if (at->nodes > 1) TRY_GOTO(meeting_listen(&m, at->place[0].host, star_port(o)), out);
    for (int i = 1; i < at->locals; i++) meeting_admit_local(&m, i, at->control[i]);
    TRY_GOTO(gather_all(&m, o->timeout_s), out);
    say_all(t, &(frame){.type = FRAME_GO});
out:
    meeting_close(&m);
    if (rc == ERR_OK) return rc;
    frame f = {.type = FRAME_FAIL, .code = (uint32_t)rc};
    snprintf(f.text, sizeof f.text, "%s", err_last()->text);
    say_all(t, &f);
    return rc;
}

// --- the other ranks -------------------------------------------------------------------------------------------------

static err_t reached_star(meeting *m, caller *c) {
    conn_open(&m->t->control[0], c->fd, !c->local, 0, &c->shake.keys);
    return ERR_OK;
}

static err_t no_star(const meeting *m, const team_options *o) {
    const caller *c = &m->caller[0];
    char name[COMM_NAME], where[DOOR_TEXT] = "";
    if (c->met != HANDSHAKE_GOING) {
        rank_text(m->t->at, 0, name);
        where_text(c->host, c->port, where);
        if (c->met == HANDSHAKE_GARBAGE)
            return err_set(
                ERR_UNAVAILABLE,
                "%s: something else than this run answers at %s, and in %g s nothing else did; see [cluster] nodes and port, and what "
                "listens there",
                name, where, o->timeout_s);
        return err_set(
            ERR_AUTH,
            "%s: who answers at %s does not know the secret, and in %g s nobody did who does; the file that [cluster] secret_file names must "
            "have the same content on all nodes",
            name, where, o->timeout_s);
    }
    if (!c->local) snprintf(where, sizeof where, ", port %d", c->port);
    return err_set(
        ERR_UNAVAILABLE,
        "%s%s was not reached within %g s%s%s: is lockstep running there, and may this machine connect to it?",
        rank_text(m->t->at, 0, name), where, o->timeout_s, c->why[0] ? "; last attempt: " : "", c->why);
}

static err_t tell_unreached(const meeting *m) {
    const caller *c = &m->caller[0];
    char text[TEAM_WAIT_TEXT], where[DOOR_TEXT];
    if (!look_is_due(m->t)) return ERR_OK;
    if (c->local) snprintf(text, sizeof text, "waiting for rank 0 of this node");
    else
        snprintf(text, sizeof text, "waiting for %s%s%s", where_text(c->host, c->port, where), c->why[0] ? ": " : "",
                 c->why);
    return tell_waiting(m->t, text);
}

static err_t reach_star(team *t, const team_options *o, const hello *mine) {
    const launch *at = t->at;
    meeting m = {.t = t, .secret = o->secret, .mine = *mine, .reached = reached_star};
    double until = clock_now() + o->timeout_s;
    err_t rc;
    TRY_GOTO(meeting_open(&m, 0, 1, 0), out);
    bool local = at->node == 0;
    int fd = local ? at->control[at->locals + at->local] : -1;
    m.caller[0] = (caller){.target = 0, .local = local, .fd = fd, .host = at->place[0].host, .port = star_port(o)};
    while (rc == ERR_OK && t->control[0].fd < 0) {
        TRY_GOTO(meeting_turn(&m, until_look(t, until)), out);
        if (t->control[0].fd < 0) TRY_GOTO(tell_unreached(&m), out);
        if (t->control[0].fd < 0 && clock_now() >= until) rc = no_star(&m, o);
    }
out:
    meeting_close(&m);
    return rc;
}

// Reports that this rank waits for rank 0 to start the run. If the report fails, the error is sent to rank 0, which
// ends the meeting for all.
static err_t tell_joined(team *t) {
    conn *c = &t->control[0];
    char text[160];
    if (!look_is_due(t)) return ERR_OK;
    snprintf(text, sizeof text, "joined %.64s; waiting for other nodes", t->at->place[0].host);
    if (t->at->node == 0) snprintf(text, sizeof text, "waiting for other ranks");
    err_t rc = tell_waiting(t, text);
    if (rc != ERR_OK) answer_caller(c, rc, err_last()->text);
    return rc;
}

// Rank 0 decides within the timeout, counted from when it began, which was before we came. If it does not, it hangs.
static err_t await_go(team *t, double timeout_s) {
    double until = clock_now() + timeout_s + 5;
    conn *c = &t->control[0];
    frame f;
    char name[COMM_NAME];
    rank_text(t->at, 0, name);
    for (;;) {
        conn_news news = conn_read(c, &f);
        if (news == CONN_FRAME && f.type == FRAME_GO) return ERR_OK;
        if (news == CONN_FRAME && f.type == FRAME_ASK) settings_tell(c, t->settings ? t->settings : "");
        if (news == CONN_FRAME && f.type == FRAME_FAIL)
            return err_set(f.code ? (err_t)f.code : ERR_UNAVAILABLE, "%s", f.text);
        if (news == CONN_ENDED || news == CONN_FORGED)
            return err_set(ERR_UNAVAILABLE, "%s is lost: its connection ended while the ranks were meeting", name);
        double wait = until - clock_now();
        if (wait <= 0)
            return err_set(ERR_UNAVAILABLE, "%s has not said within %g s whether all ranks are there", name,
                           timeout_s + 5);
        TRY(tell_joined(t));
        wait = until_look(t, until) - clock_now();
        if (wait < 0) wait = 0;
        poll(&(struct pollfd){.fd = c->fd, .events = POLLIN}, 1, (int)(1e3 * wait) + 1);
    }
}

// --- data connections ------------------------------------------------------------------------------------------------

static bool far(const launch *at, int rank) { return at->place[rank].node != at->node; }

static int links_of(const team *t) { return (1 + t->at->plan.channels) * t->at->world; }

// Does this rank have a connection of channel k to that one?
static bool wants_link(const launch *at, int k, int rank) {
    return far(at, rank) && launch_connects(at, k, at->rank, rank);
}

static void keep_link(team *t, int channel, int rank, int fd, const session_keys *k) {
    team_link *l = &t->link[channel * t->at->world + rank];
    if (l->fd >= 0) close(l->fd);  // the other side has given up its first attempt
    l->fd = fd;
    memcpy(l->send_key, k->link_send, TEAM_KEY);
    memcpy(l->recv_key, k->link_recv, TEAM_KEY);
}

// Rank 0 has compared everything already; here only visitors of another team are ignored, and closed.
static err_t came_for_data(meeting *m, visitor *v) {
    const hello *h = &v->shake.theirs;
    const launch *at = m->t->at;
    char why[FRAME_TEXT];
    if (h->rank >= (uint32_t)at->world || (int)h->rank < at->rank) return ERR_OK;
    if (!wants_link(at, (int)h->channel, (int)h->rank) || runs_differ(why, "", h, &m->mine, at)) return ERR_OK;
    keep_link(m->t, (int)h->channel, (int)h->rank, v->fd, &v->shake.keys);
    v->fd = -1;
    return ERR_OK;
}

static err_t reached_for_data(meeting *m, caller *c) {
    keep_link(m->t, c->channel, c->target, c->fd, &c->shake.keys);
    return ERR_OK;
}

// How many connections are missing; missing[rank] (if not NULL): is one to that rank?
static int unlinked(const team *t, bool *missing) {
    int n = 0, world = t->at->world;
    for (int i = 0; i < links_of(t); i++) {
        if (t->link[i].fd >= 0 || !wants_link(t->at, i / world, i % world)) continue;
        n++;
        if (missing) missing[i % world] = true;
    }
    return n;
}

static err_t not_all_linked(const meeting *m, double timeout_s) {
    const team *t = m->t;
    bool missing[TEAM_RANKS_MAX] = {0};
    char names[600] = "", why[DOOR_TEXT + 32] = "";
    unlinked(t, missing);
    list_ranks(&(text){.at = names, .room = sizeof names}, t->at, missing);
    for (int i = 0; i < m->callers; i++)
        if (!m->caller[i].done && m->caller[i].why[0])
            snprintf(why, sizeof why, "; last attempt: %s", m->caller[i].why);
    return err_set(
        ERR_UNAVAILABLE,
        "no data connection within %g s to %s%s: ports [cluster] port + 1 and up must be open between the nodes",
        timeout_s, names, why);
}

// Listens, and prepares the calls; nothing moves before link_all.
static err_t open_links(meeting *m, const team_options *o) {
    const launch *at = m->t->at;
    int callers = 0, channels = at->plan.channels;
    for (int k = 0; k <= channels; k++)
        for (int r = 0; r < at->rank; r++) callers += wants_link(at, k, r);
    TRY(meeting_open(m, 0, callers, 1));
    caller *c = m->caller;
    for (int k = 0; k <= channels; k++)
        for (int r = 0; r < at->rank; r++)
            if (wants_link(at, k, r))
                *c++ = (caller){.target = r,
                                .channel = k,
                                .fd = -1,
                                .host = at->place[r].host,
                                .port = o->port + 1 + at->place[r].local};
    bool called = at->node < at->nodes - 1;
    return called ? meeting_listen(m, at->place[at->rank].host, o->port + 1 + at->local) : ERR_OK;
}

static err_t link_all(meeting *m, double timeout_s) {
    team *t = m->t;
    double until = clock_now() + timeout_s;
    while (unlinked(t, NULL)) {
        m->poll[0] = (struct pollfd){.fd = t->news, .events = POLLIN};
        TRY(meeting_turn(m, until_look(t, until)));
        TRY(team_query(t));
        if (look_is_due(t)) TRY(tell_waiting(t, "all have joined; connecting to the ranks of other nodes"));
        if (unlinked(t, NULL) && clock_now() >= until) return not_all_linked(m, timeout_s);
    }
    return ERR_OK;
}

// Reports to the others why this rank fails.
static err_t fail_linking(team *t) {
    char name[COMM_NAME];
    if (team_query(t) != ERR_OK) return team_query(t);
    err_prefix("%s", rank_text(t->at, t->at->rank, name));
    team_record(t, err_last()->code, err_last()->text, 0);
    return team_query(t);
}

// --- a team ----------------------------------------------------------------------------------------------------------

const launch *team_at(const team *t) { return t->at; }
err_t team_take_link(team *t, int channel, int rank, team_link *out) {
    team_link *l = &t->link[channel * t->at->world + rank];
    char name[COMM_NAME];
    *out = (team_link){.fd = -1};
    if (l->taken)
        return err_set(ERR_INTERNAL,
                       "the connection to %s on channel %d is taken already: another transport needs another team",
                       rank_text(t->at, rank, name), channel);
    *out = *l;
    l->taken = l->fd >= 0;
    sodium_memzero(l->send_key, TEAM_KEY);
    sodium_memzero(l->recv_key, TEAM_KEY);
    return ERR_OK;
}

int64_t team_wire(const team *t) { return atomic_load(&((team *)t)->wire); }

void team_leave(team *t) {
    if (!t) return;
    watch_stop(t);
    for (int i = 0; t->control && i < t->controls; i++) conn_close(&t->control[i]);
    for (int i = 0; t->link && i < links_of(t); i++)
        if (t->link[i].fd >= 0) close(t->link[i].fd);
    if (t->link) sodium_memzero(t->link, (size_t)links_of(t) * sizeof *t->link);
    if (t->wake >= 0) close(t->wake);
    if (t->news >= 0) close(t->news);
    pthread_mutex_destroy(&t->lock);
    free(t->control);
    free(t->link);
    free(t);
}

static err_t team_new(team **out, const team_options *o) {
    const launch *at = o->at;
    team *t = *out = calloc(1, sizeof *t);
    if (!t) return err_set(ERR_INTERNAL, "no memory for a team of %d ranks", at->world);
    t->at = at;
    t->timeout_s = o->timeout_s;
    double most = o->timeout_s / 3;  // one late heartbeat must not be fatal
    t->shown = o->waiting.pulse;
    t->heartbeat_s = o->heartbeat_s < most ? o->heartbeat_s : most;
    t->waiting = o->waiting;
    t->settings = o->settings;
    t->began = t->look_at = clock_now();
    t->wake = t->news = -1;
    pthread_mutex_init(&t->lock, NULL);
    atomic_store(&t->step, -1);
    atomic_store(&t->number, -1);
    t->controls = at->world == 1 ? 0 : at->rank == 0 ? at->world : 1;
    t->control = calloc((size_t)t->controls + 1, sizeof *t->control);
    t->link = calloc((size_t)links_of(t), sizeof *t->link);
    if (!t->control || !t->link) return err_set(ERR_INTERNAL, "no memory for a team of %d ranks", at->world);
    for (int i = 0; i < t->controls; i++) t->control[i].fd = -1;
    for (int i = 0; i < links_of(t); i++) t->link[i].fd = -1;
    t->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    t->news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (t->wake < 0 || t->news < 0)
        return err_set(ERR_INTERNAL, "eventfd: %s; raise the limit of open files (LimitNOFILE)", strerror(errno));
    return ERR_OK;
}

static hello own_hello(const team_options *o) {
    const launch *at = o->at;
    hello h = {.version = HELLO_VERSION,
               .role = ROLE_CONTROL,
               .node = (uint32_t)at->node,
               .rank = (uint32_t)at->rank,
               .world = (uint32_t)at->world,
               .epoch = o->epoch,
               .channel = (uint32_t)at->plan.channels};
    memcpy(h.job, o->job, TEAM_TEXT);
    memcpy(h.build, o->build, TEAM_TEXT);
    memcpy(h.config_hash, o->config_hash, TEAM_TEXT);
    memcpy(h.data_hash, o->data_hash, TEAM_TEXT);
    h.job[TEAM_TEXT - 1] = h.build[TEAM_TEXT - 1] = h.config_hash[TEAM_TEXT - 1] = h.data_hash[TEAM_TEXT - 1] = 0;
    return h;
}

static err_t meet(team *t, const team_options *o) {
    const launch *at = o->at;
    hello mine = own_hello(o), data = mine;
    data.role = ROLE_DATA, data.channel = 0;
    meeting links = {
        .t = t, .secret = o->secret, .mine = data, .listener = -1, .came = came_for_data, .reached = reached_for_data};
    bool linked = o->links && at->nodes > 1;
    err_t rc = ERR_OK;
    if (linked) TRY_GOTO(open_links(&links, o), out);
    if (at->rank == 0) TRY_GOTO(be_star(t, o, &mine), out);
    else {
        TRY_GOTO(reach_star(t, o, &mine), out);
        TRY_GOTO(await_go(t, o->timeout_s), out);
    }
    TRY_GOTO(watch_start(t), out);
    if (linked && (rc = link_all(&links, o->timeout_s)) != ERR_OK) rc = fail_linking(t);
out:
    meeting_close(&links);
    return rc;
}

static err_t check_options(const team_options *o) {
    const launch *at = o->at;
    if (at->world > TEAM_RANKS_MAX)
        return err_set(ERR_CONFIG, "%d ranks; at most %d can be a team", at->world, TEAM_RANKS_MAX);
    if (at->nodes > 1 && !o->has_secret)
        return err_set(
            ERR_AUTH,
            "%d nodes and no secret: [cluster] secret_file must name a file that is the same on all nodes and that no "
            "one else can read",
            at->nodes);
    if (sodium_init() < 0) return err_set(ERR_INTERNAL, "libsodium did not start: no source of random numbers");
    return ERR_OK;
}

// Who is of another epoch, or of another run's of that number, does not know this world's secret.
static void fence_secret(team_options *o) {
    uint8_t secret[TEAM_KEY];
    memcpy(secret, o->secret, TEAM_KEY);
    crypto_generichash(o->secret, TEAM_KEY, o->at->fence, TEAM_KEY, secret, TEAM_KEY);
    sodium_memzero(secret, TEAM_KEY);
}

err_t team_join(team **out, const team_options *of) {
    team_options own = *of, *o = &own;
    team *t = NULL;
    err_t rc;
    *out = NULL;
    TRY(check_options(o));
    if (o->at->fenced) fence_secret(o);
    TRY_GOTO(team_new(&t, o), fail);
    if (o->at->world > 1) TRY_GOTO(meet(t, o), fail);
    sodium_memzero(own.secret, TEAM_KEY);
    t->waiting = (team_waiting){0}, t->settings = NULL;  // the caller's, for as long as it joins
    *out = t;
    return ERR_OK;
fail:;
    err_record why = *err_last();
    sodium_memzero(own.secret, TEAM_KEY);
    team_leave(t);
    return err_restore(&why);
}
