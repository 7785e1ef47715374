// trainer/answers.c: see trainer/answers.h.
#include "trainer/answers.h"

#include "base/io.h"
#include "base/text.h"
#include "data/image/encode.h"
#include "data/image/resize.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>

// --- counting --------------------------------------------------------------------------------------------------------

typedef struct class_count {
    int64_t of, right, said;  // samples of this class; those of them that the model knew; samples that it said are such
} class_count;

typedef struct class_pair {
    int32_t label, answer;
    int64_t count;
} class_pair;

// A sample that the model got wrong.
typedef struct mistake {
    int64_t sample;
    double sure;
} mistake;

typedef struct tally {
    const session *x;
    int64_t samples, right, pairs, mistakes;
    int32_t *label;      // (samples)
    class_count *count;  // (classes)
    class_pair *pair;    // (pairs) the most frequent first
    mistake *mistake;    // (mistakes) the surest first
} tally;

static void tally_close(tally *t) { free(t->label), free(t->count), free(t->pair), free(t->mistake); }

static err_t tally_open(tally *t, const session *x, int64_t samples) {
    size_t n = (size_t)samples;
    *t = (tally){.x = x, .samples = samples};
    t->label = malloc(n * sizeof *t->label);
    t->count = calloc((size_t)x->net->classes, sizeof *t->count);
    t->pair = malloc(n * sizeof *t->pair);
    t->mistake = malloc(n * sizeof *t->mistake);
    if (t->label && t->count && t->pair && t->mistake) return ERR_OK;
    return err_set(ERR_INTERNAL, "no memory to count %" PRId64 " answers", samples);
}

static err_t read_label(const session *x, int64_t sample, int32_t *label) {
    void *to[MODEL_INPUTS] = {0};
    to[x->net->targets] = label;
    return source_look(x->val, sample, to);
}

static int by_classes(const void *a, const void *b) {
    const class_pair *x = a, *y = b;
    if (x->label != y->label) return x->label < y->label ? -1 : 1;
    return (x->answer > y->answer) - (x->answer < y->answer);
}

static int by_count(const void *a, const void *b) {
    const class_pair *x = a, *y = b;
    return x->count != y->count ? (x->count > y->count ? -1 : 1) : by_classes(a, b);
}

// One whose logits are no numbers is sure of nothing.
static int by_sureness(const void *a, const void *b) {
    const mistake *x = a, *y = b;
    double p = x->sure >= 0 ? x->sure : 0, q = y->sure >= 0 ? y->sure : 0;
    return p != q ? (p > q ? -1 : 1) : (x->sample > y->sample) - (x->sample < y->sample);
}

// Equal pairs become one, with their number.
static void merge_pairs(tally *t) {
    int64_t n = 0;
    qsort(t->pair, (size_t)t->pairs, sizeof *t->pair, by_classes);
    for (int64_t i = 0; i < t->pairs; i++) {
        if (n > 0 && by_classes(&t->pair[n - 1], &t->pair[i]) == 0) t->pair[n - 1].count++;
        else t->pair[n++] = t->pair[i];
    }
    t->pairs = n;
    qsort(t->pair, (size_t)t->pairs, sizeof *t->pair, by_count);
}

static err_t count_answers(tally *t) {
    for (int64_t i = 0; i < t->samples; i++) {
        const class_answer *a = &t->x->answers[i];
        int32_t *label = &t->label[i];
        TRY(read_label(t->x, i, label));
        t->count[*label].of++;
        t->count[a->class].said++;
        if (a->class == *label) {
            t->right++, t->count[*label].right++;
            continue;
        }
        t->pair[t->pairs++] = (class_pair){*label, a->class, 1};
        t->mistake[t->mistakes++] = (mistake){i, a->sure};
    }
    merge_pairs(t);
    qsort(t->mistake, (size_t)t->mistakes, sizeof *t->mistake, by_sureness);
    return ERR_OK;
}

err_t answers_f1(const session *x, const evaluation *e, double *f1) {
    tally t;
    int64_t n = 0;
    *f1 = 0;
    if (!x->answers) return err_set(ERR_INTERNAL, "no answers were kept");
    err_t rc = tally_open(&t, x, e->samples);
    if (rc == ERR_OK) rc = count_answers(&t);
    for (int64_t c = 0; rc == ERR_OK && c < x->net->classes; c++) {
        const class_count *k = &t.count[c];
        if (!k->of && !k->said) continue;
        *f1 += 2 * (double)k->right / (double)(k->of + k->said);
        n++;
    }
    if (n) *f1 /= (double)n;
    tally_close(&t);
    return rc;
}

// --- pictures --------------------------------------------------------------------------------------------------------

typedef struct pictures {
    picture whole, small;  // small: of a large one
    resizer resizer;
    text png;
    char *base64;
    size_t room;
} pictures;

static void pictures_close(pictures *p) {
    picture_free(&p->whole), picture_free(&p->small);
    resizer_free(&p->resizer);
    text_free(&p->png);
    free(p->base64);
}

// The longer side becomes ANSWERS_SIDE if it is longer than that.
static void small_size(const int shape[3], int *h, int *w) {
    int longer = shape[0] > shape[1] ? shape[0] : shape[1];
    *h = shape[0], *w = shape[1];
    if (longer <= ANSWERS_SIDE) return;
    *h = *h * ANSWERS_SIDE / longer, *w = *w * ANSWERS_SIDE / longer;
    if (*h < 1) *h = 1;
    if (*w < 1) *w = 1;
}

