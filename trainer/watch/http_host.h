// trainer/watch/http_host.h: where a server listens, and by which names it may be called.
//
// A page elsewhere can have its own name point to this machine, after it was loaded ("DNS rebinding"): a browser then
// takes this server for the page's own, and lets the page read it. The request still says by which name the server was
// called. So only names that no other machine can have are accepted:
//
//   listens at       is called
//   127.0.0.5        localhost, 127.0.0.1, [::1], 127.0.0.5
//   [::1]            localhost, 127.0.0.1, [::1]
//   10.0.0.1         the same, 10.0.0.1, and the machine's name (hostname)
//   0.0.0.0, [::]    the same, and any address: there is no name in it that could point elsewhere
//
// The port is not compared: who comes through `ssh -L 9000:127.0.0.1:28080` says localhost:9000, and a page cannot take
// a name by a port.
#ifndef TRAINER_WATCH_HTTP_HOST_H
#define TRAINER_WATCH_HTTP_HOST_H

#include "base/err.h"
#include "trainer/watch/http_parse.h"

#include <netinet/in.h>

typedef struct http_address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } at;
    socklen_t size;
    bool loopback;  // only this machine can connect
    bool all;       // 0.0.0.0 or [::]: of every address of this machine
} http_address;

// "127.0.0.1:28080", "[::1]:28080", "0.0.0.0:28080", "localhost:28080" (127.0.0.1). Port 0: any that is free.
// ERR_CONFIG.
err_t http_address_read(http_address *out, const char *text);

// "[::1]:28080" into dst. Returns dst.
enum { HTTP_ADDRESS = INET6_ADDRSTRLEN + 16 };
const char *http_address_text(const http_address *a, char dst[HTTP_ADDRESS]);

// Whether the Host of a request names this server. machine: this machine's name, "" if it has none.
bool http_host_is(const http_address *a, const char *machine, http_text host);

#endif
