// data/click/tools.c: see data/click/tools.h.
#include "data/click/tools.h"

#include "data/click/shard.h"
#include "data/shard_head.h"
#include "data/source.h"

#include <inttypes.h>

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

// Of the records that are right.
static err_t count_clicks(open_file *f, int64_t *clicks) {
    uint8_t bytes[CLICK_BLOCK * CLICK_BYTES];
    *clicks = 0;
    for (int64_t block = 0; block < click_blocks(f->shard.records); block++) {
        int records;
        click one;
        TRY(click_shard_block(&f->shard, &f->reader, block, bytes, &records));
        for (int k = 0; k < records; k++) {
            TRY(click_take(&f->shard, bytes, k, block * CLICK_BLOCK + k, &one));
            *clicks += one.label;
        }
    }
    return ERR_OK;
}

static err_t describe(open_file *f, FILE *out) {
    const click_shard *s = &f->shard;
    int64_t clicks;
    TRY(count_clicks(f, &clicks));
    fprintf(out,
            "%s: clicks, %" PRId64 " records of %d number%s and %d id%s, %" PRId64
            " bytes, a checksum for %d records\n    %.2f %% have label 1",
            s->file.path, s->records, s->dense, s->dense == 1 ? "" : "s", s->tables, s->tables == 1 ? "" : "s",
            s->file.size, CLICK_BLOCK, 100.0 * (double)clicks / (double)s->records);
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
