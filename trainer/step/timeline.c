// trainer/step/timeline.c: see trainer/step/timeline.h. Every unit and message has one set of things that it waits for,
// whatever comes first elsewhere, so its time follows as soon as theirs are known. Ranks and FIFOs go on in turns as
// far as they can, until all are done or none can.
#include "trainer/step/timeline.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WANT_TEXT = MESSAGE_TEXT + 64 };

// Messages between two ranks, one way, of one kind. By number: when each end posted it, when it left, when it came.
typedef struct fifo {
    int from, to, count, room;
    int send_count, receive_count;
    const message **send, **receive;
    int sends_posted, receives_posted, sent, taken;
    double *send_posted, *receive_posted, *sent_at, *taken_at;
} fifo;

typedef struct place {  // a (stage, micro-batch) of a rank
    bool forward, inputs;
    int last;  // the unit that reads its slot last
    double sent;
} place;

typedef struct runner {
    const unit_table *table;
    timeline_rank *out;
    int done;  // units
    int held;
    bool told;         // in the text about a circle
    place *place;      // by chunk * m + micro
    int *number;       // by message: its number on its FIFO
    int *buffer_free;  // by unit: the unit after which the buffers that it fills are free. -1: from the start
} runner;

typedef struct replay {
    const pipeline_layout *l;
    const timeline_costs *costs;
    fifo *fifo;  // [4p]
    runner *rank;
} replay;

static double later(double a, double b) { return a > b ? a : b; }

static place *place_of(const replay *r, const runner *k, int stage, int micro) {
    return &k->place[(size_t)(stage / r->l->ranks) * (size_t)r->l->micros + (size_t)micro];
}

static fifo *fifo_of(const replay *r, int rank, const message *m) {
    return &r->fifo[pipeline_fifo(r->l, m->sends ? rank : m->peer, m->sends ? m->peer : rank, m->kind)];
}

// --- the start -------------------------------------------------------------------------------------------------------

static void *array(size_t count, size_t size) { return calloc(count ? count : 1, size); }

static bool fifo_allocate(fifo *f) {
    size_t n = (size_t)f->count;
    f->send = array(n, sizeof *f->send), f->receive = array(n, sizeof *f->receive);
    f->send_posted = array(4 * n, sizeof *f->send_posted);
    if (!f->send || !f->receive || !f->send_posted) return false;
    f->receive_posted = f->send_posted + n, f->sent_at = f->receive_posted + n, f->taken_at = f->sent_at + n;
    return true;
}

static bool allocate(replay *r, const unit_table *tables, timeline *out) {
    const pipeline_layout *l = r->l;
    int p = l->ranks;
    *out = (timeline){.ranks = p, .rank = array((size_t)p, sizeof *out->rank)};
    r->fifo = array(4 * (size_t)p, sizeof *r->fifo);
    r->rank = array((size_t)p, sizeof *r->rank);
    if (!out->rank || !r->fifo || !r->rank) return false;
    for (int i = 0; i < p; i++) {
        runner *k = &r->rank[i];
        const unit_table *t = &tables[i];
        *k = (runner){.table = t, .out = &out->rank[i]};
        k->out->bar = array((size_t)t->units, sizeof *k->out->bar);
        k->place = array((size_t)l->chunks * (size_t)l->micros, sizeof *k->place);
        k->number = array((size_t)t->messages, sizeof *k->number);
        k->buffer_free = array((size_t)t->units, sizeof *k->buffer_free);
        if (!k->out->bar || !k->place || !k->number || !k->buffer_free) return false;
        for (int n = 0; n < t->messages; n++) {
            fifo *f = fifo_of(r, i, &t->message[n]);
            if (t->message[n].sends) f->send_count++;
            else f->receive_count++;
        }
    }
    for (int i = 0; i < 4 * p; i++) {
        fifo *f = &r->fifo[i];
        f->count = f->send_count > f->receive_count ? f->send_count : f->receive_count;
        if (!fifo_allocate(f)) return false;
        f->send_count = f->receive_count = 0;
    }
    return true;
}

