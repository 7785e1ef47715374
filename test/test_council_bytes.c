// test/test_council_bytes.c: messages, records and the vote page as bytes. What comes back is what was written; what is
// cut off or damaged is refused, or is exactly what other bytes would have been written as.
#include "base/le.h"
#include "test/support/council_messages.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static uint8_t bytes[COUNCIL_MESSAGE_BYTES], again[COUNCIL_MESSAGE_BYTES];
static council_room from, to;
static council_message m, got;

static size_t example(council_type type) {
    example_message(&m, &from, type);
    size_t n = council_pack(bytes, sizeof bytes, &m);
    assert_true(n > 0);
    return n;
}

static void every_message_comes_back(void **state) {
    (void)state;
    for (int type = 0; type < COUNCIL_TYPES; type++) {
        size_t n = example((council_type)type);
        assert_int_equal(council_unpack(&got, &to, bytes, n), ERR_OK);
        assert_int_equal(got.type, type);
        assert_int_equal(got.node, 2);
        assert_int_equal(got.life, 77);
        assert_memory_equal(got.newest, m.newest, sizeof *m.newest);
        assert_int_equal(got.value != NULL, m.value != NULL);
        if (m.value) assert_memory_equal(got.value, m.value, sizeof *m.value);
        assert_true(ballot_same(got.ballot, m.ballot) && ballot_same(got.accepted, m.accepted));
        assert_memory_equal(&got.report, &m.report, sizeof m.report);
        assert_string_equal(got.why, m.why);
        assert_string_equal(got.settings ? got.settings : "", m.settings ? m.settings : "");
        assert_int_equal(council_pack(again, sizeof again, &got), n);
        assert_memory_equal(again, bytes, n);
    }
    example(COUNCIL_REPORT);
    m.newest = NULL;  // of a node that is OUT
    assert_int_equal(council_unpack(&got, &to, bytes, council_pack(bytes, sizeof bytes, &m)), ERR_OK);
    assert_null(got.newest);
}

// The bytes themselves: other builds read them.
static void the_bytes_are_these(void **state) {
    (void)state;
    static const uint8_t head[] = {0, 0, 0, 0, COUNCIL_VERSION, COUNCIL_REPORT, 2, 0, 77, 0, 0, 0, 0, 0, 0, 0, 1};
    static const uint8_t tail[] = {3, 5, 2, 0,    0x9C, 1, 0, 0,  0, 0,    0,    0,    0x90, 1,    0,    0,    0,
                                   0, 0, 0, 0xDC, 5,    0, 0, 34, 0, 0xEF, 0xCD, 0xAB, 0x89, 0x67, 0x45, 0x23, 1};
    size_t n = example(COUNCIL_REPORT);
    assert_int_equal(le32_get(bytes), n);
    assert_memory_equal(bytes + 4, head + 4, sizeof head - 4);
    assert_memory_equal(bytes + 17, "a run of sixteen", 16);
    assert_memory_equal(bytes + n - sizeof tail, tail, sizeof tail);
}

static void no_room(void **state) {
    (void)state;
    for (int type = 0; type < COUNCIL_TYPES; type++) {
        size_t n = example((council_type)type);
        for (size_t room = 0; room < n; room++) assert_int_equal(council_pack(again, room, &m), 0);
        assert_int_equal(council_pack(again, n, &m), n);
    }
}

// Of its own size in memory, so that a sanitizer sees a byte too far.
static err_t read_exact(const uint8_t *src, size_t n) {
    uint8_t *exact = malloc(n ? n : 1);
    memcpy(exact, src, n);
    err_t rc = council_unpack(&got, &to, exact, n);
    free(exact);
    return rc;
}

static void cut_off(void **state) {
    (void)state;
    for (int type = 0; type < COUNCIL_TYPES; type++) {
        size_t n = example((council_type)type);
        for (size_t cut = 0; cut < n; cut++) {
            memcpy(again, bytes, n);
            assert_int_equal(read_exact(again, cut), ERR_DATA);
            le32_put(again, (uint32_t)cut);  // the length agrees with what is there
            assert_int_equal(read_exact(again, cut), ERR_DATA);
        }
        le32_put(bytes, (uint32_t)n + 1);
        assert_int_equal(read_exact(bytes, n + 1), ERR_DATA);
    }
}

static void damaged(void **state) {
    (void)state;
    static uint8_t was[COUNCIL_MESSAGE_BYTES];
    for (int type = 0; type < COUNCIL_TYPES; type++) {
        size_t n = example((council_type)type);
        memcpy(was, bytes, n);
        for (size_t at = 0; at < n; at++)
            for (int bit = 0; bit < 8; bit++) {
                was[at] ^= (uint8_t)(1 << bit);
                if (read_exact(was, n) == ERR_OK) {
                    assert_int_equal(council_pack(again, sizeof again, &got), n);
                    assert_memory_equal(again, was, n);
                }
                was[at] ^= (uint8_t)(1 << bit);
            }
    }
}

