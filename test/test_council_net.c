// test/test_council_net.c: the connections between councils. Several are in this process, and take turns; one that
// breaks the rules is played by hand. Whatever comes on a connection, no other one suffers.
#include "test/support/council_nets.h"

#include <netinet/tcp.h>

// --- both ways -------------------------------------------------------------------------------------------------------

static void all_hear_each_other(void **state) {
    (void)state;
    nets *n = nets_open(4);
    for (int i = 3; i >= 0; i--) net_open(n, i);  // those who call are there before those who answer
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++)
            if (a != b) until_heard(n, b, a, 5 + (uint64_t)a);
    net_report(n, 2, -1, 99, 1);
    nets_turns(n, 0.05);
    for (int i = 0; i < 4; i++) assert_int_equal(heard_from(n, i, 2, 99), i != 2);
    for (int i = 0; i < 4; i++) assert_null(council_net_differs(n->net[i]));
    nets_close(n);
}

// A ballot that is refused goes on to who proposed it; only a refusal without one ends a connection.
static void refused_ballots_are_heard(void **state) {
    (void)state;
    nets *n = nets_open(2);
    council_message m;
    council_room *room = malloc(sizeof *room);
    net_open(n, 0), net_open(n, 1);
    until_heard(n, 1, 0, 1);
    example_message(&m, room, COUNCIL_REFUSED);
    m.node = 0, m.life = 1, m.ballot.round = 3;
    council_net_send(n->net[0], 1, &m);
    for (double until = now_s() + WAIT_MOST_S; n->heard[1][n->count[1] - 1].type != COUNCIL_REFUSED; nets_turn(n))
        if (now_s() > until) fail_msg("the refusal has not come");
    assert_int_equal(n->last.ballot.round, 3);
    free(room);
    nets_close(n);
}

// The largest record that there is: 256 nodes, 1024 ranks, each with a lane of its own.
static void largest_record(council_record *r, int epoch) {
    *r = (council_record){.run = "a run of sixteen", .kind = DECREE_HEAL, .nodes = COUNCIL_NODES};
    r->k = r->epoch = (uint64_t)epoch;
    memset(r->why, 'w', COUNCIL_WHY - 1);
    r->grid = (council_grid){TEAM_RANKS_MAX, 1, 1, 1}, r->lanes = r->ranks = TEAM_RANKS_MAX;
    for (int j = 0; j < COUNCIL_NODES; j++) {
        set_add(&r->members, j), set_add(&r->voters, j);
        r->life[j] = (uint64_t)epoch << 32 | (uint64_t)j, r->weight[j] = r->slots[j] = 4;
    }
    for (int i = 0; i < TEAM_RANKS_MAX; i++) r->seat[i] = (council_seat){(uint16_t)(i / 4), (uint16_t)(i % 4)};
    for (int i = 0; i < TEAM_RANKS_MAX; i++) r->deal[i] = 1;
}

static void records_of_full_size(void **state) {
    (void)state;
    static uint8_t bytes[COUNCIL_MESSAGE_BYTES];
    council_room *room = calloc(1, sizeof *room);
    nets *n = nets_open(2);
    net_open(n, 0), net_open(n, 1);
    largest_record(&room->newest, 7), largest_record(&room->value, 8);
    council_message m = {.type = COUNCIL_ACCEPT, .life = 3, .newest = &room->newest, .value = &room->value};
    assert_in_range(council_pack(bytes, sizeof bytes, &m), 2 * 9000, COUNCIL_MESSAGE_BYTES);
    until_heard(n, 0, 1, 1), until_heard(n, 1, 0, 1);
    for (int turn = 0; turn < 6; turn++) {
        m.node = turn % 2, m.ballot.round = 1 + (uint64_t)turn;
        int before = n->count[1 - m.node];
        council_net_send(n->net[m.node], 1 - m.node, &m);
        for (double until = now_s() + WAIT_MOST_S; n->last.type != COUNCIL_ACCEPT || n->last.node != m.node;) {
            assert_true(now_s() < until);
            nets_turn(n);
        }
        assert_int_equal(n->count[1 - m.node], before + 1);
        assert_memory_equal(n->last.newest, &room->newest, sizeof room->newest);
        assert_memory_equal(n->last.value, &room->value, sizeof room->value);
        assert_int_equal(n->last.ballot.round, 1 + turn);
    }
    nets_close(n);
    free(room);
}

