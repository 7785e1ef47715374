// test/bench/foreign_sheet.c: see test/bench/foreign_sheet.h.
#include "test/bench/foreign_sheet.h"

#include "trainer/costs/sheets.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    double start;
    const char *meaning;
} constant[] = {
#define CONSTANT_LINE(name, start, meaning) {#name, start, meaning},
    CONSTANTS(CONSTANT_LINE)
#undef CONSTANT_LINE
};

const char *constant_name(int i) { return constant[i].name; }

void foreign_sheet_start(foreign_sheet *s) {
    for (int i = 0; i < CONSTANT_COUNT; i++) s->at[i] = constant[i].start;
}

// --- the file --------------------------------------------------------------------------------------------------------

err_t foreign_sheet_read(foreign_sheet *s, const char *path) {
    char line[512], name[64];
    double value;
    int found = 0;
    FILE *f = fopen(path, "re");
    if (!f) return err_set(ERR_IO, "%s: can't be read; `planner-check --fit %s DIR` makes it", path, path);
    err_t rc = ERR_OK;
    for (int n = 1; rc == ERR_OK && fgets(line, sizeof line, f); n++) {
        if (line[0] == '#' || line[0] == '\n') continue;
        if (found == CONSTANT_COUNT)
            rc = err_set(ERR_DATA, "%s:%d: expected the end, after %d constants", path, n, CONSTANT_COUNT);
        else if (sscanf(line, "%63s %lf", name, &value) != 2 || strcmp(name, constant[found].name) != 0 ||
                 !(value > 0) || !isfinite(value))
            rc = err_set(ERR_DATA, "%s:%d: expected `%s` and a number above 0", path, n, constant[found].name);
        else s->at[found++] = value;
    }
    fclose(f);
    if (rc == ERR_OK && found < CONSTANT_COUNT)
        rc = err_set(ERR_DATA, "%s: ends before `%s`: expected %d constants", path, constant[found].name,
                     CONSTANT_COUNT);
    return rc;
}

err_t foreign_sheet_write(const foreign_sheet *s, const char *path) {
    FILE *f = fopen(path, "we");
    if (!f) return err_set(ERR_IO, "%s: can't be written", path);
    fprintf(f, "# Constants of test/bench/foreign_sheet.h, fitted to published tables by `planner-check --fit`. Each:\n"
               "# its value, what it means, and the tables that it was fitted to.\n");
    for (int i = 0; i < CONSTANT_COUNT; i++)
        fprintf(f, "%-15s %-9.5g %s\n", constant[i].name, s->at[i], constant[i].meaning);
    bool whole = !ferror(f);
    return fclose(f) == 0 && whole ? ERR_OK : err_set(ERR_IO, "%s: can't be written", path);
}

// --- tables of costs -------------------------------------------------------------------------------------------------

// Seconds of an all-reduce within a node, of which each GPU sends so many bytes.
static double all_reduce(const foreign_sheet *s, foreign_device device, int n, double sent) {
    const double *k = s->at;
    if (device == FOREIGN_V100) {
        double rate = n <= 2   ? k[CONSTANT_v100_two]
                      : n <= 4 ? k[CONSTANT_v100_four]
                      : n <= 5 ? k[CONSTANT_v100_five]
                      : n <= 7 ? k[CONSTANT_v100_four]
                               : k[CONSTANT_v100_eight];
        return 1e-6 * k[CONSTANT_v100_rank] * n + sent / (1e9 * rate);
    }
    double rate = 1e9 * k[CONSTANT_a100_rate], us = k[CONSTANT_a100_start] + k[CONSTANT_a100_rank] * n;
    if (device != FOREIGN_A100) rate = 450e9 * k[CONSTANT_h100_link];
    return 1e-6 * (us + k[CONSTANT_a100_root] * sqrt(1e-6 * sent)) + sent / rate * (1 + k[CONSTANT_a100_few] / n);
}

// A gather or a scatter sends half as much, in half the time.
static err_t add_curves(costs *c, const foreign_sheet *s, foreign_device device) {
    static const int groups[] = {2, 4, 5, 7, 8};
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        for (double sent = 1 << 16; sent < 64e9; sent *= 4)
            for (costs_call call = CALL_ALL_REDUCE; call <= CALL_ALL_GATHER; call++) {
                double part = call == CALL_ALL_REDUCE ? 1 : 0.5;
                costs_comm x = {.call = call, .level = COSTS_NODE, .ranks = groups[g], .bytes = part * sent};
                x.s.is = part * all_reduce(s, device, groups[g], sent);
                TRY(costs_set_comm(c, &x));
            }
    return ERR_OK;
}

static void set_reach(costs *c, const char *op, double share) {
    for (int i = 0; i < c->reaches; i++)
        if (strcmp(c->reach[i].name, op) == 0) c->reach[i].share.is = share;
}

static void set_hopper(costs *c, const foreign_sheet *s, foreign_device device, foreign_type type) {
    const double *k = s->at, FP8 = 2, MEMORY = 2.4e12;  // of the peak in BF16; of these H100: torchtitan/benchmarks
    const double BACKWARD = 0.85;                       // of what attention reaches forward
    double reach = type == FOREIGN_FP16 ? k[CONSTANT_h100_matmul] : FP8 * k[CONSTANT_h100_fp8];
    if (device == FOREIGN_H100) c->copy.is = MEMORY;
    set_reach(c, "matmul", reach);
    set_reach(c, "attention_forward", k[CONSTANT_h100_attention]);
    set_reach(c, "attention_backward", BACKWARD * k[CONSTANT_h100_attention]);
}

err_t foreign_costs(costs *out, const foreign_sheet *s, foreign_device device, foreign_type type, double card) {
    const double *k = s->at;
    bool hopper = device == FOREIGN_H100 || device == FOREIGN_H200;
    const char *name = device == FOREIGN_H100 ? "h100" : device == FOREIGN_H200 ? "h200" : "a100";
    TRY(costs_parse(out, name, sheet_text(name)));
    set_reach(out, "other", k[CONSTANT_a100_other]);
    set_reach(out, "matmul", k[CONSTANT_a100_matmul]);
    out->launch.is = 1e-6 * k[CONSTANT_a100_launch];
    if (!hopper) out->tiles.lost = (int)k[CONSTANT_a100_lost];
    if (hopper) set_hopper(out, s, device, type);
    out->link[COSTS_RACK].rate.is = card * k[hopper ? CONSTANT_h100_link : CONSTANT_a100_card];
    out->link[COSTS_NODE].rate.is = hopper ? 450e9 * k[CONSTANT_h100_link] : 1e9 * k[CONSTANT_a100_rate];
    return add_curves(out, s, device);
}

err_t foreign_machine(const costs **c, foreign_machines *m, foreign_device device, foreign_type type, double card) {
    enum { MOST = sizeof m->at / sizeof *m->at };
    int i = 0;
    while (i < m->count && (m->at[i].device != device || m->at[i].type != type || m->at[i].card != card)) i++;
    if (i == MOST) return err_set(ERR_INTERNAL, "more than %d kinds of machines", MOST);
    *c = &m->at[i].costs;
    if (i < m->count) return ERR_OK;
    m->count++;
    m->at[i].device = device, m->at[i].type = type, m->at[i].card = card;
    return foreign_costs(&m->at[i].costs, m->sheet, device, type, card);
}

void foreign_machines_free(foreign_machines *m) {
    for (int i = 0; i < m->count; i++) costs_free(&m->at[i].costs);
    m->count = 0;
}
