// test/test_door.c: recorded messages open no connection a second time, a visitor that stays silent is dropped, and
// another version of the protocol is refused by its number. The test records a real conversation and replays it: to a
// caller, and into the memory that two ranks share.
#include "test/support/team.h"

#include "comm/team/internal.h"
#include "comm/team/shm.h"
#include "comm/transport.h"

#include <netdb.h>

// --- a caller --------------------------------------------------------------------------------------------------------

// Takes in who calls this listener, and reads its hello.
static int hear_caller(int listener, uint8_t said[HELLO_BYTES]) {
    struct timeval limit = {20, 0};
    struct pollfd p = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 20000), 1);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    assert_true(read_all(fd, said, HELLO_BYTES));
    return fd;
}

// They would go on calling.
static void end_callers(scene *s) {
    for (int i = 0; i < s->children; i++) kill(s->child[i], SIGKILL);
    reap(s);
}

// Two processes, each of which calls three times: no nonce comes twice, and none is a pattern.
static void every_call_has_its_own_nonce(void **state) {
    (void)state;
    enum { CALLS = 6, SAME_BYTES_MOST = 12 };
    uint8_t said[HELLO_BYTES];
    hello heard[CALLS];
    scene *s = scene_open(2, (int[]){1, 1});
    int listener = listen_at(0, s->port);
    for (int i = 0; i < CALLS; i++) {
        if (i % 3 == 0) start_node(s, 1, -1);
        int fd = hear_caller(listener, said);
        assert_true(hello_unpack(&heard[i], said, false));
        close(fd);
        if (i % 3 == 2) end_callers(s);
        for (int k = 0; k < i; k++) assert_memory_not_equal(heard[i].nonce, heard[k].nonce, HELLO_NONCE);
        for (int b = 0, same = 0; b < HELLO_NONCE; b++)
            assert_true((same += heard[i].nonce[b] == heard[i].nonce[0]) < SAME_BYTES_MOST);
    }
    close(listener);
    scene_close(s);
}

// What rank 0 says to a caller until the team stands: its hello and proof, its confirmation, and the word to go.
typedef struct recording {
    uint8_t answer[HELLO_BYTES + PROOF_BYTES], welcome[PROOF_BYTES], go[FRAME_BYTES];
} recording;

static void be_rank_0(int fd, const uint8_t *said, recording *out) {
    handshake h;
    uint8_t proof[PROOF_BYTES];
    hello mine = {.version = HELLO_VERSION, .role = ROLE_CONTROL, .nonce = {2, 7, 1, 8}};
    handshake_answer(&h, &mine, secret);
    assert_int_equal(handshake_feed(&h, said, HELLO_BYTES), HANDSHAKE_GOING);
    assert_int_equal(h.queued, sizeof out->answer);
    memcpy(out->answer, h.out, sizeof out->answer);
    h.sent = h.queued;
    assert_true(write_all(fd, out->answer, sizeof out->answer));
    assert_true(read_all(fd, proof, sizeof proof));
    assert_int_equal(handshake_feed(&h, proof, sizeof proof), HANDSHAKE_KNOWN);
    assert_int_equal(h.queued, sizeof out->welcome);
    memcpy(out->welcome, h.out, sizeof out->welcome);
    frame_seal(out->go, &(frame){.type = FRAME_GO}, h.keys.send, 0);
    assert_true(write_all(fd, out->welcome, sizeof out->welcome) && write_all(fd, out->go, sizeof out->go));
}

// Somebody who overheard rank 0, and has its address now, says the same to a rank that was started again.
static void a_recorded_answer_is_not_believed(void **state) {
    (void)state;
    uint8_t said[HELLO_BYTES];
    recording heard;
    scene *s = scene_open(2, (int[]){1, 1});
    int listener = listen_at(0, s->port);
    start_node(s, 1, -1);
    int fd = hear_caller(listener, said);
    be_rank_0(fd, said, &heard);
    assert_int_equal(reap(s), 0);
    close(fd);
    assert_int_equal(s->b->rank[1].joined, ERR_OK);  // the words are the right ones
    s->o.timeout_s = 1;
    start_node(s, 1, -1);
    fd = hear_caller(listener, said);
    send(fd, &heard, sizeof heard, MSG_NOSIGNAL);
    assert_int_equal(reap(s), 0);
    assert_int_equal(s->b->rank[1].joined, ERR_AUTH);
    assert_text(s->b->rank[1].text, "does not know the secret");
    close(fd);
    close(listener);
    scene_close(s);
}

// --- versions --------------------------------------------------------------------------------------------------------

