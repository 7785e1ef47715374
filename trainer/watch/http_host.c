// trainer/watch/http_host.c: see http_host.h. Addresses are compared as bytes, so each way to write one is the same.
#include "trainer/watch/http_host.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

// "127.0.0.1", "[::1]", and a port or none, taken apart. host: without brackets.
typedef struct place {
    char host[64];
    bool brackets;
    long port;  // -1: none
} place;

static bool split(place *out, const char *at, size_t n) {
    const char *end = at + n, *close = n && *at == '[' ? memchr(at, ']', n) : NULL;
    out->brackets = close != NULL;
    const char *stop = close ? close + 1 : memchr(at, ':', n);
    if (!stop) stop = end;
    const char *host = close ? at + 1 : at;
    size_t length = (size_t)((close ? close : stop) - host);
    if (length == 0 || length >= sizeof out->host || memchr(host, 0, length)) return false;
    memcpy(out->host, host, length);
    out->host[length] = 0;
    out->port = -1;
    if (stop == end) return true;
    if (*stop++ != ':' || stop == end || end - stop > 5) return false;
    out->port = 0;
    for (; stop < end; stop++) {
        if (*stop < '0' || *stop > '9') return false;
        out->port = 10 * out->port + (*stop - '0');
    }
    return out->port <= 65535;
}

err_t http_address_read(http_address *out, const char *text) {
    place p;
    struct in6_addr v6;
    struct in_addr v4;
    *out = (http_address){.size = 0};
    bool whole = split(&p, text, strlen(text)) && p.port >= 0;
    const char *host = whole && !p.brackets && strcmp(p.host, "localhost") == 0 ? "127.0.0.1" : p.host;
    if (whole && p.brackets && inet_pton(AF_INET6, host, &v6) == 1) {
        out->at.v6 =
            (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)p.port), .sin6_addr = v6};
        out->size = sizeof out->at.v6;
        out->loopback = IN6_IS_ADDR_LOOPBACK(&v6);
        out->all = IN6_IS_ADDR_UNSPECIFIED(&v6);
        return ERR_OK;
    }
    if (whole && !p.brackets && inet_pton(AF_INET, host, &v4) == 1) {
        out->at.v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)p.port), .sin_addr = v4};
        out->size = sizeof out->at.v4;
        out->loopback = ntohl(v4.s_addr) >> 24 == 127;
        out->all = v4.s_addr == INADDR_ANY;
        return ERR_OK;
    }
    return err_set(ERR_CONFIG,
                   "%.100s: expected an address and a port, as 127.0.0.1:28080, [::1]:28080 or 0.0.0.0:28080", text);
}

const char *http_address_text(const http_address *a, char dst[HTTP_ADDRESS]) {
    char host[INET6_ADDRSTRLEN] = "?";
    bool six = a->at.any.sa_family == AF_INET6;
    inet_ntop(a->at.any.sa_family, six ? (const void *)&a->at.v6.sin6_addr : (const void *)&a->at.v4.sin_addr, host,
              sizeof host);
    snprintf(dst, HTTP_ADDRESS, six ? "[%s]:%d" : "%s:%d", host, ntohs(six ? a->at.v6.sin6_port : a->at.v4.sin_port));
    return dst;
}

// The name is an address; whether the server may be called by it.
static bool address_is(const http_address *a, const place *p, bool *known) {
    struct in6_addr v6;
    struct in_addr v4;
    if (p->brackets && inet_pton(AF_INET6, p->host, &v6) == 1) {
        *known = true;
        if (a->all || IN6_IS_ADDR_LOOPBACK(&v6)) return true;
        return a->at.any.sa_family == AF_INET6 && memcmp(&v6, &a->at.v6.sin6_addr, sizeof v6) == 0;
    }
    *known = !p->brackets && inet_pton(AF_INET, p->host, &v4) == 1;
    if (!*known) return false;
    if (a->all || v4.s_addr == htonl(INADDR_LOOPBACK)) return true;
    return a->at.any.sa_family == AF_INET && v4.s_addr == a->at.v4.sin_addr.s_addr;
}

bool http_host_is(const http_address *a, const char *machine, http_text host) {
    place p;
    bool known;
    if (!host.at || !split(&p, host.at, host.n)) return false;
    bool right = address_is(a, &p, &known);
    if (known || p.brackets) return right;
    http_text name = {p.host, strlen(p.host)};
    return http_same(name, "localhost") || (!a->loopback && *machine && http_same(name, machine));
}
