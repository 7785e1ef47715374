// trainer/checkpoint/vault_share.c: what ranks have of each other's. Where there are several nodes, each rank's
// snapshot goes to the next one, too; and when ranks were lost, what a rank needs comes from whichever node has it.
//
// All ranks see what every node has (pieces) and what every rank needs (needs), so that all find the same step, and the
// same messages, without asking again.
#include "trainer/checkpoint/vault_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- to the next node ------------------------------------------------------------------------------------------------

static int ranks_of_node(const comm *c, int node) {
    return vault_first_of_node(c, node + 1) - vault_first_of_node(c, node);
}

int vault_keeper(const comm *c, int r) {
    if (comm_nodes(c) == 1) return (r + 1) % c->world;
    comm_spot at = comm_where(c, r);
    int next = (at.node + 1) % comm_nodes(c);
    return vault_first_of_node(c, next) + at.local % ranks_of_node(c, next);
}

int vault_keeps(const comm *c) {
    int n = 0, nodes = comm_nodes(c), before = (comm_where(c, c->rank).node + nodes - 1) % nodes;
    if (nodes == 1) return 0;
    for (int r = vault_first_of_node(c, before); r < vault_first_of_node(c, before + 1); r++)
        n += vault_keeper(c, r) == c->rank;
    return n;
}

// A generation but for its step, which says that the rest is there.
enum { STEP_BYTES = sizeof(int64_t) };
static comm_part body(int peer, const vault_area *a) {
    return (comm_part){peer, a->at + STEP_BYTES, a->bytes - STEP_BYTES};
}

typedef struct kept {
    int from, place, generation;
    int64_t bytes;
    vault_area *area;
} kept;

static err_t prepare(vault *v, kept *k, int64_t step) {
    vault_area *both = k->area;
    for (int g = 0; g < GENERATIONS; g++) TRY(vault_look(&both[g], v, k->place, g));
    k->generation = vault_to_overwrite(both, step);
    TRY(vault_make_room(&both[k->generation], v, k->place, k->generation, (size_t)k->bytes));
    atomic_store(&vault_head_of(&both[k->generation])->step, -1);
    k->area = &both[k->generation];
    return ERR_OK;
}

static err_t exchange(vault *v, comm *c, stream *s, vault_area *mine, kept *from, comm_part *recv) {
    int to = vault_keeper(c, c->rank), n = v->copies;
    int64_t bytes = (int64_t)mine->bytes, step = atomic_load(&vault_head_of(mine)->step);
    err_t rc = ERR_OK;
    for (int i = 0; i < n; i++) recv[i] = (comm_part){from[i].from, &from[i].bytes, sizeof from[i].bytes};
    TRY(c->table->exchange(c, &(comm_part){to, &bytes, sizeof bytes}, 1, recv, n, s));
    TRY(stream_wait(s));
    for (int i = 0; rc == ERR_OK && i < n; i++) rc = prepare(v, &from[i], step);
    TRY(comm_agree_ok(c, rc, s));
    fault_kill(v->faults, FAULT_MIRROR);
    for (int i = 0; i < n; i++) recv[i] = body(from[i].from, from[i].area);
    comm_part send = body(to, mine);
    TRY(c->table->exchange(c, &send, 1, recv, n, s));
    TRY(stream_wait(s));
    fault_kill(v->faults, FAULT_MIRROR);
    for (int i = 0; i < n; i++)
        if (vault_is_sound(from[i].area, v->damage)) atomic_store(&vault_head_of(from[i].area)->step, step);
    return ERR_OK;
}

err_t vault_mirror(vault *v, comm *c, stream *s) {
    if (comm_nodes(c) == 1) return ERR_OK;
    int n = vault_keeps(c);
    if (!v->copy) v->copies = n, v->copy = calloc((size_t)n * GENERATIONS + 1, sizeof *v->copy);
    kept *from = calloc((size_t)n + 1, sizeof *from);
    comm_part *recv = calloc((size_t)n + 1, sizeof *recv);
    err_t rc = v->copy && from && recv ? ERR_OK : err_set(ERR_INTERNAL, "no memory for the snapshots of %d ranks", n);
    for (int r = 0, i = 0; rc == ERR_OK && r < c->world; r++)
        if (vault_keeper(c, r) == c->rank)
            from[i] = (kept){.from = r, .place = VAULT_COPIES + c->place[r].local, .area = &v->copy[i * GENERATIONS]},
            i++;
    rc = comm_agree_ok(c, rc, s);
    if (rc == ERR_OK) rc = exchange(v, c, s, &v->own[v->newest], from, recv);
    free(from), free(recv);
    return rc;
}

// --- what there is ---------------------------------------------------------------------------------------------------