// --- lives -----------------------------------------------------------------------------------------------------------

// Nothing of a life comes after the first message of a later one.
static void lives_in_order(const nets *n, int at, int from) {
    uint64_t life = 0;
    for (int i = 0; i < n->count[at]; i++) {
        const heard_message *h = &n->heard[at][i];
        if (h->node != from) continue;
        if (h->life < life) fail_msg("node %d: life %d of node %d after %d", at, (int)h->life, from, (int)life);
        life = h->life;
    }
}

// The one that calls, then the one that is called; in the middle of what it says, which is partly lost with it.
static void a_node_that_comes_again_is_connected_anew(void **state) {
    (void)state;
    for (int who = 0; who < 2; who++) {
        nets *n = nets_open(2);
        net_open(n, 0), net_open(n, 1);
        for (uint64_t life = 1; life <= 8; life++) {
            until_heard(n, 1 - who, who, life);
            until_heard(n, who, 1 - who, 1);
            for (int i = 0; i < 20; i++) net_report(n, who, 1 - who, life, i), net_report(n, 1 - who, who, 1, i);
            net_close(n, who), net_open(n, who);
        }
        lives_in_order(n, 1 - who, who);
        nets_close(n);
    }
}

// A second life calls while the first one's connection stands, as after a machine that was reset: the later one has it.
static void a_later_connection_takes_the_place(void **state) {
    (void)state;
    nets *n = nets_open(2);
    hand first, second;
    net_open(n, 0);
    hand_opens(n, &first, 1, 0);
    hand_reports(&first, 1, 1);
    hand_reports(&first, 1, 2);
    nets_turns(n, 0.05);
    assert_int_equal(heard_from(n, 0, 1, 1), 2);
    hand_opens(n, &second, 1, 0);
    hand_reports(&second, 2, 1);
    nets_turns(n, 0.05);
    assert_true(hand_is_dropped(n, &first, WAIT_MOST_S));
    assert_int_equal(heard_from(n, 0, 1, 2), 1);
    lives_in_order(n, 0, 1);
    close(first.fd), close(second.fd);
    nets_close(n);
}

// --- what is no message ----------------------------------------------------------------------------------------------

typedef enum { FLIPPED, FLIPPED_LENGTH, REPEATED, LEFT_OUT, ABSURD, EMPTY, OTHERS_NAME, OTHERS_SEAL, MISDEEDS } misdeed;

static void misbehave(hand *h, misdeed what) {
    council_message m;
    council_room *room = malloc(sizeof *room);
    report_of(&m, room, what == OTHERS_NAME ? 2 : h->node, 1, 666);
    if (what == LEFT_OUT) h->sent++;
    size_t n = hand_seals(h, &m);
    if (what == FLIPPED) h->bytes[n / 2] ^= 4;
    if (what == FLIPPED_LENGTH) h->bytes[0] ^= 1;
    if (what == ABSURD) put_le(h->bytes, COUNCIL_MESSAGE_BYTES + 1, 4);
    if (what == EMPTY) memset(h->bytes, 0, 4);
    if (what == OTHERS_SEAL) seal_mac(h->bytes + n - PROOF_BYTES, h->shake.keys.recv, 1, h->bytes, n - PROOF_BYTES);
    assert_true(write_all(h->fd, h->bytes, n));
    if (what == REPEATED || what == FLIPPED_LENGTH) assert_true(write_all(h->fd, h->bytes, n));
    free(room);
}

