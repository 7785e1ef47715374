// test/sim/bugs/bugs.h: kernels with one mistake each, beside their correct twins: what the simulator must find, and
// where it must be silent.
//
// Twins are one template over `bool bug`. Lines that a finding has to name carry the bug's name in a comment: //
// <missing_barrier>
#ifndef TEST_SIM_BUGS_H
#define TEST_SIM_BUGS_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

// How a build shows a bug: not at all, by a wrong result, by a finding, or by the death of the process
// (AddressSanitizer, a trap of the processor).
enum shows { SILENT, WRONG, FINDING, DIES };

struct bug {
    const char *name, *file;
    bool (*run)(bool bug);  // launches the kernel, waits, and says whether the result is right
    shows plain, race, asan;
    const char *kind;  // of the finding
    bool named;        // race and AddressSanitizer builds name a marked line
};
extern const bug bugs[];
extern const size_t bug_count;

// Device memory of n floats, and what a test does with it.
float *device_floats(int n, float first, float step);  // first, first + step, ...
void read_floats(float *out, const float *in, int n);
void release(void *p);

bool missing_barrier(bool bug);
bool missing_syncwarp(bool bug);
bool halves_of_words(bool bug);
bool shared_past_end(bool bug);
bool uninitialised_shared(bool bug);
bool double_buffer(bool bug);
bool missing_copy_wait(bool bug);
bool threads_add(bool bug);
bool blocks_add(bool bug);
bool missing_fence(bool bug);
bool global_past_end(bool bug);
bool misaligned(bool bug);
bool lane_leaves(bool bug);
bool divergent_barrier(bool bug);
bool stuck(bool bug);
bool too_much_shared(bool bug);

#endif