static void release(replay *r) {
    for (int i = 0; r->fifo && i < 4 * r->l->ranks; i++) {
        free(r->fifo[i].send);
        free(r->fifo[i].receive);
        free(r->fifo[i].send_posted);
    }
    for (int i = 0; r->rank && i < r->l->ranks; i++) {
        free(r->rank[i].place);
        free(r->rank[i].number);
        free(r->rank[i].buffer_free);
    }
    free(r->fifo);
    free(r->rank);
}

// When the buffers that a unit fills are free does not follow from the messages' `after`, but from who had them before.
static err_t find_free(replay *r, int rank) {
    runner *k = &r->rank[rank];
    const unit_table *t = k->table;
    size_t buffers = (size_t)t->slots + (size_t)t->gradients;
    int *holder = array(buffers, sizeof *holder);
    if (!holder) return err_set(ERR_INTERNAL, "no memory to run a pipeline's tables");
    for (size_t b = 0; b < buffers; b++) holder[b] = -1;
    for (int u = 0; u < t->units; u++) {
        const unit *x = &t->unit[u];
        if (x->kind == UNIT_BACKWARD || x->kind == UNIT_WEIGHTS) place_of(r, k, x->stage, x->micro)->last = u;
    }
    for (int u = 0; u < t->units; u++) {
        const unit *x = &t->unit[u];
        int last = place_of(r, k, x->stage, x->micro)->last;
        k->buffer_free[u] = -1;
        if (x->kind == UNIT_FORWARD) {
            k->buffer_free[u] = holder[x->slot];
            holder[x->slot] = last;
        } else if (x->kind != UNIT_WEIGHTS) {
            bool received = x->receive >= 0, kept = x->gradient_out >= 0 && x->send < 0;
            if (received)
                k->buffer_free[u] = holder[t->slots + x->gradient_in], holder[t->slots + x->gradient_in] = last;
            int *out = kept ? &holder[t->slots + x->gradient_out] : NULL;
            if (out && *out > k->buffer_free[u]) k->buffer_free[u] = *out;
            if (out) *out = place_of(r, k, x->stage - 1, x->micro)->last;
        }
    }
    free(holder);
    return ERR_OK;
}

static err_t connect(replay *r) {
    for (int rank = 0; rank < r->l->ranks; rank++) {
        const unit_table *t = r->rank[rank].table;
        TRY(find_free(r, rank));
        for (int i = 0; i < t->messages; i++) {
            const message *m = &t->message[i];
            fifo *f = fifo_of(r, rank, m);
            f->from = m->sends ? rank : m->peer, f->to = m->sends ? m->peer : rank;
            r->rank[rank].number[i] = m->sends ? f->send_count : f->receive_count;
            if (m->sends) f->send[f->send_count++] = m;
            else f->receive[f->receive_count++] = m;
        }
    }
    for (int i = 0; i < 4 * r->l->ranks; i++) {
        const fifo *f = &r->fifo[i];
        char a[MESSAGE_TEXT], b[MESSAGE_TEXT];
        for (int n = 0; n < f->count; n++) {
            const message *s = n < f->send_count ? f->send[n] : NULL, *v = n < f->receive_count ? f->receive[n] : NULL;
            if (s && v && s->kind == v->kind && s->stage == v->stage && s->micro == v->micro) continue;
            return err_set(
                ERR_INTERNAL,
                "message %d of a FIFO: rank %d does `%s`, rank %d does `%s`: expected the same order at both ends", n,
                f->from, s ? message_text(s, a) : "nothing", f->to, v ? message_text(v, b) : "nothing");
        }
    }
    return ERR_OK;
}

// --- messages go on --------------------------------------------------------------------------------------------------

// The unit after which a receive is posted: the table's word, and not before its buffer is free.
static int posted_after(const runner *k, const message *m) {
    int freed = k->buffer_free[m->unit];
    return m->sends || m->after > freed ? m->after : freed;
}

