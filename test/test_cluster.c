// test/test_cluster.c: one line names all nodes. What it may say, what each mistake is answered with, how a machine
// finds itself in it, and which files are a secret.
#include "trainer/config/nodes_of.h"
#include "trainer/node/cluster.h"
#include "base/io.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

typedef struct fixture {
    char dir[256];
    config c;
    cluster cl;
} fixture;

static int set_up(void **state) {
    fixture *x = calloc(1, sizeof *x);
    const char *tmp = getenv("TMPDIR");
    snprintf(x->dir, sizeof x->dir, "%s/lockstep-cluster-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(x->dir)) return -1;
    unsetenv("LOCKSTEP_NODE");
    unsetenv("CREDENTIALS_DIRECTORY");
    if (config_load(&x->c, NULL, 0) != ERR_OK) return -1;
    x->c.batch.lanes = x->c.resolved.lanes = 64;
    *state = x;
    return 0;
}

static int tear_down(void **state) {
    fixture *x = *state;
    unsetenv("LOCKSTEP_NODE");
    unsetenv("CREDENTIALS_DIRECTORY");
    io_remove_tree(x->dir);
    free(x);
    return 0;
}

// The last failure holds these parts, in one line.
static void assert_says(err_t code, const char *part1, const char *part2, const char *part3) {
    const char *text = err_last()->text, *parts[] = {part1, part2, part3};
    assert_int_equal(err_last()->code, code);
    for (size_t i = 0; i < COUNT(parts); i++)
        if (parts[i] && !strstr(text, parts[i])) fail_msg("expected \"%s\" in\n%s", parts[i], text);
    assert_null(strchr(text, '\n'));
}

static err_t resolve(fixture *x, const char *nodes) {
    snprintf(x->c.cluster.nodes, sizeof x->c.cluster.nodes, "%s", nodes);
    return cluster_resolve(&x->cl, &x->c);
}

// --- what the line may say -------------------------------------------------------------------------------------------

// "host:ranks host:ranks ..." of what was read.
static const char *shown(const cluster *cl, char dst[4096]) {
    size_t n = 0;
    dst[0] = 0;
    for (int i = 0; i < cl->nodes && n < 4000; i++)
        n += (size_t)snprintf(dst + n, 4096 - n, "%s%s:%d", i ? " " : "", cl->host[i], cl->ranks[i]);
    return dst;
}

static void test_parse(void **state) {
    fixture *x = *state;
    static const struct {
        const char *text, *nodes;
        int world;
    } rows[] = {
        {"a:8", "a:8", 8},
        {"a", "a:1", 1},
        {"  a:2 ,\tb-1.lan_x:3,C ", "a:2 b-1.lan_x:3 C:1", 6},
        {"10.0.0.1:4,10.0.0.2:4", "10.0.0.1:4 10.0.0.2:4", 8},
        {"[fe80::1]:4, [::1], [2001:db8::7%eth0]:2", "fe80::1:4 ::1:1 2001:db8::7%eth0:2", 7},
        {"gpu[1-3]:8", "gpu1:8 gpu2:8 gpu3:8", 24},
        {"gpu[08-11]:8", "gpu08:8 gpu09:8 gpu10:8 gpu11:8", 32},
        {"gpu[008-010]", "gpu008:1 gpu009:1 gpu010:1", 3},
        {"gpu[9-11]:2", "gpu9:2 gpu10:2 gpu11:2", 6},
        {"gpu[0-1].lan:2, head", "gpu0.lan:2 gpu1.lan:2 head:1", 5},
        {"10.0.0.[1-3]:2", "10.0.0.1:2 10.0.0.2:2 10.0.0.3:2", 6},
        {"[1-2].lan:3", "1.lan:3 2.lan:3", 6},
        {"n[7-7]", "n7:1", 1},
        {"a:1024", "a:1024", 1024},
        {"n[1-256]:4", NULL, 1024},
        {"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk",
         "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk:1", 1},
    };
    char text[4096];
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (cluster_parse(&x->cl, rows[i].text) != ERR_OK) fail_msg("%s: %s", rows[i].text, err_last()->text);
        if (rows[i].nodes) assert_string_equal(shown(&x->cl, text), rows[i].nodes);
        assert_int_equal(x->cl.world, rows[i].world);
    }
    assert_int_equal(cluster_parse(&x->cl, "n[1-256]:4"), ERR_OK);
    assert_int_equal(x->cl.nodes, 256);
    assert_string_equal(x->cl.host[255], "n256");
}

