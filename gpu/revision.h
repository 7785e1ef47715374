// gpu/revision.h: the revision of the arithmetic. A run of a compute type on a kind of device has the same bits in
// all builds of one revision: a checkpoint goes on unnoticed. Where bits change on purpose, whether in a kernel, in a
// model or in the order of a sum, the revision is raised here, by hand, and the tables of bits are made anew
// (test/golden/README.md). test/test_identity.sh fails when a table changed and its revision did not. Products of BF16
// pairs have a revision of their own, whatever the compute type.
#ifndef GPU_REVISION_H
#define GPU_REVISION_H

#include "gpu/gpu.h"

// Of FP32, BF16 or FP16 on DEVICE_CPU or DEVICE_CUDA. From 1 on; 0: there is no such arithmetic.
int arithmetic_revision(device_kind kind, dtype compute, products products);

// "cpu fp32 1, bf16 2, fp16 2, bf16-pairs 1; cuda fp32 2, bf16 2, fp16 2", for people and tests. Returns dst.
enum { REVISIONS_TEXT = 128 };
const char *arithmetic_revisions(char dst[REVISIONS_TEXT]);

#endif
