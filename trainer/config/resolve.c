// trainer/config/resolve.c: settings, from all files, become those of a run: the rules are asked, and one that does not
// hold is reported at the line of the key that was set last, probably the one just edited, together with the nearest
// settings that pass.
#include "trainer/config/judge.h"

#include <string.h>

static bool later(key_origin a, key_origin b) { return a.file != b.file ? a.file > b.file : a.line > b.line; }

static err_t report(const judge *j) {
    char place[INI_PLACE], better[PROPOSALS];
    int at = j->key[0];
    for (int i = 1; i < j->keys; i++)
        if (later(j->c->origin[j->key[i]], j->c->origin[at])) at = j->key[i];
    propose(j, better);
    return err_set(ERR_CONFIG, "%s: [%s] %s: %s.%s", config_place(j->c, at, place), config_key(at)->section,
                   config_key(at)->key, j->text, better);
}

err_t config_resolve(config *c) {
    judge j = {.c = c};
    c->resolved.kind = c->device.backend;
    return judge_all(&j, c) == ERR_OK ? ERR_OK : report(&j);
}

err_t config_fits(const config *c, int world) {
    judge j = {.c = c, .world = world};
    return judge_ranks(&j, world) == ERR_OK ? ERR_OK : report(&j);
}

bool config_would(config *c, int world) {
    judge j = {.c = c, .world = world, .silent = true};
    judge_reopen(c, false);
    return judge_all(&j, c) == ERR_OK && judge_ranks(&j, world) == ERR_OK;
}

err_t config_settle(config *c, int64_t steps, double epoch_steps) {
    judge j = {.c = c};
    c->resolved.epochs = c->run.epochs, c->resolved.epoch_steps = epoch_steps;
    c->run.steps = steps, c->run.epochs = 0;
    c->origin[ROW(run, steps)] = c->origin[ROW(run, epochs)];
    judge_reopen(c, false);
    return judge_all(&j, c) == ERR_OK ? ERR_OK : report(&j);
}

err_t config_decide(config *c, device_kind kind, const char *why) {
    judge j = {.c = c};
    c->resolved.kind = kind;
    snprintf(c->resolved.why, sizeof c->resolved.why, "%s", why);
    judge_reopen(c, true);
    return judge_model(&j, c) == ERR_OK && judge_products(&j) == ERR_OK ? ERR_OK : report(&j);
}
