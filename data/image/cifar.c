// data/image/cifar.c: the binary files of CIFAR-10 and CIFAR-100 (Krizhevsky 2009): records of a label's byte, of
// CIFAR-100 after one of a coarser label, and 3 planes of 32 x 32 bytes: red, green, blue.
#include "data/image/list.h"

#include "base/io.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIDE = 32, PIXELS = 3 * SIDE * SIDE };

static err_t add_records(image_list *l, const char *path, int fd, int split) {
    int labels = l->kind == IMAGES_CIFAR100 ? 2 : 1, classes = labels == 2 ? 100 : 10;
    int64_t record = labels + PIXELS;
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_size == 0 || st.st_size % record)
        return err_set(ERR_DATA, "%s: has %" PRId64 " bytes, expected records of %" PRId64 ": %s", path,
                       (int64_t)st.st_size, record,
                       labels == 1 ? "a binary file of CIFAR-10 ([pack] images = cifar10)"
                                   : "a binary file of CIFAR-100 ([pack] images = cifar100)");
    for (int64_t at = 0; at < st.st_size; at += record) {
        uint8_t label;
        TRY(io_read_at(fd, path, at + labels - 1, &label, 1));
        if (label >= classes)
            return err_set(ERR_DATA,
                           "%s: offset %" PRId64 ": label %d, expected less than %d: damaged, or another format", path,
                           at + labels - 1, label, classes);
        image_item i = {.path = path, .offset = at + labels, .bytes = PIXELS, .label = label, .split = split};
        TRY(list_add(l, &i));
    }
    return ERR_OK;
}

err_t list_cifar(image_list *l, const char *path, int split) {
    const char *kept = list_keep(l, path);
    int fd;
    if (!kept) return err_set(ERR_INTERNAL, "no memory for a list of files");
    l->h = l->w = SIDE, l->c = 3, l->planar = true;
    TRY(io_open(path, O_RDONLY, &fd));
    err_t rc = add_records(l, kept, fd, split);
    close(fd);
    return rc;
}
