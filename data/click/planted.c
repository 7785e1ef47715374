// data/click/planted.c: see data/click/planted.h.
#include "data/click/planted.h"

#include "base/fmath.h"
#include "base/philox.h"
#include "data/click/drawn.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { DENSE_WEIGHTS, FACTORS };                      // kinds of the model's parameters
enum { DRAW_ID, DRAW_DENSE = 64, DRAW_LABEL = 128 };  // draws of a record

static const double ZIPF = 1.05, MEAN_COUNT = 10, OFFSET = -1.2;
static const double DENSE_STD = 0.15, FACTOR_MEAN = 0.075, FACTOR_STD = 0.08;

struct planted {
    uint64_t seed;
    drawn_ids ids;
    double dense[PLANTED_DENSE];
    float *factor;  // (tables, ids, factors)
};

err_t planted_parse(const char *text, uint64_t *seed, int64_t *records, int64_t *ids) {
    int end = 0;
    char digits[3][24];
    if (sscanf(text, "planted:%18[0-9]:%18[0-9]:%18[0-9]%n", digits[0], digits[1], digits[2], &end) != 3 || text[end])
        return err_set(ERR_CONFIG,
                       "[pack] input = %s: made-up clicks are planted:SEED:RECORDS:IDS, three numbers, such as "
                       "planted:1:1000000:1000",
                       text);
    *seed = strtoull(digits[0], NULL, 10), *records = strtoll(digits[1], NULL, 10);
    *ids = strtoll(digits[2], NULL, 10);
    if (*records < 1) return err_set(ERR_CONFIG, "[pack] input = %s: expected 1 record at least", text);
    if (*ids >= 1 && *ids <= PLANTED_IDS) return ERR_OK;
    return err_set(ERR_CONFIG, "[pack] input = %s: %" PRId64 " ids, expected 1 to %d", text, *ids, PLANTED_IDS);
}

static double draw(const planted *p, int64_t n, uint32_t which) {
    return drawn_uniform(p->seed, SITE_CLICKS, n, which);
}

static double parameter(const planted *p, int kind, int64_t i, double std) {
    return drawn_normal(p->seed, SITE_CLICKS + 1 + (uint32_t)kind, i, std);
}

static void fill(planted *p) {
    for (int j = 0; j < PLANTED_DENSE; j++) p->dense[j] = parameter(p, DENSE_WEIGHTS, j, DENSE_STD);
    int64_t all = PLANTED_TABLES * p->ids.ids;
    for (int64_t i = 0; i < all * PLANTED_FACTORS; i++)
        p->factor[i] = (float)(FACTOR_MEAN + parameter(p, FACTORS, i, FACTOR_STD));
}

static err_t reserve(planted *p, int64_t ids) {
    TRY(drawn_ids_open(&p->ids, ids, ZIPF));
    p->factor = malloc((size_t)(PLANTED_TABLES * ids) * PLANTED_FACTORS * sizeof *p->factor);
    if (p->factor) return ERR_OK;
    return err_set(ERR_INTERNAL, "no memory for a planted model of %" PRId64 " ids a table", ids);
}

err_t planted_open(planted **out, uint64_t seed, int64_t ids) {
    planted *p = *out = calloc(1, sizeof *p);
    if (!p) return err_set(ERR_INTERNAL, "no memory for a planted model");
    p->seed = seed;
    err_t rc = reserve(p, ids);
    if (rc == ERR_OK) fill(p);
    else planted_close(p), *out = NULL;
    return rc;
}

void planted_close(planted *p) {
    if (!p) return;
    drawn_ids_close(&p->ids);
    free(p->factor);
    free(p);
}

// sum_{s<t} <v_s, v_t> = (|sum v|^2 - sum |v|^2) / 2, without what means alone give
static double factors_of(const planted *p, const int64_t *id) {
    double z = 0;
    for (int f = 0; f < PLANTED_FACTORS; f++) {
        double sum = 0, squares = 0;
        for (int t = 0; t < PLANTED_TABLES; t++) {
            double v = (double)p->factor[(t * p->ids.ids + id[t]) * PLANTED_FACTORS + f];
            sum += v, squares += v * v;
        }
        z += (sum * sum - squares) / 2 - FACTOR_MEAN * FACTOR_MEAN * (PLANTED_TABLES * (PLANTED_TABLES - 1) / 2);
    }
    return z;
}

void planted_record(const planted *p, int64_t n, click *out, double *chance) {
    int64_t id[PLANTED_TABLES];
    double z = OFFSET;
    for (int j = 0; j < PLANTED_DENSE; j++) {
        double count = (double)(int64_t)(-MEAN_COUNT * fm_log(1 - draw(p, n, (uint32_t)(DRAW_DENSE + j))));
        out->dense[j] = (float)fm_log(count + 1);
        z += p->dense[j] * ((double)out->dense[j] - 2);
    }
    for (int t = 0; t < PLANTED_TABLES; t++) {
        id[t] = drawn_id(&p->ids, draw(p, n, (uint32_t)(DRAW_ID + t)));
        out->id[t] = (uint64_t)id[t] + 1;
    }
    z += factors_of(p, id);
    *chance = 1 / (1 + fm_exp(-z));
    out->label = draw(p, n, DRAW_LABEL) < *chance;
}
