// test/test_nccl_library.c: which library the nccl transport opens, and which it refuses, with which settings; and that
// our declarations are NCCL's. (What it does is in test/test_nccl.c.)
#include "test/support/nccl_ranks.h"

// Nothing is broken when it cannot be opened: all ranks have the same error, and the companion still works.
static void still_a_team(job *j) {
    CHECK(!j->c, "a communicator in spite of an error");
    RUN(team_query(j->t));
    sum_in(j, j->over, 1, (float)j->over->world);
}

static void no_library(job *j) {
    if (j->at.rank == 1) j->o.nccl_path = "/nowhere/libnccl.so.2";
    FAILS(comm_nccl_open(&j->c, j->t, j->over, &j->o, j->s), ERR_UNAVAILABLE, "not found (tried /nowhere/libnccl.so.2)",
          "transport = tcp", "install", j->at.rank == 1 ? "nccl" : "rank 1");
    still_a_team(j);
}

static void not_nccl(job *j) {
    j->o.nccl_path = "libm.so.6";
    FAILS(comm_nccl_open(&j->c, j->t, j->over, &j->o, j->s), ERR_UNAVAILABLE, "libm.so.6 is not an NCCL", "2.18.0",
          "19 functions", "ncclGetVersion", "ncclCommSplit", "ncclAllGather");
    still_a_team(j);
}

static void not_a_library(job *j) {
    char path[] = "/proc/self/status";
    j->o.nccl_path = path;
    FAILS(comm_nccl_open(&j->c, j->t, j->over, &j->o, j->s), ERR_UNAVAILABLE, "tried /proc/self/status (");
    still_a_team(j);
}

static void too_old(job *j) {
    setenv("LOCKSTEP_STANDIN_VERSION", j->at.rank == 1 ? "21705" : "21800", 1);
    FAILS(comm_nccl_open(&j->c, j->t, j->over, &j->o, j->s), ERR_UNAVAILABLE, "2.17.5", "2.18.0 or newer",
          "libnccl-standin.so");
    still_a_team(j);
}

static void unlike(job *j) {
    if (j->at.rank == 1) setenv("LOCKSTEP_STANDIN_VERSION", "22703", 1);
    FAILS(comm_nccl_open(&j->c, j->t, j->over, &j->o, j->s), ERR_UNAVAILABLE, "2.27.3", "2.28.9", "rank 0");
    still_a_team(j);
}

static void cpu_refused(job *j) {
    FAILS(comm_nccl_open(&j->c, j->t, j->over, &j->o, j->s), ERR_CONFIG, "GPUs only", "cpu", "transport = tcp");
    still_a_team(j);
}

static void a_library_that_will_not_do_is_refused(void **state) {
    (void)state;
    run(&(plan){.world = 3, .body = no_library});
    run(&(plan){.world = 2, .body = not_nccl});
    run(&(plan){.world = 2, .body = not_a_library});
    run(&(plan){.world = 2, .body = too_old});
    run(&(plan){.world = 2, .body = unlike});
}

static void a_cpu_is_refused_by_what_is_no_stand_in(void **state) {
    (void)state;
    run(&(plan){.world = 2, .body = cpu_refused, .standin = {"cpu-no", "cpu-no"}});
}

static void real_one(job *j) {
    j->o.nccl_path = NULL;
    FAILS(comm_nccl_open(&j->c, j->t, j->over, &j->o, j->s), ERR_CONFIG, "GPUs only", "cpu");
    still_a_team(j);
}

// Asked in a process of its own, so that it is not loaded here.
static bool have_nccl(void) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) _exit(dlopen("libnccl.so.2", RTLD_LAZY) ? 0 : 1);
    int status;
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void the_real_nccl_has_what_we_call(void **state) {
    (void)state;
    if (!have_nccl()) skip();
    run(&(plan){.world = 2, .body = real_one});
}

