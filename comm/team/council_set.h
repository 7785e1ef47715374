// comm/team/council_set.h: sets of nodes.
#ifndef COMM_TEAM_COUNCIL_SET_H
#define COMM_TEAM_COUNCIL_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { COUNCIL_NODES = 256, SET_WORDS = COUNCIL_NODES / 64 };

typedef struct node_set {
    uint64_t word[SET_WORDS];
} node_set;

static inline bool set_has(const node_set *s, int node) { return s->word[node / 64] >> node % 64 & 1; }
static inline void set_add(node_set *s, int node) { s->word[node / 64] |= (uint64_t)1 << node % 64; }
static inline void set_drop(node_set *s, int node) { s->word[node / 64] &= ~((uint64_t)1 << node % 64); }

static inline node_set set_and(node_set a, const node_set *b) {
    for (int i = 0; i < SET_WORDS; i++) a.word[i] &= b->word[i];
    return a;
}

static inline node_set set_or(node_set a, const node_set *b) {
    for (int i = 0; i < SET_WORDS; i++) a.word[i] |= b->word[i];
    return a;
}

// What is in `a` and not in b.
static inline node_set set_less(node_set a, const node_set *b) {
    for (int i = 0; i < SET_WORDS; i++) a.word[i] &= ~b->word[i];
    return a;
}

static inline bool set_empty(const node_set *s) {
    uint64_t all = 0;
    for (int i = 0; i < SET_WORDS; i++) all |= s->word[i];
    return all == 0;
}

static inline bool set_within(const node_set *a, const node_set *b) {
    node_set rest = set_less(*a, b);
    return set_empty(&rest);
}

static inline bool set_same(const node_set *a, const node_set *b) { return set_within(a, b) && set_within(b, a); }

static inline int set_count(const node_set *s) {
    int n = 0;
    for (int i = 0; i < SET_WORDS; i++) n += __builtin_popcountll(s->word[i]);
    return n;
}

// The lowest node >= from; -1: there is none.
static inline int set_next(const node_set *s, int from) {
    for (int i = from / 64; i < SET_WORDS; i++) {
        uint64_t w = i == from / 64 ? s->word[i] >> from % 64 << from % 64 : s->word[i];
        if (w) return i * 64 + __builtin_ctzll(w);
    }
    return -1;
}

static inline int set_lowest(const node_set *s) { return set_next(s, 0); }

#define FOR_NODES(j, s) for (int j = set_lowest(s); j >= 0; j = set_next(s, j + 1))

#endif
