// test/fuzz/fuzz_council.c: any bytes at all as a message between councils, or as the memory of a vote page. What is
// taken is written back as the same bytes, and a council that hears it goes on.
//
//   input    what it is (0: a message, 1: a copy of the vote page), bytes
#include "comm/team/council.h"
#include "test/support/council_messages.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
bool lockstep_fuzz_try(const uint8_t *data, size_t size);
int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx);

static void expect(bool truth) {
    if (!truth) abort();
}

// A council of node 0 of three, in record 4, hears it, and judges.
static void hear(const council_message *m) {
    static council c;
    static council_outbox out;
    static council_decision d;
    static vote_page page;
    static const council_rules rules = {
        .dead_s = 2, .give_up_s = 40, .drain_s = 20, .lanes = 8, .grid = {0, 1, 1, 1}, .fits = {0xFFFF}};
    const council_report own = {.ready = true, .slots = 2, .sealed = -1};
    example_page(&page);
    page.has_value = false, page.promised = page.accepted = (council_ballot){0, 0};
    council_open(&c, &rules, 0, 3, 1000, &page, 100);
    council_take(&c, &out, 100, m);
    expect(out.count <= COUNCIL_OUTBOX);
    for (int i = 1; i < 12; i++) council_tick(&c, &d, &out, 100 + 0.3 * i, &own);
    expect(memchr(d.why, 0, sizeof d.why) != NULL);
}

static bool try_message(const uint8_t *data, size_t size) {
    static council_room room;
    static uint8_t again[COUNCIL_MESSAGE_BYTES];
    council_message m;
    if (council_unpack(&m, &room, data, size) != ERR_OK) return false;
    expect(council_pack(again, sizeof again, &m) == size && memcmp(again, data, size) == 0);
    hear(&m);
    return true;
}

static bool try_page(const uint8_t *data, size_t size) {
    static uint8_t memory[VOTE_PAGE_BYTES];
    static vote_page p, again;
    memset(memory, 0, sizeof memory);
    memcpy(memory + 8, data, size < sizeof memory - 8 ? size : sizeof memory - 8);
    if (vote_page_read(&p, memory) != ERR_OK) return false;
    vote_page_write(memory, &p);
    expect(vote_page_read(&again, memory) == ERR_OK && again.has_record == p.has_record);
    expect(ballot_same(again.promised, p.promised) && again.record.k == p.record.k);
    return true;
}

bool lockstep_fuzz_try(const uint8_t *data, size_t size) {
    if (size < 1) return false;
    return data[0] % 2 ? try_page(data + 1, size - 1) : try_message(data + 1, size - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lockstep_fuzz_try(data, size);
    return 0;
}

int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx) {
    static uint8_t bytes[1 + VOTE_PAGE_BYTES], memory[VOTE_PAGE_BYTES];
    static council_room room;
    static vote_page p;
    council_message m;
    for (int type = 0; type < COUNCIL_TYPES; type++) {
        example_message(&m, &room, (council_type)type);
        bytes[0] = 0;
        seed(ctx, bytes, 1 + council_pack(bytes + 1, COUNCIL_MESSAGE_BYTES, &m));
    }
    example_page(&p);
    vote_page_write(memory, &p), vote_page_write(memory, &p);  // the second one goes to the first copy
    bytes[0] = 1;
    memcpy(bytes + 1, memory + 8, 2000);
    seed(ctx, bytes, 2001);
    return 0;
}