static void test_parse_errors(void **state) {
    fixture *x = *state;
    static const struct {
        const char *text, *entry, *why;
    } rows[] = {
        {"", "entry 1, ``", "nothing stands here"},
        {"a:1,,b:1", "entry 2, ``", "nothing stands here"},
        {"a:1, ", "entry 2, ``", "nothing stands here"},
        {"a:1 b:1", "entry 1, `a:1 b:1`", "a space inside"},
        {"a:1, b :2", "entry 2, `b :2`", "a space inside"},
        {":8", "entry 1, `:8`", "the host is missing"},
        {"a:", "entry 1, `a:`", "a number of ranks from 1 to 1024"},
        {"a:0", "entry 1, `a:0`", "from 1 to 1024"},
        {"a:1025", "entry 1, `a:1025`", "from 1 to 1024"},
        {"a:-1", "entry 1, `a:-1`", "from 1 to 1024"},
        {"a:+1", "entry 1, `a:+1`", "from 1 to 1024"},
        {"a:4x", "entry 1, `a:4x`", "from 1 to 1024"},
        {"a:4294967297", "entry 1, `a:4294967297`", "from 1 to 1024"},
        {"a:1000000000000000000001", "entry 1,", "from 1 to 1024"},
        {"a:1:2", "entry 1, `a:1:2`", "more than one `:`"},
        {"fe80::1:8", "entry 1, `fe80::1:8`", "an IPv6 address stands in brackets"},
        {"[fe80::zz]:8", "entry 1, `[fe80::zz]:8`", "not an IPv6 address"},
        {"[::1]8", "entry 1, `[::1]8`", "from 1 to 1024"},
        {"[::1%a/b]:8", "entry 1, `[::1%a/b]:8`", "not an IPv6 address"},
        {"10.0.0.300:8", "entry 1, `10.0.0.300:8`", "not an IPv4 address"},
        {"[1-2]:3", "entry 1, `[1-2]:3`", "not an IPv4 address"},  // a bare number is no name
        {"10.0.0:8", "entry 1, `10.0.0:8`", "not an IPv4 address"},
        {"10.0.0.[254-257]:8", "entry 1, `10.0.0.[254-257]:8`", "not an IPv4 address"},
        {"user@a:8", "entry 1, `user@a:8`", "letters, digits"},
        {"a/24:8", "entry 1, `a/24:8`", "letters, digits"},
        {"h\xc3\xa9:1", "entry 1,", "letters, digits"},
        {"gpu[01-]:8", "entry 1, `gpu[01-]:8`", "one range such as 01-16"},
        {"gpu[]:8", "entry 1, `gpu[]:8`", "one range such as 01-16"},
        {"gpu[1]:8", "entry 1, `gpu[1]:8`", "one range such as 01-16"},
        {"gpu[1-2,4]:8", "entry 1, `gpu[1-2,4]:8`", "one range such as 01-16"},
        {"gpu[1-2:8", "entry 1, `gpu[1-2:8`", "one range such as 01-16"},
        {"gpu[a-b]:8", "entry 1, `gpu[a-b]:8`", "one range such as 01-16"},
        {"gpu[4-1]:8", "entry 1, `gpu[4-1]:8`", "ends before it begins"},
        {"gpu[1-04]:8", "entry 1, `gpu[1-04]:8`", "padded alike"},
        {"gpu[1-2]x[1-2]:8", "entry 1,", "letters, digits"},
        {"gpu]1:8", "entry 1,", "letters, digits"},
        {"n[1-257]:1", "entry 1,", "more nodes than a cluster may have"},
        {"n[1-256]:1, m:1", "entry 2, `m:1`", "more than 256 nodes"},
        {"n[1-256]:5", "entry 1, `n[1-256]:5`", "more than 1024 ranks together"},
        {"n[0-999999999]:1", "entry 1,", "more nodes than a cluster may have"},
        {"a:1, b:1, A:2", "entry 3, `A:2`", "A is node 0 already"},
        {"gpu[1-4], gpu3", "entry 2, `gpu3`", "gpu3 is node 2 already"},
        {"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijkl:1", "entry 1,", "63 characters at most"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (cluster_parse(&x->cl, rows[i].text) != ERR_CONFIG) fail_msg("expected ERR_CONFIG for `%s`", rows[i].text);
        assert_says(ERR_CONFIG, rows[i].entry, rows[i].why, "Expected host:ranks, [IPv6]:ranks or name[01-16]:ranks");
    }
}

// Any bytes get an answer; what is accepted is within the limits.
// --- racks -----------------------------------------------------------------------------------------------------------

static void test_racks(void **state) {
    fixture *x = *state;
    static const struct {
        const char *racks, *expected;  // of five nodes and of four: "": refused
        int nodes;
    } rows[] = {{"", "0000", 4},        {"1", "0000", 4},     {"2", "0011", 4},      {"4", "0123", 4},
                {"0-1,2-3", "0011", 4}, {"0,1-3", "0111", 4}, {" 0 - 2 , 3", "", 4}, {" 0-2 , 3 ", "0001", 4},
                {"0-3", "0000", 4},     {"3", "", 4},         {"0", "", 4},          {"5", "", 4},
                {"0-1,3", "", 4},       {"1-3", "", 4},       {"0-1,1-3", "", 4},    {"0-4", "", 4},
                {"0-1,2-3,", "", 4},    {"0-1 2-3", "", 4},   {"0-1,3-2", "", 4},    {"two", "", 4},
                {"0-3,4", "00001", 5},  {"2", "", 5},         {"5", "01234", 5},     {"0-0,1-4", "01111", 5},
                {",0-4", "", 5},        {"0-4x", "", 5},      {"-1", "", 5},         {"1", "0", 1},
                {"2", "", 1},           {"0", "", 1},         {"0-0", "0", 1}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        char nodes[32], found[8] = "";
        snprintf(nodes, sizeof nodes, "n[1-%d]", rows[i].nodes);
        assert_int_equal(cluster_parse(&x->cl, nodes), ERR_OK);
        if (cluster_racks(&x->cl, rows[i].racks) == ERR_OK)
            for (int n = 0; n < x->cl.nodes; n++) found[n] = (char)('0' + x->cl.rack[n]);
        if (strcmp(found, rows[i].expected) != 0)
            fail_msg("`%s` of %d nodes: racks %s, expected `%s`", rows[i].racks, rows[i].nodes, found,
                     rows[i].expected);
        if (*found) assert_int_equal(x->cl.racks, 1 + found[x->cl.nodes - 1] - '0');
    }
    assert_int_equal(cluster_parse(&x->cl, "n[1-5]"), ERR_OK);
    assert_int_equal(cluster_racks(&x->cl, "2"), ERR_CONFIG);
    assert_says(ERR_CONFIG, "nodes has 5", "such as 0-3,4", NULL);
    assert_int_equal(cluster_racks(&x->cl, "0-2,4"), ERR_CONFIG);
    assert_says(ERR_CONFIG, "`0-2,4`", "expected node 3 next", "end with node 4");
}

// As the INI has them, into the list of nodes; and refused by its rules.
static void test_racks_of_a_run(void **state) {
    fixture *x = *state;
    snprintf(x->c.cluster.nodes, sizeof x->c.cluster.nodes, "10.0.0.[1-4]:2");
    snprintf(x->c.cluster.racks, sizeof x->c.cluster.racks, "2");
    assert_int_equal(cluster_planned(&x->cl, &x->c), ERR_OK);
    assert_true(x->cl.racks == 2 && x->cl.rack[1] == 0 && x->cl.rack[2] == 1);
    setenv("LOCKSTEP_NODE", "1", 1);
    assert_int_equal(cluster_resolve(&x->cl, &x->c), ERR_OK);
    assert_true(x->cl.racks == 2 && x->cl.rack[1] == 0 && x->cl.rack[2] == 1);
    snprintf(x->c.cluster.racks, sizeof x->c.cluster.racks, "3");
    assert_int_equal(cluster_planned(&x->cl, &x->c), ERR_CONFIG);
    assert_says(ERR_CONFIG, "[cluster] racks", "3 racks", NULL);
    x->c.cluster.racks[0] = 0, x->c.cluster.joined = 2;
    assert_int_equal(cluster_planned(&x->cl, &x->c), ERR_OK);
    assert_int_equal(x->cl.joined, 2);
    x->c.cluster.joined = 3;
    assert_int_equal(cluster_planned(&x->cl, &x->c), ERR_CONFIG);
    assert_says(ERR_CONFIG, "[cluster]", "joined = 3, and 10.0.0.1 has 2 ranks", NULL);
    x->c.cluster.nodes[0] = 0, x->c.device.ranks = 4;
    unsetenv("LOCKSTEP_NODE");
    assert_int_equal(cluster_resolve(&x->cl, &x->c), ERR_CONFIG);
    assert_says(ERR_CONFIG, "[cluster]", "joined = 3, and localhost has 4 ranks", NULL);
    x->c.cluster.joined = 4;
    assert_int_equal(cluster_resolve(&x->cl, &x->c), ERR_OK);
    assert_int_equal(x->cl.joined, 4);
}

// --- lists of others -------------------------------------------------------------------------------------------------

static void test_slurm(void **state) {
    fixture *x = *state;
    static const struct {
        const char *nodes, *list, *gpus, *expected;
    } rows[] = {
        {"slurm", "gpu07", NULL, "gpu07:1"},
        {"slurm", "gpu[08-10]", "8", "gpu08:8 gpu09:8 gpu10:8"},
        {"slurm:2", "gpu[1-2,4],login", "h100:4", "gpu1:2 gpu2:2 gpu4:2 login:2"},
        {"slurm", "a,b[7],c[9-10].lan", "h100:4", "a:4 b7:4 c9.lan:4 c10.lan:4"},
        {"slurm", "r[1-2]n[08-09,11]x", NULL, "r1n08x:1 r1n09x:1 r1n11x:1 r2n08x:1 r2n09x:1 r2n11x:1"},
        {"slurm", "r[09-10]n[1]", "none", "r09n1:1 r10n1:1"},
        {"slurm", "gpu[07-07,09]", NULL, "gpu07:1 gpu09:1"},
        {"10.0.0.1:3", NULL, NULL, "10.0.0.1:3"},
        {"slurmer:3,b", NULL, NULL, "slurmer:3 b:1"},
    };
    char text[4096], nodes[900];
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (rows[i].list) setenv("SLURM_JOB_NODELIST", rows[i].list, 1);
        if (rows[i].gpus) setenv("SLURM_GPUS_PER_NODE", rows[i].gpus, 1);
        else unsetenv("SLURM_GPUS_PER_NODE");
        snprintf(nodes, sizeof nodes, "%s", rows[i].nodes);
        if (nodes_of(nodes, sizeof nodes) != ERR_OK) fail_msg("row %zu: %s", i, err_last()->text);
        if (cluster_parse(&x->cl, nodes) != ERR_OK) fail_msg("row %zu: %s: %s", i, nodes, err_last()->text);
        assert_string_equal(shown(&x->cl, text), rows[i].expected);
    }
    unsetenv("SLURM_GPUS_PER_NODE");
}

