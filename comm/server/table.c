// comm/server/table.c: see comm/server/table.h. Memory comes from mmap, page by page as it is touched.
#include "comm/server/table.h"

#include "base/philox.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SEGMENT = 1 << 16, SEGMENTS = 1 << 15, SLOTS = 1 << 12, MOVES = 4, AHEAD = 32 };
#define ROWS_MOST ((int64_t)SEGMENT * SEGMENTS)

// row 0: nothing stands here; else one more than the row's number.
typedef struct row_slot {
    uint64_t point;
    uint32_t table, row;
} row_slot;

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
    bool changed[ROW_BUCKETS];
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
    x->scale = (uint64_t)homes * ROW_BUCKETS / (uint64_t)buckets;
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

// The number of its row, plus 1; 0: it is not there.
static uint32_t find_row(const row_table *t, row_key k) {
    int64_t i = find_slot(t, &t->now, k);
    if (slot_is(&t->now.slot[i], k)) return t->now.slot[i].row;
    if (!t->old.slot) return 0;
    i = find_slot(t, &t->old, k);
    return slot_is(&t->old.slot[i], k) ? t->old.slot[i].row : 0;
}

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

static size_t segment_bytes(const row_table *t) { return (size_t)SEGMENT * (size_t)(t->o.width + 1) * sizeof(float); }

// A segment's rows, and after them their sums.
static float *row_at(const row_table *t, uint32_t number) {
    return t->segment[number / SEGMENT] + (int64_t)(number % SEGMENT) * t->o.width;
}
static float *sum_at(const row_table *t, uint32_t number) {
    return t->segment[number / SEGMENT] + (int64_t)SEGMENT * t->o.width + number % SEGMENT;
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
    if (t->rows == ROWS_MOST)
        return err_set(ERR_INTERNAL, "a rank's tables have %" PRId64 " rows, and that is the most", t->rows);
    float *x = reserve(segment_bytes(t));
    if (!x)
        return err_set(ERR_INTERNAL, "no memory for %d more rows of %" PRId64 ", after %" PRId64 ": %s", SEGMENT,
                       t->o.width, t->rows, strerror(errno));
    t->segment[t->segments++] = x;
    return ERR_OK;
}

// A row that is not there yet, with values that mean nothing.
static err_t make_row(row_table *t, row_key k, uint32_t *number) {
    TRY(grow(t));
    if (t->rows == t->segments * SEGMENT) TRY(open_segment(t));
    *number = (uint32_t)t->rows++;
    insert(&t->now, find_slot(t, &t->now, k), (row_slot){k.point, (uint32_t)k.table, *number + 1});
    return ERR_OK;
}

// --- the whole -------------------------------------------------------------------------------------------------------

err_t row_table_open(row_table **out, const row_options *o) {
    row_table *t = *out = calloc(1, sizeof *t);
    if (!t) return err_set(ERR_INTERNAL, "no memory for a table");
    assert(o->width > 0 && o->first >= 0 && o->buckets > 0 && o->first + o->buckets <= ROW_BUCKETS);
    t->o = *o;
    t->base = (uint64_t)o->first << ROW_BUCKET_SHIFT;
    t->segment = calloc(SEGMENTS, sizeof *t->segment);
    memset(t->changed, true, sizeof t->changed);
    err_t rc = t->segment ? open_index(&t->now, SLOTS, o->buckets) : err_set(ERR_INTERNAL, "no memory for a table");
    if (rc == ERR_OK) return ERR_OK;
    row_table_close(t);
    *out = NULL;
    return rc;
}

void row_table_close(row_table *t) {
    if (!t) return;
    for (int64_t k = 0; k < t->segments; k++) munmap(t->segment[k], segment_bytes(t));
    close_index(&t->now), close_index(&t->old);
    free(t->segment);
    free(t);
}

// Pages that were touched become zeros again; their places stay.
void row_table_clear(row_table *t) {
    close_index(&t->old);
    madvise(t->now.slot, index_bytes(&t->now), MADV_DONTNEED);
    t->now.used = t->rows = t->moved = 0;
    memset(t->changed, true, sizeof t->changed);
}

const row_options *row_table_about(const row_table *t) { return &t->o; }
int64_t row_table_rows(const row_table *t) { return t->rows; }
int64_t row_table_left(const row_table *t) { return t->old.slot ? t->old.slots - t->moved : 0; }
int64_t row_table_bytes(const row_table *t) {
    return (int64_t)(index_bytes(&t->now) + index_bytes(&t->old)) + t->segments * (int64_t)segment_bytes(t);
}
bool *row_table_changed(row_table *t) { return t->changed; }

