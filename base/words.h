// base/words.h: an enum and the words that stand for it in text, from one list.
//
//   #define ORDER_WORDS(X) X(ORDER_FIXED, "fixed") X(ORDER_ANY, "any")
//   typedef enum { ORDER_WORDS(WORD_ENUM) } order_mode;
//   ORDER_WORDS(WORD_TEXT) + 1                                    "fixed any"
//   const char *const names[] = {ORDER_WORDS(WORD_NAME)};         names[ORDER_ANY] is "any"
// In headers that C++ reads too, which has no such rows: WORD_STRING, if the first constant is 0.
#ifndef BASE_WORDS_H
#define BASE_WORDS_H

#define WORD_ENUM(name, word) name,
#define WORD_TEXT(name, word) " " word
#define WORD_NAME(name, word) [name] = word,
#define WORD_STRING(name, word) word,

#endif
