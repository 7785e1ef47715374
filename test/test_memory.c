// test/test_memory.c: what base/memory.h says of made-up machines: without limits, and with those of both versions of
// control groups. The words name both sides and what to do.
#include "base/io.h"
#include "base/memory.h"
#include "test/support/expect.h"
#include "trainer/session/fits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const char meminfo[] = "MemTotal:       16000 kB\nMemFree:         1000 kB\nMemAvailable:    8000 kB\n";

static void put(const char *root, const char *path, const char *text) {
    char full[IO_PATH], *slash;
    snprintf(full, sizeof full, "%s/%s", root, path);
    slash = strrchr(full, '/');
    *slash = 0;
    assert_ok(io_mkdirs(full));
    *slash = '/';
    assert_ok(io_replace_file(full, text, strlen(text)));
}

static void of_machines(void **state) {
    static const struct {
        const char *what;
        int64_t available;
        const char *file[14];  // pairs of a path and its text
    } cases[] = {
        {"nothing is known", -1, {"proc/self/cgroup", "0::/\n"}},
        {"no limit", 8192000, {"proc/meminfo", meminfo, "proc/self/cgroup", "0::/\n"}},
        {"no groups", 8192000, {"proc/meminfo", meminfo}},
        {"version 2",
         700000,
         {"proc/meminfo", meminfo, "proc/self/cgroup", "0::/job\n", "sys/fs/cgroup/job/memory.max", "1000000\n",
          "sys/fs/cgroup/job/memory.current", "500000\n", "sys/fs/cgroup/job/memory.stat",
          "anon 300000\nfile 900000\ninactive_file 150000\nactive_file 50000\n"}},
        {"the limit is one of a level above",
         200000,
         {"proc/meminfo", meminfo, "proc/self/cgroup", "0::/slice/job\n", "sys/fs/cgroup/slice/job/memory.max", "max\n",
          "sys/fs/cgroup/slice/memory.max", "1000000\n", "sys/fs/cgroup/slice/memory.current", "800000\n"}},
        {"a container that sees its own group as the first one",
         0,
         {"proc/meminfo", meminfo, "proc/self/cgroup", "0::/elsewhere/job\n", "sys/fs/cgroup/memory.max", "1000000\n",
          "sys/fs/cgroup/memory.current", "1200000\n"}},
        {"version 1",
         600000,
         {"proc/meminfo", meminfo, "proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/job\n1:name=memory:/y\n",
          "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000000\n",
          "sys/fs/cgroup/memory/job/memory.usage_in_bytes", "500000\n", "sys/fs/cgroup/memory/job/memory.stat",
          "inactive_file 1\ntotal_inactive_file 100000\n"}},
        {"version 1 without a limit",
         8192000,
         {"proc/meminfo", meminfo, "proc/self/cgroup", "4:memory:/job\n", "sys/fs/cgroup/memory/memory.limit_in_bytes",
          "9223372036854771712\n", "sys/fs/cgroup/memory/memory.usage_in_bytes", "500000\n"}},
        {"version 1, memory first of several",
         100000,
         {"proc/meminfo", meminfo, "proc/self/cgroup", "4:memory,cpu:/job\n",
          "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000000\n",
          "sys/fs/cgroup/memory/job/memory.usage_in_bytes", "900000\n"}},
        {"version 1, memory last of several",
         300000,
         {"proc/meminfo", meminfo, "proc/self/cgroup", "4:cpu,memory:/job\n",
          "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000000\n",
          "sys/fs/cgroup/memory/job/memory.usage_in_bytes", "900000\n", "sys/fs/cgroup/memory/job/memory.stat",
          "total_active_file 150000\ntotal_inactive_file 50000\nactive_file 7\n"}},
        {"others have memory in their names only",
         8192000,
         {"proc/meminfo", meminfo, "proc/self/cgroup",
          "4:memoryx:/job\n5:xmemory,memory-x:/job\n6:name=memory:/job\nnone\n7:memory\n",
          "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000000\n",
          "sys/fs/cgroup/memory/job/memory.usage_in_bytes", "900000\n"}},
        {"of two levels that are full the fuller one",
         100000,
         {"proc/meminfo", meminfo, "proc/self/cgroup", "0::/slice/job\n", "sys/fs/cgroup/slice/job/memory.max",
          "900000\n", "sys/fs/cgroup/slice/job/memory.current", "800000\n", "sys/fs/cgroup/slice/memory.max",
          "1000000\n", "sys/fs/cgroup/slice/memory.current", "500000\n"}},
        {"a limit that is the machine's memory",
         8192000,
         {"proc/meminfo", meminfo, "proc/self/cgroup", "0::/\n", "sys/fs/cgroup/memory.max", "16384000\n",
          "sys/fs/cgroup/memory.current", "16383000\n"}},
        {"one byte less",
         1000,
         {"proc/meminfo", meminfo, "proc/self/cgroup", "0::/\n", "sys/fs/cgroup/memory.max", "16383999\n",
          "sys/fs/cgroup/memory.current", "16382999\n"}},
        {"nothing may be had at all",
         0,
         {"proc/meminfo", meminfo, "proc/self/cgroup", "0::/\n", "sys/fs/cgroup/memory.max", "0\n",
          "sys/fs/cgroup/memory.current", "0\n"}},
        {"more is left by the limit than by the machine",
         8192000,
         {"proc/meminfo", meminfo, "proc/self/cgroup", "0::/\n", "sys/fs/cgroup/memory.max", "9000000\n",
          "sys/fs/cgroup/memory.current", "1000\n"}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char root[IO_PATH];
        const char *base = getenv("TMPDIR");
        assert_ok(io_path(root, "%s/lockstep-memory-XXXXXX", base ? base : "/tmp"));
        assert_non_null(mkdtemp(root));
        for (int k = 0; cases[i].file[k]; k += 2) put(root, cases[i].file[k], cases[i].file[k + 1]);
        int64_t got = memory_find(root).available;
        if (got != cases[i].available)
            fail_msg("%s: %lld, expected %lld", cases[i].what, (long long)got, (long long)cases[i].available);
        assert_ok(io_remove_tree(root));
    }
    assert_true(memory_find("").available > 0);
}

// --- the most that there can be, and the words -----------------------------------------------------------------------

static const int64_t GB = 1 << 30;

static int enter(void **state) {
    const char *base = getenv("TMPDIR");
    char *root = malloc(IO_PATH);
    snprintf(root, IO_PATH, "%s/lockstep-memory-XXXXXX", base ? base : "/tmp");
    *state = root;
    return mkdtemp(root) ? 0 : -1;
}

static int leave(void **state) {
    err_t rc = io_remove_tree(*state);
    free(*state);
    return (int)rc;
}

static void machine(const char *root) {
    put(root, "proc/meminfo",
        "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB\nSwapTotal:       2097152 kB\nSwapFree:        1048576 kB\n");
}

static void expect(const char *root, int64_t most, int64_t available, const char *what) {
    memory_room m = memory_find(root);
    if (m.most != most || m.available != available || strcmp(m.what, what) != 0)
        fail_msg("%lld, %lld available, of %s; expected %lld, %lld of %s", (long long)m.most, (long long)m.available,
                 m.what, (long long)most, (long long)available, what);
}

static void a_machine(void **state) {
    expect(*state, INT64_MAX, -1, "this machine");
    machine(*state);
    expect(*state, 18 * GB, 8 * GB, "this machine");
}

static void groups_v2(void **state) {
    machine(*state);
    put(*state, "proc/self/cgroup", "0::/a/b\n");
    put(*state, "sys/fs/cgroup/a/b/memory.max", "max\n");
    expect(*state, 18 * GB, 8 * GB, "this machine");
    put(*state, "sys/fs/cgroup/a/memory.max", "4294967296\n");
    put(*state, "sys/fs/cgroup/a/memory.current", "1073741824\n");
    expect(*state, 6 * GB, 3 * GB, "the control group");
    put(*state, "sys/fs/cgroup/a/b/memory.max", "2147483648\n");
    put(*state, "sys/fs/cgroup/a/b/memory.current", "3000000000\n");
    expect(*state, 4 * GB, 0, "the control group");
}

static void groups_v1(void **state) {
    machine(*state);
    put(*state, "proc/self/cgroup", "5:cpu:/x\n4:memory:/not/in/here\n0::/\n");
    put(*state, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    expect(*state, 18 * GB, 8 * GB, "this machine");
    put(*state, "sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
    expect(*state, 3 * GB, 8 * GB, "the control group");
}

static void words(void **state) {
    (void)state;
    memory_room m = {.most = 16 * GB, .available = GB, .addresses = INT64_MAX, .what = "this machine"};
    assert_int_equal(memory_refuse("this run needs", 1423405400000, true, &m), ERR_CONFIG);
    static const char start[] =
        "this run needs 1423.4 GB of memory, and this machine has 17.2 GB, 1.1 GB of it available now";
    if (strcmp(err_last()->text, start) != 0) fail_msg("%s", err_last()->text);
    m.addresses = GB;
    memory_refuse("this run needs", 2 * GB, true, &m);
    if (!strstr(err_last()->text, "a process under this limit of addresses (ulimit -v) has 1.1 GB"))
        fail_msg("%s", err_last()->text);
    memory_refuse("the 4 ranks on this machine need", 20 * GB, false, &m);
    if (!strstr(err_last()->text, "this machine has 17.2 GB")) fail_msg("%s", err_last()->text);
}

// The limit of a process is its own, whatever the machine has.
static void addresses(void **state) {
    (void)state;
    struct rlimit was, now;
    assert_int_equal(getrlimit(RLIMIT_AS, &was), 0);
    int64_t before = was.rlim_cur == RLIM_INFINITY ? INT64_MAX : (int64_t)was.rlim_cur;
    assert_int_equal(memory_find("").addresses, before);
    now = was, now.rlim_cur = INT64_MAX / 2 < now.rlim_max ? INT64_MAX / 2 : now.rlim_max;  // which disturbs nobody
    assert_int_equal(setrlimit(RLIMIT_AS, &now), 0);
    int64_t got = memory_find("").addresses;
    setrlimit(RLIMIT_AS, &was);
    assert_int_equal(got, (int64_t)now.rlim_cur);
}

// Only what there is not at all is refused: of the machine what its ranks need together, of addresses what one needs.
static void judged(void **state) {
    (void)state;
    const memory_room m = {.most = 16 * GB, .available = 1, .addresses = 8 * GB, .what = "this machine"};
    static const struct {
        int64_t mine, sum;
        int locals;
        const char *said;
    } rows[] = {
        {8 * (1LL << 30), 16 * (1LL << 30), 2, ""},
        {1, 16 * (1LL << 30) + 1, 3,
         "the 3 ranks on this machine need 17.2 GB of memory, and this machine has 17.2 GB, 0.0 MB of it available now"},
        {20 * (1LL << 30), 20 * (1LL << 30), 1,
         "this run needs 21.5 GB of memory, and this machine has 17.2 GB, 0.0 MB of it available now"},
        {8 * (1LL << 30) + 1, 9 * (1LL << 30), 2,
         "this rank needs 8.6 GB of memory, and a process under this limit of addresses (ulimit -v) has 8.6 GB"},
        {9 * (1LL << 30), 9 * (1LL << 30), 1,
         "this run needs 9.7 GB of memory, and a process under this limit of addresses (ulimit -v) has 8.6 GB"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(memory_judge(&m, rows[i].mine, rows[i].sum, rows[i].locals),
                         *rows[i].said ? ERR_CONFIG : ERR_OK);
        if (*rows[i].said) assert_string_equal(err_last()->text, rows[i].said);
    }
    memory_refuse(
        "it needs", 999900000, true,
        &(memory_room){.most = 1000000, .available = -1, .addresses = INT64_MAX, .what = "the control group"});
    assert_string_equal(err_last()->text, "it needs 999.9 MB of memory, and the control group has 1.0 MB");
}

// A rank among others, of which it hears what they need.
typedef struct told {
    comm head;
    const int64_t *needs;
} told;

static err_t tell(comm *c, void *data, const size_t *cut, stream *s) {
    const told *t = (const told *)c;
    int64_t *all = data;
    (void)s;
    assert_int_equal(cut[c->world], (size_t)c->world * sizeof *all);
    for (int r = 0; r < c->world; r++)
        if (r == c->rank) assert_true(all[r] == t->needs[r]);
        else all[r] = t->needs[r];
    return ERR_OK;
}

// Nobody else has failed.
static err_t tell_no_failure(comm *c, void *data, size_t count, dtype type, reduce_op op, stream *s) {
    (void)c, (void)data, (void)count, (void)type, (void)op, (void)s;
    return ERR_OK;
}

static err_t broadcast_nothing(comm *c, void *data, size_t bytes, int root, stream *s) {
    (void)c, (void)data, (void)bytes, (void)root, (void)s;
    return ERR_OK;
}

// A machine has what its own ranks need, and not what those of another one do.
static void each_machine_has_its_ranks(void **state) {
    (void)state;
    static const comm_table table = {.all_gather = tell, .all_reduce = tell_no_failure, .broadcast = broadcast_nothing};
    const int64_t half = memory_find("").most / 2 + 1;
    enum { WORLD = 4 };
    const struct {
        int node[WORLD];
        int64_t needs[WORLD];
        const char *said[WORLD];  // NULL: there is room
    } rows[] = {
        {{0, 1, 1, 2},
         {half, half, half, half},
         {[1] = "the 2 ranks on this machine need ", "the 2 ranks on this machine need "}},
        {{0, 0, 1, 1},
         {half, half, half, 1},
         {"the 2 ranks on this machine need ", "the 2 ranks on this machine need "}},
        {{0, 0, 0, 1}, {1, 1, 1, 2 * half}, {[3] = "this run needs "}},
        {{0, 0, 1, 1},
         {1, 1, 1, 2 * half},
         {[2] = "the 2 ranks on this machine need ", "the 2 ranks on this machine need "}},
    };
    device *dev;
    stream *s;
    assert_ok(device_open(&dev, &(device_options){.kind = DEVICE_CPU, .threads = 1}));
    assert_ok(stream_open(dev, &s));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int r = 0; r < WORLD; r++) {
            comm_place place[WORLD] = {{0}};
            for (int k = 0; k < WORLD; k++) place[k].node = rows[i].node[k];
            told t = {{.table = &table, .rank = r, .world = WORLD, .place = place, .host = &t.head}, rows[i].needs};
            int64_t of_host = rows[i].needs[r] / 4;
            err_t rc = memory_fits(&t.head, s, dev, rows[i].needs[r] - of_host, of_host);
            const char *said = rows[i].said[r];
            assert_int_equal(rc, said ? ERR_CONFIG : ERR_OK);
            if (said && strncmp(err_last()->text, said, strlen(said)) != 0)
                fail_msg("row %zu, rank %d: %s; expected %s", i, r, err_last()->text, said);
        }
    stream_close(s);
    device_close(dev);
}

// What would need less is said of memory alone, once.
static void advised(void **state) {
    (void)state;
    err_set(ERR_CONFIG, "there is too little");
    assert_int_equal(memory_advise(ERR_CONFIG), ERR_CONFIG);
    assert_true(strncmp(err_last()->text, "there is too little. `lockstep plan` shows ", 43) == 0);
    err_set(ERR_INTERNAL, "no device");
    assert_int_equal(memory_advise(ERR_INTERNAL), ERR_INTERNAL);
    assert_string_equal(err_last()->text, "no device");
    assert_int_equal(memory_advise(ERR_OK), ERR_OK);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, enter, leave)

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(of_machines),
                                       TEST(a_machine),
                                       TEST(groups_v2),
                                       TEST(groups_v1),
                                       TEST(words),
                                       cmocka_unit_test(addresses),
                                       cmocka_unit_test(judged),
                                       cmocka_unit_test(advised),
                                       cmocka_unit_test(each_machine_has_its_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
