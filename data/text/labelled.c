// data/text/labelled.c: rows of texts with labels (data/text/labels.h) as a source.
#include "data/source.h"
#include "data/text/dataset.h"
#include "data/text/labels.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct labelled_source {
    source head;
    dataset *rows;
    int64_t T, vocab, types, classes;
    bool numbers;    // labels are numbers, FP32
    int32_t *row;    // (T+LABEL_ROW)
    uint8_t *marks;  // (T+LABEL_ROW)
} labelled_source;

enum { TOKENS, TYPES, LENGTH, LABEL };

static float number_of(const labelled_source *x) {
    uint32_t bits = (uint32_t)x->row[x->T + 1] | (uint32_t)x->marks[x->T + 1] << 31;
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

// The files say what the tokenizer and the labels were, and [model] what the model has of both.
static err_t check_row(const labelled_source *x, int64_t sample) {
    int32_t length = x->row[x->T], label = x->row[x->T + 1];
    if (length < 1 || length > x->T)
        return err_set(ERR_DATA, "sample %" PRId64 ": its length is %d, expected 1 to %" PRId64, sample, length, x->T);
    if (!x->numbers && label >= x->classes)
        return err_set(ERR_DATA,
                       "sample %" PRId64 " is of class %d, and the model has [model] classes = %" PRId64
                       ", 0 to %" PRId64,
                       sample, label, x->classes, x->classes - 1);
    if (x->numbers && !isfinite(number_of(x)))
        return err_set(ERR_DATA, "sample %" PRId64 ": its number is infinite, or none", sample);
    for (int64_t t = 0; t < x->T; t++)
        if (x->row[t] >= x->vocab)
            return err_set(ERR_DATA, "sample %" PRId64 ": token %d, and the model has [model] vocab = %" PRId64, sample,
                           x->row[t], x->vocab);
    return ERR_OK;
}

static err_t read_row(labelled_source *x, int64_t sample) {
    int64_t n = x->T + LABEL_ROW;
    TRY(dataset_read_marked(x->rows, sample * n, n, x->row, x->marks));
    return check_row(x, sample);
}

static err_t labelled_read(source *s, const source_draw *d, void *const *out) {
    labelled_source *x = (labelled_source *)s;
    TRY(read_row(x, d->sample));
    if (out[TOKENS]) memcpy(out[TOKENS], x->row, (size_t)x->T * sizeof *x->row);
    for (int64_t t = 0; out[TYPES] && t < x->T; t++) ((int32_t *)out[TYPES])[t] = x->marks[t];
    if (out[LENGTH]) *(int32_t *)out[LENGTH] = x->row[x->T];
    if (out[LABEL] && x->numbers) *(float *)out[LABEL] = number_of(x);
    else if (out[LABEL]) *(int32_t *)out[LABEL] = x->row[x->T + 1];
    return ERR_OK;
}

// Of values that the model does not have the first one is reported.
static err_t labelled_verify(source *s, void (*report)(void *ctx, const char *text), void *ctx) {
    labelled_source *x = (labelled_source *)s;
    err_t rc = dataset_verify(x->rows, report, ctx);
    int64_t samples = dataset_about(x->rows).tokens / dataset_about(x->rows).row_tokens;
    for (int64_t k = 0; k < samples && rc == ERR_OK; k++)
        if ((rc = read_row(x, k)) != ERR_OK) report(ctx, err_last()->text);
    return rc;
}
static void labelled_cancel(source *s, bool cancelled) { dataset_cancel(((labelled_source *)s)->rows, cancelled); }
static void labelled_counts(const source *s, int64_t *retries, int64_t *read) {
    dataset_counts(((const labelled_source *)s)->rows, retries, read);
}
static void labelled_close(source *s) {
    labelled_source *x = (labelled_source *)s;
    dataset_close(x->rows);
    free(x->row), free(x->marks);
    free(x);
}

static const source_type type = {.read = labelled_read,
                                 .verify = labelled_verify,
                                 .cancel = labelled_cancel,
                                 .counts = labelled_counts,
                                 .close = labelled_close};

static void describe(labelled_source *x) {
    static const char *const name[] = {"tokens", "types", "length", "label"};
    dataset_info d = dataset_about(x->rows);
    source *s = &x->head;
    s->about = (source_info){.samples = d.tokens / d.row_tokens,
                             .units = d.tokens / d.row_tokens,
                             .units_per_sample = 1,
                             .unit = "samples",
                             .files = d.files};
    memcpy(s->about.hash, d.hash, sizeof s->about.hash);
    s->tensors = 4;
    for (int k = 0; k < 4; k++) {
        s->tensor[k] = (tensor_spec){.type = INT32, .dims = k < LENGTH, .size = {k < LENGTH ? x->T : 1, 1, 1}};
        strcpy(s->tensor[k].name, name[k]);
    }
    if (x->numbers) s->tensor[LABEL].type = FP32;
}

static err_t check_files(const labelled_source *x, const source_options *o) {
    dataset_info d = dataset_about(x->rows);
    if (!d.labels)
        return err_set(ERR_CONFIG,
                       "the model %s, and in these files no text has a label: pack them with [pack] "
                       "template = %s",
                       x->numbers ? "gives texts numbers" : "sorts texts into classes",
                       x->numbers ? "numbers" : "labels");
    if (d.numbers && !x->numbers)
        return err_set(ERR_CONFIG,
                       "the model sorts texts into classes, and the labels of these files are numbers: pack "
                       "them with [pack] template = labels, or set [model] task = regress");
    if (!d.numbers && x->numbers)
        return err_set(ERR_CONFIG,
                       "the model gives texts numbers, and the labels of these files are classes: pack them "
                       "with [pack] template = numbers, or set [model] task = classify");
    if (o->answers || o->ignores)
        return err_set(ERR_CONFIG, "[data] answers and ignore are for models that continue texts: leave them out");
    if (x->types < 2)
        return err_set(ERR_CONFIG, "samples of two texts want [model] types of at least 2, found %" PRId64, x->types);
    if (d.row_tokens == x->T + LABEL_ROW) return ERR_OK;
    return err_set(ERR_CONFIG,
                   "these samples were packed for [model] context = %" PRId64 ", and the model reads %" PRId64
                   " tokens: set context = %" PRId64 ", or pack them again",
                   d.row_tokens - LABEL_ROW, x->T, d.row_tokens - LABEL_ROW);
}

static err_t open_labelled(labelled_source *x, const source_options *o) {
    const tensor_spec *tokens = source_wants(o, "tokens");
    TRY(dataset_open(&x->rows, &(dataset_options){.files = o->files,
                                                  .format = o->format,
                                                  .packed = o->packed,
                                                  .retry = o->retry,
                                                  .shared_by = o->shared_by,
                                                  .faults = o->faults}));
    x->T = tokens->size[0], x->vocab = tokens->limit;
    x->types = source_wants(o, "types")->limit, x->classes = source_wants(o, "label")->limit;
    x->numbers = source_wants(o, "label")->type == FP32;
    TRY(check_files(x, o));
    describe(x);
    x->row = malloc((size_t)(x->T + LABEL_ROW) * sizeof *x->row);
    x->marks = malloc((size_t)(x->T + LABEL_ROW));
    return x->row && x->marks ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a row of %" PRId64 " tokens", x->T);
}

err_t labelled_open(source **out, const source_options *o) {
    labelled_source *x = calloc(1, sizeof *x);
    if (!x) return err_set(ERR_INTERNAL, "no memory for a source of texts with labels");
    x->head.type = &type;
    err_t rc = open_labelled(x, o);
    if (rc != ERR_OK) labelled_close(&x->head);
    else *out = &x->head;
    return rc;
}
