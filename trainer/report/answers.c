// trainer/report/answers.c: see trainer/report/answers.h. A number of the file is only ever compared, added or printed,
// its words go through text_html, and a picture is let through if it is base64 of what begins like a PNG file.
#include "trainer/report/answers.h"

#include "base/io.h"
#include "trainer/report/figure.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LARGEST = 8 << 20,    // bytes of the file
    TABLE_CLASSES = 20,   // with more than so many classes, the worst ones take the place of the table
    WORST = 20,           // rows of what takes its place
    WORD = 32,            // of a number in words
    SHOWN_SIDE = 96,      // pixels of the page for the longer side of a small picture
    PICTURE_SIDE = 4096,  // most pixels of a side
    PICTURES = 64,        // most examples, and mistakes
};

const char answers_style[] =
    "h3{font-size:15px;font-weight:600;margin:28px 0 10px}.y{display:grid;grid-template-columns:repeat(auto-fill,minmax(116px,1fr));gap:16px 14px}"
    ".y figure{padding-left:8px;border-left:4px solid transparent;break-inside:avoid}.y .u{border-left-color:#d55e00}"
    ".y img{display:block;max-width:100%;height:auto;margin-bottom:4px;image-rendering:pixelated}.y figcaption{font-size:13px;line-height:1.35}"
    ".y small{display:block;margin:0;font-size:13px}.z td,.z th{padding:4px 9px;text-align:right}.z td{min-width:38px}"
    ".z th[scope=row]{font-weight:600}.z .t{border-left:1px solid var(--axis)}@media print{.y img,.z td{print-color-adjust:exact;-webkit-print-color-adjust:exact}}";

// --- reading ---------------------------------------------------------------------------------------------------------

static bool has_lists(const json_t *all) {
    static const char *const lists[] = {"classes", "pairs", "examples", "mistakes"};
    for (int i = 0; i < 4; i++)
        if (!json_is_array(json_object_get(all, lists[i]))) return false;
    return true;
}

void answers_read(answers_file *a, const char *dir) {
    char path[IO_PATH], *bytes = NULL;
    size_t n;
    json_error_t why;
    *a = (answers_file){0};
    if (io_path(path, "%s/answers.json", dir) != ERR_OK || (access(path, F_OK) != 0 && errno == ENOENT)) return;
    if (io_read_file(path, LARGEST, &bytes, &n) != ERR_OK) {
        snprintf(a->wrong, sizeof a->wrong, "%s", err_last()->text);
        return;
    }
    a->all = json_loadb(bytes, n, 0, &why);
    free(bytes);
    if (!a->all) snprintf(a->wrong, sizeof a->wrong, "answers.json is damaged, line %d: %s", why.line, why.text);
    if (!a->all || has_lists(a->all)) return;
    snprintf(a->wrong, sizeof a->wrong,
             "answers.json is damaged: it has not all of classes, pairs, examples, mistakes");
    answers_close(a);
}

void answers_close(answers_file *a) {
    json_decref(a->all);
    a->all = NULL;
}

static const json_t *list_of(const answers_file *a, const char *name) { return json_object_get(a->all, name); }

static int64_t whole(const json_t *of, const char *name) { return json_integer_value(json_object_get(of, name)); }

// --- words -----------------------------------------------------------------------------------------------------------

static const json_t *class_at(const answers_file *a, int64_t label) {
    const json_t *all = list_of(a, "classes");
    for (size_t i = 0; i < json_array_size(all); i++)
        if (whole(json_array_get(all, i), "label") == label) return json_array_get(all, i);
    return NULL;
}

// The class's name, or its number.
static const char *word_of(const answers_file *a, int64_t label, char number[WORD]) {
    const char *name = json_string_value(json_object_get(class_at(a, label), "name"));
    snprintf(number, WORD, "%" PRId64, label);
    return name && *name ? name : number;
}

