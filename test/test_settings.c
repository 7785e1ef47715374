// test/test_settings.c: the text of a rank's settings comes over a control connection whole, whatever its length, and
// nobody waits for ever for one that does not come; and the words for whom a node waits.
#include "comm/team/internal.h"
#include "comm/team/settings.h"
#include "test/support/team.h"

#include <pthread.h>
#include <sodium.h>

enum { PIECE = FRAME_TEXT - 1 };

typedef struct pair {
    conn ours, theirs;
    char *text;  // what the other side has
    int number;  // of the other side's way to answer
    bool came;
    double took_s;
    char *got;  // SETTINGS_MAX bytes, and no more
} pair;

static void pair_open(pair *p) {
    int fd[2];
    session_keys mine = {0}, others;
    randombytes_buf(&mine, sizeof mine);
    others = mine;
    memcpy(others.send, mine.recv, TEAM_KEY), memcpy(others.recv, mine.send, TEAM_KEY);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
    *p = (pair){.got = malloc(SETTINGS_MAX)};
    conn_open(&p->ours, fd[0], true, 1, &mine);
    conn_open(&p->theirs, fd[1], true, 0, &others);
}

static void pair_close(pair *p) {
    conn_close(&p->ours), conn_close(&p->theirs);
    free(p->got);
}

// false: it ended before one came.
static bool hear(conn *c, frame *f) {
    for (double end = now_s() + 10; now_s() < end;) {
        conn_news news = conn_read(c, f);
        if (news == CONN_FRAME) return true;
        if (news != CONN_NOTHING) return false;
        poll(&(struct pollfd){.fd = c->fd, .events = POLLIN}, 1, 100);
    }
    return false;
}

static void *answer(void *pair_) {
    pair *p = pair_;
    frame f;
    if (hear(&p->theirs, &f) && f.type == FRAME_ASK) settings_tell(&p->theirs, p->text);
    return NULL;
}

static void every_length_comes_whole(void **state) {
    (void)state;
    static const size_t lengths[] = {0,
                                     1,
                                     PIECE - 1,
                                     PIECE,
                                     PIECE + 1,
                                     2 * PIECE,
                                     40 * PIECE,
                                     SETTINGS_MAX - 2,
                                     SETTINGS_MAX - 1,
                                     SETTINGS_MAX,
                                     SETTINGS_MAX + 9};
    char *text = malloc(SETTINGS_MAX + 10);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        pthread_t thread;
        pair p;
        pair_open(&p);
        size_t n = lengths[i], want = n < SETTINGS_MAX ? n : SETTINGS_MAX - 1;
        for (size_t k = 0; k < n; k++) text[k] = (char)(k % 61 ? 'a' + k % 23 + k / PIECE % 3 : '\n');
        text[n] = 0;
        p.text = text;
        pthread_create(&thread, NULL, answer, &p);
        memset(p.got, 'x', SETTINGS_MAX);
        assert_true(settings_ask(&p.ours, p.got));
        pthread_join(thread, NULL);
        if (strlen(p.got) != want || memcmp(p.got, text, want) != 0)
            fail_msg("of %zu bytes came %zu", n, strlen(p.got));
        pair_close(&p);
    }
    free(text);
}

static void *tell(void *pair_) {
    pair *p = pair_;
    settings_tell(&p->theirs, p->text);
    return NULL;
}

// What does not go into the connection at once waits for who reads it late.
static void late_readers_miss_nothing(void **state) {
    (void)state;
    static char text[SETTINGS_MAX];
    pthread_t thread;
    pair p;
    frame f = {0};
    pair_open(&p);
    for (size_t k = 0; k + 1 < sizeof text; k++) text[k] = (char)('a' + k % 23 + k / PIECE % 3);
    p.text = text;
    setsockopt(p.theirs.fd, SOL_SOCKET, SO_SNDBUF, &(int){4096}, sizeof(int));
    pthread_create(&thread, NULL, tell, &p);
    nap(0.2);
    for (size_t have = 0, n; have < strlen(text); have += n) {
        assert_true(hear(&p.ours, &f));
        n = strlen(f.text);
        assert_true(f.type == FRAME_SETTINGS && n > 0 && have + n <= strlen(text));
        if (memcmp(f.text, text + have, n) != 0) fail_msg("after %zu bytes others came than were sent", have);
        assert_int_equal(f.code, have + n == strlen(text));
    }
    pthread_join(thread, NULL);
    pair_close(&p);
}

enum { SAYS_NOTHING, SAYS_IT_SLOWLY, ENDS, SAYS_SOMETHING_ELSE, SAYS_TOO_MUCH, FORGES, READS_NOTHING, WAYS };

static void *ask_in_vain(void *pair_) {
    pair *p = pair_;
    double began = now_s();
    if (p->number == READS_NOTHING) settings_tell(&p->ours, p->text);
    else p->came = settings_ask(&p->ours, p->got);
    p->took_s = now_s() - began;
    return NULL;
}

static void say(pair *p, uint32_t type, size_t n) {
    frame f = {.type = type};
    memset(f.text, 'a', n);
    for (double end = now_s() + 5; !conn_queue(&p->theirs, &f) && now_s() < end;) conn_flush(&p->theirs), nap(0.001);
    conn_flush(&p->theirs);
}