static void test_slurm_errors(void **state) {
    (void)state;
    static const char *const lists[] = {"gpu[1-", "gpu[5-3]", "gpu[a-b]", "gpu[1-2-3]", "gpu[]",
                                        "[",      "gpu[1,]",  ",a",       "a,"};
    char nodes[900] = "slurm", longer[2000];
    for (size_t i = 0; i < COUNT(lists); i++) {
        setenv("SLURM_JOB_NODELIST", lists[i], 1);
        if (nodes_of(nodes, sizeof nodes) == ERR_OK) fail_msg("%s became %s", lists[i], nodes);
        assert_says(ERR_CONFIG, "SLURM_JOB_NODELIST=", lists[i], "expected names such as");
        assert_string_equal(nodes, "slurm");
    }
    memset(longer, 'a', sizeof longer - 1), longer[sizeof longer - 1] = 0;
    for (size_t i = 8; i + 1 < sizeof longer; i += 9) longer[i] = ',';
    setenv("SLURM_JOB_NODELIST", longer, 1);
    assert_int_equal(nodes_of(nodes, sizeof nodes), ERR_CONFIG);
    assert_says(ERR_CONFIG, "longer than 899 letters", "as ranges", NULL);
    setenv("SLURM_JOB_NODELIST", "a", 1);
    for (int i = 0; i < 3; i++) {
        snprintf(nodes, sizeof nodes, "slurm:%s", i == 0 ? "x" : i == 1 ? "0" : "8x");
        assert_int_equal(nodes_of(nodes, sizeof nodes), ERR_CONFIG);
        assert_says(ERR_CONFIG, "expected slurm or slurm:8", NULL, NULL);
    }
    unsetenv("SLURM_JOB_NODELIST");
    snprintf(nodes, sizeof nodes, "slurm");
    assert_int_equal(nodes_of(nodes, sizeof nodes), ERR_CONFIG);
    assert_says(ERR_CONFIG, "in no job of Slurm's", "by srun, one task a node", NULL);
}

