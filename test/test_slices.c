// test/test_slices.c: sums that are cut into slices, by one place that has all of them and by several that have some
// each. Places are threads, and what they would send is added in shared memory, along the tree: no activation, loss,
// gradient or weight differs by a bit, however many there are.
#include "model/slices.h"
#include "test/support/models.h"
#include "trainer/checkpoint/order.h"

#include <pthread.h>

enum { B = 3, MICROS = 2, STEPS = 5, PLACES = 8, SUMS = 4096 };

typedef struct kind {
    const char *name;
    int type, slices;
    any_options o;
} kind;

static const kind kinds[] = {
    {"gpt", MODEL_gpt, 4, {.gpt = {GPT_OPTIONS(2, 4, 24, 37, 11, 2), .dropout = 0.1}}},
    {"gpt of many heads", MODEL_gpt, 8, {.gpt = {GPT_OPTIONS(1, 8, 40, 150, 9, 1)}}},
    {"llama", MODEL_llama, 2, {.llama = {LLAMA_OPTIONS(2, 11, 2)}}},
    {"llama with all that its families add", MODEL_llama, 4, {.llama = {LLAMA_WITH_ALL(2, 8, 4, 137), STRETCHED_ROPE}}},
    {"gemma", MODEL_gemma, 2, {.gemma = {GEMMA_OPTIONS(3)}}},
    {"mlp relu", MODEL_mlp, 4, {.mlp = {.inputs = 21, .classes = 6, .hidden = "16 36 12", .activation = MLP_RELU}}},
    {"mlp gelu", MODEL_mlp, 2, {.mlp = {.inputs = 21, .classes = 6, .hidden = "18 34", .activation = MLP_GELU}}},
    {"mlp without hidden layers", MODEL_mlp, 2, {.mlp = {.inputs = 21, .classes = 6, .hidden = "  "}}},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

// --- places ----------------------------------------------------------------------------------------------------------

// How places compute: in halves of backward or not, with rows of their own or without.
typedef struct manner {
    dtype compute;
    recomputation recompute;
    bool halves, rows;
} manner;

typedef struct world {
    int places;
    pthread_barrier_t all;
    const tensor *part[PLACES];
    double sums[PLACES][SUMS];
} world;

typedef struct place {
    const kind *of;
    world *with;
    int number;
    manner how;
    net net;
    slice_merge merge;
    tensor in[MICROS][MODEL_INPUTS], w[MOST], dw[MOST], master[MOST], first[MOST], second[MOST], sums;
    step_scalar power[2];
    tensor seen[MICROS][MOST], loss[MICROS];  // what the blocks left in the last step
    pthread_t thread;
} place;

// The place's own part is one leaf of the tree over places.
static void add_tree(float *out, float **x, int count, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float sum[PLACES];
        for (int k = 0; k < count; k++) sum[k] = x[k][i];
        for (int k = count; k > 1; k /= 2)
            for (int j = 0; j < k / 2; j++) sum[j] = sum[2 * j] + sum[2 * j + 1];
        out[i] = sum[0];
    }
}

static err_t merge_whole(void *ctx, merge_kind kind, const tensor *part, stream *s) {
    place *p = ctx;
    world *w = p->with;
    size_t bytes = tensor_bytes(part);
    int64_t n = tensor_count(part);
    char *out = calloc(1, bytes);
    (void)s;
    w->part[p->number] = part;
    pthread_barrier_wait(&w->all);
    float *x[PLACES];
    for (int k = 0; k < w->places; k++) {
        x[k] = w->part[k]->data;
        assert_true(tensor_bytes(w->part[k]) == bytes && w->part[k]->type == part->type &&
                    (kind == MERGE_PICK || part->type == FP32));
    }
    if (kind == MERGE_SUM) add_tree((float *)out, x, w->places, n);
    for (int64_t i = 0; kind == MERGE_LARGEST && i < n; i++) {
        float most = x[0][i];
        for (int k = 1; k < w->places; k++) most = x[k][i] > most ? x[k][i] : most;
        ((float *)out)[i] = most;
    }
    for (int k = 0; kind == MERGE_PICK && k < w->places; k++)
        for (size_t i = 0; i < bytes; i++) out[i] = (char)(out[i] | ((char *)x[k])[i]);
    pthread_barrier_wait(&w->all);
    memcpy(part->data, out, bytes);
    pthread_barrier_wait(&w->all);
    free(out);
    return ERR_OK;
}

