// data/text/about.c: see data/text/about.h.
#include "data/text/about.h"

#include "data/files.h"
#include "data/text/shard.h"
#include "data/weights.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_MOST = 1 << 26 };

// --- reading ---------------------------------------------------------------------------------------------------------

// The file that was read last: the shards of a set share one.
typedef struct finder {
    char path[IO_PATH];
    json_t *root;  // NULL: there is none
    about *a;
    char first[IO_PATH];  // the first shard: a->tokenizer is its
    int files;
} finder;

// PREFIX-train-00000.bin -> PREFIX. false: no name that pack gives.
static bool prefix_of(const char *path, char prefix[IO_PATH]) {
    size_t n = strlen(path);
    static const char *const splits[] = {"-train-00000.bin", "-val-00000.bin"};
    for (int s = 0; s < 2; s++) {
        size_t m = strlen(splits[s]);
        if (n <= m || n >= IO_PATH) continue;
        const char *end = path + n - m;
        bool same = true;
        for (size_t i = 0; i < m; i++)
            same = same && (splits[s][i] == '0' ? end[i] >= '0' && end[i] <= '9' : end[i] == splits[s][i]);
        if (same) return memcpy(prefix, path, n - m), prefix[n - m] = 0, true;
    }
    return false;
}

static err_t damaged(const char *path, const char *what) {
    return err_set(
        ERR_DATA,
        "%s: %s; `lockstep pack` writes it anew, and without it nothing is lost but what it says of the shards", path,
        what);
}

static err_t read_root(finder *f, const char *path) {
    char *text;
    size_t n;
    json_error_t why;
    json_decref(f->root);
    f->root = NULL;
    TRY(io_path(f->path, "%s", path));
    if (access(path, R_OK) != 0) return ERR_OK;
    TRY(io_read_file(path, FILE_MOST, &text, &n));
    f->root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    free(text);
    return json_is_object(f->root) ? ERR_OK : damaged(path, f->root ? "not an object" : why.text);
}

// Whether the open file speaks of this very shard.
static bool names_shard(const finder *f, const char *path) {
    const char *slash = strrchr(path, '/'),
               *said = json_string_value(json_object_get(json_object_get(f->root, "shards"), slash ? slash + 1 : path));
    uint8_t header[SHARD_HEADER];
    int fd = -1;
    bool same = said && io_open(path, O_RDONLY, &fd) == ERR_OK && pread(fd, header, sizeof header, 0) == SHARD_HEADER &&
                strtoul(said, NULL, 16) == le32_get(header + 60);
    if (fd >= 0) close(fd);
    return same;
}

static err_t take(finder *f, const char *path) {
    about *a = f->a, b = {.known = true};
    const char *tokenizer = json_string_value(json_object_get(f->root, "tokenizer")),
               *hash = json_string_value(json_object_get(f->root, "vocabulary"));
    const char *slash = strrchr(path, '/');
    if (!tokenizer || !hash || strlen(hash) >= sizeof b.vocabulary)
        return damaged(f->path, "no \"tokenizer\" or no \"vocabulary\" in it");
    TRY(io_path(b.tokenizer, "%s", tokenizer));
    strcpy(b.vocabulary, hash);
    b.best_loss = json_number_value(json_object_get(f->root, "best_loss"));
    TRY(slash ? io_path(b.beside, "%.*s", (int)(slash - path), path) : io_path(b.beside, "."));
    if (f->files++ == 0) {
        *a = b;
        return io_path(f->first, "%s", path);
    }
    if (strcmp(a->vocabulary, b.vocabulary) != 0)
        return err_set(
            ERR_DATA,
            "%s was made with the tokenizer %s, and %s with %s: expected one vocabulary for all. Pack one of them again",
            f->first, a->tokenizer, path, b.tokenizer);
    if (!(a->best_loss >= b.best_loss && a->best_loss <= b.best_loss)) a->best_loss = 0;
    return ERR_OK;
}