// Of the generations of a node each of its ranks looks at every so-manyth: their sums take time.
static err_t list_pieces(vault_list *l, const vault *v, const vault_set *x, const comm *c, const vault_recall *r) {
    const comm_place *me = &c->place[c->rank];
    int most = 0, ranks = ranks_of_node(c, me->node), node = me->node;
    for (int i = 0; i < x->count; i++) most += vault_head_at(x, i)->parts;
    *l = (vault_list){.at = calloc((size_t)most + 1, sizeof *l->at)};
    if (!l->at) return err_set(ERR_INTERNAL, "no memory for an inventory of %d parts", most);
    for (int i = me->local; i < x->count; i += ranks) {
        vault_head *h = vault_head_at(x, i);
        int64_t step = atomic_load(&h->step);
        if (step < r->first || (h->live && step != r->live)) continue;
        for (const vault_part *p = vault_parts(h), *end = p + h->parts; p < end; p++)
            if (p->count && vault_part_is_sound(&x->area[i], (int)(p - vault_parts(h)), v->damage))
                l->at[l->n++] = (vault_piece){p->group, p->tensor, node,      h->live, step,  p->first,
                                              p->count, i,         p->offset, p->of,   p->sum};
    }
    return ERR_OK;
}

static err_t list_needs(vault_list *l, const ckpt_state *s, int rank) {
    *l = (vault_list){.at = calloc((size_t)(s->groups * s->params) + 2, sizeof *l->at)};
    if (!l->at) return err_set(ERR_INTERNAL, "no memory for a list of %d tensors", s->groups * s->params);
    for (int g = 0; g < s->groups; g++)
        for (int i = 0; i < s->params; i++) {
            const ckpt_tensor *t = &s->group[g].tensor[i];
            if (t->count)
                l->at[l->n++] =
                    (vault_piece){.group = g, .tensor = i, .owner = rank, .first = t->first, .count = t->count};
        }
    if (!vault_rows_owns(s)) return ERR_OK;
    const vault_range r = vault_rows_range(s);
    l->at[l->n++] = (vault_piece){.group = r.group, .owner = rank, .first = r.first, .count = r.count};
    return ERR_OK;
}

// all (=) what all ranks have in theirs, in the order of the ranks.
static err_t gather(vault_list *all, const vault_list *mine, comm *c, stream *s) {
    size_t world = (size_t)c->world;
    int64_t *n = calloc(world, sizeof *n);
    size_t *cut = calloc(world + 1, sizeof *cut);
    err_t rc =
        comm_agree_ok(c, n && cut ? ERR_OK : err_set(ERR_INTERNAL, "no memory for lists of %zu ranks", world), s);
    for (size_t r = 0; rc == ERR_OK && r < world; r++) cut[r + 1] = cut[r] + sizeof *n;
    if (rc == ERR_OK) n[c->rank] = mine->n, rc = c->table->all_gather(c, n, cut, s);
    if (rc == ERR_OK) rc = stream_wait(s);
    for (size_t r = 0; rc == ERR_OK && r < world; r++) cut[r + 1] = cut[r] + (size_t)n[r] * sizeof *all->at;
    if (rc == ERR_OK) {
        *all = (vault_list){calloc(1, cut[world] + 1), (int)(cut[world] / sizeof *all->at)};
        rc = comm_agree_ok(c, all->at ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a list of %zu bytes", cut[world]),
                           s);
    }
    if (rc == ERR_OK && mine->n) memcpy((char *)all->at + cut[c->rank], mine->at, (size_t)mine->n * sizeof *all->at);
    if (rc == ERR_OK) rc = c->table->all_gather(c, all->at, cut, s);
    if (rc == ERR_OK) rc = stream_wait(s);
    free(n), free(cut);
    return rc;
}

// --- bringing it -----------------------------------------------------------------------------------------------------

typedef struct moves {
    comm_part *send, *recv;
    int sends, recvs, room;
} moves;

static bool add(comm_part **to, int *n, moves *m, comm_part part) {
    if (*n == m->room) {
        int room = m->room ? 2 * m->room : 256;
        comm_part *send = realloc(m->send, (size_t)room * sizeof *send);
        if (send) m->send = send;
        comm_part *recv = send ? realloc(m->recv, (size_t)room * sizeof *recv) : NULL;
        if (recv) m->recv = recv;
        if (!recv) return false;
        m->room = room;
    }
    (*to)[(*n)++] = part;
    return true;
}

// One rank's need: what its own node has is copied, the rest comes from the first rank of the node that has it.
static bool bring(moves *m, const ckpt_state *s, const vault_set *x, const vault_list *of, const vault_piece *need,
                  int64_t step) {
    const comm *c = s->ranks->host;
    int node = c->place[need->owner].node;
    const ckpt_tensor *t = &s->group[need->group].tensor[need->tensor];
    for (int64_t at = need->first, end = need->first + need->count, n; at < end; at += n) {
        const vault_piece *p = vault_holder(of, need, step, at, node);
        n = p->first + p->count - at < end - at ? p->first + p->count - at : end - at;
        int from = vault_first_of_node(c, p->owner);
        size_t bytes = (size_t)n * sizeof(float);
        bool here = p->owner == c->place[c->rank].node, takes = need->owner == c->rank;
        char *src = here ? x->area[p->area].at + p->offset + (size_t)(at - p->first) * sizeof(float) : NULL;
        float *dst = takes ? t->data + (at - t->first) : NULL;
        bool ok = true;
        if (p->owner == node) {
            if (takes) memcpy(dst, src, bytes);
        } else if (takes) ok = add(&m->recv, &m->recvs, m, (comm_part){from, dst, bytes});
        else if (from == c->rank) ok = add(&m->send, &m->sends, m, (comm_part){need->owner, src, bytes});
        if (!ok) return false;
    }
    return true;
}

