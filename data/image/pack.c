// data/image/pack.c: see data/image/pack.h.
//
//   list -> threads: read, decode, resize -> ring of results -> this thread: writes them in the order of the list
//
// A thread takes the next picture of the list as soon as its place in the ring is free. Its place is that of the
// picture `ring` before it, so that memory does not depend on the number of pictures, nor their order on the threads.
#include "data/image/pack.h"

#include "base/thread.h"
#include "data/image/decode.h"
#include "data/image/list.h"
#include "data/image/resize.h"
#include "data/image/shard.h"
#include "data/sampler.h"
#include "data/shard_set.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS_MOST = 256, AHEAD = 4, NAME_ROOM = 2 * IO_PATH };  // AHEAD: places of the ring for each thread

#define FILE_MOST (INT64_C(1) << 30)  // bytes of an encoded picture
#define SPLIT_SEED 20090612           // any number: which images are for validation never changes

// A picture of the list, decoded.
typedef struct place {
    picture image;
    image_sums sums;
    bool done;
    err_t rc;
    err_record why;  // rc is not ERR_OK
} place;

// What a thread needs to decode.
typedef struct tools {
    uint8_t *file;
    int64_t room;
    picture decoded;
    float *values;  // of an image of IDX
    resizer resizer;
} tools;

typedef struct pack {
    const image_pack_options *o;
    image_pack_report *r;
    image_list list;
    place *ring;  // (places)
    int places;

    pthread_mutex_t lock;  // guards the next five, and `done` of places
    pthread_cond_t room, ready;
    int64_t next, written;  // pictures taken by threads, and by the writer
    bool stop;
    pthread_mutex_t reading;  // an IDX source, which one thread reads at a time

    char *names;  // of the classes, as in a shard
    image_about about;
    image_sums sums;               // of the training images
    image_writer *writer[SPLITS];  // NULL: none open
    int64_t in_shard[SPLITS];
    shard_set set;
    char first_bad[ERR_TEXT];
} pack;

// --- one picture, in a thread ----------------------------------------------------------------------------------------

static err_t read_file(tools *t, const image_item *i) {
    int fd;
    if (i->bytes > FILE_MOST) return err_set(ERR_DATA, "%" PRId64 " bytes, expected at most 2^30", i->bytes);
    if (i->bytes > t->room) {
        free(t->file);
        t->room = 0;
        if (!(t->file = malloc((size_t)i->bytes)))
            return err_set(ERR_INTERNAL, "%s: no memory for %" PRId64 " bytes", i->path, i->bytes);
        t->room = i->bytes;
    }
    TRY(io_open(i->path, O_RDONLY, &fd));
    err_t rc = io_read_at(fd, i->path, i->offset, t->file, (size_t)i->bytes);
    close(fd);
    return rc;
}

// A sample of IDX: numbers from 0 to 1, which were bytes.
static err_t read_idx(pack *p, tools *t, const image_item *i) {
    source *s = p->list.idx[p->list.idx[i->split] ? i->split : SPLIT_TRAIN];  // without val_input, it is part of input
    int64_t n = shape_count(s->tensor[0].dims, s->tensor[0].size);
    if (t->room < n) {
        free(t->file), free(t->values);
        t->room = 0;
        t->file = malloc((size_t)n);
        t->values = malloc((size_t)n * sizeof *t->values);
        if (!t->file || !t->values) return err_set(ERR_INTERNAL, "no memory for an image of %" PRId64 " values", n);
        t->room = n;
    }
    pthread_mutex_lock(&p->reading);
    err_t rc = s->type->read(s, &(source_draw){.sample = i->offset}, (void *[]){t->values, NULL});
    pthread_mutex_unlock(&p->reading);
    for (int64_t k = 0; k < n; k++) t->file[k] = (uint8_t)(t->values[k] * 255.0f + 0.5f);
    return rc;
}

// Pixels that are not encoded, with one channel after the other or not, as (h,w,c).
static err_t take_raw(const image_list *l, picture *out, const uint8_t *from) {
    TRY(picture_make(out, l->h, l->w, l->c));
    int64_t plane = (int64_t)l->h * l->w;
    if (!l->planar) memcpy(out->at, from, (size_t)picture_bytes(out));
    for (int64_t i = 0; l->planar && i < plane; i++)
        for (int c = 0; c < l->c; c++) out->at[i * l->c + c] = from[c * plane + i];
    return ERR_OK;
}

