// trainer/watch/http_parse.c: see http_parse.h. A cursor goes over the bytes once, line by line; whatever is wrong ends
// it where it stands, so a verdict never depends on the pieces in which the bytes came.
#include "trainer/watch/http_parse.h"

#include <sodium.h>
#include <string.h>
#include <strings.h>

typedef struct cursor {
    const char *bytes;
    size_t n, at;
} cursor;

// What a name or a method is made of (RFC 9110, 5.6.2).
static bool is_token(unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_target(unsigned char c) { return c > ' ' && c < 0x7F; }
static bool is_value(unsigned char c) { return c == '\t' || (c >= ' ' && c != 0x7F); }

// Bytes end here: more may follow, or the head is too long already.
static int ends(const cursor *c) { return c->at >= HTTP_HEAD ? HTTP_LONG_HEAD : HTTP_MORE; }

// Takes bytes as long as `fits` says so into *out; `too_long` where they are more than `most`.
static int take(cursor *c, bool (*fits)(unsigned char), size_t most, int too_long, http_text *out) {
    *out = (http_text){c->bytes + c->at, 0};
    for (; c->at < c->n && c->at < HTTP_HEAD; c->at++, out->n++) {
        if (!fits((unsigned char)c->bytes[c->at])) return HTTP_OK;
        if (out->n == most) return too_long;
    }
    return ends(c);
}

// Takes exactly these bytes.
static int take_exactly(cursor *c, const char *text) {
    for (; *text; text++, c->at++) {
        if (c->at >= HTTP_HEAD || c->at == c->n) return ends(c);
        if (c->bytes[c->at] != *text) return HTTP_BAD;
    }
    return HTTP_OK;
}

#define STEP(call) \
    do { \
        int step_code_ = (call); \
        if (step_code_ != HTTP_OK) return step_code_; \
    } while (0)

static bool is(http_text a, const char *b) { return a.n == strlen(b) && memcmp(a.at, b, a.n) == 0; }

bool http_same(http_text a, const char *b) { return a.at && a.n == strlen(b) && strncasecmp(a.at, b, a.n) == 0; }

static bool is_digit(unsigned char c) { return c >= '0' && c <= '9'; }

// "GET /metrics?x HTTP/1.1". Another protocol's first bytes are no method, or have no space after it.
static int request_line(cursor *c, http_request *out) {
    enum { METHOD = 32, DIGITS = 2 };
    http_text method, target, major, minor;
    STEP(take(c, is_token, METHOD, HTTP_BAD, &method));
    if (method.n == 0) return HTTP_BAD;
    STEP(take_exactly(c, " "));
    out->head = is(method, "HEAD");
    if (!out->head && !is(method, "GET")) return HTTP_METHOD;
    size_t rest = method.n + strlen("  HTTP/1.1");
    STEP(take(c, is_target, HTTP_LINE - rest, HTTP_LONG_LINE, &target));
    if (target.n == 0 || target.at[0] != '/') return HTTP_BAD;
    STEP(take_exactly(c, " HTTP/"));
    STEP(take(c, is_digit, DIGITS, HTTP_BAD, &major));
    if (major.n == 0) return HTTP_BAD;
    if (!is(major, "1")) return HTTP_VERSION;
    STEP(take_exactly(c, "."));
    STEP(take(c, is_digit, DIGITS, HTTP_BAD, &minor));
    if (minor.n == 0) return HTTP_BAD;
    if (!is(minor, "0") && !is(minor, "1")) return HTTP_VERSION;
    STEP(take_exactly(c, "\r\n"));
    const char *query = memchr(target.at, '?', target.n);
    out->path = (http_text){target.at, query ? (size_t)(query - target.at) : target.n};
    return HTTP_OK;
}

static http_text trim(http_text t) {
    for (; t.n && (*t.at == ' ' || *t.at == '\t'); t.at++) t.n--;
    while (t.n && (t.at[t.n - 1] == ' ' || t.at[t.n - 1] == '\t')) t.n--;
    return t;
}

// Keeps a header that may be there once.
static int keep(http_text *place, http_text value) {
    if (place->at) return HTTP_BAD;
    *place = value;
    return HTTP_OK;
}

// "Name: value". Nobody reads a body: a request that has one is refused.
static int header(cursor *c, http_request *out) {
    http_text name, value;
    STEP(take(c, is_token, HTTP_HEAD, HTTP_LONG_HEAD, &name));
    if (name.n == 0) return HTTP_BAD;
    STEP(take_exactly(c, ":"));
    STEP(take(c, is_value, HTTP_HEAD, HTTP_LONG_HEAD, &value));
    STEP(take_exactly(c, "\r\n"));
    value = trim(value);
    if (http_same(name, "host")) return keep(&out->host, value);
    if (http_same(name, "authorization")) return keep(&out->authorization, value);
    if (http_same(name, "transfer-encoding") || (http_same(name, "content-length") && !is(value, "0"))) return HTTP_BAD;
    return HTTP_OK;
}

int http_parse(const char *bytes, size_t n, http_request *out) {
    cursor c = {bytes, n, 0};
    *out = (http_request){.head = false};
    STEP(request_line(&c, out));
    for (;;) {
        if (c.at >= HTTP_HEAD || c.at == n) return ends(&c);
        if (bytes[c.at] == '\r') break;
        STEP(header(&c, out));
    }
    STEP(take_exactly(&c, "\r\n"));
    return out->host.at ? HTTP_OK : HTTP_BAD;
}

// --- who asks --------------------------------------------------------------------------------------------------------

// What follows the scheme's name and spaces; at == NULL: another scheme.
static http_text after_scheme(http_text t, const char *scheme) {
    size_t n = strlen(scheme);
    if (t.n <= n || !http_same((http_text){t.at, n}, scheme) || t.at[n] != ' ') return (http_text){NULL, 0};
    return trim((http_text){t.at + n, t.n - n});
}

size_t http_credential(http_text authorization, char *dst, size_t room) {
    if (!authorization.at) return 0;
    http_text bearer = after_scheme(authorization, "bearer"), basic = after_scheme(authorization, "basic");
    if (bearer.at) {
        if (bearer.n > room) return 0;
        memcpy(dst, bearer.at, bearer.n);
        return bearer.n;
    }
    size_t n = 0;
    if (!basic.at || sodium_base642bin((unsigned char *)dst, room, basic.at, basic.n, NULL, &n, NULL,
                                       sodium_base64_VARIANT_ORIGINAL) != 0)
        return 0;
    const char *colon = memchr(dst, ':', n);
    if (!colon) return 0;
    n -= (size_t)(colon + 1 - dst);
    memmove(dst, colon + 1, n);
    return n;
}