static void what_was_changed_ends_its_connection_alone(void **state) {
    (void)state;
    nets *n = nets_open(3);
    net_open(n, 0), net_open(n, 2);
    until_heard(n, 0, 2, 1), until_heard(n, 2, 0, 1);
    for (int what = 0; what < MISDEEDS; what++) {
        hand h;
        hand_opens(n, &h, 1, 0);
        hand_reports(&h, 10 + (uint64_t)what, 1);
        misbehave(&h, (misdeed)what);
        if (!hand_is_dropped(n, &h, WAIT_MOST_S)) fail_msg("misdeed %d: the connection stands", what);
        assert_int_equal(heard_from(n, 0, 1, 10 + (uint64_t)what), 1);
        if (heard_from(n, 0, 1, 1) != (what == REPEATED)) fail_msg("misdeed %d was heard", what);
        n->count[0] = 0;
        close(h.fd);
        until_heard(n, 0, 2, 1), until_heard(n, 2, 0, 1);
    }
    // one connection to it all the time: a new one would have cost reports
    int before = heard_from(n, 0, 2, 1);
    for (int i = 0; i < 10; i++) net_report(n, 2, 0, 1, i);
    nets_turns(n, 0.1);
    assert_int_equal(heard_from(n, 0, 2, 1), before + 10);
    nets_close(n);
}

// Any bytes at all, also some that begin like a message.
static void noise_ends_its_connection_alone(void **state) {
    (void)state;
    nets *n = nets_open(3);
    net_open(n, 0), net_open(n, 2);
    srandom(33);
    for (int turn = 0; turn < 60; turn++) {
        hand h;
        hand_opens(n, &h, 1, 0);
        size_t bytes = 1 + (size_t)random() % 3000;
        for (size_t i = 0; i < bytes; i++) h.bytes[i] = (uint8_t)random();
        if (turn % 2) put_le(h.bytes, (uint64_t)random() % 3000, 4);
        (void)send(h.fd, h.bytes, bytes, MSG_NOSIGNAL);
        nets_turn(n);
        shutdown(h.fd, SHUT_WR);
        if (!hand_is_dropped(n, &h, WAIT_MOST_S)) fail_msg("turn %d: the connection stands", turn);
        close(h.fd);
    }
    assert_int_equal(n->count[0], 0);
    until_heard(n, 0, 2, 1), until_heard(n, 2, 0, 1);
    nets_close(n);
}

