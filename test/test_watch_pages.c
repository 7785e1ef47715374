// test/test_watch_pages.c: the pages of a node as its watcher shows them: which node has which, that each is of the
// last look, and that a watcher whose pages are asked for ends in time. The server is made up here, and so is the time;
// what a server does is in test/test_http.c.
#include "test/support/run.h"

#include "trainer/watch/http.h"
#include "trainer/watch/watcher.h"

#include <math.h>
#include <sys/syscall.h>
#include <time.h>

static double now;  // of both clocks; 0: this machine's

int clock_gettime(clockid_t clock, struct timespec *t) {
    if (now == 0) return (int)syscall(SYS_clock_gettime, clock, t);
    double s = now + (clock == CLOCK_REALTIME ? 1.8e9 : 0);
    *t = (struct timespec){.tv_sec = (time_t)s, .tv_nsec = (long)(1e9 * (s - floor(s)))};
    return 0;
}

// --- a run -----------------------------------------------------------------------------------------------------------

static struct {
    char *root, dir[600];
    config *c;
    board *b;
    board_news news;
    comm_place place[2];
    watch_start at;
    int node, steps, last;  // it ends in the middle of the second after step `last`
    double ends_at;
} run;

static bool over(double until) {
    if (until > now) now = until;
    return run.ends_at > 0 && now >= run.ends_at;
}

// A step more.
static void step(void) {
    int n = ++run.steps;
    char line[128];
    atomic_store(&run.b->step, n);
    for (int i = 0; i < 2; i++) atomic_store(&run.b->rank[i].step, n + 1);
    if (n == run.last) run.ends_at = now + 0.55;
    if (run.node != 0) return;
    run.news.step = n, run.news.steps = 1000, run.news.ms = 1000, run.news.loss = 2;
    snprintf(run.news.unit, sizeof run.news.unit, "token");
    board_publish(run.b, &run.news);
    snprintf(line, sizeof line,
             "{\"t\":\"step\",\"step\":%d,\"loss\":2,\"ms\":1000,\"tokens\":%d,\"tokens_per_s\":1}\n", n, n);
    char path[700];
    snprintf(path, sizeof path, "%s/log.jsonl", run.dir);
    FILE *f = fopen(path, "a");
    assert_true(f && fputs(line, f) >= 0 && fclose(f) == 0);
}

static void watch(int node, int last) {
    memset(&run, 0, sizeof run);
    now = 1000;  // of all that is said, whatever this machine's clock says
    run.root = make_dir(), run.c = calloc(1, sizeof *run.c),
    run.b = aligned_alloc(128, (board_bytes(2) + 127) / 128 * 128);
    assert_true(run.c && run.b);
    run.node = node, run.last = last;
    memset(run.b, 0, board_bytes(2));
    board_init(run.b, 2);
    snprintf(run.dir, sizeof run.dir, "%s/made", run.root);
    snprintf(run.c->run.dir, sizeof run.c->run.dir, "%s", run.root);
    snprintf(run.c->run.name, sizeof run.c->run.name, "made");
    snprintf(run.c->log.http, sizeof run.c->log.http, "127.0.0.1:1");
    run.c->log.machine_every = 10, run.c->checkpoint.keep = 3;
    OK(io_mkdirs(run.dir));
    for (int i = 0; i < 2; i++) {
        run.place[i] = (comm_place){.node = node, .local = i, .rank = 2 * node + i, .host = "10.0.0.2"};
        board_enter(&run.b->rank[i], PHASE_STEPPING, 1);
    }
    atomic_store(&run.b->ready, 2);
    run.at =
        (watch_start){.b = run.b, .place = run.place, .node = node, .nodes = 2, .world = 4, .starts = 1, .over = over};
    write_text(run.dir, "log.jsonl", "");
    OK(watch_run(run.c, &run.at));
}

static void drop(void) {
    now = 0;
    drop_dir(run.root);
    free(run.c), free(run.b);
}

// --- a server that asks for its own pages ----------------------------------------------------------------------------

struct http {
    http_options o;
    int served;
    double looked_at;
};
static http made;

err_t http_check(const http_options *o) { return (void)o, ERR_OK; }

err_t http_open(http **out, const http_options *o) {
    made = (http){.o = *o};
    *out = &made;
    return ERR_OK;
}

void http_close(http *h) { (void)h; }

// The page of a path, as a text of its own; *status: what it is shown with.
static char *page_of(const http *h, const char *path, int *status) {
    for (int i = 0; i < h->o.count; i++) {
        http_page p = {.status = 0};
        if (strcmp(h->o.routes[i].path, path) != 0) continue;
        OK(h->o.routes[i].get(h->o.ctx, &p));
        *status = p.status ? p.status : 200;
        assert_int_equal(strnlen(p.body, p.bytes), p.bytes);
        return strndup(p.body, p.bytes);
    }
    fail_msg("no page %s", path);
    return NULL;
}

static void has(const char *path, int wanted, const char *word) {
    int status;
    char *text = page_of(&made, path, &status);
    if (status != wanted || !strstr(text, word))
        fail_msg("%s: %d, \"%s\" is not in: %.2000s", path, status, word, text);
    free(text);
}

static void all_pages(http *h) {
    char word[64], path[700], *file;
    size_t n;
    int status;
    snprintf(word, sizeof word, "\"step\":%d,\"steps\":", run.steps);
    has("/status.json", 200, word);
    snprintf(path, sizeof path, "%s/status.json", run.dir);
    OK(io_read_file(path, 1 << 20, &file, &n));
    char *shown = page_of(h, "/status.json", &status);
    assert_string_equal(shown, file);
    free(shown), free(file);
    snprintf(word, sizeof word, "\nlockstep_step %d\n", run.steps);
    has("/metrics", 200, word);
    has("/health", 200, "ok: ");
    snprintf(word, sizeof word, "<dt>Steps</dt><dd>%d<", run.steps);
    if (run.node == 0)
        has("/", 200, run.steps ? word : "<p class=\"d\">training"), has("/", 200, "http-equiv=\"refresh\"");
    else has("/", 404, "node with rank 0");
}

// Several times between two looks, so that the run's end is seen soon. Soon after each look all pages are asked for;
// then there is a step more.
err_t http_serve(http *h, double until) {
    assert_true(until > now && until <= now + 0.1 + 1e-9);
    if (until - now > 1e-6 && h->looked_at != floor(now + 1e-6)) {  // seconds of tenths end a little before they do
        h->looked_at = floor(now + 1e-6);
        all_pages(h);
        step();
    }
    now = until;
    h->served++;
    return ERR_OK;
}

static void each_node_has_its_pages(void **state) {
    (void)state;
    for (int node = 0; node < 2; node++) {
        watch(node, 4);
        assert_int_equal(run.steps, 4);
        assert_true(now < run.ends_at + 0.1 + 1e-9 && made.served >= 30);
        drop();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_node_has_its_pages)};
    return cmocka_run_group_tests_name("pages", tests, NULL, NULL);
}
