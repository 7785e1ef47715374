// test/bench/bench_blocks.c: what [checkpoint] compress = zstd costs and saves.
//
//     bench_blocks FILE.safetensors... [LEVEL...]
//
// Files of a checkpoint, such as runs/NAME/best/optimizer.safetensors, are written plain, and in blocks at each level
// (1, 3, 9), to TMPDIR, and read back. Printed is the ratio of lengths, the MB/s of one core for both ways (the
// processor's time, so that the disk does not count; content without its digests, which are the same for both), and the
// speed of a disk below which a checkpoint takes less time: each byte of it is written, and read back to verify it. MB
// are 10^6 bytes. It takes the best of three rounds.
#include "base/io.h"
#include "model/blocks.h"
#include "model/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 3, FILES = 16, LEVELS = 8, PIECE = 1 << 18 };

typedef struct cost {
    double write_s, read_s;
    int64_t bytes;
} cost;

static double cpu_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static err_t write_form(const st_file *from, const char *path, int level, float *const *data, int64_t *bytes) {
    st_writer w;
    st_tensor *table = calloc((size_t)from->count + 1, sizeof *table);
    if (!table) return err_set(ERR_INTERNAL, "no memory");
    memcpy(table, from->tensors, (size_t)from->count * sizeof *table);
    err_t rc = level ? st_create_blocks(&w, path, table, from->count, NULL, level, NULL)
                     : st_create(&w, path, table, from->count, NULL, NULL);
    for (int i = 0; i < from->count && rc == ERR_OK; i++)
        for (int64_t k = 0, n, all = from->tensors[i].bytes; k < all && rc == ERR_OK; k += n) {
            n = all - k < 4 * PIECE ? all - k : 4 * PIECE;
            rc = st_put(&w, (const char *)data[i] + k, (size_t)n);
        }
    free(table);
    return rc == ERR_OK ? st_finish(&w, bytes) : rc;
}

static err_t read_form(const char *path, float *to) {
    st_file f;
    TRY(st_open(&f, path));
    err_t rc = ERR_OK;
    for (int i = 0; i < f.count; i++)
        for (int64_t k = 0, n, all = f.tensors[i].bytes / 4; k < all && rc == ERR_OK; k += n) {
            n = all - k < PIECE ? all - k : PIECE;
            rc = st_read_f32_part(&f, &f.tensors[i], k, n, to);
        }
    st_close(&f);
    return rc;
}

static err_t measure(const st_file *from, float *const *data, const char *path, int level, cost *best) {
    float *to = malloc(PIECE * sizeof *to);
    err_t rc = to ? ERR_OK : err_set(ERR_INTERNAL, "no memory");
    for (int i = 0; i < ROUNDS && rc == ERR_OK; i++) {
        int64_t bytes = 0;
        double start = cpu_now();
        rc = write_form(from, path, level, data, &bytes);
        double middle = cpu_now();
        if (rc == ERR_OK) rc = read_form(path, to);
        double end = cpu_now();
        if (i == 0 || middle - start < best->write_s) best->write_s = middle - start;
        if (i == 0 || end - middle < best->read_s) best->read_s = end - middle;
        best->bytes = bytes;
    }
    unlink(path);
    free(to);
    return rc;
}

static void row(const char *name, const char *how, const cost *c, const cost *plain) {
    double mb = (double)plain->bytes / 1e6, more = c->write_s + c->read_s - plain->write_s - plain->read_s;
    printf("| %s | %s | %.1f | %.3f | %.0f | %.0f | ", name, how, (double)c->bytes / 1e6,
           (double)plain->bytes / (double)c->bytes, mb / c->write_s, mb / c->read_s);
    if (c == plain) printf("|\n");
    else printf("%.0f |\n", 2 * (double)(plain->bytes - c->bytes) / 1e6 / more);
}

static err_t bench(const char *file, const int *level, int levels) {
    const char *base = getenv("TMPDIR"), *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
    char path[IO_PATH], how[16];
    st_file f;
    cost plain = {0}, c = {0};
    TRY(io_path(path, "%s/bench-blocks-%d", base ? base : "/tmp", (int)getpid()));
    TRY(st_open(&f, file));
    float **data = calloc((size_t)f.count + 1, sizeof *data);
    err_t rc = data ? ERR_OK : err_set(ERR_INTERNAL, "no memory");
    for (int i = 0; i < f.count && rc == ERR_OK; i++) {
        data[i] = malloc((size_t)f.tensors[i].bytes + 1);
        rc = data[i] ? st_read(&f, &f.tensors[i], data[i]) : err_set(ERR_INTERNAL, "no memory");
    }
    if (rc == ERR_OK) rc = measure(&f, data, path, 0, &plain);
    if (rc == ERR_OK) row(name, "none", &plain, &plain);
    for (int k = 0; k < levels && rc == ERR_OK; k++) {
        rc = measure(&f, data, path, level[k], &c);
        snprintf(how, sizeof how, "zstd %d", level[k]);
        if (rc == ERR_OK) row(name, how, &c, &plain);
    }
    for (int i = 0; data && i < f.count; i++) free(data[i]);
    free(data);
    st_close(&f);
    return rc;
}

int main(int argc, char **argv) {
    int level[LEVELS] = {1, 3, 9}, levels = 0, files = 0;
    const char *file[FILES];
    for (int i = 1; i < argc; i++) {
        int n = atoi(argv[i]);
        if (n >= 1 && n <= BLOCK_LEVELS && levels < LEVELS) level[levels++] = n;
        else if (files < FILES) file[files++] = argv[i];
    }
    if (!files) {
        fprintf(stderr, "bench_blocks: expected files of a checkpoint: bench_blocks FILE.safetensors... [LEVEL...]\n");
        return ERR_USAGE;
    }
    printf("| file | compress | MB | ratio | MB/s written | MB/s read | saves time on disks below, MB/s |\n");
    printf("|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < files; i++)
        if (bench(file[i], level, levels ? levels : 3) != ERR_OK)
            return fprintf(stderr, "bench_blocks: %s\n", err_last()->text), (int)err_last()->code;
    return 0;
}
