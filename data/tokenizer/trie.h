// data/tokenizer/trie.h: a set of strings as a tree of bytes, whose edges are one hashed table.
#ifndef DATA_TOKENIZER_TRIE_H
#define DATA_TOKENIZER_TRIE_H

#include "data/tokenizer/vocab.h"

typedef struct trie_edge {
    uint64_t key;  // 1 + (node << 8 | byte); 0: free
    int32_t child;
} trie_edge;

typedef struct trie {
    trie_edge *edge;  // hashed, 2^k
    uint64_t mask;
    struct {
        int32_t *at;  // the string that ends at this node, or -1; node 0 is the root
        int64_t n, room;
    } nodes;
} trie;

// Puts in n > 0 bytes with the number `id`. taken: they were in it already, and keep theirs. ERR_INTERNAL: no memory.
err_t trie_put(trie *t, const void *text, int64_t n, int32_t id, bool *taken);
void trie_free(trie *t);

// The node after `node` and a byte; -1: nothing goes on so. Of a trie with at least one string.
static inline int32_t trie_next(const trie *t, int32_t node, uint8_t byte) {
    uint64_t key = ((uint64_t)(uint32_t)node << 8 | byte) + 1, h = hash_mix(key, 0) & t->mask;
    while (t->edge[h].key != key) {
        if (!t->edge[h].key) return -1;
        h = (h + 1) & t->mask;
    }
    return t->edge[h].child;
}

// The node after all of n bytes, from the root; -1: there is none.
int32_t trie_walk(const trie *t, const uint8_t *text, int64_t n);

#endif