static void bytes_may_come_one_by_one(void **state) {
    (void)state;
    council_message m;
    council_room *room = malloc(sizeof *room);
    nets *n = nets_open(2);
    hand h;
    net_open(n, 0);
    hand_opens(n, &h, 1, 0);
    int one = 1;
    setsockopt(h.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (int i = 0; i < 2; i++) {
        report_of(&m, room, 1, 4, i);
        size_t size = hand_seals(&h, &m);
        for (size_t at = 0; at < size; at++) {
            assert_int_equal(heard_from(n, 0, 1, 4), i);
            assert_true(write_all(h.fd, h.bytes + at, 1));
            assert_int_equal(council_net_turn(n->net[0], -1, now_s()), ERR_OK);
            if (at % 50 == 0 || at + 1 == size) nets_turn(n);
        }
        nets_turns(n, 0.02);
        assert_int_equal(heard_from(n, 0, 1, 4), i + 1);
    }
    close(h.fd);
    nets_close(n);
    free(room);
}

// What was whole when a connection ended is taken; the rest is not.
static void last_words_are_heard(void **state) {
    (void)state;
    nets *n = nets_open(2);
    hand h;
    net_open(n, 0);
    hand_opens(n, &h, 1, 0);
    for (int i = 0; i < 3; i++) hand_reports(&h, 6, i);
    assert_true(write_all(h.fd, h.bytes, 40));
    close(h.fd);
    nets_turns(n, 0.1);
    assert_int_equal(heard_from(n, 0, 1, 6), 3);
    nets_close(n);
}

// ... also where the other node can be called again before anybody has taken them.
static void last_words_come_before_a_new_connection(void **state) {
    (void)state;
    nets *n = nets_open(2);
    net_open(n, 0), net_open(n, 1);
    until_heard(n, 1, 0, 6);
    net_report(n, 0, 1, 7, 1);
    net_close(n, 0), net_open(n, 0);
    for (double until = now_s() + 0.3; now_s() < until;)
        for (int i = 0; i < 2; i++) assert_int_equal(council_net_turn(n->net[i], -1, now_s() + 0.001), ERR_OK);
    for (double until = now_s() + 2; !heard_from(n, 1, 0, 7) && now_s() < until;) nets_turn(n);
    assert_int_equal(heard_from(n, 1, 0, 7), 1);
    until_heard(n, 1, 0, 8);
    nets_close(n);
}

// --- who comes -------------------------------------------------------------------------------------------------------

static void a_stranger_is_not_heard(void **state) {
    (void)state;
    static const uint8_t other[TEAM_KEY] = {8};
    nets *n = nets_open(3);
    hand h;
    hello mine = hello_of_node(1, 0);
    net_open(n, 0), net_open(n, 2);
    until_heard(n, 0, 2, 1);
    assert_false(hand_calls(n, &h, 0, &mine, other));
    close(h.fd);
    assert_null(council_net_differs(n->net[0]));
    until_heard(n, 0, 2, 1), until_heard(n, 2, 0, 1);
    nets_close(n);
}

// Out of range, its own, and one below, which is called and does not call.
static void only_nodes_above_come(void **state) {
    (void)state;
    static const int wrong[] = {3, 1, 0, 255, 1 << 30};
    nets *n = nets_open(3);
    net_open(n, 0), net_open(n, 1), net_open(n, 2);
    until_heard(n, 1, 0, 1), until_heard(n, 1, 2, 1);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        hand h;
        hello mine = hello_of_node(wrong[i], 1);
        if (hand_calls(n, &h, 1, &mine, secret)) assert_true(hand_is_dropped(n, &h, WAIT_MOST_S));
        close(h.fd);
    }
    assert_null(council_net_differs(n->net[1]));
    int from[] = {heard_from(n, 1, 0, 1), heard_from(n, 1, 2, 1)};
    for (int i = 0; i < 5; i++) net_report(n, 0, 1, 1, i), net_report(n, 2, 1, 1, i);
    nets_turns(n, 0.1);
    assert_int_equal(heard_from(n, 1, 0, 1), from[0] + 5);
    assert_int_equal(heard_from(n, 1, 2, 1), from[1] + 5);
    nets_close(n);
}

static void await_difference(nets *n, int at) {
    for (double until = now_s() + WAIT_MOST_S; !council_net_differs(n->net[at]); nets_turn(n))
        if (now_s() > until) fail_msg("node %d does not say what differs", at);
}

static void another_run_is_named_on_both_sides(void **state) {
    (void)state;
    static const char *const says[][2] = {
        {"node 1 (127.0.0.2) has run other, node 0 (127.0.0.1) has tiny", "[run] name"},
        {"node 1 (127.0.0.2) has build 3c4d, node 0 (127.0.0.1) has 1a2b", "same binary"},
        {"node 1 (127.0.0.2) has configuration decaf, node 0 (127.0.0.1) has c0ffee", "the INI must be the same"},
    };
    for (int what = 0; what < 3; what++) {
        nets *n = nets_open(2);
        council_net_options *o = &n->o[1];
        snprintf(what == 0   ? o->job
                 : what == 1 ? o->build
                             : o->config_hash,
                 TEAM_TEXT, "%s",
                 what == 0   ? "other"
                 : what == 1 ? "3c4d"
                             : "decaf");
        net_open(n, 0), net_open(n, 1);
        for (int i = 0; i < 2; i++) {
            await_difference(n, i);
            assert_text(council_net_differs(n->net[i]), says[what][0]);
            assert_text(council_net_differs(n->net[i]), says[what][1]);
        }
        net_report(n, 1, 0, 5, 1);
        nets_turns(n, 0.05);
        assert_int_equal(heard_from(n, 0, 1, 5), 0);
        nets_close(n);
    }
}

