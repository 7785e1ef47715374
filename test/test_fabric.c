// test/test_fabric.c: what is special about ranks that reach each other through libfabric: messages that are changed on
// the way, a sender that runs ahead, providers that are not there. That all collectives are right over it is tested by
// the programs for tcp (test/test_fabric.sh runs them so).
#include "test/support/comm_ranks.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>

// --- what libfabric is given -----------------------------------------------------------------------------------------

enum { HEAD, BODY, CONTROL, KINDS, COPY = 300000 };  // comm/fabric/fabric.c: tag_kind

typedef enum { FLIP, CUT, REPEAT } change;

// What becomes of the n-th message of a kind that this rank sends. bytes: of a message to be changed, at least.
typedef struct damage {
    int kind, n;
    change how;
    size_t at;
    const char *says;
} damage;

static const damage *doing;
static int sent[KINDS];

bool __wrap_endpoint_send(void *e, void *op, uint64_t to, uint64_t tag, const void *data, size_t bytes);
bool __real_endpoint_send(void *e, void *op, uint64_t to, uint64_t tag, const void *data, size_t bytes)
    __attribute__((weak));

bool __wrap_endpoint_send(void *e, void *op, uint64_t to, uint64_t tag, const void *data, size_t bytes) {
    static char copy[COPY], earlier[KINDS][COPY];  // libfabric reads them later
    int kind = (int)(tag >> 46);
    bool now = doing && kind == doing->kind && sent[kind] == doing->n;
    if (now) {
        memcpy(copy, doing->how == REPEAT ? earlier[kind] : data, bytes);
        if (doing->how == FLIP) copy[doing->at] ^= 0x10;
    } else if (doing) memcpy(earlier[kind], data, bytes);
    if (!__real_endpoint_send(e, op, to, tag, now ? copy : data, now && doing->how == CUT ? bytes - 1 : bytes))
        return false;
    sent[kind]++;
    return true;
}

static bool is_there(void) { return __real_endpoint_send && dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL); }

#define NEEDS_FABRIC() \
    do { \
        (void)state; \
        if (!is_there()) { \
            print_message("skipped: no libfabric here, or lockstep was built without its headers\n"); \
            skip(); \
        } \
    } while (0)

static const char *const providers[] = {"tcp", "shm", "tcp registered"};
enum { PROVIDERS = sizeof providers / sizeof *providers };

static void use(const char *provider) { setenv("LOCKSTEP_TEST_FABRIC", provider, 1); }

// --- messages that are changed ---------------------------------------------------------------------------------------

static void failed_as(err_t rc) {
    CHECK(rc == ERR_UNAVAILABLE, "code %d, expected ERR_UNAVAILABLE", rc);
    snprintf(mine->text, sizeof mine->text, "%s", err_last()->text);
}

// Three messages of two frames each, and short ones in both directions. Rank 0 sends what is changed of frames, rank 1
// of what it says of them.
static void body_damaged(comm *c, void *ctx) {
    const damage *d = ctx;
    char *x = calloc(1, 300000);
    err_t rc = ERR_OK;
    if (c->rank == (d->kind == CONTROL)) doing = d;
    for (int i = 0; i < 3 && rc == ERR_OK; i++) {
        memset(x, i, 300000);
        rc = c->rank == 0 ? c->table->exchange(c, &(comm_part){1, x, 300000}, 1, NULL, 0, NULL)
                          : c->table->exchange(c, NULL, 0, &(comm_part){0, x, 300000}, 1, NULL);
        if (rc == ERR_OK) rc = c->table->broadcast(c, x, 100, 0, NULL);
    }
    if (rc == ERR_OK) rc = c->table->barrier(c, NULL);
    failed_as(rc);
    free(x);
}

static void run_damaged(const char *provider, const damage *d) {
    use(provider);
    const report *r = run_ranks(&far2, 10, body_damaged, (void *)(uintptr_t)d, 0);
    for (int i = 0; i < 2; i++)
        if (!strstr(r[i].text, d->says))
            fail_msg("%s, message %d of kind %d, change %d at %zu: rank %d: \"%s\" says nothing of \"%s\"", provider,
                     d->n, d->kind, (int)d->how, d->at, i, r[i].text, d->says);
}

