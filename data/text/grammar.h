// data/text/grammar.h: a grammar that writes text and knows how much chance is in it.
//
// A grammar is a table of rules. A rule is alternatives with | between, all equally likely:
//
//      {"colour", "", "red|green|orange"}               words: alternatives without brackets
//      {"child", "he his", "Ada/she/her|Ben/he/his"}    words with fields: [A.his] is "her" where A is Ada
//      {"story", "", "[child=A] lost [a colour=C] ball. It was [A.his] only [C] one.|..."}
//
//      [rule]             one of its alternatives
//      [words=X]          one of its words, and X stands for it from here on; X is a capital letter
//      [words=X not Y Z]  the same, but not the word that Y or Z stands for
//      [X]  [X.field]     the word again, or a field of it
//      [a ...] [^...]     with "a " or "an " before it; with a capital letter; [^a ...] both
//
// No text has two derivations: any two alternatives of a rule differ before either ends, at a byte that is certain to
// differ whatever was chosen until there. So the texts of a rule are a prefix code, and a reader who knows the grammar
// recovers each choice as soon as it makes a difference. This is proved for all texts when the grammar is opened, not
// tried on some.
//
// Therefore the probability of a text is the product of the probabilities of its choices, and with every choice even,
// among n,
//
//      H(text) = E[ sum of ln n over the choices ]      nats
//      H(text) / E[bytes of a text]                     nats per byte: no reader of such texts, one after the other,
//      has
//                                                       a lower mean loss
//
// E over the alternatives of a rule is their mean, so a recursion over the rules gives both exactly.
//
// A choice among words but for k others is among n - k. And since nothing else depends on which word it was, each
// letter stands for each of its words equally often, so that the mean length of [X.field] is the mean over the words.
#ifndef DATA_TEXT_GRAMMAR_H
#define DATA_TEXT_GRAMMAR_H

#include "data/tokenizer/room.h"

typedef struct grammar_rule {
    const char *name;
    const char *fields;  // names of the fields of its words, space between; "": none
    const char *text;
} grammar_rule;

typedef struct grammar grammar;

// A text is what the first rule makes. ERR_INTERNAL names the rule and what is wrong with it: a name that there isn't,
// a letter that stands for nothing yet, rules that contain each other, alternatives that a text doesn't tell apart. The
// table must stay.
err_t grammar_open(grammar **out, const grammar_rule *rules, int count);
void grammar_close(grammar *g);

// Of all texts, on average.
typedef struct grammar_amount {
    double nats, bytes;
} grammar_amount;
grammar_amount grammar_average(const grammar *g);

// Appends a text. pick chooses from 0 .. n-1, n >= 1; another answer than ERR_OK ends the text and is returned.
typedef err_t grammar_pick(void *ctx, int n, int *choice);
err_t grammar_tell(const grammar *g, grammar_pick *pick, void *ctx, bytes *to);

#endif
