// test/test_live_shares.c: what ranks give of the state that they hold alike: whichever rank, or node, is lost, the
// others give all of it, from where it lies, and no more than was said.
#include "trainer/step/live.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// Rows: of a matrix in two slices, one that is tied to it, and a vector. Elements of memory: those of its slices.
enum { ROWS = 3, ARRAYS = 2, WHOLES = 4, TENSORS = 2, FIRST = 2 * 35, SECOND = 11, MOST_RANKS = 6, LISTS = 1 + ARRAYS };
static const int64_t elements[TENSORS] = {FIRST, SECOND};

typedef struct holder {
    train_state t;
    model net;
    param param[ROWS];
    zero_piece whole[WHOLES];
    store array[ARRAYS];
    comm ranks;
    comm_place place[MOST_RANKS];
    float values[LISTS][FIRST + SECOND];
} holder;

// nodes: ranks of each; 0: no more.
static void open_holder(holder *x, device *dev, stream *s, const int *nodes, int rank) {
    *x = (holder){.net = {.params = ROWS, .param = x->param},
                  .param = {{.dims = 2, .size = {10, 7}, .slices = 2, .tied = -1},
                            {.dims = 2, .size = {10, 7}, .slices = 2, .tied = 0},
                            {.dims = 1, .size = {SECOND}, .tied = -1}},
                  .whole = {{.row = 0, .slice = 0, .count = 35, .slab = 0},
                            {.row = 0, .slice = 1, .count = 35, .slab = 35},
                            {.row = 1, .slice = 0, .count = 35, .slab = 0},
                            {.row = 2, .slice = 0, .count = SECOND, .slab = FIRST}}};
    for (int node = 0; nodes[node]; node++)
        for (int k = 0; k < nodes[node]; k++)
            x->place[x->ranks.world++] = (comm_place){.node = node, .local = k, .rank = x->ranks.world};
    x->ranks.rank = rank, x->ranks.place = x->place;
    for (int g = 0; g < LISTS; g++) {
        tensor all = {.data = x->values[g], .type = FP32, .dims = 1, .size = {FIRST + SECOND}};
        for (int i = 0; i < FIRST + SECOND; i++) x->values[g][i] = (float)(1000 * g + i);
        *(g ? &x->array[g - 1] : &x->t.masters) = (store){.t = all};
    }
    x->t.net = &x->net, x->t.dev = dev, x->t.s = s, x->t.ranks = &x->ranks;
    x->t.zero.whole = x->whole, x->t.zero.wholes = WHOLES, x->t.array = x->array, x->t.arrays = ARRAYS;
}

// How often each element was given, and what it was.
typedef struct given {
    int times[LISTS][FIRST + SECOND];
} given;

static void take(given *all, holder *x) {
    vault_range *range;
    int n;
    int64_t count = 0;
    assert_int_equal(live_ranges(&x->t, &range, &n), ERR_OK);
    for (int i = 0; i < n; i++) {
        const vault_range *r = &range[i];
        assert_true(r->group >= 0 && r->group < LISTS && r->tensor >= 0 && r->tensor < TENSORS);
        assert_true(r->first >= r->of && r->first + r->count <= elements[r->tensor]);
        for (int64_t e = r->first; e < r->first + r->count; e++) {
            int64_t at = (r->tensor ? FIRST : 0) + e;
            assert_true(r->data[e - r->first] == x->values[r->group][at]);
            all->times[r->group][at]++;
        }
        count += r->count;
    }
    assert_true(count > 0 && count <= live_values(&x->t));
    free(range);
}

static void all_of_it_is_left(void **state) {
    (void)state;
    static const int of[][4] = {{2}, {3}, {6}, {1, 1}, {2, 2}, {1, 3}, {3, 1}, {2, 1, 3}, {1, 2, 2}};
    device *dev;
    stream *s;
    holder *x = calloc(1, sizeof *x);
    assert_int_equal(device_open(&dev, &(device_options){.kind = DEVICE_CPU, .threads = 1}), ERR_OK);
    assert_int_equal(stream_open(dev, &s), ERR_OK);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        open_holder(x, dev, s, of[i], 0);
        int units = comm_nodes(&x->ranks) > 1 ? comm_nodes(&x->ranks) : x->ranks.world;
        for (int lost = 0; lost < units; lost++) {
            given all = {0};
            for (int k = 0; k < x->ranks.world; k++) {
                open_holder(x, dev, s, of[i], k);
                if ((comm_nodes(&x->ranks) > 1 ? x->place[k].node : k) != lost) take(&all, x);
            }
            for (int g = 0; g < LISTS; g++)
                for (int e = 0; e < FIRST + SECOND; e++)
                    if (!all.times[g][e])
                        fail_msg("row %zu: without %d nobody gives element %d of list %d", i, lost, e, g);
        }
    }
    stream_close(s);
    device_close(dev);
    free(x);
}

// Each share twice, and each of a tensor's slices with a sum of its own.
static void twice_and_not_more(void **state) {
    (void)state;
    device *dev;
    stream *s;
    holder *x = calloc(1, sizeof *x);
    given all = {0};
    uint64_t sum[2] = {0};
    assert_int_equal(device_open(&dev, &(device_options){.kind = DEVICE_CPU, .threads = 1}), ERR_OK);
    assert_int_equal(stream_open(dev, &s), ERR_OK);
    for (int k = 0; k < 4; k++) {
        open_holder(x, dev, s, (const int[]){1, 3, 0}, k);
        take(&all, x);
        vault_range *range;
        int n;
        assert_int_equal(live_ranges(&x->t, &range, &n), ERR_OK);
        for (int i = 0; i < n; i++) {
            if (range[i].group || range[i].tensor) continue;
            assert_true(range[i].of == 0 || range[i].of == 35);
            uint64_t *is = &sum[range[i].of / 35];
            assert_true(!*is || *is == range[i].sum);
            *is = range[i].sum;
        }
        free(range);
    }
    assert_true(sum[0] && sum[1] && sum[0] != sum[1]);
    for (int g = 0; g < LISTS; g++)
        for (int e = 0; e < FIRST + SECOND; e++) assert_int_equal(all.times[g][e], 2);
    stream_close(s);
    device_close(dev);
    free(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_of_it_is_left),
        cmocka_unit_test(twice_and_not_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