static void another_version_is_refused(void **state) {
    (void)state;
    for (int newer = 0; newer < 2; newer++) {
        scene *s = scene_open(2, (int[]){1, 1});
        uint8_t said[HELLO_BYTES + PROOF_BYTES];
        handshake h;
        frame f;
        char both[2][64];
        hello mine = hello_of(s, 1, 1, 9);
        mine.version = newer ? HELLO_VERSION + 1 : HELLO_VERSION - 1;
        start_node(s, 0, -1);
        int fd = dial(0, s->port);
        assert_true(call_rank_0(fd, &h, &mine, said));
        assert_true(next_frame(fd, &h, 0, &f));
        assert_int_equal(f.type, FRAME_FAIL);
        assert_int_equal(f.code, ERR_CONFIG);
        snprintf(both[0], sizeof both[0], "rank 1 (127.0.0.2) has protocol version %u", mine.version);
        snprintf(both[1], sizeof both[1], "rank 0 (127.0.0.1) has %d: install the same binary", HELLO_VERSION);
        assert_int_equal(reap(s), 0);
        assert_int_equal(s->b->rank[0].joined, ERR_CONFIG);
        for (int i = 0; i < 2; i++) {
            assert_text(f.text, both[i]);
            assert_text(s->b->rank[0].text, both[i]);
        }
        close(fd);
        scene_close(s);
    }
}

// --- limits ----------------------------------------------------------------------------------------------------------

static const double visit_s = 5, visit_most_s = 25;  // what the product allows, and what a busy machine may make of it

// Has the other side ended this connection? What it says is read and thrown away.
static bool ended(int fd) {
    uint8_t bytes[256];
    for (;;) {
        ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno == ECONNRESET)) return true;
        if (n < 0) return false;
    }
}

typedef enum { SILENT, SLOW, UNPROVEN, VISITORS } visitor_kind;

// One that says nothing, one that says its hello byte by byte, and one that never sends its proof: each has five
// seconds in all, no less and not for ever; who is expected still gets in.
static void a_visit_has_an_end(void **state) {
    (void)state;
    int fd[VISITORS], open = VISITORS;
    double since[VISITORS];
    uint8_t packed[HELLO_BYTES];
    size_t said = 0;
    scene *s = scene_open(2, (int[]){1, 1});
    hello mine = hello_of(s, 1, 1, 9);
    hello_pack(packed, &mine, false);
    s->o.timeout_s = visit_most_s + 10;
    s->body = wait_for_all;
    start_node(s, 0, -1);
    for (int i = 0; i < VISITORS; i++) since[i] = now_s(), fd[i] = dial(0, s->port), assert_true(fd[i] >= 0);
    assert_true(write_all(fd[UNPROVEN], packed, sizeof packed));
    for (double until = now_s() + visit_most_s; open > 0; nap(0.1)) {
        if (fd[SLOW] >= 0 && said < sizeof packed) send(fd[SLOW], packed + said++, 1, MSG_NOSIGNAL);
        for (int i = 0; i < VISITORS; i++) {
            if (fd[i] < 0 || !ended(fd[i])) continue;
            if (now_s() - since[i] < visit_s) fail_msg("visitor %d was sent away after %.1f s", i, now_s() - since[i]);
            close(fd[i]);
            fd[i] = -1, open--;
        }
        if (now_s() > until) fail_msg("%d visitors are still in the door after %.0f s", open, visit_most_s);
    }
    start_node(s, 1, -1);
    assert_int_equal(reap(s), 0);
    all_well(s);
    scene_close(s);
}

// Somebody has rank 0's port and answers nothing: the caller tries anew.
static void a_silent_answerer_is_left(void **state) {
    (void)state;
    uint8_t said[2][HELLO_BYTES];
    scene *s = scene_open(2, (int[]){1, 1});
    s->o.timeout_s = visit_most_s + 10;
    int listener = listen_at(0, s->port);
    double since = now_s();
    start_node(s, 1, -1);
    int first = hear_caller(listener, said[0]), again = hear_caller(listener, said[1]);
    if (now_s() - since < visit_s) fail_msg("the caller hung up after %.1f s", now_s() - since);
    assert_true(ended(first));
    assert_memory_not_equal(said[0], said[1], HELLO_BYTES);
    end_callers(s);
    close(again);
    close(first);
    close(listener);
    scene_close(s);
}