// A list that fills its place, with what ends it, and one that is a letter longer.
static void test_longest_list(void **state) {
    (void)state;
    struct {
        char nodes[16], beside;
    } x = {.beside = 'x'};
    setenv("SLURM_JOB_NODELIST", "a,bcd,efgh", 1);
    strcpy(x.nodes, "slurm");
    assert_int_equal(nodes_of(x.nodes, sizeof x.nodes), ERR_CONFIG);
    assert_says(ERR_CONFIG, "longer than 15 letters", NULL, NULL);
    assert_true(x.beside == 'x');
    setenv("SLURM_JOB_NODELIST", "a,bcd,efg", 1);
    assert_int_equal(nodes_of(x.nodes, sizeof x.nodes), ERR_OK);
    assert_string_equal(x.nodes, "a:1,bcd:1,efg:1");
    unsetenv("SLURM_JOB_NODELIST");
}

static void test_hosts_file(void **state) {
    fixture *x = *state;
    static const struct {
        const char *text, *expected;  // with a colon first: what is said
    } rows[] = {
        {"# ours\n10.0.0.1 slots=8\n\n10.0.0.2:4\t# beside it\r\n[fe80::1]:2\n[fe80::2]\n  head",
         "10.0.0.1:8 10.0.0.2:4 fe80::1:2 fe80::2:1 head:1"},
        {"n[1-3] slots=2\n", "n1:2 n2:2 n3:2"},
        {"a slots=2\r\n\r\nb\r\n", "a:2 b:1"},
        {"a\na b\n", ":2: expected host, host:8 or host slots=8, found `a b`"},
        {"a slots=0\n", ":1: expected host"},
        {"a slots=2 x\n", ":1: expected host"},
        {"a:2 slots=2\n", ":1: expected host"},
        {"a:\n", ":1: expected host"},
        {"# no hosts\n", ": no host is in it"},
    };
    char path[300], nodes[900], text[4096];
    snprintf(path, sizeof path, "%s/hosts", x->dir);
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(io_write_file(path, rows[i].text, strlen(rows[i].text), NULL), ERR_OK);
        snprintf(nodes, sizeof nodes, "file:%s", path);
        err_t rc = nodes_of(nodes, sizeof nodes);
        if (rows[i].expected[0] == ':') {
            assert_int_equal(rc, ERR_CONFIG);
            assert_says(ERR_CONFIG, path, rows[i].expected, NULL);
            continue;
        }
        if (rc != ERR_OK || cluster_parse(&x->cl, nodes) != ERR_OK) fail_msg("row %zu: %s", i, err_last()->text);
        assert_string_equal(shown(&x->cl, text), rows[i].expected);
    }
    assert_int_equal(io_write_file(path, "a\0b\n", 4, NULL), ERR_OK);
    snprintf(nodes, sizeof nodes, "file:%s", path);
    assert_int_equal(nodes_of(nodes, sizeof nodes), ERR_CONFIG);
    unlink(path);
    assert_true(nodes_of(nodes, sizeof nodes) != ERR_OK);
    assert_non_null(strstr(err_last()->text, "No such file"));
}

