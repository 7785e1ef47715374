// data/text/pack.c: text to shards. With byte tokens a token is a byte, 0..255. With a tokenizer all files are encoded
// to a temporary file first (spool.h), because only then is it known how many tokens there are; what follows is the
// same.
//
// Of bytes: the stream is the files in the order given; the files of a glob or a directory come in byte order of their
// names. A file that does not end its last line gets a line end, unless it is the last of all: no line of one file runs
// into the next, and a single file is packed unchanged. Of a JSONL file the stream has the texts, an empty line after
// each. `stories:SEED` is text that is made on the way (data/text/stories.h).
//
// Input may be larger than memory. The first pass finds the files and adds up their sizes, which give the split and the
// size of every shard; the second streams the files. A file whose size has changed in between is an error.
//
// With a template a line is a conversation, or a text and what is said of it. All are encoded to a temporary file too,
// in rows (chat_spool.h, labels.h, to_text.h), and what follows counts in whole rows.
//
// No shard gets its name before all are on disk and the old ones are removed. A run that dies leaves *.tmp files, which
// the next run removes.
#include "data/text/pack.h"
#include "data/shard_set.h"
#include "data/text/about.h"
#include "data/text/chat_spool.h"
#include "data/text/document.h"
#include "data/text/labels.h"
#include "data/text/pack_files.h"
#include "data/text/shard.h"
#include "data/text/spool.h"
#include "data/text/stories.h"
#include "data/text/to_text.h"
#include "data/tokenizer/train.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 1 << 18 };

typedef struct pack {
    const pack_options *o;
    pack_report *r;
    pack_files in;
    int64_t tokens[2];  // of the train and val streams
    shard_set set;
    int split, shard;      // being written
    int64_t shard_tokens;  // most of a shard
    int64_t done, left;    // tokens of the split written; tokens the open shard still takes
    shard_writer *writer;  // NULL: none open
    uint8_t *piece;
    bool t_wanted;
    tokenizer *t;  // NULL: bytes
    spool spool;   // of tokens, with a tokenizer or a template
    int64_t unit;  // tokens that stay together: a row's with a template, else 1
    int token_bytes;
    about_writer *about;
} pack;

// --- split and shards ------------------------------------------------------------------------------------------------

static bool spools(const pack *p) { return p->t || p->o->template != CHAT_NO; }

// The first floor(n * (1 - val_fraction)) tokens, or rows, are for training, the rest for validation.
static err_t plan(pack *p) {
    int64_t total = p->spool.tokens, whole = p->o->shard_tokens / p->unit;
    for (int64_t i = 0; i < p->in.count && !spools(p); i++) total += p->in.at[i].size + p->in.at[i].line_open;
    p->shard_tokens = (whole > 0 ? whole : 1) * p->unit;
    p->tokens[0] = (int64_t)((double)(total / p->unit) * (1.0 - p->o->val_fraction)) * p->unit;
    if (p->o->val_fraction == 0) p->tokens[0] = total;  // also beyond 2^53
    p->tokens[1] = total - p->tokens[0];
    for (int s = 0; s < 2; s++) {
        int64_t shards = p->tokens[s] ? (p->tokens[s] - 1) / p->shard_tokens + 1 : 0;
        if (shards > SHARDS_MAX)
            return err_set(ERR_CONFIG,
                           "[pack] shard_tokens = %" PRId64 " makes %" PRId64
                           " shards, expected at most %d: raise it to %" PRId64,
                           p->o->shard_tokens, shards, SHARDS_MAX, p->tokens[s] / SHARDS_MAX + 1);
        p->set.shards[s] = (int)shards;
    }
    return ERR_OK;
}

static bool has_labels(const pack *p) { return p->o->template == CHAT_LABELS || p->o->template == CHAT_NUMBERS; }

