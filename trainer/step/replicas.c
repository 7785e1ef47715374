// trainer/step/replicas.c: see trainer/step/replicas.h. Each rank makes a 64-bit sum of every tensor. Of these, groups
// first compare only a sum of sums: 16 bytes a rank.
#include "trainer/step/replicas.h"

#include <stdlib.h>
#include <string.h>

typedef enum { AMONG_DATA, AMONG_TENSOR, AMONGS } among;

// Tensors are numbered: row after row of the masters, then of each array, then of the weights in use; the last one is
// the step_state with its scalars.
typedef struct look {
    train_state *t;
    comm *ranks[AMONGS];  // NULL: nobody has the same
    int rows, sets, count;
    uint64_t *sum[AMONGS];  // [count]; 0: not held, or not by others
    char *room;             // for what the host can't read
    uint64_t points;        // what speaks against this rank
} look;

enum { ROOM = 1 << 20 };
static const double FARTHEST = 1e300;

// --- sums ------------------------------------------------------------------------------------------------------------

// Each step maps the sums one to one for every word and the words one to one for every sum: if one word of n changes,
// the result does. Eight chains, so that a core does one a cycle.
static uint64_t stir(uint64_t h, uint64_t word) {
    h ^= word;
    return (h << 29 | h >> 35) * 0x9e3779b97f4a7c15u;
}

static uint64_t sum_bytes(uint64_t h, const char *at, size_t n) {
    enum { CHAINS = 8 };
    uint64_t chain[CHAINS] = {h, 1, 2, 3, 4, 5, 6, 7}, word[CHAINS];
    size_t done = 0;
    for (; n - done >= sizeof word; done += sizeof word) {
        memcpy(word, at + done, sizeof word);
        for (int k = 0; k < CHAINS; k++) chain[k] = stir(chain[k], word[k]);
    }
    memset(word, 0, sizeof word);
    memcpy(word, at + done, n - done);
    for (int k = 0; k < CHAINS; k++) h = stir(h, stir(chain[k], word[k]));
    return h;
}

// Memory of the device goes through the room.
static err_t add_bytes(look *l, uint64_t *sum, const void *data, size_t bytes, bool on_host) {
    if (on_host) return *sum = sum_bytes(*sum, data, bytes), ERR_OK;
    for (size_t done = 0, n; done < bytes; done += n) {
        n = bytes - done < ROOM ? bytes - done : ROOM;
        TRY(stream_copy(l->t->s, l->room, (const char *)data + done, n));
        TRY(stream_wait(l->t->s));
        *sum = sum_bytes(*sum, l->room, n);
    }
    return ERR_OK;
}

// --- what is held ----------------------------------------------------------------------------------------------------

static store *store_at(train_state *t, int set) {
    return set == 0 ? &t->masters : set <= t->arrays ? &t->array[set - 1] : &t->weights;
}

static bool host_reads(const train_state *t, int set) {
    return device_about(t->dev)->kind == DEVICE_CPU || (t->o.offload && set <= t->arrays);
}

// The pieces that a rank holds of a store.
static const zero_piece *pieces_of(const train_state *t, const store *x, int *count) {
    *count = x->sharded ? t->zero.owned : t->zero.wholes;
    return x->sharded ? t->zero.piece : t->zero.whole;
}

static err_t sum_store(look *l, int set) {
    train_state *t = l->t;
    store *x = store_at(t, set);
    int count;
    const zero_piece *p = pieces_of(t, x, &count);
    if (set > t->arrays && x->t.data == t->masters.t.data) return ERR_OK;  // the masters are in use
    for (int i = 0; x->t.data && i < count; i++) {
        const param *row = &t->net->param[p[i].row];
        bool with[AMONGS] = {l->ranks[AMONG_DATA] && !x->sharded, l->ranks[AMONG_TENSOR] && param_slices(row) == 1};
        if (row->tied >= 0 || (!with[AMONG_DATA] && !with[AMONG_TENSOR])) continue;
        tensor part = store_view(x, &p[i]);
        uint64_t sum = 1;
        TRY(add_bytes(l, &sum, part.data, tensor_bytes(&part), host_reads(t, set)));
        for (int k = 0; k < AMONGS; k++)
            if (with[k]) l->sum[k][set * l->rows + p[i].row] = stir(l->sum[k][set * l->rows + p[i].row], sum);
    }
    return ERR_OK;
}