static void settings(job *j) {
    char text[600];
    setenv("NCCL_ALGO", "Tree", 1);
    setenv("NCCL_SOCKET_IFNAME", "eth7", 1);
    j->o.interface = "lo", j->o.algorithm = "Ring", j->o.infiniband = 0;
    open_nccl(j);
    CHECK(strcmp(seen(j, "NCCL_SOCKET_IFNAME"), "lo") == 0, "%s", seen(j, "NCCL_SOCKET_IFNAME"));
    CHECK(strcmp(seen(j, "NCCL_ALGO"), "Ring") == 0, "%s", seen(j, "NCCL_ALGO"));
    CHECK(strcmp(seen(j, "NCCL_IB_DISABLE"), "1") == 0, "%s", seen(j, "NCCL_IB_DISABLE"));
    CHECK(strcmp(seen(j, "NCCL_RAS_ENABLE"), "0") == 0, "%s", seen(j, "NCCL_RAS_ENABLE"));
    nccl_describe(j->c, text, sizeof text);
    const char *tells[] = {"nccl 2.28.9", "stand-in", j->library, "interface lo", "infiniband off", "algorithm Ring"};
    for (int i = 0; i < 6; i++) CHECK(strstr(text, tells[i]), "\"%s\" says nothing of %s", text, tells[i]);
    char small[12];
    nccl_describe(j->c, small, sizeof small);
    CHECK(strcmp(small, "nccl 2.28.9") == 0, "%s", small);
}

static void others_settings(job *j) {
    char text[600];
    setenv("NCCL_RAS_ENABLE", "1", 1);
    setenv("NCCL_SOCKET_IFNAME", "eth7", 1);
    unsetenv("NCCL_ALGO");
    j->o.infiniband = 1;
    open_nccl(j);
    CHECK(strcmp(seen(j, "NCCL_SOCKET_IFNAME"), "eth7") == 0, "%s", seen(j, "NCCL_SOCKET_IFNAME"));
    CHECK(strcmp(seen(j, "NCCL_IB_DISABLE"), "0") == 0, "%s", seen(j, "NCCL_IB_DISABLE"));
    CHECK(strcmp(seen(j, "NCCL_RAS_ENABLE"), "1") == 0, "%s", seen(j, "NCCL_RAS_ENABLE"));
    CHECK(strcmp(seen(j, "NCCL_ALGO"), "") == 0, "%s", seen(j, "NCCL_ALGO"));
    nccl_describe(j->c, text, sizeof text);
    CHECK(strstr(text, "interface eth7, infiniband on, RAS on") && !strstr(text, "algorithm"), "%s", text);
}

static void settings_are_there_when_nccl_is_first_called(void **state) {
    (void)state;
    run(&(plan){.world = 2, .body = settings});
    run(&(plan){.world = 2, .body = others_settings});
}

static void one_rank_calls_no_library(void **state) {
    (void)state;
    comm *self, *c;
    assert_int_equal(comm_self_open(&self), ERR_OK);
    assert_int_equal(comm_nccl_open(&c, NULL, self, &(transport_options){.nccl_path = "/nowhere"}, NULL), ERR_OK);
    assert_string_equal(c->table->name, "self");
    c->table->close(c);
}

// test/nccl_headers.c, linked where NCCL's headers are installed: that it was compiled is most of the test.
extern const int nccl_headers_version __attribute__((weak));
extern const size_t nccl_headers_config_bytes __attribute__((weak));
extern const unsigned char nccl_headers_config[] __attribute__((weak));

static void declarations_are_those_of_nccl_h(void **state) {
    (void)state;
    if (!&nccl_headers_version) skip();
    ncclConfig_t ours = nccl_config_nonblocking(), theirs;
    if (nccl_headers_version / 100 != NCCL_API_VERSION / 100) skip();
    assert_int_equal(nccl_headers_config_bytes, sizeof ours);
    memcpy(&theirs, nccl_headers_config, sizeof theirs);
    assert_int_equal(theirs.blocking, NCCL_UNDEFINED);
    theirs.blocking = 0;                // the one that we define
    theirs.version = NCCL_API_VERSION;  // a patch release changes no field
    assert_memory_equal(&ours, &theirs, sizeof ours);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(declarations_are_those_of_nccl_h),
        cmocka_unit_test(one_rank_calls_no_library),
        cmocka_unit_test(a_library_that_will_not_do_is_refused),
        cmocka_unit_test(a_cpu_is_refused_by_what_is_no_stand_in),
        cmocka_unit_test(the_real_nccl_has_what_we_call),
        cmocka_unit_test(settings_are_there_when_nccl_is_first_called),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