static err_t begin_shard(pack *p) {
    char path[IO_PATH];
    while (p->done == p->tokens[p->split]) p->split++, p->shard = 0, p->done = 0;
    int64_t rest = p->tokens[p->split] - p->done;
    p->left = rest < p->shard_tokens ? rest : p->shard_tokens;
    TRY(shard_set_path(&p->set, path, p->split, p->shard, ".tmp"));
    TRY(shard_write_open(&p->writer, path, p->token_bytes, p->left, p->o->compress));
    if (p->unit > 1) shard_write_rows(p->writer, p->unit, has_labels(p));
    if (p->o->documents) shard_write_documents(p->writer);
    if (p->o->template == CHAT_NUMBERS) shard_write_numbers(p->writer);
    return ERR_OK;
}

static err_t end_shard(pack *p) {
    char path[IO_PATH];
    TRY(shard_write_finish(p->writer));
    TRY(shard_set_path(&p->set, path, p->split, p->shard, ""));
    about_write_shard(p->about, path, shard_write_crc(p->writer));
    shard_write_close(p->writer);
    p->writer = NULL;
    p->shard++;
    return ERR_OK;
}

// The next n tokens of the stream; never more in all than plan() has counted.
static err_t put(pack *p, const uint8_t *bytes, int64_t n) {
    while (n > 0) {
        if (!p->writer) TRY(begin_shard(p));
        int64_t some = n < p->left ? n : p->left;
        TRY(shard_write(p->writer, bytes, some));
        bytes += some * p->token_bytes;
        n -= some;
        p->left -= some;
        p->done += some;
        if (p->left == 0) TRY(end_shard(p));
    }
    return ERR_OK;
}

static const char *text_key(const pack *p) { return p->o->text_key && *p->o->text_key ? p->o->text_key : "text"; }

// --- second pass -----------------------------------------------------------------------------------------------------

static err_t changed(const pack_file *f, int64_t size) {
    return err_set(ERR_DATA,
                   "%s: had %" PRId64 " bytes at first and has %" PRId64 " now: it was written to while it was packed; "
                   "run pack again",
                   f->path, f->size, size);
}

static err_t stream_plain(pack *p, const pack_file *f) {
    struct stat st;
    err_t rc = ERR_OK;
    int fd;
    TRY(io_open(f->path, O_RDONLY, &fd));
    for (int64_t at = 0; at < f->size;) {
        int64_t n = f->size - at < PIECE ? f->size - at : PIECE;
        if (fstat(fd, &st) != 0) TRY_GOTO(err_set(ERR_IO, "%s: %s", f->path, strerror(errno)), out);
        if (st.st_size != f->size) TRY_GOTO(changed(f, st.st_size), out);
        TRY_GOTO(io_read_at(fd, f->path, at, p->piece, (size_t)n), out);
        TRY_GOTO(put(p, p->piece, n), out);
        at += n;
    }
    if (fstat(fd, &st) == 0 && st.st_size != f->size) rc = changed(f, st.st_size);
    else if (f->line_open) rc = put(p, (const uint8_t *)"\n", 1);
out:
    close(fd);
    return rc;
}

// The next text of a JSONL file, and an empty line; of one that is empty, nothing.
static err_t read_text(document_reader *d, bytes *text, bool *more) {
    bool ends;
    text->n = 0;
    TRY(document_read(d, text, PIECE, &ends, more));
    if (text->n == 0) return ERR_OK;
    ROOM_FOR(text, text->n + 2);
    if (text->at[text->n - 1] != '\n') text->at[text->n++] = '\n';
    text->at[text->n++] = '\n';
    return ERR_OK;
}

// *size = the bytes of its texts; counts: nothing more.
static err_t stream_jsonl(pack *p, const pack_file *f, bool counts, int64_t *size) {
    document_reader *d;
    bytes text = {0};
    bool more = true;
    *size = 0;
    TRY(document_open(&d, f->path, text_key(p)));
    err_t rc = read_text(d, &text, &more);
    while (rc == ERR_OK && more) {
        *size += text.n;
        if (!counts && *size > f->size) break;
        if (!counts) rc = put(p, text.at, text.n);
        if (rc == ERR_OK) rc = read_text(d, &text, &more);
    }
    document_close(d);
    free(text.at);
    return rc;
}