// Where both can say their settings, the keys stand in the place of the hashes. One that does not answer is not waited
// for.
static void keys_are_named_on_both_sides(void **state) {
    (void)state;
    static const char keys[] =
        "node 1 (127.0.0.2) and node 0 (127.0.0.1) have different settings: [optimizer] lr = 0.5 "
        "and 0.001; [run] seed = 7 and 1: the INI must be the same on all nodes";
    nets *n = nets_open(3);
    n->o[0].settings = "optimizer.lr=0.001\nmodel.embed=64\nrun.seed=1\n";
    n->o[1].settings = "optimizer.lr=0.5\nmodel.embed=64\nrun.seed=7\n";
    snprintf(n->o[1].config_hash, TEAM_TEXT, "decaf");
    net_open(n, 0), net_open(n, 1);
    for (int i = 0; i < 2; i++) {
        await_difference(n, i);
        assert_text(council_net_differs(n->net[i]), keys);
    }
    // it may call again before it ends, and then has nothing more to say
    net_close(n, 1);
    hand h;
    hello mine = hello_of_node(1, 0);
    snprintf(mine.config_hash, sizeof mine.config_hash, "decaf");
    assert_true(hand_calls(n, &h, 0, &mine, secret));
    close(h.fd);
    nets_turns(n, 0.1);
    assert_text(council_net_differs(n->net[0]), keys);
    net_close(n, 0), net_open(n, 0);
    double began = now_s();
    assert_true(hand_calls(n, &h, 0, &mine, secret));
    await_difference(n, 0);
    assert_text(council_net_differs(n->net[0]), "node 1 (127.0.0.2) has configuration decaf");
    assert_true(now_s() - began > 2 && now_s() - began < WAIT_MOST_S);
    assert_true(hand_is_dropped(n, &h, WAIT_MOST_S));
    close(h.fd);
    nets_close(n);
}

// Who runs something else in node 1's name does not take node 1's place.
static void another_run_disturbs_nobody(void **state) {
    (void)state;
    nets *n = nets_open(2);
    net_open(n, 0), net_open(n, 1);
    until_heard(n, 0, 1, 1);
    for (int turn = 0; turn < 3; turn++) {
        hand h;
        hello mine = hello_of_node(1, 0);
        snprintf(mine.config_hash, sizeof mine.config_hash, "decaf");
        (void)hand_calls(n, &h, 0, &mine, secret);
        assert_true(hand_is_dropped(n, &h, WAIT_MOST_S));
        close(h.fd);
        int before = heard_from(n, 0, 1, 1);
        for (int i = 0; i < 5; i++) net_report(n, 1, 0, 1, i);
        nets_turns(n, 0.05);
        assert_int_equal(heard_from(n, 0, 1, 1), before + 5);
    }
    nets_close(n);
}

// While one of another run is asked for its settings, the next one hears at once that it has no place here.
static void the_first_stranger_is_asked(void **state) {
    (void)state;
    nets *n = nets_open(3);
    hand h[2];
    n->o[0].settings = "run.seed=1\n";
    net_open(n, 0);
    for (int i = 0; i < 2; i++) {
        hello mine = hello_of_node(1 + i, 0);
        snprintf(mine.config_hash, sizeof mine.config_hash, "decaf");
        (void)hand_calls(n, &h[i], 0, &mine, secret);
    }
    assert_true(hand_is_dropped(n, &h[1], WAIT_MOST_S));
    assert_false(hand_is_dropped(n, &h[0], 0.1));
    close(h[0].fd), close(h[1].fd);
    nets_close(n);
}

// --- much, and nothing -----------------------------------------------------------------------------------------------

static void steps_in_order(const nets *n, int at) {
    for (int i = 1; i < n->count[at]; i++)
        if (n->heard[at][i].life == n->heard[at][i - 1].life)
            assert_true(n->heard[at][i].step >= n->heard[at][i - 1].step);
}

