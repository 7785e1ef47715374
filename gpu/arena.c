// gpu/arena.c: see gpu/gpu.h. Tensors follow each other in order of declaration, each on its own cache lines.
#include "gpu/gpu.h"

#include <inttypes.h>
#include <stdlib.h>

void arena_open(arena *a, device *d, memory_kind kind) { *a = (arena){.dev = d, .kind = kind}; }

err_t arena_tensor(arena *a, tensor *t, dtype type, int dims, int64_t s0, int64_t s1, int64_t s2, int64_t s3) {
    size_t bytes = dtype_bytes(type), end;
    int64_t size[TENSOR_DIMS] = {s0, s1, s2, s3};
    bool fits = true;
    for (int i = 0; i < TENSOR_DIMS; i++)
        fits = fits && size[i] > 0 && !__builtin_mul_overflow(bytes, (size_t)size[i], &bytes);
    fits = fits && bytes <= SIZE_MAX - ARENA_ALIGN;
    bytes = (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    if (!fits || __builtin_add_overflow(a->bytes, bytes, &end))
        return err_set(ERR_CONFIG,
                       "a tensor of %" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64
                       " elements is out of any memory's reach; lower [batch] micro or the [model] sizes",
                       s0, s1, s2, s3);
    if (a->count == a->room) {
        int room = a->room ? 2 * a->room : 64;
        struct arena_item *items = realloc(a->items, (size_t)room * sizeof *items);
        if (!items) return err_set(ERR_INTERNAL, "no memory for a plan of %d tensors", room);
        a->items = items;
        a->room = room;
    }
    *t = (tensor){NULL, type, dims, {s0, s1, s2, s3}};
    a->items[a->count++] = (struct arena_item){t, a->bytes};
    a->bytes = end;
    return ERR_OK;
}

static void place_all(const arena *a, uintptr_t base) {
    for (int i = 0; i < a->count; i++) a->items[i].t->data = (void *)(base + a->items[i].offset);
}

void arena_imagine(arena *a) { place_all(a, ARENA_ALIGN); }

err_t arena_commit(arena *a) {
    if (!a->bytes) return ERR_OK;
    void *base;
    TRY(device_alloc(a->dev, a->kind, a->bytes, &base));
    a->base = base;
    place_all(a, (uintptr_t)base);
    return ERR_OK;
}

void arena_close(arena *a) {
    if (a->dev) device_free(a->dev, a->kind, a->base, a->bytes);
    free(a->items);
    *a = (arena){0};
}
