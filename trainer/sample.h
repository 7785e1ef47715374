// trainer/sample.h: texts that a session's model generates after prompts, as [sample] says.
#ifndef TRAINER_SAMPLE_H
#define TRAINER_SAMPLE_H

#include "trainer/session/session.h"

typedef struct sample_text {
    const char *prompt;
    char *text;                     // out: what follows it
    int64_t prompt_tokens, tokens;  // out
    const char *ended;              // out: "length", "stop", "end of text"; NULL: not yet
    double first_s, last_s;         // out: by clock_now, when its first and its last token were there
} sample_text;

// Called as texts grow: text `number` has n more bytes, which are final. They end with a whole character, except at the
// text's end, where `ended` is set.
typedef struct sample_listener {
    void (*grown)(void *ctx, int number, const char *bytes, size_t n);
    void *ctx;
} sample_listener;

// Must all ranks call session_samples? In ZeRO stage 3, in a pipeline and where ranks share layers. Elsewhere rank 0
// generates one text, and the others call session_await_sample.
bool session_samples_on_all(const session *x);

// [sample] batch texts at a time. The caller frees each `text`, also after a failure. listener NULL: nobody listens.
err_t session_samples(session *x, sample_text *texts, int count, const sample_listener *listener);
err_t session_await_sample(session *x);

// One of them. The caller frees *out.
err_t session_sample(session *x, const char *prompt, char **out);

#endif
