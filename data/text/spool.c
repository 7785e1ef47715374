// data/text/spool.c: see data/text/spool.h.
//
//   files -> documents -> batch of jobs: job 0 | job 1 | ...     each some 256 KB of text, cut where both sides have
//   the tokens of the whole
//                              |        |                        threads encode the jobs of a batch
//                              v        v
//                            ids      ids  -> written in order   then the next batch
#include "data/text/spool.h"

#include "base/thread.h"
#include "data/text/document.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { JOB = 1 << 18, JOBS_OF_A_THREAD = 4, THREADS_MOST = 256 };

// Text up to `end`, after the segment before; a document ends with it.
typedef struct segment {
    int64_t end;
    bool closes;
} segment;

typedef struct job {
    bytes text;
    struct {
        segment *at;
        int64_t n, room;
    } segments;
    id_list ids;
    err_record why;
    err_t rc;
} job;

typedef struct filling {
    spool *s;
    const spool_options *o;
    const char *const *files;
    int64_t count, next;  // files that were opened
    document_reader *open;
    int64_t before;  // stored bytes of files that are done
    bytes rest;      // of a document: text after the last cut
    encoder **encoder;
    job *job;
    int jobs, filled;
    atomic_int taken;
} filling;

// --- a batch of text -------------------------------------------------------------------------------------------------

static err_t segment_add(job *j, int64_t end, bool closes) {
    ROOM_FOR(&j->segments, j->segments.n + 1);
    j->segments.at[j->segments.n++] = (segment){end, closes};
    return ERR_OK;
}

static err_t append(bytes *to, const uint8_t *text, int64_t n) {
    ROOM_FOR(to, to->n + n);
    if (n) memcpy(to->at + to->n, text, (size_t)n);
    to->n += n;
    return ERR_OK;
}

// More text of the open document, or of the next. *more = false: there is none.
static err_t read_document(filling *f, bytes *to, bool *ends, bool *more) {
    for (*more = false; !*more;) {
        if (!f->open && f->next == f->count) return ERR_OK;
        if (!f->open) TRY(document_open(&f->open, f->files[f->next++], f->o->key));
        TRY(document_read(f->open, to, JOB, ends, more));
        if (*more) return ERR_OK;
        f->before += document_at(f->open);
        document_close(f->open);
        f->open = NULL;
    }
    return ERR_OK;
}

// Cuts the document's text from `begin` on: what comes after the cut waits for the next job. A text without a place to
// cut grows.
static err_t cut_open(filling *f, job *j, int64_t begin, bool *cut) {
    int64_t n = tokenizer_cut(f->o->t, j->text.at + begin, j->text.n - begin, ENCODE_TEXT);
    *cut = n > 0;
    if (!*cut && j->text.n - begin > TOKENIZER_UNCUT)
        return err_set(ERR_DATA, "%s: %d MiB without a place where tokens certainly end", f->files[f->next - 1],
                       TOKENIZER_UNCUT >> 20);
    if (!*cut) return ERR_OK;
    f->rest.n = 0;
    TRY(append(&f->rest, j->text.at + begin + n, j->text.n - begin - n));
    j->text.n = begin + n;
    return segment_add(j, j->text.n, false);
}

static err_t fill_job(filling *f, job *j, bool *more) {
    int64_t begin = 0, want = JOB;
    j->text.n = j->segments.n = 0;
    TRY(append(&j->text, f->rest.at, f->rest.n));
    f->rest.n = 0;
    for (bool ends, full = false; !full;) {
        int64_t before = j->text.n;
        TRY(read_document(f, &j->text, &ends, more));
        if (!*more) return ERR_OK;
        f->s->bytes += j->text.n - before;
        full = j->text.n >= want;
        if (ends) {
            TRY(segment_add(j, j->text.n, true));
            f->s->documents++;
            begin = j->text.n;
        } else if (full) {
            TRY(cut_open(f, j, begin, &full));
            want = 2 * j->text.n;  // where there was none, looking again costs as much as all looks before
        }
    }
    return ERR_OK;
}

static err_t fill_batch(filling *f, bool *more) {
    f->filled = 0;
    for (*more = true; *more && f->filled < f->jobs; f->filled++) TRY(fill_job(f, &f->job[f->filled], more));
    return ERR_OK;
}

// --- encoding --------------------------------------------------------------------------------------------------------

static err_t encode_job(encoder *e, job *j, int32_t end_of_text) {
    int64_t begin = 0;
    j->ids.n = 0;
    for (int64_t i = 0; i < j->segments.n; i++) {
        const int32_t *ids;
        int64_t count;
        TRY(encoder_encode(e, j->text.at + begin, j->segments.at[i].end - begin, ENCODE_TEXT, &ids, &count));
        ROOM_FOR(&j->ids, j->ids.n + count + 1);
        if (count) memcpy(j->ids.at + j->ids.n, ids, (size_t)count * sizeof *ids);
        j->ids.n += count;
        if (j->segments.at[i].closes && end_of_text >= 0) j->ids.at[j->ids.n++] = end_of_text;
        begin = j->segments.at[i].end;
    }
    return ERR_OK;
}