// Who does not read loses messages, and only it; once it reads, whole messages come again, in order.
static void a_full_buffer_drops_and_recovers(void **state) {
    (void)state;
    enum { MANY = 40000 };
    int came = 0;
    nets *n = nets_open(3);
    net_open(n, 0), net_open(n, 1), net_open(n, 2);
    until_heard(n, 1, 0, 1), until_heard(n, 2, 0, 1);
    for (int i = 0; i < MANY; i++) net_report(n, 0, 1, 2, i);  // some 10 MB: more than the kernel keeps
    until_heard(n, 2, 0, 1);
    for (double until = now_s() + WAIT_MOST_S; heard_from(n, 1, 0, 3) == 0 && now_s() < until; nets_turn(n)) {
        net_report(n, 0, 1, 3, MANY);
        if (n->count[1] < INBOX / 2) continue;
        came += n->count[1];
        steps_in_order(n, 1);
        n->heard[1][0] = n->heard[1][n->count[1] - 1], n->count[1] = 1;
    }
    steps_in_order(n, 1);
    assert_int_equal(n->heard[1][n->count[1] - 1].step, MANY);
    if (came + n->count[1] >= MANY) fail_msg("nothing was dropped");
    lives_in_order(n, 1, 0);
    nets_close(n);
}

// More at once than there is room for: the rest is read once room has been made, and the connection stands.
static void more_comes_than_there_is_room_for(void **state) {
    (void)state;
    enum { MANY = 1000 };  // of some 150 bytes
    nets *n = nets_open(2);
    hand h;
    net_open(n, 0);
    hand_opens(n, &h, 1, 0);
    for (int i = 0; i < MANY; i++) hand_reports(&h, 1, i);
    for (double until = now_s() + WAIT_MOST_S; heard_from(n, 0, 1, 1) < MANY; nets_turn(n))
        if (now_s() > until) fail_msg("%d of %d have come", heard_from(n, 0, 1, 1), MANY);
    steps_in_order(n, 0);
    assert_false(hand_is_dropped(n, &h, 0.05));
    close(h.fd);
    nets_close(n);
}

// The next bytes that come to a node by hand, a few at once.
static void hand_reads(nets *n, hand *h, uint8_t *dst, size_t bytes) {
    enum { FEW = 1000 };
    double until = now_s() + WAIT_MOST_S;
    for (size_t got = 0; got < bytes;) {
        ssize_t more = recv(h->fd, dst + got, bytes - got < FEW ? bytes - got : FEW, MSG_DONTWAIT);
        if (more == 0 || (more < 0 && errno != EAGAIN)) fail_msg("node %d by hand: the connection has ended", h->node);
        if (more > 0) got += (size_t)more;
        else if (now_s() > until) fail_msg("node %d by hand: nothing more comes", h->node);
        nets_turn(n);
    }
}

// The next message, whose seal must be right.
static void hand_hears(nets *n, hand *h, council_message *m, council_room *room) {
    uint8_t mac[PROOF_BYTES];
    hand_reads(n, h, h->bytes, 4);
    size_t size = (size_t)get_le(h->bytes, 4);
    assert_in_range(size, 5, COUNCIL_MESSAGE_BYTES);
    hand_reads(n, h, h->bytes + 4, size - 4 + PROOF_BYTES);
    seal_mac(mac, h->shake.keys.recv, h->received++, h->bytes, size);
    assert_true(seal_same(mac, h->bytes + size));
    assert_int_equal(council_unpack(m, room, h->bytes, size), ERR_OK);
}

// To one that reads slowly the kernel takes a part of a message, and the rest later: nothing is lost, or comes twice.
static void what_is_sent_in_parts_comes_whole(void **state) {
    (void)state;
    enum { MANY = 400 };
    nets *n = nets_open(2);
    hand h;
    council_room *large = calloc(1, sizeof *large), *room = malloc(sizeof *room);
    net_open(n, 0);
    hand_opens(n, &h, 1, 0);
    largest_record(&large->newest, 7), largest_record(&large->value, 8);
    council_message m = {.type = COUNCIL_ACCEPT, .life = 1, .newest = &large->newest, .value = &large->value}, came;
    for (m.ballot.round = 1; m.ballot.round <= MANY; m.ballot.round++) council_net_send(n->net[0], 1, &m);
    for (uint64_t last = 0, turn = 0; turn < 20 || last <= MANY; turn++) {
        hand_hears(n, &h, &came, room);
        assert_true(came.ballot.round > last);
        last = came.ballot.round;
        council_net_send(n->net[0], 1, &m), m.ballot.round++;
    }
    close(h.fd);
    free(large), free(room);
    nets_close(n);
}