// --- what no council writes ------------------------------------------------------------------------------------------

static void refused(const council_record *r, const char *why) {
    council_record back;
    size_t used;
    size_t n = record_pack(bytes, sizeof bytes, r);
    assert_true(n > 0);
    if (record_unpack(&back, bytes, n, &used) != ERR_DATA) fail_msg("%s is taken", why);
}

#define REFUSED(change, why) \
    do { \
        example_record(&r); \
        change; \
        refused(&r, why); \
    } while (0)

static void records_that_do_not_fit_together(void **state) {
    (void)state;
    council_record r;
    REFUSED(r.k = r.epoch = 0, "record 0");
    REFUSED(r.epoch = 5, "an epoch that has not begun");
    REFUSED(r.epoch = 3, "an older epoch without its fence");
    REFUSED(r.fence[31] = 1, "a fence of another record in the one that begins the epoch");
    REFUSED(r.members.word[0] = 0, "a world without members");
    REFUSED(r.voters.word[0] = 0, "a record on which nobody votes");
    REFUSED(r.members.word[0] = 13, "a member beyond the nodes");
    REFUSED(r.voters.word[3] = 1, "a voter beyond the nodes");
    REFUSED(r.evicted.word[0] = 8, "a node beyond the nodes was put out");
    REFUSED(r.high = -1, "a step below 0");
    REFUSED(r.fruitless = COUNCIL_FRUITLESS + 1, "more fruitless epochs than end a run");
    REFUSED(r.kind = DECREES, "an unknown kind");
    REFUSED(r.deal[1] = 4, "more lanes than there are");
    REFUSED(r.seat[1].node = 1, "a seat of no member");
    REFUSED(r.seat[3].slot = 2, "a seat that the node does not have");
    REFUSED(r.seat[1].slot = 0, "a seat given twice");
    REFUSED(r.seat[2].node = 0, "seats out of order");
    REFUSED(r.grid.tensor = 0; r.ranks = 0; r.spares = 4, "a world without ranks");
    example_record(&r);
    council_record back;
    size_t used, n = record_pack(bytes, sizeof bytes, &r);
    bytes[16 + 8 + 8 + 32 + 2] = 0;  // in the reason
    assert_int_equal(record_unpack(&back, bytes, n, &used), ERR_DATA);
    r.why[0] = 0, n = record_pack(bytes, sizeof bytes, &r);
    assert_int_equal(record_unpack(&back, bytes, n, &used), ERR_OK);
    bytes[16 + 8 + 8 + 32 + 2 + 1] = 1;  // 259 nodes
    assert_int_equal(record_unpack(&back, bytes, n, &used), ERR_DATA);
}

static void messages_that_do_not_fit_together(void **state) {
    (void)state;
    example(COUNCIL_ACCEPT);
    from.value.k = from.newest.k, memset(from.value.fence, 0, COUNCIL_FENCE), from.value.epoch = from.value.k;
    assert_int_equal(read_exact(bytes, council_pack(bytes, sizeof bytes, &m)), ERR_DATA);
    assert_non_null(strstr(err_last()->text, "its value does not follow its record"));
    for (int type = COUNCIL_PROMISE; type <= COUNCIL_ACCEPT; type++) {  // nor does one that leaves out a record
        example((council_type)type);
        from.value.k = from.newest.k + 2, memset(from.value.fence, 0, COUNCIL_FENCE), from.value.epoch = from.value.k;
        assert_int_equal(read_exact(bytes, council_pack(bytes, sizeof bytes, &m)), ERR_DATA);
        assert_non_null(strstr(err_last()->text, "its value does not follow its record"));
    }
    example(COUNCIL_ACCEPT);
    from.value.run[0] ^= 1;
    assert_int_equal(read_exact(bytes, council_pack(bytes, sizeof bytes, &m)), ERR_DATA);
    example(COUNCIL_ACCEPT);
    m.value = NULL;
    assert_int_equal(read_exact(bytes, council_pack(bytes, sizeof bytes, &m)), ERR_DATA);
    example(COUNCIL_FORMED);
    from.newest.k = from.newest.epoch = 2;
    assert_int_equal(read_exact(bytes, council_pack(bytes, sizeof bytes, &m)), ERR_DATA);
    example(COUNCIL_REPORT);
    m.life = 0;
    assert_int_equal(read_exact(bytes, council_pack(bytes, sizeof bytes, &m)), ERR_DATA);
    size_t n = example(COUNCIL_REPORT);
    bytes[4] = 1;
    assert_int_equal(read_exact(bytes, n), ERR_DATA);
    assert_non_null(strstr(err_last()->text, "version 1, expected 3"));
}