static void test_parse_anything(void **state) {
    fixture *x = *state;
    static const char likely[] = "a1:[],- .%0\t9gpu";
    uint64_t seed = 88172645463325252u;
    int accepted = 0;
    for (int round = 0; round < 200000; round++) {
        char text[24];
        size_t n = (size_t)(seed >> 20) % sizeof text;
        for (size_t i = 0; i < n; i++) {
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            text[i] = likely[(seed >> 40) % (sizeof likely - 1)];
        }
        text[n] = 0;
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        if (cluster_parse(&x->cl, text) != ERR_OK) continue;
        accepted++;
        int world = 0;
        assert_in_range(x->cl.nodes, 1, TEAM_NODES_MAX);
        for (int i = 0; i < x->cl.nodes; i++) {
            assert_in_range(x->cl.ranks[i], 1, TEAM_RANKS_MAX);
            assert_in_range(strlen(x->cl.host[i]), 1, COMM_HOST - 1);
            world += x->cl.ranks[i];
        }
        assert_int_equal(world, x->cl.world);
    }
    assert_in_range(accepted, 200, 100000);
}

// --- which one is this machine ---------------------------------------------------------------------------------------

static void test_alone(void **state) {
    fixture *x = *state;
    assert_int_equal(resolve(x, ""), ERR_OK);
    assert_int_equal(x->cl.nodes, 1);
    assert_int_equal(x->cl.world, 1);
    assert_int_equal(x->cl.node, 0);
    assert_string_equal(x->cl.host[0], "localhost");
    x->c.device.ranks = 5;
    assert_int_equal(resolve(x, ""), ERR_OK);
    assert_int_equal(x->cl.world, 5);
    assert_int_equal(x->cl.ranks[0], 5);
    setenv("LOCKSTEP_NODE", "0", 1);
    assert_int_equal(resolve(x, ""), ERR_OK);
    setenv("LOCKSTEP_NODE", "1", 1);
    assert_int_equal(resolve(x, ""), ERR_CONFIG);
    assert_says(ERR_CONFIG, "LOCKSTEP_NODE=1", "expected a number from 0 to 0", "1 entry, or is empty");
}

