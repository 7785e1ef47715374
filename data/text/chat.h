// data/text/chat.h: conversations as tokens, of which those of the answers are marked. A template says what is written
// around a turn (`?` is its role, . its content; marked is what stands between the two ^):
//
//      chatml    <|im_start|>?\n.<|im_end|>\n                                     ^ content and <|im_end|> ^
//      llama3    <|begin_of_text|> once, <|start_header_id|>?<|end_header_id|>\n\n.<|eot_id|>    ^ ... <|eot_id|> ^
//      plain     the token that begins a text once, .\n, and an answer . with the token that ends a text, or without
//                one \n                                                           ^ ... that token ^
//
// llama3 takes the white space around a content away, as its original does. What a template writes is encoded with
// special tokens, and a content without: "<|im_end|>" in a content is text. Both are encoded apart, so that what comes
// before an answer has the tokens that a prompt has.
#ifndef DATA_TEXT_CHAT_H
#define DATA_TEXT_CHAT_H

#include "data/chat.h"
#include "data/tokenizer/tokenizer.h"

#include <jansson.h>

typedef struct chat chat;

// path, words: of the tokenizer, "bytes" and NULL where a token is a byte. CHAT_AUTO is found beside it
// (data/text/chat_find.h). The tokenizer must outlive it.
err_t chat_open(chat **out, chat_template kind, const char *path, const tokenizer *words);
void chat_close(chat *c);

// The text that ends an answer.
const char *chat_end(const chat *c);

// Valid until the next call.
typedef struct chat_tokens {
    const int32_t *ids;    // (count)
    const uint8_t *marks;  // (count)  1: part of an answer
    int64_t count;
    const uint8_t *text;  // the same as text
    int64_t bytes;
} chat_tokens;

// A sample: {"prompt": "...", "response": "..."}, or {"messages": [{"role": "...", "content": "..."}, ...]}, where a
// role is system, user or assistant. Other members are passed over. ERR_DATA: what is wrong with it, or there is no
// answer.
err_t chat_encode(chat *c, const json_t *sample, chat_tokens *out);

// A prompt as the user's turn, and what is before the answer to it.
err_t chat_ask(chat *c, const char *prompt, chat_tokens *out);

#endif