static int64_t row_of(const place *p, int64_t rows, int k) { return rows * k / p->with->places; }

// What all places have of this place's rows.
static err_t merge_deal(void *ctx, tensor *parts, const tensor *part, stream *s) {
    place *p = ctx;
    world *w = p->with;
    int64_t rows = matrix_rows(part), first = row_of(p, rows, p->number), own = row_of(p, rows, p->number + 1) - first;
    (void)s;
    assert_true(parts->size[0] == w->places && parts->size[1] == own && parts->size[2] == matrix_columns(part));
    w->part[p->number] = part;
    pthread_barrier_wait(&w->all);
    for (int k = 0; k < w->places; k++) {
        tensor from = tensor_rows(w->part[k], first, own), to = tensor_rows(parts, k, 1);
        memcpy(to.data, from.data, tensor_bytes(&from));
    }
    pthread_barrier_wait(&w->all);
    return ERR_OK;
}

static err_t merge_gather(void *ctx, const tensor *x, const tensor *own, stream *s) {
    place *p = ctx;
    world *w = p->with;
    int64_t rows = matrix_rows(x);
    (void)s;
    if (own) memcpy(tensor_rows(x, row_of(p, rows, p->number), 1).data, own->data, tensor_bytes(own));
    w->part[p->number] = x;
    pthread_barrier_wait(&w->all);
    for (int k = 0; k < w->places; k++) {
        int64_t first = row_of(p, rows, k), count = row_of(p, rows, k + 1) - first;
        tensor from = tensor_rows(w->part[k], first, count), to = tensor_rows(x, first, count);
        if (k != p->number) memcpy(to.data, from.data, tensor_bytes(&from));
    }
    pthread_barrier_wait(&w->all);
    return ERR_OK;
}

static int64_t here_rows(const place *p, const param *q) {
    int64_t rows = q->rows_in_memory ? q->rows_in_memory : q->size[0];
    return param_slices(q) > 1 && q->axis == 0 ? model_share(p->net.m, rows) : rows;
}

static void declare_row(place *p, tensor *t, dtype type, const param *q) {
    bool columns = param_slices(q) > 1 && q->axis == 1;
    if (columns) OK(arena_3d(&p->net.memory, t, type, p->net.m->slices.count, q->size[0], q->size[1] / q->slices));
    else OK(arena_tensor(&p->net.memory, t, type, q->dims, here_rows(p, q), q->size[1], 1, 1));
}

static void declare_rows(place *p) {
    for (int i = 0; i < p->net.m->params; i++) {
        const param *q = &p->net.m->param[i];
        declare_row(p, &p->w[i], p->how.compute, q);
        tensor *own[] = {&p->dw[i], &p->master[i], &p->first[i], &p->second[i]};
        for (int k = 0; k < 4; k++) declare_row(p, own[k], FP32, q);
    }
}

static void declare_samples(place *p) {
    declare_inputs(&p->net, p->in, MICROS, B);
    for (int n = 0; n < MICROS; n++) {
        OK(arena_2d(&p->net.memory, &p->loss[n], FP32, B, p->net.m->losses));
        for (int b = 0; b + 1 < p->net.m->blocks; b++)
            OK(arena_1d(&p->net.memory, &p->seen[n][b], p->how.compute, tensor_count(&p->net.flow.memory[b])));
    }
}

static ckpt_order order_in(const param *q) {
    ckpt_tensor t = {.dims = q->dims, .size = {q->size[0], q->size[1], 1, 1}, .axis = q->axis, .slices = q->slices};
    if (param_slices(q) > 1) t.split.padded = q->rows_in_memory, memcpy(t.split.rows, q->share, sizeof q->share);
    return ckpt_order_of(&t);
}

// The stored number of the first element that is here, and how many are.
static void range_of(const place *p, const param *q, int64_t *first, int64_t *count) {
    const ckpt_order o = order_in(q);
    *first = o.slices > 1 ? p->net.m->slices.first * o.each : 0;
    int64_t end = o.slices > 1 ? *first + p->net.m->slices.count * o.each : o.all;
    if (end > o.all) end = o.all;
    *count = end > *first ? end - *first : 0;
}

static void round_weights(place *p, int i) {
    int64_t n = tensor_count(&p->w[i]);
    tensor from = view1(&p->master[i], n), to = view1(&p->w[i], n);
    OK(device_ops(p->net.dev)->cast(&(cast_args){.y = &to, .x = &from}, p->net.s));
}

