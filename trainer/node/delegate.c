// trainer/node/delegate.c: see trainer/node/delegate.h.
#include "trainer/node/delegate.h"

#include "base/clock.h"
#include "base/version.h"
#include "trainer/log/monitor.h"
#include "trainer/node/cluster.h"

#include <errno.h>
#include <poll.h>
#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const double restart_s = 0.5;                    // between two starts of the process
static const double last_word_s = 0.5;                  // for it to say that all is over
static const double drain_s = 60;                       // for the others to go on without a node that was asked to stop
static const double say_after_s = 2, say_again_s = 30;  // what it waits for, on the terminal

// --- the supervisor's side -------------------------------------------------------------------------------------------

err_t delegate_open(delegate *d) {
    void *page = mmap(NULL, VOTE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return err_set(ERR_INTERNAL, "no memory for the votes of a node: %s", strerror(errno));
    if (sodium_init() < 0) return err_set(ERR_INTERNAL, "libsodium did not start: no source of random numbers");
    *d = (delegate){.fd = -1, .page = page, .started_at = -restart_s};
    while (!d->life) randombytes_buf(&d->life, sizeof d->life);
    return ERR_OK;
}

static void hang_up(delegate *d) {
    if (d->fd >= 0) close(d->fd);
    d->fd = -1;
}

void delegate_forget(delegate *d) {
    hang_up(d);
    d->pid = 0;
}

void delegate_close(delegate *d) {
    if (!d->page) return;
    for (double until = clock_now() + last_word_s; d->pid && d->told && d->facts.over && clock_now() < until;) {
        poll(NULL, 0, 5);
        delegate_reap(d);
    }
    hang_up(d);
    if (d->pid) kill(d->pid, SIGKILL), waitpid(d->pid, NULL, 0);
    munmap(d->page, VOTE_PAGE_BYTES);
    *d = (delegate){.fd = -1};
}

// Without a process nothing is decided until the next start.
bool delegate_start(delegate *d, double now, int *fd) {
    int pair[2];
    if (d->pid || now < d->started_at + restart_s) return false;
    d->started_at = now;
    hang_up(d);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return false;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        close(pair[0]);
        return *fd = pair[1], true;
    }
    close(pair[1]);
    if (pid < 0) return close(pair[0]), false;
    d->pid = pid, d->fd = pair[0], d->told = false;
    return false;
}

void delegate_reap(delegate *d) {
    if (d->pid && waitpid(d->pid, NULL, WNOHANG) != 0) d->pid = 0;
}

