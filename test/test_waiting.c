// test/test_waiting.c: a rank whose others never come: what its board says meanwhile, for a service manager, that it
// ends at once when it is to stop or another rank of its node has ended, and that nothing of it is left on the board.
#include "base/clock.h"
#include "test/support/run.h"
#include "trainer/session/machine.h"
#include "trainer/waiting.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>

static const char *const hosts[] = {"127.0.0.1", "127.0.0.2"};

// One that nobody has at the moment.
static int free_port(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, size) | getsockname(fd, (struct sockaddr *)&a, &size), 0);
    close(fd);
    return ntohs(a.sin_port);
}

typedef struct waits {
    int nodes, ranks[2], node, local;
    bool says, fails;  // fails: another rank of the node has; else it is asked to stop
    const char *text;  // on the board, while it waits; "": nothing
} waits;

typedef struct onlooker {
    board *b;
    const waits *w;
    char want[BOARD_SAID], seen[BOARD_SAID];
} onlooker;

// Ends the waiting once the board says what it should, or has said nothing for a while.
static void *look_on(void *ctx) {
    onlooker *o = ctx;
    for (double end = clock_now() + (*o->want ? 10 : 0.4); clock_now() < end; usleep(10000)) {
        board_said(o->b, o->seen);
        if (*o->want ? strcmp(o->seen, o->want) == 0 : *o->seen) break;
    }
    atomic_store(o->w->fails ? &o->b->failed : &o->b->stop, 1);
    return NULL;
}

static void wait_in_vain(const config *c, const waits *w) {
    launch at;
    session x = {0};
    board *b = calloc(1, board_bytes(2));
    onlooker o = {.b = b, .w = w};
    pthread_t thread;
    char left[BOARD_SAID];
    board_init(b, 2);
    snprintf(o.want, sizeof o.want, w->text, (int)c->cluster.port);
    OK(launch_open(&at, w->nodes, w->ranks, w->nodes > 1 ? hosts : NULL, w->node));
    int neighbour = w->nodes == 1 ? dup(at.control[at.locals + 1]) : -1;  // who is there, and says nothing
    launch_become(&at, w->local);
    OK(session_machine(&x, c, SESSION_TRAIN, w->local));
    pthread_create(&thread, NULL, look_on, &o);
    double began = clock_now();
    err_t rc = waiting_enter(&x, &at, b, w->says);
    assert_true(clock_now() - began < 12);
    pthread_join(thread, NULL);
    if (strcmp(o.seen, o.want) != 0) fail_msg("the board says \"%s\", expected \"%s\"", o.seen, o.want);
    if (rc != (w->fails ? ERR_UNAVAILABLE : ERR_INTERRUPTED)) fail_msg("%d: %s", rc, err_last()->text);
    assert_non_null(strstr(
        err_last()->text,
        w->fails ? "another rank of this node ended while the ranks were meeting"
                 : "stopped on request while the ranks were meeting: nothing was trained, nothing had to be saved"));
    board_said(b, left);
    assert_string_equal(left, "");
    assert_true(!x.waiting.call && !x.waiting.ctx);
    session_close(&x);
    launch_close(&at);
    if (neighbour >= 0) close(neighbour);
    free(b);
}

static void who_waits_can_be_ended(void **state) {
    static const waits all[] = {
        {2, {1, 1}, 0, 0, true, false, "waiting for 127.0.0.2 (1 of 2 nodes are here)"},
        {2, {1, 1}, 0, 0, true, true, "waiting for 127.0.0.2 (1 of 2 nodes are here)"},
        {2, {1, 1}, 1, 0, true, false, "waiting for 127.0.0.1:%d: Connection refused"},
        {2, {1, 1}, 0, 0, false, false, ""},  // not asked to say it
        {2, {1, 1}, 0, 0, false, true, ""},
        {2, {2, 2}, 1, 1, true, false, ""},  // the first rank of its node does
        {1, {2, 0}, 0, 0, true, false, ""},  // of one node there is nothing to say
    };
    (void)state;
    char *dir = make_dir(), more[400];
    config c;
    write_tokens(dir, "text.bin", 2000);
    write_tokens(dir, "val.bin", 400);
    write_text(dir, "secret", "0123456789abcdef0123456789abcdef");
    snprintf(more, sizeof more, "%s/secret", dir);
    assert_int_equal(chmod(more, 0600), 0);
    snprintf(more, sizeof more, "[cluster]\nsecret_file = %s/secret\nport = %d\ntimeout = 20\n", dir, free_port());
    load_config(&c, dir,
                "[data]\nformat = raw16\n[model]\nlayers = 1\nheads = 2\nembed = 16\ncontext = 24\nvocab = 128\n"
                "[batch]\nglobal = 8\nmicro = 1\nlanes = 8\n[device]\nthreads = 1\n[sample]\ntokens = 0\n",
                more);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) wait_in_vain(&c, &all[i]);
    drop_dir(dir);
}

// Nothing in the first two seconds; what changes after two more; what stays every half a minute.
static void lines_are_few(void **state) {
    static const struct {
        double waited_s;
        const char *text;
        bool says;
    } all[] = {{0, "a", false},    {1.9, "a", false}, {2, "a", true},     {2.1, "a", false},  {3.9, "b", false},
               {4, "b", true},     {5, "b", false},   {31, "b", false},   {33.9, "b", false}, {34, "b", true},
               {34.1, "b", false}, {35, "b", false},  {35, "c", false},   {36, "c", true},    {37, "b", false},
               {63, "c", false},   {66, "c", true},   {66.1, "c", false}, {67, "c", false}};
    (void)state;
    waiting_said last = {0};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (waiting_says(&last, all[i].waited_s, all[i].text) != all[i].says)
            fail_msg("\"%s\" after %.1f s", all[i].text, all[i].waited_s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(who_waits_can_be_ended), cmocka_unit_test(lines_are_few)};
    return cmocka_run_group_tests_name("waiting", tests, NULL, NULL);
}
