// test/test_http.c: the server of trainer/watch/http.c against those who mean it no good, and some who do. What it must
// say is known for each request; what it must not do is wait for a client, give a thousand connections more than its
// sixteen places, or touch the heap.
//
// The server runs in a thread of its own, over loopback; clients are plain sockets here.
#include "base/clock.h"
#include "test/support/expect.h"
#include "trainer/watch/http.h"
#ifndef __SANITIZE_ADDRESS__
#include "test/support/heap.h"
#endif
#include "trainer/watch/http_host.h"
#include "trainer/watch/http_parse.h"
#include "trainer/watch/http_token.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

// --- a server --------------------------------------------------------------------------------------------------------

enum { LIMIT_S = 30 };  // for a reply: other programs may have the processors
static const char right_token[] = "a-token-of-24-characters";

typedef struct fixture {
    http *h;
    pthread_t thread;
    atomic_int stop;
    err_t rc;
    int port;
    char *large;  // a page
    size_t bytes;
    atomic_int asked;
} fixture;

static err_t get_root(void *ctx, http_page *out) {
    fixture *f = ctx;
    atomic_fetch_add(&f->asked, 1);
    *out = (http_page){.type = "text/html; charset=utf-8", .body = "<p>root", .bytes = 7};
    return ERR_OK;
}

// All bytes of a page are the same, and others than those of the page before.
static err_t get_large(void *ctx, http_page *out) {
    fixture *f = ctx;
    memset(f->large, 'a' + atomic_fetch_add(&f->asked, 1) % 26, f->bytes);
    *out = (http_page){.type = "text/plain", .body = f->large, .bytes = f->bytes, .status = 200};
    return ERR_OK;
}

static err_t get_ill(void *ctx, http_page *out) {
    (void)ctx;
    *out = (http_page){.type = "text/plain", .body = "no step for 31 s\n", .bytes = 17, .status = 503};
    return ERR_OK;
}

static err_t get_failed(void *ctx, http_page *out) {
    (void)ctx;
    (void)out;
    return err_set(ERR_IO, "log.jsonl: the disk is on fire");
}

static err_t get_too_large(void *ctx, http_page *out) {
    fixture *f = ctx;
    *out = (http_page){.type = "text/plain", .body = f->large, .bytes = HTTP_BODY + 1};
    return ERR_OK;
}

#define FRESH_S 0.2   // of a large page
#define BRIEF_S 0.02  // of the same under another name
static const http_route routes[] = {
    {"/", get_root, 0.5},   {"/now", get_root, 0},      {"/large", get_large, FRESH_S},  {"/brief", get_large, BRIEF_S},
    {"/ill", get_ill, 0.5}, {"/failed", get_failed, 0}, {"/too-large", get_too_large, 0}};

static void *serve(void *arg) {
    fixture *f = arg;
    while (f->rc == ERR_OK && !atomic_load(&f->stop)) f->rc = http_serve(f->h, clock_now() + 0.02);
    return NULL;
}

static fixture *start(const char *address, const char *token, size_t bytes) {
    fixture *f = calloc(1, sizeof *f);
    f->bytes = bytes;
    f->large = malloc(bytes + 1);
    assert_ok(http_open(&f->h, &(http_options){address, token, routes, COUNT(routes), f}));
    f->port = atoi(strrchr(http_where(f->h), ':') + 1);
    assert_int_equal(pthread_create(&f->thread, NULL, serve, f), 0);
    return f;
}

static http_counts stop(fixture *f) {
    atomic_store(&f->stop, 1);
    pthread_join(f->thread, NULL);
    assert_int_equal(f->rc, ERR_OK);
    http_counts n = http_counted(f->h);
    http_close(f->h);
    free(f->large);
    free(f);
    return n;
}

// A connection, not blocking; received bytes are kept as a text.
typedef struct client {
    int fd;
    char *text;
    size_t n, room;
    bool ended;  // the server has closed
} client;

static client dial(const fixture *f) {
    client c = {.room = 8192};
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)f->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    c.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(c.fd >= 0);
    c.text = calloc(1, c.room + 1);
    if (connect(c.fd, (struct sockaddr *)&a, sizeof a) != 0) fail_msg("connect: %s", strerror(errno));
    return c;
}

static void say(client *c, const char *text, size_t n) { (void)!send(c->fd, text, n, MSG_NOSIGNAL); }

// Reads what is there within `seconds`, until the server closes.
static void hear(client *c, double seconds) {
    for (double end = clock_now() + seconds; !c->ended;) {
        double left = end - clock_now();
        struct pollfd p = {.fd = c->fd, .events = POLLIN};
        if (left <= 0 || poll(&p, 1, (int)(1e3 * left) + 1) <= 0) return;
        if (c->n == c->room) c->text = realloc(c->text, (c->room *= 2) + 1);
        ssize_t n = recv(c->fd, c->text + c->n, c->room - c->n, 0);
        if (n > 0) c->n += (size_t)n;
        else c->ended = true;
        c->text[c->n] = 0;
    }
}