// --- the fence -------------------------------------------------------------------------------------------------------

static void the_fence(void **state) {
    (void)state;
    council_record r, next;
    uint8_t a[COUNCIL_FENCE], b[COUNCIL_FENCE];
    example_record(&r), example_next(&next);
    council_fence(a, &r), council_fence(b, &next);
    assert_memory_equal(a, b, COUNCIL_FENCE);  // who votes is nothing to ranks
    r.life[2]++;
    council_fence(b, &r);
    assert_memory_not_equal(a, b, COUNCIL_FENCE);
}

// --- the vote page ---------------------------------------------------------------------------------------------------

static void the_page_comes_back(void **state) {
    (void)state;
    static uint8_t memory[VOTE_PAGE_BYTES];
    static vote_page p, back;
    memset(memory, 0, sizeof memory);
    assert_int_equal(vote_page_read(&back, memory), ERR_OK);
    assert_false(back.has_record || back.has_value);
    for (int turn = 0; turn < 3; turn++) {
        example_page(&p);
        p.promised.round += (uint64_t)turn;
        vote_page_write(memory, &p);
        assert_int_equal(vote_page_read(&back, memory), ERR_OK);
        assert_memory_equal(&back.record, &p.record, sizeof p.record);
        assert_memory_equal(&back.value, &p.value, sizeof p.value);
        assert_true(ballot_same(back.promised, p.promised) && ballot_same(back.accepted, p.accepted));
    }
}

// A council is killed while it writes: all bytes but the word that says which copy counts may be anything.
static void a_torn_page(void **state) {
    (void)state;
    static uint8_t memory[VOTE_PAGE_BYTES], later[VOTE_PAGE_BYTES];
    static vote_page p, back;
    memset(memory, 0, sizeof memory);
    example_page(&p);
    for (int turn = 0; turn < 4; turn++) {
        p.promised.round++;
        vote_page_write(memory, &p);
        memcpy(later, memory, sizeof memory);
        example_page(&back);
        back.promised.round = 1000;
        vote_page_write(later, &back);
        memcpy(later, memory, 8);
        assert_int_equal(vote_page_read(&back, later), ERR_OK);
        assert_int_equal(back.promised.round, p.promised.round);
    }
    memory[8] = memory[8 + (VOTE_PAGE_BYTES - 8) / 2] = 2;  // a value and no record
    assert_int_equal(vote_page_read(&back, memory), ERR_DATA);
    memory[8] = memory[8 + (VOTE_PAGE_BYTES - 8) / 2] = 0xFF;
    assert_int_equal(vote_page_read(&back, memory), ERR_DATA);
}

// A process that dies while it writes the page. Its memory lies so that the first bytes of the second copy can be
// written and the rest can't.
static int killed_while_writing(uint8_t *memory, size_t writable, const vote_page *p) {
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        prctl(PR_SET_DUMPABLE, 0);  // no core file
        if (mprotect(memory + writable, VOTE_PAGE_BYTES - writable, PROT_READ) == 0) vote_page_write(memory, p);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

// The word that says which copy counts is written last: before it, the votes of the write before count.
static void a_kill_before_the_copy_is_whole(void **state) {
    (void)state;
    static vote_page p, back;
    const size_t writable = 8 + (VOTE_PAGE_BYTES - 8) / 2 + 4;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (writable + page - 1) / page * page;
    const size_t all = before + (VOTE_PAGE_BYTES - writable + page - 1) / page * page;
    uint8_t *area = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(area != MAP_FAILED);
    uint8_t *memory = area + before - writable;
    example_page(&p);
    for (p.promised.round = 1000; p.promised.round < 1002; p.promised.round++) vote_page_write(memory, &p);
    assert_int_equal(le64_get(memory), 2);
    assert_int_equal(killed_while_writing(memory, writable, &p), SIGSEGV);
    assert_int_equal(vote_page_read(&back, memory), ERR_OK);
    assert_int_equal(back.promised.round, 1001);
    munmap(area, all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_comes_back),
        cmocka_unit_test(the_bytes_are_these),
        cmocka_unit_test(no_room),
        cmocka_unit_test(cut_off),
        cmocka_unit_test(damaged),
        cmocka_unit_test(records_that_do_not_fit_together),
        cmocka_unit_test(messages_that_do_not_fit_together),
        cmocka_unit_test(the_fence),
        cmocka_unit_test(the_page_comes_back),
        cmocka_unit_test(a_torn_page),
        cmocka_unit_test(a_kill_before_the_copy_is_whole),
    };
    return cmocka_run_group_tests_name("council bytes", tests, NULL, NULL);
}