// By logical coordinates, the same in all places and for all slices.
static void fill_weights(place *p) {
    for (int i = 0; i < p->net.m->params; i++) {
        param *q = &p->net.m->param[i];
        const ckpt_order o = order_in(q);
        int64_t first, count, run;
        if (q->init_std == 0) q->init_std = 0.3;
        range_of(p, q, &first, &count);
        for (int64_t k = 0; k < count; k++)
            model_init(p->net.m, q->tied >= 0 ? q->tied : i, 9, order_logical(&o, first + k, &run), 1,
                       (float *)p->master[i].data + k);
        round_weights(p, i);
        if (q->rows_in_memory && (param_slices(q) == 1 || p->with->places == 1))
            p->w[i].size[0] = p->dw[i].size[0] = q->size[0];
    }
    for (int i = 0; i < p->net.m->params; i++)
        if (p->net.m->param[i].tied >= 0) p->w[i] = p->w[p->net.m->param[i].tied];
}

static void place_open(place *p, int slices) {
    int places = p->with->places, count = slices / places;
    model_plan plan = {.compute = p->how.compute, .B = B, .recompute = p->how.recompute, .halves = p->how.halves};
    if (places > 1) plan.slice_first = p->number * count, plan.slice_count = count, plan.slice_rows = p->how.rows;
    p->merge = (slice_merge){places, p->number, merge_whole, merge_deal, merge_gather, p};
    net_open(&p->net, p->of->type, &p->of->o, &(model_rule){.micro = B, .slices = slices}, plan, 1, 1);
    OK(arena_1d(&p->net.memory, &p->sums, FP64, SUMS));
    declare_rows(p);
    declare_samples(p);
    net_commit(&p->net, 0);
    *(step_state *)p->net.step.data = (step_state){.lr = 0.01f, .loss_scale = p->how.compute == FP16 ? 64 : 1};
    p->power[0] = (step_scalar){1, 0.9, 0}, p->power[1] = (step_scalar){1, 0.99, 0};
    fill_inputs(&p->net, p->in, MICROS, B);
    fill_weights(p);
}

// --- steps -----------------------------------------------------------------------------------------------------------

static pass pass_of(place *p, int n, int step) {
    pass x = {
        .ops = device_ops(p->net.dev),
        .s = p->net.s,
        .B = B,
        .w = p->w,
        .dw = p->dw,
        .fresh = n == 0,
        .state = p->net.step.data,
        .loss_factor = 1.0f / (float)(MICROS * B * p->net.m->losses),
        .losses = p->net.losses,
        .merge = p->with->places > 1 ? &p->merge : NULL,
        .drop = {.seed = 3, .step = (uint32_t)step, .first_sample = (uint32_t)(n * B), .p = (float)p->net.m->dropout}};
    for (int i = 0; i < p->net.m->inputs; i++) x.in[i] = p->in[n][i];
    flow_use(&p->net.flow, &x);
    return x;
}

static void gradient(place *p, int step) {
    for (int n = 0; n < MICROS; n++) {
        pass x = pass_of(p, n, step);
        OK(model_forward(p->net.m, &x));
        for (int b = 0; b + 1 < p->net.m->blocks; b++)
            memcpy(p->seen[n][b].data, x.x[b].data, tensor_bytes(&p->seen[n][b]));
        OK(model_run(p->net.m, p->how.halves ? PASS_INPUTS : PASS_BACKWARD, 0, p->net.m->blocks - 1, &x));
        if (p->how.halves) OK(model_run(p->net.m, PASS_WEIGHTS, 0, p->net.m->blocks - 1, &x));
        memcpy(p->loss[n].data, p->net.losses.data, tensor_bytes(&p->net.losses));
    }
    for (int i = 0; i < p->net.m->params; i++) {
        int of = p->net.m->param[i].tied;
        if (of < 0) continue;
        tensor sum = view1(&p->dw[of], tensor_count(&p->dw[of])), more = view1(&p->dw[i], tensor_count(&p->dw[i]));
        OK(device_ops(p->net.dev)->add(&(add_args){.y = &sum, .a = &sum, .b = &more}, p->net.s));
    }
}