// A look at a key misses the cache twice, at its slot and at its row, and those of many keys can be on their way at the
// same time: slots are asked for 2 * AHEAD keys before they are copied, rows AHEAD keys before.
static void ask_slot(const row_table *t, const row_key *key, int64_t n, int64_t i) {
    if (i < n) __builtin_prefetch(&t->now.slot[home(t, &t->now, key[i].point)]);
}

static void ask_row(const row_table *t, uint32_t number) {
    const char *at = (const char *)row_at(t, number);
    for (size_t line = 0; line < (size_t)t->o.width * sizeof(float); line += 64) __builtin_prefetch(at + line);
}

int64_t row_table_missing(const row_table *t, const row_key *key, int64_t n) {
    int64_t missing = 0;
    for (int64_t i = 0; i < n; i++) {
        ask_slot(t, key, n, i + AHEAD);
        missing += !find_row(t, key[i]);
    }
    return missing;
}

void row_table_look(const row_table *t, const row_key *key, int64_t n, float *rows) {
    const int64_t D = t->o.width;
    uint32_t number[AHEAD];  // of the next keys, plus 1, as find_row
    for (int64_t i = 0; i < 2 * AHEAD; i++) ask_slot(t, key, n, i);
    for (int64_t i = -AHEAD; i < n; i++) {
        uint32_t here = i < 0 ? 0 : number[i % AHEAD];
        int64_t next = i + AHEAD;
        ask_slot(t, key, n, next + AHEAD);
        if (next < n && (number[next % AHEAD] = find_row(t, key[next]))) ask_row(t, number[next % AHEAD] - 1);
        if (i < 0) continue;
        if (here) memcpy(rows + i * D, row_at(t, here - 1), (size_t)D * sizeof *rows);
        else row_initial(&t->o, key[i], rows + i * D);
    }
}

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

static err_t find_or_make(row_table *t, row_key k, uint32_t *number) {
    uint32_t found = find_row(t, k);
    *number = found - 1;
    if (found) return ERR_OK;
    TRY(make_row(t, k, number));
    row_initial(&t->o, k, row_at(t, *number));
    *sum_at(t, *number) = 0;
    return ERR_OK;
}

// As row_table_look. Where a row is does not change when others are made.
err_t row_table_update(row_table *t, const row_list *x, const row_rules *by) {
    const int64_t D = t->o.width;
    uint32_t number[AHEAD];
    for (int64_t i = 0; i < 2 * AHEAD; i++) ask_slot(t, x->key, x->n, i);
    for (int64_t i = -AHEAD; i < x->n; i++) {
        uint32_t here = i < 0 ? 0 : number[i % AHEAD];
        int64_t next = i + AHEAD;
        ask_slot(t, x->key, x->n, next + AHEAD);
        if (next < x->n) {
            TRY(find_or_make(t, x->key[next], &number[next % AHEAD]));
            ask_row(t, number[next % AHEAD]);
            __builtin_prefetch(sum_at(t, number[next % AHEAD]), 1);
        }
        if (i < 0) continue;
        update_row(row_at(t, here), sum_at(t, here), x->row + i * D, by, D);
        t->changed[row_bucket(x->key[i])] = true;
    }
    return ERR_OK;
}

err_t row_table_put(row_table *t, row_key k, const float *row, float sum) {
    uint32_t number;
    int b = row_bucket(k);
    if (b < t->o.first || b >= t->o.first + t->o.buckets || find_row(t, k))
        return err_set(ERR_DATA, "id %" PRIu64 " of table %" PRIu64 " is %s", row_id(k), k.table,
                       b < t->o.first || b >= t->o.first + t->o.buckets ? "another rank's" : "there twice");
    TRY(make_row(t, k, &number));
    memcpy(row_at(t, number), row, (size_t)t->o.width * sizeof *row);
    *sum_at(t, number) = sum;
    t->changed[b] = true;
    return ERR_OK;
}

// --- in order of keys ------------------------------------------------------------------------------------------------

void row_table_begin(row_table *t, int bucket, row_walk *w) {
    move_slots(t, INT64_MAX);
    if (bucket < t->o.first) bucket = t->o.first;
    *w = (row_walk){.slot = t->now.slots};
    if (bucket >= t->o.first + t->o.buckets) return;
    w->slot = find_slot(t, &t->now, (row_key){(uint64_t)bucket << ROW_BUCKET_SHIFT, 0});
}

bool row_table_next(const row_table *t, row_walk *w) {
    const row_index *x = &t->now;
    while (w->slot < x->slots && !x->slot[w->slot].row) w->slot++;
    if (w->slot >= x->slots) return false;
    const row_slot *s = &x->slot[w->slot++];
    w->key = (row_key){s->point, s->table};
    w->row = row_at(t, s->row - 1), w->sum = sum_at(t, s->row - 1);
    return true;
}