static err_t bring_all(const ckpt_state *s, const vault_set *x, const vault_list *of, const vault_list *needs,
                       int64_t step) {
    comm *c = s->ranks->host;
    moves m = {0};
    bool ok = true;
    for (int i = 0; ok && i < needs->n; i++)
        ok = needs->at[i].group == VAULT_ROWS || bring(&m, s, x, of, &needs->at[i], step);
    err_t rc = comm_agree_ok(c, ok ? ERR_OK : err_set(ERR_INTERNAL, "no memory for the moves of a snapshot"), s->s);
    if (rc == ERR_OK) rc = c->table->exchange(c, m.send, m.sends, m.recv, m.recvs, s->s);
    if (rc == ERR_OK) rc = stream_wait(s->s);
    free(m.send), free(m.recv);
    return rc;
}

// Counters and scalars are the same in every generation of a step: those of the first node that has one.
static err_t bring_rest(ckpt_state *s, const vault_set *x, const vault_piece *of, run_progress *at, vault_recall *r) {
    comm *c = s->ranks->host;
    int root = vault_first_of_node(c, of->owner);
    int64_t bytes = c->rank == root ? (int64_t)vault_values(vault_head_at(x, (int)of->area)) : 0;
    TRY(comm_agree_max(c, &bytes, s->s));
    vault_head *h = malloc((size_t)bytes);
    err_t rc = comm_agree_ok(c, h ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a snapshot's counters"), s->s);
    if (rc == ERR_OK && c->rank == root) memcpy((void *)h, x->area[of->area].at, (size_t)bytes);
    if (rc == ERR_OK) rc = c->table->broadcast(c, h, (size_t)bytes, root, s->s);
    if (rc == ERR_OK) rc = stream_wait(s->s);
    if (rc == ERR_OK) vault_read_rest(h, s, at, &r->saved), r->is_live = h->live;
    free(h);
    return rc;
}

static const vault_piece *first_at(const vault_list *of, int64_t step) {
    const vault_piece *p = of->at;
    while (p->step != step) p++;
    return p;
}

static err_t gather_both(const vault *v, ckpt_state *s, const vault_set *x, const vault_recall *r, vault_list *of,
                         vault_list *needs) {
    comm *c = s->ranks->host;
    vault_list has = {0}, wants = {0};
    err_t rc = list_pieces(&has, v, x, c, r);
    if (rc == ERR_OK) rc = list_needs(&wants, s, c->rank);
    rc = comm_agree_ok(c, rc, s->s);
    if (rc == ERR_OK) rc = gather(of, &has, c, s->s);
    if (rc == ERR_OK) rc = gather(needs, &wants, c, s->s);
    free(has.at), free(wants.at);
    return rc;
}

// What is newer than the step from which all go on is not whole, or wrong: it must not stand in for an older one, and
// steps to come may have other values.
static err_t forget(const vault *v, const ckpt_state *s, int64_t after) {
    const comm *c = s->ranks->host;
    return c->place[c->rank].local == 0 ? vault_forget(v, after) : ERR_OK;
}

static void name_torn(vault_recall *r, const vault_piece *torn, const ckpt_state *s) {
    snprintf(r->torn, sizeof r->torn, "%s", s->group[torn->group].tensor[torn->tensor].name);
}

err_t vault_gather(const vault *v, ckpt_state *s, vault_recall *r, run_progress *at) {
    vault_set x;
    vault_list of = {0}, needs = {0};
    r->step = -1, r->is_live = false, r->torn[0] = 0;
    err_t rc = comm_agree_ok(s->ranks->host, vault_open_set(&x, v), s->s);
    if (rc == ERR_OK) rc = gather_both(v, s, &x, r, &of, &needs);
    if (rc == ERR_OK) {
        vault_sort(&of);
        vault_chosen chosen = vault_choose(&of, &needs);
        r->step = chosen.step;
        if (chosen.torn) name_torn(r, chosen.torn, s);
    }
    fault_kill(v->faults, FAULT_GATHER);
    if (rc == ERR_OK && r->step >= 0) rc = bring_all(s, &x, &of, &needs, r->step);
    if (rc == ERR_OK && r->step >= 0) rc = vault_rows_bring(s, &x, &of, &needs, r->step);
    fault_kill(v->faults, FAULT_GATHER);
    if (rc == ERR_OK && r->step >= 0) rc = bring_rest(s, &x, first_at(&of, r->step), at, r);
    if (rc == ERR_OK && r->step >= 0) rc = comm_agree_ok(s->ranks->host, forget(v, s, r->step), s->s);
    vault_close_set(&x);
    free(of.at), free(needs.at);
    return rc;
}