// Squares of each slice in the order of the table; place 0 counts what all have.
static void square_sums(place *p) {
    double *mine = p->with->sums[p->number], *sums = p->sums.data;
    int64_t at = 0, first, count;
    memset(mine, 0, sizeof p->with->sums[0]);
    for (int i = 0; i < p->net.m->params; i++) {
        const param *q = &p->net.m->param[i];
        const ckpt_order o = order_in(q);
        if (q->tied >= 0) continue;
        range_of(p, q, &first, &count);
        for (int64_t k = 0, n; k < count && (o.slices > 1 || p->number == 0); k += n) {
            n = order_chunk_size(&o, first + k);
            tensor g = {(float *)p->dw[i].data + k, FP32, 1, {n, 1, 1, 1}},
                   to = {mine + at + order_chunk(&o, first + k), FP64, 1, {1, 1, 1, 1}};
            OK(device_ops(p->net.dev)->sum_squares(&(sum_squares_args){.sums = &to, .g = &g}, p->net.s));
        }
        at += order_chunk(&o, o.all);
    }
    assert_true(at <= SUMS);
    pthread_barrier_wait(&p->with->all);
    for (int64_t i = 0; i < SUMS; i++) {
        sums[i] = 0;
        for (int k = 0; k < p->with->places; k++) sums[i] += p->with->sums[k][i];
    }
    pthread_barrier_wait(&p->with->all);
}

static void update(place *p) {
    const step_rules rules = {.grad_clip = 0.5};
    const adamw_rules adam = {0.9, 0.99, 1e-8, 0.1, 0};
    square_sums(p);
    OK(device_ops(p->net.dev)
           ->step_decide(&(step_decide_args){.state = p->net.step.data,
                                             .sums = &p->sums,
                                             .rules = &rules,
                                             .scalars = p->power,
                                             .scalar_count = 2},
                         p->net.s));
    for (int i = 0; i < p->net.m->params; i++) {
        int64_t first, count;
        if (p->net.m->param[i].tied >= 0) continue;
        range_of(p, &p->net.m->param[i], &first, &count);
        tensor w = view1(&p->w[i], count), master = view1(&p->master[i], count), m = view1(&p->first[i], count),
               v = view1(&p->second[i], count), g = view1(&p->dw[i], count);
        OK(device_ops(p->net.dev)
               ->adamw(&(adamw_args){.w = &w,
                                     .master = &master,
                                     .m = &m,
                                     .v = &v,
                                     .grad = &g,
                                     .state = p->net.step.data,
                                     .power = p->power,
                                     .rules = &adam},
                       p->net.s));
    }
}

static void *train(void *ctx) {
    place *p = ctx;
    for (int step = 1; step <= STEPS; step++) {
        if (step > 1) update(p);
        gradient(p, step);
    }
    return NULL;
}

static void run(place *p, world *w, const kind *k, int places, int slices, manner how) {
    *w = (world){.places = places};
    pthread_barrier_init(&w->all, NULL, (unsigned)places);
    for (int i = 0; i < places; i++) {
        p[i] = (place){.of = k, .with = w, .number = i, .how = how};
        place_open(&p[i], slices);
    }
    for (int i = 0; i < places; i++) assert_int_equal(pthread_create(&p[i].thread, NULL, train, &p[i]), 0);
    for (int i = 0; i < places; i++) pthread_join(p[i].thread, NULL);
    pthread_barrier_destroy(&w->all);
}

static void end(place *p, int places) {
    for (int i = 0; i < places; i++) net_close(&p[i].net);
}

// --- comparing -------------------------------------------------------------------------------------------------------

static void same(const void *a, const void *b, size_t bytes, const place *p, const char *what, const char *name) {
    if (memcmp(a, b, bytes) != 0)
        fail_msg("%s, type %d, recompute %d, place %d of %d: %s %s differs", p->of->name, p->how.compute,
                 p->how.recompute, p->number, p->with->places, what, name);
}

// What place p has, compared with what the one place has that has all.
static void expect_same(const place *p, const place *all) {
    for (int n = 0; n < MICROS; n++) {
        same(p->loss[n].data, all->loss[n].data, tensor_bytes(&p->loss[n]), p, "loss", "");
        for (int b = 0; b + 1 < p->net.m->blocks; b++) {
            const block *k = &p->net.m->block[b];
            size_t e = dtype_bytes(p->how.compute), bytes = (size_t)model_left(p->net.m, b, B, 0) * e,
                   skip = k->divided ? (size_t)p->number * bytes : 0;
            if (p->how.rows)
                skip = (size_t)(model_row(p->net.m, p->net.m->slices.first, B * k->size[0]) * k->size[1]) * e;
            same(p->seen[n][b].data, (char *)all->seen[n][b].data + skip, bytes, p, "activation",
                 p->net.m->block[b].name);
        }
    }
    for (int i = 0; i < p->net.m->params; i++) {
        const param *q = &p->net.m->param[i];
        int64_t first, count;
        range_of(p, q, &first, &count);
        const tensor *mine[] = {&p->dw[i], &p->master[i], &p->first[i], &p->second[i], &p->w[i]};
        const tensor *theirs[] = {&all->dw[i], &all->master[i], &all->first[i], &all->second[i], &all->w[i]};
        static const char *const what[] = {"gradient", "master", "first moment", "second moment", "weight"};
        for (int k = 0; k < 5; k++) {
            size_t e = dtype_bytes(mine[k]->type);
            same(mine[k]->data, (char *)theirs[k]->data + (size_t)first * e, (size_t)count * e, p, what[k], q->name);
        }
    }
}

