// test/test_http_parse.c: what trainer/watch/http_parse.c, http_host.c and http_token.c make of bytes: of requests, of
// names that a server is called by, of tokens. Tables of what must be accepted and what must not; the server itself is
// test_http.c's.
#include "base/io.h"
#include "test/support/expect.h"
#include "trainer/watch/http_host.h"
#include "trainer/watch/http_parse.h"
#include "trainer/watch/http_token.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

// --- the parser ------------------------------------------------------------------------------------------------------

static const struct {
    const char *what, *head;
    int code;
} heads[] = {
    {"the least", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200},
    {"all that a target may have", "GET /!~?\"<{|}> HTTP/1.1\r\nHost: a\r\n\r\n", 200},
    {"HEAD, a query, other headers", "HEAD /metrics?a=/../b HTTP/1.1\r\nAccept: */*\r\nhOsT:\t a:1 \t\r\nX:\r\n\r\n",
     200},
    {"HTTP/1.0", "GET / HTTP/1.0\r\nHost: a\r\n\r\n", 200},
    {"a body of no bytes", "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 200},
    {"bytes beyond ASCII in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: \xC3\xA4\r\n\r\n", 200},
    {"a second request after it", "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /x HTTP/1.1\r\n\r\n", 200},
    {"nothing", "", 0},
    {"half a method", "GE", 0},
    {"half a line", "GET / HTTP/1.", 0},
    {"no empty line yet", "GET / HTTP/1.1\r\nHost: a\r\n", 0},
    {"half an empty line", "GET / HTTP/1.1\r\nHost: a\r\n\r", 0},
    {"POST", "POST / HTTP/1.1\r\n", 405},
    {"a method of one's own", "get / HTTP/1.1\r\n", 405},
    {"OPTIONS of all", "OPTIONS * HTTP/1.1\r\n", 405},
    {"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 405},
    {"CONNECT", "CONNECT a:443 HTTP/1.1\r\n", 405},
    {"TLS", "\x16\x03\x01\x02\x00\x01", 400},
    {"an empty line first", "\r\nGET / HTTP/1.1\r\n", 400},
    {"no method", " / HTTP/1.1\r\n", 400},
    {"a method without end", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", 400},
    {"no target", "GET  HTTP/1.1\r\n", 400},
    {"no version", "GET /\r\n", 400},
    {"two spaces", "GET  / HTTP/1.1\r\n", 400},
    {"a proxy's target", "GET http://a/ HTTP/1.1\r\n", 400},
    {"a tab in the target", "GET /\t HTTP/1.1\r\n", 400},
    {"a byte beyond ASCII in the target", "GET /\xC3 HTTP/1.1\r\n", 400},
    {"another protocol", "GET / HTTQ/1.1\r\n", 400},
    {"HTTP/2.0", "GET / HTTP/2.0\r\n", 505},
    {"HTTP/1.2", "GET / HTTP/1.2\r\n", 505},
    {"HTTP/11", "GET / HTTP/11.1\r\n", 505},
    {"HTTP/.1", "GET / HTTP/.1\r\n", 400},
    {"HTTP/1.", "GET / HTTP/1.\r\n", 400},
    {"a long version", "GET / HTTP/111", 400},
    {"LF alone after the line", "GET / HTTP/1.1\nHost: a\n\n", 400},
    {"LF alone after a header", "GET / HTTP/1.1\r\nHost: a\n\r\n", 400},
    {"CR alone", "GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n", 400},
    {"no Host", "GET / HTTP/1.1\r\n\r\n", 400},
    {"two Hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400},
    {"two Authorizations", "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: a\r\nauthorization: b\r\n", 400},
    {"a header that goes on", "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", 400},
    {"a space before the colon", "GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400},
    {"no colon", "GET / HTTP/1.1\r\nHost\r\n\r\n", 400},
    {"no name", "GET / HTTP/1.1\r\n: a\r\n\r\n", 400},
    {"a control character", "GET / HTTP/1.1\r\nHost: a\x01\r\n\r\n", 400},
    {"a body", "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", 400},
    {"a body of no stated length", "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
};

// The same verdict for all pieces in which it may come.
static void heads_are_judged(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(heads); i++) {
        size_t n = strlen(heads[i].head);
        int last = HTTP_MORE;
        http_request q;
        for (size_t k = 0; k <= n; k++) {
            char *exact = malloc(k + 1);
            memcpy(exact, heads[i].head, k);
            int code = http_parse(exact, k, &q);
            if (last != HTTP_MORE && code != last)
                fail_msg("%s: %d after %zu bytes, then %d", heads[i].what, last, k - 1, code);
            last = code;
            free(exact);
        }
        if (last != heads[i].code) fail_msg("%s: %d, expected %d", heads[i].what, last, heads[i].code);
    }
}

static bool text_is(http_text t, const char *expected) {
    return t.at && t.n == strlen(expected) && memcmp(t.at, expected, t.n) == 0;
}

static void parts_of_a_head(void **state) {
    (void)state;
    http_request q;
    const char *head = heads[2].head;
    assert_int_equal(http_parse(head, strlen(head), &q), HTTP_OK);
    assert_true(q.head && text_is(q.path, "/metrics") && text_is(q.host, "a:1") && !q.authorization.at);
    head = "GET / HTTP/1.1\r\nAuthorization: Bearer x y \r\nHost:\r\n\r\n";
    assert_int_equal(http_parse(head, strlen(head), &q), HTTP_OK);
    assert_true(!q.head && text_is(q.path, "/") && text_is(q.host, "") && text_is(q.authorization, "Bearer x y"));
}

// A request line of so many bytes, and one header that fills the head up to so many.
static int sized(size_t line, size_t head) {
    static char text[2 * HTTP_HEAD];
    http_request q;
    int n =
        snprintf(text, sizeof text, "GET /%0*d HTTP/1.1\r\nHost: a\r\nX: ", (int)(line - strlen("GET / HTTP/1.1")), 0);
    memset(text + n, 'x', head - (size_t)n - 4);
    memcpy(text + head - 4, "\r\n\r\n", 4);
    int whole = http_parse(text, head, &q);
    for (size_t k = 0; k < head; k += 97) {
        int part = http_parse(text, k, &q);
        assert_true(part == HTTP_MORE || part == whole);
    }
    return whole;
}

static void long_heads(void **state) {
    (void)state;
    static char endless[2 * HTTP_HEAD];
    http_request q;
    assert_int_equal(sized(HTTP_LINE, HTTP_HEAD), HTTP_OK);
    assert_int_equal(sized(HTTP_LINE + 1, HTTP_HEAD), HTTP_LONG_LINE);
    assert_int_equal(sized(HTTP_LINE, HTTP_HEAD + 1), HTTP_LONG_HEAD);
    int n = snprintf(endless, sizeof endless, "GET / HTTP/1.1\r\n");
    while ((size_t)n + 5 < sizeof endless) n += snprintf(endless + n, sizeof endless - (size_t)n, "A:\r\n");
    assert_int_equal(http_parse(endless, HTTP_HEAD - 1, &q), HTTP_MORE);
    assert_int_equal(http_parse(endless, HTTP_HEAD, &q), HTTP_LONG_HEAD);
}

static void credentials(void **state) {
    (void)state;
    static const struct {
        const char *value, *expected;
    } cases[] = {
        {"Bearer token", "token"},
        {"bearer   token", "token"},
        {"Basic bmFtZTp0b2tlbg==", "token"},  // name:token
        {"BASIC OnRva2VuOjE=", "token:1"},    // :token:1
        {"Basic bmFtZTo=", ""},               // name:
        {"Basic bmFtZQ==", ""},               // name
        {"Basic bmFtZTp0b2tlbg", ""},         // cut
        {"Basic bmFtZTp0b2tlbg==x", ""},
        {"Basic !", ""},
        {"Basic", ""},
        {"Basic ", ""},
        {"Bearer", ""},
        {"Bearertoken", ""},
        {"Digest token", ""},
        {"token", ""},
        {"", ""},
        {"Bearer 0123456789012345678901234567890123456789", ""},  // no room
        {"Basic MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDEyMzQ1Njc4OTo=", ""},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char dst[32];
        size_t n = http_credential((http_text){cases[i].value, strlen(cases[i].value)}, dst, sizeof dst);
        if (n != strlen(cases[i].expected) || memcmp(dst, cases[i].expected, n) != 0)
            fail_msg("%s: \"%.*s\"", cases[i].value, (int)n, dst);
    }
    assert_int_equal(http_credential((http_text){NULL, 0}, NULL, 0), 0);
}

// --- addresses and names ---------------------------------------------------------------------------------------------

static void addresses(void **state) {
    (void)state;
    static const char *const right[] = {"127.0.0.1:28080", "[::1]:28080", "0.0.0.0:0", "[::]:65535", "10.1.2.3:80"};
    static const char *const wrong[] = {"",
                                        ":1",
                                        "127.0.0.1",
                                        "127.0.0.1:",
                                        "127.0.0.1:65536",
                                        "127.0.0.1:-1",
                                        "127.0.0.1:1x",
                                        "127.1:1",
                                        "::1:28080",
                                        "[::1]28080",
                                        "[::1:28080",
                                        "[127.0.0.1]:1",
                                        "[]:1",
                                        "example.org:80",
                                        "[fe80::1%eth0]:1",
                                        "28080",
                                        "127.0.0.1:000080"};
    char text[HTTP_ADDRESS];
    http_address a;
    for (size_t i = 0; i < COUNT(right); i++) {
        assert_ok(http_address_read(&a, right[i]));
        assert_string_equal(http_address_text(&a, text), right[i]);
        assert_int_equal(a.loopback, i < 2);
        assert_int_equal(a.all, i == 2 || i == 3);
    }
    assert_ok(http_address_read(&a, "localhost:28080"));
    assert_string_equal(http_address_text(&a, text), "127.0.0.1:28080");
    for (size_t i = 0; i < COUNT(wrong); i++)
        assert_error(http_address_read(&a, wrong[i]), ERR_CONFIG, "127.0.0.1:28080");
}

static void names(void **state) {
    (void)state;
    // Columns: listens at 127.0.0.1, 127.0.0.5, [::1], 10.0.0.1, 0.0.0.0, [fd00::1]
    static const char *const at[] = {"127.0.0.1:1", "127.0.0.5:1", "[::1]:1", "10.0.0.1:1", "0.0.0.0:1", "[fd00::1]:1"};
    // clang-format off
    static const struct { const char *host, *allowed; } cases[] = {
        {"localhost", "yyyyyy"},         {"LocalHost:9000", "yyyyyy"},        {"127.0.0.1:28080", "yyyyyy"},         {"[::1]:28080", "yyyyyy"},
        {"[0:0::1]", "yyyyyy"},          {"127.0.0.5", "nynnyn"},             {"10.0.0.1:1", "nnnyyn"},              {"[fd00::1]", "nnnnyy"},
        {"8.8.8.8", "nnnnyn"},           {"node-3", "nnnyyy"},                {"NODE-3:1", "nnnyyy"},                {"node-3.evil.example", "nnnnnn"},
        {"evil.example", "nnnnnn"},      {"evil.example:1", "nnnnnn"},        {"localhost.evil.example", "nnnnnn"},  {"127.0.0.1.evil.example", "nnnnnn"},
        {"localhost.", "nnnnnn"},        {"", "nnnnnn"},                      {":1", "nnnnnn"},                      {"localhost:", "nnnnnn"},
        {"localhost:x", "nnnnnn"},       {"localhost:65536", "nnnnnn"},       {"localhost:1:2", "nnnnnn"},           {"[localhost]", "nnnnnn"},
        {"user@localhost", "nnnnnn"},    {"127.1", "nnnnnn"},                 {"2130706433", "nnnnnn"},              {"[::1", "nnnnnn"},
        {"[::1]x", "nnnnnn"},            {"[::ffff:127.0.0.1]", "nnnnyn"},    {"localhost, evil.example", "nnnnnn"},
    };
    // clang-format on
    for (size_t k = 0; k < COUNT(at); k++) {
        http_address a;
        assert_ok(http_address_read(&a, at[k]));
        for (size_t i = 0; i < COUNT(cases); i++) {
            bool is = http_host_is(&a, "node-3", (http_text){cases[i].host, strlen(cases[i].host)});
            if (is != (cases[i].allowed[k] == 'y'))
                fail_msg("listens at %s, called %s: %s", at[k], cases[i].host, is ? "allowed" : "refused");
        }
        assert_false(http_host_is(&a, "node-3", (http_text){"localhost\0.evil", 15}));
        assert_false(http_host_is(&a, "", (http_text){"", 0}));
        assert_false(http_host_is(&a, "", (http_text){NULL, 0}));
    }
}

// --- tokens ----------------------------------------------------------------------------------------------------------

static void put_file(const char *path, const char *text, mode_t mode) {
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && fchmod(fd, mode) == 0 &&
                close(fd) == 0);
}

static void token_files(void **state) {
    char dir[IO_PATH], path[IO_PATH], other[IO_PATH], token[HTTP_TOKEN], longest[HTTP_TOKEN_MOST + 64];
    const char *base = getenv("TMPDIR");
    (void)state;
    assert_ok(io_path(dir, "%s/lockstep-http-XXXXXX", base ? base : "/tmp"));
    assert_non_null(mkdtemp(dir));
    assert_ok(io_path(path, "%s/token", dir));
    assert_ok(io_path(other, "%s/other", dir));
    assert_error(http_token_read(path, "", token), ERR_AUTH, path, "No such file", "base64");
    put_file(path, "  0123456789abcdef\r\n", 0600);
    assert_ok(http_token_read(path, "", token));
    assert_string_equal(token, "0123456789abcdef");
    assert_ok(http_token_read(path, other, token));
    assert_error(http_token_read(path, path, token), ERR_AUTH, "the cluster's secret");
    assert_int_equal(link(path, other), 0);
    assert_error(http_token_read(path, other, token), ERR_AUTH, "the cluster's secret");
    assert_string_equal(token, "");
    put_file(path, "0123456789abcdef", 0640);
    assert_error(http_token_read(path, "", token), ERR_AUTH, "0640", "0600");
    put_file(path, "0123456789abcdef", 0604);
    assert_error(http_token_read(path, "", token), ERR_AUTH, "0604");
    put_file(path, "0123456789abcdef", 0400);
    assert_ok(http_token_read(path, "", token));
    put_file(path, "0123456789abcde\n", 0600);
    assert_error(http_token_read(path, "", token), ERR_AUTH, "15 characters");
    put_file(path, "", 0600);
    assert_error(http_token_read(path, "", token), ERR_AUTH, "0 characters");
    put_file(path, "x23456789 abcdefg", 0600);
    assert_error(http_token_read(path, "", token), ERR_AUTH, "character 10 of");
    put_file(path,
             "\x7f"
             "123456789abcdef",
             0600);
    assert_error(http_token_read(path, "", token), ERR_AUTH, "character 1 of");
    put_file(path, "~!0123456789abcdef", 0600);
    assert_ok(http_token_read(path, "", token));
    put_file(path, "0123456789 abcdef", 0600);
    assert_error(http_token_read(path, "", token), ERR_AUTH, "character 11");
    memset(longest, 'x', sizeof longest);
    longest[HTTP_TOKEN_MOST] = 0;
    put_file(path, longest, 0600);
    assert_ok(http_token_read(path, "", token));
    assert_string_equal(token, longest);
    longest[HTTP_TOKEN_MOST] = 'x', longest[HTTP_TOKEN_MOST + 1] = 0;
    put_file(path, longest, 0600);
    assert_error(http_token_read(path, "", token), ERR_AUTH, "at least 257");
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_error(http_token_read(path, "", token), ERR_AUTH, "not a regular file");
    if (geteuid() == 0) {
        put_file(path, "0123456789abcdef", 0600);
        assert_int_equal(chown(path, 12345, 12345), 0);
        assert_error(http_token_read(path, "", token), ERR_AUTH, "belongs to user 12345");
    }
    assert_ok(io_remove_tree(dir));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_are_judged), cmocka_unit_test(parts_of_a_head), cmocka_unit_test(long_heads),
        cmocka_unit_test(credentials),      cmocka_unit_test(addresses),       cmocka_unit_test(names),
        cmocka_unit_test(token_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
