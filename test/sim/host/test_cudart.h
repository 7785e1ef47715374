// test/sim/host/test_cudart.h: what the files of test_cudart share.
#ifndef TEST_SIM_TEST_CUDART_H
#define TEST_SIM_TEST_CUDART_H

#include <cuda_runtime_api.h>
#include <stdint.h>

// kernels.cu
void fill(float *y, float v, int n, cudaStream_t s);                  // y = v
void axpy(float *y, const float *x, float a, int n, cudaStream_t s);  // y += a x
void shared(float *y, int bytes, cudaStream_t s);                     // with `bytes` of dynamic shared memory
const void *shared_function(void);

// What a case does: fn(0) as it should, fn(1) with the mistake. The orders of work that it is tried under are the
// simulator's seeds.
enum { N = 500 };
extern uint64_t order;

// Who must find a mistake. ALWAYS: there is a finding under every order. RACE: so in the race build; without it some
// order gives a wrong result. NOT_EAGER: under those orders that do not do everything at once. TRAP: the process ends
// by a signal.
enum finder { ALWAYS, RACE, NOT_EAGER, TRAP };
struct Good {
    const char *name;
    void (*fn)(int);
};
struct Bad {
    const char *name;
    void (*fn)(int);
    finder by;
    const char *kind;
};
void try_good(const char *name, void (*fn)(int));
void try_bad(const Bad *b);
void leave();  // the end of a process of the case's own: reports what it has found

float *device_floats(int n, float v);
float *pinned_floats(int n);
cudaStream_t new_stream();
cudaEvent_t new_event();
bool all_are(const float *device, int n, float v);

void test_nccl(const char *only);  // test_nccl.cpp: the cases whose name contains it

void wrong_at(const char *file, int line, const char *what);
#define MUST(x) ((x) ? (void)0 : wrong_at(__FILE__, __LINE__, #x))
#define OK(call) MUST((call) == cudaSuccess)

#endif
