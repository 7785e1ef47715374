// test/test_comm_memory.c: opening a transport when there is no memory. The heap refuses one request, the first, then
// the second, and so on until opening works: each time the answer is an error that says so, and all that was made until
// then is given back.
#include "comm/transport.h"
#include "test/support/team_stub.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // which have their own malloc in this place
int main(void) {
    puts("0 passed, 0 failed, 1 skipped");
    puts("skipped: test_comm_memory (the sanitizer owns malloc)");
    return 0;
}
#else

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void __libc_free(void *);

enum { NEVER = -1, MOST = 100 };

static int refuse = NEVER;  // so many requests from now
static long held;           // blocks that were given and not freed

static void *given(void *p) {
    held += p != NULL;
    return p;
}
static bool refused(void) { return refuse >= 0 && refuse-- == 0; }
void *malloc(size_t n) { return refused() ? NULL : given(__libc_malloc(n)); }
void *calloc(size_t n, size_t m) { return refused() ? NULL : given(__libc_calloc(n, m)); }
void free(void *p) {
    held -= p != NULL;
    __libc_free(p);
}

typedef err_t trial(void *ctx);

// Returns how many requests the trial makes.
static int refuse_each(trial *run, void *ctx) {
    for (int k = 0; k < MOST; k++) {
        long before = held;
        refuse = k;
        err_t rc = run(ctx);
        bool all = refuse >= 0;
        refuse = NEVER;
        if (held != before) fail_msg("request %d refused: %ld blocks are lost", k, held - before);
        if (all) {
            assert_int_equal(rc, ERR_OK);
            return k;
        }
        assert_int_equal(rc, ERR_INTERNAL);
        if (!strstr(err_last()->text, "no memory")) fail_msg("request %d refused: \"%s\"", k, err_last()->text);
    }
    fail_msg("more than %d requests", MOST);
    return 0;
}

static err_t open_tcp(void *ctx) {
    comm *c;
    TRY(comm_tcp_open(&c, ctx, &(transport_options){.timeout_s = 1}));
    c->table->close(c);
    return ERR_OK;
}

static void tcp_says_that_there_is_no_memory(void **state) {
    (void)state;
    static team t;
    launch node;
    stub_open(&t, &node, 1, (int[]){3});
    stub_become(&t, &node, 0);
    assert_in_range(refuse_each(open_tcp, &t), 10, MOST);
    stub_close(&t, &node);
}

static err_t open_self(void *ctx) {
    (void)ctx;
    comm *c;
    TRY(comm_self_open(&c));
    c->table->close(c);
    return ERR_OK;
}

static void one_rank_says_so_too(void **state) {
    (void)state;
    assert_int_equal(refuse_each(open_self, NULL), 1);
}

static err_t open_launch(void *ctx) {
    launch l;
    TRY(launch_open(&l, 1, ctx, NULL, 0));
    err_t rc = launch_channels(&l, &(channel_plan){.channels = 2, .seats = 3});
    launch_close(&l);
    return rc;
}

static void so_does_who_starts_the_ranks(void **state) {
    (void)state;
    assert_in_range(refuse_each(open_launch, (int[]){3}), 5, MOST);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tcp_says_that_there_is_no_memory),
        cmocka_unit_test(one_rank_says_so_too),
        cmocka_unit_test(so_does_who_starts_the_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
