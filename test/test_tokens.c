// test/test_tokens.c: gradients of weights that are sums over token slices, by one place that has all of them and by
// several that share the rows. Places are threads, and what they would send each other goes through shared memory: each
// token slice has the same gradient wherever it is, activations and losses do not differ by a bit, and the slices'
// gradients add up to that of whole sums.
#include "model/slices.h"
#include "test/support/models.h"

#include <pthread.h>

enum { MICROS = 2, PLACES = 8 };

typedef struct kind {
    const char *name;
    int type, slices, tokens;
    int64_t B;
    any_options o;
} kind;

#define GPT \
    { \
        .gpt = { GPT_OPTIONS(2, 4, 24, 37, 11, 2), .dropout = 0.1 } \
    }
static const kind kinds[] = {
    {"gpt, parts of a sample", MODEL_gpt, 4, 4, 1, GPT},
    {"gpt, parts of two samples", MODEL_gpt, 4, 4, 2, GPT},
    {"gpt, whole samples", MODEL_gpt, 4, 2, 6, GPT},
    {"gpt without dropout", MODEL_gpt, 8, 8, 1, {.gpt = {GPT_OPTIONS(1, 8, 40, 150, 9, 1)}}},
    {"llama", MODEL_llama, 4, 4, 1, {.llama = {LLAMA_WITH_ALL(2, 8, 4, 137)}}},
    {"llama, tied", MODEL_llama, 2, 2, 2, {.llama = {LLAMA_OPTIONS(2, 13, 4)}}},
    {"gemma", MODEL_gemma, 2, 2, 1, {.gemma = {GEMMA_OPTIONS(2)}}},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

// --- places ----------------------------------------------------------------------------------------------------------

typedef struct manner {
    dtype compute;
    recomputation recompute;
    bool halves, joined;  // joined: all token slices of a place add to one table
} manner;

typedef struct world {
    int places;
    pthread_barrier_t all;
    const tensor *mine[PLACES];
} world;

typedef struct place {
    const kind *of;
    world *with;
    int number, tables;
    manner how;
    net net;
    row_swap swap;
    tensor in[MICROS][MODEL_INPUTS], w[MOST], dw[PLACES * MOST];
    tensor seen[MICROS][MOST], loss[MICROS];
    pthread_t thread;
} place;

static void meet(place *p, const tensor *mine) {
    p->with->mine[p->number] = mine;
    pthread_barrier_wait(&p->with->all);
}

static err_t leave(place *p) {
    pthread_barrier_wait(&p->with->all);
    return ERR_OK;
}

static char *row_of(const tensor *t, int64_t slice, int64_t row) {
    return (char *)t->data + (size_t)((slice * matrix_rows(t) + row) * t->size[t->dims - 1]) * dtype_bytes(t->type);
}

// Rows of place k, of slice s of those that place j attends to.
static err_t to_heads(void *ctx, const tensor *heads, const tensor *rows, stream *s) {
    place *p = ctx;
    int places = p->with->places, slices = (int)matrix_slices(heads);
    int64_t N = matrix_rows(heads);
    (void)s;
    meet(p, rows);
    for (int k = 0; k < places; k++)
        for (int i = 0; i < slices; i++) {
            int64_t first = part_row(N, k, places), n = part_row(N, k + 1, places) - first;
            size_t bytes = (size_t)(n * heads->size[heads->dims - 1]) * dtype_bytes(heads->type);
            memcpy(row_of(heads, i, first), row_of(p->with->mine[k], p->number * slices + i, 0), bytes);
        }
    return leave(p);
}

static err_t to_rows(void *ctx, const tensor *rows, const tensor *heads, stream *s) {
    place *p = ctx;
    int places = p->with->places, slices = (int)matrix_slices(heads);
    int64_t N = matrix_rows(heads), first = part_row(N, p->number, places),
            n = part_row(N, p->number + 1, places) - first;
    size_t bytes = (size_t)(n * heads->size[heads->dims - 1]) * dtype_bytes(heads->type);
    (void)s;
    meet(p, heads);
    for (int k = 0; k < places; k++)
        for (int i = 0; i < slices; i++)
            memcpy(row_of(rows, k * slices + i, 0), row_of(p->with->mine[k], i, first), bytes);
    return leave(p);
}

// Each place's own rows are there already.
static err_t gather(void *ctx, const tensor *x, const tensor *own, stream *s) {
    place *p = ctx;
    int64_t N = matrix_rows(x);
    assert_null(own);
    (void)s;
    meet(p, x);
    for (int k = 0; k < p->with->places; k++) {
        int64_t first = part_row(N, k, p->with->places), n = part_row(N, k + 1, p->with->places) - first;
        if (k != p->number)
            memcpy(row_of(x, 0, first), row_of(p->with->mine[k], 0, first),
                   (size_t)(n * matrix_columns(x)) * dtype_bytes(x->type));
    }
    return leave(p);
}

// --- opening ---------------------------------------------------------------------------------------------------------

static void declare(place *p) {
    int64_t B = p->of->B;
    for (int i = 0; i < p->net.m->params; i++) {
        const param *q = &p->net.m->param[i];
        for (int k = 0; k <= p->tables; k++) {
            tensor *t = k ? &p->dw[(k - 1) * p->net.m->params + i] : &p->w[i];
            dtype type = k ? FP32 : p->how.compute;
            bool columns = param_slices(q) > 1 && q->axis == 1;
            if (columns) OK(arena_3d(&p->net.memory, t, type, q->slices, q->size[0], q->size[1] / q->slices));
            else
                OK(arena_tensor(&p->net.memory, t, type, q->dims, q->rows_in_memory ? q->rows_in_memory : q->size[0],
                                q->size[1], 1, 1));
        }
    }
    declare_inputs(&p->net, p->in, MICROS, B);
    for (int n = 0; n < MICROS; n++) {
        OK(arena_2d(&p->net.memory, &p->loss[n], FP32, B, p->net.m->losses));
        for (int b = 0; b + 1 < p->net.m->blocks; b++)
            OK(arena_1d(&p->net.memory, &p->seen[n][b], p->how.compute, tensor_count(&p->net.flow.memory[b])));
    }
}

static void place_open(place *p, int tokens) {
    int places = p->with->places;
    model_rule rule = {.micro = p->of->B, .slices = p->of->slices, .tokens = tokens};
    model_plan plan = {
        .compute = p->how.compute, .B = p->of->B, .recompute = p->how.recompute, .halves = p->how.halves};
    plan.token_first = p->number * (tokens / places), plan.token_count = tokens / places;
    p->tables = p->how.joined ? 1 : plan.token_count;
    p->swap = (row_swap){.merge = {.ranks = places, .rank = p->number, .gather = gather, .ctx = p},
                         .to_heads = to_heads,
                         .to_rows = to_rows};
    net_open(&p->net, p->of->type, &p->of->o, &rule, plan, 1, 1);
    declare(p);
    net_commit(&p->net, 0x7f);                    // what is not written shows
    for (int i = 0; i < p->net.m->params; i++) {  // the padding of values is zero
        memset(p->w[i].data, 0, tensor_bytes(&p->w[i]));
        for (int k = 0; k < p->tables; k++)
            memset(p->dw[k * p->net.m->params + i].data, 0, tensor_bytes(&p->dw[k * p->net.m->params + i]));
    }
    *(step_state *)p->net.step.data = (step_state){.loss_scale = p->how.compute == FP16 ? 64 : 1};
    fill_inputs(&p->net, p->in, MICROS, p->of->B);
    for (int i = 0; i < p->net.m->params; i++) fill_param(&p->net, i, &p->w[i]);
}

// --- a step ----------------------------------------------------------------------------------------------------------

static void *work(void *ctx) {
    place *p = ctx;
    for (int n = 0; n < MICROS; n++) {
        pass x = {
            .ops = device_ops(p->net.dev),
            .s = p->net.s,
            .B = p->of->B,
            .w = p->w,
            .dw = p->dw,
            .more_dw = p->tables > 1 ? p->dw + p->net.m->params : NULL,
            .fresh = n == 0,
            .state = p->net.step.data,
            .loss_factor = 1.0f / (float)(MICROS * p->of->B * p->net.m->losses),
            .losses = p->net.losses,
            .swap = p->with->places > 1 ? &p->swap : NULL,
            .drop = {.seed = 3, .step = 1, .first_sample = (uint32_t)(n * p->of->B), .p = (float)p->net.m->dropout}};
        for (int i = 0; i < p->net.m->inputs; i++) x.in[i] = p->in[n][i];
        flow_use(&p->net.flow, &x);
        OK(model_forward(p->net.m, &x));
        for (int b = 0; b + 1 < p->net.m->blocks; b++) memcpy(p->seen[n][b].data, x.x[b].data, tensor_bytes(&x.x[b]));
        OK(model_run(p->net.m, p->how.halves ? PASS_INPUTS : PASS_BACKWARD, 0, p->net.m->blocks - 1, &x));
        if (p->how.halves) OK(model_run(p->net.m, PASS_WEIGHTS, 0, p->net.m->blocks - 1, &x));
        memcpy(p->loss[n].data, p->net.losses.data, tensor_bytes(&p->net.losses));
    }
    return NULL;
}

static void run(place *p, world *w, const kind *k, int places, int tokens, manner how) {
    *w = (world){.places = places};
    pthread_barrier_init(&w->all, NULL, (unsigned)places);
    for (int i = 0; i < places; i++) {
        p[i] = (place){.of = k, .with = w, .number = i, .how = how};
        place_open(&p[i], tokens);
    }
    for (int i = 0; i < places; i++) assert_int_equal(pthread_create(&p[i].thread, NULL, work, &p[i]), 0);
    for (int i = 0; i < places; i++) pthread_join(p[i].thread, NULL);
    pthread_barrier_destroy(&w->all);
}

static void end(place *p, int places) {
    for (int i = 0; i < places; i++) net_close(&p[i].net);
}

// --- comparing -------------------------------------------------------------------------------------------------------

static void same(const void *a, const void *b, size_t bytes, const place *p, const char *what, const char *name) {
    if (memcmp(a, b, bytes) != 0)
        fail_msg("%s, type %d, recompute %d, halves %d, place %d of %d: %s %s differs", p->of->name, p->how.compute,
                 p->how.recompute, p->how.halves, p->number, p->with->places, what, name);
}

// What place p has of the one that has all.
static void expect_same(const place *p, const place *all) {
    for (int n = 0; n < MICROS; n++) {
        same(p->loss[n].data, all->loss[n].data, tensor_bytes(&p->loss[n]), p, "loss", "");
        for (int b = 0; b + 1 < p->net.m->blocks; b++) {
            const block *k = &p->net.m->block[b];
            int64_t N = p->of->B * k->size[0];
            size_t row = (size_t)k->size[1] * dtype_bytes(p->how.compute);
            const char *theirs = (char *)all->seen[n][b].data + (size_t)model_first_row(p->net.m, N) * row;
            same(p->seen[n][b].data, theirs, (size_t)model_own_rows(p->net.m, N) * row, p, "activation", k->name);
        }
    }
    for (int k = 0; k < p->tables; k++)
        for (int i = 0; i < p->net.m->params; i++) {
            const tensor *mine = &p->dw[k * p->net.m->params + i],
                         *theirs = &all->dw[(p->net.m->tokens.first + k) * p->net.m->params + i];
            same(mine->data, theirs->data, tensor_bytes(mine), p, "gradient", p->net.m->param[i].name);
        }
}

static void compare(const kind *k, manner how) {
    static place p[PLACES], one[1];
    static world w, alone;
    run(one, &alone, k, 1, k->tokens, (manner){.compute = how.compute});
    for (int places = how.halves || how.recompute ? 1 : 2; places <= k->tokens; places *= 2) {
        run(p, &w, k, places, k->tokens, how);
        for (int i = 0; i < places; i++) expect_same(&p[i], one);
        end(p, places);
    }
    end(one, 1);
}

// --- tests -----------------------------------------------------------------------------------------------------------

static void any_number_of_places_has_the_bits_of_one(void **state) {
    (void)state;
    for (int k = 0; k < KINDS; k++)
        for (int type = FP32; type <= FP16; type++) compare(&kinds[k], (manner){.compute = (dtype)type});
}

static void however_backward_runs(void **state) {
    (void)state;
    for (int k = 0; k < KINDS; k++)
        for (int recompute = RECOMPUTE_NONE; recompute <= RECOMPUTE_BLOCK; recompute++)
            for (int halves = recompute == RECOMPUTE_NONE; halves < 2; halves++)
                compare(&kinds[k], (manner){BF16, (recomputation)recompute, halves, false});
}

// The tables of a place add up to the gradient of whole sums, and no table has all of it but the only one.
static void expect_sums(const place *cut, const place *plain) {
    for (int i = 0; i < cut->net.m->params; i++) {
        double off = 0, size = 0, parts = 0;
        for (int64_t e = 0; e < tensor_count(&plain->dw[i]); e++) {
            double sum = 0, whole = ((float *)plain->dw[i].data)[e];
            for (int t = 0; t < cut->tables; t++) sum += ((float *)cut->dw[t * cut->net.m->params + i].data)[e];
            off += (sum - whole) * (sum - whole), size += whole * whole;
            parts += fabs(((float *)cut->dw[i].data)[e] - whole);
        }
        const char *name = cut->net.m->param[i].name;
        if (!(sqrt(off) <= 1e-5 * sqrt(size) + 1e-7) || !isfinite(size))
            fail_msg("%s, %d tables: the gradient of %s is off by %g of %g", cut->of->name, cut->tables, name,
                     sqrt(off), sqrt(size));
        if (cut->tables > 1 && size > 0 && parts == 0)
            fail_msg("%s: the first token slice has all of the gradient of %s", cut->of->name, name);
    }
}

// Each token slice has a part of the gradient, and together they are that of whole sums, in a table each or in one.
static void token_slices_add_up(void **state) {
    (void)state;
    static place cut, plain;
    static world w, v;
    for (int k = 0; k < KINDS; k++) {
        run(&plain, &v, &kinds[k], 1, 1, (manner){.compute = FP32});
        for (int joined = 0; joined < 2; joined++) {
            run(&cut, &w, &kinds[k], 1, kinds[k].tokens, (manner){.compute = FP32, .joined = joined});
            for (int n = 0; n < MICROS; n++)
                same(cut.loss[n].data, plain.loss[n].data, tensor_bytes(&cut.loss[n]), &cut, "loss", "");
            expect_sums(&cut, &plain);
            end(&cut, 1);
        }
        end(&plain, 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(token_slices_add_up),
        cmocka_unit_test(any_number_of_places_has_the_bits_of_one),
        cmocka_unit_test(however_backward_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