// As torchvision's Resize(size) has it: the other side follows, rounded down.
static err_t bring_to_size(resizer *r, picture *out, picture *decoded, int64_t size) {
    bool upright = decoded->h > decoded->w;
    int64_t shorter = upright ? decoded->w : decoded->h, longer = upright ? decoded->h : decoded->w;
    if (size == 0 || size == shorter) {
        picture t = *out;
        *out = *decoded, *decoded = t;
        return ERR_OK;
    }
    longer = longer * size / shorter;
    TRY(picture_make(out, upright ? longer : size, upright ? size : longer, decoded->c));
    region all = {decoded->at, (int64_t)decoded->w * decoded->c, decoded->h, decoded->w, decoded->c};
    return resize(r, out->at, out->h, out->w, &all);
}

static err_t make_image(pack *p, tools *t, const image_item *i, place *to) {
    if (i->why) return err_set(ERR_DATA, "%s", i->why);
    TRY(p->list.kind == IMAGES_IDX ? read_idx(p, t, i) : read_file(t, i));
    TRY(p->list.h ? take_raw(&p->list, &t->decoded, t->file) : picture_decode(&t->decoded, t->file, (size_t)i->bytes));
    TRY(bring_to_size(&t->resizer, &to->image, &t->decoded, p->o->size));
    to->sums = (image_sums){0};
    image_sums_add(&to->sums, &to->image);
    return ERR_OK;
}

// The next picture of the list, when its place in the ring is free; -1: no more.
static int64_t take_next(pack *p) {
    pthread_mutex_lock(&p->lock);
    while (!p->stop && p->next < p->list.count && p->next >= p->written + p->places)
        pthread_cond_wait(&p->room, &p->lock);
    int64_t k = p->stop || p->next == p->list.count ? -1 : p->next++;
    pthread_mutex_unlock(&p->lock);
    return k;
}

static void *work(void *arg) {
    pack *p = arg;
    tools t = {0};
    for (int64_t k; (k = take_next(p)) >= 0;) {
        place *to = &p->ring[k % p->places];
        err_t rc = make_image(p, &t, &p->list.item[k], to);
        pthread_mutex_lock(&p->lock);
        to->rc = rc;
        if (rc != ERR_OK) to->why = *err_last();
        to->done = true;
        pthread_cond_signal(&p->ready);
        pthread_mutex_unlock(&p->lock);
    }
    free(t.file), free(t.values);
    picture_free(&t.decoded);
    resizer_free(&t.resizer);
    return NULL;
}

// --- shards ----------------------------------------------------------------------------------------------------------

static err_t seal(pack *p, int split) {
    if (!p->writer[split]) return ERR_OK;
    TRY(image_write_seal(p->writer[split]));
    TRY(shard_set_keep(&p->set, split, p->writer[split]));
    p->writer[split] = NULL;
    p->in_shard[split] = 0;
    return ERR_OK;
}

static err_t put(pack *p, const place *from, const image_item *i) {
    char path[IO_PATH];
    int s = i->split;
    if (!p->writer[s]) {
        if (p->set.shards[s] == SHARDS_MAX)
            return err_set(ERR_CONFIG,
                           "[pack] shard_images = %" PRId64 " makes more than %d shards: raise it to %" PRId64,
                           p->o->shard_images, SHARDS_MAX, p->list.count / SHARDS_MAX + 1);
        TRY(shard_set_path(&p->set, path, s, p->set.shards[s], ".tmp"));
        TRY(image_write_open(&p->writer[s], path, &p->about));
    }
    TRY(image_write(p->writer[s], &from->image, i->label));
    p->r->bytes += picture_bytes(&from->image);
    ++*(s == SPLIT_TRAIN ? &p->r->train : &p->r->val);
    for (int c = 0; s == SPLIT_TRAIN && c < p->about.channels; c++)
        p->sums.sum[c] += from->sums.sum[c], p->sums.square[c] += from->sums.square[c];
    if (s == SPLIT_TRAIN) p->sums.pixels += from->sums.pixels;
    return ++p->in_shard[s] == p->o->shard_images ? seal(p, s) : ERR_OK;
}