// One refusal of each length, the longest first, after as many of those as may come.
static void send_shorter_and_shorter(nets *n, int longest) {
    council_message m = {.type = COUNCIL_REFUSED, .life = 1, .ballot = {.round = 1}};
    memset(m.why, 'w', COUNCIL_WHY - 1);
    for (int i = 0; i < longest; i++) council_net_send(n->net[0], 1, &m);
    for (int length = COUNCIL_WHY - 1; length-- > 0; council_net_send(n->net[0], 1, &m)) m.why[length] = 0;
}

// To one that does not read: the last message that is kept may fill the buffer to its last byte, its seal included, and
// what has no room for both is dropped. How much the kernel keeps is another each time.
static void a_message_fits_with_its_seal(void **state) {
    (void)state;
    enum { MANY = 400, ROUNDS = 10 };
    nets *n = nets_open(2);
    council_room *large = calloc(1, sizeof *large), *room = malloc(sizeof *room);
    council_message came;
    net_open(n, 0);
    largest_record(&large->newest, 7), largest_record(&large->value, 8);
    council_message much = {.type = COUNCIL_ACCEPT, .life = 1, .newest = &large->newest, .value = &large->value};
    for (int round = 0; round < ROUNDS; round++) {
        hand h;
        hand_opens(n, &h, 1, 0);
        for (int i = 0; i < MANY; i++) council_net_send(n->net[0], 1, &much);
        for (int i = 0; i < 2; i++) send_shorter_and_shorter(n, MANY);
        hand_hears(n, &h, &came, room);
        assert_int_equal(came.type, COUNCIL_ACCEPT);
        close(h.fd);
    }
    free(large), free(room);
    nets_close(n);
}

// The next call that comes to a listener.
static int hand_accepts(nets *n, int listener) {
    struct pollfd p = {.fd = listener, .events = POLLIN};
    for (double until = now_s() + WAIT_MOST_S; poll(&p, 1, 0) == 0; nets_turn(n))
        if (now_s() > until) fail_msg("no call comes");
    return accept4(listener, NULL, NULL, SOCK_CLOEXEC);
}

// The cable is out: no end of the connection comes, and nothing else. The one who calls makes it anew, so many seconds
// after the last word, not after the first.
static void a_silent_connection_is_made_anew(void **state) {
    (void)state;
    nets *n = nets_open(2);
    int listener = listen_at(0, n->port), fd[2];
    net_open(n, 1);
    for (int i = 0; i < 2; i++) {
        hand h = {.node = 0};
        hello mine = {.version = HELLO_VERSION, .role = ROLE_COUNCIL, .nonce = {(uint8_t)(1 + i)}};
        double since = now_s();
        h.fd = fd[i] = hand_accepts(n, listener);
        if (i == 1 && now_s() < since + 0.9 * COUNCIL_SILENT_S) fail_msg("called again too soon");
        handshake_answer(&h.shake, &mine, secret);
        assert_true(hand_shakes(n, &h));
        assert_true(write_all(h.fd, h.shake.out + h.shake.sent, h.shake.queued - h.shake.sent));
        const int said = i == 0 ? 5 : 1;
        for (int k = 0; k < said; k++) nets_turns(n, k ? 0.3 : 0), hand_reports(&h, 1 + (uint64_t)i, k);
        for (double until = now_s() + WAIT_MOST_S; heard_from(n, 1, 0, 1 + (uint64_t)i) < said; nets_turn(n))
            assert_true(now_s() < until);
    }
    close(fd[0]), close(fd[1]), close(listener);
    nets_close(n);
}