static void post(const runner *k, const message **m, int count, int *posted, double *at) {
    for (int after; *posted < count && (after = posted_after(k, m[*posted])) < k->done; ++*posted) {
        double t = after < 0 ? 0 : k->out->bar[after].end;
        at[*posted] = *posted ? later(at[*posted - 1], t) : t;
    }
}

static bool fifo_goes_on(replay *r, fifo *f) {
    int depth = r->costs->depth, before = f->sent + f->taken;
    double transfer = r->costs->transfer;
    if (!f->count) return false;
    post(&r->rank[f->from], f->send, f->send_count, &f->sends_posted, f->send_posted);
    post(&r->rank[f->to], f->receive, f->receive_count, &f->receives_posted, f->receive_posted);
    for (bool goes = true; goes;) {
        goes = false;
        int n = f->sent;
        bool room = depth ? n < depth || n - depth < f->taken : n < f->receives_posted;
        if (n < f->sends_posted && room) {
            double start = n ? later(f->send_posted[n], f->sent_at[n - 1]) : f->send_posted[n];
            if (!depth) start = later(start, f->receive_posted[n]);
            else if (n >= depth) start = later(start, f->taken_at[n - depth]);
            f->sent_at[n] = start + transfer;
            f->sent++, goes = true;
        }
        n = f->taken;
        if (n < f->sent && n < f->receives_posted) {
            double t = later(f->sent_at[n], f->receive_posted[n]);
            f->taken_at[n] = n ? later(t, f->taken_at[n - 1]) : t;
            f->taken++, goes = true;
        }
    }
    return f->sent + f->taken > before;
}

// --- units go on -----------------------------------------------------------------------------------------------------

// What the next unit of a rank waits for. Text is made of it only where nothing goes on.
typedef struct want {
    enum { WANT_NOTHING, WANT_UNIT, WANT_BUFFER, WANT_MESSAGE } kind;
    double until;  // WANT_NOTHING: from then on it can run
    unit unit;     // of its own, which comes later in the table
    int index;     // WANT_BUFFER: the own unit after which it is free. WANT_MESSAGE: of the table
} want;

static void want_unit(want *w, unit_kind kind, int stage, int micro) {
    w->kind = WANT_UNIT, w->unit = (unit){.kind = kind, .stage = stage, .micro = micro};
}

static void want_message(const replay *r, int rank, int index, want *w) {
    const runner *k = &r->rank[rank];
    const message *m = &k->table->message[index];
    const fifo *f = fifo_of(r, rank, m);
    int n = k->number[index];
    if (n < (m->sends ? f->sent : f->taken)) w->until = later(w->until, m->sends ? f->sent_at[n] : f->taken_at[n]);
    else w->kind = WANT_MESSAGE, w->index = index;
}

// What is made on the rank itself.
static void want_here(const replay *r, int rank, const unit *u, want *w) {
    const runner *k = &r->rank[rank];
    const place *own = place_of(r, k, u->stage, u->micro);
    int before = u->kind == UNIT_FORWARD ? u->stage - 1 : u->stage + 1;
    bool there = before >= 0 && before < pipeline_stages(r->l) && pipeline_rank_of(r->l, before) == rank;
    const place *other = there ? place_of(r, k, before, u->micro) : NULL;
    if (u->kind == UNIT_WEIGHTS) {
        if (!own->inputs) want_unit(w, UNIT_INPUTS, u->stage, u->micro);
    } else if (u->kind == UNIT_FORWARD) {
        if (other && !other->forward) want_unit(w, UNIT_FORWARD, before, u->micro);
    } else if (!own->forward) {
        want_unit(w, UNIT_FORWARD, u->stage, u->micro);
    } else if (other && !other->inputs) {
        want_unit(w, u->kind, before, u->micro);
    }
}

static want want_of(const replay *r, int rank) {
    const runner *k = &r->rank[rank];
    const unit *u = &k->table->unit[k->done];
    want w = {.until = k->done ? k->out->bar[k->done - 1].end : 0};
    want_here(r, rank, u, &w);
    if (!w.kind && k->buffer_free[k->done] >= k->done) w.kind = WANT_BUFFER, w.index = k->buffer_free[k->done];
    if (!w.kind && u->receive >= 0) want_message(r, rank, u->receive, &w);
    if (!w.kind && u->reuse >= 0) want_message(r, rank, u->reuse, &w);
    return w;
}

