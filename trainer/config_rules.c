// trainer/config_rules.c: what the keys demand of each other, and the values of those that were left open (0).
//
// A rule that is broken is reported at the line of the key that was set last, since that is the one just edited, together with
// the nearest values that would satisfy it.
#include "trainer/config_table.h"

#include <string.h>

#define ROW(section, key) config_row(offsetof(config, section.key))

enum { LANES_MOST = 8 };  // what an open `lanes` becomes at most

static bool later(key_origin a, key_origin b) { return a.file != b.file ? a.file > b.file : a.line > b.line; }

// "file:line: [section] key" of the key set last among these.
static const char *latest(const config *c, const int *rows, int n, char dst[INI_PLACE + 128]) {
    char place[INI_PLACE];
    int at = rows[0];
    for (int i = 1; i < n; i++)
        if (later(c->origin[rows[i]], c->origin[at])) at = rows[i];
    snprintf(dst, INI_PLACE + 128, "%s: [%s] %s", config_place(c, at, place), config_keys[at].section, config_keys[at].key);
    return dst;
}

#define COUNT(...) (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int))
#define LATEST(...) latest(c, (const int[]){__VA_ARGS__}, COUNT(__VA_ARGS__), (char[INI_PLACE + 128]){0})

// dst = the divisors of n that are nearest to x: "a or b", below and above, or one of them.
static void nearest_divisors(int64_t n, int64_t x, char dst[64]) {
    int64_t below = 0, above = 0;
    for (int64_t d = x; d >= 1 && !below; d--)
        if (n % d == 0) below = d;
    for (int64_t d = x + 1; d <= n && !above; d++)
        if (n % d == 0) above = d;
    if (below && above) snprintf(dst, 64, "%lld or %lld", (long long)below, (long long)above);
    else snprintf(dst, 64, "%lld", (long long)(below ? below : above));
}

// dst = the multiples of m nearest to x.
static void nearest_multiples(int64_t m, int64_t x, char dst[64]) {
    int64_t below = x / m * m;
    if (below) snprintf(dst, 64, "%lld or %lld", (long long)below, (long long)(below + m));
    else snprintf(dst, 64, "%lld", (long long)m);
}

static err_t check_heads(const config *c) {
    int64_t embed = c->model.embed, heads = c->model.heads;
    if (embed % heads == 0) return ERR_OK;
    char divisors[64], multiples[64];
    nearest_divisors(embed, heads, divisors);
    nearest_multiples(heads, embed, multiples);
    return err_set(ERR_CONFIG, "%s: embed = %lld is not a multiple of heads = %lld. Nearest that work: heads = %s, or "
                   "embed = %s.", LATEST(ROW(model, heads), ROW(model, embed)), (long long)embed, (long long)heads, divisors,
                   multiples);
}

// global = lanes * micro * a whole number; lanes a power of two.
static err_t check_batch(config *c) {
    int64_t global = c->batch.global, micro = c->batch.micro, lanes = c->batch.lanes;
    char divisors[64], multiples[64];
    if (lanes & (lanes - 1)) {
        int64_t below = 1;
        while (below * 2 < lanes) below *= 2;
        return err_set(ERR_CONFIG, "%s: lanes = %lld is not a power of two. Nearest that work: %lld or %lld, or 0 = chosen for "
                       "you.", LATEST(ROW(batch, lanes)), (long long)lanes, (long long)below, (long long)below * 2);
    }
    if (global % micro) {
        nearest_divisors(global, micro, divisors);
        nearest_multiples(micro, global, multiples);
        return err_set(ERR_CONFIG, "%s: global = %lld is not a multiple of micro = %lld. Nearest that work: micro = %s, "
                       "or global = %s.", LATEST(ROW(batch, global), ROW(batch, micro)), (long long)global, (long long)micro,
                       divisors, multiples);
    }
    int64_t most = global / micro & -(global / micro);  // largest power of two that divides
    if (lanes == 0) {
        c->batch.lanes = most < LANES_MOST ? most : LANES_MOST;
        c->origin[ROW(batch, lanes)].chosen = true;
    } else if (lanes > most) {
        nearest_multiples(lanes * micro, global, multiples);
        return err_set(ERR_CONFIG, "%s: global = %lld is not lanes = %lld * micro = %lld * a whole number. Nearest that work: "
                       "lanes = %lld, or global = %s.", LATEST(ROW(batch, global), ROW(batch, micro), ROW(batch, lanes)),
                       (long long)global, (long long)lanes, (long long)micro, (long long)most, multiples);
    }
    return ERR_OK;
}

// A constant rate has no decay: an open decay_steps stays 0 there, so that the run can be extended without another schedule.
static err_t check_schedule(config *c) {
    if (c->schedule.type == SCHEDULE_CONSTANT && c->schedule.decay_steps == 0) return ERR_OK;
    bool open = c->schedule.decay_steps == 0;
    if (open) {
        c->schedule.decay_steps = c->run.steps;
        c->origin[ROW(schedule, decay_steps)].chosen = true;
    }
    if (c->schedule.warmup <= c->schedule.decay_steps) return ERR_OK;
    int end = open ? ROW(run, steps) : ROW(schedule, decay_steps);
    return err_set(ERR_CONFIG, "%s: the warm-up of %lld steps ends after the decay, which ends at step %lld (%s). Nearest that "
                   "work: warmup = %lld, or %s = %lld.", LATEST(ROW(schedule, warmup), end), (long long)c->schedule.warmup,
                   (long long)c->schedule.decay_steps, open ? "run.steps" : "decay_steps", (long long)c->schedule.decay_steps,
                   config_keys[end].key, (long long)c->schedule.warmup);
}

err_t config_resolve(config *c) {
    TRY(check_heads(c));
    TRY(check_batch(c));
    return check_schedule(c);
}
