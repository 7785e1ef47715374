// gpu/paper.h: operations that do nothing: for walking through a model's passes without memory, to learn what they
// would ask for.
#ifndef GPU_PAPER_H
#define GPU_PAPER_H

#include "gpu/ops.h"

extern const ops ops_on_paper;

#endif