// dst = "its own later unit `forward 1.0`". Returns the rank that is waited for.
static int want_text(const replay *r, int rank, const want *w, char dst[WANT_TEXT]) {
    const unit_table *t = r->rank[rank].table;
    char one[MESSAGE_TEXT];
    if (w->kind == WANT_MESSAGE) {
        snprintf(dst, WANT_TEXT, "`%s`", message_text(&t->message[w->index], one));
        return t->message[w->index].peer;
    }
    const unit *u = w->kind == WANT_UNIT ? &w->unit : &t->unit[w->index];
    snprintf(dst, WANT_TEXT, "%sits own later unit `%s`", w->kind == WANT_BUFFER ? "a buffer that is free after " : "",
             unit_text(u, one));
    return rank;
}

static void run_unit(replay *r, int rank, double start) {
    runner *k = &r->rank[rank];
    const unit *u = &k->table->unit[k->done];
    double time = r->costs->unit[u->stage][u->kind];
    place *at = place_of(r, k, u->stage, u->micro);
    k->out->bar[k->done++] = (timeline_bar){start, start + time, u->kind, u->stage, u->micro};
    k->out->bars = k->done;
    k->out->busy += time;
    if (u->kind == UNIT_FORWARD) {
        at->forward = true;
        if (++k->held > k->out->held) k->out->held = k->held;
    } else if (u->kind != UNIT_WEIGHTS) {
        at->inputs = true;
    }
    if (u->kind == UNIT_BACKWARD || u->kind == UNIT_WEIGHTS) k->held--;
}

static bool rank_goes_on(replay *r, int rank) {
    runner *k = &r->rank[rank];
    int before = k->done;
    while (k->done < k->table->units) {
        want w = want_of(r, rank);
        if (w.kind) break;
        run_unit(r, rank, w.until);
    }
    return k->done > before;
}

// --- the end ---------------------------------------------------------------------------------------------------------

// From the first rank that waits to the one it waits for, and so on, until one comes again.
static err_t stuck(replay *r) {
    int rank = 0, n = 0;
    char text[ERR_TEXT - 64] = "", unit[UNIT_TEXT], what[WANT_TEXT];
    while (rank < r->l->ranks && r->rank[rank].done == r->rank[rank].table->units) rank++;
    for (int steps = 0; steps < r->l->ranks; steps++) {
        runner *k = &r->rank[rank];
        if (k->done == k->table->units || k->told) break;
        want w = want_of(r, rank);
        int next = want_text(r, rank, &w, what);
        n += snprintf(text + n, sizeof text - (size_t)n, "%srank %d waits in `%s` for %s", n ? "; " : "", rank,
                      unit_text(&k->table->unit[k->done], unit), what);
        if (n >= (int)sizeof text) break;
        k->told = true;
        rank = next;
    }
    return err_set(ERR_INTERNAL, "a pipeline's tables never end: %s", text);
}

// A slot's output has left before the slot is free.
static err_t check_outputs(const replay *r, int rank) {
    const runner *k = &r->rank[rank];
    char one[MESSAGE_TEXT];
    for (int i = 0; i < k->table->messages; i++) {
        const message *m = &k->table->message[i];
        if (!m->sends || m->kind != MESSAGE_ACTIVATIONS) continue;
        const unit *u = &k->table->unit[m->unit];
        if (fifo_of(r, rank, m)->sent_at[k->number[i]] > k->out->bar[place_of(r, k, u->stage, u->micro)->last].end)
            return err_set(ERR_INTERNAL, "rank %d: `%s` has not left when its slot is free", rank,
                           message_text(m, one));
    }
    return ERR_OK;
}

