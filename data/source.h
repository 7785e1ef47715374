// data/source.h: where samples come from. A source is a fixed number of samples in a fixed order. A sample is a few
// named tensors, of the same types and shapes in all samples. The loader, evaluation and `lockstep check` know sources
// only: what a file looks like stays in data/text/, data/image/ and so on.
//
// One thread reads at a time, or as many as source.readers says; source_cancel and source_about may be called from
// others.
#ifndef DATA_SOURCE_H
#define DATA_SOURCE_H

#include "base/err.h"
#include "base/fault.h"
#include "data/format.h"
#include "gpu/gpu.h"

#include <string.h>

enum { SOURCE_TENSORS = 5 };

// Which part of an image a sample is, and what training changes of it by chance (data/image/view.h).
typedef struct source_view {
    int64_t crop;    // pixels of each side; 0: images as they are, all of one size
    double area;     // smallest share of an image that a random box has, 1: none
    int64_t shift;   // most pixels by which the box in the middle is moved
    flip_mode flip;  // left to right
} source_view;

typedef struct source_options {
    const char *files;          // files and globs, space between. With weights (data/weights.h) each is a part of a mix
    source_format format;       // FORMAT_AUTO: by the first bytes of the first file
    const tensor_spec *wanted;  // what the model reads, `inputs` of them. Samples have these tensors, in this order
    int inputs;
    // of tokens: a target that is `ignored` is -1 instead, so that its loss does not count (gpu/ops.h: cross_entropy)
    bool ignores;
    int64_t ignored;
    int64_t mask, begin, end;  // of masked tokens: what stands for one, and what a sample begins and ends with
    // of tokens: a sample is several documents, told apart by the files or by the token that ends one (-1: none).
    // Places in documents are a tensor, and targets of another document are -1
    bool documents;
    int64_t document_end;
    // of spans: so many tokens of a text, `window`, of which so many are left out, in so many spans; mask stands for
    // the first span, tokens before it for the next ones. 0: nothing is left out; samples have both texts
    int64_t window, left_out, spans;
    bool answers;        // of tokens: targets that are not marked as an answer's are -1 too (data/text/shard.h)
    int64_t held_out;    // so many samples at the end are set apart, 0: none
    bool only_held_out;  // these are the source; else those before them
    const char *packed;  // [pack] output: `lockstep pack` makes the files whose names begin so; NULL: none
    source_view view;    // of images; area 0 is 1
    int readers;         // so many threads want to read at once; 0: one
    int retry;           // how often a read that fails with an I/O error is tried again, with back-off
    int shared_by;       // so many sources share this process's descriptors; 0, 1: it is the only one
    fault_list *faults;  // may be NULL
} source_options;

typedef struct source_info {
    int64_t samples;
    int64_t units;  // of what people count in these files
    int64_t units_per_sample;
    const char *unit;  // "tokens"
    int files;
    char hash[17];    // first 16 hex digits of BLAKE2b-256 over what the files contain, whatever their names
    int64_t retries;  // reads that failed first and succeeded later
    int64_t read;     // bytes that were read of the files so far, as they are stored
    double best;      // the mean loss on them of the model that made the labels, of made-up clicks; 0: not known
} source_info;

// One of the sources that a mix draws from.
typedef struct source_part {
    char *text;         // its files and weight, as they were written
    double share;       // of all samples of a run
    source_info about;  // when it was opened
} source_part;

typedef struct source source;

// What is read, and what chance may depend on: whatever a source changes at random (a crop, a mask) is a function of
// seed, n and its own site, never of rank, thread or time, so that every layout and every restart reads the same.
typedef struct source_draw {
    int64_t sample;  // 0 .. samples-1
    uint64_t seed;   // of the run
    int64_t n;       // position in the run, from 0
    bool train;      // false: to be looked at as it is, without chance
    int64_t epoch;   // how often the sample's source was seen whole before
    int view;        // of a look at an image: one of its test-time views (data/image/view.h), 0: the middle
    int reader;      // which of the threads that read at once, 0 .. readers-1
} source_draw;

