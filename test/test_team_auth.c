// test/test_team_auth.c: who does not know the secret does not get in, whatever it sends, plays back or holds open; and
// those who know it get in nevertheless, in time.
#include "test/support/team.h"

// --- another secret --------------------------------------------------------------------------------------------------

static void wrong_secret_on_node_1(scene *s, launch *l, team_options *o) {
    if (l->node == 1 && atomic_load(&s->b->go) == 0) o->secret[5] ^= 1;
}

static void wrong_secret(void **state) {
    (void)state;
    char where[64];
    scene *s = scene_open(2, (int[]){1, 1});
    s->o.timeout_s = 1;
    s->tweak = wrong_secret_on_node_1;
    snprintf(where, sizeof where, "127.0.0.1:%d", s->port);
    run_all(s);
    const result *r = s->b->rank;
    assert_int_equal(r[1].joined, ERR_AUTH);
    assert_text(r[1].text, where);
    assert_text(r[1].text, "does not know the secret, and in 1 s nobody did");
    assert_text(r[1].text, "secret_file");
    assert_true(r[1].join_s >= 0.9);  // until then the right one might have come
    assert_int_equal(r[0].joined, ERR_UNAVAILABLE);
    assert_text(r[0].text, "1 of 2 ranks did not come within 1 s: rank 1 (127.0.0.2)");
    assert_text(r[0].text, "sent away");
    scene_close(s);
}

static void soon_over_on_node_1(scene *s, launch *l, team_options *o) {
    wrong_secret_on_node_1(s, l, o);
    if (l->node == 1 && atomic_load(&s->b->go) == 0) o->timeout_s = 1;
}

static void wrong_secret_then_right_one(void **state) {
    (void)state;
    scene *s = scene_open(2, (int[]){1, 1});
    s->tweak = soon_over_on_node_1;
    s->body = wait_for_all;
    start_node(s, 1, RANKS);
    start_node(s, 0, -1);
    for (double end = now_s() + 5; s->b->rank[RANKS].joined < 0 && now_s() < end;) nap(0.01);
    assert_int_equal(s->b->rank[RANKS].joined, ERR_AUTH);
    atomic_store(&s->b->go, 1);
    start_node(s, 1, -1);
    assert_int_equal(reap(s), 0);
    all_well(s);
    scene_close(s);
}

// --- the handshake, and those who cheat ------------------------------------------------------------------------------

// Carries what one side has queued to the other; byte number *broken of the whole conversation is changed on its way.
static void carry(handshake *from, handshake *to, long *broken) {
    while (from->sent < from->queued) {
        uint8_t byte = from->out[from->sent++];
        if ((*broken)-- == 0) byte ^= 0x10;
        if (to->state == HANDSHAKE_GOING) handshake_feed(to, &byte, 1);
    }
}

static void talk(handshake *a, handshake *b, const uint8_t *key_b, long broken) {
    hello caller = hello_of(NULL, 1, 1, 1), answerer = {.role = ROLE_CONTROL, .nonce = {2}};
    handshake_call(a, &caller, secret);
    handshake_answer(b, &answerer, key_b);
    for (int i = 0; i < 3; i++) carry(a, b, &broken), carry(b, a, &broken);
}

