// model/show.h: what a page becomes, as text: the lists of steps of a planned model, in the order in which they run. A
// reader sees which values each step reads and writes, where they lie, which parameters it uses, what is kept for
// backward, and where ranks meet. Nothing is shown that does not run: it is read from the lists themselves.
#ifndef MODEL_SHOW_H
#define MODEL_SHOW_H

#include "model/model.h"

#include <stdio.h>

enum { SHOW_COLUMNS = 100 };  // of a line, at most

// Bytes of a planned model that its blocks place: sets of what is kept, what is computed again, what lives within a
// list.
typedef struct show_bytes {
    int sets;
    int64_t kept, held, scratch;
} show_bytes;
show_bytes show_memory(const model *m);

// Is the block meant? which: its name, or its number.
bool show_means(const model *m, int block, const char *which);

// "embedding (block 0), layer (blocks 1-12), head (block 13)"
void show_blocks(const model *m, char *dst, size_t room);

// The first block that is like this one: they share their lists.
int show_form(const model *m, int block);

// Is a block of this form planned here, so that it has lists?
bool show_has(const model *m, int form);

// Do places that share layers or positions meet in this step?
struct step;
bool show_meets(const model *m, const struct step *t);

// The lists of a form, which is planned here.
void show_lists(const model *m, int form, FILE *out);

#endif
