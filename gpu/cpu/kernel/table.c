// gpu/cpu/kernel/table.c: the operations of one vector width, as a table.
#include "gpu/cpu/kernel/kernel.h"

#define ENTRY(op) .op = KERNEL(op),
const ops KERNEL(cpu_ops) = {OPS(ENTRY)};
