// test/test_handover.c: a launch is given to processes that lived before it was made. They meet over it and talk
// through its memory, its sockets and its further channels; and where it can't be given, both sides say so.
#include "comm/team/handover.h"

#include "comm/groups.h"
#include "comm/team/team.h"
#include "comm/transport.h"
#include "gpu/gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define OK(call) \
    do { \
        if ((call) != ERR_OK) fail_msg("%s: %s", #call, err_last()->text); \
    } while (0)

enum { MOST = 12, WORLDS = 3, LIMIT_S = 60 };

static int open_files(void) {
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

// All ranks add up their numbers, over channel 0 and over a channel of the layout.
static err_t talk(const launch *l) {
    team *t;
    device *dev;
    stream *s;
    comm *all, *pair;
    TRY(device_open(&dev, &(device_options){.kind = DEVICE_CPU, .threads = 1}));
    TRY(stream_open(dev, &s));
    TRY(team_join(&t, &(team_options){.at = l, .timeout_s = 30, .heartbeat_s = 1, .epoch = l->epoch}));
    TRY(transport_open(&all, t, &(transport_options){.kind = TRANSPORT_TCP, .dev = dev, .timeout_s = 30}, s));
    float sum = (float)l->rank, both = (float)l->rank;
    TRY(all->table->all_reduce(all, &sum, 1, FP32, REDUCE_SUM, s));
    TRY(all->table->split(all, l->rank / 2, 0, 1, &pair));
    TRY(pair->table->all_reduce(pair, &both, 1, FP32, REDUCE_SUM, s));
    pair->table->close(pair);
    all->table->close(all);
    team_leave(t);
    stream_close(s);
    device_close(dev);
    float want = (float)(l->world * (l->world - 1)) / 2, pairs = (float)(2 * (l->rank / 2 * 2) + 1);
    if (sum == want && both == pairs) return ERR_OK;
    return err_set(ERR_INTERNAL, "rank %d: %g and %g, expected %g and %g", l->rank, sum, both, want, pairs);
}

// Parts of this process's memory that are files which ranks share.
static int shared_parts(void) {
    char line[512];
    int n = 0;
    FILE *f = fopen("/proc/self/maps", "re");
    while (f && fgets(line, sizeof line, f)) n += strstr(line, "memfd:lockstep") != NULL;
    if (f) fclose(f);
    return n;
}

static err_t live(int from, int local) {
    int before = 0, mapped = shared_parts();
    for (int w = 0; w < WORLDS; w++) {
        launch l;
        TRY(launch_take(&l, from));
        if (l.local != local || l.rank != local || l.epoch != (uint32_t)w + 1 || l.area_fd >= 0)
            return err_set(ERR_INTERNAL, "it is local rank %d of world %u, expected %d of %d", l.local, l.epoch, local,
                           w + 1);
        if (strcmp(l.place[local].role, local % 2 ? ", odd" : ", even") != 0)
            return err_set(ERR_INTERNAL, "the role is \"%s\"", l.place[local].role);
        TRY(talk(&l));
        launch_close(&l);
        int now = open_files();
        if (w == 0) before = now;
        if (now != before) return err_set(ERR_INTERNAL, "world %d: %d descriptors, %d before", w, now, before);
        now = shared_parts();
        if (now != mapped) return err_set(ERR_INTERNAL, "world %d: %d parts are mapped, %d before", w, now, mapped);
    }
    return ERR_OK;
}

static bool of_a_pair(const void *ctx, int k, int a, int b) { return (void)ctx, (void)k, a / 2 == b / 2; }
static void role(const void *ctx, int rank, char dst[COMM_ROLE]) {
    snprintf(dst, COMM_ROLE, ", %s", ((const char *const *)ctx)[rank % 2]);
}

static const char *const roles[] = {"even", "odd"};

static void open_launch(launch *l, int ranks, int seats, uint32_t epoch) {
    OK(launch_open(l, 1, &ranks, NULL, 0));
    l->epoch = epoch;
    OK(launch_channels(
        l,
        &(channel_plan){
            .channels = 1, .seats = seats, .needs = of_a_pair, .role = role, .ctx = roles, .ctx_bytes = sizeof roles}));
}

// seats: so many descriptors for each of the ranks.
static void give_to(int ranks, int seats) {
    int to[MOST], bad = 0, status, before = open_files();
    fflush(NULL);
    for (int i = 0; i < ranks; i++) {
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        if (fork() == 0) {
            alarm(LIMIT_S);
            close(pair[0]);
            for (int k = 0; k < i; k++) close(to[k]);
            err_t rc = live(pair[1], i);
            if (rc != ERR_OK) fprintf(stderr, "%s\n", err_last()->text);
            _exit(rc);
        }
        close(pair[1]);
        to[i] = pair[0];
    }
    for (int w = 0; w < WORLDS; w++) {
        launch l;
        open_launch(&l, ranks, seats, (uint32_t)w + 1);
        for (int i = 0; i < ranks; i++) OK(launch_give(&l, i, to[i]));
        launch_close(&l);
    }
    for (int i = 0; i < ranks; i++) bad |= wait(&status) > 0 ? status : 1;
    for (int i = 0; i < ranks; i++) close(to[i]);
    assert_int_equal(bad, 0);
    assert_int_equal(open_files(), before);
}

static void processes_that_live_meet_over_it(void **state) {
    (void)state;
    give_to(2, 1);
    give_to(4, 3);
    give_to(10, 25);  // 272 descriptors a rank: more than one packet, ten ranks at once
}

static void a_process_that_is_gone_is_found_out(void **state) {
    (void)state;
    int pair[2], before = open_files();
    launch l, other;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    open_launch(&l, 2, 1, 1);
    close(pair[1]);
    assert_int_equal(launch_give(&l, 1, pair[0]), ERR_UNAVAILABLE);
    close(pair[0]);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    close(pair[0]);
    assert_int_equal(launch_take(&other, pair[1]), ERR_UNAVAILABLE);
    assert_non_null(strstr(err_last()->text, "the supervisor is gone"));
    close(pair[1]);
    launch_close(&l);
    assert_int_equal(open_files(), before);
}

// A taker without room for the descriptors gets none of them, and keeps none.
static void too_few_descriptors_are_an_error(void **state) {
    (void)state;
    int pair[2], before = open_files();
    launch l, other;
    struct rlimit was;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    open_launch(&l, 4, 3, 1);
    OK(launch_give(&l, 1, pair[0]));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    struct rlimit few = {.rlim_cur = (rlim_t)open_files() + 4, .rlim_max = was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    err_t rc = launch_take(&other, pair[1]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_int_equal(rc, ERR_UNAVAILABLE);
    assert_non_null(strstr(err_last()->text, "LimitNOFILE"));
    launch_close(&l);
    close(pair[0]), close(pair[1]);
    assert_int_equal(open_files(), before);
}

// Says whether it has the fence, and when its world is over.
static err_t hear_the_end(int from, const uint8_t fence[TEAM_KEY]) {
    launch l;
    char ready = 1;
    TRY(launch_take(&l, from));
    if (!l.fenced || memcmp(l.fence, fence, TEAM_KEY) != 0) return err_set(ERR_INTERNAL, "it has another fence");
    struct pollfd p = {.fd = l.over[0], .events = POLLIN};
    if (poll(&p, 1, 0) != 0) return err_set(ERR_INTERNAL, "its world is over already");
    if (write(from, &ready, 1) != 1) return err_set(ERR_IO, "the giver is gone");
    if (poll(&p, 1, 1000 * LIMIT_S) != 1) return err_set(ERR_INTERNAL, "its world is never over");
    launch_close(&l);
    return ERR_OK;
}

// One bell for the ranks of a node, which each of them has: none takes it from another by hearing it.
static void fence_and_end_are_given_too(void **state) {
    (void)state;
    enum { RANKS = 3 };
    uint8_t fence[TEAM_KEY];
    int to[RANKS], status, before = open_files();
    launch l;
    char ready;
    memset(fence, 0xA7, sizeof fence);
    fflush(NULL);
    for (int i = 0, pair[2]; i < RANKS; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        if (fork() == 0) {
            alarm(LIMIT_S);
            err_t rc = hear_the_end(pair[1], fence);
            if (rc != ERR_OK) fprintf(stderr, "%s\n", err_last()->text);
            _exit(rc);
        }
        close(pair[1]);
        to[i] = pair[0];
    }
    open_launch(&l, RANKS, 1, 3);
    l.fenced = true;
    memcpy(l.fence, fence, sizeof fence);
    OK(launch_watch(&l));
    for (int i = 0; i < RANKS; i++) OK(launch_give(&l, i, to[i]));
    for (int i = 0; i < RANKS; i++) assert_int_equal(read(to[i], &ready, 1), 1);
    assert_int_equal(eventfd_write(l.over[0], 1), 0);
    launch_close(&l);
    for (int i = 0; i < RANKS; i++) assert_true(wait(&status) > 0 && status == 0);
    for (int i = 0; i < RANKS; i++) close(to[i]);
    assert_int_equal(open_files(), before);
}

// A world need not have a node of each rack. Its groups count racks from 0, and none may be empty.
static void racks_without_a_node_are_left_out(void **state) {
    (void)state;
    static const struct {
        int rack[3], counted[4];
    } of[] = {
        {{0, 0, 0}, {0, 0, 0, 0}}, {{1, 3, 3}, {0, 1, 1, 1}}, {{2, 2, 5}, {0, 0, 0, 1}}, {{0, 2, 4}, {0, 1, 1, 2}}};
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        launch l;
        OK(launch_open(&l, 3, (int[]){1, 2, 1}, NULL, 0));
        launch_racks(&l, of[k].rack);
        for (int r = 0; r < 4; r++) assert_int_equal(l.place[r].rack, of[k].counted[r]);
        launch_close(&l);
    }
}

// Neighbours of each node that has a multiple of so many ranks.
static void neighbours_are_joined(void **state) {
    (void)state;
    static const struct {
        int each, join[9];  // of nodes of 4, 3 and 2 ranks
    } of[] = {{0, {0}},
              {1, {0, 1, 2, 3, 0, 1, 2, 0, 1}},
              {2, {0, 0, 1, 1, 0, 0, 0, 0, 0}},
              {3, {0, 0, 0, 0, 0, 0, 0, 0, 0}},
              {4, {0}}};
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        launch l;
        OK(launch_open(&l, 3, (int[]){4, 3, 2}, NULL, 0));
        launch_joined(&l, of[k].each);
        for (int r = 0; r < 9; r++) assert_int_equal(l.place[r].join, of[k].join[r]);
        launch_close(&l);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_that_live_meet_over_it),    cmocka_unit_test(fence_and_end_are_given_too),
        cmocka_unit_test(a_process_that_is_gone_is_found_out), cmocka_unit_test(too_few_descriptors_are_an_error),
        cmocka_unit_test(racks_without_a_node_are_left_out),   cmocka_unit_test(neighbours_are_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
