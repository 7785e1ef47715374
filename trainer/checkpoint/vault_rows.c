// trainer/checkpoint/vault_rows.c: see trainer/checkpoint/vault_rows.h.
#include "trainer/checkpoint/vault_rows.h"

#include "comm/server/table.h"
#include "trainer/checkpoint/manifest.h"

#include <stdlib.h>
#include <string.h>

enum { BEAT = 4096 };  // rows between two signs of life

// --- writing ---------------------------------------------------------------------------------------------------------

bool vault_rows_owns(const ckpt_state *s) { return s->rows && row_table_about(s->rows)->buckets > 0; }

vault_range vault_rows_range(const ckpt_state *s) {
    const row_options *o = row_table_about(s->rows);
    return (vault_range){.group = VAULT_ROWS, .first = o->first, .count = o->buckets};
}

// Of a row in a snapshot: its key, its sum, its values.
static size_t record_bytes(const row_table *t) {
    return sizeof(row_key) + (1 + (size_t)row_table_about(t)->width) * sizeof(float);
}

static size_t start_bytes(int64_t buckets) { return (size_t)(buckets + 1) * sizeof(int64_t); }

int64_t vault_rows_bytes(const ckpt_state *s) {
    return (int64_t)start_bytes(row_table_about(s->rows)->buckets) +
           row_table_rows(s->rows) * (int64_t)record_bytes(s->rows);
}

// Up to the next eighth of a power of two.
int64_t vault_rows_room(const ckpt_state *s) {
    int64_t bytes = vault_rows_bytes(s), eighth = 1 << 12;
    while (16 * eighth <= bytes) eighth *= 2;
    return (bytes + eighth - 1) / eighth * eighth;
}

err_t vault_rows_write(const ckpt_state *s, char *to) {
    const row_options *o = row_table_about(s->rows);
    int64_t *start = (int64_t *)(void *)to;
    char *rows = to + start_bytes(o->buckets), *at = rows;
    row_walk w;
    int b = 0;
    int64_t n = 0;
    row_table_begin(s->rows, o->first, &w);
    while (row_table_next(s->rows, &w)) {
        for (; b <= row_bucket(w.key) - o->first; b++) start[b] = at - rows;
        memcpy(at, &w.key, sizeof w.key), at += sizeof w.key;
        memcpy(at, w.sum, sizeof *w.sum), at += sizeof *w.sum;
        memcpy(at, w.row, (size_t)o->width * sizeof *w.row), at += (size_t)o->width * sizeof *w.row;
        if (++n % BEAT == 0) ckpt_beat(&s->pulse);
    }
    for (; b <= o->buckets; b++) start[b] = at - rows;
    return w.rc;
}

// --- bringing it -----------------------------------------------------------------------------------------------------

// Buckets that follow each other, which one rank needs and one node has.
typedef struct run {
    int from, to;
    bool comes;  // over a connection, to this rank
    char *rows;  // where they are; of a run that comes, memory of its own
    int64_t bytes;
} run;

typedef struct runs {
    run *at;
    int n, room;
    comm_part *send, *recv;
} runs;

static bool add_run(runs *x, run r) {
    if (x->n == x->room) {
        int room = x->room ? 2 * x->room : 64;
        run *more = realloc(x->at, (size_t)room * sizeof *more);
        if (!more) return false;
        x->at = more, x->room = room;
    }
    return x->at[x->n++] = r, true;
}

// Buckets at .. at+n-1 of a piece that is in this node's file.
static run here(const vault_set *x, const vault_piece *p, int64_t at, int64_t n) {
    char *part = x->area[p->area].at + p->offset;
    const int64_t *start = (const int64_t *)(const void *)part + (at - p->first);
    return (run){.rows = part + start_bytes(p->count) + start[0], .bytes = start[n] - start[0]};
}

