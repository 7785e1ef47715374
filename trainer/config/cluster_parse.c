// trainer/config/cluster_parse.c: the text of [cluster] nodes, entry by entry.
#include "trainer/config/cluster_parse.h"

#include "trainer/config/config.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef struct entry {
    int number;              // from 1
    char text[CONFIG_TEXT];  // without the spaces around it
} entry;

static err_t refuse(const entry *e, const char *why) {
    return err_set(
        ERR_CONFIG,
        "entry %d, `%.200s`: %s. Expected host:ranks, [IPv6]:ranks or name[01-16]:ranks, comma between entries",
        e->number, e->text, why);
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_name(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '_';
}

int cluster_number(const char **p) {
    int value = 0, digits = 0;
    for (; is_digit(**p) && digits < 10; (*p)++, digits++)
        if (digits < 9) value = 10 * value + (**p - '0');
    return digits >= 1 && digits <= 9 ? value : -1;
}

static err_t check_host(const entry *e, const char *host) {
    if (!*host) return refuse(e, "the host is missing");
    for (const char *p = host; *p; p++)
        if (!is_name(*p)) return refuse(e, "a host's name is letters, digits, `.`, `-` and `_`");
    struct in_addr address;
    bool numeric = strspn(host, "0123456789.") == strlen(host);
    if (numeric && inet_pton(AF_INET, host, &address) != 1) return refuse(e, "not an IPv4 address");
    return ERR_OK;
}

static err_t add_node(cluster *out, const entry *e, const char *host, int ranks) {
    char why[128];
    if (strlen(host) >= COMM_HOST) {
        snprintf(why, sizeof why, "a host's name has %d characters at most; give its address", COMM_HOST - 1);
        return refuse(e, why);
    }
    if (out->nodes == TEAM_NODES_MAX) {
        snprintf(why, sizeof why, "more than %d nodes", TEAM_NODES_MAX);
        return refuse(e, why);
    }
    if (out->world + ranks > TEAM_RANKS_MAX) {
        snprintf(why, sizeof why, "more than %d ranks together", TEAM_RANKS_MAX);
        return refuse(e, why);
    }
    for (int i = 0; i < out->nodes; i++)
        if (strcasecmp(out->host[i], host) == 0) {
            snprintf(why, sizeof why, "%s is node %d already; a node's ranks stand in one entry", host, i);
            return refuse(e, why);
        }
    snprintf(out->host[out->nodes], COMM_HOST, "%s", host);
    out->ranks[out->nodes++] = ranks;
    out->world += ranks;
    return ERR_OK;
}

// "prefix[from-to]suffix": every number of the range, as wide as `from` is written.
static err_t add_range(cluster *out, const entry *e, const char *host, const char *open, int ranks) {
    const char *p = open + 1, *first = p;
    int from = cluster_number(&p), width = (int)(p - first), to = -1;
    const char *second = *p == '-' ? p + 1 : p;
    if (*p == '-') p++, to = cluster_number(&p);
    if (from < 0 || to < 0 || *p != ']') return refuse(e, "inside the brackets stands one range such as 01-16");
    if (*second == '0' && (int)(p - second) != width) return refuse(e, "both ends of a range are padded alike");
    if (from > to) return refuse(e, "the range ends before it begins");
    if (to - from >= TEAM_NODES_MAX) return refuse(e, "the range has more nodes than a cluster may have");
    bool padded = *first == '0';
    for (int i = from; i <= to; i++) {
        char name[CONFIG_TEXT + 16];
        snprintf(name, sizeof name, "%.*s%0*d%s", (int)(open - host), host, padded ? width : 1, i, p + 1);
        TRY(check_host(e, name));
        TRY(add_node(out, e, name, ranks));
    }
    return ERR_OK;
}

static err_t parse_ranks(const entry *e, const char *text, int *ranks) {
    *ranks = 1;
    if (!*text) return ERR_OK;
    const char *p = text + 1;
    *ranks = cluster_number(&p);
    char why[128];
    snprintf(why, sizeof why, "behind the host stands `:` and a number of ranks from 1 to %d", TEAM_RANKS_MAX);
    if (*text != ':' || *ranks < 1 || *ranks > TEAM_RANKS_MAX || *p) return refuse(e, why);
    return ERR_OK;
}

// "[fe80::1%eth0]:8": `close` is where the bracket ends.
static err_t parse_ipv6(cluster *out, const entry *e, const char *close) {
    char host[CONFIG_TEXT], bare[CONFIG_TEXT];
    int ranks;
    struct in6_addr address;
    snprintf(host, sizeof host, "%.*s", (int)(close - e->text - 1), e->text + 1);
    snprintf(bare, sizeof bare, "%.*s", (int)strcspn(host, "%"), host);
    for (const char *p = host + strlen(bare); *p; p++)  // the scope names an interface of this machine
        if (*p != '%' && !is_name(*p)) return refuse(e, "not an IPv6 address");
    if (inet_pton(AF_INET6, bare, &address) != 1) return refuse(e, "not an IPv6 address");
    TRY(parse_ranks(e, close + 1, &ranks));
    return add_node(out, e, host, ranks);
}

static err_t parse_entry(cluster *out, const entry *e) {
    if (!*e->text) return refuse(e, "nothing stands here");
    if (strpbrk(e->text, " \t")) return refuse(e, "a space inside; between entries stands a comma");
    const char *close = strchr(e->text, ']');
    if (*e->text == '[' && close && memchr(e->text, ':', (size_t)(close - e->text))) return parse_ipv6(out, e, close);
    const char *colon = strchr(e->text, ':');
    if (colon && strchr(colon + 1, ':'))
        return refuse(e, "more than one `:`; an IPv6 address stands in brackets, [address]:ranks");
    char host[CONFIG_TEXT];
    int ranks;
    snprintf(host, sizeof host, "%.*s", colon ? (int)(colon - e->text) : (int)strlen(e->text), e->text);
    TRY(parse_ranks(e, colon ? colon : "", &ranks));
    const char *open = strchr(host, '[');
    if (open) return add_range(out, e, host, open, ranks);
    TRY(check_host(e, host));
    return add_node(out, e, host, ranks);
}

err_t cluster_parse(cluster *out, const char *nodes) {
    *out = (cluster){.racks = 1};
    entry e = {.number = 1};
    for (const char *p = nodes; p; e.number++) {
        int depth = 0;
        const char *end = p;
        for (; *end && (depth || *end != ','); end++) depth += *end == '[' ? 1 : *end == ']' && depth ? -1 : 0;
        const char *next = *end ? end + 1 : NULL;
        while (p < end && (*p == ' ' || *p == '\t')) p++;
        while (end > p && (end[-1] == ' ' || end[-1] == '\t')) end--;
        snprintf(e.text, sizeof e.text, "%.*s", (int)(end - p), p);
        TRY(parse_entry(out, &e));
        p = next;
    }
    return ERR_OK;
}

// --- racks -----------------------------------------------------------------------------------------------------------

static err_t equal_racks(cluster *out, int racks) {
    if (out->nodes == 1 && racks != 1) return err_set(ERR_CONFIG, "%d racks, and nodes has one node", racks);
    if (racks < 1 || racks > out->nodes || out->nodes % racks)
        return err_set(ERR_CONFIG,
                       "%d racks of as many nodes each, and nodes has %d: expected a number that divides it, or the "
                       "nodes of each rack, such as 0-%d,%d",
                       racks, out->nodes, out->nodes - 2, out->nodes - 1);
    for (int n = 0; n < out->nodes; n++) out->rack[n] = n / (out->nodes / racks);
    out->racks = racks;
    return ERR_OK;
}

// "4-7" or "8" at *p: the nodes from `next` on. Moves *p past it; returns the last node, or -1.
static int rack_nodes(const char **p, int next, int nodes) {
    while (**p == ' ' || **p == '\t') (*p)++;
    int from = cluster_number(p), to = from;
    if (**p == '-') (*p)++, to = cluster_number(p);
    while (**p == ' ' || **p == '\t') (*p)++;
    return from == next && to >= from && to < nodes && (!**p || **p == ',') ? to : -1;
}

err_t cluster_racks(cluster *out, const char *racks) {
    const char *p = racks;
    int next = 0;
    out->racks = 1;
    memset(out->rack, 0, sizeof out->rack);
    if (!*racks) return ERR_OK;
    int alone = cluster_number(&p);
    if (alone >= 0 && !*p) return equal_racks(out, alone);
    p = racks;
    for (out->racks = 0; next < out->nodes; out->racks++) {
        int last = rack_nodes(&p, next, out->nodes);
        if (last < 0 || (last + 1 < out->nodes) != (*p == ','))
            return err_set(ERR_CONFIG,
                           "`%.200s`: expected node %d next. Racks are ranges of neighbours in nodes, counted from 0, "
                           "comma between, that end with node %d: 0-3,4-7",
                           racks, next, out->nodes - 1);
        while (next <= last) out->rack[next++] = out->racks;
        p += *p == ',';
    }
    return ERR_OK;
}

err_t cluster_joined(cluster *c, int64_t joined) {
    c->joined = (int)joined;
    for (int n = 0; joined && n < c->nodes; n++)
        if (c->ranks[n] % joined)
            return err_set(ERR_CONFIG,
                           "joined = %" PRId64 ", and %s has %d rank%s: expected a number that divides them", joined,
                           c->host[n], c->ranks[n], c->ranks[n] == 1 ? "" : "s");
    return ERR_OK;
}