// What a kind of source implements. Samples are counted from the first one of all files.
typedef struct source_type {
    // out[k]: tensor k of source.tensor; NULL: unwanted
    err_t (*read)(source *s, const source_draw *d, void *const *out);
    err_t (*verify)(source *s, void (*report)(void *ctx, const char *text), void *ctx);
    void (*cancel)(source *s, bool cancelled);
    void (*counts)(const source *s, int64_t *retries, int64_t *read);  // as in source_info; NULL: always 0
    void (*close)(source *s);
    // sample and epoch of position d->n, as source_at; NULL: every sample comes once an epoch
    void (*at)(const source *s, source_draw *d, bool shuffle);
    // as source_picture and source_class; NULL: its samples are no pictures, its classes have no names
    err_t (*picture)(source *s, int64_t sample, uint8_t *out);
    const char *(*class)(const source *s, int64_t label);
} source_type;

// What every source begins with. Its opener fills in all but inputs, place and first; `part` only if it is a mix.
struct source {
    const source_type *type;
    source_info about;
    const source_part *part;  // (parts)
    int parts;                // 0: it is not a mix
    int tensors;
    tensor_spec tensor[SOURCE_TENSORS];  // in the source's own order
    int inputs;
    int place[SOURCE_TENSORS];  // [input] its index in tensor
    int64_t first;              // of the samples that are used
    int readers;                // so many threads may read at once; 0: one
    int picture[3];             // height, width and channels of every sample, for people; 0: they are no pictures
};

// Opens the files and checks what can be checked without reading all of them. ERR_DATA names file, offset, expected and
// found. ERR_CONFIG: the files do not hold what the model reads.
err_t source_open(source **out, const source_options *o);
void source_close(source *s);
source_info source_about(const source *s);

// out[k] (=) input k of the sample: spec_bytes(&wanted[k]) bytes.
err_t source_read(source *s, const source_draw *d, void *const *out);
// The same without chance.
err_t source_look(source *s, int64_t sample, void *const *out);

// For people: out (h,w,c) (=) the bytes of the sample's picture, as evaluation sees it; s->picture is its shape.
// ERR_CONFIG: the samples are no pictures.
err_t source_picture(source *s, int64_t sample, uint8_t *out);
// What the files call a class; NULL: they have no name for it. It lives as long as the source.
const char *source_class(const source *s, int64_t label);

// The sample at position n (from 0) of a run: a function of the seed and n alone, whatever ranks take part. Without
// weights it is sampler_at over all samples (data/sampler.h); a mix draws from its parts in proportion (data/mix.c).
int64_t source_at(const source *s, uint64_t seed, int64_t n, bool shuffle);

// The same as what is to be read of it in training.
source_draw source_draw_at(const source *s, uint64_t seed, int64_t n, bool shuffle);

// The parts of a mix, *count of them; 0: it is none.
const source_part *source_parts(const source *s, int *count);

// Reads everything and checks every checksum and value, also of samples that are held out. Calls report(ctx, text) for
// each fault that it finds; returns ERR_DATA if there was one.
err_t source_verify(source *s, void (*report)(void *ctx, const char *text), void *ctx);

// true: a read that waits for its next retry fails now with ERR_INTERRUPTED, and so do later ones. false: retries work
// again.
void source_cancel(source *s, bool cancelled);

// --- the openers, for data/open.c ------------------------------------------------------------------------------------

err_t text_open(source **out, const source_options *o);      // data/text/text.c: windows of tokens
err_t masked_open(source **out, const source_options *o);    // data/text/masked.c: tokens, some of them masked
err_t spans_open(source **out, const source_options *o);     // data/text/spans.c: tokens without some spans of them
err_t labelled_open(source **out, const source_options *o);  // data/text/labelled.c: texts with labels
err_t answered_open(source **out, const source_options *o);  // data/text/answered.c: texts and what is said of them
err_t idx_open(source **out, const source_options *o);       // data/image/idx.c: images and labels
err_t images_open(source **out, const source_options *o);    // data/image/images.c: shards of images
err_t clicks_open(source **out, const source_options *o);    // data/click/clicks.c: shards of clicks
// Do these bytes begin a shard of images, though perhaps a damaged one?
bool images_begin(const uint8_t *head, int64_t n);
bool clicks_begin(const uint8_t *head, int64_t n);  // ... of clicks?

// Made-up samples for benchmarks, in memory: numbers from [0,1), bytes, and integers below the input's limit.
// (data/made_up.c)
err_t made_up_open(source **out, const source_options *o, uint64_t seed, int64_t samples);

// The wanted input of that name, NULL: the model reads none.
static inline const tensor_spec *source_wants(const source_options *o, const char *name) {
    for (int i = 0; i < o->inputs; i++)
        if (strcmp(o->wanted[i].name, name) == 0) return &o->wanted[i];
    return NULL;
}

#endif