// What was decided of the last step alone is left out: a norm that is no number has a sign of chance.
static err_t sum_step(look *l) {
    train_state *t = l->t;
    step_state *here = malloc(tensor_bytes(&t->step));
    if (!here) return err_set(ERR_INTERNAL, "no memory for the step's counters");
    err_t rc = stream_copy(t->s, here, t->step.data, tensor_bytes(&t->step));
    if (rc == ERR_OK) rc = stream_wait(t->s);
    if (rc == ERR_OK) here->lr = 0, here->apply = 0, here->grad_factor = 0, here->grad_norm = 0;
    uint64_t sum = rc == ERR_OK ? sum_bytes(1, (const char *)here, tensor_bytes(&t->step)) : 0;
    free(here);
    TRY(rc);
    for (int k = 0; k < AMONGS; k++)
        if (l->ranks[k]) l->sum[k][l->count - 1] = sum;
    return ERR_OK;
}

// Masters and arrays in a file: the ranks of a layer have the same chunks of rows that are not divided.
static err_t sum_chunk(void *ctx, const zero_piece *p, tensor *value) {
    look *l = ctx;
    if (param_slices(&l->t->net->param[p->row]) > 1) return ERR_OK;
    for (int set = 0; set <= l->t->arrays; set++) {
        uint64_t *sum = &l->sum[AMONG_TENSOR][set * l->rows + p->row];
        *sum = stir(*sum, sum_bytes(1, value[set].data, tensor_bytes(&value[set])));
    }
    return ERR_OK;
}

static err_t sum_all(look *l) {
    for (int set = 0; set < l->sets; set++) TRY(sum_store(l, set));
    if (state_spills(l->t) && l->ranks[AMONG_TENSOR]) TRY(spilled_walk(&l->t->spilled, SPILL_READ, sum_chunk, l));
    return sum_step(l);
}

// --- who differs -----------------------------------------------------------------------------------------------------

// every[r * n ..]: rank r's of c.
static err_t gather(comm *c, const uint64_t *mine, int n, uint64_t *every, stream *s) {
    size_t cut[c->world + 1];
    for (int r = 0; r <= c->world; r++) cut[r] = (size_t)r * (size_t)n * sizeof *mine;
    memcpy(every + (size_t)c->rank * (size_t)n, mine, (size_t)n * sizeof *mine);
    TRY(c->host->table->all_gather(c->host, every, cut, s));
    return stream_wait(s);
}

// Which of n sums more than half have; -1: none.
static int most_have(const uint64_t *sum, int n) {
    for (int i = 0; i < n; i++) {
        int same = 0;
        for (int k = 0; k < n; k++) same += sum[k] == sum[i];
        if (2 * same > n) return i;
    }
    return -1;
}

// How many of a group hold the same: servers that pass weights on come last, and hold none.
static int holders(const look *l, among k) {
    const state_options *o = &l->t->o;
    return k == AMONG_DATA && o->passing ? o->workers : l->ranks[k]->world;
}

// A point where the members can't outvote each other, two where this one is outvoted.
static err_t compare_group(look *l, among k) {
    comm *c = l->ranks[k];
    if (!c) return ERR_OK;
    uint64_t every[c->world], mine = 1;
    for (int i = 0; i < l->count; i++) mine = stir(mine, l->sum[k][i]);
    TRY(gather(c, &mine, 1, every, l->t->s));
    if (c->rank >= holders(l, k)) return ERR_OK;
    int most = most_have(every, holders(l, k));
    l->points += most < 0 ? 1 : every[most] != mine ? 2 : 0;
    return ERR_OK;
}

// The weights that a server keeps, which those that have all of them have, too.
static err_t sum_kept(look *l, int server, uint64_t *sum) {
    train_state *t = l->t;
    int set = t->arrays + 1;
    const store *x = store_at(t, set);
    const zero_layout *z = &t->zero;
    *sum = 1;
    for (int g = 0; g < z->segments; g++) {
        size_t n = zero_range(z, g, server), first = z->cut[(size_t)g * (size_t)(z->world + 1) + (size_t)server];
        if (z->segment[g].tied || n == 0) continue;
        const void *at = state_at(&x->t, x->sharded ? z->shard_at[g] : z->segment[g].at + first);
        TRY(add_bytes(l, sum, at, n * dtype_bytes(x->t.type), host_reads(t, set)));
    }
    return ERR_OK;
}

