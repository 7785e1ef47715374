// test/fuzz/fuzz_http.c: any bytes at all as a request, or as the address of a server. A request gets the same verdict
// in whatever pieces it arrives. The parts of one that is accepted point into it. Only the server's own names are
// accepted, and only with the right token.
//
//   input    what it is (a request, an address), size of the pieces in which it arrives, bytes
#include "trainer/watch/http_host.h"
#include "trainer/watch/http_token.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
bool lockstep_fuzz_try(const uint8_t *data, size_t size);
int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx);

enum { AS_REQUEST, AS_ADDRESS, WAYS };
static const char token[] = "a-token-of-24-characters";

static void expect(bool truth) {
    if (!truth) abort();
}

static void expect_inside(http_text t, const char *bytes, size_t n) {
    expect(!t.at || (t.at >= bytes && t.at + t.n <= bytes + n));
}

// A copy of its own size, so that the sanitizer sees a byte too far.
static char *exact(const uint8_t *data, size_t n) {
    char *copy = malloc(n ? n : 1);
    memcpy(copy, data, n);
    return copy;
}

static int parse(const uint8_t *data, size_t n) {
    http_request q;
    char *copy = exact(data, n);
    int code = http_parse(copy, n, &q);
    free(copy);
    return code;
}

// What a server would do with an accepted request.
static void use(const http_request *q, const char *bytes, size_t n) {
    http_address loopback, any;
    uint8_t hash[HTTP_TOKEN_HASH];
    char said[64];
    expect(q->path.n > 0 && q->path.at[0] == '/' && !memchr(q->path.at, '?', q->path.n) &&
           !memchr(q->path.at, ' ', q->path.n) && q->host.at);
    expect_inside(q->path, bytes, n);
    expect_inside(q->host, bytes, n);
    expect_inside(q->authorization, bytes, n);
    expect(http_address_read(&loopback, "127.0.0.1:28080") == ERR_OK &&
           http_address_read(&any, "0.0.0.0:28080") == ERR_OK);
    bool own = http_host_is(&loopback, "node-3", q->host);
    if (own)
        expect(strncasecmp(q->host.at, "localhost", 9) == 0 || strncmp(q->host.at, "127.0.0.1", 9) == 0 ||
               (q->host.at[0] == '[' && memchr(q->host.at, ']', q->host.n)));
    expect(!own || http_host_is(&any, "node-3", q->host));
    http_token_hash(token, hash);
    bool known = http_token_is(hash, q->authorization);
    size_t got = http_credential(q->authorization, said, sizeof said);
    expect(got <= sizeof said && known == (got == strlen(token) && memcmp(said, token, got) == 0));
}

static bool try_request(size_t piece, const uint8_t *data, size_t size) {
    http_request q;
    int whole = parse(data, size);
    expect(whole != HTTP_MORE || size < HTTP_HEAD);
    for (size_t n = 0; n < size; n += piece) {
        int part = parse(data, n);
        expect(part == HTTP_MORE || part == whole);
    }
    char *copy = exact(data, size);
    if (http_parse(copy, size, &q) == HTTP_OK) use(&q, copy, size);
    free(copy);
    return whole == HTTP_OK;
}

// An address that is read is written as one that is read as the same.
static bool try_address(const uint8_t *data, size_t size) {
    http_address a, b;
    char *text = malloc(size + 1), first[HTTP_ADDRESS], second[HTTP_ADDRESS];
    memcpy(text, data, size);
    text[size] = 0;
    err_t rc = http_address_read(&a, text);
    expect(rc == ERR_OK || rc == ERR_CONFIG);
    if (rc == ERR_OK) {
        http_address_text(&a, first);
        expect(http_address_read(&b, first) == ERR_OK && strcmp(http_address_text(&b, second), first) == 0);
        expect(a.loopback == b.loopback && a.all == b.all && !(a.loopback && a.all));
    }
    http_host_is(&a, text, (http_text){text, size});
    free(text);
    return rc == ERR_OK;
}

bool lockstep_fuzz_try(const uint8_t *data, size_t size) {
    if (size < 2) return false;
    if (data[0] % WAYS == AS_ADDRESS) return try_address(data + 2, size - 2);
    return try_request(1 + (size_t)data[1], data + 2, size - 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lockstep_fuzz_try(data, size);
    return 0;
}

// --- seeds -----------------------------------------------------------------------------------------------------------

static void plant(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx, uint8_t way, uint8_t piece,
                  const char *text) {
    uint8_t bytes[2 + HTTP_HEAD] = {way, piece};
    size_t n = strlen(text);
    memcpy(bytes + 2, text, n);
    seed(ctx, bytes, 2 + n);
}

int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx) {
    static char wide[HTTP_HEAD + 1] = "GET / HTTP/1.1\r\nHost: localhost\r\nCookie: ";
    plant(seed, ctx, AS_REQUEST, 0, "GET / HTTP/1.1\r\nHost: 127.0.0.1:28080\r\n\r\n");
    plant(seed, ctx, AS_REQUEST, 6,
          "HEAD /metrics?x=1 HTTP/1.0\r\nAccept: */*\r\nhost:\tLOCALHOST \r\nContent-Length: 0\r\n\r\nmore");
    plant(seed, ctx, AS_REQUEST, 16,
          "GET /status.json HTTP/1.1\r\nHost: [::1]:9000\r\nAuthorization: Bearer a-token-of-24-characters\r\n\r\n");
    plant(seed, ctx, AS_REQUEST, 30,
          "GET /health HTTP/1.1\r\nHost: node-3\r\nAuthorization: Basic bWU6YS10b2tlbi1vZi0yNC1jaGFyYWN0ZXJz\r\n\r\n");
    memset(wide + strlen(wide), 'x', HTTP_HEAD - strlen(wide));
    memcpy(wide + HTTP_HEAD - 4, "\r\n\r\n", 4);
    plant(seed, ctx, AS_REQUEST, 255, wide);
    plant(seed, ctx, AS_ADDRESS, 0, "127.0.0.1:28080");
    plant(seed, ctx, AS_ADDRESS, 0, "[fd00::1:2]:28080");
    plant(seed, ctx, AS_ADDRESS, 0, "localhost:0");
    return 0;
}