static err_t stream_stories(pack *p, const pack_file *f) {
    stories *s;
    bool tells;
    uint64_t seed;
    int64_t size;
    TRY(stories_parse(f->path, &tells, &seed, &size));
    err_t rc = stories_open(&s, seed);
    for (int64_t at = 0; rc == ERR_OK && at < size; at += PIECE) {
        int64_t n = size - at < PIECE ? size - at : PIECE;
        rc = stories_read(s, p->piece, n);
        if (rc == ERR_OK) rc = put(p, p->piece, n);
    }
    if (rc == ERR_OK && f->line_open) rc = put(p, (const uint8_t *)"\n", 1);
    stories_close(s);
    return rc;
}

static err_t stream_file(pack *p, const pack_file *f) {
    int64_t size;
    if (f->kind == PACK_STORIES) return stream_stories(p, f);
    if (f->kind == PACK_PLAIN) return stream_plain(p, f);
    TRY(stream_jsonl(p, f, false, &size));
    return size == f->size ? ERR_OK : changed(f, size);
}

// Counts the bytes of text in the JSONL files. Only packing as bytes needs them: they decide where validation begins.
static err_t count_jsonl(pack *p) {
    for (int64_t i = 0; i < p->in.count; i++)
        if (p->in.at[i].kind == PACK_JSONL) TRY(stream_jsonl(p, &p->in.at[i], true, &p->in.at[i].size));
    return ERR_OK;
}

// --- with a tokenizer ------------------------------------------------------------------------------------------------

// A plain file line by line, as `tokenizers` trains on files; a document of a JSONL file whole. What has no line end
// yet stays in *text.
static err_t feed_text(bpe_trainer *b, bytes *text, bool lines, bool ends) {
    int64_t from = 0;
    for (uint8_t *end; lines && text->n > from && (end = memchr(text->at + from, '\n', (size_t)(text->n - from)));
         from = end + 1 - text->at)
        TRY(bpe_trainer_feed(b, text->at + from, end + 1 - (text->at + from)));
    if (ends && text->n > from) {
        TRY(bpe_trainer_feed(b, text->at + from, text->n - from));
        from = text->n;
    }
    if (from) memmove(text->at, text->at + from, (size_t)(text->n - from));
    text->n -= from;
    return ERR_OK;
}

static err_t feed_file(bpe_trainer *b, document_reader *d, const char *path, bytes *text) {
    bool ends, more;
    do {
        if (text->n > BPE_LINE)
            return err_set(ERR_DATA, "%s: a line is longer than %d MiB: divide it, to make a tokenizer from it", path,
                           BPE_LINE >> 20);
        TRY(document_read(d, text, PIECE, &ends, &more));
        TRY(feed_text(b, text, !document_is_jsonl(d), ends));
    } while (more);
    return ERR_OK;
}

static err_t feed_files(pack *p, bpe_trainer *b) {
    bytes text = {0};
    err_t rc = ERR_OK;
    for (int64_t i = 0; i < p->in.count && rc == ERR_OK; i++) {
        document_reader *d;
        rc = document_open(&d, p->in.at[i].path, text_key(p));
        if (rc != ERR_OK) break;
        rc = feed_file(b, d, p->in.at[i].path, &text);
        document_close(d);
    }
    free(text.at);
    return rc;
}

static err_t keep_tokenizer(pack *p, const char *json) {
    char path[IO_PATH];
    TRY(io_path(path, "%s-tokenizer.json", p->o->output));
    TRY(io_write_file(path, json, strlen(json), NULL));
    return tokenizer_parse(&p->t, path, json, (int64_t)strlen(json));
}