static void changed_messages_are_not_believed(void **state) {
    NEEDS_FABRIC();
    static const char head[] = "a frame's head does not verify", payload[] = "a frame's payload does not verify";
    static const damage all[] = {
        {HEAD, 0, FLIP, 0, head},      {HEAD, 2, FLIP, 39, head},       {HEAD, 3, REPEAT, 0, head},
        {HEAD, 2, FLIP, 60, payload},  {BODY, 1, FLIP, 30000, payload}, {BODY, 2, FLIP, 262143, payload},
        {BODY, 2, REPEAT, 0, payload}, {BODY, 1, CUT, 0, "cut off"},    {HEAD, 2, CUT, 0, "cut off"},
        {CONTROL, 0, FLIP, 0, head},   {CONTROL, 1, REPEAT, 0, head},   {CONTROL, 0, CUT, 0, "cut off"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) run_damaged(providers[i % PROVIDERS], &all[i]);
}

// --- a sender that runs ahead ----------------------------------------------------------------------------------------

enum { MANY = 3000, WINDOW = 8 };

// Rank 1 comes late. Until then rank 0 gives libfabric no more than the window, whatever it has to send.
static void body_ahead(comm *c, void *ctx) {
    atomic_int *given = ctx;
    static const size_t sizes[] = {0, 40, 100, 8136, 8137, 20000};
    char *x = malloc(20000);
    RUNS(c->table->barrier(c, NULL));
    int before = sent[HEAD];
    if (c->rank == 1) {
        poll(NULL, 0, 300);
        CHECK(atomic_load(given) <= WINDOW, "%d messages for a rank that has not come, expected at most %d",
              atomic_load(given), WINDOW);
    }
    for (int i = 0; i < MANY; i++) {
        size_t n = sizes[i % 6];
        memset(x, c->rank == 0 ? i : -1, n);
        RUNS(c->table->broadcast(c, x, n, 0, NULL));
        if (c->rank == 0 && i < 100) atomic_store(given, sent[HEAD] - before);
        for (size_t k = 0; k < n; k += 37)
            CHECK(x[k] == (char)i, "byte %zu of broadcast %d is %d, expected %d", k, i, x[k], (char)i);
    }
    RUNS(c->table->barrier(c, NULL));
    free(x);
}

static void a_sender_waits_for_its_reader(void **state) {
    NEEDS_FABRIC();
    atomic_int *given = mmap(NULL, sizeof *given, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int p = 0; p < PROVIDERS; p++) {
        use(providers[p]);
        atomic_store(given, 0);
        run_ranks(&far2, 30, body_ahead, given, 0);
    }
    munmap(given, sizeof *given);
}

// --- opening ---------------------------------------------------------------------------------------------------------

static void body_describe(comm *c, void *ctx) {
    (void)ctx;
    c->table->describe(c, mine->text, sizeof mine->text);
    RUNS(c->table->barrier(c, NULL));
}

static void expect_text(const char *wanted, const layout *l, int bad, const char *const says[], int n) {
    use(wanted);
    const report *r = run_ranks(l, 5, body_describe, NULL, bad);
    for (int i = 0; i < n; i++)
        if (!strstr(r[0].text, says[i])) fail_msg("\"%s\" says nothing of \"%s\"", r[0].text, says[i]);
}

static void who_starts_a_run_is_told(void **state) {
    NEEDS_FABRIC();
    expect_text("tcp", &far2, 0, (const char *const[]){"libfabric ", "provider tcp"}, 2);
    expect_text("shm", &mixed4, 0, (const char *const[]){"shared memory and libfabric ", "provider shm"}, 2);
    expect_text("", &far2, 0, (const char *const[]){"libfabric ", "provider "}, 2);
    expect_text("nothing", &far2, 2, (const char *const[]){"no provider nothing", "It has: ", "shm", "fabric_provider"},
                4);
    expect_text("tcp,shm", &far2, 2, (const char *const[]){"tcp", "shm", "rank 1 (127.0.0.2)", "fabric_provider"}, 4);
}

// The name under /dev/shm that the provider shm gave this process' memory.
static void body_name(comm *c, void *ctx) {
    char pid[16];
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    (void)ctx;
    DIR *d = opendir("/dev/shm");
    for (const struct dirent *f; d && (f = readdir(d));)
        if (strstr(f->d_name, pid)) snprintf(mine->text, sizeof mine->text, "%d %s", (int)getpid(), f->d_name);
    if (d) closedir(d);
    RUNS(c->table->barrier(c, NULL));
}

// Leaves memory of killed processes under the names that the `n` processes after this one would use, or takes it away.
// like: "PID NAME" of one that had such memory. Returns how many were made or taken away.
static int litter(const char *like, int n, bool leave) {
    static uint8_t old[1 << 16];
    char pid[16], name[256];
    int were = 0, root = open("/dev/shm", O_RDONLY | O_DIRECTORY);
    if (sscanf(like, "%15s %255s", pid, name) != 2) fail_msg("\"%s\" is no name", like);
    char *at = strstr(name, pid);
    memset(old, 0xff, sizeof old);
    for (int next = atoi(pid) + 1, i = 0; i < n; i++, next++) {
        char its[300];
        snprintf(its, sizeof its, "%.*s%d%s", (int)(at - name), name, next, at + strlen(pid));
        if (!leave) {
            were += unlinkat(root, its, 0) == 0;
            continue;
        }
        int fd = openat(root, its, O_CREAT | O_EXCL | O_WRONLY, 0600);
        if (fd < 0) continue;  // somebody's
        were += write(fd, old, sizeof old) == (ssize_t)sizeof old;
        close(fd);
    }
    close(root);
    return were;
}

// Numbers of processes come again.
static void memory_of_killed_ranks_is_replaced(void **state) {
    NEEDS_FABRIC();
    enum { NEXT = 400 };
    use("shm");
    char like[ERR_TEXT];
    snprintf(like, sizeof like, "%s", run_ranks(&far2, 5, body_name, NULL, 0)[0].text);
    litter(like, NEXT, true);
    run_ranks(&far2, 5, body_describe, NULL, 0);
    assert_in_range(litter(like, NEXT, false), 0, NEXT - 1);
}

static void one_machine_needs_no_libfabric(void **state) {
    (void)state;
    expect_text("nothing", &near2, 0, (const char *const[]){"shared memory"}, 1);
}

static void without_it_the_message_says_what_to_install(void **state) {
    (void)state;
    if (is_there()) skip();
    expect_text("tcp", &far2, 2, (const char *const[]){"apt-get install libfabric", "transport = tcp"}, 2);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changed_messages_are_not_believed),
        cmocka_unit_test(a_sender_waits_for_its_reader),
        cmocka_unit_test(who_starts_a_run_is_told),
        cmocka_unit_test(memory_of_killed_ranks_is_replaced),
        cmocka_unit_test(one_machine_needs_no_libfabric),
        cmocka_unit_test(without_it_the_message_says_what_to_install),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
