// test/support/heap.h: malloc and its kin, replaced by ones that count, for the whole program that includes this: our
// code, the libraries' code, and every thread. Not under a sanitizer, which has its own malloc in this place.
#ifndef TEST_SUPPORT_HEAP_H
#define TEST_SUPPORT_HEAP_H

#include <stdatomic.h>
#include <stddef.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static atomic_long heap_calls, heap_blocks;  // calls so far; blocks that are not freed
static atomic_long heap_own;                 // of the calls, those out of the program itself, without its libraries

extern const char __executable_start[], etext[];
#define HEAP_CALL() \
    do { \
        const char *from_ = __builtin_return_address(0); \
        if (from_ >= __executable_start && from_ < etext) atomic_fetch_add(&heap_own, 1); \
    } while (0)

static void *heap_took(void *p) {
    atomic_fetch_add(&heap_calls, 1);
    if (p) atomic_fetch_add(&heap_blocks, 1);
    return p;
}

void *malloc(size_t n) {
    HEAP_CALL();
    return heap_took(__libc_malloc(n));
}
void *calloc(size_t n, size_t m) {
    HEAP_CALL();
    return heap_took(__libc_calloc(n, m));
}
void *memalign(size_t a, size_t n) {
    HEAP_CALL();
    return heap_took(__libc_memalign(a, n));
}
void *aligned_alloc(size_t a, size_t n) {
    HEAP_CALL();
    return heap_took(__libc_memalign(a, n));
}
int posix_memalign(void **p, size_t a, size_t n) {
    HEAP_CALL();
    *p = heap_took(__libc_memalign(a, n));
    return *p ? 0 : 12;
}
void *realloc(void *p, size_t n) {
    HEAP_CALL();
    if (!p) return heap_took(__libc_realloc(p, n));
    atomic_fetch_add(&heap_calls, 1);
    void *to = __libc_realloc(p, n);
    if (!to && !n) atomic_fetch_sub(&heap_blocks, 1);  // freed
    return to;
}
void free(void *p) {
    HEAP_CALL();
    if (p) atomic_fetch_add(&heap_calls, 1), atomic_fetch_sub(&heap_blocks, 1);
    __libc_free(p);
}

#endif