// how: SIZE or SIZE:KIND.
static err_t train_tokenizer(pack *p, const char *how) {
    bpe_trainer *b;
    char *end, *json = NULL;
    long long size = strtoll(how, &end, 10);
    if (how[0] < '0' || how[0] > '9' || (*end && *end != ':'))
        return err_set(
            ERR_CONFIG,
            "[pack] tokenizer = train:%s: expected train:SIZE or train:SIZE:KIND, such as train:32000:llama3", how);
    if (bpe_trainer_open(&b, *end ? end + 1 : "gpt2", size) != ERR_OK)
        return err_prefix("[pack] tokenizer = train:%s", how), ERR_CONFIG;
    err_t rc = feed_files(p, b);
    if (rc == ERR_OK) rc = bpe_trainer_finish(b, &json);
    if (rc == ERR_OK) rc = keep_tokenizer(p, json);
    free(json);
    bpe_trainer_close(b);
    return rc;
}

static void tell(void *ctx, int64_t done) {
    pack *p = ctx;
    p->o->progress(p->o->ctx, done, p->r->bytes_in);
}

static err_t encode_files(pack *p) {
    char path[IO_PATH];
    bool train = strncmp(p->o->tokenizer, "train:", 6) == 0;
    const char **names = calloc((size_t)p->in.count, sizeof *names);
    if (!names) return err_set(ERR_INTERNAL, "no memory for a list of files");
    for (int64_t i = 0; i < p->in.count; i++) names[i] = p->in.at[i].path;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    err_t rc = train ? train_tokenizer(p, p->o->tokenizer + 6) : tokenizer_open(&p->t, p->o->tokenizer);
    if (rc != ERR_OK && !train) err_prefix("[pack] tokenizer");
    if (rc == ERR_OK) rc = io_path(path, "%s-tokens.tmp", p->o->output);
    spool_options o = {.t = p->t,
                       .key = text_key(p),
                       .threads = p->o->threads > 0 ? p->o->threads
                                  : cores > 0       ? (int)cores
                                                    : 1,
                       .progress = p->o->progress ? tell : NULL,
                       .ctx = p};
    if (rc == ERR_OK) rc = spool_fill(&p->spool, path, names, p->in.count, &o);
    free(names);
    TRY(rc);
    p->token_bytes = p->spool.token_bytes;
    p->r->documents = p->spool.documents;
    p->r->text_bytes = p->spool.bytes;
    if (p->spool.tokens > 0) return ERR_OK;
    return err_set(ERR_DATA, "[pack] input = %s: there are no tokens in it", p->o->input);
}

static err_t fill_labelled(pack *p, const char *path, const char *const *names) {
    char file[IO_PATH];
    labels_spooled done;
    labels_options o = {.words = p->t,
                        .context = p->o->context,
                        .numbers = p->o->template == CHAT_NUMBERS,
                        .names = file,
                        .progress = p->o->progress ? tell : NULL,
                        .ctx = p};
    if (!p->t)
        return err_set(ERR_CONFIG,
                       "[pack] template = %s wants a tokenizer with tokens [CLS] and [SEP], such as BERT's: name "
                       "its file in [pack] tokenizer",
                       o.numbers ? "numbers" : "labels");
    TRY(io_path(file, "%s-labels.json", p->o->output));
    TRY(labels_spool_fill(&p->spool, path, names, p->in.count, &o, &done));
    p->r->cut = done.cut, p->r->classes = done.classes, p->r->numbers = o.numbers;
    if (p->spool.tokens > 0) return ERR_OK;
    return err_set(ERR_DATA, "[pack] input = %s: there are no samples in it", p->o->input);
}

static err_t fill_rows(pack *p, const char *path, const char *const *names) {
    chat_spooled done;
    chat_spool_options o = {.vocab = p->t ? tokenizer_about(p->t).vocab : 256,
                            .row_tokens = p->unit,
                            .documents = p->o->documents,
                            .progress = p->o->progress ? tell : NULL,
                            .ctx = p};
    if (chat_open(&o.chat, p->o->template, p->t_wanted ? p->o->tokenizer : "bytes", p->t) != ERR_OK)
        return err_prefix("[pack] template");
    err_t rc = chat_spool_fill(&p->spool, path, names, p->in.count, &o, &done);
    chat_close(o.chat);
    TRY(rc);
    p->r->cut = done.cut, p->r->left_out = done.left_out, p->r->answers = done.answers;
    p->r->rows = p->spool.tokens / p->unit, p->r->filled = done.filled;
    if (p->spool.tokens > 0) return ERR_OK;
    return err_set(ERR_DATA,
                   "[pack] input = %s: no sample has an answer within its first %" PRId64 " tokens (%" PRId64
                   " were left out): raise [model] context",
                   p->o->input, p->unit, done.left_out);
}

