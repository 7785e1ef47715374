// data/tokenizer/pieces.h: the ids of one piece of text by the models WordPiece and Unigram.
#ifndef DATA_TOKENIZER_PIECES_H
#define DATA_TOKENIZER_PIECES_H

#include "data/tokenizer/trie.h"

// What both have. A piece is UTF-8.
typedef struct piece_model {
    trie words;
    int32_t unknown;   // the id of what has no token
    int32_t inner;     // WordPiece: the node after "##", where tokens begin that go on in a word; -1: there are none
    int64_t most;      // WordPiece: a word of more characters is unknown
    double *score;     // Unigram: (ids)
    double no_score;   // of an unknown character
    bool bytes_known;  // Unigram: what has no token is its bytes
    int32_t byte_id[256];
} piece_model;

// One thread's room for Unigram: the best way to each place of a piece.
typedef struct path_node {
    double score;
    int64_t from;  // where its last token begins; -1: no way leads here
    int32_t id;
} path_node;
typedef struct path_work {
    path_node *at;
    int64_t n, room;
} path_work;

// Adds the ids of n > 0 bytes. Greedy, the longest token first; what can't be divided so is unknown as a whole
// (Devlin et al. 2018; Wu et al. 2016).
err_t wordpiece_encode(const piece_model *m, const uint8_t *text, int64_t n, id_list *out);

// The division with the largest sum of scores, which are logarithms of chances (Kudo 2018, eq. 4, found by Viterbi's
// algorithm), in double. Of equal ones that found first, from left to right, short tokens first. ERR_INTERNAL: no
// memory.
err_t unigram_encode(const piece_model *m, const uint8_t *text, int64_t n, path_work *work, id_list *out);

void piece_model_free(piece_model *m);

#endif
