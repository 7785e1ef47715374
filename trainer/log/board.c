// trainer/log/board.c: see trainer/log/board.h.
//
// The sequence lock is Boehm's ("Can seqlocks get along with programming language memory models?", 2012), with the data
// as atomic words: stores that release, loads that acquire, and no fence, which ThreadSanitizer would not understand.
// On x86-64 they are plain moves. A reader that sees a word of a new writing so also sees that the sequence is odd, or
// has moved on.
#include "trainer/log/board.h"

#include <string.h>
#include <time.h>

_Static_assert(sizeof(board_news) % sizeof(uint64_t) == 0, "board_news is copied in whole words");
_Static_assert(sizeof((board_news *)0)->hash >= BOARD_HASH, "board_news.hash");

const double board_bucket_s[BOARD_BUCKETS - 1] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                  0.25,  0.5,    1,     2.5,  10,    60};

static const char *const phase_names[BOARD_PHASES] = {
    [PHASE_STARTING] = "starting", [PHASE_STEPPING] = "step", [PHASE_EVALUATING] = "evaluate",
    [PHASE_SAMPLING] = "sample",   [PHASE_SAVING] = "save",   [PHASE_ENDED] = "ended"};

const char *board_phase_name(board_phase p) { return (unsigned)p < BOARD_PHASES ? phase_names[p] : "unknown"; }

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#define PUT(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)
#define GET(field) atomic_load_explicit(&(field), memory_order_relaxed)

void board_init(board *b, int locals) {
    int64_t now = now_ns();
    b->locals = locals;
    PUT(b->seats, locals);
    for (int i = 0; i < locals; i++) {
        PUT(b->rank[i].number, -1);
        PUT(b->rank[i].beside_number, -1);
        PUT(b->rank[i].since_ns, now);
        PUT(b->rank[i].phase_ns, now);
    }
}

static void earliest(_Atomic double *to, double at) {
    double is = atomic_load(to);
    while ((is == 0 || at < is) && !atomic_compare_exchange_weak(to, &is, at)) {}
}

void board_lost(board *b, double lost_at, double alive_at) {
    earliest(&b->lost_at, lost_at);
    if (alive_at > 0) earliest(&b->alive_at, alive_at);
}

void board_name_device(board_rank *r, const char *bus_id) {
    if (!r) return;
    strncpy(r->device, bus_id, sizeof r->device - 1);
    atomic_store_explicit(&r->named, 1, memory_order_release);
}

const char *board_device(const board_rank *r) {
    return atomic_load_explicit(&r->named, memory_order_acquire) ? r->device : "";
}

// --- a rank ----------------------------------------------------------------------------------------------------------

static void set(board_rank *r, board_task to, int64_t now) {
    PUT(r->what, to.what);
    PUT(r->waits_for, (int)to.waits_for);
    PUT(r->number, to.number);
    PUT(r->step, to.step);
    PUT(r->since_ns, now);
}

void board_enter(board_rank *r, board_phase phase, int64_t step) {
    if (!r) return;
    int64_t now = now_ns();
    int was = GET(r->phase);
    if (was != (int)phase) {
        PUT(r->in_phase_ns[was], GET(r->in_phase_ns[was]) + now - GET(r->phase_ns));
        PUT(r->phase_ns, now);
        PUT(r->phase, (int)phase);
        flight_phase(&r->flight, board_phase_name(phase), step);
    }
    set(r, (board_task){.number = -1, .step = step}, now);
}

board_task board_waiting(board_rank *r, board_wait waits_for, const char *what, int64_t number, int64_t step) {
    if (!r) return (board_task){0};
    board_task before = {GET(r->what), (board_wait)GET(r->waits_for), GET(r->number), GET(r->step)};
    set(r, (board_task){what, waits_for, number, step}, now_ns());
    return before;
}

board_task board_doing(board_rank *r, const char *what, int64_t number, int64_t step) {
    return board_waiting(r, WAIT_NONE, what, number, step);
}

void board_resume(board_rank *r, board_task before) {
    if (r) set(r, before, now_ns());
}

void board_beside(board_rank *r, const char *what, int64_t number) {
    if (!r) return;
    PUT(r->beside_number, number);
    PUT(r->beside_ns, now_ns());
    PUT(r->beside, what);
}

int64_t board_work(const board *b) {
    int64_t sum = 0;
    for (int i = 0; i < b->locals; i++)
        sum += GET(b->rank[i].work) + __atomic_load_n(&b->rank[i].pulse, __ATOMIC_RELAXED);
    return sum;
}

void board_restart(board_rank *r) {
    PUT(r->beside, NULL);
    board_enter(r, PHASE_STARTING, GET(r->step));
}

// --- news ------------------------------------------------------------------------------------------------------------

static void put_words(atomic_uint *sequence, _Atomic uint64_t *to, const uint64_t *from, size_t words) {
    unsigned even = GET(*sequence) & ~1u;
    PUT(*sequence, even + 1);
    for (size_t i = 0; i < words; i++) atomic_store_explicit(&to[i], from[i], memory_order_release);
    even = even + 2 ? even + 2 : 2;  // 0 says that there is none, also after four billion writings
    atomic_store_explicit(sequence, even, memory_order_release);
}

// false: there is nothing yet, or it was written again and again.
static bool get_words(const atomic_uint *sequence, const _Atomic uint64_t *from, uint64_t *to, size_t words) {
    enum { TRIES = 1000 };
    for (int k = 0; k < TRIES; k++) {
        unsigned before = atomic_load_explicit(sequence, memory_order_acquire);
        if (before == 0) return false;
        if (before % 2) continue;
        for (size_t i = 0; i < words; i++) to[i] = atomic_load_explicit(&from[i], memory_order_acquire);
        if (GET(*sequence) == before) return true;
    }
    return false;
}

void board_publish(board *b, const board_news *news) {
    uint64_t word[BOARD_WORDS];
    memcpy(word, news, sizeof word);
    put_words(&b->sequence, b->news, word, BOARD_WORDS);
}

bool board_read(const board *b, board_news *out) {
    uint64_t word[BOARD_WORDS];
    if (!get_words(&b->sequence, b->news, word, BOARD_WORDS)) return false;
    memcpy(out, word, sizeof word);
    return true;
}

// --- a line of the node's first rank ---------------------------------------------------------------------------------

enum { SAID_WORDS = BOARD_SAID / sizeof(uint64_t) };

void board_say(board *b, const char *text) {
    uint64_t word[SAID_WORDS] = {0};
    strncpy((char *)word, text, BOARD_SAID - 1);
    put_words(&b->saying, b->said, word, SAID_WORDS);
}

void board_said(const board *b, char text[BOARD_SAID]) {
    uint64_t word[SAID_WORDS];
    if (!get_words(&b->saying, b->said, word, SAID_WORDS)) word[0] = 0;
    memcpy(text, word, BOARD_SAID);
    text[BOARD_SAID - 1] = 0;
}