static err_t fill_texts(pack *p, const char *path, const char *const *names) {
    to_text_spooled done;
    to_text_options o = {.words = p->t,
                         .reads = p->o->context,
                         .says = p->o->says,
                         .end = p->o->end,
                         .progress = p->o->progress ? tell : NULL,
                         .ctx = p};
    TRY(to_text_spool_fill(&p->spool, path, names, p->in.count, &o, &done));
    p->r->cut = done.cut, p->r->answers = done.answers;
    if (p->spool.tokens > 0) return ERR_OK;
    return err_set(ERR_DATA, "[pack] input = %s: there are no samples in it", p->o->input);
}

// Conversations, texts with labels, or texts and what is said of them, become rows.
static err_t encode_chats(pack *p) {
    char path[IO_PATH];
    bool labels = has_labels(p), texts = p->o->template == CHAT_TEXT;
    p->unit = p->o->context + (labels ? LABEL_ROW : texts ? p->o->says : 1);
    if (p->t_wanted && strncmp(p->o->tokenizer, "train:", 6) == 0)
        return err_set(ERR_CONFIG,
                       "[pack] tokenizer = %s: a tokenizer is made from texts, and with a template the input is "
                       "conversations: make it from texts first, and name its file here",
                       p->o->tokenizer);
    if (p->t_wanted && tokenizer_open(&p->t, p->o->tokenizer) != ERR_OK) return err_prefix("[pack] tokenizer");
    const char **names = calloc((size_t)p->in.count, sizeof *names);
    if (!names) return err_set(ERR_INTERNAL, "no memory for a list of files");
    for (int64_t i = 0; i < p->in.count; i++) names[i] = p->in.at[i].path;
    err_t rc = io_path(path, "%s-tokens.tmp", p->o->output);
    if (rc == ERR_OK)
        rc = labels ? fill_labelled(p, path, names) : texts ? fill_texts(p, path, names) : fill_rows(p, path, names);
    free(names);
    p->token_bytes = p->spool.token_bytes;
    p->r->documents = p->spool.documents;
    p->r->text_bytes = p->spool.bytes;
    return rc;
}

static err_t stream_spool(pack *p) {
    int64_t fit = PIECE / p->token_bytes;
    TRY(spool_rewind(&p->spool));
    for (int64_t at = 0; at < p->spool.tokens; at += fit) {
        int64_t n = p->spool.tokens - at < fit ? p->spool.tokens - at : fit;
        TRY(spool_read(&p->spool, p->piece, n));
        TRY(put(p, p->piece, n));
    }
    return ERR_OK;
}

// --- names -----------------------------------------------------------------------------------------------------------

// Removes what is left of a pack that failed.
static void remove_temps(pack *p) {
    char path[IO_PATH];
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < p->set.shards[s] && (s < p->split || (s == p->split && i <= p->shard)); i++)
            if (shard_set_path(&p->set, path, s, i, ".tmp") == ERR_OK) unlink(path);
}

// --- what is known of the shards -------------------------------------------------------------------------------------

// Only of stories is it known how low a loss can be: per byte, and with a tokenizer as much for all tokens as for all
// bytes.
static err_t find_best(pack *p, double *best) {
    stories *s;
    *best = 0;
    for (int64_t i = 0; i < p->in.count; i++)
        if (p->in.at[i].kind != PACK_STORIES) return ERR_OK;
    TRY(stories_open(&s, 0));
    *best = stories_best(s);
    if (p->t) *best *= (double)p->r->bytes_in / (double)p->spool.tokens;
    stories_close(s);
    return ERR_OK;
}

