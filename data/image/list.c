// data/image/list.c: see data/image/list.h.
#include "data/image/list.h"

#include "data/shard_set.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- the list --------------------------------------------------------------------------------------------------------

err_t list_add(image_list *l, const image_item *i) {
    if (l->count == l->room) {
        int64_t room = l->room ? 2 * l->room : 256;
        image_item *item = realloc(l->item, (size_t)room * sizeof *item);
        if (!item) return err_set(ERR_INTERNAL, "no memory for a list of %" PRId64 " images", room);
        l->item = item, l->room = room;
    }
    l->item[l->count++] = *i;
    return ERR_OK;
}

static char *append(char ***list, int64_t *count, int64_t *room, const char *text) {
    if (*count == *room) {
        int64_t more = *room ? 2 * *room : 256;
        char **larger = realloc(*list, (size_t)more * sizeof *larger);
        if (!larger) return NULL;
        *list = larger, *room = more;
    }
    char *copy = strdup(text);
    if (copy) (*list)[(*count)++] = copy;
    return copy;
}

const char *list_keep(image_list *l, const char *text) { return append(&l->text, &l->texts, &l->texts_room, text); }

err_t list_class(image_list *l, const char *name) {
    return append(&l->class, &l->classes, &l->classes_room, name) ? ERR_OK
                                                                  : err_set(ERR_INTERNAL, "no memory for a class");
}

void image_item_name(const image_item *i, char *dst, size_t room) {
    if (i->member) snprintf(dst, room, "%s: %s", i->path, i->member);
    else if (i->offset) snprintf(dst, room, "%s: offset %" PRId64, i->path, i->offset);
    else snprintf(dst, room, "%s", i->path);
}

void image_list_free(image_list *l) {
    for (int64_t k = 0; k < l->texts; k++) free(l->text[k]);
    for (int64_t k = 0; k < l->classes; k++) free(l->class[k]);
    free(l->text);
    free(l->class);
    free(l->item);
    for (int split = 0; split < SPLITS; split++) source_close(l->idx[split]);
    *l = (image_list){0};
}
