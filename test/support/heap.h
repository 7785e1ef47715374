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

static void *heap_took(void *p) {
    atomic_fetch_add(&heap_calls, 1);
    if (p) atomic_fetch_add(&heap_blocks, 1);
    return p;
}

void *malloc(size_t n) { return heap_took(__libc_malloc(n)); }
void *calloc(size_t n, size_t m) { return heap_took(__libc_calloc(n, m)); }
void *memalign(size_t a, size_t n) { return heap_took(__libc_memalign(a, n)); }
void *aligned_alloc(size_t a, size_t n) { return heap_took(__libc_memalign(a, n)); }
int posix_memalign(void **p, size_t a, size_t n) {
    *p = heap_took(__libc_memalign(a, n));
    return *p ? 0 : 12;
}
void *realloc(void *p, size_t n) {
    if (!p) return heap_took(__libc_realloc(p, n));
    atomic_fetch_add(&heap_calls, 1);
    void *to = __libc_realloc(p, n);
    if (!to && !n) atomic_fetch_sub(&heap_blocks, 1);  // freed
    return to;
}
void free(void *p) {
    if (p) atomic_fetch_add(&heap_calls, 1), atomic_fetch_sub(&heap_blocks, 1);
    __libc_free(p);
}

#endif
