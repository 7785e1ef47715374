// trainer/config/judge.c: see trainer/config/judge.h.
#include "trainer/config/judge.h"

#include <stdarg.h>
#include <string.h>

err_t judge_others(judge *j, const judge_other *all, size_t n, int with, const char *subject) {
    for (size_t k = 0; k < n; k++)
        if (all[k].is) return judge_refuse(j, ROWS(all[k].row, with), "%s %s", subject, all[k].why);
    return ERR_OK;
}

void judge_number(judge *j, double number) {
    if (number > 0 && j->numbers < JUDGE_NUMBERS) j->number[j->numbers++] = number;
}

err_t judge_refuse(judge *j, const int *rows, int count, const char *fmt, ...) {
    va_list ap;
    j->keys = 0;
    for (int i = 0; i < count && j->keys < JUDGE_KEYS; i++)
        if (rows[i] >= 0) j->key[j->keys++] = rows[i];
    if (j->silent) return ERR_CONFIG;
    va_start(ap, fmt);
    vsnprintf(j->text, sizeof j->text, fmt, ap);
    va_end(ap);
    return ERR_CONFIG;
}

void judge_reopen(config *c, bool model_only) {
    for (int i = config_next(c, -1); i >= 0; i = config_next(c, i)) {
        if (!c->origin[i].chosen || (model_only && strcmp(config_key(i)->section, "model") != 0)) continue;
        *(int64_t *)config_at(c, i) = *(int64_t *)config_in_force(c, i) = 0;
        c->origin[i].chosen = false;
    }
}