static void test_told(void **state) {
    fixture *x = *state;
    for (int k = 0; k < 3; k++) {
        char text[8];
        snprintf(text, sizeof text, "%d", k);
        setenv("LOCKSTEP_NODE", text, 1);
        assert_int_equal(resolve(x, "127.0.0.1:1, 127.0.0.2:2, no-such-host.invalid:3"), ERR_OK);
        assert_int_equal(x->cl.node, k);
        assert_int_equal(x->cl.world, 6);
        assert_int_equal(x->cl.ranks[x->cl.node], k + 1);
    }
    static const char *const bad[] = {"3", "-1", "", " 0", "0 ", "one", "0x1", "1e0", "99999999999999999999"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        setenv("LOCKSTEP_NODE", bad[i], 1);
        if (resolve(x, "127.0.0.1:1, 127.0.0.2:2, 127.0.0.3:3") != ERR_CONFIG)
            fail_msg("LOCKSTEP_NODE=`%s` was taken", bad[i]);
        char part[64];
        snprintf(part, sizeof part, "LOCKSTEP_NODE=%.40s", bad[i]);
        assert_says(ERR_CONFIG, part, "expected a number from 0 to 2", "has 3 entries");
    }
}

// An address of this machine that others may reach; false: it has none.
static bool outer_address(char text[NI_MAXHOST]) {
    struct ifaddrs *all;
    bool found = false;
    assert_int_equal(getifaddrs(&all), 0);
    for (struct ifaddrs *i = all; i && !found; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || (i->ifa_flags & IFF_LOOPBACK)) continue;
        found = getnameinfo(i->ifa_addr, sizeof(struct sockaddr_in), text, NI_MAXHOST, NULL, 0, NI_NUMERICHOST) == 0;
    }
    freeifaddrs(all);
    return found;
}

// 198.51.100.0/24 and 2001:db8::/32 are for documentation: nobody's addresses.
static void test_find_self(void **state) {
    fixture *x = *state;
    static const char *const me[] = {"127.0.0.1:3", "127.5.4.3:3", "[::1]:3", "localhost:3"};
    for (size_t i = 0; i < COUNT(me); i++) {
        if (resolve(x, me[i]) != ERR_OK) fail_msg("%s", err_last()->text);
        assert_int_equal(x->cl.node, 0);
        assert_int_equal(x->cl.ranks[0], 3);
    }
    assert_int_equal(resolve(x, "198.51.100.1:1, 198.51.100.2:1, [2001:db8::1]:4"), ERR_CONFIG);
    assert_says(ERR_CONFIG, "none of them (198.51.100.1, 198.51.100.2, 2001:db8::1) is this machine", "127.0.0.1",
                "LOCKSTEP_NODE=k in the environment, from 0 to 2");
    assert_int_equal(resolve(x, "127.0.0.1:1, 198.51.100.2:1, 127.0.0.2:1"), ERR_CONFIG);
    assert_says(ERR_CONFIG, "2 of them are this machine: 127.0.0.1, 127.0.0.2. ", "LOCKSTEP_NODE=k", NULL);
    assert_int_equal(resolve(x, "no..host:1"), ERR_CONFIG);  // no name server is asked for a name with an empty part
    assert_says(ERR_CONFIG, "none of them (no..host (", "LOCKSTEP_NODE=k", NULL);
    // a name that is a loopback address here is no use to the others
    assert_int_equal(resolve(x, "198.51.100.1:1, localhost:1"), ERR_CONFIG);
    assert_says(ERR_CONFIG, "localhost", "stands here for a loopback address only", "/etc/hosts");
    // a hundred wrong names do not fill more than a message
    assert_int_equal(resolve(x, "198.51.100.[1-200]"), ERR_CONFIG);
    assert_says(ERR_CONFIG, "198.51.100.1, 198.51.100.2, ", ", ...) is this machine", "from 0 to 199");
}

static void test_find_outer(void **state) {
    fixture *x = *state;
    char address[NI_MAXHOST], nodes[NI_MAXHOST + 64];
    if (!outer_address(address)) {
        print_message("skipped: this machine has no address but its loopback\n");
        skip();
    }
    snprintf(nodes, sizeof nodes, "198.51.100.1:1, 198.51.100.2:2, %s:3, 198.51.100.3:4", address);
    if (resolve(x, nodes) != ERR_OK) fail_msg("%s", err_last()->text);
    assert_int_equal(x->cl.node, 2);
    assert_int_equal(x->cl.world, 10);
}