static err_t write_about(pack *p) {
    about a = {.tokenizer = "bytes"};
    if (p->t && strncmp(p->o->tokenizer, "train:", 6) == 0)
        TRY(io_path(a.tokenizer, "%s-tokenizer.json", p->o->output));
    else if (p->t) TRY(io_path(a.tokenizer, "%s", p->o->tokenizer));
    if (p->t) tokenizer_hash(p->t, a.vocabulary);
    TRY(find_best(p, &a.best_loss));
    p->r->best_loss = a.best_loss;
    return about_write(p->about, p->o->output, &a);
}

// --- all of it -------------------------------------------------------------------------------------------------------

static err_t check(const pack_options *o) {
    bool chats = o->template >= CHAT_AUTO && o->template <= CHAT_PLAIN;
    if (!o->input || !o->output || !*o->output) return err_set(ERR_CONFIG, "[pack] input and output: expected both");
    if (o->shard_tokens < 1)
        return err_set(ERR_CONFIG, "[pack] shard_tokens = %" PRId64 ", expected at least 1", o->shard_tokens);
    if (!(o->val_fraction >= 0 && o->val_fraction < 1))
        return err_set(ERR_CONFIG, "[pack] val_fraction = %g, expected 0 to less than 1", o->val_fraction);
    if (o->documents && !chats)
        return err_set(
            ERR_CONFIG,
            "[pack] documents = yes puts several conversations into a row: expected template = auto, chatml, "
            "llama3 or plain, or documents = no");
    if (o->template != CHAT_NO && (o->context < 1 || o->context >= SHARD_ROW_MAX))
        return err_set(ERR_CONFIG, "[model] context = %" PRId64 ", expected 1 to %d to pack conversations for it",
                       o->context, SHARD_ROW_MAX - 1);
    if (o->template == CHAT_TEXT && (o->context < 2 || o->says < 2 || o->context + o->says > SHARD_ROW_MAX))
        return err_set(ERR_CONFIG,
                       "[model] context = %" PRId64 " and decoder_context = %" PRId64
                       ", expected 2 or more each, and at most %d together",
                       o->context, o->says, SHARD_ROW_MAX);
    return ERR_OK;
}

static err_t find_files(pack *p) {
    err_t rc = pack_files_find(&p->in, p->o->input, p->t_wanted);
    p->r->files_skipped = p->in.skipped, p->r->files_in = p->in.count;
    for (int64_t i = 0; i < p->in.count; i++) p->r->bytes_in += p->in.at[i].size;
    return rc;
}

static err_t run(pack *p) {
    TRY(check(p->o));
    if (!(p->piece = malloc(PIECE))) return err_set(ERR_INTERNAL, "no memory for a buffer of %d bytes", PIECE);
    TRY(about_write_open(&p->about));
    TRY(find_files(p));
    TRY(shard_set_begin(&p->set));
    TRY(p->o->template != CHAT_NO ? encode_chats(p) : p->t_wanted ? encode_files(p) : count_jsonl(p));
    TRY(plan(p));
    if (spools(p)) TRY(stream_spool(p));
    for (int64_t i = 0; i < p->in.count && !spools(p); i++) TRY(stream_file(p, &p->in.at[i]));
    // all new files are on disk: a crash from here on leaves too few files, never a mixture
    TRY(shard_set_clear(&p->set, true));
    TRY(write_about(p));
    TRY(shard_set_rename(&p->set, &p->r->shards_out));
    p->r->train_tokens = p->tokens[0];
    p->r->val_tokens = p->tokens[1];
    return shard_set_clear(&p->set, false);
}

err_t pack_run(const pack_options *o, pack_report *r) {
    pack p = {.o = o,
              .r = r,
              .set.output = o->output,
              .token_bytes = 1,
              .unit = 1,
              .t_wanted = o->tokenizer && strcmp(o->tokenizer, "bytes") != 0};
    *r = (pack_report){0};
    err_t rc = run(&p);
    shard_write_close(p.writer);
    about_write_close(p.about);
    if (rc != ERR_OK) remove_temps(&p);
    spool_close(&p.spool);
    tokenizer_close(p.t);
    pack_files_free(&p.in);
    free(p.piece);
    return rc;
}