void delegate_tell(delegate *d, const node_facts *f) {
    if (d->fd < 0 || (d->told && memcmp(f, &d->facts, sizeof *f) == 0)) return;
    d->told = send(d->fd, f, sizeof *f, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof *f;
    d->facts = *f;
}

bool delegate_hear(delegate *d, node_ruling *out) {
    bool any = false;
    ssize_t n;
    while (d->fd >= 0 &&
           ((n = recv(d->fd, out, sizeof *out, MSG_DONTWAIT)) == sizeof *out || (n < 0 && errno == EINTR)))
        any |= n == sizeof *out;
    return any;
}

// --- its life --------------------------------------------------------------------------------------------------------

typedef struct seat {
    const delegate_life *of;
    council c;
    council_net *net;
    fault_list faults;
    char *settings;  // of this node, which the net compares with those of others
    node_facts facts;
    bool heard;        // the supervisor has said them
    int64_t step;      // of the board, when it was last looked at
    double tick_at;    // of the next report
    node_ruling told;  // to the supervisor
    bool has_told;
    node_set members;  // of the newest record
    double silent_s;   // as node_ruling.silent_s
    // the terminal
    monitor m;
    double waits_since, said_at;
    char said[COUNCIL_NET_WHY];
} seat;

static bool rule(seat *s, const node_ruling *r) {
    if (s->has_told && memcmp(r, &s->told, sizeof *r) == 0) return true;
    s->has_told = send(s->of->fd, r, sizeof *r, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof *r;
    s->told = *r;
    kill(getppid(), SIGCHLD);
    return s->has_told;
}

// What the council says, with the host beside the first node that it names: people know hosts.
static void put_words(seat *s, node_ruling *r, const char *why) {
    const char *at = strstr(why, "node ");
    char *end;
    long node = at ? strtol(at + 5, &end, 10) : -1;
    snprintf(r->why, sizeof r->why, "%s", why);
    if (node < 0 || end == at + 5 || node >= s->of->cl->nodes) return;
    snprintf(r->why, sizeof r->why, "%.*s (%s)%s", (int)(end - why), why, s->of->cl->host[node], end);
}

static void say_waiting(seat *s, const node_ruling *r, double now) {
    bool waits = r->action == COUNCIL_WAIT, waited = s->waits_since != 0;
    if (!waits || !waited) s->waits_since = waits ? now : 0;
    if (waits || waited) board_say(s->of->b, waits ? r->why : "");
    if (!waits || now < s->waits_since + say_after_s) return;
    bool changed = strcmp(s->said, r->why) != 0;
    if (now < s->said_at + (changed ? say_after_s : say_again_s)) return;
    snprintf(s->said, sizeof s->said, "%s", r->why);
    s->said_at = now;
    monitor_say(&s->m, "waiting: %s", r->why);
}

static void tell_decision(seat *s, const council_decision *d, double now) {
    node_ruling r;
    memset(&r, 0, sizeof r);  // it is compared as bytes
    const council_record *is = council_newest(&s->c);
    // what is proposed is no decision yet
    r.action = d->proposes ? COUNCIL_STAY : d->action, r.code = d->code, r.has_record = is != NULL;
    if (is) memcpy(&r.record, is, sizeof r.record);
    r.silent_s = s->silent_s;
    put_words(s, &r, d->why);
    const char *differs = is ? NULL : council_net_differs(s->net);
    if (differs) {
        r.action = COUNCIL_END, r.code = ERR_CONFIG;
        snprintf(r.why, sizeof r.why, "%s", differs);
    }
    say_waiting(s, &r, now);
    (void)rule(s, &r);
}

// Of those that the newest record puts out, the longest silence.
static double silence(const seat *s, const council_record *r, double now) {
    double longest = 0;
    FOR_NODES(j, &s->members) {
        const council_heard *h = &s->c.view.of[j];
        double at = h->at > h->ranks_at ? h->at : h->ranks_at;
        if (r->kind == DECREE_HEAL && !set_has(&r->members, j) && now - at > longest) longest = now - at;
    }
    return longest;
}

static void tell_record(seat *s) {
    fault_kill(&s->faults, FAULT_RULE);
    node_ruling r = s->told;
    const council_record *is = council_newest(&s->c);
    r.silent_s = s->silent_s = silence(s, is, clock_now());
    s->members = is->members;
    r.action = COUNCIL_STAY, r.has_record = true;
    memcpy(&r.record, is, sizeof r.record);
    put_words(s, &r, r.record.why);
    (void)rule(s, &r);
}

// Does it say more than a report?
static bool is_vote(const council_outbox *out) {
    bool votes = out->took;
    for (int i = 0; i < out->count; i++) votes |= out->out[i].m.type != COUNCIL_REPORT;
    return votes;
}

static void deliver(seat *s, const council_outbox *out) {
    if (is_vote(out)) fault_kill(&s->faults, FAULT_VOTE);
    vote_page_write(s->of->page, &s->c.page);
    if (is_vote(out)) fault_kill(&s->faults, FAULT_VOTED);
    for (int i = 0; i < out->count; i++) council_net_send(s->net, out->out[i].to, &out->out[i].m);
    if (out->took) tell_record(s);
}

static council_state state_of(const seat *s, bool in_epoch, bool works) {
    const council_record *r = council_newest(&s->c);
    if (s->facts.over) return COUNCIL_ENDING;
    if (!r) return COUNCIL_OUT;
    if (!council_member(&s->c.view, r, s->c.view.node)) return s->facts.inside ? COUNCIL_LEAVING : COUNCIL_WAITING;
    if (!in_epoch) return s->facts.inside ? COUNCIL_LEAVING : COUNCIL_ENTERING;
    return s->facts.failed ? COUNCIL_LEAVING : works ? COUNCIL_WORKING : COUNCIL_ENTERING;
}

// Was the node put out because it is slow? Then it leaves, as one that was asked to stop.
static bool was_evicted(const seat *s, const council_record *r) {
    int node = s->c.view.node;
    return r && s->facts.slow && set_has(&r->evicted, node) && !council_member(&s->c.view, r, node) &&
           r->life[node] == s->c.view.life;
}

// What this node says of itself. A node whose slots are all spare works by being there.
static council_report own_report(seat *s) {
    const board *b = s->of->b;
    const council_record *r = council_newest(&s->c);
    bool in_epoch = r && s->facts.entered == r->epoch;
    bool works = in_epoch && atomic_load(&b->ready) >= s->facts.seats;
    int64_t step = works && s->facts.seats ? atomic_load(&b->step) : 0;
    council_report say = {
        .state = state_of(s, in_epoch, works), .slots = s->facts.slots, .data = s->facts.data, .sealed = -1};
    say.ready = s->facts.ready, say.leaving = s->facts.leaving || was_evicted(s, r);
    say.slow = (uint16_t)s->facts.slow;
    // a world that counts on more places than there are never begins
    bool short_of = r && council_member(&s->c.view, r, s->c.view.node) && s->facts.slots < r->slots[s->c.view.node];
    say.failed = (in_epoch && s->facts.failed) || short_of;
    say.began = works && s->facts.seats;
    say.step = step > s->facts.high ? step : s->facts.high;
    if (works) say.sealed = s->facts.seats ? atomic_load(&b->sealed) : 0;
    return say;
}

// Steps are heartbeats: one is finished only by the ranks of all members.
static void hear_ranks(seat *s, double now) {
    const council_record *r = council_newest(&s->c);
    int64_t step = atomic_load(&s->of->b->step);
    if (r && s->facts.entered == r->epoch && s->facts.seats && step > s->step)
        FOR_NODES(j, &r->members) s->c.view.of[j].ranks_at = now;
    s->step = step;
}

static void tick(seat *s, double now) {
    council_decision *d = malloc(sizeof *d);
    if (!d) return;  // the next one may find memory
    fault_kill(&s->faults, FAULT_TICK);
    council_outbox out;
    council_report own = own_report(s);
    hear_ranks(s, now);
    council_tick(&s->c, d, &out, now, &own);
    deliver(s, &out);
    tell_decision(s, d, now);
    free(d);
    s->tick_at = now + COUNCIL_REPORT_S;
}

// false: the supervisor is gone.
static bool hear_supervisor(seat *s) {
    node_facts f;
    for (;;) {
        ssize_t n = recv(s->of->fd, &f, sizeof f, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) return false;
        if (n != sizeof f) return true;
        s->facts = f, s->heard = true;
        s->tick_at = 0;
    }
}

// A failure that another node reports is acted upon at once.
static void take(seat *s, const council_message *m) {
    council_outbox out;
    bool failed = s->c.view.of[m->node].says.failed;
    council_take(&s->c, &out, clock_now(), m);
    deliver(s, &out);
    if (!failed && s->c.view.of[m->node].says.failed) s->tick_at = 0;
}

static err_t sit(seat *s, council_room *room) {
    council_message m;
    while (hear_supervisor(s)) {
        while (council_net_next(s->net, &m, room)) take(s, &m);
        if (s->heard && clock_now() >= s->tick_at) tick(s, clock_now());
        if (s->facts.over) break;
        TRY(council_net_turn(s->net, s->of->fd, s->tick_at));
    }
    return ERR_OK;
}

// --- its beginning ---------------------------------------------------------------------------------------------------

static council_rules rules_of(const delegate_life *of) {
    const config *c = of->c;
    council_rules k = {.dead_s = c->cluster.dead_s, .give_up_s = (double)c->cluster.give_up_s, .drain_s = drain_s};
    k.min_ranks = (int)c->cluster.min_ranks, k.lanes = (int)c->resolved.lanes;
    k.grid =
        (council_grid){0, (uint16_t)c->parallel.tensor, (uint16_t)c->parallel.pipeline, (uint16_t)c->parallel.context};
    int per = (int)(c->parallel.tensor * c->parallel.pipeline * c->parallel.context);
    for (int w = 1; w <= k.lanes && w * per <= of->cl->world; w++)
        if (config_fits(c, w * per) == ERR_OK && of->fits(c, w * per) == ERR_OK)
            k.fits[w / 64] |= (uint64_t)1 << w % 64;
    randombytes_buf(k.run, sizeof k.run);
    return k;
}

static err_t connect_to_others(seat *s) {
    const config *c = s->of->c;
    council_net_options o = {.node = s->of->cl->node, .nodes = s->of->cl->nodes, .host = s->of->cl->host};
    char hash[17];
    config_hash(c, hash);
    o.port = (int)c->cluster.port;
    snprintf(o.job, sizeof o.job, "%s", c->run.name);
    snprintf(o.build, sizeof o.build, "%s", version_sources());
    snprintf(o.config_hash, sizeof o.config_hash, "%s", hash);
    TRY(config_shared(c, &s->settings));
    o.settings = s->settings;
    TRY(cluster_secret(c, o.secret));
    err_t rc = council_net_open(&s->net, &o);
    sodium_memzero(o.secret, sizeof o.secret);
    return rc;
}

static err_t begin(seat *s) {
    vote_page *page = malloc(sizeof *page);
    if (!page) return err_set(ERR_INTERNAL, "no memory for the votes of a node");
    err_t rc = vote_page_read(page, s->of->page);
    if (rc == ERR_OK) rc = fault_parse(&s->faults, s->of->c->run.faults);
    s->faults.rank = s->of->cl->node, s->faults.shared = s->of->b->faults;
    if (rc == ERR_OK) rc = connect_to_others(s);
    council_rules k = rules_of(s->of);
    if (rc == ERR_OK) council_open(&s->c, &k, s->of->cl->node, s->of->cl->nodes, s->of->life, page, clock_now());
    free(page);
    return rc;
}

// Why it can't sit in the council: then the node can't take part.
static void tell_error(seat *s) {
    node_ruling r;
    memset(&r, 0, sizeof r);
    r.action = COUNCIL_END, r.code = err_last()->code;
    snprintf(r.why, sizeof r.why, "%s", err_last()->text);
    (void)rule(s, &r);
}

err_t delegate_live(const delegate_life *of) {
    static const sink *const lines[] = {&sink_terminal, NULL};
    static const config none;
    seat *s = calloc(1, sizeof *s);
    council_room *room = malloc(sizeof *room);
    if (!s || !room) return free(s), free(room), err_set(ERR_INTERNAL, "no memory for the council of nodes");
    s->of = of;
    (void)monitor_open_list(&s->m, &(log_setup){.dir = "", .c = &none}, lines);  // without memory it is silent
    err_t rc = begin(s);
    if (rc == ERR_OK) rc = sit(s, room);
    if (rc != ERR_OK) tell_error(s);
    council_net_close(s->net);
    monitor_close(&s->m);
    free(room), free(s->settings), free(s);
    return rc;
}
