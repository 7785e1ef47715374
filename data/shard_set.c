// data/shard_set.c: see data/shard_set.h.
#include "data/shard_set.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const split_names[SPLITS] = {"train", "val"};

err_t shard_set_path(const shard_set *s, char path[IO_PATH], int split, int shard, const char *suffix) {
    return io_path(path, "%s-%s-%05d.bin%s", s->output, split_names[split], shard, suffix);
}

err_t shard_set_keep(shard_set *s, int split, void *writer) {
    if (s->shards[split] == s->room[split]) {
        int64_t room = s->room[split] ? 2 * s->room[split] : 64;
        void **list = realloc(s->sealed[split], (size_t)room * sizeof *list);
        if (!list) return err_set(ERR_INTERNAL, "no memory for %" PRId64 " shards", room);
        s->sealed[split] = list, s->room[split] = room;
    }
    s->sealed[split][s->shards[split]++] = writer;
    return ERR_OK;
}

void shard_set_drop(const shard_set *s, const bool open[SPLITS]) {
    char path[IO_PATH];
    for (int split = 0; split < SPLITS; split++)
        for (int k = 0; k < s->shards[split] + open[split]; k++)
            if (shard_set_path(s, path, split, k, ".tmp") == ERR_OK) unlink(path);
}

err_t shard_set_rename(const shard_set *s, int *renamed) {
    char from[IO_PATH], to[IO_PATH];
    for (int split = SPLITS - 1; split >= 0; split--)
        for (int i = 0; i < s->shards[split]; i++) {
            TRY(shard_set_path(s, from, split, i, ".tmp"));
            TRY(shard_set_path(s, to, split, i, ""));
            TRY(io_rename(from, to, NULL));
            ++*renamed;
        }
    return ERR_OK;
}

// Whether `rest`, a name without the prefix, is an old file: a shard that is not part of the new set or, with `all`,
// any shard; without `all`, also any temporary file.
static bool is_stale(const shard_set *s, bool all, const char *rest) {
    for (int split = 0; split < SPLITS; split++) {
        size_t n = strlen(split_names[split]);
        if (rest[0] != '-' || strncmp(rest + 1, split_names[split], n) != 0 || rest[n + 1] != '-') continue;
        const char *number = rest + n + 2, *suffix = number + strspn(number, "0123456789");
        if (suffix - number != 5) return false;
        if (strcmp(suffix, ".bin.tmp") == 0) return !all;
        return strcmp(suffix, ".bin") == 0 && (all || atoi(number) >= s->shards[split]);
    }
    return false;
}

// dir = directory of the output, *name = what its files' names start with.
static err_t split_output(const shard_set *s, char dir[IO_PATH], const char **name) {
    const char *slash = strrchr(s->output, '/');
    *name = slash ? slash + 1 : s->output;
    if (!slash) return io_path(dir, ".");
    return io_path(dir, "%.*s", slash == s->output ? 1 : (int)(slash - s->output), s->output);
}

err_t shard_set_begin(const shard_set *s) {
    char dir[IO_PATH];
    const char *name;
    TRY(split_output(s, dir, &name));
    return io_mkdirs(dir);
}

err_t shard_set_clear(const shard_set *s, bool all) {
    char dir[IO_PATH];
    const char *name;
    TRY(split_output(s, dir, &name));
    DIR *d = opendir(dir);
    if (!d) return err_set(ERR_IO, "%s: %s", dir, strerror(errno));
    err_t rc = ERR_OK;
    size_t n = strlen(name);
    for (struct dirent *e; rc == ERR_OK && (e = readdir(d));) {
        if (strncmp(e->d_name, name, n) != 0 || !is_stale(s, all, e->d_name + n)) continue;
        if (unlinkat(dirfd(d), e->d_name, 0) != 0 && errno != ENOENT)
            rc = err_set(ERR_IO, "%s/%s: an old shard that can't be removed: %s", dir, e->d_name, strerror(errno));
    }
    closedir(d);
    return rc;
}
