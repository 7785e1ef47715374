// test/bench/foreign_tables.c: see test/bench/foreign_tables.h.
#include "test/bench/foreign_tables.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *const table_name[TABLES] = {"vtrain-multi",         "megatron-2104-table1", "megatron-2104-table2",
                                        "megatron-2205-table5", "torchtitan",           "allreduce"};
static const char *const head[TABLES] = {
    "billions,gpus,global_batch,micro_batch,hidden,heads,layers,sequence,tensor,data,pipeline,ms",
    "billions,heads,hidden,layers,tensor,pipeline,gpus,global_batch,tflops_gpu,pflops",
    "scheme,billions,model_parallel,global_batch,gpus,micro_batch,tflops_gpu,days",
    "model,hidden,heads,layers,gpus,tensor,pipeline,chunks,global_batch,micro_batch,recompute,s",
    "model,device,gpus,fsdp,tensor,pipeline,context,sequence,local_batch,recompute,precision,compile,async_tp,"
    "schedule,tokens_per_s_gpu,gib",
    "device,gpus,bytes,us"};

enum { LINE = 1024, FIELDS = 16 };

// Bytes/s of a GPU's share of a node's cards: 800 Gbit/s for 8 (vTrain's settings), a card of 200 Gbit/s each (Selene),
// of 400 Gbit/s each (torchtitan/benchmarks).
static const double VTRAIN_CARD = 12.5e9, SELENE_CARD = 25e9, TITAN_CARD = 50e9;

// --- fields ----------------------------------------------------------------------------------------------------------

typedef struct reader {
    const char *path;
    int line, fields;
    table_kind kind;
    char text[LINE], *field[FIELDS];
    err_t rc;
} reader;

static void wrong(reader *r, int field, const char *expected) {
    if (r->rc != ERR_OK) return;
    const char *name = head[r->kind];
    for (int i = 0; i < field; i++) name = strchr(name, ',') + 1;
    r->rc = err_set(ERR_DATA, "%s:%d: %.*s `%.40s`: expected %s", r->path, r->line, (int)strcspn(name, ","), name,
                    r->field[field], expected);
}

static double number(reader *r, int field) {
    char *end;
    double x = strtod(r->field[field], &end);
    if (*end || end == r->field[field] || !(x > 0) || !isfinite(x)) return wrong(r, field, "a number above 0"), 1;
    return x;
}

static int64_t whole(reader *r, int field) {
    double x = number(r, field);
    if (x != floor(x) || x > 1e12) return wrong(r, field, "a whole number above 0"), 1;
    return (int64_t)x;
}

static int small(reader *r, int field) {
    int64_t x = whole(r, field);
    if (x > 1 << 14) return wrong(r, field, "a whole number, 16384 at most"), 1;
    return (int)x;
}

// Which of the words it is: "" is one, too.
static int word(reader *r, int field, const char *const *words, int count, const char *expected) {
    for (int i = 0; i < count; i++)
        if (strcmp(r->field[field], words[i]) == 0) return i;
    return wrong(r, field, expected), 0;
}

static int schedule_of(reader *r, int field) {
    const char *text = r->field[field];
    if (!*text) return 0;
    if (strcasecmp(text, "1F1B") == 0) return 1;
    if (strncasecmp(text, "interleaved", 11) == 0) return 2;
    return wrong(r, field, "1F1B, Interleaved1F1B or nothing"), 0;
}

static int64_t divided(reader *r, int field, int64_t by) {
    int64_t x = whole(r, field);
    if (x % by) return wrong(r, field, "a multiple of what it is divided by"), 1;
    return x / by;
}

static void split(reader *r) {
    r->fields = 0;
    r->text[strcspn(r->text, "\r\n")] = 0;
    for (char *p = r->text; p && r->fields < FIELDS; r->fields++) {
        r->field[r->fields] = p;
        p = strchr(p, ',');
        if (p) *p++ = 0;
        if (p && r->fields == FIELDS - 1) r->fields++;  // one more than any table has
    }
}

// --- rows ------------------------------------------------------------------------------------------------------------

static foreign_run gpt(int64_t hidden, int64_t heads, int64_t layers) {
    return (foreign_run){.device = FOREIGN_A100,
                         .card = SELENE_CARD,
                         .hidden = hidden,
                         .heads = heads,
                         .keys = heads,
                         .inner = 4 * hidden,
                         .layers = layers,
                         .vocabulary = 51200,
                         .sequence = 2048,
                         .data = 1,
                         .context = 1,
                         .chunks = 1,
                         .schedule = PIPELINE_1F1B,
                         .again = AGAIN_ALL,
                         .gradient = 4};
}

