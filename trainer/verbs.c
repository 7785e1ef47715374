// trainer/verbs.c: the verbs other than training: each opens what it needs, prints its result, and closes.
#include "trainer/verbs.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/version.h"
#include "data/click/pack.h"
#include "data/image/pack.h"
#include "data/text/pack.h"
#include "trainer/session/evaluate.h"
#include "trainer/joined.h"
#include "trainer/log/report.h"
#include "trainer/session/machine.h"
#include "trainer/node/cluster.h"
#include "trainer/session/restore.h"
#include "trainer/speed.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// --- look at weights -------------------------------------------------------------------------------------------------

static bool has(const char *dir, const char *name, struct stat *st) {
    char path[IO_PATH];
    return io_path(path, "%s/%s", dir, name) == ERR_OK && stat(path, st) == 0;
}

// `runs/x/best` of a run that has none yet: what it has instead.
static err_t no_such_directory(const char *ckpt, const char *why) {
    char run[IO_PATH], newest[IO_PATH];
    bool found = false;
    TRY(io_path(run, "%s", ckpt));
    char *slash = strrchr(run, '/');
    if (slash && strcmp(slash, "/best") == 0) {
        *slash = 0;
        TRY(ckpt_newest(run, newest, &found));
    }
    if (!found)
        return err_set(ERR_DATA, "%s: %s; expected a checkpoint, such as runs/default/best, or a run's directory", ckpt,
                       why);
    return err_set(ERR_DATA, "%s: %s: no checkpoint of this run is marked as its best; its newest is %s", ckpt, why,
                   newest);
}

err_t checkpoint_of(const char *from, char ckpt[IO_PATH], const char **which) {
    struct stat st;
    bool best, found;
    *which = "";
    TRY(io_path(ckpt, "%s", from));
    if (stat(from, &st) != 0) return no_such_directory(from, strerror(errno));
    if (has(from, "manifest.json", &st) || !has(from, "ckpt", &st)) return ERR_OK;
    TRY(run_checkpoint(from, ckpt, &best, &found));
    *which = best ? "  (the run's best)" : "  (the run's newest; it has no best)";
    return found ? ERR_OK : err_set(ERR_DATA, "%s/ckpt: no checkpoint yet", from);
}

err_t verb_hash(const char *from, FILE *out) {
    char ckpt[IO_PATH], hash[17], state_hash[17];
    const char *which;
    TRY(checkpoint_of(from, ckpt, &which));
    TRY(ckpt_hash_dir(ckpt, hash, state_hash));
    fprintf(out, "hash %s  state_hash %s  %s%s\n", hash, state_hash, ckpt, which);
    return ERR_OK;
}

// --- check, pack -----------------------------------------------------------------------------------------------------

static void print_line(void *ctx, const char *text) { fprintf(ctx, "%s\n", text); }

static void print_source(const char *split, const source *from, FILE *out) {
    source_info about = source_about(from);
    fprintf(out, "%-7s %" PRId64 " %s in %d file%s, hash %s\n", split, about.units, about.unit, about.files,
            about.files == 1 ? "" : "s", about.hash);
}

static void print_parts(const session *x, FILE *out) {
    char text[SESSION_PART];
    int parts;
    source_parts(x->train, &parts);
    for (int k = 0; k < parts; k++) {
        session_part(x, k, text);
        fprintf(out, "part    %s\n", text);
    }
}

// Not of a run that has a checkpoint: its bits are decided.
static void print_faster(const session *x, FILE *out) {
    char newest[IO_PATH], faster[SPEED_FASTER];
    bool found = false;
    if (ckpt_newest(x->dir, newest, &found) == ERR_OK && !found && speed_faster(x, faster))
        fprintf(out, "faster  %s\n", faster);
}

static err_t check_session(session *x, FILE *out) {
    const config *c = x->cfg;
    double epoch = (double)source_about(x->train).samples / (double)c->batch.global;
    fprintf(out, "device  %s (%s)\n", device_about(x->dev)->name, device_about(x->dev)->choice);
    joined_print(c, out);
    print_faster(x, out);
    fprintf(out, "model   %s, %.2f M parameters\n", x->net->type->name, (double)model_elements(x->net) / 1e6);
    fprintf(out, "memory  %.1f MB of weights, optimizer state and gradients, %.1f MB of activations\n",
            (double)state_bytes(&x->state) / 1e6, (double)x->runner.memory.bytes / 1e6);
    fprintf(out, "batch   %" PRId64 " lanes; %" PRId64 " steps are %.2f epochs\n", c->resolved.lanes, c->run.steps,
            (double)c->run.steps / epoch);
    print_source("train", x->train, out);
    print_parts(x, out);
    err_t train = source_verify(x->train, print_line, out), val = ERR_OK;
    if (x->val) {
        print_source("val", x->val, out);
        if (!c->data.holdout) val = source_verify(x->val, print_line, out);  // else it is in the files of train
    }
    for (int i = 0; i < x->sets; i++) {
        print_source(x->set[i].name, x->set[i].from, out);
        err_t rc = source_verify(x->set[i].from, print_line, out);
        if (val == ERR_OK) val = rc;
    }
    if (train == ERR_OK && val == ERR_OK) fprintf(out, "every checksum is right\n");
    return train != ERR_OK ? train : val;
}

