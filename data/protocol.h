// data/protocol.h: how the answers of a multiple choice question are compared: the words of [eval] protocol. What they
// mean stands in data/text/questions.h.
#ifndef DATA_PROTOCOL_H
#define DATA_PROTOCOL_H

#include "base/words.h"

#define PROTOCOL_WORDS(X) \
    X(PROTOCOL_LM_EVAL, "lm-eval") \
    X(PROTOCOL_LLMC, "llmc")
typedef enum { PROTOCOL_WORDS(WORD_ENUM) } question_protocol;

#endif
