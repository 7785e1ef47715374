// trainer/step/server.c: see trainer/step/server.h.
#include "trainer/step/server.h"

#include "base/clock.h"
#include "base/thread.h"
#include "trainer/step/finish.h"
#include "trainer/step/schedule.h"
#include "trainer/step/served_wire.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOOK_MS = 200 };  // at most so long the rank's thread sleeps: it shows that it lives

// What a worker's thread asks of the rank's.
typedef enum { QUIET, ASKS_SQUARES, ASKS_NEXT, ASKS_PULL, ASKS_PUSH } question;

typedef struct client {
    server *of;
    int worker;
    comm *with;
    pthread_t thread;
    float *place;  // its gradient, or weights for it
    pthread_cond_t told;
    // Guarded by the server's lock:
    question asks;
    bool answered;
    uint64_t number;   // of the question, in the order in which they came
    int64_t ticket;    // that it is about; of NEXT: the answer
    served_head push;  // what the worker says of its gradient, and the answer to SQUARES
    int64_t version;   // updates when its weights were read
} client;

// The period under way.
typedef struct period {
    served_step *step;
    int64_t updates, pushes, dropped;
    double ended;       // when the last step was whole
    int started, left;  // threads
    bool stopped;       // a worker has no data: nothing is updated any more
} period;

struct server {
    server_options o;
    step_runner *r;
    int workers;
    int *applied;    // [most] of the period (serving.h)
    client *client;  // [workers]
    serving now;
    period at;
    pthread_mutex_t lock;
    pthread_cond_t news;
    uint64_t asked;  // questions so far
    bool failed;     // for good
    err_record why;
};

// --- a worker's thread -----------------------------------------------------------------------------------------------

static void fail(server *x) {
    pthread_mutex_lock(&x->lock);
    if (!x->failed) x->failed = true, x->why = *err_last();
    for (int k = 0; k < x->workers; k++) pthread_cond_signal(&x->client[k].told);
    pthread_cond_signal(&x->news);
    pthread_mutex_unlock(&x->lock);
}

// Waits for the answer.
static err_t ask(client *k, question what, int64_t ticket) {
    server *x = k->of;
    pthread_mutex_lock(&x->lock);
    k->asks = what, k->ticket = ticket, k->number = ++x->asked, k->answered = false;
    pthread_cond_signal(&x->news);
    while (!k->answered && !x->failed) pthread_cond_wait(&k->told, &x->lock);
    k->asks = QUIET;
    bool failed = x->failed;
    pthread_mutex_unlock(&x->lock);
    return failed ? err_restore(&x->why) : ERR_OK;
}

static err_t send_weights(client *k, stream *s) {
    train_state *t = k->of->r->state;
    const int me = t->zero.rank - (t->zero.world - t->o.servers);
    comm_part part;
    for (int g = 0; g < t->zero.segments; g++)
        if (served_weights(t, me, g, dtype_bytes(t->o.compute), (char *)k->place, false, &part))
            TRY(k->with->table->exchange(k->with, &part, 1, NULL, 0, s));
    return ERR_OK;
}

static err_t receive_gradient(client *k, stream *s) {
    train_state *t = k->of->r->state;
    const int me = t->zero.rank - (t->zero.world - t->o.servers);
    comm_part part[t->zero.segments];
    for (int b = 0; b < t->zero.buckets; b++) {
        int parts = served_bucket(t, me, b, (char *)k->place, false, part);
        if (parts) TRY(k->with->table->exchange(k->with, NULL, 0, part, parts, s));
    }
    return ERR_OK;
}

static err_t serve_pull(client *k, int64_t ticket, stream *s) {
    if (!serving_has(&k->of->now, ticket))
        return err_set(ERR_INTERNAL, "worker %d asks for weights for ticket %" PRId64 ", which is of another period",
                       k->worker, ticket);
    TRY(ask(k, ASKS_PULL, ticket));
    TRY(send_weights(k, s));
    TRY(receive_gradient(k, s));
    TRY(ask(k, ASKS_SQUARES, ticket));
    TRY(served_send(k->with, SERVED_WORKER, &k->push, s));
    TRY(served_receive(k->with, SERVED_WORKER, &k->push, s));
    if (k->push.says != SERVED_SAYS_PUSH || k->push.ticket != ticket)
        return err_set(ERR_INTERNAL, "worker %d sent a gradient of ticket %" PRId64 ", expected %" PRId64, k->worker,
                       k->push.ticket, ticket);
    return ask(k, ASKS_PUSH, ticket);
}

