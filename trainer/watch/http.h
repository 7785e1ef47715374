// trainer/watch/http.h: an HTTP/1.1 server for a few fixed pages, and for nothing else. It knows nothing of runs.
//
//   bounded      HTTP_SLOTS connections, no heap after http_open, one request each ("Connection: close")
//   deadlines    absolute, from when a connection was accepted, however busy it keeps itself: HTTP_HEAD_S for its
//                request; then HTTP_REPLY_S and another second for each HTTP_RATE bytes of the reply, so that 1 MB also
//                comes through a slow tunnel (in 21 s), and a reader that stalls does not keep its place for ever
//   full         when all places are taken, a connection whose request is complete gets the place of one that still
//                owes its own; one that is itself incomplete only that of one which has owed it for HTTP_GRACE_S; else
//                it is told 503
//   pages        by exact path, GET and HEAD. Paths are names in a table: no file is ever opened
//   who asks     Host must be a name of this server (trainer/watch/http_host.h), and the token must be known, if there
//                is one
//   browsers     may load nothing else, show it in no frame, store nothing, run no script
//
// There is no TLS: `ssh -L` gives one through which a loopback address is reached.
#ifndef TRAINER_WATCH_HTTP_H
#define TRAINER_WATCH_HTTP_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum { HTTP_SLOTS = 16, HTTP_ROUTES = 8, HTTP_BODY = 4 << 20, HTTP_RATE = 65536 };
#define HTTP_HEAD_S 5.0
#define HTTP_REPLY_S 5.0
#define HTTP_GRACE_S 0.25

typedef struct http http;

// What a route shows: at most HTTP_BODY bytes, which the server copies at once.
typedef struct http_page {
    const char *type;  // "text/html; charset=utf-8", a constant text
    const char *body;
    size_t bytes;
    int status;  // 200, 404 or 503; 0 is 200
} http_page;

// get is called at most once in fresh_s: who asks meanwhile gets the same page. Where it fails, the reply is 500 with
// the failure's text.
typedef struct http_route {
    const char *path;  // "/metrics", a constant text
    err_t (*get)(void *ctx, http_page *out);
    double fresh_s;
} http_route;

typedef struct http_options {
    const char *address;       // "127.0.0.1:28080", "[::1]:28080", "0.0.0.0:28080"; "[::]:28080" is IPv6 alone
    const char *token;         // http_token_read; NULL: none is needed, which only a loopback address may do
    const http_route *routes;  // at most HTTP_ROUTES, which outlive the server
    int count;
    void *ctx;  // of each get
} http_options;

// What happened so far.
typedef struct http_counts {
    int64_t accepted;  // connections
    int64_t shown;     // replies with a page
    int64_t refused;   // replies with another status, "busy" not among them
    int64_t busy;      // 503, as all places were taken
    int64_t dropped;   // ended without a whole reply: at a deadline, by the other side, for another one's sake
    int64_t got;       // calls of a route's get
} http_counts;

// What http_open would refuse whatever else happens, so that it is known before a run starts. ERR_CONFIG: not an
// address; one beyond this machine without a token; a token that is too short or too long.
err_t http_check(const http_options *o);

// Begins to listen. ERR_CONFIG as http_check. ERR_UNAVAILABLE: the address is not this machine's, or the port is taken.
err_t http_open(http **out, const http_options *o);

// Sees to connections until clock_now() >= until, and at least once; waits in poll() alone, never longer. Returns
// before that when a signal arrives. Whatever others send is no error. ERR_IO: poll itself failed.
err_t http_serve(http *h, double until);

void http_close(http *h);

// Where it listens: "127.0.0.1:28080", with the port that was found where 0 was asked for.
const char *http_where(const http *h);
http_counts http_counted(const http *h);

#endif
