// gpu/paper.c: see gpu/paper.h.
#include "gpu/paper.h"

#define ON_PAPER(op) \
    static err_t paper_##op(const op##_args *args, stream *s) { return (void)args, (void)s, ERR_OK; }
OPS(ON_PAPER)

#define ENTRY(op) .op = paper_##op,
const ops ops_on_paper = {OPS(ENTRY)};