// Near the same without slices, by logical coordinates; and not all bits the same.
static void expect_near(const place *cut, const place *plain) {
    int differ = 0;
    for (int i = 0; i < cut->net.m->params; i++) {
        const ckpt_order o = order_in(&cut->net.m->param[i]);
        const float *a = cut->dw[i].data, *b = plain->dw[i].data;
        double off = 0, size = 0;
        int64_t run;
        for (int64_t k = 0; k < o.all; k++) {
            double x = a[k], y = b[order_logical(&o, k, &run)];
            differ += x != y;
            off += (x - y) * (x - y), size += y * y;
        }
        if (!(sqrt(off) <= 1e-4 * sqrt(size) + 1e-10))  // the norms of queries and keys have gradients of 3e-8
            fail_msg("%s: the gradient of %s is off by %g of %g", cut->of->name, cut->net.m->param[i].name, sqrt(off),
                     sqrt(size));
    }
    if (cut->net.m->blocks > 1) assert_true(differ > 0);
}

// halves: of the many places, not of the one.
static void compare(const kind *k, manner how) {
    static place p[PLACES], one[1];
    static world w, alone;
    run(one, &alone, k, 1, k->slices, (manner){how.compute, how.recompute, false, false});
    double size = 0;
    for (int i = 0; i < one->net.m->params; i++)
        for (int64_t e = 0; e < tensor_count(&one->dw[i]); e++) size += fabs(((float *)one->dw[i].data)[e]);
    assert_true(size > 0 && isfinite(size) && ((step_state *)one->net.step.data)->updates == STEPS - 1);
    for (int places = how.halves && !how.rows ? 1 : 2; places <= k->slices; places *= 2) {
        run(p, &w, k, places, k->slices, how);
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

static void backward_in_halves(void **state) {
    (void)state;
    for (int k = 0; k < KINDS; k++)
        for (int type = FP32; type <= FP16; type++)
            compare(&kinds[k], (manner){.compute = (dtype)type, .halves = true});
}

static void whatever_is_recomputed(void **state) {
    (void)state;
    for (int k = 0; k < KINDS; k++)
        for (int recompute = RECOMPUTE_SELECTIVE; recompute <= RECOMPUTE_BLOCK; recompute++)
            if (kinds[k].type != MODEL_mlp)
                for (int type = FP32; type <= BF16; type++)
                    for (int halves = 0; halves < 2; halves++)
                        compare(&kinds[k], (manner){(dtype)type, (recomputation)recompute, halves, false});
}

// The residual stream's rows divided among the places, too, in all ways of running backward.
static void rows_of_their_own(void **state) {
    (void)state;
    for (int k = 0; k < KINDS; k++)
        for (int type = FP32; type <= FP16 && kinds[k].type != MODEL_mlp; type++)
            for (int how = RECOMPUTE_NONE; how <= RECOMPUTE_BLOCK; how++)
                for (int halves = 0; halves < 2; halves++)
                    compare(&kinds[k], (manner){(dtype)type, (recomputation)how, halves, true});
}

static void slices_compute_what_whole_sums_do(void **state) {
    (void)state;
    static place cut, plain;
    static world w, v;
    for (int k = 0; k < KINDS; k++) {
        run(&cut, &w, &kinds[k], 1, kinds[k].slices, (manner){.compute = FP32});
        run(&plain, &v, &kinds[k], 1, 1, (manner){.compute = FP32});
        expect_near(&cut, &plain);
        end(&cut, 1), end(&plain, 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_compute_what_whole_sums_do),
        cmocka_unit_test(any_number_of_places_has_the_bits_of_one),
        cmocka_unit_test(backward_in_halves),
        cmocka_unit_test(whatever_is_recomputed),
        cmocka_unit_test(rows_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