err_t verb_check(const config *c, FILE *out) {
    session x;
    cluster who;
    TRY(cluster_planned(&who, c));  // opened is what one rank alone would be
    err_t rc = session_open(&x, c, SESSION_TRAIN, NULL);
    if (rc == ERR_OK) rc = check_session(&x, out);
    session_close(&x);
    return rc;
}

// Draws at most ten times a second.
typedef struct pack_bar {
    double began, drawn;
    bool draws;  // on a terminal
} pack_bar;

static void draw_pack(void *ctx, int64_t done, int64_t bytes) {
    enum { WIDTH = 25 };
    pack_bar *b = ctx;
    double now = clock_now(), passed = now - b->began, part = bytes > 0 ? (double)done / (double)bytes : 1;
    if (now - b->drawn < 0.1 && done < bytes) return;
    b->drawn = now;
    char bar[WIDTH + 1];
    for (int i = 0; i < WIDTH; i++) bar[i] = i < (int)(part * WIDTH) ? '#' : '-';
    bar[WIDTH] = 0;
    fprintf(stderr, "\rpack  %.1f of %.1f MB  %.1f MB/s  eta %.0f s  [%s] ", (double)done / 1e6, (double)bytes / 1e6,
            (double)done / 1e6 / (passed + 1e-9), part > 0 ? passed * (1 - part) / part : 0.0, bar);
}

static void draw_images(void *ctx, int64_t done, int64_t images) {
    pack_bar *b = ctx;
    double now = clock_now(), passed = now - b->began, part = (double)done / (double)images;
    if (!b->draws || (now - b->drawn < 0.1 && done < images)) return;
    b->drawn = now;
    fprintf(stderr, "\rpack  %" PRId64 " of %" PRId64 " images  %.0f/s  eta %.0f s%s", done, images,
            (double)done / (passed + 1e-9), passed * (1 - part) / part, done < images ? " " : "  \n");
}

static void name_bad(void *ctx, const char *text) {
    fprintf(stderr, "%sleft out: %s\n", ((const pack_bar *)ctx)->draws ? "\r" : "", text);
}

static err_t pack_images(const config *c, FILE *out) {
    image_pack_report r;
    pack_bar bar = {.began = clock_now(), .draws = isatty(STDERR_FILENO)};
    TRY(image_pack_run(&(image_pack_options){.kind = c->pack.images,
                                             .input = c->pack.input,
                                             .val_input = c->pack.val_input,
                                             .output = c->pack.output,
                                             .shard_images = c->pack.shard_images,
                                             .val_fraction = c->pack.val_fraction,
                                             .size = c->pack.size,
                                             .bad_most = c->pack.bad_most,
                                             .threads = (int)c->device.threads,
                                             .progress = draw_images,
                                             .bad = name_bad,
                                             .ctx = &bar},
                       &r));
    fprintf(out,
            "packed  %" PRId64 " images of %" PRId64 " classes (%" PRId64 " left out, %" PRId64
            " other files skipped) into %d shard%s: train %" PRId64 ", val %" PRId64 "\n",
            r.train + r.val, r.classes, r.bad, r.skipped, r.shards_out, r.shards_out == 1 ? "" : "s", r.train, r.val);
    fprintf(out, "        training images have mean");
    for (int k = 0; k < r.channels; k++) fprintf(out, " %.2f", (double)r.mean[k]);
    fprintf(out, ", deviation");
    for (int k = 0; k < r.channels; k++) fprintf(out, " %.2f", 1 / (double)r.inv[k]);
    fprintf(out, "\n");
    return ERR_OK;
}

static err_t pack_clicks(const config *c, FILE *out) {
    static const char *const split[] = {"train", "val"};
    click_pack_report r;
    if (c->pack.images != IMAGES_NO)
        return err_set(ERR_CONFIG, "[pack] images and clicks: the input is one or the other; set one of them to no");
    TRY(click_pack_run(&(click_pack_options){.kind = c->pack.clicks,
                                             .input = c->pack.input,
                                             .val_input = c->pack.val_input,
                                             .output = c->pack.output,
                                             .shard_records = c->pack.shard_records,
                                             .val_fraction = c->pack.val_fraction,
                                             .threshold = c->pack.threshold},
                       &r));
    fprintf(out, "packed  %" PRId64 " records of %d numbers and %d ids into %d shard%s\n", r.records[0] + r.records[1],
            r.dense, r.tables, r.shards_out, r.shards_out == 1 ? "" : "s");
    for (int s = 0; s < CLICK_SPLITS; s++) {
        if (!r.records[s]) continue;
        double mean = r.labels[s] / (double)r.records[s];
        fprintf(out, "%-7s %" PRId64 " records, ", split[s], r.records[s]);
        if (r.rated) fprintf(out, "of %.4f in the mean", mean);
        else fprintf(out, "%.4f of them clicks", mean);
        if (r.best[s] > 0) fprintf(out, "; loss of the planted model %.6f, expected %.6f", r.best[s], r.entropy[s]);
        if (r.best[s] > 0 && r.rated) fprintf(out, ", RMSE %.6f", sqrt(r.best[s]));
        fprintf(out, "\n");
    }
    return ERR_OK;
}