static void test_rules(void **state) {
    fixture *x = *state;
    setenv("LOCKSTEP_NODE", "1", 1);
    x->c.device.ranks = 3;
    assert_int_equal(resolve(x, "a:2, b:3"), ERR_OK);
    x->c.device.ranks = 2;
    assert_int_equal(resolve(x, "a:2, b:3"), ERR_CONFIG);
    assert_says(ERR_CONFIG, "[device] ranks = 2", "gives this node, b, 3", NULL);
    x->c.device.ranks = 0;
    assert_int_equal(resolve(x, "a:2, b:3:4"), ERR_CONFIG);
    assert_says(ERR_CONFIG, "[cluster] nodes: entry 2, `b:3:4`", NULL, NULL);
    x->c.batch.lanes = x->c.resolved.lanes = 4;
    assert_int_equal(resolve(x, "a:2, b:2"), ERR_OK);
    assert_int_equal(resolve(x, "a:2, b:3"), ERR_CONFIG);
    assert_says(ERR_CONFIG, "5 ranks ([cluster] nodes) are more than the lanes = 4", "idle",
                "Nearest that work: [batch] global = 64, or [batch] micro = 2.");
    x->c.parallel.data = 4;
    assert_int_equal(resolve(x, "a:2, b:2"), ERR_OK);
    x->c.parallel.data = 2;
    assert_int_equal(resolve(x, "a:2, b:2"), ERR_CONFIG);
    assert_says(ERR_CONFIG, "[parallel] data = 2", "the run has 4 ranks", "data = 0");
    setenv("LOCKSTEP_NODE", "0", 1);
    assert_int_equal(resolve(x, ""), ERR_CONFIG);  // one rank
    assert_says(ERR_CONFIG, "[parallel] data = 2", "the run has 1 rank ([device] ranks)", NULL);
}

// --- the secret ------------------------------------------------------------------------------------------------------

static const char *write_secret(fixture *x, const char *name, size_t bytes, int mode) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", x->dir, name);
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    for (size_t i = 0; i < bytes; i++) assert_int_equal(write(fd, &(char){(char)(i * 7 + 1)}, 1), 1);
    assert_int_equal(fchmod(fd, (mode_t)mode), 0);
    close(fd);
    snprintf(x->c.cluster.secret_file, sizeof x->c.cluster.secret_file, "%s", path);
    return path;
}

static void test_secret(void **state) {
    fixture *x = *state;
    uint8_t key[TEAM_KEY], again[TEAM_KEY], other[TEAM_KEY];
    write_secret(x, "a", 32, 0600);
    assert_int_equal(cluster_secret(&x->c, key), ERR_OK);
    write_secret(x, "b", 32, 0400);  // the same bytes elsewhere
    assert_int_equal(cluster_secret(&x->c, again), ERR_OK);
    assert_memory_equal(key, again, TEAM_KEY);
    write_secret(x, "a", 33, 0600);  // one more
    assert_int_equal(cluster_secret(&x->c, other), ERR_OK);
    assert_memory_not_equal(key, other, TEAM_KEY);
    for (size_t i = 0; i < TEAM_KEY; i++) again[i] = (uint8_t)(i * 7 + 1);
    assert_memory_not_equal(key, again, TEAM_KEY);  // never the file's own bytes
    write_secret(x, "a", 4096, 0600);
    assert_int_equal(cluster_secret(&x->c, other), ERR_OK);
    assert_memory_not_equal(key, other, TEAM_KEY);

    static const int modes[] = {0640, 0604, 0644, 0660, 0620, 0602, 0610, 0601, 0666, 0777};
    for (size_t i = 0; i < COUNT(modes); i++) {
        char part[32];
        snprintf(part, sizeof part, "mode %04o", modes[i]);
        const char *path = write_secret(x, "a", 32, modes[i]);
        if (cluster_secret(&x->c, key) != ERR_AUTH) fail_msg("%s was taken", part);
        assert_says(ERR_AUTH, path, part, "expected 0600");
    }
    static const size_t sizes[] = {0, 1, 31, 4097, 9000};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        char part[64], make[1100];
        snprintf(part, sizeof part, ": %zu bytes; expected 32 to 4096", sizes[i]);
        const char *path = write_secret(x, "a", sizes[i], 0600);
        snprintf(make, sizeof make,
                 "head -c 32 /dev/urandom > %s; chmod 600 %s` and copy it to every node: all need the same", path,
                 path);
        if (cluster_secret(&x->c, key) != ERR_AUTH) fail_msg("%s was taken", part);
        assert_says(ERR_AUTH, part, make, NULL);
    }
}

