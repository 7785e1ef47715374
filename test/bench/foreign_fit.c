// test/bench/foreign_fit.c: see test/bench/foreign_fit.h.
#include "test/bench/foreign_fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct fit {
    const tables *t;
    const bool *left_out;
    double *error;  // [rows] of the constants so far, and of those that are tried
    double *tried;
} fit;

// --- what a constant is of -------------------------------------------------------------------------------------------

// Can the constant change the row's prediction? Others need not be predicted again.
static bool matters(int constant, const table_row *r) {
    const char *name = constant_name(constant);
    if (strncmp(name, "v100", 4) == 0) return r->device == FOREIGN_V100;
    if (strncmp(name, "vtrain", 6) == 0) return r->kind == TABLE_VTRAIN;
    if (strncmp(name, "h100", 4) == 0) return r->kind == TABLE_TORCHTITAN;
    if (constant == CONSTANT_a100_zero3 || constant == CONSTANT_a100_beside) return r->run[0].run.one_by_one;
    if (constant >= CONSTANT_a100_start) return r->kind != TABLE_TORCHTITAN && r->device == FOREIGN_A100;
    return r->kind != TABLE_ALL_REDUCE && r->kind != TABLE_TORCHTITAN;
}

// Megatron's three tables are one: they have few rows.
static int table_of(const table_row *r) {
    return r->kind > TABLE_VTRAIN && r->kind <= TABLE_2205 ? TABLE_2205 : (int)r->kind;
}

static double loss(const fit *f, const double *error) {
    double sum[TABLES] = {0}, all = 0;
    int n[TABLES] = {0};
    for (int i = 0; i < f->t->rows; i++) {
        if (f->left_out && f->left_out[i]) continue;
        sum[table_of(&f->t->row[i])] += fabs(error[i]), n[table_of(&f->t->row[i])]++;
    }
    for (int k = 0; k < TABLES; k++) all += n[k] ? sum[k] / n[k] : 0;
    return all;
}

static err_t predict(const fit *f, const foreign_sheet *sheet, int constant, double *error) {
    for (int i = 0; i < f->t->rows; i++) {
        const table_row *r = &f->t->row[i];
        double p;
        if ((f->left_out && f->left_out[i]) || (constant >= 0 && !matters(constant, r))) continue;
        TRY(table_predict(&p, r, sheet));
        error[i] = p / r->measured - 1;
    }
    return ERR_OK;
}

// --- the fit ---------------------------------------------------------------------------------------------------------

// Tries the constant times `factor`. *best: the loss, if it is smaller now.
static err_t try_factor(fit *f, foreign_sheet *sheet, int constant, double factor, double *best, bool *better) {
    double was = sheet->at[constant];
    sheet->at[constant] = was * factor;
    memcpy(f->tried, f->error, (size_t)f->t->rows * sizeof *f->tried);
    TRY(predict(f, sheet, constant, f->tried));
    double now = loss(f, f->tried);
    *better = now < *best;
    if (*better) {
        *best = now;
        memcpy(f->error, f->tried, (size_t)f->t->rows * sizeof *f->error);
    } else sheet->at[constant] = was;
    return ERR_OK;
}

static err_t descend(fit *f, foreign_sheet *sheet) {
    const double FIRST = 0.2, LEAST = 0.003, GROWS = 1.4;
    enum { ROUNDS = 24 };
    double step[CONSTANT_COUNT], best;
    for (int i = 0; i < CONSTANT_COUNT; i++) step[i] = FIRST;
    TRY(predict(f, sheet, -1, f->error));
    best = loss(f, f->error);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < CONSTANT_COUNT; i++) {
            bool better = false;
            if (step[i] < LEAST) continue;
            TRY(try_factor(f, sheet, i, 1 + step[i], &best, &better));
            if (!better) TRY(try_factor(f, sheet, i, 1 / (1 + step[i]), &best, &better));
            step[i] = better ? step[i] * GROWS : step[i] / 2;
        }
    return ERR_OK;
}

err_t fit_sheet(foreign_sheet *sheet, const tables *t, const bool *left_out) {
    fit f = {.t = t, .left_out = left_out};
    f.error = calloc((size_t)t->rows, sizeof *f.error), f.tried = calloc((size_t)t->rows, sizeof *f.tried);
    err_t rc = f.error && f.tried ? descend(&f, sheet) : err_set(ERR_INTERNAL, "no memory for %d rows", t->rows);
    free(f.error), free(f.tried);
    return rc;
}

// --- folds -----------------------------------------------------------------------------------------------------------

// Each table's rows are dealt to the folds in a shuffled order (xorshift64, Marsaglia 2003).
static void deal(const tables *t, int *fold) {
    uint64_t state = 0x9e3779b97f4a7c15;
    for (int k = 0; k < TABLES; k++) {
        int order[t->rows + 1], n = 0;
        for (int i = 0; i < t->rows; i++)
            if ((int)t->row[i].kind == k) order[n++] = i;
        for (int i = n - 1; i > 0; i--) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            int j = (int)(state % (uint64_t)(i + 1)), other = order[i];
            order[i] = order[j], order[j] = other;
        }
        for (int i = 0; i < n; i++) fold[order[i]] = i % FOLDS;
    }
}

static err_t one_fold(const tables *t, const int *fold, int which, bool *left_out, double *predicted) {
    foreign_sheet sheet;
    foreign_sheet_start(&sheet);
    for (int i = 0; i < t->rows; i++) left_out[i] = fold[i] == which;
    TRY(fit_sheet(&sheet, t, left_out));
    for (int i = 0; i < t->rows; i++)
        if (left_out[i]) TRY(table_predict(&predicted[i], &t->row[i], &sheet));
    return ERR_OK;
}

err_t fit_folds(const tables *t, double *predicted) {
    int *fold = calloc((size_t)t->rows, sizeof *fold);
    bool *left_out = calloc((size_t)t->rows, sizeof *left_out);
    err_t rc = fold && left_out ? ERR_OK : err_set(ERR_INTERNAL, "no memory for %d rows", t->rows);
    if (rc == ERR_OK) deal(t, fold);
    for (int k = 0; k < FOLDS && rc == ERR_OK; k++) rc = one_fold(t, fold, k, left_out, predicted);
    free(fold), free(left_out);
    return rc;
}