// A picture that can't be read: it is named, counted, and at last too many.
static err_t leave_out(pack *p, const place *from, const image_item *i) {
    char name[NAME_ROOM], text[NAME_ROOM + ERR_TEXT];
    image_item_name(i, name, sizeof name);
    snprintf(text, sizeof text, "%s: %s", name, from->why.text);
    if (p->r->bad++ == 0) snprintf(p->first_bad, sizeof p->first_bad, "%s", text);
    if (p->o->bad) p->o->bad(p->o->ctx, text);
    if (p->r->bad <= p->o->bad_most) return ERR_OK;
    return err_set(ERR_DATA,
                   "%" PRId64 " picture%s can't be read, and [pack] bad_most = %" PRId64
                   " is allowed. The first: %s. Remove them, or raise bad_most to leave them out",
                   p->r->bad, p->r->bad == 1 ? "" : "s", p->o->bad_most, p->first_bad);
}

static err_t write_images(pack *p) {
    for (int64_t k = 0; k < p->list.count; k++) {
        place *from = &p->ring[k % p->places];
        const image_item *i = &p->list.item[k];
        pthread_mutex_lock(&p->lock);
        while (!from->done) pthread_cond_wait(&p->ready, &p->lock);
        pthread_mutex_unlock(&p->lock);
        // of one that can't be read the pack may go on; after an error of the disk or of memory it does not
        if (from->rc == ERR_DATA) TRY(leave_out(p, from, i));
        else if (from->rc != ERR_OK) return err_restore(&from->why);
        else TRY(put(p, from, i));
        pthread_mutex_lock(&p->lock);
        from->done = false;
        p->written++;
        pthread_cond_broadcast(&p->room);
        pthread_mutex_unlock(&p->lock);
        if (p->o->progress) p->o->progress(p->o->ctx, k + 1, p->list.count);
    }
    return ERR_OK;
}

static err_t run_threads(pack *p, int threads) {
    pthread_t thread[THREADS_MOST];
    int started = 0;
    err_t rc = ERR_OK;
    while (started < threads && rc == ERR_OK)
        if ((rc = thread_start(&thread[started], "lockstep/decode", work, p)) == ERR_OK) started++;
    if (rc == ERR_OK) rc = write_images(p);
    err_record why = rc == ERR_OK ? (err_record){0} : *err_last();
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->room);
    pthread_mutex_unlock(&p->lock);
    for (int k = 0; k < started; k++) pthread_join(thread[k], NULL);
    return rc == ERR_OK ? ERR_OK : err_restore(&why);
}

static int threads_of(const image_pack_options *o) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int wanted = o->threads > 0 ? o->threads : cores > 0 ? (int)cores : 1;
    return wanted < THREADS_MOST ? wanted : THREADS_MOST;
}

// --- all of it -------------------------------------------------------------------------------------------------------

static err_t check(const image_pack_options *o) {
    if (!o->input || !*o->input || !o->output || !*o->output)
        return err_set(ERR_CONFIG, "[pack] input and output: expected both");
    if (o->shard_images < 1)
        return err_set(ERR_CONFIG, "[pack] shard_images = %" PRId64 ", expected at least 1", o->shard_images);
    if (!(o->val_fraction >= 0 && o->val_fraction < 1))
        return err_set(ERR_CONFIG, "[pack] val_fraction = %g, expected 0 to less than 1", o->val_fraction);
    if (o->size < 0 || o->size > PICTURE_SIDE)
        return err_set(ERR_CONFIG, "[pack] size = %" PRId64 ", expected 0 to %d", o->size, PICTURE_SIDE);
    return ERR_OK;
}

// Classes lie next to each other in the input, so that images for validation are drawn from all of it.
static void divide(image_list *l, double val_fraction) {
    int64_t val = (int64_t)((double)l->count * val_fraction + 0.5);
    for (int64_t k = 0; !l->has_val && k < l->count; k++)
        if (sampler_at(SPLIT_SEED, k, l->count, true) < val) l->item[k].split = SPLIT_VAL;
}

