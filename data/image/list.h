// data/image/list.h: the pictures that `lockstep pack` finds in its input, each with the number of its class, before
// any is decoded.
#ifndef DATA_IMAGE_LIST_H
#define DATA_IMAGE_LIST_H

#include "data/image/picture.h"
#include "data/images.h"
#include "data/source.h"

typedef struct image_item {
    const char *path;       // of its file, or of the archive that it is in
    const char *member;     // its name in there; NULL: it is a file of its own, or has no name
    int64_t offset, bytes;  // in that file. Of IDX: the number of its sample
    int32_t label;
    int split;        // SPLIT_TRAIN, SPLIT_VAL
    const char *why;  // what is wrong with it already; NULL: nothing
} image_item;

typedef struct image_list {
    image_kind kind;
    image_item *item;  // (count) in the order of the input
    int64_t count, room;
    int64_t skipped;  // files that are no pictures by their names
    char **text;      // (texts) paths and names, which the items point to
    int64_t texts, texts_room;
    char **class;  // (classes) names, in the order of their labels
    int64_t classes, classes_room;
    int h, w, c;     // of pictures that are not encoded (IDX, CIFAR); h = 0: they are
    bool planar;     // such: one channel after the other
    source *idx[2];  // [split] files of IDX; NULL: none
    bool has_val;    // val was named
} image_list;

// Finds what input and val_input (NULL or "": nothing) name. *l must be zero; image_list_free() it in any case.
// ERR_CONFIG: nothing is there; ERR_DATA: an archive or a file of many images is damaged.
err_t image_list_find(image_list *l, image_kind kind, const char *input, const char *val_input);
void image_list_free(image_list *l);

// What messages call it: "pictures/cat/7.jpg", "train-0.tar: 0007.jpg", "data_batch_1.bin: offset 3073".
void image_item_name(const image_item *i, char *dst, size_t room);

// --- what each kind of input does with one pattern's files -----------------------------------------------------------

err_t list_tar(image_list *l, const char *path, int split);    // data/image/tar.c
err_t list_cifar(image_list *l, const char *path, int split);  // data/image/cifar.c

// Appends a picture; the name of a class, whose number is that of those before it.
err_t list_add(image_list *l, const image_item *i);
err_t list_class(image_list *l, const char *name);
// A copy that lives as long as the list; NULL: no memory.
const char *list_keep(image_list *l, const char *text);

#endif
