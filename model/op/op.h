// model/op/op.h: the operations that a page may write. Each is a file beside this one: its shapes, what it computes in
// forward, how its gradients are formed, and what it does in one call with its neighbours.
#ifndef MODEL_OP_OP_H
#define MODEL_OP_OP_H

#include "model/lower.h"

// Where samples are several documents (model_division.documents): each position's place in its document, an input.
#define PLACES "positions"

// x = factor * table[token] + positions[t]; positions NULL: without them. The table's rows are divided. Makes the
// inputs "tokens" and, of documents, PLACES.
value embedding(graph *g, const char *table, const char *positions, int64_t vocab, int64_t context, int64_t C,
                double std, double factor);

// (x - mean) * rstd * w + b, of each row    (Ba et al. 2016)
value layer_norm(graph *g, value x, const char *name);  // eps = 1e-5
value layer_norm_of(graph *g, value x, const char *name, double eps);

// x * rstd * (shift + w), of each row    (Zhang & Sennrich 2019). w begins as 1 - shift.
value rms_norm(graph *g, value x, const char *name, double eps, double shift);

// RMS norm of each of `heads` heads of a row, from head `first` on, with one weight: in place.
value head_norm(graph *g, value qkv, const char *name, int64_t head_size, int64_t first, int64_t heads, double eps,
                double shift);

// Turns the first `heads` heads of each row by its position: in place    (Su et al. 2021)
value rotary(graph *g, value qkv, int64_t heads, int64_t head_size, const rope *r);

// silu(gate) * up, gelu(gate) * up, the halves of each row    (Shazeer 2020)
value swiglu(graph *g, value x, const char *letters);
value geglu(graph *g, value x, const char *letters);

// x W^T + b. Its outputs or its inputs are divided among slices (model/linear.h).
typedef struct projection {
    int64_t outputs;
    const char *letters;
    linear_division divide;
    bool bias;
    double std;
    int matrices;  // that W consists of, one below the other, each with its share of the outputs; 0: one
    int64_t share[PARAM_SHARES];
} projection;
value project(graph *g, value x, const char *name, projection o);

value gelu(graph *g, value x);
value gelu_erf(graph *g, value x);  // x times the normal distribution's share below x, exactly

// softmax(q k^T / sqrt(D)) v of heads, causal or not. qkv holds them side by side.
typedef struct attention_options {
    int64_t heads, kv_heads, head_size, window;  // kv_heads 0: heads; window 0: all
    const char *letters;
    int site;             // of dropout of the probabilities; -1: none
    bool all;             // a position sees those after it, too
    const char *lengths;  // with all: the input that has each sample's length; NULL: all positions
} attention_options;
value attend(graph *g, value qkv, attention_options o);

// The same of queries q to the keys and values kv, of another text or of its own, in FP32, with a bias that depends on
// how far a key is from the query (Raffel et al. 2020, section 2.1). Layers that share a table of the bias have one row
// each, tied to the first of them.
typedef struct cross_options {
    int64_t heads, head_size;
    const char *letters;
    int site;             // of dropout of the probabilities; -1: none
    bool causal;          // a query sees keys up to its own position
    const char *lengths;  // the input that has the number of each sample's keys; NULL: all of them
    double scale;         // of q k^T
    const char *bias;     // the table's name, (buckets,heads); NULL: there is none
    int64_t buckets, most;
    int tied;  // the row of the first layer's table; -1: this is it
    double std;
} cross_options;
value cross_attend(graph *g, value q, value kv, cross_options a);

value add(graph *g, value a, value b);

// factor * x.
value scaled(graph *g, value x, double factor);

// A residual stream of two texts: of each sample the first has `rows` rows, the second the others. part: the rows of
// the first, of the second, or of both; NULL: not wanted. join: x with a text's rows replaced.
void part(graph *g, value x, int64_t rows, value *first, value *second);
value join(graph *g, value x, int64_t rows, value text, bool second);

// Dropout of x in training: in x's memory.
value dropout(graph *g, value x, int site);

// Softmax cross entropy of the logits x W^T against the next tokens: ends the last block. W has the values of row
// `tied` of the table; -1: its own.
void next_token_loss(graph *g, value x, const char *weight, int64_t vocab, int tied, int64_t chunks, double std);

