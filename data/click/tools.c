// data/click/tools.c: see data/click/tools.h.
#include "data/click/tools.h"

#include "data/click/shard.h"
#include "data/shard_head.h"
#include "data/source.h"

#include <inttypes.h>
#include <math.h>

bool click_tools_know(const char *path) { return shard_begins(path, clicks_begin); }

typedef struct open_file {
    reader reader;
    click_shard shard;
} open_file;

static err_t begin(open_file *f, const char *path) {
    *f = (open_file){.shard.file.fd = -1};
    reader_open(&f->reader, 0, NULL);
    return click_shard_open(&f->shard, &f->reader, path);
}

static void end(open_file *f) {
    click_shard_close(&f->shard, &f->reader);
    reader_close(&f->reader);
}

typedef struct labels {
    double sum, least, most;  // of clicks, sum is how many there are
} labels;

// Added in order of records.
static err_t add_labels(open_file *f, labels *x) {
    uint8_t bytes[CLICK_BLOCK * CLICK_BYTES];
    *x = (labels){.least = INFINITY, .most = -INFINITY};
    for (int64_t block = 0; block < click_blocks(f->shard.records); block++) {
        int records;
        click one;
        TRY(click_shard_block(&f->shard, &f->reader, block, bytes, &records));
        for (int k = 0; k < records; k++) {
            TRY(click_take(&f->shard, bytes, k, block * CLICK_BLOCK + k, &one));
            x->sum += (double)one.label;
            x->least = fmin(x->least, (double)one.label), x->most = fmax(x->most, (double)one.label);
        }
    }
    return ERR_OK;
}

static err_t describe(open_file *f, FILE *out) {
    const click_shard *s = &f->shard;
    click_form has = s->form;
    labels x;
    TRY(add_labels(f, &x));
    fprintf(out,
            "%s: %s, %" PRId64 " records of %d number%s and %d id%s, %" PRId64
            " bytes, a checksum for %d records\n    ",
            s->file.path, has.rated ? "ratings" : "clicks", s->records, has.dense, has.dense == 1 ? "" : "s",
            has.tables, has.tables == 1 ? "" : "s", s->file.size, CLICK_BLOCK);
    double mean = x.sum / (double)s->records;
    if (has.rated) fprintf(out, "from %g to %g, %.4f in the mean", x.least, x.most, mean);
    else fprintf(out, "%.2f %% have label 1", 100 * mean);
    if (s->best > 0) fprintf(out, ", best possible loss %.4f", s->best);
    fprintf(out, "\n");
    return ERR_OK;
}

err_t click_tools_info(const char *path, FILE *out) {
    open_file f;
    err_t rc = begin(&f, path);
    if (rc == ERR_OK) rc = describe(&f, out);
    end(&f);
    return rc;
}

static void print_fault(void *ctx, const char *text) { fprintf(ctx, "%s\n", text); }

err_t click_tools_verify(const char *path, FILE *out) {
    open_file f;
    int64_t faults = 0;
    err_t rc = begin(&f, path);
    if (rc == ERR_OK) rc = click_shard_verify(&f.shard, &f.reader, print_fault, out, &faults);
    if (rc == ERR_OK && faults)
        rc = err_set(ERR_DATA, "%s: %" PRId64 " fault%s: copy or pack this file again", path, faults,
                     faults == 1 ? "" : "s");
    if (rc == ERR_OK) fprintf(out, "%s: right, %" PRId64 " records\n", path, f.shard.records);
    end(&f);
    return rc;
}
