// test/bench/planner_check.c: judges the planner's terms by published tables: `make planner-check DIR=...`. Prints
// errors only, table by table.
//
//   planner_check [--sheet FILE] [--folds] [--fit] [--rows] DIR
//
// --folds: first the errors of rows that a fit did not see, by five folds. --fit: the constants fitted to all rows go
// to the sheet. --rows: the error of each row, too.
#include "test/bench/foreign_fit.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static bool is_table(const char *name) {
    size_t n = strlen(name);
    return n > 4 && strcmp(name + n - 4, ".csv") == 0;
}

static err_t read_folder(tables *t, const char *dir) {
    struct dirent **entry;
    char path[4096];
    int n = scandir(dir, &entry, NULL, by_name);
    if (n < 0) return err_set(ERR_IO, "%s: expected a folder of published tables", dir);
    err_t rc = ERR_OK;
    for (int i = 0; i < n; i++) {
        const char *name = entry[i]->d_name;
        table_kind kind = table_kind_of(name);
        snprintf(path, sizeof path, "%s/%s", dir, name);
        if (rc == ERR_OK && kind != TABLES) rc = table_read(t, path, kind);
        else if (rc == ERR_OK && is_table(name)) printf("skipped: %s, a table of no known kind\n", name);
        free(entry[i]);
    }
    free(entry);
    if (rc == ERR_OK && !t->rows)
        rc = err_set(ERR_DATA, "%s: no rows: expected files such as dev-%s.csv", dir, table_name[0]);
    return rc;
}

// --- errors ----------------------------------------------------------------------------------------------------------

static int by_size(const void *a, const void *b) {
    double x = fabs(*(const double *)a), y = fabs(*(const double *)b);
    return (x > y) - (x < y);
}

static void print_errors(const char *name, const double *error, int n) {
    double sorted[n + 1], sum = 0;
    if (!n) return;
    memcpy(sorted, error, (size_t)n * sizeof *error);
    qsort(sorted, (size_t)n, sizeof *sorted, by_size);
    for (int i = 0; i < n; i++) sum += fabs(sorted[i]);
    double middle = n % 2 ? fabs(sorted[n / 2]) : (fabs(sorted[n / 2 - 1]) + fabs(sorted[n / 2])) / 2;
    printf("%-24s %5d %8.2f %% %8.2f %% %+8.2f %%\n", name, n, 100 * sum / n, 100 * middle, 100 * sorted[n - 1]);
}

static bool is_megatron(const table_row *r) { return r->kind >= TABLE_2104_ONE && r->kind <= TABLE_2205; }

static err_t print_tables(const tables *t, const double *predicted) {
    double *error = malloc((size_t)t->rows * sizeof *error);
    if (!error) return err_set(ERR_INTERNAL, "no memory for %d errors", t->rows);
    printf("%-24s %5s %10s %10s %10s\n", "error of", "rows", "mean", "median", "worst");
    for (int k = 0; k <= TABLES; k++) {  // the last one: all of Megatron's
        int n = 0;
        for (int i = 0; i < t->rows; i++)
            if (k < TABLES ? (int)t->row[i].kind == k : is_megatron(&t->row[i]))
                error[n++] = predicted[i] / t->row[i].measured - 1;
        print_errors(k < TABLES ? table_name[k] : "megatron, all three", error, n);
    }
    free(error);
    return ERR_OK;
}

// Of a table's rows of one model, how much slower is the one that is predicted to be the fastest?
static void print_choices(const tables *t, const double *predicted) {
    for (int i = 0; i < t->rows; i++) {
        const table_row *first = &t->row[i];
        int chosen = i, best = i, n = 0;
        bool seen = !first->runs;
        for (int k = 0; k < t->rows; k++) {
            const table_row *r = &t->row[k];
            if (r->kind != first->kind || strcmp(r->model, first->model) != 0) continue;
            seen |= k < i, n++;
            double sign = r->work > 0 ? -1 : 1;
            if (sign * predicted[k] < sign * predicted[chosen]) chosen = k;
            if (sign * r->measured < sign * t->row[best].measured) best = k;
        }
        if (seen || n < 2) continue;
        double ratio = t->row[chosen].measured / t->row[best].measured;
        printf("choice of %d, %s, %s: %.2f %% slower than the best\n", n, table_name[first->kind], first->model,
               100 * fabs((first->work > 0 ? 1 / ratio : ratio) - 1));
    }
}

static void print_rows(const tables *t, const double *predicted) {
    int n = 0;
    for (int i = 0; i < t->rows; i++) {
        const table_row *r = &t->row[i];
        n = i && t->row[i - 1].kind == r->kind ? n + 1 : 1;
        printf("%s row %d, %s: %+.2f %%\n", table_name[r->kind], n, r->model, 100 * (predicted[i] / r->measured - 1));
    }
}

// --- the command -----------------------------------------------------------------------------------------------------

typedef struct options {
    const char *sheet, *dir;
    bool folds, fit, rows;
} options;

static err_t read_options(options *o, int argc, char **argv) {
    *o = (options){.sheet = "test/bench/foreign.sheet"};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--folds") == 0) o->folds = true;
        else if (strcmp(argv[i], "--fit") == 0) o->fit = true;
        else if (strcmp(argv[i], "--rows") == 0) o->rows = true;
        else if (strcmp(argv[i], "--sheet") == 0 && i + 1 < argc) o->sheet = argv[++i];
        else if (argv[i][0] != '-' && !o->dir) o->dir = argv[i];
        else return err_set(ERR_USAGE, "%s: expected [--sheet FILE] [--folds] [--fit] [--rows] DIR", argv[i]);
    }
    return o->dir ? ERR_OK : err_set(ERR_USAGE, "expected a folder of published tables: make planner-check DIR=...");
}

static err_t judge(const options *o, const tables *t, double *predicted) {
    foreign_sheet sheet;
    if (o->folds) {
        printf("rows that the fit did not see, five folds:\n");
        TRY(fit_folds(t, predicted));
        TRY(print_tables(t, predicted));
        if (o->rows) print_rows(t, predicted);
        printf("\n");
    }
    if (o->fit) {
        foreign_sheet_start(&sheet);
        TRY(fit_sheet(&sheet, t, NULL));
        TRY(foreign_sheet_write(&sheet, o->sheet));
        printf("all rows, with %d constants fitted to all:\n", CONSTANT_COUNT);
    }
    TRY(foreign_sheet_read(&sheet, o->sheet));
    TRY(fit_predict(predicted, t, &sheet, NULL));
    TRY(print_tables(t, predicted));
    print_choices(t, predicted);
    if (o->rows) print_rows(t, predicted);
    return ERR_OK;
}

int main(int argc, char **argv) {
    options o;
    tables t = {0};
    double *predicted = NULL;
    err_t rc = read_options(&o, argc, argv);
    if (rc == ERR_OK) rc = read_folder(&t, o.dir);
    if (rc == ERR_OK) {
        predicted = calloc((size_t)t.rows, sizeof *predicted);
        rc = predicted ? judge(&o, &t, predicted) : err_set(ERR_INTERNAL, "no memory for %d rows", t.rows);
    }
    if (rc != ERR_OK) fprintf(stderr, "planner_check: %s\n", err_last()->text);
    free(predicted);
    tables_free(&t);
    return rc;
}