// How many pictures of this source there is room for.
static int64_t pictures_most(const source *s) {
    int h, w;
    if (!s->picture[0]) return ANSWERS_PICTURES;
    small_size(s->picture, &h, &w);
    int64_t fit = ANSWERS_PIXELS / ((int64_t)h * w * s->picture[2]);
    return fit < ANSWERS_PICTURES ? fit : ANSWERS_PICTURES;
}

// *out: the sample's picture, reduced if it is large.
static err_t read_picture(pictures *p, source *s, int64_t sample, const picture **out) {
    int h, w;
    picture *whole = &p->whole;
    TRY(picture_make(whole, s->picture[0], s->picture[1], s->picture[2]));
    TRY(source_picture(s, sample, whole->at));
    small_size(s->picture, &h, &w);
    *out = whole;
    if (h == whole->h && w == whole->w) return ERR_OK;
    TRY(picture_make(&p->small, h, w, whole->c));
    *out = &p->small;
    const region all = {whole->at, (int64_t)whole->w * whole->c, whole->h, whole->w, whole->c};
    return resize(&p->resizer, p->small.at, h, w, &all);
}

// "png": the picture, or null.
static err_t put_picture(pictures *p, text *j, source *s, int64_t sample) {
    const picture *seen;
    if (!s->picture[0]) return text_word(j, "png", NULL), ERR_OK;
    TRY(read_picture(p, s, sample, &seen));
    p->png.n = 0;
    TRY(png_encode(&p->png, seen));
    size_t need = sodium_base64_encoded_len(p->png.n, sodium_base64_VARIANT_ORIGINAL);
    if (need > p->room) {
        free(p->base64);
        p->base64 = malloc(p->room = need);
    }
    if (!p->base64) return err_set(ERR_INTERNAL, "no memory for a picture");
    sodium_bin2base64(p->base64, p->room, (const uint8_t *)p->png.at, p->png.n, sodium_base64_VARIANT_ORIGINAL);
    text_word(j, "png", p->base64);
    return ERR_OK;
}

// --- the file --------------------------------------------------------------------------------------------------------

static void put_classes(text *j, const tally *t) {
    text_put(j, ",\n\"classes\":[");
    for (int64_t c = 0, n = 0; c < t->x->net->classes; c++) {
        const class_count *k = &t->count[c];
        if (!k->of && !k->said) continue;
        text_put(j, "%s{", n++ ? ",\n" : "\n");
        text_whole(j, "label", c);
        text_word(j, "name", source_class(t->x->val, c));
        text_whole(j, "of", k->of);
        text_whole(j, "right", k->right);
        text_whole(j, "said", k->said);
        text_put(j, "}");
    }
    text_put(j, "]");
}

static void put_pairs(text *j, const tally *t) {
    text_put(j, ",\n\"pairs\":[");
    for (int64_t i = 0; i < t->pairs && i < ANSWERS_PAIRS; i++) {
        text_put(j, "%s{", i ? ",\n" : "\n");
        text_whole(j, "label", t->pair[i].label);
        text_whole(j, "answer", t->pair[i].answer);
        text_whole(j, "count", t->pair[i].count);
        text_put(j, "}");
    }
    text_put(j, "]");
}

static err_t put_sample(text *j, const tally *t, pictures *p, int64_t sample, bool first) {
    const class_answer *a = &t->x->answers[sample];
    text_put(j, "%s{", first ? "\n" : ",\n");
    text_whole(j, "sample", sample);
    text_whole(j, "label", t->label[sample]);
    text_whole(j, "answer", a->class);
    text_real(j, "sure", a->sure, 9);
    TRY(put_picture(p, j, t->x->val, sample));
    text_put(j, "}");
    return ERR_OK;
}

static err_t put_examples(text *j, const tally *t, pictures *p) {
    int64_t most = pictures_most(t->x->val), n = t->samples < most ? t->samples : most;
    text_put(j, ",\n\"examples\":[");
    for (int64_t i = 0; i < n; i++) TRY(put_sample(j, t, p, i * t->samples / n, i == 0));
    text_put(j, "],\n\"mistakes\":[");
    for (int64_t i = 0; i < t->mistakes && i < most; i++) TRY(put_sample(j, t, p, t->mistake[i].sample, i == 0));
    text_put(j, "]}\n");
    return ERR_OK;
}

static err_t put_all(text *j, const tally *t) {
    pictures p = {0};
    text_put(j, "{");
    text_whole(j, "step", t->x->progress.step);
    text_whole(j, "samples", t->samples);
    text_whole(j, "right", t->right);
    text_whole(j, "of_classes", t->x->net->classes);
    put_classes(j, t);
    put_pairs(j, t);
    err_t rc = put_examples(j, t, &p);
    pictures_close(&p);
    return rc == ERR_OK && j->full ? err_set(ERR_INTERNAL, "no memory for answers.json") : rc;
}

err_t answers_write(const session *x, const evaluation *e, const char *dir) {
    char path[IO_PATH];
    text j = {0};
    tally t;
    if (!x->answers) return ERR_OK;
    TRY(io_path(path, "%s/answers.json", dir));
    err_t rc = tally_open(&t, x, e->samples);
    if (rc == ERR_OK) rc = count_answers(&t);
    if (rc == ERR_OK) rc = put_all(&j, &t);
    if (rc == ERR_OK) rc = io_replace_file(path, j.at, j.n);
    tally_close(&t);
    text_free(&j);
    return rc;
}
