// data/tokenizer/tokenizer.h: text to tokens and back, exactly as Hugging Face's `tokenizers` does it for byte-level
// BPE (GPT-2, Llama 3, Qwen 2, SmolLM), WordPiece (BERT) and Unigram (T5, ALBERT) and what is made like them.
// What a file asks for and this code does not do is refused by its name, never passed over; but for `truncation` and
// `padding`, which say how long the rows of a batch are, and not what a text's tokens are: a text is encoded whole.
//
// A text is bytes. What is no UTF-8 is encoded too, byte by byte; WordPiece and Unigram take such a byte for U+FFFD.
// Decoding gives the same bytes again, unless the tokenizer is one of these two, or normalizes (Qwen 2: NFC), or one of
// its added tokens takes white space along.
#ifndef DATA_TOKENIZER_TOKENIZER_H
#define DATA_TOKENIZER_TOKENIZER_H

#include "base/io.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct tokenizer tokenizer;  // read only once it is open: any number of threads may use it
typedef struct encoder encoder;      // what one thread needs to encode: a cache of pieces, and room

// PATH is "bytes" (token = byte), a tokenizer.json, or a folder: with tokenizer.json, or with encoder.json or
// vocab.json and vocab.bpe or merges.txt, which are taken for GPT-2's kind, or with BERT's vocab.txt; or such a file
// itself, whose name ends in .txt. Whether it keeps capital letters a tokenizer_config.json beside it says
// (do_lower_case; without one it does not). ERR_IO: it can't be read. ERR_DATA: it is
// damaged, or something in it is not implemented.
err_t tokenizer_open(tokenizer **out, const char *path);

// What a PATH stands for: `json`, or `vocab` and `merges`, or BERT's `words`, or for "bytes" nothing. What there isn't
// is empty. Errors as above.
typedef struct tokenizer_files {
    char json[IO_PATH], vocab[IO_PATH], merges[IO_PATH], words[IO_PATH];
    bool lower;  // of `words`
} tokenizer_files;
err_t tokenizer_find(tokenizer_files *f, const char *path);

// A tokenizer.json in memory. `name` is for messages.
err_t tokenizer_parse(tokenizer **out, const char *name, const char *text, int64_t n);
void tokenizer_close(tokenizer *t);

typedef struct tokenizer_info {
    int32_t vocab;        // ids are below it; some may have no token
    int32_t end_of_text;  // what ends a document; -1: none
    int32_t bos;          // what ENCODE_BEGIN puts first; -1: nothing
    bool exact;           // decoding what was encoded without ENCODE_SPECIAL gives the text again
} tokenizer_info;
tokenizer_info tokenizer_about(const tokenizer *t);

// The id of a token's text; -1: none has it. Special tokens only.
int32_t tokenizer_special(const tokenizer *t, const char *text);

// The bytes of a token after others. ERR_DATA: there is no such id. Decoding is one after the other. A token that is a
// text's first may be written without the space before it: the second one says how.
err_t tokenizer_piece(const tokenizer *t, int32_t id, const uint8_t **text, int64_t *n);
err_t tokenizer_first_piece(const tokenizer *t, int32_t id, const uint8_t **text, int64_t *n);

// 16 hex digits of BLAKE2b-256 over all ids and their bytes: of two files with the same hash, either decodes what the
// other has encoded.
void tokenizer_hash(const tokenizer *t, char hash[17]);

enum {
    ENCODE_TEXT = 0,      // "<|endoftext|>" in a text is text: for whatever comes from outside
    ENCODE_SPECIAL = 1,   // special tokens are recognised
    ENCODE_BEGIN = 2,     // what the tokenizer's template puts before a text is put there: a first token for Llama 3
    ENCODE_END = 4,       // what it puts after a text
    ENCODE_TEMPLATE = 6,  // both
};

// The tokenizer must outlive its encoders.
err_t encoder_open(encoder **out, const tokenizer *t);
void encoder_close(encoder *e);

// The ids of n bytes of text, valid until the encoder's next call. ERR_INTERNAL: no memory.
err_t encoder_encode(encoder *e, const void *text, int64_t n, int how, const int32_t **ids, int64_t *count);

// A text without a place to be cut has to be in memory with what its encoding needs: more bytes than these are refused.
enum { TOKENIZER_UNCUT = 64 << 20 };

// The last place in a text, at most n, where it may be cut and encoded in two parts with the same tokens, but for the
// template's; 0: none. More text may follow the n bytes.
int64_t tokenizer_cut(const tokenizer *t, const void *text, int64_t n, int how);

#endif