static void hang_up(client *c) {
    close(c->fd);
    free(c->text);
}

static int status_of(const client *c) { return strncmp(c->text, "HTTP/1.1 ", 9) == 0 ? atoi(c->text + 9) : 0; }
static const char *body_of(const client *c) {
    const char *at = strstr(c->text, "\r\n\r\n");
    return at ? at + 4 : "";
}

// The whole reply to these bytes, on a connection of its own.
static client ask(const fixture *f, const char *request) {
    client c = dial(f);
    say(&c, request, strlen(request));
    hear(&c, LIMIT_S);
    assert_true(c.ended);
    return c;
}

static void gives(const fixture *f, const char *request, int status, const char *text) {
    client c = ask(f, request);
    if (status_of(&c) != status || !strstr(c.text, text))
        fail_msg("%s: expected %d and \"%s\", got: %s", request, status, text, c.text);
    hang_up(&c);
}

#define HOST "Host: 127.0.0.1:28080\r\n"
#define GET(path) "GET " path " HTTP/1.1\r\n" HOST "\r\n"

static void pages_are_shown(void **state) {
    (void)state;
    fixture *f = start("127.0.0.1:0", NULL, 10);
    gives(f, GET("/"), 200, "\r\n\r\n<p>root");
    gives(f, GET("/?x=1"), 200, "\r\nContent-Length: 7\r\n");
    gives(f, "GET / HTTP/1.0\r\nHost: localhost\r\n\r\n", 200, "<p>root");
    gives(f, GET("/ill"), 503, "no step for 31 s");
    gives(f, GET("/failed"), 500, "the disk is on fire");
    gives(f, GET("/too-large"), 500, "4194305 bytes");
    client c = ask(f, GET("/"));
    static const char *const headers[] = {"Content-Type: text/html; charset=utf-8\r\n",
                                          "Cache-Control: no-store\r\n",
                                          "Connection: close\r\n",
                                          "X-Content-Type-Options: nosniff\r\n",
                                          "frame-ancestors 'none'",
                                          "default-src 'none'",
                                          " GMT\r\n"};
    for (size_t i = 0; i < COUNT(headers); i++)
        if (!strstr(c.text, headers[i])) fail_msg("no %s in %s", headers[i], c.text);
    assert_null(strstr(c.text, "Access-Control"));
    hang_up(&c);
    c = ask(f, "HEAD / HTTP/1.1\r\n" HOST "\r\n");
    assert_int_equal(status_of(&c), 200);
    assert_non_null(strstr(c.text, "Content-Length: 7\r\n"));
    assert_string_equal(body_of(&c), "");
    hang_up(&c);
    c = ask(f, "HEAD /nowhere HTTP/1.1\r\n" HOST "\r\n");
    assert_int_equal(status_of(&c), 404);
    assert_string_equal(body_of(&c), "");
    hang_up(&c);
    http_counts n = stop(f);
    assert_int_equal(n.shown, 8);
    assert_int_equal(n.accepted, 9);
    assert_true(n.refused == 1 && n.busy == 0 && n.dropped == 0);
}

static void what_is_refused(void **state) {
    (void)state;
    static char line[HTTP_LINE + 64], head[HTTP_HEAD + 64];
    fixture *f = start("127.0.0.1:0", NULL, 10);
    static const char *const paths[] = {GET("/../../etc/passwd"),
                                        GET("/%2e%2e/etc/passwd"),
                                        GET("//"),
                                        GET("/metrics"),
                                        GET("/./"),
                                        GET("/large/"),
                                        GET("/Large"),
                                        GET("/%6carge"),
                                        GET("/log.jsonl")};
    for (size_t i = 0; i < COUNT(paths); i++) gives(f, paths[i], 404, "no such page");
    gives(f, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421, "by that name");
    gives(f, "GET / HTTP/1.1\r\nHost: 127.0.0.1.evil.example:28080\r\n\r\n", 421, "by that name");
    gives(f, "GET / HTTP/1.1\r\nHost:\r\n\r\n", 421, "by that name");
    gives(f, "GET / HTTP/1.1\r\n\r\n", 400, "no HTTP/1.1 request");
    gives(f, "POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc", 405, "Allow: GET, HEAD");
    gives(f, "OPTIONS / HTTP/1.1\r\nOrigin: http://evil.example\r\n" HOST "\r\n", 405, "Allow: GET, HEAD");
    gives(f, "\x16\x03\x01\x02\x01\x01", 400, "no HTTP/1.1 request");
    gives(f, "\r\n\r\n\r\n", 400, "no HTTP/1.1 request");
    gives(f, "GET / HTTP/3.0\r\n" HOST "\r\n", 505, "HTTP/1.1");
    snprintf(line, sizeof line, "GET /%0*d", HTTP_LINE, 0);
    gives(f, line, 414, "too long");
    int n = snprintf(head, sizeof head, "GET / HTTP/1.1\r\n" HOST "Cookie: ");
    memset(head + n, 'x', sizeof head - (size_t)n - 1);
    gives(f, head, 431, "too long");
    http_counts c = stop(f);
    assert_true(c.shown == 0 && c.got == 0 && c.refused == c.accepted && c.busy == 0);
}

