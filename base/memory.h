// base/memory.h: how much memory a program that starts now may take.
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stdint.h>

// Bytes of this machine that can be had without swapping, or what a container's limit (cgroup v1 or v2, of any level) leaves of them, if that is less.
// Files that are only cached count as free, as in the kernel's MemAvailable. -1: not known. root: what stands before /proc and /sys, "" for this machine.
int64_t memory_available(const char *root);

#endif