// A server, and the others, which have what it has: as among those of a group.
static err_t compare_kept(look *l) {
    comm *c = l->ranks[AMONG_DATA];
    const state_options *o = &l->t->o;
    if (!c || !o->passing) return ERR_OK;
    int workers = o->workers, servers = c->world - workers;
    uint64_t mine[servers], every[c->world * servers], voice[workers + 1];
    memset(mine, 0, sizeof mine);
    for (int s = 0; s < servers; s++)
        if (c->rank < workers || c->rank == workers + s) TRY(sum_kept(l, workers + s, &mine[s]));
    TRY(gather(c, mine, servers, every, l->t->s));
    for (int s = 0; s < servers; s++) {
        if (!mine[s]) continue;
        for (int k = 0; k < workers; k++) voice[k] = every[k * servers + s];
        voice[workers] = every[(workers + s) * servers + s];
        int most = most_have(voice, workers + 1);
        l->points += most < 0 ? 1 : voice[most] != mine[s] ? 2 : 0;
    }
    return ERR_OK;
}

// Who has the most points lies.
static err_t judge(look *l, replica_verdict *v) {
    comm *all = l->t->all;
    uint64_t every[all->world], top = 0;
    TRY(gather(all, &l->points, 1, every, l->t->s));
    *v = (replica_verdict){.liar = -1, .rank = {-1, -1}};
    int n = 0;
    for (int r = 0; r < all->world; r++) top = every[r] > top ? every[r] : top;
    for (int r = 0; top && r < all->world; r++)
        if (every[r] == top && n++ < 2) v->rank[n - 1] = r;
    v->differ = top > 0;
    if (n == 1) v->liar = v->rank[0];
    return ERR_OK;
}

// --- in which tensors ------------------------------------------------------------------------------------------------

static void name_tensor(const look *l, int i, char to[REPLICA_NAME]) {
    int set = i / l->rows;
    const char *name = l->t->net->param[i % l->rows].name;
    if (i == l->count - 1) snprintf(to, REPLICA_NAME, "the step's counters");
    else if (set > l->t->arrays) snprintf(to, REPLICA_NAME, "%s in use", name);
    else snprintf(to, REPLICA_NAME, "%s%s%s", store_at(l->t, set)->name, set ? "." : "", name);
}

// Of the members of a group. Which of them is right was decided by all tensors together.
static err_t find_tensors(look *l, among k, bool *differs) {
    comm *c = l->ranks[k];
    if (!c) return ERR_OK;
    uint64_t *every = malloc((size_t)c->world * (size_t)l->count * sizeof *every);
    if (!every) return err_set(ERR_INTERNAL, "no memory for the sums of %d tensors of %d ranks", l->count, c->world);
    err_t rc = gather(c, l->sum[k], l->count, every, l->t->s);
    for (int r = 0; rc == ERR_OK && c->rank < holders(l, k) && r < holders(l, k); r++)
        for (int i = 0; i < l->count; i++) differs[i] |= every[r * l->count + i] != l->sum[k][i];
    free(every);
    return rc;
}

// The lowest suspect says it to all.
static err_t name_tensors(look *l, replica_verdict *v) {
    comm *host = l->t->all->host;
    bool *differs = calloc((size_t)l->count, sizeof *differs);
    err_t rc = differs ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a table of %d tensors", l->count);
    for (int k = 0; k < AMONGS && rc == ERR_OK; k++) rc = find_tensors(l, k, differs);
    for (int i = 0; i < l->count && rc == ERR_OK; i++)
        if (differs[i] && v->tensors++ == 0) v->index = i, name_tensor(l, i, v->tensor);
    free(differs);
    TRY(rc);
    if (!v->tensors) {
        v->tensors = 1, v->index = (l->sets - 1) * l->rows;
        snprintf(v->tensor, REPLICA_NAME, "weights that a server keeps");
    }
    TRY(host->table->broadcast(host, v, sizeof *v, v->rank[0], l->t->s));
    return stream_wait(l->t->s);
}

// --- all of it -------------------------------------------------------------------------------------------------------

static comm *several(comm *c) { return c && c->world > 1 ? c : NULL; }

static err_t open_look(look *l, train_state *t) {
    *l = (look){
        .t = t, .ranks = {several(t->ranks), several(t->o.tensor)}, .rows = t->net->params, .sets = 2 + t->arrays};
    l->count = l->sets * l->rows + 1;
    for (int k = 0; k < AMONGS; k++) {
        l->sum[k] = calloc((size_t)l->count, sizeof *l->sum[k]);
        if (!l->sum[k]) return err_set(ERR_INTERNAL, "no memory for the sums of %d tensors", l->count);
    }
    if (device_about(t->dev)->kind != DEVICE_CPU && !(l->room = malloc(ROOM)))
        return err_set(ERR_INTERNAL, "no memory to compare what ranks hold");
    return ERR_OK;
}

