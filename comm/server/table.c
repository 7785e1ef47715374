// comm/server/table.c: see comm/server/table.h. Memory comes from mmap, page by page as it is touched.
#include "comm/server/table.h"

#include "base/philox.h"
#include "comm/server/cold.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SEGMENT = 1 << 16, SEGMENTS = 1 << 15, SLOTS = 1 << 12, MOVES = 4, AHEAD = 32 };
// BATCH: cold rows that are read, or written, together; SAMPLE: frames that are looked at for each that is freed; AGES:
// rows that were not touched for as many steps, or more, are alike
enum { BATCH = 1 << 14, SAMPLE = 8, AGES = 1 << 12 };
#define ROWS_MOST ((int64_t)SEGMENT * SEGMENTS - 1)

// row 0: nothing stands here; with IN_FILE: in which slot of the file it is; else one more than its frame's number.
typedef struct row_slot {
    uint64_t point;
    uint32_t table, row;
} row_slot;
#define IN_FILE 0x80000000u
#define NOWHERE 0x7fffffffu  // a slot: none yet, of a row that is made by the update under way

// Beside a row in memory, where memory is limited.
typedef enum frame_use { FREE, CLEAN, CHANGED } frame_use;  // CLEAN: as it is in the file
typedef struct row_frame {
    uint64_t point;
    uint32_t table;
    uint32_t slot;  // CLEAN: of the file. FREE: the next free frame, plus 1
    uint32_t step;  // that touched it last
    frame_use use;
} row_frame;

// A cold row of a batch: it is read into its frame, or to `row`, if none was free.
typedef struct batch_row {
    row_key key;
    float *row, *sum;
    float *to;              // of a look: where the caller wants it
    const float *g;         // of an update
    uint32_t slot, number;  // of the file; of the frame
    bool framed;
    float aside;  // the sum, where nothing else has room for it
} batch_row;

typedef struct row_index {
    row_slot *slot;
    int64_t homes, slots;  // keys after the last home stand in the slots after it
    int64_t used, most;    // of `slots`; there are as many more slots than homes, so that no run of keys meets the end
    uint64_t scale;        // homes a point, in 2^-64
} row_index;

struct row_table {
    row_options o;
    row_index now, old;  // old.slot NULL: it does not grow
    int64_t moved;       // slots of `old` that are in `now`
    int64_t rows, segments;
    uint64_t base;  // the first point
    float **segment;
    int64_t frames, made;  // rows that memory may have; frames that were in use at some time
    bool changed[ROW_BUCKETS];
    // Where memory is limited:
    cold *cold;           // NULL: it is not, and nothing below
    int64_t free;         // of `made`
    uint32_t next;        // of them, the one that is used next, plus 1
    uint32_t step;        // the step that is under way
    int64_t wanted;       // frames, by rows of this step
    int64_t hand;         // the frame that is looked at next
    int batch, block, n;  // the most rows of a batch; slots of a block; rows of the batch under way
    batch_row *of;        // [batch]
    float *spare;         // (batch, D + 1) rows of a batch that have no frame
};