// Formula 3 of arXiv 2104.04473: with recomputation.
static double gpt_flops(const foreign_run *r, double samples) {
    double s = (double)r->sequence, h = (double)r->hidden, l = (double)r->layers, V = (double)r->vocabulary;
    return 96 * samples * s * l * h * h * (1 + s / (6 * h) + V / (16 * l * h));
}

// What Megatron's tables leave open: interleaved stages, and micro-batches where micro is 0.
static void add_choices(table_row *row, const foreign_run *r, int64_t samples, int64_t micro, int chunks) {
    for (int64_t b = micro ? micro : 1; b <= (micro ? micro : 8); b *= 2)
        for (int v = 1; v <= chunks; v++) {
            foreign_run one = *r;
            one.micro = b, one.micros = samples / b, one.chunks = v;
            if (samples % b ||
                (v > 1 && (r->pipeline == 1 || one.micros % r->pipeline || r->layers % (v * r->pipeline))))
                continue;
            one.schedule = v > 1 ? PIPELINE_INTERLEAVED : PIPELINE_1F1B;
            if (row->runs < ROW_RUNS) row->run[row->runs++].run = one;
        }
}

static void vtrain(reader *r, table_row *row) {
    foreign_run x = gpt(whole(r, 4), whole(r, 5), small(r, 6));
    x.card = VTRAIN_CARD, x.vocabulary = 50257, x.sequence = whole(r, 7), x.gradient = 2, x.deepspeed = true;
    x.tensor = small(r, 8), x.data = small(r, 9), x.pipeline = small(r, 10), x.micro = whole(r, 3);
    x.micros = divided(r, 2, x.data * x.micro);
    if ((int64_t)x.tensor * x.data * x.pipeline != whole(r, 1)) wrong(r, 1, "tensor x data x pipeline");
    snprintf(row->model, ROW_MODEL, "%.8sB on %.8s, batch %.8s", r->field[0], r->field[1], r->field[2]);
    row->measured = number(r, 11), row->scale = 1e3, row->runs = 1, row->run[0].run = x;
}

static void megatron_one(reader *r, table_row *row) {
    foreign_run x = gpt(whole(r, 2), whole(r, 1), small(r, 3));
    x.tensor = small(r, 4), x.pipeline = small(r, 5);
    int gpus = small(r, 6);
    if (gpus % (x.tensor * x.pipeline)) wrong(r, 6, "a multiple of tensor x pipeline");
    x.data = gpus / (x.tensor * x.pipeline);
    if (!x.data) x.data = 1;
    int64_t samples = divided(r, 7, x.data);
    number(r, 0), number(r, 9);
    snprintf(row->model, ROW_MODEL, "%.8sB on %d", r->field[0], gpus);
    row->measured = number(r, 8), row->work = 1e-12 * gpt_flops(&x, (double)(samples * x.data)) / gpus;
    add_choices(row, &x, samples, 0, 4);
}

// The models of table 2: 174.6 billion on 8 x 12, 529.6 billion on 8 x 35.
static void megatron_two(reader *r, table_row *row) {
    static const char *const schemes[] = {"zero3", "ptdp"};
    bool large = number(r, 1) > 300;
    foreign_run x = large ? gpt(20480, 128, 105) : gpt(12288, 96, 96);
    int gpus = small(r, 4), model = small(r, 2);
    bool zero = word(r, 0, schemes, 2, "zero3 or ptdp") == 0;
    if (model != (zero ? 1 : large ? 280 : 96)) wrong(r, 2, zero ? "1 of zero3" : large ? "280" : "96");
    x.tensor = zero ? 1 : 8, x.pipeline = model / x.tensor, x.shards = x.one_by_one = zero;
    if (!x.pipeline) x.pipeline = 1;
    if (zero) x.gradient = 2;
    if (gpus % model) wrong(r, 4, "a multiple of model_parallel");
    x.data = gpus >= model ? gpus / model : 1;
    int64_t samples = divided(r, 3, x.data), micro = whole(r, 5);
    if (samples % micro) wrong(r, 5, "a divisor of a data rank's samples");
    number(r, 7);
    snprintf(row->model, ROW_MODEL, "%.8sB on %d", r->field[1], gpus);
    row->measured = number(r, 6), row->work = 1e-12 * gpt_flops(&x, (double)(samples * x.data)) / gpus;
    add_choices(row, &x, samples, micro, 1);
}

