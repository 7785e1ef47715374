// data/image/find.c: finds the pictures that an input names, see data/image/list.h. Class folders are read here, and
// IDX files by their own source; archives and CIFAR's files in tar.c and cifar.c.
#include "data/image/list.h"

#include "base/io.h"
#include "data/files.h"
#include "data/shard_set.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

// --- class folders ---------------------------------------------------------------------------------------------------

static int not_hidden(const struct dirent *e) { return e->d_name[0] != '.'; }
static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }
static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool names_picture(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot && (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0 || strcasecmp(dot, ".png") == 0);
}

static err_t add_picture(image_list *l, const char *path, int64_t bytes, int32_t class, int split) {
    const char *kept = list_keep(l, path);
    if (!kept) return err_set(ERR_INTERNAL, "no memory for a list of files");
    return list_add(l, &(image_item){.path = kept, .bytes = bytes, .label = class, .split = split});
}

// Pictures in a folder of one class, and in those below it. Links to folders are followed only at the top: they may
// form a circle.
static err_t add_folder(image_list *l, const char *dir, int32_t class, int split) {
    struct dirent **names;
    int n = scandir(dir, &names, not_hidden, by_name);
    if (n < 0) return err_set(ERR_IO, "%s: %s", dir, strerror(errno));
    err_t rc = ERR_OK;
    for (int i = 0; i < n; i++) {
        char path[IO_PATH];
        struct stat st, own;
        if (rc == ERR_OK) rc = io_path(path, "%s/%s", dir, names[i]->d_name);
        free(names[i]);
        if (rc != ERR_OK) continue;
        if (lstat(path, &own) != 0 || stat(path, &st) != 0) rc = err_set(ERR_IO, "%s: %s", path, strerror(errno));
        else if (S_ISDIR(own.st_mode)) rc = add_folder(l, path, class, split);
        else if (S_ISREG(st.st_mode) && names_picture(path)) rc = add_picture(l, path, st.st_size, class, split);
        else l->skipped++;
    }
    free(names);
    return rc;
}

// The number of the class of that name, for now in the order in which they are found.
static err_t class_of(image_list *l, const char *name, int32_t *class) {
    for (int64_t k = l->classes - 1; k >= 0; k--)
        if (strcmp(l->class[k], name) == 0) return *class = (int32_t)k, ERR_OK;
    *class = (int32_t)l->classes;
    return list_class(l, name);
}

// Each folder in `dir` is a class, and its name the class's.
static err_t list_folders(image_list *l, const char *dir, int split) {
    struct dirent **names;
    int n = scandir(dir, &names, not_hidden, by_name);
    if (n < 0)
        return err_set(
            ERR_CONFIG,
            "[pack] input: %s: %s; with [pack] images = folders it names a folder with a folder for each class", dir,
            strerror(errno));
    err_t rc = ERR_OK;
    for (int i = 0; i < n; i++) {
        char path[IO_PATH];
        struct stat st;
        int32_t class;
        if (rc == ERR_OK) rc = io_path(path, "%s/%s", dir, names[i]->d_name);
        if (rc == ERR_OK && stat(path, &st) != 0) rc = err_set(ERR_IO, "%s: %s", path, strerror(errno));
        if (rc == ERR_OK && !S_ISDIR(st.st_mode)) l->skipped++;
        else if (rc == ERR_OK && (rc = class_of(l, names[i]->d_name, &class)) == ERR_OK)
            rc = add_folder(l, path, class, split);
        free(names[i]);
    }
    free(names);
    return rc;
}

// Labels become the places of the names in byte order.
static err_t sort_classes(image_list *l) {
    if (l->classes == 0) return ERR_OK;
    char **found = malloc((size_t)l->classes * sizeof *found);
    if (!found) return err_set(ERR_INTERNAL, "no memory for %" PRId64 " classes", l->classes);
    memcpy(found, l->class, (size_t)l->classes * sizeof *found);
    qsort(l->class, (size_t)l->classes, sizeof *l->class, by_bytes);
    for (int64_t i = 0; i < l->count; i++) {
        char **at = bsearch(&found[l->item[i].label], l->class, (size_t)l->classes, sizeof *l->class, by_bytes);
        l->item[i].label = (int32_t)(at - l->class);
    }
    free(found);
    return ERR_OK;
}

