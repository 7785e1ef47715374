// data/text/stories.h: short English stories, made from a grammar of ours: text that is the same for everybody, of any
// length, without a download.
//
// `stories:SEED` is an endless text: story 0, an empty line, story 1, ... Which alternatives a story takes is
// philox(seed, number of the story, number of the choice) (base/philox.h), and nothing but integers decides, so that a
// seed's text is the same for ever and on every machine. A shorter text is the beginning of a longer one.
//
// People and things come back in a story, by name, pronoun, colour and owner, so a reader who remembers knows what
// comes more often than one who doesn't. How much there is to know is known exactly (data/text/grammar.h): no reader's
// loss is below
//
//      stories_best() = H(story) / E[bytes of a story]     nats per byte
//
// on average, and the reader who knows the grammar and has read everything before reaches it. A model that sees
// `context` tokens can't quite: where its window begins, it does not know what the story was about.
#ifndef DATA_TEXT_STORIES_H
#define DATA_TEXT_STORIES_H

#include "data/text/grammar.h"

extern const grammar_rule story_rules[];
extern const int story_rule_count;

enum { STORIES_BYTES = 2000000 };  // of `stories:SEED` without a size

// Whether an input of [pack] is stories: "stories:SEED" or "stories:SEED:BYTES". ERR_CONFIG: it begins so, and goes on
// in another way.
err_t stories_parse(const char *text, bool *is, uint64_t *seed, int64_t *size);

typedef struct stories stories;

err_t stories_open(stories **out, uint64_t seed);
void stories_close(stories *s);

// The next n bytes of the text.
err_t stories_read(stories *s, uint8_t *out, int64_t n);

// Appends the next story, with the empty line after it.
err_t stories_next(stories *s, bytes *to);

// The sum of ln n over all choices so far: an ideal reader's loss on the stories that were begun, in nats.
double stories_surprise(const stories *s);

// An ideal reader's mean loss, and a story's; E[bytes of a story] is the quotient.
double stories_best(const stories *s);        // nats per byte
double stories_best_story(const stories *s);  // nats per story

#endif
