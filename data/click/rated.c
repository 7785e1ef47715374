// data/click/rated.c: see data/click/rated.h.
#include "data/click/rated.h"

#include "base/philox.h"
#include "data/click/drawn.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HITS = 9 };                        // draws of a rating
enum { DRAW_USER, DRAW_ITEM, DRAW_HIT };  // draws of a record; HITS of the last
enum { USER, ITEM };

static const double ZIPF = 0.5, BEGIN = 0.6, LEAST = 0.05, MOST = 0.95;
static const double EFFECT_STD[RATED_TABLES] = {0.06, 0.08}, FACTOR_STD = 0.22;

typedef struct side {
    drawn_ids ids;
    double *effect;  // (ids)
    double *factor;  // (ids, factors)
} side;

struct rated {
    uint64_t seed;
    side side[RATED_TABLES];
};

bool rated_begins(const char *text) { return strncmp(text, "planted:", 8) == 0; }

err_t rated_parse(const char *text, rated_shape *shape) {
    int end = 0;
    char digits[4][24];
    if (sscanf(text, "planted:%18[0-9]:%18[0-9]:%18[0-9]:%18[0-9]%n", digits[0], digits[1], digits[2], digits[3],
               &end) != 4 ||
        text[end])
        return err_set(ERR_CONFIG,
                       "[pack] input = %s: made-up ratings are planted:SEED:RECORDS:USERS:ITEMS, four numbers, such as "
                       "planted:1:100000:943:1682",
                       text);
    *shape = (rated_shape){.seed = strtoull(digits[0], NULL, 10),
                           .records = strtoll(digits[1], NULL, 10),
                           .users = strtoll(digits[2], NULL, 10),
                           .items = strtoll(digits[3], NULL, 10)};
    if (shape->records < 1) return err_set(ERR_CONFIG, "[pack] input = %s: expected 1 record at least", text);
    int64_t least = shape->users < shape->items ? shape->users : shape->items,
            most = shape->users < shape->items ? shape->items : shape->users;
    if (least >= 1 && most <= RATED_IDS) return ERR_OK;
    return err_set(ERR_CONFIG, "[pack] input = %s: %" PRId64 " users and %" PRId64 " items, expected 1 to %d of each",
                   text, shape->users, shape->items, RATED_IDS);
}

// Parameters of users and items have sites of their own, and so have effects and factors.
static err_t open_side(rated *r, int which, int64_t ids) {
    side *s = &r->side[which];
    uint32_t site = SITE_RATINGS + 1 + 2 * (uint32_t)which;
    TRY(drawn_ids_open(&s->ids, ids, ZIPF));
    s->effect = malloc((size_t)ids * sizeof *s->effect);
    s->factor = malloc((size_t)ids * RATED_FACTORS * sizeof *s->factor);
    if (!s->effect || !s->factor) return err_set(ERR_INTERNAL, "no memory for a planted model of %" PRId64 " ids", ids);
    for (int64_t k = 0; k < ids; k++) s->effect[k] = drawn_normal(r->seed, site, k, EFFECT_STD[which]);
    for (int64_t k = 0; k < ids * RATED_FACTORS; k++) s->factor[k] = drawn_normal(r->seed, site + 1, k, FACTOR_STD);
    return ERR_OK;
}

err_t rated_open(rated **out, const rated_shape *shape) {
    rated *r = *out = calloc(1, sizeof *r);
    if (!r) return err_set(ERR_INTERNAL, "no memory for a planted model");
    r->seed = shape->seed;
    err_t rc = open_side(r, USER, shape->users);
    if (rc == ERR_OK) rc = open_side(r, ITEM, shape->items);
    if (rc != ERR_OK) rated_close(r), *out = NULL;
    return rc;
}

void rated_close(rated *r) {
    if (!r) return;
    for (int k = 0; k < RATED_TABLES; k++) {
        drawn_ids_close(&r->side[k].ids);
        free(r->side[k].effect), free(r->side[k].factor);
    }
    free(r);
}

static double draw(const rated *r, int64_t n, uint32_t which) { return drawn_uniform(r->seed, SITE_RATINGS, n, which); }

void rated_record(const rated *r, int64_t n, click *out, double *mean, double *variance) {
    double q = BEGIN, product[RATED_FACTORS];
    int hits = 0;
    for (int f = 0; f < RATED_FACTORS; f++) product[f] = 1;
    for (int k = 0; k < RATED_TABLES; k++) {
        const side *s = &r->side[k];
        int64_t id = drawn_id(&s->ids, draw(r, n, (uint32_t)(DRAW_USER + k)));
        out->id[k] = (uint64_t)id + 1;
        q += s->effect[id];
        for (int f = 0; f < RATED_FACTORS; f++) product[f] *= s->factor[id * RATED_FACTORS + f];
    }
    for (int f = 0; f < RATED_FACTORS; f++) q += product[f];
    q = q < LEAST ? LEAST : q > MOST ? MOST : q;
    for (int k = 0; k < HITS; k++) hits += draw(r, n, (uint32_t)(DRAW_HIT + k)) < q;
    out->label = (float)(1 + hits) / 2;
    *mean = (1 + HITS * q) / 2, *variance = HITS * q * (1 - q) / 4;
}