static err_t converse(client *k) {
    stream *s = k->of->r->s;
    served_head h;
    for (;;) {
        TRY(served_receive(k->with, SERVED_WORKER, &h, s));
        if (h.says == SERVED_SAYS_BYE) return ERR_OK;
        if (h.says == SERVED_SAYS_PULL) {
            TRY(serve_pull(k, h.ticket, s));
            continue;
        }
        TRY(ask(k, ASKS_NEXT, 0));
        TRY(served_send(k->with, SERVED_WORKER, &(served_head){.says = SERVED_SAYS_NEXT, .ticket = k->ticket}, s));
    }
}

static void *serve_client(void *arg) {
    client *k = arg;
    if (converse(k) != ERR_OK) fail(k->of);
    pthread_mutex_lock(&k->of->lock);
    k->of->at.left++;
    pthread_cond_signal(&k->of->news);
    pthread_mutex_unlock(&k->of->lock);
    return NULL;
}

// --- records ---------------------------------------------------------------------------------------------------------

static err_t note(server *x, served_event what, int64_t a, int64_t b) {
    return x->o.record ? served_write(x->o.record, (served_line){what, a, b}) : ERR_OK;
}

// The line that comes next in the record that is repeated has been done.
static err_t follow(server *x, served_event what, int64_t a, int64_t b) {
    served_replay *p = x->o.replay;
    char expected[SERVED_TEXT], found[SERVED_TEXT];
    TRY(note(x, what, a, b));
    if (!p) return ERR_OK;
    served_line is = {what, a, b};
    if (p->ended)
        return err_set(ERR_DATA, "%s: it ends after line %" PRId64 ", and this run goes on with `%s`", p->path,
                       p->line - 1, served_text(is, found));
    if (p->now.what != what || p->now.a != a || p->now.b != b)
        return err_set(ERR_DATA,
                       "%s:%" PRId64 ": `%s`, and this run comes to `%s` instead: it has other settings or data than "
                       "the one that was recorded",
                       p->path, p->line, served_text(p->now, expected), served_text(is, found));
    return served_replay_next(p);
}

// --- answers, by the rank's own thread -------------------------------------------------------------------------------

static void tell(client *k) {
    k->answered = true;
    pthread_cond_signal(&k->told);
}

static err_t answer_squares(server *x, client *k) {
    train_state *t = x->r->state;
    void *sum = t->sum.data;
    t->sum.data = k->place;
    err_t rc = finish_pushed_squares(x->r, &k->push.squares);
    t->sum.data = sum;
    k->push.says = SERVED_SAYS_PUSH, k->push.ticket = k->ticket;
    tell(k);
    return rc;
}

static err_t answer_next(server *x, client *k) {
    k->ticket = x->at.stopped ? SERVE_END : serving_next(&x->now, k->worker);
    if (k->ticket != SERVE_END) TRY(follow(x, SERVED_NEXT, k->worker, k->ticket));
    tell(k);
    return ERR_OK;
}

static err_t answer_pull(server *x, client *k) {
    const train_state *t = x->r->state;
    memcpy(k->place, t->weights.t.data, t->zero.shard_values * dtype_bytes(t->o.compute));
    k->version = x->at.updates;
    serving_pull(&x->now, k->worker, k->ticket);
    TRY(follow(x, SERVED_PULL, k->worker, k->ticket));
    tell(k);
    return ERR_OK;
}

// 0, 1, 2 .. 3, 4 .. 7, ...
static int stale_class(int64_t missed) {
    int k = 0;
    while (missed >> k && k < SERVED_STALE - 1) k++;
    return k;
}

static double norm_of(const server *x, const client *k) {
    return sqrt(k->push.squares) / state_step(x->r->state)->loss_scale;
}

static int questions(const server *x) {
    int n = 0;
    for (int k = 0; k < x->workers; k++) n += x->client[k].asks != QUIET && !x->client[k].answered;
    return n;
}

// A gradient that counts, in the step that is counted now.
static void count(server *x, const client *k) {
    const serving *n = &x->now;
    int64_t at = n->rules.kind == SERVE_HYBRID ? n->open - n->first : x->at.pushes / x->workers;
    served_step *to = &x->at.step[at];
    x->at.pushes++;
    to->pushes++;
    to->loss += (k->push.loss - to->loss) / (double)to->pushes;
    to->norm += (norm_of(x, k) - to->norm) / (double)to->pushes;
    to->missed += ((double)(x->at.updates - k->version) - to->missed) / (double)to->pushes;
    to->waiting += ((double)questions(x) - (k->asks != QUIET) - to->waiting) / (double)to->pushes;
    to->stale[stale_class(x->at.updates - k->version)]++;
}

static void end_step(server *x, int64_t at) {
    double now = clock_now();
    x->at.step[at].ms = 1e3 * (now - x->at.ended);
    x->at.step[at].dropped = x->at.dropped;
    x->at.ended = now, x->at.dropped = 0;
}