// A host has two addresses, and no process listens at the first one: the second one is called next.
static void the_second_address_is_called_too(void **state) {
    (void)state;
    int port = free_port(), listener = listen_at(0, port), nobody = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at[2] = {address(0, port + 1), address(0, port)};
    assert_int_equal(bind(nobody, (struct sockaddr *)&at[0], sizeof at[0]), 0);
    struct addrinfo known[2];
    for (int i = 0; i < 2; i++)
        known[i] = (struct addrinfo){.ai_family = AF_INET,
                                     .ai_socktype = SOCK_STREAM,
                                     .ai_addr = (struct sockaddr *)&at[i],
                                     .ai_addrlen = sizeof at[i]};
    known[0].ai_next = &known[1];
    static team t;
    static launch l;
    t.at = &l;
    meeting m = {.t = &t, .secret = secret, .mine = {.role = ROLE_COUNCIL}, .remembers = true};
    assert_int_equal(meeting_open(&m, 0, 1, 1), ERR_OK);
    m.poll[0] = (struct pollfd){.fd = -1};
    m.caller[0] = (caller){.fd = -1, .host = "two", .known = known};
    struct pollfd called = {.fd = listener, .events = POLLIN};
    for (double until = now_s() + 20; poll(&called, 1, 0) == 0;) {
        if (now_s() > until) fail_msg("only the first address was called: %s", m.caller[0].why);
        assert_int_equal(meeting_turn(&m, clock_now() + 0.02), ERR_OK);
    }
    m.caller[0].known = NULL;  // it is the test's
    meeting_close(&m);
    close(nobody);
    close(listener);
}

// --- messages in shared memory ---------------------------------------------------------------------------------------

enum { WORDS = 100 };

// The ring's bytes of this rank's last message, once more, as if they had been sent again.
static bool play_last_again(const launch *at, size_t from) {
    shm near;
    ring out, in, *r = &out;
    char *to;
    if (shm_rings(at, 0, 0, &out, &in) != ERR_OK || shm_attach(&near, at) != ERR_OK) return false;
    size_t n = (size_t)r->at - from;
    bool room = n > WORDS * sizeof(int32_t) && from + 2 * n < r->room && ring_space(r, &to) >= n;
    if (room) {
        memcpy(to, r->data + from, n);
        ring_publish(r, n);
        shm_wake(&near, 0);
    }
    shm_detach(&near);
    return room;
}

static size_t ring_at_now(const launch *at) {
    ring out, in;
    return shm_rings(at, 0, 0, &out, &in) == ERR_OK ? (size_t)out.at : SIZE_MAX;
}

// Rank 1 sends twice, different words; number 2: the second time what it played is the first message again.
static void send_twice(scene *s, team *t, result *r) {
    const launch *at = team_at(t);
    int32_t words[WORDS];
    comm *c;
    wait_for_all(s, t, r);
    if (comm_tcp_open(&c, t, &(transport_options){.timeout_s = 10}) != ERR_OK) return;
    size_t from = at->rank == 1 ? ring_at_now(at) : 0;
    for (int turn = 1; turn <= 2; turn++) {
        for (int i = 0; i < WORDS; i++) words[i] = at->rank == 1 ? turn * 1000 + i : 0;
        if (at->rank == 1 && turn == s->number) {
            if (!play_last_again(at, from)) break;
            poll(&(struct pollfd){.fd = team_fd(t), .events = POLLIN}, 1, 20000);  // rank 0 gives up
            break;
        }
        err_t rc = c->table->broadcast(c, words, sizeof words, 1, NULL);
        keep_text(r->text, rc);
        if (rc != ERR_OK) break;
        r->links += words[WORDS - 1] == turn * 1000 + WORDS - 1;
    }
    c->table->close(c);
}

static void a_message_played_again_is_noticed(void **state) {
    (void)state;
    for (int again = 0; again < 2; again++) {
        scene *s = scene_open(1, (int[]){2});
        s->number = again ? 2 : 0;
        s->body = send_twice;
        run_all(s);
        const result *r = s->b->rank;
        assert_int_equal(r[0].links, again ? 1 : 2);
        assert_int_equal(r[1].links, again ? 1 : 2);
        if (again)
            assert_text(r[0].text, "rank 1 (127.0.0.1) sends message number 0, expected 1: the stream is damaged");
        for (int i = 0; i < 2; i++) assert_int_equal(r[i].after, again ? ERR_UNAVAILABLE : ERR_OK);
        scene_close(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_has_its_own_nonce),      cmocka_unit_test(a_recorded_answer_is_not_believed),
        cmocka_unit_test(another_version_is_refused),        cmocka_unit_test(a_visit_has_an_end),
        cmocka_unit_test(a_silent_answerer_is_left),         cmocka_unit_test(the_second_address_is_called_too),
        cmocka_unit_test(a_message_played_again_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