static void put_word(text *h, const answers_file *a, int64_t label) {
    char number[WORD];
    text_html(h, word_of(a, label, number));
}

// part of all, in percent; "–" of nothing. What is not all of it never reads as all. Spaces do not break the line.
static const char *share_text(char dst[WORD], double part, double all) {
    double share = 100 * part / all;
    if (!(all > 0) || !(fabs(share) < 1e6)) return strcpy(dst, "–");  // a damaged file may say anything
    if (share > 99.9 && share < 100) return strcpy(dst, "&gt;\u00a099.9\u00a0%");
    snprintf(dst, WORD, "%.1f\u00a0%%", share);
    return dst;
}

// --- pictures --------------------------------------------------------------------------------------------------------

static int64_t big_endian(const uint8_t *at) {
    return (int64_t)at[0] << 24 | (int64_t)at[1] << 16 | (int64_t)at[2] << 8 | at[3];
}

// A PNG file begins with its signature, the length and name of a chunk, width and height. NULL: this is none.
static const char *png_of(const json_t *sample, int64_t *w, int64_t *h) {
    enum { HEAD = 24, HEAD_BASE64 = HEAD / 3 * 4 };
    static const uint8_t begins[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n', 0, 0, 0, 13, 'I', 'H', 'D', 'R'};
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
    uint8_t head[HEAD];
    size_t got = 0;
    const char *png = json_string_value(json_object_get(sample, "png"));
    if (!png || strlen(png) < HEAD_BASE64 || png[strspn(png, digits)]) return NULL;
    if (sodium_base642bin(head, HEAD, png, HEAD_BASE64, NULL, &got, NULL, sodium_base64_VARIANT_ORIGINAL) != 0 ||
        got != HEAD || memcmp(head, begins, sizeof begins) != 0)
        return NULL;
    *w = big_endian(head + 16), *h = big_endian(head + 20);
    return *w >= 1 && *h >= 1 && *w <= PICTURE_SIDE && *h <= PICTURE_SIDE ? png : NULL;
}

// A small picture is shown with whole pixels of the page for each of its own.
static void put_picture(text *h, const answers_file *a, const json_t *sample) {
    int64_t width, height;
    const char *png = png_of(sample, &width, &height);
    if (!png) return;
    int64_t longer = width > height ? width : height, times = longer < SHOWN_SIDE ? SHOWN_SIDE / longer : 1;
    text_put(h, "<img width=\"%" PRId64 "\" height=\"%" PRId64 "\" alt=\"sample %" PRId64 ", ", width * times,
             height * times, whole(sample, "sample"));
    put_word(h, a, whole(sample, "label"));
    text_put(h, "\" src=\"data:image/png;base64,");
    text_add(h, png, strlen(png));
    text_put(h, "\">");
}

static void put_sample(text *h, const answers_file *a, const json_t *sample) {
    char share[WORD];
    const json_t *sure = json_object_get(sample, "sure");
    int64_t label = whole(sample, "label"), answer = whole(sample, "answer");
    text_put(h, "<figure%s>", label == answer ? "" : " class=\"u\"");
    put_picture(h, a, sample);
    text_put(h, "<figcaption><b>");
    put_word(h, a, label);
    text_put(h, "</b><small>says ");
    put_word(h, a, answer);
    text_put(h, ", %s</small></figcaption></figure>\n",
             share_text(share, json_is_number(sure) ? json_number_value(sure) : NAN, 1));
}

static void put_samples(text *h, const answers_file *a, const char *list, const char *title, const char *more) {
    const json_t *all = list_of(a, list);
    size_t n = json_array_size(all);
    if (!n) return;
    text_put(h, "<h3>%s</h3><p class=\"d\">%s</p>\n<div class=\"y\">\n", title, more);
    for (size_t i = 0; i < n && i < PICTURES; i++) put_sample(h, a, json_array_get(all, i));
    text_put(h, "</div>\n");
}

// --- the table -------------------------------------------------------------------------------------------------------

// Samples of class `label` that the model says are `answer`.
static int64_t taken_for(const answers_file *a, const json_t *class, int64_t answer) {
    const json_t *pairs = list_of(a, "pairs");
    int64_t label = whole(class, "label");
    if (label == answer) return whole(class, "right");
    for (size_t i = 0; i < json_array_size(pairs); i++) {
        const json_t *p = json_array_get(pairs, i);
        if (whole(p, "label") == label && whole(p, "answer") == answer) return whole(p, "count");
    }
    return 0;
}

// Blue where it is right, orange where it is wrong, the stronger the larger the share of its row; by its root, so that
// what is rare is seen. On the strongest, text still has a contrast of 7, on a light page and on a dark one.
static void put_count(text *h, int64_t n, int64_t of, bool right) {
    double share = of > 0 ? (double)n / (double)of : 0;
    if (n <= 0) {
        text_put(h, "<td></td>");
        return;
    }
    text_put(h, "<td style=\"background:rgba(%s,%.2f)\">%" PRId64 "</td>", right ? "0,114,178" : "213,94,0",
             0.1 + 0.35 * sqrt(share < 1 ? share : 1), n);
}

static void put_row(text *h, const answers_file *a, const json_t *class) {
    char share[WORD];
    const json_t *all = list_of(a, "classes");
    int64_t of = whole(class, "of"), label = whole(class, "label");
    text_put(h, "<tr><th scope=\"row\">");
    put_word(h, a, label);
    text_put(h, "</th>");
    for (size_t i = 0; i < json_array_size(all); i++) {
        int64_t answer = whole(json_array_get(all, i), "label");
        put_count(h, taken_for(a, class, answer), of, answer == label);
    }
    text_put(h, "<td class=\"t x\">%s</td></tr>\n", share_text(share, (double)whole(class, "right"), (double)of));
}

static void put_table(text *h, const answers_file *a) {
    char share[WORD];
    const json_t *all = list_of(a, "classes");
    size_t n = json_array_size(all);
    text_put(h,
             "<p class=\"d\">Rows: what it is. Columns: what the model says. Recall: of the samples of a class, those "
             "that the model knew. Precision: of those that it said are of a class, those that are.</p>\n"
             "<div class=\"o\"><table class=\"z\"><tr><td></td>");
    for (size_t i = 0; i < n; i++) {
        text_put(h, "<th scope=\"col\">");
        put_word(h, a, whole(json_array_get(all, i), "label"));
        text_put(h, "</th>");
    }
    text_put(h, "<th scope=\"col\" class=\"t\">recall</th></tr>\n");
    for (size_t i = 0; i < n; i++) put_row(h, a, json_array_get(all, i));
    text_put(h, "<tr><th scope=\"row\">precision</th>");
    for (size_t i = 0; i < n; i++) {
        const json_t *class = json_array_get(all, i);
        text_put(h, "<td class=\"x\">%s</td>",
                 share_text(share, (double)whole(class, "right"), (double)whole(class, "said")));
    }
    text_put(h, "<td class=\"t\"></td></tr>\n</table></div>\n");
}

// --- the worst of many classes ---------------------------------------------------------------------------------------

static void put_pairs(text *h, const answers_file *a) {
    const json_t *all = list_of(a, "pairs");
    text_put(
        h, "<h3>Taken for each other most often</h3>\n<div class=\"o\"><table class=\"z\"><tr><th scope=\"col\">what "
           "it is</th><th scope=\"col\">what the model says</th><th scope=\"col\">samples</th><th scope=\"col\">of its "
           "class</th></tr>\n");
    for (size_t i = 0; i < json_array_size(all) && i < WORST; i++) {
        const json_t *p = json_array_get(all, i);
        text_put(h, "<tr><th scope=\"row\">");
        put_word(h, a, whole(p, "label"));
        text_put(h, "</th><td>");
        put_word(h, a, whole(p, "answer"));
        text_put(h, "</td><td>%" PRId64 "</td><td>%" PRId64 "</td></tr>\n", whole(p, "count"),
                 whole(class_at(a, whole(p, "label")), "of"));
    }
    text_put(h, "</table></div>\n");
}

static double recall_of(const json_t *class) { return (double)whole(class, "right") / (double)whole(class, "of"); }

static int by_recall(const void *a, const void *b) {
    const json_t *x = *(const json_t *const *)a, *y = *(const json_t *const *)b;
    double p = recall_of(x), q = recall_of(y);
    if (p != q) return p < q ? -1 : 1;
    int64_t i = whole(x, "label"), j = whole(y, "label");
    return (i > j) - (i < j);
}

static void put_class(text *h, const answers_file *a, const json_t *class) {
    char recall[WORD], precision[WORD];
    double right = (double)whole(class, "right");
    text_put(h, "<tr><th scope=\"row\">");
    put_word(h, a, whole(class, "label"));
    text_put(h, "</th><td>%" PRId64 "</td><td class=\"x\">%s</td><td class=\"x\">%s</td></tr>\n", whole(class, "of"),
             share_text(recall, right, (double)whole(class, "of")),
             share_text(precision, right, (double)whole(class, "said")));
}

static void put_worst_classes(text *h, const answers_file *a) {
    const json_t *all = list_of(a, "classes");
    size_t n = 0, most = json_array_size(all);
    const json_t **sorted = malloc(most * sizeof *sorted);
    if (!sorted) {
        h->full = true;
        return;
    }
    for (size_t i = 0; i < most; i++)
        if (whole(json_array_get(all, i), "of") > 0) sorted[n++] = json_array_get(all, i);
    qsort(sorted, n, sizeof *sorted, by_recall);
    text_put(
        h, "<h3>Classes that it knows worst</h3>\n<div class=\"o\"><table class=\"z\"><tr><th scope=\"col\">class</th>"
           "<th scope=\"col\">samples</th><th scope=\"col\">recall</th><th scope=\"col\">precision</th></tr>\n");
    for (size_t i = 0; i < n && i < WORST; i++) put_class(h, a, sorted[i]);
    text_put(h, "</table></div>\n");
    free(sorted);
}

// --- the whole -------------------------------------------------------------------------------------------------------

static void put_right(text *h, const answers_file *a) {
    char step[FIGURE_TEXT], right[FIGURE_TEXT], samples[FIGURE_TEXT], share[WORD];
    double n = (double)whole(a->all, "samples"), well = (double)whole(a->all, "right");
    text_put(h, "<p>After step %s it knew %s of %s samples of the validation data, %s.</p>\n",
             figure_text(step, FIGURE_WHOLE, (double)whole(a->all, "step"), 0),
             figure_text(right, FIGURE_WHOLE, well, 0), figure_text(samples, FIGURE_WHOLE, n, 0),
             share_text(share, well, n));
}

void answers_draw(text *h, const answers_file *a, bool expected) {
    if (!a->all && !expected && !a->wrong[0]) return;
    text_put(h, "<h2>What the model says</h2>\n");
    if (!a->all) {
        text_put(h, "<p class=\"d\">");
        text_html(h, a->wrong[0] ? a->wrong : "answers.json is not in the run's directory");
        text_put(
            h,
            ". The next evaluation of the run ([eval] every) writes it, or that of any checkpoint by <code>lockstep eval "
            "CONFIG.ini --answers RUN_DIR</code>.</p>\n");
        return;
    }
    put_right(h, a);
    if (json_array_size(list_of(a, "classes")) <= TABLE_CLASSES) put_table(h, a);
    else put_pairs(h, a), put_worst_classes(h, a);
    put_samples(h, a, "examples", "Some of the samples",
                "As the model sees them, evenly among all; below each what it is, and what the model says and how sure "
                "it is.");
    put_samples(h, a, "mistakes", "Mistakes", "Those of which the model is surest.");
}