static void handshake_holds(void **state) {
    (void)state;
    handshake a, b;
    talk(&a, &b, secret, -1);
    assert_int_equal(a.state, HANDSHAKE_KNOWN);
    assert_int_equal(b.state, HANDSHAKE_KNOWN);
    assert_true(a.proven);  // from here on the caller waits as long as the answerer takes (door.c)
    assert_memory_equal(a.keys.send, b.keys.recv, TEAM_KEY);
    assert_memory_equal(a.keys.recv, b.keys.send, TEAM_KEY);
    assert_memory_equal(a.keys.link_send, b.keys.link_recv, TEAM_KEY);
    assert_memory_equal(a.keys.link_recv, b.keys.link_send, TEAM_KEY);
    assert_memory_not_equal(a.keys.send, a.keys.recv, TEAM_KEY);
    assert_memory_not_equal(a.keys.send, a.keys.link_send, TEAM_KEY);
    assert_int_equal(b.theirs.rank, 1);
    assert_string_equal(b.theirs.build, "1a2b");
    for (long i = 0; i < HANDSHAKE_BYTES; i++) {  // no byte is without meaning
        talk(&a, &b, secret, i);
        assert_false(a.state == HANDSHAKE_KNOWN);
        assert_true(b.state != HANDSHAKE_KNOWN || i >= HANDSHAKE_BYTES - PROOF_BYTES);
    }
    // The answering side repeats the caller's channel; another one is not what was called.
    hello caller = hello_of(NULL, 1, 1, 1), answerer = {.role = ROLE_DATA, .nonce = {2}};
    uint8_t said[HELLO_BYTES + PROOF_BYTES] = {0};
    caller.role = ROLE_DATA, caller.channel = 5;
    handshake_call(&a, &caller, secret);
    a.sent = a.queued;
    answerer.channel = 4;
    hello_pack(said, &answerer, true);
    assert_int_equal(handshake_feed(&a, said, sizeof said), HANDSHAKE_GARBAGE);
    uint8_t other[TEAM_KEY];
    memcpy(other, secret, sizeof other);
    other[31] ^= 0x80;
    talk(&a, &b, other, -1);
    assert_int_equal(a.state, HANDSHAKE_STRANGER);
    assert_int_equal(b.state, HANDSHAKE_GOING);
    assert_int_equal(a.length, 2 * HELLO_BYTES);  // the caller has shown its hello and nothing else
    assert_int_equal(a.sent, a.queued);
}

static void garbage_ends_at_its_first_byte(void **state) {
    (void)state;
    handshake h;
    hello answerer = {.role = ROLE_CONTROL};
    uint8_t bytes[HELLO_BYTES + PROOF_BYTES] = "lockstoP";
    for (size_t i = 0; i < 8; i++) {
        handshake_answer(&h, &answerer, secret);
        bytes[i] ^= 0x20;
        size_t n = 0;
        while (n < sizeof bytes && handshake_feed(&h, bytes + n, 1) == HANDSHAKE_GOING) n++;
        assert_int_equal(h.state, HANDSHAKE_GARBAGE);
        assert_int_equal(n, i < 6 ? i : 6);
        bytes[i] ^= 0x20;
    }
    for (size_t i = 0; i < 6; i++) {  // so it is for who calls
        hello caller = {.role = ROLE_CONTROL};
        handshake_call(&h, &caller, secret);
        h.sent = h.queued;
        bytes[i] ^= 0x20;
        size_t n = 0;
        while (n < sizeof bytes && handshake_feed(&h, bytes + n, 1) == HANDSHAKE_GOING) n++;
        assert_int_equal(h.state, HANDSHAKE_GARBAGE);
        assert_int_equal(n, i);
        bytes[i] ^= 0x20;
    }
    for (int i = 0; i < 4;
         i++) {  // a hello, but of the answering side, for another use of the connection, for another rank
        hello caller = {.role = i == 1 ? ROLE_DATA : ROLE_CONTROL, .target = i == 2};
        hello_pack(bytes, &caller, i == 0);
        handshake_answer(&h, &answerer, secret);
        assert_int_equal(handshake_feed(&h, bytes, HELLO_BYTES), i < 3 ? HANDSHAKE_GARBAGE : HANDSHAKE_GOING);
        assert_int_equal(h.queued, i < 3 ? 0 : HELLO_BYTES + PROOF_BYTES);
    }
    handshake_answer(&h, &answerer, secret);
    assert_int_equal(handshake_room(&h), HELLO_BYTES);
    assert_int_equal(handshake_feed(&h, bytes, sizeof bytes), HANDSHAKE_GARBAGE);  // more than there is room for
}