typedef struct worker {
    filling *f;
    encoder *e;
    pthread_t thread;
} worker;

static void *work(void *arg) {
    worker *w = arg;
    int32_t end = tokenizer_about(w->f->o->t).end_of_text;
    for (int i; (i = atomic_fetch_add(&w->f->taken, 1)) < w->f->filled;) {
        job *j = &w->f->job[i];
        j->rc = encode_job(w->e, j, end);
        if (j->rc != ERR_OK) j->why = *err_last();
    }
    return NULL;
}

// All threads take jobs of the batch until there is none; this one is the first of them.
static err_t encode_batch(filling *f, worker *workers) {
    int started = 1;
    err_t rc = ERR_OK;
    atomic_store(&f->taken, 0);
    for (; started < f->o->threads && started < f->filled && rc == ERR_OK; started++) {
        rc = thread_start(&workers[started].thread, "lockstep-pack", work, &workers[started]);
        if (rc != ERR_OK) break;
    }
    work(&workers[0]);
    for (int i = 1; i < started; i++) pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < f->filled && rc == ERR_OK; i++)
        if (f->job[i].rc != ERR_OK) rc = err_restore(&f->job[i].why);
    return rc;
}

static err_t write_ids(spool *s, const id_list *ids) {
    uint16_t narrow[4096];
    if (s->token_bytes == 4) {
        if (fwrite(ids->at, 4, (size_t)ids->n, s->file) != (size_t)ids->n)
            return err_set(ERR_IO, "%s: %s", s->path, strerror(errno));
    } else
        for (int64_t i = 0; i < ids->n; i += 4096) {
            size_t n = ids->n - i < 4096 ? (size_t)(ids->n - i) : 4096;
            for (size_t k = 0; k < n; k++) narrow[k] = (uint16_t)ids->at[i + (int64_t)k];
            if (fwrite(narrow, 2, n, s->file) != n) return err_set(ERR_IO, "%s: %s", s->path, strerror(errno));
        }
    s->tokens += ids->n;
    return ERR_OK;
}

// --- all of it -------------------------------------------------------------------------------------------------------

static err_t fill(filling *f, worker *workers) {
    for (bool more = true; more;) {
        TRY(fill_batch(f, &more));
        TRY(encode_batch(f, workers));
        for (int i = 0; i < f->filled; i++) TRY(write_ids(f->s, &f->job[i].ids));
        if (f->o->progress) f->o->progress(f->o->ctx, f->before + (f->open ? document_at(f->open) : 0));
    }
    return fflush(f->s->file) == 0 ? ERR_OK : err_set(ERR_IO, "%s: %s", f->s->path, strerror(errno));
}

static err_t fill_with_threads(filling *f) {
    int threads = f->o->threads;
    worker *workers = calloc((size_t)threads, sizeof *workers);
    f->jobs = JOBS_OF_A_THREAD * threads;
    f->job = calloc((size_t)f->jobs, sizeof *f->job);
    err_t rc = workers && f->job ? ERR_OK : err_set(ERR_INTERNAL, "no memory for %d threads", threads);
    for (int i = 0; i < threads && rc == ERR_OK; i++) {
        workers[i].f = f;
        rc = encoder_open(&workers[i].e, f->o->t);
    }
    if (rc == ERR_OK) rc = fill(f, workers);
    for (int i = 0; workers && i < threads; i++)
        if (workers[i].e) encoder_close(workers[i].e);
    for (int i = 0; f->job && i < f->jobs; i++)
        free(f->job[i].text.at), free(f->job[i].segments.at), free(f->job[i].ids.at);
    free(f->job), free(workers);
    return rc;
}

err_t spool_fill(spool *s, const char *path, const char *const *files, int64_t count, const spool_options *o) {
    spool_options at_most = *o;
    if (at_most.threads < 1) at_most.threads = 1;
    if (at_most.threads > THREADS_MOST) at_most.threads = THREADS_MOST;
    *s = (spool){
        .token_bytes = tokenizer_about(o->t).vocab > 65536 ? 4 : 2, .path = strdup(path), .file = fopen(path, "w+be")};
    if (!s->path) return err_set(ERR_INTERNAL, "%s: no memory", path);
    if (!s->file) return err_set(ERR_IO, "%s: %s", path, strerror(errno));
    filling f = {.s = s, .o = &at_most, .files = files, .count = count};
    err_t rc = fill_with_threads(&f);
    document_close(f.open);
    free(f.rest.at);
    return rc;
}

err_t spool_rewind(spool *s) {
    return fseeko(s->file, 0, SEEK_SET) == 0 ? ERR_OK : err_set(ERR_IO, "%s: %s", s->path, strerror(errno));
}

err_t spool_read(spool *s, void *tokens, int64_t n) {
    if (fread(tokens, (size_t)s->token_bytes, (size_t)n, s->file) == (size_t)n) return ERR_OK;
    return err_set(ERR_IO, "%s: %s", s->path,
                   ferror(s->file) ? strerror(errno) : "it ends early: something has cut it");
}

void spool_close(spool *s) {
    if (s->file) fclose(s->file), unlink(s->path);
    free(s->path);
    *s = (spool){0};
}