// Only the first of several requests is answered; and bytes that come one by one are a request all the same.
static void pieces_and_pipelines(void **state) {
    (void)state;
    fixture *f = start("127.0.0.1:0", NULL, 10);
    client c = ask(f, GET("/") GET("/ill") GET("/"));
    assert_int_equal(status_of(&c), 200);
    assert_null(strstr(c.text + 1, "HTTP/1.1"));
    hang_up(&c);
    c = dial(f);
    for (const char *s = GET("/"); *s; s++) say(&c, s, 1), usleep(200);
    hear(&c, LIMIT_S);
    assert_string_equal(body_of(&c), "<p>root");
    hang_up(&c);
    c = dial(f);
    say(&c, GET("/"), strlen(GET("/")));
    shutdown(c.fd, SHUT_WR);
    hear(&c, LIMIT_S);
    assert_string_equal(body_of(&c), "<p>root");
    hang_up(&c);
    c = dial(f);  // says nothing
    shutdown(c.fd, SHUT_WR);
    hear(&c, LIMIT_S);
    assert_true(c.ended && c.n == 0);
    hang_up(&c);
    http_counts n = stop(f);
    assert_true(n.shown == 3 && n.dropped == 1);
}

// A page is made once in fresh_s, and each time where that is 0.
static void pages_stay_fresh(void **state) {
    (void)state;
    fixture *f = start("127.0.0.1:0", NULL, 10);
    for (int i = 0; i < 5; i++) gives(f, GET("/"), 200, "<p>root");
    assert_int_equal(atomic_load(&f->asked), 1);
    for (int i = 0; i < 5; i++) gives(f, GET("/now"), 200, "<p>root");
    assert_int_equal(atomic_load(&f->asked), 6);
    gives(f, GET("/large"), 200, "\r\n\r\ngggggggggg");
    gives(f, GET("/large"), 200, "\r\n\r\ngggggggggg");
    usleep((useconds_t)(1e6 * FRESH_S) + 20000);
    gives(f, GET("/large"), 200, "\r\n\r\nhhhhhhhhhh");
    stop(f);
}

// --- tokens, over the wire -------------------------------------------------------------------------------------------

static void needs_the_token(void **state) {
    (void)state;
    fixture *f = start("127.0.0.1:0", right_token, 10);
    char request[512], pair[128], basic[256];
    const char *asks = "WWW-Authenticate: Basic realm=\"lockstep\"";
    gives(f, GET("/"), 401, asks);
    gives(f, GET("/nowhere"), 401, asks);
    gives(f, "GET / HTTP/1.1\r\n" HOST "Authorization: Bearer a-token-of-24-character\r\n\r\n", 401, asks);
    gives(f, "GET / HTTP/1.1\r\n" HOST "Authorization: Bearer a-token-of-24-charactersX\r\n\r\n", 401, asks);
    gives(f, "GET / HTTP/1.1\r\n" HOST "Authorization: Bearer A-token-of-24-characters\r\n\r\n", 401, asks);
    gives(f, "GET / HTTP/1.1\r\n" HOST "Authorization: Bearer \r\n\r\n", 401, asks);
    gives(f, "GET /?token=a-token-of-24-characters HTTP/1.1\r\n" HOST "\r\n", 401, asks);
    gives(f, "GET / HTTP/1.1\r\n" HOST "Authorization: Bearer a-token-of-24-characters\r\n\r\n", 200, "<p>root");
    gives(f, "GET / HTTP/1.1\r\nHost: evil.example\r\nAuthorization: Bearer a-token-of-24-characters\r\n\r\n", 421,
          "by that name");
    static const char *const heads[] = {
        "HEAD / HTTP/1.1\r\n" HOST "\r\n", "HEAD /nowhere HTTP/1.1\r\n" HOST "\r\n",
        "HEAD / HTTP/1.1\r\n" HOST "Authorization: Bearer another-token-of-24-char\r\n\r\n",
        "HEAD / HTTP/1.1\r\n" HOST "Authorization: Bearer a-token-of-24-characters\r\n\r\n"};
    for (size_t i = 0; i < COUNT(heads);
         i++) {  // whether there is a page, and how long it is, only who knows the token learns
        client c = ask(f, heads[i]);
        bool knows = i == COUNT(heads) - 1;
        assert_int_equal(status_of(&c), knows ? 200 : 401);
        assert_true(!strstr(c.text, "Content-Length: 7\r\n") == !knows);
        assert_string_equal(body_of(&c), "");
        hang_up(&c);
    }
    for (int i = 0; i < 2; i++) {
        snprintf(pair, sizeof pair, "me:%s%s", right_token, i ? "x" : "");
        sodium_bin2base64(basic, sizeof basic, (unsigned char *)pair, strlen(pair), sodium_base64_VARIANT_ORIGINAL);
        snprintf(request, sizeof request, "GET / HTTP/1.1\r\n" HOST "Authorization: Basic %s\r\n\r\n", basic);
        gives(f, request, i ? 401 : 200, i ? asks : "<p>root");
    }
    http_counts n = stop(f);
    assert_true(n.shown == 3 && n.refused == n.accepted - 3 && n.got == 1);  // who does not know it has no page made
}

