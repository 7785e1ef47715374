// data/text/pack.h: text becomes shards of tokens.
#ifndef DATA_TEXT_PACK_H
#define DATA_TEXT_PACK_H

#include "base/err.h"
#include "data/chat.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct pack_options {
    const char *input;     // files, directories and globs, or stories:SEED (data/text/stories.h), space between
    const char *output;    // prefix: PREFIX-train-00000.bin ..., PREFIX-val-00000.bin
    int64_t shard_tokens;  // most tokens in a file
    double val_fraction;   // share of the tokens, at the end of the stream, that goes to the validation files
    bool compress;         // zlib blocks
    // NULL or "bytes": a token is a byte. Else a tokenizer (data/tokenizer/tokenizer.h), or train:SIZE or
    // train:SIZE:KIND, which trains one on the input and leaves it at PREFIX-tokenizer.json.
    const char *tokenizer;
    const char *text_key;  // of JSONL lines. NULL: text
    // Not CHAT_NO: a line of JSONL is a conversation (data/text/chat.h), and becomes a sample of context + 1 tokens, in
    // which answers are marked
    // CHAT_LABELS, CHAT_NUMBERS: a text with a label (data/text/labels.h), and becomes a sample of context tokens
    // CHAT_TEXT: a text and what is said of it (data/text/to_text.h), and becomes a sample of context + says tokens
    chat_template template;
    int64_t context;
    int64_t says;    // of CHAT_TEXT: tokens that are said at most
    int32_t end;     // ... and the token that ends both texts
    bool documents;  // with a template of conversations: as many of them in a sample as fit
    // Only with a tokenizer:
    int threads;                                               // 0: as many as there are processors
    void (*progress)(void *ctx, int64_t done, int64_t bytes);  // of the input, as it is stored; NULL: not wanted
    void *ctx;
} pack_options;

typedef struct pack_report {
    int64_t files_in, files_skipped, bytes_in, train_tokens, val_tokens;
    int64_t documents, text_bytes;   // with a tokenizer: of text, uncompressed
    int64_t cut, left_out, answers;  // with a template, as in chat_spooled, labels_spooled and to_text_spooled
    int64_t rows, filled;            // of conversations, as in chat_spooled
    int64_t classes;                 // different labels; 0: texts have none
    bool numbers;                    // labels are numbers
    int shards_out;
    double best_loss;  // of a token, for the best possible reader; 0: not known (data/text/about.h)
} pack_report;

// Makes tokens of the text and writes shards, each atomically. With a tokenizer, a document is a file, or the text of a
// line of a JSONL file, and after each comes the token that ends a text, if there is one; files may be compressed with
// gzip or zstd. Of bytes, an empty line follows the text of a line of a JSONL file. A file that two patterns name is
// packed twice. Old shards of
// the same prefix are removed when the new ones are complete on disk, just before these get their names.
err_t pack_run(const pack_options *o, pack_report *r);

#endif
