// trainer/watch/http_parse.h: the head of an HTTP/1.1 request, as far as a server needs it that only shows a few pages.
// Pure functions over bytes: nothing is copied or allocated. Sources: RFC 9112 (messages), RFC 9110 (fields), RFC 7617
// (Basic).
#ifndef TRAINER_WATCH_HTTP_PARSE_H
#define TRAINER_WATCH_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>

// Bytes of a request line, and of a whole head. A browser sends the cookies of all servers of this machine to each of
// them: their number decides how long a head may be.
enum { HTTP_LINE = 2048, HTTP_HEAD = 8192 };

// A part of the head. It has no NUL at its end; at == NULL: the head lacks it.
typedef struct http_text {
    const char *at;
    size_t n;
} http_text;

typedef struct http_request {
    bool head;                // HEAD: the reply has no body
    http_text path;           // of the target, without its query: "/metrics". Nothing in it is decoded
    http_text host;           // "127.0.0.1:28080"
    http_text authorization;  // "Bearer 1234"
} http_request;

// The status codes that a parser may end with; the server has more.
enum {
    HTTP_MORE = 0,
    HTTP_OK = 200,
    HTTP_BAD = 400,
    HTTP_METHOD = 405,
    HTTP_LONG_LINE = 414,
    HTTP_LONG_HEAD = 431,
    HTTP_VERSION = 505
};

// Reads a head from the n bytes that have come so far, *out pointing into them. Returns
//   HTTP_MORE       they are the beginning of a head
//   HTTP_OK         *out is filled in; what follows the head is not looked at
//   HTTP_BAD        this is no request; or it has no Host, or two, or a body
//   HTTP_METHOD     something else than GET or HEAD
//   HTTP_LONG_LINE  the request line has more than HTTP_LINE bytes
//   HTTP_LONG_HEAD  the head has more than HTTP_HEAD bytes
//   HTTP_VERSION    neither HTTP/1.0 nor HTTP/1.1
// Bytes are judged one after the other: once it is not HTTP_MORE, more bytes change nothing.
// What older software may send is refused: lines that end with LF alone, headers that go on in the next line, a request
// without Host; so is "GET http://host/", which only proxies are sent.
int http_parse(const char *bytes, size_t n, http_request *out);

// Whether this is the text, in any case of letters.
bool http_same(http_text a, const char *b);

// The token of `Authorization: Bearer TOKEN`, or the password of `Authorization: Basic BASE64(NAME:PASSWORD)`, into
// dst. Returns its bytes; 0: there is none, or it has no room. dst is not a text that ends with a NUL.
size_t http_credential(http_text authorization, char *dst, size_t room);

#endif