static void where_it_may_listen(void **state) {
    (void)state;
    http *h;
    http_options o = {.routes = routes, .count = COUNT(routes)};
    static const char *const beyond[] = {"0.0.0.0:0", "[::]:0", "10.0.0.1:0", "[fd00::1]:28080"};
    for (size_t i = 0; i < COUNT(beyond); i++) {
        o.address = beyond[i];
        assert_error(http_open(&h, &o), ERR_CONFIG, beyond[i], "ssh -L");
        assert_null(h);
    }
    o.address = "127.0.0.1";
    assert_error(http_open(&h, &o), ERR_CONFIG, "127.0.0.1:28080");
    o.address = "192.0.2.1:28080", o.token = right_token;
    assert_error(http_open(&h, &o), ERR_UNAVAILABLE, "192.0.2.1:28080", "does not have that address");
    o.token = "short";
    assert_error(http_open(&h, &o), ERR_CONFIG, "5 characters");
    char token[HTTP_TOKEN_MOST + 2];
    for (int n = 0; n <= HTTP_TOKEN_MOST + 1; n++) {
        memset(token, 'x', sizeof token), token[n] = 0;
        o.address = "127.0.0.1:0", o.token = token;
        assert_int_equal(http_check(&o), n >= HTTP_TOKEN_LEAST && n <= HTTP_TOKEN_MOST ? ERR_OK : ERR_CONFIG);
    }
    o.token = NULL, o.count = HTTP_ROUTES + 1;
    assert_error(http_check(&o), ERR_INTERNAL, "at most 8");
    o.count = COUNT(routes);
    fixture *f = start("0.0.0.0:0", right_token, 10);
    char taken[32];
    snprintf(taken, sizeof taken, "127.0.0.1:%d", f->port);
    o = (http_options){.address = taken, .routes = routes, .count = COUNT(routes)};
    assert_error(http_open(&h, &o), ERR_UNAVAILABLE, taken, "another port");
    gives(f, "GET / HTTP/1.1\r\nHost: 192.0.2.7:1\r\nAuthorization: Bearer a-token-of-24-characters\r\n\r\n", 200,
          "<p>root");
    gives(f, "GET / HTTP/1.1\r\nHost: example.org\r\nAuthorization: Bearer a-token-of-24-characters\r\n\r\n", 421,
          "by that name");
    stop(f);
}