static err_t look_at(finder *f, const char *path) {
    char prefix[IO_PATH], json[IO_PATH];
    if (!prefix_of(path, prefix)) return f->a->known = false, ERR_OK;
    TRY(io_path(json, "%s-about.json", prefix));
    if (strcmp(json, f->path) != 0) TRY(read_root(f, json));
    if (!f->root || !names_shard(f, path)) return f->a->known = false, ERR_OK;
    return take(f, path);
}

// false as soon as one file is not known.
static err_t look_at_all(finder *f, const char *files) {
    file_list list = {0};
    err_t rc = ERR_OK;
    if (files_expand(&list, files, (files_hint){0}) != ERR_OK || list.count == 0) f->a->known = false;
    for (int i = 0; i < list.count && rc == ERR_OK && f->a->known; i++) rc = look_at(f, list.path[i]);
    files_free(&list);
    return rc;
}

err_t about_find(about *a, const char *files) {
    weights w = {0};
    finder f = {.a = a};
    *a = (about){.known = true};
    err_t rc = ERR_OK;
    if (weights_parse(&w, files) != ERR_OK) a->known = false;
    else if (w.parts == 0) rc = look_at_all(&f, files);
    for (int i = 0; i < w.parts && rc == ERR_OK && a->known; i++) rc = look_at_all(&f, w.part[i].files);
    weights_free(&w);
    json_decref(f.root);
    if (!a->known || rc != ERR_OK) *a = (about){0};
    return rc;
}

// *out = what is at this path if it has the vocabulary, else NULL.
static void try_tokenizer(const about *a, const char *path, tokenizer **out) {
    char hash[17];
    *out = NULL;
    if (tokenizer_open(out, path) != ERR_OK) return;
    tokenizer_hash(*out, hash);
    if (strcmp(hash, a->vocabulary) == 0) return;
    tokenizer_close(*out);
    *out = NULL;
}

err_t about_tokenizer(const about *a, tokenizer **out, char at[IO_PATH]) {
    char path[IO_PATH];
    const char *slash = strrchr(a->tokenizer, '/');
    try_tokenizer(a, a->tokenizer, out);
    if (*out) return at ? io_path(at, "%s", a->tokenizer) : ERR_OK;
    TRY(io_path(path, "%s/%s", a->beside, slash ? slash + 1 : a->tokenizer));
    try_tokenizer(a, path, out);
    if (*out) return at ? io_path(at, "%s", path) : ERR_OK;
    return err_set(
        ERR_CONFIG,
        "the shards in %s were made with the tokenizer %s, vocabulary %s, which is neither there nor at %s: put it there, or name it in [sample] tokenizer",
        a->beside, a->tokenizer, a->vocabulary, path);
}

// --- writing ---------------------------------------------------------------------------------------------------------

struct about_writer {
    json_t *shards;
};

err_t about_write_open(about_writer **out) {
    about_writer *w = *out = calloc(1, sizeof *w);
    if (w) w->shards = json_object();
    return w && w->shards ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a list of shards");
}

void about_write_close(about_writer *w) {
    if (!w) return;
    json_decref(w->shards);
    free(w);
}

// JSON can't have a name that is not UTF-8: of such a shard nothing is known.
void about_write_shard(about_writer *w, const char *name, uint32_t header_crc) {
    char hex[9];
    const char *slash = strrchr(name, '/');
    snprintf(hex, sizeof hex, "%08x", header_crc);
    json_object_set_new(w->shards, slash ? slash + 1 : name, json_string(hex));
}

err_t about_write(about_writer *w, const char *prefix, const about *a) {
    char path[IO_PATH];
    TRY(io_path(path, "%s-about.json", prefix));
    json_t *root =
        json_pack("{s:s, s:s, s:O}", "tokenizer", a->tokenizer, "vocabulary", a->vocabulary, "shards", w->shards);
    if (root && a->best_loss > 0) json_object_set_new(root, "best_loss", json_real(a->best_loss));
    char *text = root ? json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(root);
    err_t rc = text ? io_write_file(path, text, strlen(text), NULL) : ERR_OK;
    free(text);
    return rc;
}