// Of the two below: the input "targets", m->losses of a sample, and W with its head; flops of a sample.
void vocabulary_head(graph *g, operation *o, value x, const char *weight, int64_t vocab, int tied, int64_t chunks,
                     double std);
double vocabulary_flops(const model *m, const operation *o);

// Softmax cross entropy of the logits x W^T against the model's next input, a token for each of x's rows of a sample:
// ends the last block. W as next_token_loss'. A pass that predicts gives the scores of one row (pass.row).
void target_loss(graph *g, value x, const char *weight, int64_t vocab, int tied, int64_t chunks, double std);

// After target_loss: its targets are answers (model.says).
void target_answers(graph *g);

// The model's first input as a matrix of so many columns.
value samples(graph *g, const char *name, int64_t width);

// x + the row of a small table that the model's next input has for each position: of which text it is part.
value token_types(graph *g, value x, const char *table, int64_t types, double std);

// The model's next input is a sample's length, of all its positions.
void sample_length(graph *g, const char *name);

// Some rows of each sample, which the model's next input names, M of them; NULL: its first one.
value gather_rows(graph *g, value x, const char *input, int64_t M);

// Softmax cross entropy of the logits x W^T + b against a token for each row: ends the last block. W as
// next_token_loss'.
typedef struct masked_options {
    int64_t vocab, chunks;
    int tied;
    double std;
    int64_t mask, begin, end;  // tokens: see model.mask
    // A row of each sample, by which its second text follows its first, or does not: the cross entropy of the logits
    // x W^T + b of these two classes is added to the sample's loss. Its metrics are then the accuracy of that, and the
    // loss of masked tokens alone. 0: there is none
    value pooled;
    const char *pairs;  // W and b are called this
    double pairs_std;
} masked_options;
void masked_loss(graph *g, value x, const char *weight, const char *bias, masked_options o);

// tanh(x): in x's memory.
value hyperbolic(graph *g, value x);

// max(x, 0): in x's memory.
value relu(graph *g, value x);

// Softmax cross entropy of the logits x W^T + b against a class for each row, and its accuracy: ends the last block.
typedef struct class_options {
    int64_t classes;
    bool divided;  // W's inputs are
    double std;
    double smoothing;  // of the targets, in training
    int64_t top;       // also: is the class among so many largest? 0: no
    bool ranks;        // of two classes: samples are ranked by the chance of the second one (model.ranks)
} class_options;
void class_loss(graph *g, value x, const char *name, class_options o);

// Squared error of the number x W^T + b against that of each row: ends the last block.
typedef struct number_options {
    double std;
    double begin;  // b begins as this
    bool root;     // how far it is off is looked at, not what goes with what: model.root for its metrics
} number_options;
void number_loss(graph *g, value x, const char *name, number_options n);

// Of each sample a row of each of several tables of as many rows, side by side: (B, tables * width). The model's next
// input has the ids: rows of all tables, one below the other. On demand: ids of 64 bits, each as two numbers, low bits
// first; a table has the rows that are named, and no parameter (model.h: model_table).
typedef struct table_options {
    int64_t tables, rows, width;
    double std;
    bool demand;
    double bound;  // on demand: rows begin uniform in +-bound
} table_options;
value tables(graph *g, const char *input, const char *name, table_options t);

// x (B,C), and after it the dot products of each pair of x and the rows (B,F*C) beside it. Nothing else reads the two.
value interact(graph *g, value x, value rows);

// --- images ----------------------------------------------------------------------------------------------------------

// The model's first input, an image of bytes of H rows of W pixels of C channels, as (x/255 - mean) / deviation.
enum { PIXEL_CHANNELS = 4 };
value pixels(graph *g, const char *name, int64_t H, int64_t W, int C, const double *mean, const double *deviation);

// A convolution without a bias. Its weights begin normal(0, sqrt(2 / (filters * taps^2)))  (He et al. 2015)
typedef struct convolution {
    int64_t filters;
    int taps, stride, pad;
    int groups;  // 0: one
} convolution;
value conv(graph *g, value x, const char *name, convolution c);

// (x - mean) * rstd * w + b, of each channel, over the pixels of all samples  (Ioffe & Szegedy 2015). w begins as
// `gain`.
value batch_norm(graph *g, value x, const char *name, float gain);

// The largest of each window; the mean of all pixels, which is no image.
value max_pool(graph *g, value x, int taps, int stride, int pad);
value mean_pool(graph *g, value x);

#endif