static void over_ipv6(void **state) {
    (void)state;
    fixture *f = calloc(1, sizeof *f);
    if (http_open(&f->h, &(http_options){"[::1]:0", NULL, routes, COUNT(routes), f}) != ERR_OK) {
        free(f);
        skip();  // no IPv6 here
    }
    struct sockaddr_in6 a = {.sin6_family = AF_INET6,
                             .sin6_port = htons((uint16_t)atoi(strrchr(http_where(f->h), ':') + 1)),
                             .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    assert_int_equal(pthread_create(&f->thread, NULL, serve, f), 0);
    client c = {.fd = socket(AF_INET6, SOCK_STREAM, 0), .text = calloc(1, 8193), .room = 8192};
    assert_int_equal(connect(c.fd, (struct sockaddr *)&a, sizeof a), 0);
    const char *request = "GET / HTTP/1.1\r\nHost: [::1]:28080\r\n\r\n";
    say(&c, request, strlen(request));
    hear(&c, LIMIT_S);
    assert_string_equal(body_of(&c), "<p>root");
    hang_up(&c);
    assert_int_equal(stop(f).shown, 1);
}

// --- those who mean no good ------------------------------------------------------------------------------------------

// Asks for a page whose reply does not fit into the sockets between, and takes only its beginning.
static client ask_and_stall(const fixture *f, const char *request, int room) {
    client c = dial(f);
    struct pollfd p = {.fd = c.fd, .events = POLLIN};
    setsockopt(c.fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    say(&c, request, strlen(request));
    assert_int_equal(poll(&p, 1, 1000 * LIMIT_S), 1);
    return c;
}

// As many descriptors as a test of a thousand connections needs; false: there are none.
enum { THOUSAND = 1000 };
static bool more_descriptors(struct rlimit *before) {
    assert_int_equal(getrlimit(RLIMIT_NOFILE, before), 0);
    struct rlimit many = {2 * THOUSAND + 100, before->rlim_max};
    if (before->rlim_cur >= many.rlim_cur) return true;
    return (many.rlim_max == RLIM_INFINITY || many.rlim_max >= many.rlim_cur) && setrlimit(RLIMIT_NOFILE, &many) == 0;
}

// A thousand that send a byte now and then, and never a whole request: they hold the places among themselves, and
// whoever asks for a page has it at once.
static void slow_loris(void **state) {
    static client c[THOUSAND];
    struct rlimit before;
    (void)state;
    if (!more_descriptors(&before)) skip();
    fixture *f = start("127.0.0.1:0", NULL, 10);
    for (int i = 0; i < THOUSAND; i++) c[i] = dial(f), say(&c[i], "GET / HTTP/1.1\r\nX: ", 19);
    for (int turn = 0; turn < 10; turn++) {
        for (int i = 0; i < THOUSAND; i++) say(&c[i], "x", 1);
        gives(f, GET("/"), 200, "<p>root");
        usleep(turn % 2 ? 0 : 50000);
    }
    for (int i = 0; i < THOUSAND; i++) hang_up(&c[i]);
    http_counts n = stop(f);
    setrlimit(RLIMIT_NOFILE, &before);
    assert_true(n.shown == 10 && n.accepted == THOUSAND + 10 && n.refused == 0 && n.busy + n.dropped == THOUSAND);
    printf("of %d slow ones %d were told 503, %d lost their places\n", THOUSAND, (int)n.busy, (int)n.dropped);
}

// A thousand at once: each gets a reply, or 503, and then all is as before.
static void a_thousand(void **state) {
    static client c[THOUSAND];
    int status[3] = {0};
    struct rlimit before;
    (void)state;
    if (!more_descriptors(&before)) skip();
    fixture *f = start("127.0.0.1:0", NULL, 10);
    for (int i = 0; i < THOUSAND; i++) c[i] = dial(f);
    for (int i = 0; i < THOUSAND; i++) say(&c[i], GET("/"), strlen(GET("/")));
    for (int i = 0; i < THOUSAND; i++) {
        hear(&c[i], LIMIT_S);
        if (!c[i].ended) fail_msg("connection %d of %d is still open", i, THOUSAND);
        status[status_of(&c[i]) == 200 ? 0 : status_of(&c[i]) == 503 ? 1 : 2]++;
        hang_up(&c[i]);
    }
    gives(f, GET("/"), 200, "<p>root");
    http_counts n = stop(f);
    setrlimit(RLIMIT_NOFILE, &before);
    assert_int_equal(n.accepted, THOUSAND + 1);
    assert_true(status[0] > 0 && n.busy >= status[1] && n.shown + n.busy + n.dropped == THOUSAND + 1);
    printf(
        "of %d connections %d had the page, %d were told 503, %d found theirs closed; the page was made %lld times\n",
        THOUSAND, status[0], status[1], status[2], (long long)n.got);
}

// Whoever has sent a whole request gets the place of the one that has owed its own for the longest time.
static void the_oldest_gives_way(void **state) {
    (void)state;
    enum { MORE = 3 };
    client c[HTTP_SLOTS + MORE];
    fixture *f = start("127.0.0.1:0", NULL, 10);
    for (int i = 0; i < HTTP_SLOTS; i++) c[i] = dial(f), say(&c[i], "GET / HTTP/1.1\r\n", 16), usleep(2000);
    for (int k = 0; k < MORE; k++) {
        gives(f, GET("/"), 200, "<p>root");
        hear(&c[k], LIMIT_S);
        for (int i = 0; i < HTTP_SLOTS + k; i++) {
            hear(&c[i], 0.002);
            assert_true(c[i].ended == (i <= k) && c[i].n == 0);
        }
        c[HTTP_SLOTS + k] = dial(f), say(&c[HTTP_SLOTS + k], "GET / HTTP/1.1\r\n", 16), usleep(2000);
    }
    for (int i = 0; i < HTTP_SLOTS + MORE; i++) hang_up(&c[i]);
    assert_int_equal(stop(f).shown, MORE);
}

// Where readers that stall have all places, the next one gets 503.
static void all_places_are_taken(void **state) {
    (void)state;
    client c[HTTP_SLOTS];
    fixture *f = start("127.0.0.1:0", NULL, 3 << 20);
    for (int i = 0; i < HTTP_SLOTS; i++) c[i] = ask_and_stall(f, GET("/large"), 4096);
    gives(f, GET("/"), 503, "Retry-After: 1");
    hang_up(&c[0]);
    usleep(50000);
    gives(f, GET("/"), 200, "<p>root");
    for (int i = 1; i < HTTP_SLOTS; i++) hang_up(&c[i]);
    http_counts n = stop(f);
    assert_true(n.busy == 1 && n.shown == HTTP_SLOTS + 1);
}

// Some seconds of dice: what comes back is a status, or nothing.
static void garbage(void **state) {
    (void)state;
    uint32_t x = 1;
    fixture *f = start("127.0.0.1:0", NULL, 10);
    for (int i = 0; i < 300; i++) {
        char bytes[600];
        size_t n = 1 + x % sizeof bytes, kept = i % 3 ? 0 : strlen("GET / HTTP/1.1\r\n" HOST);
        for (size_t k = 0; k < sizeof bytes; k++) x = x * 1664525 + 1013904223, bytes[k] = (char)(x >> 24);
        memcpy(bytes, "GET / HTTP/1.1\r\n" HOST, kept < n ? kept : n);
        client c = dial(f);
        say(&c, bytes, n);
        shutdown(c.fd, SHUT_WR);
        hear(&c, LIMIT_S);
        int status = status_of(&c);
        assert_true(c.ended && (status == 400 || status == 405 || (status == 0 && c.n == 0)));
        hang_up(&c);
    }
    http_counts n = stop(f);
    assert_true(n.shown == 0 && n.refused + n.dropped == 300);
}

// Readers that stall keep a page, while others get newer ones; and each has one page, whole.
static void slow_readers(void **state) {
    enum { BYTES = 3 << 20, READERS = 6 };
    client c[READERS];
    (void)state;
    fixture *f = start("127.0.0.1:0", NULL, BYTES);
    int small = 65536;
    for (int i = 0; i < READERS; i++) {
        c[i] = dial(f);
        setsockopt(c[i].fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        say(&c[i], GET("/large"), strlen(GET("/large")));
        if (i < 4) usleep((useconds_t)(1e6 * FRESH_S) + 50000);
    }
    for (int i = READERS - 1; i >= 0; i--) {
        hear(&c[i], LIMIT_S);
        const char *body = body_of(&c[i]);
        assert_int_equal(c[i].n - (size_t)(body - c[i].text), BYTES);
        for (size_t k = 1; k < BYTES; k += 997) assert_int_equal(body[k], body[0]);
        assert_int_equal(body[BYTES - 1], body[0]);
        hang_up(&c[i]);
    }
    http_counts n = stop(f);
    assert_true(n.shown == READERS && n.got == 2 && n.dropped == 0);
}

// A connection has its time for the request, however busy it keeps itself; a reader has more than that, as long as it
// reads; and one that stalls may lose its place to the next when it has had it for so long.
static void deadlines_are_absolute(void **state) {
    (void)state;
    enum { BYTES = 3 << 20, PIECE = 10000 };  // in HTTP_HEAD_S the slow one reads a third of them
    fixture *f = start("127.0.0.1:0", NULL, BYTES), *full = start("127.0.0.1:0", NULL, BYTES);
    client stalled[HTTP_SLOTS], slow, c;
    for (int i = 0; i < HTTP_SLOTS; i++) stalled[i] = ask_and_stall(full, GET("/large"), 4096);
    gives(full, GET("/"), 503, "Retry-After: 1");
    slow = ask_and_stall(f, GET("/large"), 65536);
    slow.text = realloc(slow.text, (slow.room = BYTES + 8192) + 1);
    c = dial(f);
    double began = clock_now();
    say(&c, "GET / HTTP/1.1\r\nX: ", 19);
    while (!c.ended && clock_now() - began < 3 * HTTP_HEAD_S) {
        say(&c, "x", 1), hear(&c, 0.05);
        ssize_t n = recv(slow.fd, slow.text + slow.n, PIECE, MSG_DONTWAIT);
        slow.n += n > 0 ? (size_t)n : 0;
    }
    double took = clock_now() - began;
    for (; clock_now() - began < HTTP_REPLY_S + 1; usleep(50000)) {  // a long page has longer than a short one
        ssize_t n = recv(slow.fd, slow.text + slow.n, PIECE, MSG_DONTWAIT);
        slow.n += n > 0 ? (size_t)n : 0;
    }
    assert_true(c.ended && c.n == 0);
    if (took < HTTP_HEAD_S - 0.5 || took > 2 * HTTP_HEAD_S) fail_msg("ended after %.1f s", took);
    gives(full, GET("/"), 200, "<p>root");
    hear(&slow, LIMIT_S);
    assert_true(slow.ended && slow.n - (size_t)(body_of(&slow) - slow.text) == BYTES);
    hang_up(&c), hang_up(&slow);
    assert_int_equal(stop(f).dropped, 1);
    for (int i = 0; i < HTTP_SLOTS; i++) hang_up(&stalled[i]);
    http_counts n = stop(full);
    assert_true(n.busy == 1 && n.shown == HTTP_SLOTS + 1 && n.dropped == HTTP_SLOTS);
}

// How a client leaves: it closes, or its machine was reset.
static void leave(client *c, bool at_once) {
    struct linger reset = {1, 0};
    if (at_once) setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    hang_up(c);
}

static void wait_until_stale(void) { usleep((useconds_t)(1e6 * BRIEF_S) + 10000); }

// Each reader after this gets a page that was just made.
static void is_fresh(const fixture *f, int times) {
    for (int i = 0; i < times; i++) {
        wait_until_stale();
        int before = atomic_load(&f->asked);
        char body[] = "\r\n\r\n?";
        body[4] = (char)('a' + before % 26);
        gives(f, GET("/brief"), 200, body);
        assert_int_equal(atomic_load(&f->asked), before + 1);
    }
}

// A client that goes away in the middle of a page does no harm: no SIGPIPE, its place is free again, and so is the copy
// of the page that it had. Of a page there are two copies: readers of both leave, each at another time, and whoever
// comes next gets a page that is fresh.
static void readers_that_leave(void **state) {
    (void)state;
    fixture *f = start("127.0.0.1:0", NULL, 3 << 20);
    for (int i = 0; i < 2 * HTTP_SLOTS; i++) {
        client c = ask_and_stall(f, GET("/brief"), 4096);
        leave(&c, i % 2);
    }
    is_fresh(f, 3);
    for (int how = 0; how < 4; how++) {  // both stall, with a copy each; they leave in either order
        client c[2];
        for (int i = 0; i < 2; i++) {
            wait_until_stale();
            int before = atomic_load(&f->asked);
            c[i] = ask_and_stall(f, GET("/brief"), 4096);
            assert_int_equal(atomic_load(&f->asked), before + 1);
        }
        wait_until_stale();
        int before = atomic_load(&f->asked);
        gives(f, GET("/brief"), 200, "\r\n\r\n");  // both copies are being sent: the newer one is shown again
        assert_int_equal(atomic_load(&f->asked), before);
        leave(&c[how % 2], how / 2);
        is_fresh(f, 2);
        leave(&c[1 - how % 2], how / 2);
        is_fresh(f, 1);
    }
    http_counts n = stop(f);
    assert_int_equal(n.dropped, 2 * HTTP_SLOTS + 8);
    assert_int_equal(n.shown, 2 * HTTP_SLOTS + 3 + 4 * 6);
}

// Who only asks what there is (HEAD) takes no copy, and leaves none behind.
static void heads_take_no_copy(void **state) {
    (void)state;
    fixture *f = start("127.0.0.1:0", NULL, 3 << 20);
    for (int i = 0; i < 3; i++) {
        wait_until_stale();
        client c = ask(f, "HEAD /brief HTTP/1.1\r\n" HOST "\r\n");
        assert_int_equal(status_of(&c), 200);
        assert_non_null(strstr(c.text, "Content-Length: 3145728\r\n"));
        assert_string_equal(body_of(&c), "");
        hang_up(&c);
    }
    assert_int_equal(atomic_load(&f->asked), 3);
    is_fresh(f, 2);
    assert_int_equal(stop(f).dropped, 0);
}

// 0: the connection is whole, or the other side closed it in order.
static int error_of(const client *c) {
    int error = 0;
    socklen_t size = sizeof error;
    assert_int_equal(getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size), 0);
    return error;
}

// Who sends more than a request, such as a body that nobody reads, has the reply and no reset after it. What earlier
// connections in the same place have sent does not count.
static void more_than_a_request(void **state) {
    (void)state;
    enum { CLIENTS = 12, MORE = 30000 };
    static char bytes[sizeof GET("/") + MORE];
    fixture *f = start("127.0.0.1:0", NULL, 10);
    memset(bytes, 'x', sizeof bytes);
    memcpy(bytes, GET("/"), strlen(GET("/")));
    for (int i = 0; i < CLIENTS; i++) {
        client c = dial(f);
        say(&c, bytes, sizeof bytes);
        hear(&c, LIMIT_S);
        assert_string_equal(body_of(&c), "<p>root");
        usleep(5000);
        if (error_of(&c)) fail_msg("client %d of %d: its connection was reset", i + 1, CLIENTS);
        hang_up(&c);
    }
    assert_int_equal(stop(f).shown, CLIENTS);
}

// Who has the whole reply loses the place soon, also without closing: not only when the time for reading the reply is
// over.
static void a_reply_is_the_end(void **state) {
    (void)state;
    enum { BYTES = 3 << 20 };
    fixture *f = start("127.0.0.1:0", NULL, BYTES);
    client c = ask(f, GET("/large"));
    assert_int_equal(c.n - (size_t)(body_of(&c) - c.text), BYTES);
    int error = 0;
    for (double began = clock_now(); !error && clock_now() - began < LIMIT_S; usleep(50000))
        say(&c, "x", 1), error = error_of(&c);
    assert_true(error);
    hang_up(&c);
    assert_int_equal(stop(f).dropped, 0);
}

// Without descriptors the server waits a little, and does not spin.
static void out_of_descriptors(void **state) {
    (void)state;
    http *h;
    fixture f = {.port = 0};
    struct rlimit few, none;
    struct timespec before, after;
    assert_ok(http_open(&h, &(http_options){"127.0.0.1:0", NULL, routes, COUNT(routes), &f}));
    f.port = atoi(strrchr(http_where(h), ':') + 1);
    client c = dial(&f);
    say(&c, GET("/"), strlen(GET("/")));
    int last = c.fd, first = 0;  // poll() refuses more entries than there may be descriptors
    while (last < 2 * HTTP_SLOTS) last = dup(c.fd), first = first ? first : last;
    getrlimit(RLIMIT_NOFILE, &few);
    none = few, none.rlim_cur = (rlim_t)last + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    err_t rc = http_serve(h, clock_now() + 0.6);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    setrlimit(RLIMIT_NOFILE, &few);
    for (int fd = first; first && fd <= last; fd++) close(fd);
    assert_ok(rc);
    assert_int_equal(http_counted(h).accepted, 0);
    double used = (double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec);
    if (used > 0.1) fail_msg("%.3f s of CPU time", used);
    assert_ok(http_serve(h, clock_now() + 0.6));
    hear(&c, 1);
    assert_int_equal(status_of(&c), 200);
    hang_up(&c);
    http_close(h);
}

// It returns in time, whatever is open, and at once when a signal arrives.
static void noted(int signal) { (void)signal; }
static void returns_in_time(void **state) {
    (void)state;
    http *h;
    fixture f = {.port = 0};
    assert_ok(http_open(&h, &(http_options){"127.0.0.1:0", NULL, routes, COUNT(routes), &f}));
    f.port = atoi(strrchr(http_where(h), ':') + 1);
    client c = dial(&f);
    double began = clock_now();
    assert_ok(http_serve(h, began + 0.1));
    assert_true(clock_now() >= began + 0.1 && clock_now() < began + 5);
    say(&c, GET("/"), strlen(GET("/")));
    assert_ok(http_serve(h, 0));  // at least once
    hear(&c, 1);
    assert_int_equal(status_of(&c), 200);
    hang_up(&c);
    struct sigaction act = {.sa_handler = noted}, old;
    sigaction(SIGALRM, &act, &old);
    began = clock_now();
    alarm(1);
    assert_ok(http_serve(h, began + 10));
    assert_true(clock_now() < began + 8);
    sigaction(SIGALRM, &old, NULL);
    http_close(h);
    http_close(NULL);
}

// In steady state nothing is allocated, whatever is asked for.
static void no_heap(void **state) {
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip();  // it has its own malloc
#else
    http *h;
    fixture f = {.port = 0};
    static const char *const requests[] = {
        GET("/"), GET("/ill"), GET("/nowhere"),
        "POST /", "\r\n",      "GET / HTTP/1.1\r\n" HOST "Authorization: Basic bmFtZTp0b2tlbg==\r\n\r\n"};
    client c[COUNT(requests)];
    assert_ok(http_open(&h, &(http_options){"127.0.0.1:0", right_token, routes, COUNT(routes), &f}));
    f.port = atoi(strrchr(http_where(h), ':') + 1);
    for (size_t i = 0; i < COUNT(requests); i++) c[i] = dial(&f), say(&c[i], requests[i], strlen(requests[i]));
    usleep(20000);
    long before = atomic_load(&heap_calls);
    assert_ok(http_serve(h, clock_now() + 0.1));
    assert_int_equal(atomic_load(&heap_calls) - before, 0);
    assert_int_equal(http_counted(h).refused, COUNT(requests));
    for (size_t i = 0; i < COUNT(requests); i++) hang_up(&c[i]);
    http_close(h);
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_heap),
        cmocka_unit_test(pages_are_shown),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(pieces_and_pipelines),
        cmocka_unit_test(pages_stay_fresh),
        cmocka_unit_test(needs_the_token),
        cmocka_unit_test(where_it_may_listen),
        cmocka_unit_test(over_ipv6),
        cmocka_unit_test(slow_loris),
        cmocka_unit_test(deadlines_are_absolute),
        cmocka_unit_test(a_thousand),
        cmocka_unit_test(the_oldest_gives_way),
        cmocka_unit_test(all_places_are_taken),
        cmocka_unit_test(garbage),
        cmocka_unit_test(slow_readers),
        cmocka_unit_test(readers_that_leave),
        cmocka_unit_test(heads_take_no_copy),
        cmocka_unit_test(more_than_a_request),
        cmocka_unit_test(a_reply_is_the_end),
        cmocka_unit_test(out_of_descriptors),
        cmocka_unit_test(returns_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
