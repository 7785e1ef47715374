// model/show.h: what a page becomes, as text: the lists of steps of a planned model, in the order in which they run. A
// reader sees which values each step reads and writes, where they lie, which parameters it uses, what is kept for
// backward, and where ranks communicate. It is read from the lists that run.
#ifndef MODEL_SHOW_H
#define MODEL_SHOW_H

#include "model/model.h"

#include <stdio.h>

enum { SHOW_COLUMNS = 100 };  // of a line, at most

// Bytes of a planned model: sets of kept values, values that are computed again, values that live within one list.
typedef struct show_bytes {
    int sets;
    int64_t kept, held, scratch;
} show_bytes;
show_bytes show_memory(const model *m);

// Does `which`, a name or a number, mean this block?
bool show_means(const model *m, int block, const char *which);

// "embedding (block 0), layer (blocks 1-12), head (block 13)"
void show_blocks(const model *m, char *dst, size_t room);

// The first block that is like this one: they share their lists.
int show_form(const model *m, int block);

// Is a block of this form planned here, so that it has lists?
bool show_has(const model *m, int form);

// Do ranks that share layers or positions communicate in this step?
struct step;
bool show_meets(const model *m, const struct step *t);

// The lists of a form, which is planned here.
void show_lists(const model *m, int form, FILE *out);

#endif
