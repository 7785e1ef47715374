// gpu/paper.h: operations that do nothing: for walking through a model's passes without memory, to learn what they
// would ask for.
#ifndef GPU_PAPER_H
#define GPU_PAPER_H

#include "gpu/cost.h"

extern const ops ops_on_paper;

// The same, but each call is shown: operations of `ops_counted` on this stream, and its copies and zeros, under the
// names that gpu/profile.h gives them.
typedef void (*paper_see)(void *ctx, const char *op, const op_cost *cost);
extern const ops ops_counted;
err_t paper_open(stream **out, paper_see see, void *ctx);
void paper_close(stream *s);

#endif
