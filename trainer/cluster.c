// trainer/cluster.c: one line of the INI, the same on all nodes, becomes a table of nodes and the row that is this machine.
//
// A node is not told which one it is: it looks up every entry's addresses and compares them with those of its own interfaces. Whoever runs
// several nodes on one machine (tests do, on 127.0.0.1, 127.0.0.2, ...) says it with LOCKSTEP_NODE.
#include "trainer/cluster.h"

#include "gpu/gpu.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// --- entries -----------------------------------------------------------------------------------------------------------------------

typedef struct entry {
    int number;               // from 1
    char text[CONFIG_TEXT];   // without the spaces around it
} entry;

static err_t refuse(const entry *e, const char *why) {
    return err_set(ERR_CONFIG, "entry %d, `%.200s`: %s. Expected host:ranks, [IPv6]:ranks or name[01-16]:ranks, comma between entries", e->number,
                   e->text, why);
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_name(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '_'; }

// The decimal number at *p, of 1 to 9 digits; moves *p behind it. -1: there is none.
static int take_number(const char **p) {
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
    int from = take_number(&p), width = (int)(p - first), to = -1;
    const char *second = *p == '-' ? p + 1 : p;
    if (*p == '-') p++, to = take_number(&p);
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
    *ranks = take_number(&p);
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
    if (colon && strchr(colon + 1, ':')) return refuse(e, "more than one `:`; an IPv6 address stands in brackets, [address]:ranks");
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
    *out = (cluster){0};
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

// --- which one is this machine? ----------------------------------------------------------------------------------------------------

// A list for a message: "a, b, ..." in bounded room.
typedef struct list { char text[320]; } list;

static void list_add(list *l, const char *what, const char *more) {
    size_t n = strlen(l->text), room = sizeof l->text - n;
    if (n >= 5 && strcmp(l->text + n - 5, ", ...") == 0) return;
    if (strlen(what) + strlen(more) + 12 > room) snprintf(l->text + n, room, ", ...");
    else snprintf(l->text + n, room, "%s%s%s%s", n ? ", " : "", what, *more ? " " : "", more);
}

static bool is_loopback(const struct sockaddr *a) {
    if (a->sa_family == AF_INET) return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

static bool same_address(const struct sockaddr *a, const struct sockaddr *b) {
    if (a->sa_family != b->sa_family) return false;
    if (a->sa_family == AF_INET) return ((const struct sockaddr_in *)a)->sin_addr.s_addr == ((const struct sockaddr_in *)b)->sin_addr.s_addr;
    if (a->sa_family != AF_INET6) return false;
    const struct sockaddr_in6 *x = (const struct sockaddr_in6 *)a, *y = (const struct sockaddr_in6 *)b;
    bool scoped = x->sin6_scope_id && y->sin6_scope_id;
    return memcmp(&x->sin6_addr, &y->sin6_addr, sizeof x->sin6_addr) == 0 && (!scoped || x->sin6_scope_id == y->sin6_scope_id);
}

// The whole of 127/8 is this machine, though its interface shows one address of it.
static bool is_mine(const struct sockaddr *a, const struct ifaddrs *mine) {
    if (is_loopback(a)) return true;
    for (const struct ifaddrs *i = mine; i; i = i->ifa_next)
        if (i->ifa_addr && same_address(a, i->ifa_addr)) return true;
    return false;
}

typedef struct standing {
    bool mine, reachable;  // some address is ours; some address is not a loopback
    char note[96];         // what its name resolves to
} standing;

static standing look_up(const char *host, const struct ifaddrs *mine) {
    standing s = {0};
    struct addrinfo *found = NULL, hints = {.ai_socktype = SOCK_STREAM};
    int rc = getaddrinfo(host, NULL, &hints, &found);
    if (rc != 0) snprintf(s.note, sizeof s.note, "(%.80s)", rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
    for (const struct addrinfo *a = rc == 0 ? found : NULL; a; a = a->ai_next) {
        char text[NI_MAXHOST];
        s.mine |= is_mine(a->ai_addr, mine);
        s.reachable |= !is_loopback(a->ai_addr);
        if (*s.note || getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST) != 0 || strcmp(text, host) == 0) continue;
        snprintf(s.note, sizeof s.note, "(%.80s)", text);
    }
    if (rc == 0) freeaddrinfo(found);
    return s;
}

static void list_own(list *l, const struct ifaddrs *mine) {
    char text[NI_MAXHOST];
    for (const struct ifaddrs *i = mine; i; i = i->ifa_next) {
        if (!i->ifa_addr || !(i->ifa_flags & IFF_UP)) continue;
        socklen_t n = i->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in) : i->ifa_addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : 0;
        if (n && getnameinfo(i->ifa_addr, n, text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0) list_add(l, text, "");
    }
}

static err_t find_among(cluster *cl, const struct ifaddrs *mine) {
    list all = {0}, hits = {0}, own = {0};
    int found = 0, elsewhere = 0;
    standing me = {0};
    for (int i = 0; i < cl->nodes; i++) {
        standing s = look_up(cl->host[i], mine);
        list_add(&all, cl->host[i], s.note);
        elsewhere += s.reachable && !s.mine;
        if (!s.mine) continue;
        list_add(&hits, cl->host[i], s.note);
        if (found++ == 0) cl->node = i, me = s;
    }
    list_own(&own, mine);
    if (found == 0)
        return err_set(ERR_CONFIG, "[cluster] nodes: none of them (%s) is this machine, whose addresses are %s. Mend the list, or set LOCKSTEP_NODE=k in the "
                       "environment, from 0 to %d", all.text, own.text, cl->nodes - 1);
    if (found > 1)
        return err_set(ERR_CONFIG, "[cluster] nodes: %d of them are this machine: %s. Set LOCKSTEP_NODE=k in the environment, from 0 to %d, to say which one "
                       "this process is", found, hits.text, cl->nodes - 1);
    // What Debian's installer writes into /etc/hosts: a machine finds itself by its name, and nobody else reaches it there.
    if (elsewhere && !me.reachable)
        return err_set(ERR_CONFIG, "[cluster] nodes: %s is this machine, but stands here for a loopback address only, where the other nodes can't reach it. "
                       "Mend /etc/hosts, or write its address instead of its name", hits.text);
    return ERR_OK;
}

static err_t find_self(cluster *cl) {
    const char *told = getenv("LOCKSTEP_NODE"), *p = told;
    if (told) {
        cl->node = take_number(&p);
        if (cl->node >= 0 && cl->node < cl->nodes && !*p) return ERR_OK;
        return err_set(ERR_CONFIG, "LOCKSTEP_NODE=%.64s in the environment: expected a number from 0 to %d, as [cluster] nodes has %d %s", told,
                       cl->nodes - 1, cl->nodes, cl->nodes == 1 ? "entry, or is empty" : "entries");
    }
    struct ifaddrs *mine = NULL;
    if (getifaddrs(&mine) != 0) return err_set(ERR_CONFIG, "[cluster] nodes: the addresses of this machine are not to be had: %s. Set LOCKSTEP_NODE=k in "
                                               "the environment, from 0 to %d", strerror(errno), cl->nodes - 1);
    err_t rc = find_among(cl, mine);
    freeifaddrs(mine);
    return rc;
}

// --- the whole ---------------------------------------------------------------------------------------------------------------------

// In a child process: one that has initialised CUDA can't fork ranks. 0 when there are none, or when the child can't tell.
static int count_gpus(void) {
    int status;
    pid_t child = fork();
    if (child == 0) _exit(device_count(DEVICE_CUDA));
    while (child > 0 && waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return 0;
    return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

// Ranks of a machine of which the INI says nothing: one for each GPU; one on CPUs, whose threads use all cores.
static int default_ranks(const config *c) {
    int gpus = c->device.backend == BACKEND_CPU ? 0 : count_gpus();
    return gpus > 0 ? gpus : 1;
}

static err_t alone(cluster *out, const config *c) {
    *out = (cluster){.nodes = 1};
    out->world = out->ranks[0] = c->device.ranks ? (int)c->device.ranks : default_ranks(c);
    snprintf(out->host[0], COMM_HOST, "localhost");
    return getenv("LOCKSTEP_NODE") ? find_self(out) : ERR_OK;
}

err_t cluster_resolve(cluster *out, const config *c) {
    if (!*c->cluster.nodes) {
        TRY(alone(out, c));
        return cluster_fits(c, out->world);
    }
    if (cluster_parse(out, c->cluster.nodes) != ERR_OK) return err_prefix("[cluster] nodes");
    TRY(find_self(out));
    int here = out->ranks[out->node];
    if (c->device.ranks && c->device.ranks != here)
        return err_set(ERR_CONFIG, "[device] ranks = %lld, but [cluster] nodes gives this node, %s, %d. Leave [device] ranks at 0, or make them the same",
                       (long long)c->device.ranks, out->host[out->node], here);
    return cluster_fits(c, out->world);
}

// --- the secret --------------------------------------------------------------------------------------------------------------------

enum { SECRET_LEAST = 32, SECRET_MOST = 4096 };

#define MAKE_ONE "Make one with `head -c 32 /dev/urandom > secret; chmod 600 secret` and copy it to every node"

static err_t check_secret(const char *path, const struct stat *st, bool credential) {
    if (!S_ISREG(st->st_mode)) return err_set(ERR_AUTH, "%s: not a regular file. " MAKE_ONE, path);
    if (st->st_uid != 0 && st->st_uid != geteuid())
        return err_set(ERR_AUTH, "%s: belongs to user %u; expected yours (%u) or root's. " MAKE_ONE, path, (unsigned)st->st_uid, (unsigned)geteuid());
    // systemd lets a service's user read a credential by an access-control list; its mask shows as read permission of the group root.
    mode_t tolerated = credential && st->st_uid == 0 && st->st_gid == 0 ? S_IRGRP : 0;
    if (st->st_mode & (S_IRWXG | S_IRWXO) & ~tolerated)
        return err_set(ERR_AUTH, "%s: mode %04o lets others at the secret; expected 0600. If it was so for long, make a new one; otherwise `chmod 600 "
                       "%s`", path, st->st_mode & 07777, path);
    if (st->st_size < SECRET_LEAST || st->st_size > SECRET_MOST)
        return err_set(ERR_AUTH, "%s: %lld bytes; expected %d to %d%s. " MAKE_ONE, path, (long long)st->st_size, SECRET_LEAST, SECRET_MOST,
                       credential ? ", which lockstep@.service takes from /etc/lockstep/secret" : "");
    return ERR_OK;
}

// Personalised BLAKE2b: the file may serve other programs too, and our key is of no use to them.
static err_t read_secret(int fd, const char *path, int64_t size, uint8_t secret[TEAM_KEY]) {
    static const uint8_t salt[crypto_generichash_blake2b_SALTBYTES] = {0};
    static const uint8_t personal[crypto_generichash_blake2b_PERSONALBYTES] = "lockstep secret";
    uint8_t bytes[SECRET_MOST + 1];
    int64_t got = 0;
    for (ssize_t n; got < (int64_t)sizeof bytes && (n = read(fd, bytes + got, sizeof bytes - (size_t)got)) != 0;) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_set(ERR_AUTH, "%s: %s", path, strerror(errno));
        got += n;
    }
    bool whole = got == size;
    if (whole) crypto_generichash_blake2b_salt_personal(secret, TEAM_KEY, bytes, (size_t)got, NULL, 0, salt, personal);
    sodium_memzero(bytes, sizeof bytes);
    return whole ? ERR_OK : err_set(ERR_AUTH, "%s: changed while it was read; try again", path);
}

err_t cluster_secret(const config *c, uint8_t secret[TEAM_KEY]) {
    const char *given = getenv("CREDENTIALS_DIRECTORY");
    bool credential = !*c->cluster.secret_file;
    char path[CONFIG_TEXT + 32];
    if (credential && (!given || !*given)) return err_set(ERR_AUTH, "[cluster] secret_file: several nodes need a secret that they share. " MAKE_ONE);
    if (credential) snprintf(path, sizeof path, "%.1023s/lockstep-secret", given);
    else snprintf(path, sizeof path, "%s", c->cluster.secret_file);
    // Opened first and judged then: what is judged is what will be read. Without O_NONBLOCK a named pipe would hold us here.
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) return err_set(ERR_AUTH, "%s: the secret can't be opened: %s. " MAKE_ONE, path, strerror(errno));
    struct stat st;
    err_t rc = fstat(fd, &st) == 0 ? check_secret(path, &st, credential) : err_set(ERR_AUTH, "%s: %s", path, strerror(errno));
    if (rc == ERR_OK) rc = read_secret(fd, path, st.st_size, secret);
    close(fd);
    return rc;
}