// How many tokens the model reads at once, and says, where samples are made for it.
static err_t sizes_of(const config *c, pack_options *o) {
    model *net;
    bool labels = o->template == CHAT_LABELS || o->template == CHAT_NUMBERS, texts = o->template == CHAT_TEXT;
    if (o->template == CHAT_NO) return ERR_OK;
    TRY(model_open(&net, model_types[c->model.type], &c->model.of));
    bool says = net->says;
    o->context = texts ? net->reads : net->vocab || labels ? net->context : 0;
    o->says = net->context - net->reads, o->end = (int32_t)net->end;
    model_close(net);
    if (texts != says)
        return err_set(
            ERR_CONFIG,
            says ? "a model of [model] task = text reads a text and says another one: set [pack] template = "
                   "text"
                 : "[pack] template = text is for a model that reads a text and says another one: set [model] "
                   "type = t5, task = text, context and decoder_context as the run will have them");
    if (o->context) return ERR_OK;
    return err_set(ERR_CONFIG,
                   "[pack] template makes samples as long as [model] context, and a model of type %s reads no tokens: "
                   "set [model] type and context as the run will have them",
                   model_types[c->model.type]->name);
}

static void print_texts(const pack_report *r, const pack_options *o, FILE *out) {
    fprintf(out,
            "        %" PRId64 " samples of texts of at most %" PRId64 " and %" PRId64 " tokens, with %" PRId64
            " tokens of answers; %" PRId64 " cut to fit\n",
            r->documents, o->context, o->says, r->answers, r->cut);
}

static void print_answers(const pack_report *r, int64_t context, FILE *out) {
    fprintf(out,
            "        %" PRId64 " samples for a context of %" PRId64 " tokens, with %" PRId64
            " tokens of answers; %" PRId64 " cut at the end, %" PRId64 " left out, as no answer was left of them\n",
            r->documents, context, r->answers, r->cut, r->left_out);
    if (r->rows < r->documents)
        fprintf(out, "        in %" PRId64 " rows, which are full to %.1f %%\n", r->rows,
                100 * (double)r->filled / ((double)r->rows * (double)(context + 1)));
}

err_t verb_pack(const config *c, FILE *out) {
    if (c->pack.clicks != CLICKS_NO) return pack_clicks(c, out);
    if (c->pack.images != IMAGES_NO) return pack_images(c, out);
    if (!c->pack.input[0] || !c->pack.output[0]) return err_set(ERR_CONFIG, "[pack] input and output must both be set");
    pack_report r;
    pack_bar bar = {.began = clock_now()};
    bool draws = isatty(STDERR_FILENO);
    pack_options o = {.input = c->pack.input,
                      .output = c->pack.output,
                      .shard_tokens = c->pack.shard_tokens,
                      .val_fraction = c->pack.val_fraction,
                      .compress = c->pack.compress,
                      .tokenizer = c->pack.tokenizer,
                      .text_key = c->pack.text_key,
                      .template = c->pack.template,
                      .documents = c->pack.documents,
                      .threads = (int)c->device.threads,
                      .progress = draws ? draw_pack : NULL,
                      .ctx = &bar};
    TRY(sizes_of(c, &o));
    TRY(pack_run(&o, &r));
    if (draws && r.documents) fprintf(stderr, "\n");
    fprintf(out,
            "packed  %" PRId64 " file%s, %" PRId64 " bytes (%" PRId64
            " skipped: empty or binary) into %d shard%s: train %" PRId64 " tokens, val %" PRId64 "\n",
            r.files_in, r.files_in == 1 ? "" : "s", r.bytes_in, r.files_skipped, r.shards_out,
            r.shards_out == 1 ? "" : "s", r.train_tokens, r.val_tokens);
    double s = clock_now() - bar.began;
    if (r.classes)
        fprintf(out,
                "        %" PRId64 " samples of %" PRId64 " classes for a context of %" PRId64 " tokens; %" PRId64
                " cut to fit\n",
                r.documents, r.classes, o.context, r.cut);
    else if (r.numbers)
        fprintf(out,
                "        %" PRId64 " samples with numbers for a context of %" PRId64 " tokens; %" PRId64
                " cut to fit\n",
                r.documents, o.context, r.cut);
    else if (o.template == CHAT_TEXT) print_texts(&r, &o, out);
    else if (o.context) print_answers(&r, o.context, out);
    else if (r.documents)
        fprintf(out,
                "        %" PRId64 " documents, %" PRId64 " bytes of text, %.2f bytes a token; %.1f s, %.1f MB/s\n",
                r.documents, r.text_bytes, (double)r.text_bytes / (double)(r.train_tokens + r.val_tokens), s,
                (double)r.text_bytes / 1e6 / s);
    if (r.best_loss > 0) fprintf(out, "        the best possible loss on it is %.4f\n", r.best_loss);
    return ERR_OK;
}