static void frames_are_sealed(void **state) {
    (void)state;
    uint8_t bytes[FRAME_BYTES], key[TEAM_KEY] = {3}, other[TEAM_KEY] = {4};
    frame f = {.type = FRAME_FAIL, .code = 69, .step = -5, .number = INT64_MAX, .text = "why"}, g;
    frame_seal(bytes, &f, key, 41);
    assert_true(frame_open(&g, bytes, key, 41));
    assert_int_equal(g.type, FRAME_FAIL);
    assert_int_equal(g.code, 69);
    assert_true(g.step == -5 && g.number == INT64_MAX);
    assert_string_equal(g.text, "why");
    assert_false(frame_open(&g, bytes, key, 40));
    assert_false(frame_open(&g, bytes, key, 42));
    assert_false(frame_open(&g, bytes, other, 41));
    for (int i = 0; i < FRAME_BYTES; i++) {
        bytes[i] ^= 1;
        assert_false(frame_open(&g, bytes, key, 41));
        bytes[i] ^= 1;
    }
}

static bool get_frame(int fd, const handshake *h, uint64_t counter, uint32_t type) {
    frame f;
    return next_frame(fd, h, counter, &f) && f.type == type;
}

// A conversation that was overheard is of no use, nor is rank 0's own proof; and rank 0 goes on undisturbed.
static void overheard_and_reflected(void **state) {
    (void)state;
    scene *s = scene_open(3, (int[]){1, 1, 1});
    uint8_t said[HELLO_BYTES + PROOF_BYTES], answer[HELLO_BYTES + PROOF_BYTES];
    handshake h;
    hello mine = hello_of(s, 1, 1, 9);
    start_node(s, 0, -1);
    int fd = dial(0, s->port);
    assert_true(call_rank_0(fd, &h, &mine, said));
    int again = dial(0, s->port);  // word for word
    assert_true(write_all(again, said, sizeof said));
    assert_true(read_all(again, answer, sizeof answer));
    assert_true(hangs_up(again));
    close(again);
    again = dial(0, s->port);  // rank 0's proof as ours
    assert_true(write_all(again, said, HELLO_BYTES));
    assert_true(read_all(again, answer, sizeof answer));
    assert_true(write_all(again, answer + HELLO_BYTES, PROOF_BYTES));
    assert_true(hangs_up(again));
    close(again);
    hello nothing;  // before the proof rank 0 tells nothing about itself
    assert_true(hello_unpack(&nothing, answer, true));
    assert_int_equal(nothing.world, 0);
    assert_string_equal(nothing.build, "");
    assert_string_equal(nothing.config_hash, "");
    start_node(s, 2, -1);
    assert_true(get_frame(fd, &h, 0, FRAME_GO));
    uint8_t bytes[FRAME_BYTES];
    frame_seal(bytes, &(frame){.type = FRAME_BYE}, h.keys.send, 0);
    assert_true(write_all(fd, bytes, sizeof bytes));
    assert_int_equal(reap(s), 0);
    assert_int_equal(s->b->rank[0].joined, ERR_OK);
    assert_int_equal(s->b->rank[2].joined, ERR_OK);
    assert_int_equal(s->b->rank[0].after, ERR_OK);
    close(fd);
    scene_close(s);
}

static void wait_for_failure(scene *s, team *t, result *r) {
    (void)s;
    struct pollfd p = {.fd = team_fd(t), .events = POLLIN};
    r->noticed_s = poll(&p, 1, 5000) == 1 ? 0 : 1e9;
}

static void send_frame(int fd, const handshake *h, uint64_t counter, const frame *f) {
    uint8_t bytes[FRAME_BYTES];
    frame_seal(bytes, f, h->keys.send, counter);
    assert_true(write_all(fd, bytes, sizeof bytes));
}