static err_t run(replay *r, timeline *out) {
    TRY(connect(r));
    for (bool goes = true; goes;) {
        goes = false;
        for (int i = 0; i < r->l->ranks; i++) {
            for (int n = 0; n < 4; n++) goes |= fifo_goes_on(r, &r->fifo[4 * i + n]);
            goes |= rank_goes_on(r, i);
        }
    }
    double busy = 0;
    for (int i = 0; i < r->l->ranks; i++) {
        if (r->rank[i].done < r->rank[i].table->units) return stuck(r);
        TRY(check_outputs(r, i));
        const timeline_rank *k = &out->rank[i];
        out->makespan = later(out->makespan, k->bars ? k->bar[k->bars - 1].end : 0);
        busy += k->busy;
    }
    for (int i = 0; i < r->l->ranks; i++) out->rank[i].idle = 1 - out->rank[i].busy / out->makespan;
    out->idle = 1 - busy / (out->makespan * r->l->ranks);
    return ERR_OK;
}

err_t timeline_run(const pipeline_layout *l, const unit_table *tables, const timeline_costs *c, timeline *out) {
    replay r = {.l = l, .costs = c};
    *out = (timeline){0};
    TRY(pipeline_check(l));
    err_t rc = allocate(&r, tables, out) ? run(&r, out) : err_set(ERR_INTERNAL, "no memory to run a pipeline's tables");
    release(&r);
    if (rc != ERR_OK) timeline_free(out);
    return rc;
}

err_t timeline_of(const pipeline_layout *l, const timeline_costs *c, timeline *out) {
    *out = (timeline){0};
    TRY(pipeline_check(l));
    unit_table *tables = calloc((size_t)l->ranks, sizeof *tables);
    if (!tables) return err_set(ERR_INTERNAL, "no memory for a pipeline's tables");
    err_t rc = ERR_OK;
    for (int i = 0; i < l->ranks && rc == ERR_OK; i++) rc = pipeline_units(l, i, &tables[i]);
    if (rc == ERR_OK) rc = timeline_run(l, tables, c, out);
    for (int i = 0; i < l->ranks; i++) unit_table_free(&tables[i]);
    free(tables);
    return rc;
}

void timeline_free(timeline *t) {
    for (int i = 0; t->rank && i < t->ranks; i++) free(t->rank[i].bar);
    free(t->rank);
    *t = (timeline){0};
}

// --- the drawing -----------------------------------------------------------------------------------------------------

typedef struct pen {
    char *dst;
    size_t room, length;
} pen;

static void draw(pen *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void draw(pen *p, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    bool fits = p->length < p->room;
    int n = vsnprintf(fits ? p->dst + p->length : NULL, fits ? p->room - p->length : 0, fmt, ap);
    va_end(ap);
    if (n > 0) p->length += (size_t)n;
}

static char bar_text(const timeline_bar *b) {
    char first = b->kind == UNIT_FORWARD ? '0' : b->kind == UNIT_WEIGHTS ? 'A' : 'a';
    return (char)(first + b->micro % 10);
}

size_t timeline_draw(const timeline *t, double column, char *dst, size_t room) {
    pen p = {dst, room, 0};
    char label[32];
    if (room) dst[0] = 0;
    int digits = snprintf(label, sizeof label, "%d", t->ranks - 1),
        width = TIMELINE_WIDTH - (int)strlen("rank   ") - digits;
    double columns = t->makespan / column;
    if (columns > (double)width * TIMELINE_FOLDS) {
        column = t->makespan / width;
        draw(&p, "one column = %.4g\n", column);
        columns = width;
    }
    int all = (int)(columns + 0.999);
    for (int from = 0; from < all; from += width) {
        int to = from + width < all ? from + width : all;
        if (from) draw(&p, "\n");
        for (int i = 0; i < t->ranks; i++) {
            const timeline_rank *k = &t->rank[i];
            draw(&p, "rank %*d  ", digits, i);
            for (int c = from, b = 0; c < to; c++) {
                double at = (c + 0.5) * column;
                while (b < k->bars && k->bar[b].end <= at) b++;
                draw(&p, "%c", b < k->bars && k->bar[b].start <= at ? bar_text(&k->bar[b]) : '.');
            }
            draw(&p, "\n");
        }
    }
    return p.length;
}