// --- IDX -------------------------------------------------------------------------------------------------------------

// (H,W), (C,H,W) with 1 or 3 channels, or (H,W,C).
static err_t take_shape(image_list *l, const tensor_spec *x, const char *files) {
    int h = 0, w = 0, c = 1;
    bool planar = false;
    if (x->dims == 2) h = (int)x->size[0], w = (int)x->size[1];
    else if (x->dims == 3 && (x->size[0] == 1 || x->size[0] == 3))
        c = (int)x->size[0], h = (int)x->size[1], w = (int)x->size[2], planar = true;
    else if (x->dims == 3 && (x->size[2] == 1 || x->size[2] == 3))
        h = (int)x->size[0], w = (int)x->size[1], c = (int)x->size[2];
    if (h == 0)
        return err_set(ERR_DATA, "%s: images of %d dimensions, expected height and width, and 1 or 3 channels", files,
                       x->dims);
    if (l->h && (l->h != h || l->w != w || l->c != c || l->planar != planar))
        return err_set(ERR_DATA,
                       "%s: images of %d x %d pixels, and those of [pack] input have %d x %d: expected the same", files,
                       w, h, l->w, l->h);
    l->h = h, l->w = w, l->c = c, l->planar = planar;
    return ERR_OK;
}

static err_t list_idx(image_list *l, const char *files, int split) {
    source *s;
    TRY(idx_open(&s, &(source_options){.files = files, .format = FORMAT_IDX}));
    l->idx[split] = s;
    TRY(take_shape(l, &s->tensor[0], files));
    const char *path = list_keep(l, files);
    if (!path) return err_set(ERR_INTERNAL, "no memory for a list of files");
    for (int64_t k = 0; k < s->about.samples; k++) {
        int32_t label;
        TRY(s->type->read(s, &(source_draw){.sample = k}, (void *[]){NULL, &label}));
        TRY(list_add(l, &(image_item){.path = path, .offset = k, .label = label, .split = split}));
    }
    return ERR_OK;
}

// --- all -------------------------------------------------------------------------------------------------------------

static err_t list_files(image_list *l, const char *patterns, int split) {
    file_list files = {0};
    files_hint hint = {"", "[pack] input and val_input name what pack reads"};
    if (l->kind == IMAGES_IDX) return list_idx(l, patterns, split);
    err_t rc = files_expand(&files, patterns, hint);
    for (int i = 0; rc == ERR_OK && i < files.count; i++)
        rc = l->kind == IMAGES_FOLDERS ? list_folders(l, files.path[i], split)
             : l->kind == IMAGES_TAR   ? list_tar(l, files.path[i], split)
                                       : list_cifar(l, files.path[i], split);
    files_free(&files);
    return rc;
}

// Classes without names are called by their numbers, up to the largest.
static err_t number_classes(image_list *l) {
    int64_t classes = 0;
    for (int64_t i = 0; i < l->count; i++)
        if (l->item[i].label >= classes) classes = l->item[i].label + 1;
    if (l->kind == IMAGES_CIFAR10) classes = 10;
    if (l->kind == IMAGES_CIFAR100) classes = 100;
    for (int64_t k = 0; k < classes; k++) {
        char name[24];
        snprintf(name, sizeof name, "%" PRId64, k);
        TRY(list_class(l, name));
    }
    return ERR_OK;
}

err_t image_list_find(image_list *l, image_kind kind, const char *input, const char *val_input) {
    l->kind = kind;
    l->has_val = val_input && *val_input;
    TRY(list_files(l, input, SPLIT_TRAIN));
    if (l->has_val) TRY(list_files(l, val_input, SPLIT_VAL));
    if (l->count == 0)
        return err_set(ERR_CONFIG,
                       "[pack] input = %s: no picture in it (%" PRId64
                       " files skipped: neither .jpg, .jpeg nor .png, or outside of a class's folder)",
                       input, l->skipped);
    return kind == IMAGES_FOLDERS ? sort_classes(l) : number_classes(l);
}