// A message played twice ends the connection, and the run.
static void frame_played_twice(void **state) {
    (void)state;
    const frame dance = {.type = FRAME_BEAT, .text = "dance", .step = 3, .number = -1};
    for (int twice = 0; twice < 2; twice++) {
        scene *s = scene_open(2, (int[]){1, 1});
        uint8_t said[HELLO_BYTES + PROOF_BYTES];
        handshake h;
        hello mine = hello_of(s, 1, 1, 9);
        s->body = wait_for_failure;
        start_node(s, 0, -1);
        int fd = dial(0, s->port);
        assert_true(call_rank_0(fd, &h, &mine, said));
        assert_true(get_frame(fd, &h, 0, FRAME_GO));
        send_frame(fd, &h, 0, &dance);
        send_frame(fd, &h, twice ? 0 : 1, &dance);
        if (!twice) send_frame(fd, &h, 2, &(frame){.type = FRAME_FAIL, .code = ERR_DATA, .text = "rank 1: as planned"});
        assert_int_equal(reap(s), 0);
        assert_int_equal(s->b->rank[0].joined, ERR_OK);
        assert_int_equal(s->b->rank[0].after, twice ? ERR_UNAVAILABLE : ERR_DATA);
        assert_text(s->b->rank[0].later,
                    twice ? "rank 1 (127.0.0.2) is lost: a message on its control connection is not what was sent"
                          : "as planned");
        if (twice) assert_text(s->b->rank[0].later, "in dance of step 3");
        close(fd);
        scene_close(s);
    }
}

// One that joins and shows signs of life but opens no data connection: all others end, and name it.
static void a_rank_that_does_not_link(void **state) {
    (void)state;
    scene *s = scene_open(3, (int[]){1, 1, 1});
    uint8_t said[HELLO_BYTES + PROOF_BYTES];
    handshake h;
    hello mine = hello_of(s, 2, 2, 9), data = mine;
    data.role = ROLE_DATA, data.channel = 1;
    s->o.links = true;
    s->o.timeout_s = 1;
    start_node(s, 0, -1);
    start_node(s, 1, -1);
    int fd = dial(0, s->port);
    assert_true(call_rank_0(fd, &h, &mine, said));
    assert_true(get_frame(fd, &h, 0, FRAME_GO));
    handshake of_data;
    // a connection that proves itself, for a channel that the run does not have, is none
    int other = dial(0, s->port + 1);
    assert_true(call_rank_0(other, &of_data, &data, said));
    assert_int_equal(of_data.theirs.channel, 1);
    assert_true(hangs_up(other));
    close(other);
    for (uint64_t i = 0; i < 15; i++, nap(0.1)) {
        uint8_t bytes[FRAME_BYTES];
        frame_seal(bytes, &(frame){.type = FRAME_BEAT, .step = -1, .number = -1}, h.keys.send, i);
        write_all(fd, bytes, sizeof bytes);
    }
    assert_int_equal(reap(s), 0);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(s->b->rank[r].joined, ERR_UNAVAILABLE);
        assert_text(s->b->rank[r].text, "no data connection within 1 s to rank 2 (127.0.0.3)");
        assert_true(s->b->rank[r].join_s < 2.5);
    }
    close(fd);
    scene_close(s);
}

// Somebody else has rank 0's port, and sends the callers' own words back. Afterwards rank 0 comes (`then`), or nobody
// does.
static void strangers_answer(bool then) {
    for (int changed = 0; changed < 3; changed++) {
        scene *s = scene_open(2, (int[]){1, 1});
        uint8_t bytes[HELLO_BYTES + PROOF_BYTES] = {0};
        s->o.timeout_s = then ? 10 : 1;
        s->body = wait_for_all;
        start_node(s, 1, -1);
        int listener = listen_at(0, s->port);  // of this process alone: rank 0 will have the port
        for (int call = 0; call < 3; call++) {
            int fd = accept(listener, NULL, NULL);
            assert_true(read_all(fd, bytes, HELLO_BYTES));
            if (changed == 1) bytes[HELLO_MAGIC] = 1, bytes[HELLO_MAGIC + 16] = 0;  // as if rank 0 had said it
            if (changed == 2) memcpy(bytes, "HTTP/1.1 400 Bad Request", 24);
            assert_true(write_all(fd, bytes, sizeof bytes));
            char byte;
            assert_int_equal(recv(fd, &byte, 1, 0) > 0, 0);  // it has nothing more to say
            close(fd);
        }
        close(listener);
        if (then) start_node(s, 0, -1);
        assert_int_equal(reap(s), 0);
        if (then) all_well(s);
        else {
            assert_int_equal(s->b->rank[1].joined, changed == 1 ? ERR_AUTH : ERR_UNAVAILABLE);
            assert_text(s->b->rank[1].text, changed == 1 ? "does not know the secret"
                                                         : "something else than this run answers at 127.0.0.1:");
        }
        scene_close(s);
    }
}