static void megatron_five(reader *r, table_row *row) {
    static const char *const again[] = {"full", "selective"};
    foreign_run x = gpt(whole(r, 1), whole(r, 2), small(r, 3));
    x.tensor = small(r, 5), x.pipeline = small(r, 6), x.chunks = small(r, 7), x.micro = whole(r, 9);
    if ((int64_t)x.tensor * x.pipeline != whole(r, 4)) wrong(r, 4, "tensor x pipeline");
    x.micros = divided(r, 8, x.micro);
    if (x.chunks > 1) x.schedule = PIPELINE_INTERLEAVED;
    if (word(r, 10, again, 2, "full or selective") == 1) x.again = AGAIN_ATTENTION, x.rows = true;
    snprintf(row->model, ROW_MODEL, "%.8s on %.8s", r->field[0], r->field[4]);
    row->measured = number(r, 11), row->scale = 1, row->runs = 1, row->run[0].run = x;
}

// Llama 3.1 (arXiv 2407.21783, table 3).
static void torchtitan(reader *r, table_row *row) {
    static const char *const models[] = {"8B", "70B", "405B"}, *const devices[] = {"h100", "h200"},
                             *const again[] = {"full", "selective", ""},
                             *const types[] = {"bf16", "fp8", "fp8-rowwise"}, *const yes[] = {"0", "1"};
    static const int64_t sizes[3][4] = {{4096, 32, 14336, 32}, {8192, 64, 28672, 80}, {16384, 128, 53248, 126}};
    const int64_t *z = sizes[word(r, 0, models, 3, "8B, 70B or 405B")];
    foreign_run x = gpt(z[0], z[1], z[3]);
    x.llama = x.rows = x.shards = true, x.inner = z[2], x.keys = 8, x.vocabulary = 128256, x.card = TITAN_CARD;
    x.device = word(r, 1, devices, 2, "h100 or h200") ? FOREIGN_H200 : FOREIGN_H100;
    x.data = small(r, 3), x.tensor = small(r, 4), x.pipeline = small(r, 5), x.context = small(r, 6);
    x.sequence = whole(r, 7), x.micro = whole(r, 8), x.micros = 1;
    int at = word(r, 9, again, 3, "full, selective or nothing");
    x.again = at == 0 ? AGAIN_ALL : at == 1 ? AGAIN_HALF : AGAIN_NONE;
    x.type = (foreign_type)(FOREIGN_FP16 + word(r, 10, types, 3, "bf16, fp8 or fp8-rowwise"));
    word(r, 11, yes, 2, "0 or 1"), x.beside = word(r, 12, yes, 2, "0 or 1") == 1;
    int schedule = schedule_of(r, 13), gpus = small(r, 2);
    if (x.pipeline > 1) {  // as many micro-batches of one sample as there are; weights stay on their stage
        x.micros = x.micro, x.micro = 1, x.shards = false;
        x.schedule = schedule == 2 ? PIPELINE_INTERLEAVED : PIPELINE_1F1B, x.chunks = schedule == 2 ? 2 : 1;
    }
    if ((int64_t)x.data * x.tensor * x.pipeline * x.context != gpus) wrong(r, 2, "fsdp x tensor x pipeline x context");
    snprintf(row->model, ROW_MODEL, "%.4s %.4s on %d, %.8s", r->field[0], r->field[1], gpus, r->field[7]);
    row->measured = number(r, 14), row->runs = 1, row->run[0].run = x;
    row->work = (double)(x.sequence * x.micro * x.micros * x.data) / gpus;
}

static void all_reduce(reader *r, table_row *row) {
    static const char *const devices[] = {"a100", "v100"};
    row->device = word(r, 0, devices, 2, "a100 or v100") ? FOREIGN_V100 : FOREIGN_A100;
    row->gpus = small(r, 1), row->bytes = (double)whole(r, 2), row->measured = number(r, 3), row->scale = 1e6;
    if (row->gpus < 2 || row->gpus > 8) wrong(r, 1, "2 to 8");
    snprintf(row->model, ROW_MODEL, "%.8s, %d GPUs", r->field[0], row->gpus);
}

static void (*const take[TABLES])(reader *r, table_row *row) = {vtrain,        megatron_one, megatron_two,
                                                                megatron_five, torchtitan,   all_reduce};