static err_t apply(server *x, client *k) {
    train_state *t = x->r->state;
    void *sum = t->sum.data;
    count(x, k);
    t->sum.data = k->place;
    err_t rc = finish_pushed(x->r, k->push.squares, schedule_lr(x->r->cfg, serving_step(&x->now.rules, k->ticket)));
    t->sum.data = sum;
    x->at.updates++;
    if (x->at.pushes % x->workers == 0) end_step(x, x->at.pushes / x->workers - 1);
    return rc;
}

// Nothing counts any more: who waits for a step to be closed goes on, to hear that the period has ended.
static void stop(server *x) {
    x->at.stopped = true;
    for (int k = 0; k < x->workers; k++)
        if (x->now.held[k] >= 0) tell(&x->client[k]);
    serving_close(&x->now);
}

static err_t answer_push(server *x, client *k) {
    serving_fate fate = PUSH_DROP;
    if (k->push.failed && !x->at.stopped) stop(x);
    if (!x->at.stopped) {
        fate = serving_push(&x->now, k->worker, k->ticket, clock_now());
        if (fate == PUSH_APPLY) TRY(apply(x, k));
        x->at.dropped += fate == PUSH_DROP;
        TRY(follow(x, fate == PUSH_DROP ? SERVED_DROP : SERVED_PUSH, k->worker, k->ticket));
    }
    if (fate == PUSH_HOLD) k->asks = QUIET;  // answered when the step is closed
    else tell(k);
    return ERR_OK;
}

static err_t answer(server *x, client *k) {
    static const char *const what[] = {"", "add up a gradient", "give a ticket", "give weights", "apply a gradient"};
    board_doing(x->r->board, what[k->asks], k->worker, x->now.first);
    board_worked(x->r->board);
    switch (k->asks) {
    case QUIET: return ERR_OK;
    case ASKS_SQUARES: return answer_squares(x, k);
    case ASKS_NEXT: return answer_next(x, k);
    case ASKS_PULL: return answer_pull(x, k);
    case ASKS_PUSH: return answer_push(x, k);
    }
    return ERR_OK;
}

// --- hybrid: what is held becomes one update -------------------------------------------------------------------------

// Each is clipped by itself, as the norm of their mean is not known to any server.
static double weight_of(const server *x, const client *k) {
    double clip = x->r->end.rules.grad_clip, norm = norm_of(x, k), weight = serving_weight(&x->now, k->worker);
    return clip > 0 && norm > clip ? weight * clip / norm : weight;
}

// squares (=) NaN if one is not finite, else 0: what is left of the decision.
static void add_held(server *x, double *squares) {
    train_state *t = x->r->state;
    float *sum = t->sum.data;
    *squares = 0;
    memset(sum, 0, t->zero.shard * sizeof *sum);
    for (int k = 0; k < x->workers; k++) {
        const client *c = &x->client[k];
        if (x->now.held[k] < 0) continue;
        if (!isfinite(c->push.squares)) *squares = NAN;
        const float w = (float)weight_of(x, c);
        for (size_t i = 0; i < t->zero.shard; i++) sum[i] += w * c->place[i];
    }
}

static err_t close_step(server *x) {
    double squares;
    int64_t step = x->now.open;
    add_held(x, &squares);
    for (int k = 0; k < x->workers; k++)
        if (x->now.held[k] >= 0) count(x, &x->client[k]);
    TRY(finish_pushed(x->r, squares, schedule_lr(x->r->cfg, step)));
    x->at.updates++;
    end_step(x, step - x->now.first);
    for (int k = 0; k < x->workers; k++)
        if (x->now.held[k] >= 0) tell(&x->client[k]);
    serving_close(&x->now);
    return follow(x, SERVED_CLOSE, step, 0);
}

static bool closes(const server *x) {
    const served_replay *p = x->o.replay;
    if (x->at.stopped) return false;
    if (p) return serving_holds(&x->now) && !p->ended && p->now.what == SERVED_CLOSE;
    return serving_closes(&x->now, clock_now());
}

// --- what comes next -------------------------------------------------------------------------------------------------

static bool may(const server *x, const client *k) {
    static const serving_ask ask[] = {[ASKS_NEXT] = ASK_NEXT, [ASKS_PULL] = ASK_PULL, [ASKS_PUSH] = ASK_PUSH};
    return x->at.stopped || serving_may(&x->now, ask[k->asks], k->worker, k->ticket);
}

// In a run that repeats a record: is it this worker's turn? One that gets no ticket any more is in no record.
static bool has_turn(const server *x, const client *k) {
    const served_replay *p = x->o.replay;
    if (!p || p->ended || x->at.stopped) return true;
    if (k->asks == ASKS_NEXT && serving_has_ended(&x->now)) return true;
    return p->now.what <= SERVED_DROP && p->now.a == k->worker;
}