// The runs that this rank reads, or sends.
static bool list_runs(runs *to, const ckpt_state *s, const vault_set *x, const vault_list *of, const vault_list *needs,
                      int64_t step) {
    const comm *c = s->ranks->host;
    const int me = c->place[c->rank].node;
    for (const vault_piece *need = needs->at; need < needs->at + needs->n; need++) {
        const int node = c->place[need->owner].node;
        for (int64_t at = need->first, end = at + need->count, n; need->group == VAULT_ROWS && at < end; at += n) {
            const vault_piece *p = vault_holder(of, need, step, at, node);
            const int from = p->owner == node ? need->owner : vault_first_of_node(c, p->owner);
            n = p->first + p->count < end ? p->first + p->count - at : end - at;
            if (need->owner != c->rank && from != c->rank) continue;
            run r = p->owner == me ? here(x, p, at, n) : (run){.comes = true};
            r.from = from, r.to = need->owner;
            if (!add_run(to, r)) return false;
        }
    }
    return true;
}

// Of each run that goes from one node to another, so many bytes at `what`.
static err_t exchange(const ckpt_state *s, runs *x, bool sizes) {
    comm *c = s->ranks->host;
    int sends = 0, recvs = 0;
    for (run *r = x->at; r < x->at + x->n; r++) {
        void *what = sizes ? (void *)&r->bytes : r->rows;
        size_t bytes = sizes ? sizeof r->bytes : (size_t)r->bytes;
        if (r->from == r->to || !bytes) continue;
        if (r->comes) x->recv[recvs++] = (comm_part){r->from, what, bytes};
        else x->send[sends++] = (comm_part){r->to, what, bytes};
    }
    TRY(c->table->exchange(c, x->send, sends, x->recv, recvs, s->s));
    return stream_wait(s->s);
}

static err_t make_room(runs *x) {
    for (run *r = x->at; r < x->at + x->n; r++)
        if (r->comes && r->bytes && !(r->rows = malloc((size_t)r->bytes)))
            return err_set(ERR_INTERNAL, "no memory for %.1f MB of rows from another node", (double)r->bytes / 1e6);
    return ERR_OK;
}

static err_t take(const ckpt_state *s, const run *r, float *values) {
    const size_t each = record_bytes(s->rows);
    int64_t n = 0;
    for (const char *at = r->rows, *end = at + r->bytes; at < end; at += each) {
        row_key k;
        memcpy(&k, at, sizeof k);
        memcpy(values, at + sizeof k, each - sizeof k);
        TRY(row_table_put(s->rows, k, values + 1, values[0]));
        if (++n % BEAT == 0) ckpt_beat(&s->pulse);
    }
    return ERR_OK;
}

static err_t take_all(const ckpt_state *s, const runs *x) {
    float *values = malloc(record_bytes(s->rows));
    if (!values) return err_set(ERR_INTERNAL, "no memory for a row");
    err_t rc = row_table_clear(s->rows);
    for (const run *r = x->at; rc == ERR_OK && r < x->at + x->n; r++)
        if (r->to == s->ranks->host->rank) rc = take(s, r, values);
    free(values);
    return rc;
}

err_t vault_rows_bring(const ckpt_state *s, const vault_set *x, const vault_list *of, const vault_list *needs,
                       int64_t step) {
    comm *c = s->ranks->host;
    runs all = {0};
    if (!s->rows) return ERR_OK;
    bool ok = list_runs(&all, s, x, of, needs, step);
    all.send = calloc((size_t)all.n + 1, sizeof *all.send), all.recv = calloc((size_t)all.n + 1, sizeof *all.recv);
    ok = ok && all.send && all.recv;
    err_t rc = comm_agree_ok(c, ok ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a list of rows to move"), s->s);
    if (rc == ERR_OK) rc = exchange(s, &all, true);
    if (rc == ERR_OK) rc = comm_agree_ok(c, make_room(&all), s->s);
    if (rc == ERR_OK) rc = exchange(s, &all, false);
    if (rc == ERR_OK) rc = comm_agree_ok(c, take_all(s, &all), s->s);
    for (run *r = all.at; r < all.at + all.n; r++)
        if (r->comes) free(r->rows);
    free(all.at), free(all.send), free(all.recv);
    return rc;
}