// --- files -----------------------------------------------------------------------------------------------------------

table_kind table_kind_of(const char *file) {
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
    size_t n = strlen(name);
    for (table_kind k = 0; k < TABLES; k++) {
        char end[64];
        size_t m = (size_t)snprintf(end, sizeof end, "%s.csv", table_name[k]);
        if (n < m || strcmp(name + n - m, end) != 0) continue;
        if (n == m || name[n - m - 1] == '-') return k;
    }
    return TABLES;
}

static err_t take_row(tables *t, reader *r) {
    if (t->rows == t->room) {
        int room = t->room ? 2 * t->room : 64;
        table_row *more = realloc(t->row, (size_t)room * sizeof *more);
        if (!more) return err_set(ERR_INTERNAL, "no memory for %d rows", room);
        t->row = more, t->room = room;
    }
    table_row *row = &t->row[t->rows];
    *row = (table_row){.kind = r->kind};
    split(r);
    int wanted = 1;
    for (const char *p = head[r->kind]; *p; p++) wanted += *p == ',';
    if (r->fields != wanted)
        return err_set(ERR_DATA, "%s:%d: %d fields: expected %d, as in the head", r->path, r->line, r->fields, wanted);
    take[r->kind](r, row);
    TRY(r->rc);
    t->rows++;
    for (int i = 0; i < row->runs; i++) {
        foreign_run run = row->run[i].run;
        TRY(foreign_case_open(&row->run[i], &run));
        row->device = run.device;
    }
    return ERR_OK;
}

static err_t take_line(tables *t, reader *r, bool *headed) {
    size_t n = strlen(r->text);
    if (n + 1 == LINE) return err_set(ERR_DATA, "%s:%d: longer than %d characters", r->path, r->line, LINE - 2);
    if (strspn(r->text, "\r\n") == n || r->text[0] == '#') return ERR_OK;
    if (*headed) return take_row(t, r);
    r->text[strcspn(r->text, "\r\n")] = 0;
    if (strcmp(r->text, head[r->kind]) != 0)
        return err_set(ERR_DATA, "%s:%d: `%.40s`: expected the head `%s`", r->path, r->line, r->text, head[r->kind]);
    *headed = true;
    return ERR_OK;
}

err_t table_read(tables *t, const char *path, table_kind kind) {
    reader r = {.path = path, .kind = kind};
    bool headed = false;
    FILE *f = fopen(path, "re");
    if (!f) return err_set(ERR_IO, "%s: can't be read", path);
    err_t rc = ERR_OK;
    while (rc == ERR_OK && fgets(r.text, LINE, f)) {
        r.line++;
        // a remark may be of any length
        if (r.text[0] == '#' && !strchr(r.text, '\n'))
            for (int c = 0; c != '\n' && c != EOF;) c = fgetc(f);
        else rc = take_line(t, &r, &headed);
    }
    if (rc == ERR_OK && ferror(f)) rc = err_set(ERR_IO, "%s: can't be read", path);
    fclose(f);
    if (rc == ERR_OK && !headed)
        rc = err_set(ERR_DATA, "%s:%d: ends here: expected the head `%s`", path, r.line, head[kind]);
    return rc;
}

void tables_free(tables *t) {
    for (int i = 0; i < t->rows; i++)
        for (int k = 0; k < t->row[i].runs; k++) foreign_case_close(&t->row[i].run[k]);
    free(t->row);
    *t = (tables){0};
}

// --- predicted -------------------------------------------------------------------------------------------------------

static err_t predict_call(double *out, const table_row *row, foreign_machines *m) {
    const costs *c;
    double sent = 2 * row->bytes * (row->gpus - 1) / row->gpus;
    TRY(foreign_machine(&c, m, row->device, FOREIGN_FP16, SELENE_CARD));
    *out = row->scale * costs_of_call(c, CALL_ALL_REDUCE, COSTS_NODE, row->gpus, sent).s;
    return ERR_OK;
}

err_t table_predict(double *out, const table_row *row, foreign_machines *m) {
    double best = INFINITY, s;
    if (!row->runs) return predict_call(out, row, m);
    for (int i = 0; i < row->runs; i++) {
        TRY(foreign_step(&s, &row->run[i], m));
        best = fmin(best, s);
    }
    *out = row->work > 0 ? row->work / best : row->scale * best;
    return ERR_OK;
}