static void test_secret_kinds(void **state) {
    fixture *x = *state;
    uint8_t key[TEAM_KEY], again[TEAM_KEY];
    char path[512], link[512];
    assert_int_equal(cluster_secret(&x->c, key), ERR_AUTH);
    assert_says(ERR_AUTH, "[cluster] secret_file", "head -c 32 /dev/urandom > secret",
                "set [cluster] secret_file = secret, and copy the file");
    strcpy(x->c.cluster.secret_file, "/none/it's mine");  // as a shell takes it
    assert_int_equal(cluster_secret(&x->c, key), ERR_AUTH);
    assert_says(ERR_AUTH, "head -c 32 /dev/urandom > '/none/it'\\''s mine'; chmod 600 '/none/it'\\''s mine'`", NULL,
                NULL);
    snprintf(x->c.cluster.secret_file, sizeof x->c.cluster.secret_file, "%s/none", x->dir);
    assert_int_equal(cluster_secret(&x->c, key), ERR_AUTH);
    assert_says(ERR_AUTH, "/none: the secret can't be opened: No such file", "chmod 600", NULL);
    snprintf(x->c.cluster.secret_file, sizeof x->c.cluster.secret_file, "%s", x->dir);
    assert_int_equal(cluster_secret(&x->c, key), ERR_AUTH);
    assert_says(ERR_AUTH, x->dir, "not a regular file", NULL);
    snprintf(path, sizeof path, "%s/pipe", x->dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    strcpy(x->c.cluster.secret_file, path);
    assert_int_equal(cluster_secret(&x->c, key), ERR_AUTH);  // at once, though nobody writes to it
    assert_says(ERR_AUTH, "/pipe: not a regular file", NULL, NULL);

    // a link is as good as what it points at, which is what is judged and read
    strcpy(path, write_secret(x, "good", 40, 0600));
    assert_int_equal(cluster_secret(&x->c, key), ERR_OK);
    snprintf(link, sizeof link, "%s/link", x->dir);
    assert_int_equal(symlink(path, link), 0);
    strcpy(x->c.cluster.secret_file, link);
    assert_int_equal(cluster_secret(&x->c, again), ERR_OK);
    assert_memory_equal(key, again, TEAM_KEY);
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(cluster_secret(&x->c, key), ERR_AUTH);
    assert_says(ERR_AUTH, "/link: mode 0644", NULL, NULL);
    if (geteuid() == 0) {  // someone else's file
        assert_int_equal(chmod(path, 0600), 0);
        assert_int_equal(chown(path, 12345, 0), 0);
        assert_int_equal(cluster_secret(&x->c, key), ERR_AUTH);
        assert_says(ERR_AUTH, "belongs to user 12345", NULL, NULL);
    }
}

static void test_credentials(void **state) {
    fixture *x = *state;
    uint8_t key[TEAM_KEY], again[TEAM_KEY];
    setenv("CREDENTIALS_DIRECTORY", x->dir, 1);
    assert_int_equal(cluster_secret(&x->c, key), ERR_AUTH);
    assert_says(ERR_AUTH, "/lockstep-secret: the secret can't be opened",
                "> /etc/lockstep/secret; chmod 600 /etc/lockstep/secret`", NULL);
    write_secret(x, "lockstep-secret", 32, 0400);
    x->c.cluster.secret_file[0] = 0;
    assert_int_equal(cluster_secret(&x->c, key), ERR_OK);
    // how an access-control list of systemd's looks, when root owns the file
    write_secret(x, "lockstep-secret", 32, 0440);
    x->c.cluster.secret_file[0] = 0;
    assert_int_equal(cluster_secret(&x->c, again), geteuid() == 0 && getegid() == 0 ? ERR_OK : ERR_AUTH);
    write_secret(x, "lockstep-secret", 32, 0444);
    x->c.cluster.secret_file[0] = 0;
    assert_int_equal(cluster_secret(&x->c, again), ERR_AUTH);
    assert_says(ERR_AUTH, "/lockstep-secret: mode 0444", NULL, NULL);
    write_secret(x, "lockstep-secret", 4, 0400);  // what the unit puts there when no secret was made
    x->c.cluster.secret_file[0] = 0;
    assert_int_equal(cluster_secret(&x->c, again), ERR_AUTH);
    assert_says(ERR_AUTH, "/lockstep-secret: 4 bytes", "/etc/lockstep/secret", "head -c 32");
    write_secret(x, "mine", 50, 0600);  // a file that is named comes first
    assert_int_equal(cluster_secret(&x->c, again), ERR_OK);
    assert_memory_not_equal(key, again, TEAM_KEY);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_parse),          TEST(test_parse_errors), TEST(test_racks),        TEST(test_racks_of_a_run),
        TEST(test_slurm),          TEST(test_slurm_errors), TEST(test_longest_list), TEST(test_hosts_file),
        TEST(test_parse_anything), TEST(test_alone),        TEST(test_told),         TEST(test_find_self),
        TEST(test_find_outer),     TEST(test_rules),        TEST(test_secret),       TEST(test_secret_kinds),
        TEST(test_credentials),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
