// test/support/heap.h: malloc and its kin, replaced by ones that count, for the whole program that includes this: our
// code, the libraries' code, and every thread. Not under a sanitizer, which has its own malloc in this place.
#ifndef TEST_SUPPORT_HEAP_H
#define TEST_SUPPORT_HEAP_H

#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static atomic_long heap_calls, heap_blocks;  // calls so far; blocks that are not freed
static atomic_long heap_own;                 // of the calls, those out of the program itself, without its libraries
static atomic_long heap_bytes, heap_most;    // of these blocks, now and at most, where one thread allocates

extern const char __executable_start[], etext[];
#define HEAP_CALL() \
    do { \
        const char *from_ = __builtin_return_address(0); \
        if (from_ >= __executable_start && from_ < etext) atomic_fetch_add(&heap_own, 1); \
    } while (0)

static void heap_grew(long n) {
    long now = atomic_fetch_add(&heap_bytes, n) + n;
    if (now > atomic_load(&heap_most)) atomic_store(&heap_most, now);
}
static void *heap_took(void *p) {
    atomic_fetch_add(&heap_calls, 1);
    if (!p) return p;
    atomic_fetch_add(&heap_blocks, 1);
    heap_grew((long)malloc_usable_size(p));
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
    long before = (long)malloc_usable_size(p);
    void *to = __libc_realloc(p, n);
    if (!to && !n) atomic_fetch_sub(&heap_blocks, 1);  // freed
    if (to || !n) heap_grew((to ? (long)malloc_usable_size(to) : 0) - before);
    return to;
}
void free(void *p) {
    HEAP_CALL();
    if (p) atomic_fetch_add(&heap_calls, 1), atomic_fetch_sub(&heap_blocks, 1);
    if (p) atomic_fetch_sub(&heap_bytes, (long)malloc_usable_size(p));
    __libc_free(p);
}

#endif