static void say_otherwise(pair *p) {
    switch (p->number) {
    case ENDS: conn_close(&p->theirs); break;
    case SAYS_SOMETHING_ELSE: say(p, FRAME_BEAT, 5); break;
    case FORGES: p->theirs.sent++, say(p, FRAME_SETTINGS, 5); break;
    case SAYS_TOO_MUCH:
        for (int i = 0; i <= SETTINGS_MAX / PIECE; i++) say(p, FRAME_SETTINGS, PIECE);
        break;
    default: break;
    }
}

// All of them at once, as some take their seconds.
static void nobody_waits_for_ever(void **state) {
    (void)state;
    static pair pairs[WAYS];
    pthread_t thread[WAYS];
    char *large = malloc(SETTINGS_MAX);
    memset(large, 'a', SETTINGS_MAX - 1), large[SETTINGS_MAX - 1] = 0;
    for (int k = 0; k < WAYS; k++) {
        pair_open(&pairs[k]);
        pairs[k].number = k, pairs[k].text = large;
        setsockopt(pairs[k].ours.fd, SOL_SOCKET, SO_SNDBUF, &(int){4096}, sizeof(int));
        pthread_create(&thread[k], NULL, ask_in_vain, &pairs[k]);
        say_otherwise(&pairs[k]);
    }
    for (int i = 0; i < 8; i++) nap(0.5), say(&pairs[SAYS_IT_SLOWLY], FRAME_SETTINGS, 1);
    for (int k = 0; k < WAYS; k++) {
        pthread_join(thread[k], NULL);
        bool waits = k == SAYS_NOTHING || k == SAYS_IT_SLOWLY || k == READS_NOTHING;
        if (pairs[k].came || pairs[k].took_s > 8 || (waits && pairs[k].took_s < 1))
            fail_msg("way %d: %d, %.1f s", k, pairs[k].came, pairs[k].took_s);
        if (!waits) assert_true(pairs[k].took_s < 2.5);
        pair_close(&pairs[k]);
    }
    free(large);
}

// --- for whom --------------------------------------------------------------------------------------------------------

enum { MANY = 40 };

static void waits_for(int nodes, int each, const char *missing, const char *text) {
    comm_place place[2 * MANY];
    bool absent[2 * MANY] = {0};
    launch at = {.world = nodes * each, .nodes = nodes, .place = place};
    char got[TEAM_WAIT_TEXT];
    for (int r = 0; r < at.world; r++) {
        place[r] = (comm_place){.node = r / each, .local = r % each, .rank = r};
        snprintf(place[r].host, COMM_HOST, "n%d", r / each);
        absent[r] = missing[r] == 'x';
    }
    absent_text(got, sizeof got, &at, absent);
    assert_string_equal(got, text);
}

static void who_is_absent(void **state) {
    (void)state;
    waits_for(2, 1, ".x", "waiting for n1 (1 of 2 nodes are here)");
    waits_for(3, 1, "..x", "waiting for n2 (2 of 3 nodes are here)");
    waits_for(3, 2, "..xxxx", "waiting for n1, n2 (1 of 3 nodes are here)");
    waits_for(3, 2, "...x..", "waiting for n1 (2 of 3 nodes are here)");  // a part of it is missing
    waits_for(4, 2, "..x...x.", "waiting for n1, n3 (2 of 4 nodes are here)");
    waits_for(3, 2, ".x....", "waiting for n0 (2 of 3 nodes are here)");
    waits_for(1, 4, ".x.x", "waiting for rank 1, 3 (n0)");
    // as many as there is room for, and all are counted
    comm_place place[MANY];
    bool missing[MANY];
    launch at = {.world = MANY, .nodes = MANY, .place = place};
    char text[TEAM_WAIT_TEXT], want[64];
    for (int r = 0; r < MANY; r++) {
        place[r] = (comm_place){.node = r, .rank = r};
        snprintf(place[r].host, COMM_HOST, "a-machine-of-a-very-long-name-%032d", r);
        missing[r] = r > 2;
    }
    for (size_t room = 200; room <= sizeof text; room += 50) {
        absent_text(text, room, &at, missing);
        int named = 0, more = 0, here = 0;
        for (const char *p = text; (p = strstr(p, "a-machine")) != NULL; p++) named++;
        assert_true(strlen(text) < room && named >= 1 && named < MANY - 3);
        assert_int_equal(sscanf(strstr(text, " and "), " and %d more (%d of 40 nodes are here)", &more, &here), 2);
        assert_int_equal(named + more, MANY - 3);
        assert_int_equal(here, 3);
        snprintf(want, sizeof want, "%032d", 3 + named - 1);
        assert_non_null(strstr(text, want));  // whole
        assert_true(text[strlen(text) - 1] == ')');
    }
}

int main(void) {
    if (sodium_init() < 0) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_length_comes_whole),
                                       cmocka_unit_test(late_readers_miss_nothing),
                                       cmocka_unit_test(nobody_waits_for_ever), cmocka_unit_test(who_is_absent)};
    return cmocka_run_group_tests_name("settings", tests, NULL, NULL);
}
