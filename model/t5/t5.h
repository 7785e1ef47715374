// model/t5/t5.h: the options of T5, for model/types.h.
#ifndef MODEL_T5_T5_H
#define MODEL_T5_T5_H

#include "model/rule.h"

#include <stdint.h>

typedef enum { T5_GEGLU, T5_RELU } t5_activation;
typedef enum { T5_SPANS, T5_TEXT } t5_task;

typedef struct t5_options {
    model_division by;
    int task;        // t5_task
    int activation;  // t5_activation
    bool tied;
    int64_t layers, decoder_layers, heads, head_dim, embed, hidden, vocab;  // head_dim, decoder_layers 0: by resolve
    int64_t context, decoder_context;  // tokens of the encoder; of T5_TEXT of the decoder, 0 in the file: by resolve
    int64_t says;                      // tokens of the decoder: by resolve
    int64_t buckets, max_distance;
    double noise, span, norm_eps, dropout;
    int64_t sentinel_token, begin_token, end_token;
    int64_t head_chunks;              // 0 in the file: chosen by resolve
    int64_t window, left_out, spans;  // of a sample of T5_SPANS
} t5_options;

// t5/spans.c: what of a window of tokens is left out, as T5's own code divides it (Raffel et al. 2020, section 3.1.4):
// a share `noise` of its tokens, rounded to a whole number, half to even, in spans of about `span` tokens. Of the most
// tokens for which the encoder's text, with a token for each span and one at its end, has at most `context`.
typedef struct t5_spans {
    int64_t window;  // tokens
    int64_t noise;   // those left out
    int64_t spans;
    int64_t inputs,
        targets;  // tokens of the encoder's text; of the decoder's, a token for each span and one at its end
} t5_spans;
t5_spans t5_spans_for(int64_t context, double noise, double span);

// t5/foreign.c: for model_type.
struct param;
struct weight_part;
struct foreign_reader;
struct json_t;
int t5_parts(const void *options, const struct param *p, struct weight_part *part);
bool t5_ignores(const void *options, const char *name);
void t5_from_foreign(void *options, struct foreign_reader *r);
err_t t5_to_foreign(const void *options, struct json_t *config);

#endif
