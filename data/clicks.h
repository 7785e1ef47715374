// data/clicks.h: in what form clicks and ratings come to `lockstep pack`: the words of [pack] clicks.
#ifndef DATA_CLICKS_H
#define DATA_CLICKS_H

#include "base/words.h"

#define CLICK_WORDS(X) \
    X(CLICKS_NO, "no") \
    X(CLICKS_CRITEO, "criteo") \
    X(CLICKS_MOVIELENS, "movielens") \
    X(CLICKS_PLANTED, "planted") \
    X(CLICKS_RATINGS, "ratings")
typedef enum { CLICK_WORDS(WORD_ENUM) } click_kind;

#endif