static void false_rank_0(void **state) {
    (void)state;
    strangers_answer(false);
}

static void rank_0_after_a_false_one(void **state) {
    (void)state;
    strangers_answer(true);
}

// A bit of what rank 0 answers is changed on the way, in one call after the other: as long as this side has not
// proven itself, it calls again.
static void a_changed_bit_is_called_again(void **state) {
    (void)state;
    static const size_t at[] = {
        0, HELLO_MAGIC, HELLO_MAGIC + 8, HELLO_MAGIC + 16, HELLO_BYTES - 1, HELLO_BYTES, HELLO_BYTES + PROOF_BYTES - 1};
    uint8_t said[HELLO_BYTES], answer[HELLO_BYTES + PROOF_BYTES];
    scene *s = scene_open(2, (int[]){1, 1});
    s->body = wait_for_all;
    start_node(s, 1, -1);
    int listener = listen_at(0, s->port);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        handshake h;
        hello mine = {.version = HELLO_VERSION, .role = ROLE_CONTROL, .nonce = {(uint8_t)i}};
        int fd = accept(listener, NULL, NULL);
        assert_true(read_all(fd, said, sizeof said));
        handshake_answer(&h, &mine, secret);
        assert_int_equal(handshake_feed(&h, said, sizeof said), HANDSHAKE_GOING);
        memcpy(answer, h.out, sizeof answer);
        answer[at[i]] ^= 1;
        assert_true(write_all(fd, answer, sizeof answer));
        assert_true(hangs_up(fd));
        close(fd);
    }
    close(listener);
    start_node(s, 0, -1);
    assert_int_equal(reap(s), 0);
    all_well(s);
    scene_close(s);
}

// Answers a call in rank 0's place, as rank 0 would; of its last word one bit is changed if it is so wanted.
static int answer_call(int listener, hello_role role, handshake *h, uint8_t nonce, bool changed) {
    uint8_t said[HELLO_BYTES];
    hello mine = {.version = HELLO_VERSION, .role = role, .nonce = {nonce}};
    assert_int_equal(poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, 5000), 1);
    int fd = accept(listener, NULL, NULL);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){5, 0}, sizeof(struct timeval));
    handshake_answer(h, &mine, secret);
    while (h->state == HANDSHAKE_GOING) {
        size_t room = handshake_room(h);
        assert_true(read_all(fd, said, room));
        handshake_feed(h, said, room);
        if (changed && h->state == HANDSHAKE_KNOWN) h->out[h->queued - 1] ^= 1;
        assert_true(write_all(fd, h->out + h->sent, h->queued - h->sent));
        h->sent = h->queued;
    }
    assert_int_equal(h->state, HANDSHAKE_KNOWN);
    return fd;
}

// When this side has proven itself rank 0 counts it among those who came: a changed last word ends that. For a data
// connection it calls again.
static void a_changed_last_word(void **state) {
    (void)state;
    for (int data = 0; data < 2; data++) {
        scene *s = scene_open(2, (int[]){1, 1});
        handshake h, of_data;
        s->o.links = true;
        int listener = listen_at(0, s->port), links = listen_at(0, s->port + 1);
        start_node(s, 1, -1);
        int fd = answer_call(listener, ROLE_CONTROL, &h, 1, !data), other = -1;
        if (data) {
            send_frame(fd, &h, 0, &(frame){.type = FRAME_GO});
            int wrong = answer_call(links, ROLE_DATA, &of_data, 2, true);
            assert_true(hangs_up(wrong));
            close(wrong);
            other = answer_call(links, ROLE_DATA, &of_data, 3, false);
            send_frame(fd, &h, 1, &(frame){.type = FRAME_BYE});
        }
        assert_int_equal(reap(s), 0);
        assert_int_equal(s->b->rank[1].joined, data ? ERR_OK : ERR_UNAVAILABLE);
        if (!data) assert_text(s->b->rank[1].text, "rank 0 (127.0.0.1): its last word was changed on the way");
        close(listener), close(links), close(fd);
        if (other >= 0) close(other);
        scene_close(s);
    }
}