static err_t name_classes(pack *p) {
    size_t bytes = 0, at = 0;
    image_list *l = &p->list;
    for (int64_t k = 0; k < l->classes; k++) bytes += strlen(l->class[k]) + 1;
    if (l->classes > IMAGES_CLASSES || bytes > UINT32_MAX)
        return err_set(ERR_DATA, "%" PRId64 " classes, expected at most %d", l->classes, IMAGES_CLASSES);
    if (!(p->names = malloc(bytes))) return err_set(ERR_INTERNAL, "no memory for names of classes");
    for (int64_t k = 0; k < l->classes; k++) {
        size_t n = strlen(l->class[k]) + 1;
        memcpy(p->names + at, l->class[k], n);
        at += n;
    }
    p->about = (image_about){.channels = l->h ? l->c : PICTURE_CHANNELS,
                             .size = (int)p->o->size,
                             .classes = (int)l->classes,
                             .names = p->names,
                             .name_bytes = (uint32_t)bytes};
    return ERR_OK;
}

static err_t finish(pack *p) {
    for (int s = 0; s < SPLITS; s++) TRY(seal(p, s));
    if (p->r->train == 0)
        return err_set(ERR_DATA,
                       "[pack] input = %s: no image is left for training: %" PRId64 " can't be read, %" PRId64
                       " are for validation",
                       p->o->input, p->r->bad, p->r->val);
    for (int s = 0; s < SPLITS; s++)
        for (int k = 0; k < p->set.shards[s]; k++) TRY(image_write_finish(p->set.sealed[s][k], &p->sums));
    // all new files are on disk: a crash from here on leaves too few files, never a mixture
    TRY(shard_set_clear(&p->set, true));
    TRY(shard_set_rename(&p->set, &p->r->shards_out));
    return shard_set_clear(&p->set, false);
}

static err_t run(pack *p) {
    TRY(check(p->o));
    TRY(image_list_find(&p->list, p->o->kind, p->o->input, p->o->val_input));
    divide(&p->list, p->o->val_fraction);
    TRY(name_classes(p));
    int threads = threads_of(p->o);
    p->places = AHEAD * threads;
    if (!(p->ring = calloc((size_t)p->places, sizeof *p->ring)))
        return err_set(ERR_INTERNAL, "no memory for %d images", p->places);
    TRY(shard_set_begin(&p->set));
    TRY(run_threads(p, threads));
    TRY(finish(p));
    p->r->skipped = p->list.skipped;
    p->r->classes = p->list.classes;
    p->r->channels = p->about.channels;
    image_sums_scale(&p->sums, p->about.channels, p->r->mean, p->r->inv);
    return ERR_OK;
}

static void release(pack *p) {
    for (int s = 0; s < SPLITS; s++) {
        for (int k = 0; k < p->set.shards[s]; k++) image_write_close(p->set.sealed[s][k]);
        image_write_close(p->writer[s]);
        free(p->set.sealed[s]);
    }
    for (int k = 0; p->ring && k < p->places; k++) picture_free(&p->ring[k].image);
    free(p->ring);
    free(p->names);
    image_list_free(&p->list);
    pthread_cond_destroy(&p->ready);
    pthread_cond_destroy(&p->room);
    pthread_mutex_destroy(&p->reading);
    pthread_mutex_destroy(&p->lock);
}

err_t image_pack_run(const image_pack_options *o, image_pack_report *r) {
    pack p = {.o = o, .r = r, .set.output = o->output};
    *r = (image_pack_report){0};
    pthread_mutex_init(&p.lock, NULL);
    pthread_mutex_init(&p.reading, NULL);
    pthread_cond_init(&p.room, NULL);
    pthread_cond_init(&p.ready, NULL);
    err_t rc = run(&p);
    err_record why = rc == ERR_OK ? (err_record){0} : *err_last();
    if (rc != ERR_OK) shard_set_drop(&p.set, (bool[SPLITS]){p.writer[0] != NULL, p.writer[1] != NULL});
    release(&p);
    return rc == ERR_OK ? ERR_OK : err_restore(&why);
}
