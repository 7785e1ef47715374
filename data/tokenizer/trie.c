// data/tokenizer/trie.c: the table doubles when it is half full.
#include "data/tokenizer/trie.h"

enum { FIRST_SLOTS = 1024, MOST_NODES = 1 << 30 };

static void put_edge(trie *t, uint64_t key, int32_t child) {
    uint64_t h = hash_mix(key, 0) & t->mask;
    while (t->edge[h].key) h = (h + 1) & t->mask;
    t->edge[h] = (trie_edge){key, child};
}

static err_t grow(trie *t) {
    uint64_t slots = t->edge ? 2 * (t->mask + 1) : FIRST_SLOTS, old = t->edge ? t->mask + 1 : 0;
    trie_edge *was = t->edge, *edge = calloc(slots, sizeof *edge);
    if (!edge) return err_set(ERR_INTERNAL, "no memory for a vocabulary of %lld nodes", (long long)t->nodes.n);
    t->edge = edge;
    t->mask = slots - 1;
    for (uint64_t i = 0; i < old; i++)
        if (was[i].key) put_edge(t, was[i].key, was[i].child);
    free(was);
    return ERR_OK;
}

static err_t add_node(trie *t) {
    if (!t->edge || 2 * (uint64_t)t->nodes.n > t->mask) TRY(grow(t));
    if (t->nodes.n >= MOST_NODES)
        return err_set(ERR_DATA, "a vocabulary of more than %d different beginnings of tokens", MOST_NODES);
    ROOM_FOR(&t->nodes, t->nodes.n + 1);
    t->nodes.at[t->nodes.n++] = -1;
    return ERR_OK;
}

err_t trie_put(trie *t, const void *text, int64_t n, int32_t id, bool *taken) {
    const uint8_t *s = text;
    int32_t node = 0;
    if (t->nodes.n == 0) TRY(add_node(t));
    for (int64_t i = 0; i < n; i++) {
        int32_t next = trie_next(t, node, s[i]);
        if (next < 0) {
            next = (int32_t)t->nodes.n;
            TRY(add_node(t));
            put_edge(t, ((uint64_t)(uint32_t)node << 8 | s[i]) + 1, next);
        }
        node = next;
    }
    *taken = t->nodes.at[node] >= 0;
    if (!*taken) t->nodes.at[node] = id;
    return ERR_OK;
}

int32_t trie_walk(const trie *t, const uint8_t *text, int64_t n) {
    int32_t node = t->nodes.n > 0 ? 0 : -1;
    for (int64_t i = 0; i < n && node >= 0; i++) node = trie_next(t, node, text[i]);
    return node;
}

void trie_free(trie *t) {
    free(t->edge);
    free(t->nodes.at);
}
