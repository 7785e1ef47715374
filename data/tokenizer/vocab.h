// data/tokenizer/vocab.h: the tokens of byte-pair encoding and how they merge; and the encoding of one piece of text.
#ifndef DATA_TOKENIZER_VOCAB_H
#define DATA_TOKENIZER_VOCAB_H

#include "data/tokenizer/room.h"

#include <stdbool.h>

enum { VOCAB_MOST = 1 << 24 };  // ids are below

typedef struct vocab_pair {
    uint64_t key;  // left << 32 | right; UINT64_MAX: free
    int32_t rank, id;
} vocab_pair;

typedef struct vocab_token {
    int64_t at;     // of its bytes; -1: there is no such id
    int32_t bytes;  // how many
    bool whole;     // encodes a piece that has just these bytes, where pieces are looked up before they are merged
} vocab_token;

typedef struct vocab {
    vocab_token *token;  // (size)
    int32_t size;        // 1 + largest id
    int64_t room;
    bytes text;
    vocab_pair *pair;  // hashed, 2^k
    uint64_t pairs, pair_mask;
    int32_t *word;  // ids hashed by bytes, 2^k; -1: free; NULL: pieces are not looked up whole
    uint64_t word_mask;
    int32_t byte_id[256];
} vocab;

// A thread's room for merging long pieces.
typedef struct merge_node {
    int32_t id, before, after;  // id -1: merged into the one before
} merge_node;
typedef struct merge_step {
    int32_t rank, at, left, right, id;
} merge_step;
typedef struct merge_work {
    struct {
        merge_node *at;
        int64_t n, room;
    } nodes;
    struct {
        merge_step *at;
        int64_t n, room;
    } heap;
} merge_work;

static inline uint64_t hash_mix(uint64_t a, uint64_t b) {
    __uint128_t m = (__uint128_t)(a ^ 0x9E3779B97F4A7C15u) * (b ^ 0xC2B2AE3D27D4EB4Fu);
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

// Gives id these bytes. False: it had others already. Room and names: ERR_INTERNAL, no memory.
err_t vocab_add(vocab *v, int32_t id, const void *text, int64_t n, bool whole, bool *taken);

// Makes room for this many merges. Then each: left and right become id; the lowest rank first. A pair that comes again
// replaces the first.
err_t vocab_pairs(vocab *v, int64_t count);
void vocab_merge(vocab *v, int32_t left, int32_t right, int32_t rank, int32_t id);

// Pieces that are tokens with `whole` are not merged (ignore_merges of tokenizer.json).
err_t vocab_words(vocab *v);
void vocab_free(vocab *v);

// Adds the ids of a piece of n > 0 bytes, n < 2^31. ERR_INTERNAL: no memory.
err_t vocab_encode(const vocab *v, const uint8_t *text, int64_t n, merge_work *work, id_list *out);
void merge_work_free(merge_work *work);

#endif