// --- crowds ----------------------------------------------------------------------------------------------------------

static long status_kb(const char *key) {
    char line[256];
    long kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0) kb = atol(line + strlen(key) + 1);
    if (f) fclose(f);
    return kb;
}

static long start_kb;

static void few_descriptors(scene *s, launch *l, team_options *o) {
    (void)o;
    start_kb = status_kb("VmRSS");
    if (l->rank == 0 && s->number > 0) setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)s->number, (rlim_t)s->number});
}

static void measure(scene *s, team *t, result *r) {
    wait_for_all(s, t, r);
    r->grown_kb = status_kb("VmHWM") - start_kb;
}

// A process that opens n connections, says `text` and then nothing on every one, and holds them until it is killed.
static void start_crowd(scene *s, int n, const char *text, size_t length) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(40);
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){2048, 2048});
        dial(0, s->port);
        for (int i = 0; i < n; i++) {
            struct sockaddr_in a = address(0, s->port);
            int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
            if (fd < 0 || (connect(fd, (struct sockaddr *)&a, sizeof a) != 0 && errno != EINPROGRESS)) _exit(1);
            if (length && poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 5000) == 1 &&
                send(fd, text, length, MSG_NOSIGNAL) < 0 && errno != EPIPE && errno != ECONNRESET)
                _exit(1);
        }
        atomic_fetch_add(&s->b->go, 1);
        for (;;) pause();
    }
    s->child[s->children++] = pid;
}

static void crowd(int descriptors, int idle, double limit_s) {
    scene *s = scene_open(4, (int[]){2, 2, 1, 1});
    static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    char noise[4096], half[HELLO_BYTES / 2];
    uint8_t packed[HELLO_BYTES];
    hello h = hello_of(s, 1, 2, 5);
    hello_pack(packed, &h, false);
    memcpy(half, packed, sizeof half);
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (char)(i * i / 7 + 13 * i);
    s->o.links = true;
    s->o.timeout_s = 20;
    s->number = descriptors;
    s->tweak = few_descriptors;
    s->body = measure;
    start_node(s, 0, -1);
    for (int i = 0; i < 4; i++) start_crowd(s, idle / 4, "", 0);
    start_crowd(s, 40, http, sizeof http - 1);
    start_crowd(s, 40, noise, sizeof noise);
    start_crowd(s, 40, half, sizeof half);
    await_count(&s->b->go, 7);
    double start = now_s();
    for (int n = 1; n < 4; n++) start_node(s, n, -1);
    await_count(&s->b->joined, 6);
    double took = now_s() - start;
    for (int i = 0; i < 7; i++) kill(s->child[2 + i], SIGKILL);
    reap(s);
    all_well(s);
    print_message("%d idle connections, %d descriptors: joined after %.2f s, rank 0 grew by %ld KB\n", idle,
                  descriptors, took, s->b->rank[0].grown_kb);
    assert_true(took < limit_s);
    assert_true(s->b->rank[0].grown_kb > 0 && s->b->rank[0].grown_kb < 8192);
    scene_close(s);
}

static void a_thousand_idle_connections(void **state) {
    (void)state;
    crowd(0, 1000, 8);
}

static void no_descriptors_left(void **state) {
    (void)state;
    crowd(48, 200, 12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_secret),
        cmocka_unit_test(wrong_secret_then_right_one),
        cmocka_unit_test(handshake_holds),
        cmocka_unit_test(garbage_ends_at_its_first_byte),
        cmocka_unit_test(frames_are_sealed),
        cmocka_unit_test(overheard_and_reflected),
        cmocka_unit_test(frame_played_twice),
        cmocka_unit_test(false_rank_0),
        cmocka_unit_test(rank_0_after_a_false_one),
        cmocka_unit_test(a_changed_bit_is_called_again),
        cmocka_unit_test(a_changed_last_word),
        cmocka_unit_test(a_rank_that_does_not_link),
        cmocka_unit_test(a_thousand_idle_connections),
        cmocka_unit_test(no_descriptors_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