static void close_look(look *l) {
    for (int k = 0; k < AMONGS; k++) free(l->sum[k]);
    free(l->room);
}

err_t replicas_compare(train_state *t, replica_verdict *out) {
    look l;
    *out = (replica_verdict){.liar = -1, .rank = {-1, -1}};
    if (t->all->world == 1) return ERR_OK;
    t->all->phase.what = "compare what ranks hold";
    err_t rc = open_look(&l, t);
    if (rc == ERR_OK) rc = sum_all(&l);
    for (int k = 0; k < AMONGS && rc == ERR_OK; k++) rc = compare_group(&l, k);
    if (rc == ERR_OK) rc = compare_kept(&l);
    if (rc == ERR_OK) rc = judge(&l, out);
    if (rc == ERR_OK && out->differ) rc = name_tensors(&l, out);
    close_look(&l);
    return rc;
}

err_t replicas_sum(train_state *t, const tensor *of, int set, uint64_t *sum) {
    look l = {.t = t};
    *sum = 1;
    if (!host_reads(t, set) && !(l.room = malloc(ROOM)))
        return err_set(ERR_INTERNAL, "no memory to add up what this rank holds");
    err_t rc = add_bytes(&l, sum, of->data, tensor_bytes(of), host_reads(t, set));
    close_look(&l);
    return rc;
}

// --- of a tensor -----------------------------------------------------------------------------------------------------

// Its pieces, one after the other; their number of elements. at NULL: only that.
static err_t read_tensor(train_state *t, int index, float *at, size_t *n) {
    int set = index / t->net->params, row = index % t->net->params, count;
    *n = 0;
    if (set > t->arrays) return ERR_OK;
    store *x = store_at(t, set);
    const zero_piece *p = pieces_of(t, x, &count);
    for (int i = 0; x->t.data && i < count; i++) {
        tensor part = store_view(x, &p[i]);
        if (p[i].row != row) continue;
        if (at) TRY(stream_copy(t->s, at + *n, part.data, tensor_bytes(&part)));
        *n += (size_t)p[i].count;
    }
    return stream_wait(t->s);
}

err_t replica_keep(train_state *t, int index, replica_copy *to) {
    size_t n;
    replica_drop(to);
    TRY(read_tensor(t, index, NULL, &n));
    if (n == 0) return ERR_OK;
    *to = (replica_copy){malloc(n * sizeof *to->at), index};
    if (!to->at) return err_set(ERR_INTERNAL, "no memory for a copy of a tensor of %zu numbers", n);
    return read_tensor(t, index, to->at, &n);
}

err_t replica_far(train_state *t, const replica_copy *of, double *far) {
    replica_copy now = {0};
    size_t n;
    *far = 0;
    if (!of->at) return ERR_OK;
    err_t rc = replica_keep(t, of->index, &now);
    if (rc == ERR_OK) rc = read_tensor(t, of->index, NULL, &n);
    for (size_t i = 0; rc == ERR_OK && i < n; i++) {
        double d = (double)of->at[i] - (double)now.at[i];
        *far += d * d;
    }
    if (!(*far < FARTHEST)) *far = FARTHEST;  // also where a flipped bit has made a number that is none
    replica_drop(&now);
    return rc;
}

void replica_drop(replica_copy *c) {
    free(c->at);
    *c = (replica_copy){0};
}

err_t replicas_flip(train_state *t) {
    bool masters = !t->masters.sharded || t->weights.sharded;
    store *x = masters && !state_spills(t) ? &t->masters : &t->weights;
    int count, i;
    const zero_piece *p = pieces_of(t, x, &count);
    for (i = count - 1; i >= 0 && t->net->param[p[i].row].tied >= 0; i--) {}
    if (i < 0) return ERR_OK;
    tensor part = store_view(x, &p[i]);
    char *at = (char *)part.data + (part.type == FP32 ? 2 : 0), byte;  // a bit of the fraction
    if (host_reads(t, 0) && x == &t->masters) return *at ^= 16, ERR_OK;
    TRY(stream_copy(t->s, &byte, at, 1));
    TRY(stream_wait(t->s));
    byte ^= 16;
    TRY(stream_copy(t->s, at, &byte, 1));
    return stream_wait(t->s);
}
