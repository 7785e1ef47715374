// base/cores.h: which processors this process may use, and how the ranks of a machine share them out.
#ifndef BASE_CORES_H
#define BASE_CORES_H

#include <stdbool.h>

enum { CORES_MOST = 1024 };

// Hardware threads, by the system's numbers.
typedef struct cores {
    int n, cpu[CORES_MOST];
} cores;

// How many this process may use, at least 1: in a container or under taskset fewer than the machine has. Beyond the
// whole ones of a container's quota (cgroup v2) threads would be stopped in turns.
int cores_usable(void);

// Those that the calling thread may use. False: the system does not say, there are more than CORES_MOST.
bool cores_here(cores *out);

// Sorts them by NUMA node, in it by core, so that neighbours share as much as possible: Linux numbers the second
// threads of all cores after the first ones, and some firmware deals numbers to sockets in turns. What the system does
// not tell keeps the order of numbers. sys: "/sys", or a folder like it.
void cores_sort(cores *c, const char *sys);

// The NUMA node to which a device on the PCI bus is attached, "0000:C1:00.0"; -1: the system does not say.
int cores_near_pci(const char *sys, const char *address);

// The share of rank `local` of `locals`: neighbours of the sorted list, as many as of each other rank; with more ranks
// than processors one of them. near: [locals] the NUMA node near which each rank's device is; the ranks of a node share
// out its processors alone. NULL, or one is -1 or has no processor here: all ranks share out all.
void cores_share(cores *mine, const cores *all, const char *sys, const int *near, int local, int locals);

// Binds the calling thread, and those that it will start, to that share of its processors. Memory is then of that
// socket, too: Linux takes it from the node of the thread that touches it first. Returns the number of threads that
// have a processor each, at least 1; 0: not known, and nothing is bound.
int cores_take(int local, int locals, const int *near);

#endif