// The other side falls silent when it has this one's proof, and owes its last word. A council calls again.
static void a_last_word_that_does_not_come(void **state) {
    (void)state;
    nets *n = nets_open(2);
    int listener = listen_at(0, n->port), fd[2];
    net_open(n, 1);
    for (int i = 0; i < 2; i++) {
        hand h = {.node = 0};
        hello mine = {.version = HELLO_VERSION, .role = ROLE_COUNCIL, .nonce = {(uint8_t)(1 + i)}};
        h.fd = fd[i] = hand_accepts(n, listener);
        handshake_answer(&h.shake, &mine, secret);
        assert_true(hand_shakes(n, &h));
        if (i == 0) continue;
        assert_true(write_all(h.fd, h.shake.out + h.shake.sent, h.shake.queued - h.shake.sent));
        hand_reports(&h, 2, 1);
        for (double until = now_s() + WAIT_MOST_S; heard_from(n, 1, 0, 2) < 1; nets_turn(n))
            assert_true(now_s() < until);
    }
    close(fd[0]), close(fd[1]), close(listener);
    nets_close(n);
}

static void a_turn_ends_in_time_or_when_woken(void **state) {
    (void)state;
    int wake[2];
    nets *n = nets_open(2);
    net_open(n, 0);
    assert_int_equal(pipe(wake), 0);
    double since = now_s();
    assert_int_equal(council_net_turn(n->net[0], wake[0], since + 0.05), ERR_OK);
    assert_true(now_s() >= since + 0.05);
    assert_int_equal(write(wake[1], "x", 1), 1);
    since = now_s();
    assert_int_equal(council_net_turn(n->net[0], wake[0], since + WAIT_MOST_S), ERR_OK);
    assert_true(now_s() < since + WAIT_MOST_S / 2);
    close(wake[0]), close(wake[1]);
    nets_close(n);
}

static void a_port_that_is_taken_is_named(void **state) {
    (void)state;
    nets *n = nets_open(2);
    int taken = listen_at(0, n->port);
    assert_int_equal(council_net_open(&n->net[0], &n->o[0]), ERR_UNAVAILABLE);
    assert_null(n->net[0]);
    assert_text(err_last()->text, "127.0.0.1:");
    assert_text(err_last()->text, "[cluster] port");
    close(taken);
    net_open(n, 0);
    nets_close(n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_hear_each_other),
        cmocka_unit_test(refused_ballots_are_heard),
        cmocka_unit_test(records_of_full_size),
        cmocka_unit_test(a_node_that_comes_again_is_connected_anew),
        cmocka_unit_test(a_later_connection_takes_the_place),
        cmocka_unit_test(what_was_changed_ends_its_connection_alone),
        cmocka_unit_test(noise_ends_its_connection_alone),
        cmocka_unit_test(bytes_may_come_one_by_one),
        cmocka_unit_test(last_words_are_heard),
        cmocka_unit_test(last_words_come_before_a_new_connection),
        cmocka_unit_test(a_stranger_is_not_heard),
        cmocka_unit_test(only_nodes_above_come),
        cmocka_unit_test(another_run_is_named_on_both_sides),
        cmocka_unit_test(keys_are_named_on_both_sides),
        cmocka_unit_test(another_run_disturbs_nobody),
        cmocka_unit_test(the_first_stranger_is_asked),
        cmocka_unit_test(a_full_buffer_drops_and_recovers),
        cmocka_unit_test(more_comes_than_there_is_room_for),
        cmocka_unit_test(what_is_sent_in_parts_comes_whole),
        cmocka_unit_test(a_message_fits_with_its_seal),
        cmocka_unit_test(a_silent_connection_is_made_anew),
        cmocka_unit_test(a_last_word_that_does_not_come),
        cmocka_unit_test(a_turn_ends_in_time_or_when_woken),
        cmocka_unit_test(a_port_that_is_taken_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
