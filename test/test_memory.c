// test/test_memory.c: what base/memory.h says of made-up machines: without limits, and with those of both versions of control groups.
#include "base/io.h"
#include "base/memory.h"
#include "test/support/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
        const char *file[12];  // pairs of a path and its text
    } cases[] = {
        {"nothing is known", -1, {"proc/self/cgroup", "0::/\n"}},
        {"no limit", 8192000, {"proc/meminfo", meminfo, "proc/self/cgroup", "0::/\n"}},
        {"no groups", 8192000, {"proc/meminfo", meminfo}},
        {"version 2",
         700000,
         {"proc/meminfo", meminfo, "proc/self/cgroup", "0::/job\n", "sys/fs/cgroup/job/memory.max", "1000000\n", "sys/fs/cgroup/job/memory.current",
          "500000\n", "sys/fs/cgroup/job/memory.stat", "anon 300000\nfile 900000\ninactive_file 150000\nactive_file 50000\n"}},
        {"the limit is one of a level above",
         200000,
         {"proc/meminfo", meminfo, "proc/self/cgroup", "0::/slice/job\n", "sys/fs/cgroup/slice/job/memory.max", "max\n",
          "sys/fs/cgroup/slice/memory.max", "1000000\n", "sys/fs/cgroup/slice/memory.current", "800000\n"}},
        {"a container that sees its own group as the first one",
         0,
         {"proc/meminfo", meminfo, "proc/self/cgroup", "0::/elsewhere/job\n", "sys/fs/cgroup/memory.max", "1000000\n", "sys/fs/cgroup/memory.current",
          "1200000\n"}},
        {"version 1",
         600000,
         {"proc/meminfo", meminfo, "proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/job\n1:name=memory:/y\n",
          "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000000\n", "sys/fs/cgroup/memory/job/memory.usage_in_bytes", "500000\n",
          "sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 100000\n"}},
        {"version 1 without a limit",
         8192000,
         {"proc/meminfo", meminfo, "proc/self/cgroup", "4:memory:/job\n", "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n",
          "sys/fs/cgroup/memory/memory.usage_in_bytes", "500000\n"}},
        {"more is left by the limit than by the machine",
         8192000,
         {"proc/meminfo", meminfo, "proc/self/cgroup", "0::/\n", "sys/fs/cgroup/memory.max", "9000000\n", "sys/fs/cgroup/memory.current", "1000\n"}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char root[] = "/tmp/lockstep-memory.XXXXXX";
        assert_non_null(mkdtemp(root));
        for (int k = 0; cases[i].file[k]; k += 2) put(root, cases[i].file[k], cases[i].file[k + 1]);
        int64_t got = memory_available(root);
        if (got != cases[i].available) fail_msg("%s: %lld, expected %lld", cases[i].what, (long long)got, (long long)cases[i].available);
        assert_ok(io_remove_tree(root));
    }
    assert_true(memory_available("") > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(of_machines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
