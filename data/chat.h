// data/chat.h: how the turns of a conversation are written for a model: the words of [pack] template.
#ifndef DATA_CHAT_H
#define DATA_CHAT_H

#include "base/words.h"

#define CHAT_WORDS(X) \
    X(CHAT_NO, "no") \
    X(CHAT_AUTO, "auto") \
    X(CHAT_CHATML, "chatml") \
    X(CHAT_LLAMA3, "llama3") \
    X(CHAT_PLAIN, "plain") \
    X(CHAT_LABELS, "labels") \
    X(CHAT_NUMBERS, "numbers") \
    X(CHAT_TEXT, "text")
typedef enum { CHAT_WORDS(WORD_ENUM) } chat_template;

#endif