// Squares are in no record: nothing depends on when they are added up.
static client *choose(server *x) {
    client *first = NULL;
    for (int i = 0; i < x->workers; i++) {
        client *k = &x->client[i];
        if (k->asks == QUIET || k->answered) continue;
        if (k->asks == ASKS_SQUARES) return k;
        if (has_turn(x, k) && may(x, k) && (!first || k->number < first->number)) first = k;
    }
    return first;
}

static void sleep_until_news(server *x) {
    struct timespec t;
    double most = clock_now() + 1e-3 * LOOK_MS, until = serving_deadline(&x->now);
    if (until == 0 || until > most || x->o.replay) until = most;
    t.tv_sec = (time_t)until, t.tv_nsec = (long)(1e9 * (until - (double)t.tv_sec));
    pthread_cond_timedwait(&x->news, &x->lock, &t);
}

// The lock is held while something is answered: threads receive meanwhile, and wait with what they ask next.
static err_t serve(server *x) {
    while (x->at.left < x->workers && !x->failed) {
        client *k = choose(x);
        if (k) TRY(answer(x, k));
        else if (closes(x)) TRY(close_step(x));
        else sleep_until_news(x);
    }
    x->at.step[x->now.last - x->now.first].dropped += x->at.dropped;  // after the last step was whole
    return x->failed ? err_restore(&x->why) : ERR_OK;
}

// --- a period --------------------------------------------------------------------------------------------------------

// Each may wake all others, so all are as at the beginning before one is started.
static err_t start(server *x) {
    for (int i = 0; i < x->workers; i++) x->client[i].asks = QUIET, x->client[i].answered = false;
    for (; x->at.started < x->workers; x->at.started++) {
        client *k = &x->client[x->at.started];
        TRY(thread_start(&k->thread, "lockstep/serve", serve_client, k));
    }
    return ERR_OK;
}

// Threads that wait for what a worker says end when the run does.
static void end(server *x, err_t rc) {
    comm *c = x->r->ranks;
    if (rc != ERR_OK) fail(x);
    if (rc != ERR_OK && c->table->query(c) == ERR_OK) c->table->abort(c, x->why.text);
    for (int k = 0; k < x->at.started; k++) pthread_join(x->client[k].thread, NULL);
    if (rc != ERR_OK) err_restore(&x->why);
}

err_t server_serve(server *x, int64_t first, int64_t last, served_step *step) {
    x->at = (period){.step = step, .ended = clock_now()};
    serving_begin(&x->now, x->o.rules, first, last, x->applied);
    TRY(follow(x, SERVED_PERIOD, first, last));
    err_t rc = start(x);
    pthread_mutex_lock(&x->lock);
    if (rc == ERR_OK) rc = serve(x);
    pthread_mutex_unlock(&x->lock);
    end(x, rc);
    TRY(rc);
    if (!x->at.stopped) TRY(follow(x, SERVED_END, first, last));
    return x->o.record ? served_flush(x->o.record) : ERR_OK;
}

// --- opening ---------------------------------------------------------------------------------------------------------

static void open_clients(server *x) {
    for (int i = 0; i < x->workers; i++) {
        x->client[i] = (client){.of = x,
                                .worker = i,
                                .with = x->r->state->o.server[i],
                                .place = (float *)x->r->pushed.data + i * x->r->pushed.size[1]};
        pthread_cond_init(&x->client[i].told, NULL);
    }
}

err_t server_open(server **out, const server_options *o) {
    server *x = *out = calloc(1, sizeof *x);
    pthread_condattr_t by;
    if (!x) return err_set(ERR_INTERNAL, "no memory for a server");
    x->o = *o, x->r = o->r, x->workers = o->rules->workers;
    pthread_condattr_init(&by);
    pthread_condattr_setclock(&by, CLOCK_MONOTONIC);
    pthread_cond_init(&x->news, &by);
    pthread_condattr_destroy(&by);
    pthread_mutex_init(&x->lock, NULL);
    x->applied = calloc((size_t)o->most, sizeof *x->applied);
    x->client = calloc((size_t)x->workers, sizeof *x->client);
    if (!x->applied || !x->client) return err_set(ERR_INTERNAL, "no memory to serve %d workers", x->workers);
    open_clients(x);
    return ERR_OK;
}

void server_close(server *x) {
    if (!x) return;
    for (int k = 0; x->client && k < x->workers; k++) pthread_cond_destroy(&x->client[k].told);
    pthread_cond_destroy(&x->news);
    pthread_mutex_destroy(&x->lock);
    free(x->client), free(x->applied);
    free(x);
}