// Large pages, where the system has them, need memory that begins with one; a look at a row is a look at a page, too.
static void *reserve(size_t bytes) {
    const size_t page = 4096, large = (size_t)2 << 20, n = (bytes + page - 1) / page * page,
                 more = n < large ? 0 : large - page;
    char *x = mmap(NULL, n + more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (x == MAP_FAILED) return NULL;
    if (!more) return x;
    size_t before = (large - (uintptr_t)x % large) % large;
    if (before) munmap(x, before);
    if (more > before) munmap(x + before + n, more - before);
    madvise(x + before, n, MADV_HUGEPAGE);
    return x + before;
}

// --- the index -------------------------------------------------------------------------------------------------------

static size_t index_bytes(const row_index *x) { return (size_t)x->slots * sizeof *x->slot; }

static err_t open_index(row_index *x, int64_t homes, int buckets) {
    *x = (row_index){.homes = homes, .most = homes / 8 * 5, .slots = homes + homes / 8 * 5 + 1};
    x->scale = buckets ? (uint64_t)homes * ROW_BUCKETS / (uint64_t)buckets : 0;  // without buckets no key comes
    x->slot = reserve(index_bytes(x));
    return x->slot
               ? ERR_OK
               : err_set(ERR_INTERNAL, "no memory for an index of %" PRId64 " slots: %s", x->slots, strerror(errno));
}

static void close_index(row_index *x) {
    if (x->slot) munmap(x->slot, index_bytes(x));
    *x = (row_index){0};
}

static int64_t home(const row_table *t, const row_index *x, uint64_t point) {
    return (int64_t)((unsigned __int128)(point - t->base) * x->scale >> 64);
}

static bool slot_less(const row_slot *s, row_key k) { return row_less((row_key){s->point, s->table}, k); }
static bool slot_is(const row_slot *s, row_key k) { return s->row && s->point == k.point && s->table == k.table; }

// Where the key stands, or would.
static int64_t find_slot(const row_table *t, const row_index *x, row_key k) {
    int64_t i = home(t, x, k.point);
    while (x->slot[i].row && slot_less(&x->slot[i], k)) i++;
    return i;
}

static void insert(row_index *x, int64_t at, row_slot s) {
    int64_t end = at;
    while (x->slot[end].row) end++;
    memmove(&x->slot[at + 1], &x->slot[at], (size_t)(end - at) * sizeof s);
    x->slot[at] = s;
    x->used++;
}

// NULL: it is not there. Of a key that has moved, the slot in `now`.
static row_slot *find(const row_table *t, row_key k) {
    row_slot *s = &t->now.slot[find_slot(t, &t->now, k)];
    if (slot_is(s, k)) return s;
    if (!t->old.slot) return NULL;
    s = &t->old.slot[find_slot(t, &t->old, k)];
    return slot_is(s, k) ? s : NULL;
}

// Where its row is, as row_slot has it; 0: it is not there.
static uint32_t find_place(const row_table *t, row_key k) {
    const row_slot *s = find(t, k);
    return s ? s->row : 0;
}
static bool is_hot(uint32_t place) { return place && !(place & IN_FILE); }

static void move_slots(row_table *t, int64_t n) {
    for (; t->old.slot && n > 0; n--) {
        const row_slot *s = &t->old.slot[t->moved++];
        if (s->row) insert(&t->now, find_slot(t, &t->now, (row_key){s->point, s->table}), *s);
        if (t->moved == t->old.slots) close_index(&t->old), t->moved = 0;
    }
}

// Before a row is made. Each takes MOVES slots along, so the old index, of 13/8 H slots with H homes, is empty after
// 13/32 H new rows; and the new one, of 2 H homes, has room for 5/8 H of them.
static err_t grow(row_table *t) {
    if (t->old.slot) {
        move_slots(t, MOVES);
        return ERR_OK;
    }
    if (t->now.used < t->now.most) return ERR_OK;
    row_index more;
    TRY(open_index(&more, 2 * t->now.homes, t->o.buckets));
    t->old = t->now, t->now = more, t->moved = 0;
    return ERR_OK;
}

// --- rows ------------------------------------------------------------------------------------------------------------

// A segment has rows, after them their sums, and where memory is limited, what stands beside them.
static int64_t segment_rows(const row_table *t, int64_t k) {
    int64_t left = t->frames - k * SEGMENT;
    return left < SEGMENT ? left : SEGMENT;
}
static size_t rows_bytes(const row_table *t, int64_t k) {
    size_t n = (size_t)segment_rows(t, k) * (size_t)(t->o.width + 1) * sizeof(float), to = sizeof(uint64_t);
    return (n + to - 1) / to * to;
}
static size_t segment_bytes(const row_table *t, int64_t k) {
    return rows_bytes(t, k) + (t->cold ? (size_t)segment_rows(t, k) * sizeof(row_frame) : 0);
}

static float *row_at(const row_table *t, uint32_t number) {
    return t->segment[number / SEGMENT] + (int64_t)(number % SEGMENT) * t->o.width;
}
static float *sum_at(const row_table *t, uint32_t number) {
    return t->segment[number / SEGMENT] + segment_rows(t, number / SEGMENT) * t->o.width + number % SEGMENT;
}
static row_frame *frame_at(const row_table *t, uint32_t number) {
    char *at = (char *)t->segment[number / SEGMENT] + rows_bytes(t, number / SEGMENT);
    return (row_frame *)(void *)at + number % SEGMENT;
}

void row_initial(const row_options *o, row_key k, float *row) {
    uint64_t id = row_id(k);
    for (int64_t c = 0; c < o->width; c += 4) {
        uint32_t bits[4];
        philox4x32(bits, o->seed, (uint32_t)(c / 4), SITE_TABLE + (uint32_t)k.table, (uint32_t)id,
                   (uint32_t)(id >> 32));
        for (int64_t i = c; i < c + 4 && i < o->width; i++)
            row[i] = (float)((2 * ((bits[i - c] + 0.5) * 0x1p-32) - 1) * o->bound);
    }
}

static err_t open_segment(row_table *t) {
    float *x = reserve(segment_bytes(t, t->segments));
    if (!x)
        return err_set(ERR_INTERNAL, "no memory for %" PRId64 " more rows of %" PRId64 ", after %" PRId64 ": %s",
                       segment_rows(t, t->segments), t->o.width, t->rows, strerror(errno));
    t->segment[t->segments++] = x;
    return ERR_OK;
}

static bool has_room(const row_table *t) { return t->free || t->made < t->frames; }

// A frame that is free, of which the table has one.
static err_t take_frame(row_table *t, uint32_t *number) {
    if (t->free) {
        *number = t->next - 1, t->next = frame_at(t, *number)->slot;
        t->free--;
        return ERR_OK;
    }
    if (t->made == t->segments * SEGMENT) TRY(open_segment(t));
    *number = (uint32_t)t->made++;
    return ERR_OK;
}

// A row that is not there yet, with values that mean nothing, or in a slot that was never written.
static err_t make_row(row_table *t, row_key k, uint32_t *place) {
    TRY(grow(t));
    t->wanted++;
    if (has_room(t)) {
        TRY(take_frame(t, place));
        if (t->cold) *frame_at(t, *place) = (row_frame){k.point, (uint32_t)k.table, 0, t->step, CHANGED};
        ++*place;
    } else if (t->cold) {
        *place = IN_FILE | NOWHERE;
    } else return err_set(ERR_INTERNAL, "a rank's tables have %" PRId64 " rows, and that is the most", t->rows);
    insert(&t->now, find_slot(t, &t->now, k), (row_slot){k.point, (uint32_t)k.table, *place});
    t->rows++;
    return ERR_OK;
}

// --- AdaGrad ---------------------------------------------------------------------------------------------------------

// Sixteen sums side by side, and then theirs in order: the same on every processor.
static float mean_of_squares(const float *g, float factor, int64_t D) {
    enum { SUMS = 16 };
    float sum[SUMS] = {0}, all = 0;
    int64_t c = 0;
    for (; c + SUMS <= D; c += SUMS)
        for (int k = 0; k < SUMS; k++) sum[k] += (factor * g[c + k]) * (factor * g[c + k]);
    for (; c < D; c++) sum[c % SUMS] += (factor * g[c]) * (factor * g[c]);
    for (int k = 0; k < SUMS; k++) all += sum[k];
    return all / (float)D;
}

static void update_row(float *row, float *sum, const float *g, const row_rules *by, int64_t D) {
    *sum += mean_of_squares(g, by->factor, D);
    float rate = by->lr / (__builtin_sqrtf(*sum) + by->eps);
    for (int64_t c = 0; c < D; c++) row[c] -= rate * (by->factor * g[c]);
}

// A look at a key misses the cache twice, at its slot and at its row, and those of many keys can be on their way at the
// same time: slots are asked for 2 * AHEAD keys before they are copied, rows AHEAD keys before.
//
// Inlined in any case: to GCC 12 a function that does nothing but prefetch does nothing, and its calls are left out.
static inline __attribute__((always_inline)) void ask_slot(const row_table *t, const row_key *key, int64_t n,
                                                           int64_t i) {
    if (i < n) __builtin_prefetch(&t->now.slot[home(t, &t->now, key[i].point)]);
}

static inline __attribute__((always_inline)) void ask_row(const row_table *t, uint32_t number) {
    const char *at = (const char *)row_at(t, number);
    for (size_t line = 0; line < (size_t)t->o.width * sizeof(float); line += 64) __builtin_prefetch(at + line);
}

// --- cold rows -------------------------------------------------------------------------------------------------------

// What was asked for ahead is here. Until then a frame of such a row means nothing.
static err_t settle(row_table *t) {
    if (!t->cold) return ERR_OK;
    t->n = 0;
    return cold_wait(t->cold);
}

// A cold row gets a frame, which is to be read.
static err_t warm(row_table *t, row_key k, uint32_t slot, uint32_t *number) {
    TRY(take_frame(t, number));
    find(t, k)->row = *number + 1;
    *frame_at(t, *number) = (row_frame){k.point, (uint32_t)k.table, slot, t->step, CLEAN};
    return ERR_OK;
}

// The next row of the batch begins to be read, or to be made, into its frame, or else to `row` and `sum`.
static err_t ask(row_table *t, row_key k, uint32_t slot, float *row, float *sum, batch_row **out) {
    batch_row *x = *out = &t->of[t->n++];
    *x = (batch_row){.key = k, .slot = slot, .row = row, .sum = sum, .framed = has_room(t)};
    t->wanted++;
    if (x->framed) {
        TRY(warm(t, k, slot, &x->number));
        x->row = row_at(t, x->number), x->sum = sum_at(t, x->number);
    } else if (!sum) x->sum = &x->aside;
    if (slot != NOWHERE) cold_ask(t->cold, slot, k, x->row, x->sum);
    else row_initial(&t->o, k, x->row), *x->sum = 0;
    return ERR_OK;
}

static float *spare_at(const row_table *t, int k) { return t->spare + k * (t->o.width + 1); }

static err_t end_look(row_table *t) {
    int n = t->n;
    TRY(settle(t));
    for (batch_row *x = t->of; x < t->of + n; x++)
        if (x->framed) memcpy(x->to, x->row, (size_t)t->o.width * sizeof *x->to);
    return ERR_OK;
}

static err_t look_cold(row_table *t, row_key k, uint32_t slot, float *to) {
    batch_row *x;
    if (t->n == t->batch) TRY(end_look(t));
    TRY(ask(t, k, slot, to, NULL, &x));
    x->to = to;
    return ERR_OK;
}

err_t row_table_ahead(row_table *t, const row_key *key, int64_t n) {
    batch_row *x;
    if (!t->cold) return ERR_OK;
    for (int64_t i = 0; i < n && t->n < t->batch && has_room(t); i++) {
        uint32_t place = find_place(t, key[i]);
        if (place & IN_FILE) TRY(ask(t, key[i], place & ~IN_FILE, NULL, NULL, &x));
    }
    cold_begin(t->cold);
    return ERR_OK;
}

// What is in the file is no longer the row.
static void touch(const row_table *t, uint32_t number) {
    row_frame *f = frame_at(t, number);
    if (f->use == CLEAN) cold_free(t->cold, f->slot);
    f->step = t->step, f->use = CHANGED;
}

static err_t write_back(row_table *t, const batch_row *x) {
    uint32_t slot;
    if (x->slot != NOWHERE) cold_free(t->cold, x->slot);
    TRY(cold_put(t->cold, x->key, x->row, *x->sum, &slot));
    find(t, x->key)->row = IN_FILE | slot;
    return ERR_OK;
}

static err_t end_update(row_table *t, const row_rules *by) {
    int n = t->n;
    TRY(settle(t));
    for (batch_row *x = t->of; x < t->of + n; x++) {
        update_row(x->row, x->sum, x->g, by, t->o.width);
        if (x->framed) touch(t, x->number);
        else TRY(write_back(t, x));
    }
    return cold_flush(t->cold);
}

static err_t update_cold(row_table *t, row_key k, uint32_t slot, const float *g, const row_rules *by) {
    batch_row *x;
    if (t->n == t->batch) TRY(end_update(t, by));
    float *row = spare_at(t, t->n);
    TRY(ask(t, k, slot, row, row + t->o.width, &x));
    x->g = g;
    return ERR_OK;
}

// The row is in its slot alone.
static err_t leave(row_table *t, uint32_t number) {
    row_frame *f = frame_at(t, number);
    const row_key k = {f->point, f->table};
    uint32_t slot = f->slot;
    if (f->use == CHANGED) TRY(cold_put(t->cold, k, row_at(t, number), *sum_at(t, number), &slot));
    find(t, k)->row = IN_FILE | slot;
    f->use = FREE;
    f->slot = t->next, t->next = number + 1;
    t->free++;
    return ERR_OK;
}

static int age_of(const row_table *t, const row_frame *f) {
    uint32_t age = t->step - f->step;
    return age < AGES ? (int)age : AGES - 1;
}

// n rows leave, of a window of frames those that were touched first. In the window whole ages leave, the oldest first,
// and of the next one the first `left` frames.
static err_t evict(row_table *t, int64_t n) {
    int64_t window = SAMPLE * n < t->made ? SAMPLE * n : t->made, of[AGES] = {0}, left = n, going = 0;
    uint32_t leaver[AHEAD];  // the last ones, whose memory is on its way to the cache
    int least = AGES;
    for (int64_t i = 0; i < window; i++) {
        const row_frame *f = frame_at(t, (uint32_t)((t->hand + i) % t->made));
        of[age_of(t, f)] += f->use != FREE;
    }
    while (least > 0 && of[least - 1] <= left) left -= of[--least];
    for (int64_t i = 0; i < window; i++) {
        uint32_t number = (uint32_t)((t->hand + i) % t->made);
        const row_frame *f = frame_at(t, number);
        int age = age_of(t, f);
        if (f->use == FREE || age < least - 1 || (age == least - 1 && left-- <= 0)) continue;
        if (going >= AHEAD) TRY(leave(t, leaver[going % AHEAD]));
        leaver[going++ % AHEAD] = number;
        __builtin_prefetch(&t->now.slot[home(t, &t->now, f->point)], 1);
        ask_row(t, number);
    }
    for (int64_t i = going < AHEAD ? 0 : going - AHEAD; i < going; i++) TRY(leave(t, leaver[i % AHEAD]));
    t->hand = (t->hand + window) % t->made;
    return cold_flush(t->cold);
}

err_t row_table_cool(row_table *t) {
    if (!t->cold) return ERR_OK;
    TRY(settle(t));
    int64_t want = t->wanted + t->wanted / 4, least = t->frames / 64 + 1, most = t->frames / 4 + 1,
            free = t->frames - t->made + t->free;
    want = want < least ? least : want > most ? most : want;
    t->step++, t->wanted = 0;
    return want > free ? evict(t, want - free) : ERR_OK;
}

// --- the whole -------------------------------------------------------------------------------------------------------

int64_t row_table_frame_bytes(int64_t width) { return 4 * (width + 1) + (int64_t)sizeof(row_frame); }

// Beside rows, and frames for them.
static int64_t batch_bytes(const row_table *t) {
    return cold_batch_bytes(t->o.width) + 4 * (t->o.width + 1) + (int64_t)sizeof *t->of;
}
static int64_t beside_bytes(const row_table *t) {
    return cold_room_bytes(t->o.width) + t->batch * batch_bytes(t) + t->block * cold_slot_bytes(t->o.width);
}

int64_t row_table_least(int64_t width) {
    const row_table t = {.o = {.width = width}, .batch = 1, .block = 1};
    return beside_bytes(&t) + row_table_frame_bytes(width) + 1;
}

// A batch takes at most an eighth of the memory, a block a sixteenth, frames the rest; if there is so much.
static err_t limit(row_table *t) {
    int64_t D = t->o.width, frame = row_table_frame_bytes(D) + 1, batch = t->o.memory / 8 / batch_bytes(t);
    t->batch = (int)(batch < 1 ? 1 : batch > BATCH ? BATCH : batch);
    for (t->block = COLD_BLOCK; t->block > 1 && t->block * cold_slot_bytes(D) > t->o.memory / 16;) t->block /= 2;
    if (t->o.memory < row_table_least(D))
        return err_set(ERR_CONFIG, "%" PRId64 " bytes of memory for rows of %" PRId64 ": expected at least %" PRId64,
                       t->o.memory, D, row_table_least(D));
    int64_t frames = (t->o.memory - beside_bytes(t)) / frame;
    t->frames = frames < ROWS_MOST ? frames : ROWS_MOST;
    t->of = malloc((size_t)t->batch * sizeof *t->of);
    t->spare = malloc((size_t)(t->batch * (D + 1)) * sizeof *t->spare);
    if (!t->of || !t->spare) return err_set(ERR_INTERNAL, "no memory for batches of %d rows", t->batch);
    return cold_open(&t->cold, &(cold_options){.dir = t->o.dir,
                                               .number = t->o.number,
                                               .width = D,
                                               .batch = t->batch,
                                               .block = t->block,
                                               .faults = t->o.faults});
}

static err_t open_parts(row_table *t) {
    t->segment = calloc(SEGMENTS, sizeof *t->segment);
    if (!t->segment) return err_set(ERR_INTERNAL, "no memory for a table");
    TRY(open_index(&t->now, SLOTS, t->o.buckets));
    return t->o.memory ? limit(t) : ERR_OK;
}

err_t row_table_open(row_table **out, const row_options *o) {
    row_table *t = *out = calloc(1, sizeof *t);
    if (!t) return err_set(ERR_INTERNAL, "no memory for a table");
    assert(o->width > 0 && o->first >= 0 && o->buckets >= 0 && o->first + o->buckets <= ROW_BUCKETS);
    t->o = *o;
    t->base = (uint64_t)o->first << ROW_BUCKET_SHIFT;
    t->frames = ROWS_MOST;
    memset(t->changed, true, sizeof t->changed);
    err_t rc = open_parts(t);
    if (rc == ERR_OK) return ERR_OK;
    row_table_close(t);
    *out = NULL;
    return rc;
}

void row_table_close(row_table *t) {
    if (!t) return;
    for (int64_t k = 0; k < t->segments; k++) munmap(t->segment[k], segment_bytes(t, k));
    cold_close(t->cold);
    close_index(&t->now), close_index(&t->old);
    free(t->segment), free(t->of), free(t->spare);
    free(t);
}

// Pages that were touched become zeros again; their places stay.
err_t row_table_clear(row_table *t) {
    TRY(settle(t));
    close_index(&t->old);
    madvise(t->now.slot, index_bytes(&t->now), MADV_DONTNEED);
    t->now.used = t->rows = t->moved = t->made = t->free = t->wanted = t->hand = 0;
    t->next = 0;
    memset(t->changed, true, sizeof t->changed);
    return t->cold ? cold_clear(t->cold) : ERR_OK;
}

const row_options *row_table_about(const row_table *t) { return &t->o; }
int64_t row_table_rows(const row_table *t) { return t->rows; }
int64_t row_table_left(const row_table *t) { return t->old.slot ? t->old.slots - t->moved : 0; }
int64_t row_table_cold(const row_table *t) { return t->cold ? t->rows - (t->made - t->free) : 0; }
int64_t row_table_file(const row_table *t) { return t->cold ? cold_bytes(t->cold) : 0; }
bool row_table_is_lost(const row_table *t) { return t->cold && cold_is_lost(t->cold); }

int64_t row_table_held(const row_table *t) {
    int64_t sum = 0;
    for (int64_t k = 0; k < t->segments; k++) sum += (int64_t)segment_bytes(t, k);
    return sum + (t->cold ? beside_bytes(t) : 0);
}

int64_t row_table_bytes(const row_table *t) {
    return (int64_t)(index_bytes(&t->now) + index_bytes(&t->old)) + row_table_held(t) +
           (t->cold ? cold_count_bytes(t->cold) : 0);
}
bool *row_table_changed(row_table *t) { return t->changed; }

int64_t row_table_missing(const row_table *t, const row_key *key, int64_t n) {
    int64_t missing = 0;
    for (int64_t i = 0; i < n; i++) {
        ask_slot(t, key, n, i + AHEAD);
        missing += !find_place(t, key[i]);
    }
    return missing;
}

err_t row_table_look(row_table *t, const row_key *key, int64_t n, float *rows) {
    const int64_t D = t->o.width;
    uint32_t place[AHEAD];  // of the next keys
    TRY(settle(t));
    for (int64_t i = 0; i < 2 * AHEAD; i++) ask_slot(t, key, n, i);
    for (int64_t i = -AHEAD; i < n; i++) {
        uint32_t here = i < 0 ? 0 : place[i % AHEAD];
        int64_t next = i + AHEAD;
        ask_slot(t, key, n, next + AHEAD);
        if (next < n && is_hot(place[next % AHEAD] = find_place(t, key[next]))) ask_row(t, place[next % AHEAD] - 1);
        if (i < 0) continue;
        if (is_hot(here)) memcpy(rows + i * D, row_at(t, here - 1), (size_t)D * sizeof *rows);
        else if (here) TRY(look_cold(t, key[i], here & ~IN_FILE, rows + i * D));
        else row_initial(&t->o, key[i], rows + i * D);
    }
    return t->cold ? end_look(t) : ERR_OK;
}

static err_t find_or_make(row_table *t, row_key k, uint32_t *place) {
    if ((*place = find_place(t, k))) return ERR_OK;
    TRY(make_row(t, k, place));
    if (!is_hot(*place)) return ERR_OK;
    row_initial(&t->o, k, row_at(t, *place - 1));
    *sum_at(t, *place - 1) = 0;
    return ERR_OK;
}

static inline __attribute__((always_inline)) void ask_all(const row_table *t, uint32_t number) {
    ask_row(t, number);
    __builtin_prefetch(sum_at(t, number), 1);
    if (t->cold) __builtin_prefetch(frame_at(t, number), 1);
}

static err_t update_one(row_table *t, row_key k, uint32_t place, const float *g, const row_rules *by) {
    t->changed[row_bucket(k)] = true;
    if (!is_hot(place)) return update_cold(t, k, place & ~IN_FILE, g, by);
    update_row(row_at(t, place - 1), sum_at(t, place - 1), g, by, t->o.width);
    if (t->cold) touch(t, place - 1);
    return ERR_OK;
}

// As row_table_look. Where a row is does not change when others are made.
err_t row_table_update(row_table *t, const row_list *x, const row_rules *by) {
    uint32_t place[AHEAD];
    TRY(settle(t));
    for (int64_t i = 0; i < 2 * AHEAD; i++) ask_slot(t, x->key, x->n, i);
    for (int64_t i = -AHEAD; i < x->n; i++) {
        uint32_t here = i < 0 ? 0 : place[i % AHEAD];
        int64_t next = i + AHEAD;
        ask_slot(t, x->key, x->n, next + AHEAD);
        if (next < x->n) {
            TRY(find_or_make(t, x->key[next], &place[next % AHEAD]));
            if (is_hot(place[next % AHEAD])) ask_all(t, place[next % AHEAD] - 1);
        }
        if (i >= 0) TRY(update_one(t, x->key[i], here, x->row + i * t->o.width, by));
    }
    return t->cold ? end_update(t, by) : ERR_OK;
}

err_t row_table_put(row_table *t, row_key k, const float *row, float sum) {
    uint32_t place;
    int b = row_bucket(k);
    if (b < t->o.first || b >= t->o.first + t->o.buckets || find(t, k))
        return err_set(ERR_DATA, "id %" PRIu64 " of table %" PRIu64 " is %s", row_id(k), k.table,
                       b < t->o.first || b >= t->o.first + t->o.buckets ? "another rank's" : "there twice");
    TRY(settle(t));
    if (t->cold && !has_room(t)) TRY(evict(t, t->frames / 4 < t->batch ? t->frames / 4 + 1 : t->batch));
    TRY(make_row(t, k, &place));
    t->wanted = 0;  // no step has
    memcpy(row_at(t, place - 1), row, (size_t)t->o.width * sizeof *row);
    *sum_at(t, place - 1) = sum;
    t->changed[b] = true;
    return ERR_OK;
}

// --- in order of keys ------------------------------------------------------------------------------------------------

void row_table_begin(row_table *t, int bucket, row_walk *w) {
    move_slots(t, INT64_MAX);
    if (bucket < t->o.first) bucket = t->o.first;
    *w = (row_walk){.slot = t->now.slots, .rc = settle(t)};
    if (bucket >= t->o.first + t->o.buckets) return;
    w->slot = find_slot(t, &t->now, (row_key){(uint64_t)bucket << ROW_BUCKET_SHIFT, 0});
}

// The next cold rows of this bucket come to the spare rows.
static err_t read_piece(row_table *t, row_walk *w) {
    const row_index *x = &t->now;
    const uint64_t bucket = x->slot[w->slot].point >> ROW_BUCKET_SHIFT;
    w->at = w->count = 0;
    for (int64_t i = w->slot; i < x->slots && w->count < t->batch; i++) {
        const row_slot *s = &x->slot[i];
        if (s->row && s->point >> ROW_BUCKET_SHIFT != bucket) break;
        if (!(s->row & IN_FILE)) continue;
        float *row = spare_at(t, w->count++);
        cold_ask(t->cold, s->row & ~IN_FILE, (row_key){s->point, s->table}, row, row + t->o.width);
    }
    return cold_wait(t->cold);
}

bool row_table_next(row_table *t, row_walk *w) {
    const row_index *x = &t->now;
    while (w->slot < x->slots && !x->slot[w->slot].row) w->slot++;
    if (w->slot >= x->slots || w->rc != ERR_OK) return false;
    const row_slot *s = &x->slot[w->slot];
    w->key = (row_key){s->point, s->table};
    w->row = w->sum = NULL;
    if (is_hot(s->row)) w->row = row_at(t, s->row - 1), w->sum = sum_at(t, s->row - 1);
    else if (!w->keys_only) {
        if (w->at == w->count && (w->rc = read_piece(t, w)) != ERR_OK) return false;
        w->row = spare_at(t, w->at++), w->sum = w->row + t->o.width;
    }
    w->slot++;
    return true;
}
