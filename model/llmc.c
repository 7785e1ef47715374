// model/llmc.c: see model/llmc.h.
#include "model/llmc.h"

#include "base/io.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LLMC_MAGIC = 20240326, LLMC_HEADER = 256 };

typedef struct llmc {
    st_file *f;
    int64_t at;
    st_type type;
} llmc;

static void add_tensor(llmc *c, int64_t stored_rows, int64_t rows, int64_t cols, const char *format, int l) {
    st_tensor *t = &c->f->tensors[c->f->count++];
    int64_t each = c->type == ST_F32 ? 4 : 2;
    *t = (st_tensor){.type = c->type,
                     .dims = cols ? 2 : 1,
                     .size = {rows, cols},
                     .offset = c->at,
                     .bytes = rows * (cols ? cols : 1) * each};
    snprintf(t->name, sizeof t->name, format, l);
    c->at += stored_rows * (cols ? cols : 1) * each;
}

// The order of the file: each kind of tensor for all layers. Matrices are (out,in), as ours.
static void add_tensors(llmc *c, int64_t T, int64_t V, int64_t Vp, int64_t L, int64_t C) {
    static const struct {
        const char *name;
        int rows, cols;  // times C; cols 0: a vector
    } kinds[] = {
        {"h.%d.ln_1.weight", 1, 0},      {"h.%d.ln_1.bias", 1, 0},          {"h.%d.attn.c_attn.weight", 3, 1},
        {"h.%d.attn.c_attn.bias", 3, 0}, {"h.%d.attn.c_proj.weight", 1, 1}, {"h.%d.attn.c_proj.bias", 1, 0},
        {"h.%d.ln_2.weight", 1, 0},      {"h.%d.ln_2.bias", 1, 0},          {"h.%d.mlp.c_fc.weight", 4, 1},
        {"h.%d.mlp.c_fc.bias", 4, 0},    {"h.%d.mlp.c_proj.weight", 1, 4},  {"h.%d.mlp.c_proj.bias", 1, 0},
    };
    add_tensor(c, Vp, V, C, "wte.weight", 0);
    add_tensor(c, T, T, C, "wpe.weight", 0);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int l = 0; l < (int)L; l++)
            add_tensor(c, kinds[k].rows * C, kinds[k].rows * C, kinds[k].cols * C, kinds[k].name, l);
    add_tensor(c, C, C, 0, "ln_f.weight", 0);
    add_tensor(c, C, C, 0, "ln_f.bias", 0);
}

static err_t read_header(st_file *f, json_t **config, const int32_t h[LLMC_HEADER]) {
    int64_t T = h[2], V = h[3], L = h[4], C = h[6], Vp = h[7];
    bool sane = T > 0 && V > 0 && L > 0 && L <= 1024 && C > 0 && Vp >= V && T < 1 << 24 && Vp < 1 << 28 && C < 1 << 20;
    if (h[1] != 3 && h[1] != 5)
        return err_set(ERR_DATA, "%s: a checkpoint of llm.c of version %d, expected 3 (FP32) or 5 (BF16)", f->path,
                       h[1]);
    if (!sane)
        return err_set(
            ERR_DATA,
            "%s: a checkpoint of llm.c of %d positions, %d (%d) tokens, %d layers, %d channels, which can't be",
            f->path, h[2], h[3], h[7], h[4], h[6]);
    f->tensors = calloc((size_t)(4 + 12 * L), sizeof *f->tensors);
    if (!f->tensors) return err_set(ERR_INTERNAL, "%s: no memory for %" PRId64 " layers", f->path, L);
    *config = json_pack("{s:s, s:i, s:i, s:i, s:i, s:i}", "model_type", "gpt2", "n_positions", h[2], "vocab_size", h[3],
                        "n_layer", h[4], "n_head", h[5], "n_embd", h[6]);
    llmc c = {f, LLMC_HEADER * 4, h[1] == 3 ? ST_F32 : ST_BF16};
    add_tensors(&c, T, V, Vp, L, C);
    if (c.at != f->file_bytes)
        return err_set(ERR_DATA,
                       "%s: has %" PRId64 " bytes, and its header needs %" PRId64 ": truncated, or another version",
                       f->path, f->file_bytes, c.at);
    return ERR_OK;
}

err_t llmc_open(st_file *f, json_t **config, const char *path) {
    int32_t header[LLMC_HEADER];
    struct stat st;
    *f = (st_file){.path = strdup(path), .fd = -1};
    if (!f->path) return err_set(ERR_INTERNAL, "%s: no memory", path);
    TRY(io_open(path, O_RDONLY, &f->fd));
    if (fstat(f->fd, &st) != 0) return err_set(ERR_IO, "%s: %m", path);
    f->file_bytes = st.st_size;
    TRY(io_read_at(f->fd, f->path, 0, header, sizeof header));
    return read_header(f, config, header);
}

bool llmc_is(const char *path) {
    int32_t magic = 0;
    int fd;
    bool yes =
        io_open(path, O_RDONLY, &fd) == ERR_OK && read(fd, &magic, sizeof magic) == sizeof magic && magic == LLMC_MAGIC;
    if (fd >= 0) close(fd);
    return yes;
}
