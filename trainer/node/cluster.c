// trainer/node/cluster.c: finds which entry of [cluster] nodes, the same list on all nodes, is this machine.
//
// A node looks up the addresses of every entry and compares them with those of its own interfaces. To run several nodes
// on one machine (as tests do, on 127.0.0.1, 127.0.0.2, ...), set LOCKSTEP_NODE.
#include "trainer/node/cluster.h"

#include "base/shell.h"
#include "gpu/gpu.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <inttypes.h>
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

// --- which one is this machine? --------------------------------------------------------------------------------------

// A list for a message: "a, b, ..." in bounded room.
typedef struct list {
    char text[320];
} list;

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
    if (a->sa_family == AF_INET)
        return ((const struct sockaddr_in *)a)->sin_addr.s_addr == ((const struct sockaddr_in *)b)->sin_addr.s_addr;
    if (a->sa_family != AF_INET6) return false;
    const struct sockaddr_in6 *x = (const struct sockaddr_in6 *)a, *y = (const struct sockaddr_in6 *)b;
    bool scoped = x->sin6_scope_id && y->sin6_scope_id;
    return memcmp(&x->sin6_addr, &y->sin6_addr, sizeof x->sin6_addr) == 0 &&
           (!scoped || x->sin6_scope_id == y->sin6_scope_id);
}

// All of 127/8 is this machine, though its interface lists only one of these addresses.
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
        if (*s.note || getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST) != 0 ||
            strcmp(text, host) == 0)
            continue;
        snprintf(s.note, sizeof s.note, "(%.80s)", text);
    }
    if (rc == 0) freeaddrinfo(found);
    return s;
}

static void list_own(list *l, const struct ifaddrs *mine) {
    char text[NI_MAXHOST];
    for (const struct ifaddrs *i = mine; i; i = i->ifa_next) {
        if (!i->ifa_addr || !(i->ifa_flags & IFF_UP)) continue;
        socklen_t n = i->ifa_addr->sa_family == AF_INET    ? sizeof(struct sockaddr_in)
                      : i->ifa_addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                           : 0;
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
        return err_set(
            ERR_CONFIG,
            "[cluster] nodes: none of them (%s) is this machine, whose addresses are %s. Mend the list, or set LOCKSTEP_NODE=k in the "
            "environment, from 0 to %d",
            all.text, own.text, cl->nodes - 1);
    if (found > 1)
        return err_set(
            ERR_CONFIG,
            "[cluster] nodes: %d of them are this machine: %s. Set LOCKSTEP_NODE=k in the environment, from 0 to %d, to say which one "
            "this process is",
            found, hits.text, cl->nodes - 1);
    // Debian's installer maps the machine's name to a loopback address in /etc/hosts: no other node can reach it there.
    if (elsewhere && !me.reachable)
        return err_set(
            ERR_CONFIG,
            "[cluster] nodes: %s is this machine, but stands here for a loopback address only, where the other nodes can't reach it. "
            "Mend /etc/hosts, or write its address instead of its name",
            hits.text);
    return ERR_OK;
}

static err_t find_self(cluster *cl) {
    const char *told = getenv("LOCKSTEP_NODE"), *p = told;
    if (told) {
        cl->node = cluster_number(&p);
        if (cl->node >= 0 && cl->node < cl->nodes && !*p) return ERR_OK;
        return err_set(
            ERR_CONFIG,
            "LOCKSTEP_NODE=%.64s in the environment: expected a number from 0 to %d, as [cluster] nodes has %d %s",
            told, cl->nodes - 1, cl->nodes, cl->nodes == 1 ? "entry, or is empty" : "entries");
    }
    struct ifaddrs *mine = NULL;
    if (getifaddrs(&mine) != 0)
        return err_set(ERR_CONFIG,
                       "[cluster] nodes: the addresses of this machine are not to be had: %s. Set LOCKSTEP_NODE=k in "
                       "the environment, from 0 to %d",
                       strerror(errno), cl->nodes - 1);
    err_t rc = find_among(cl, mine);
    freeifaddrs(mine);
    return rc;
}

// --- the whole -------------------------------------------------------------------------------------------------------

// Counts in a child process: after initialising CUDA a process can't fork ranks. 0 when there are none, or when the
// child fails.
static int count_gpus(void) {
    int status;
    pid_t child = fork();
    if (child == 0) _exit(device_count(DEVICE_CUDA));
    while (child > 0 && waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return 0;
    return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

// Ranks of a machine if the INI does not say: one for each GPU; on a CPU one, whose threads use all cores.
static int default_ranks(const config *c) {
    int gpus = c->resolved.kind == DEVICE_CPU ? 0 : count_gpus();
    return gpus > 0 ? gpus : 1;
}

static err_t alone(cluster *out, const config *c) {
    *out = (cluster){.nodes = 1, .racks = 1};
    out->world = out->ranks[0] = c->device.ranks ? (int)c->device.ranks : default_ranks(c);
    snprintf(out->host[0], COMM_HOST, "localhost");
    if (cluster_joined(out, c->cluster.joined) != ERR_OK) return err_prefix("[cluster]");
    return getenv("LOCKSTEP_NODE") ? find_self(out) : ERR_OK;
}

static err_t listed(cluster *out, const config *c) {
    if (cluster_parse(out, c->cluster.nodes) != ERR_OK) return err_prefix("[cluster] nodes");
    if (cluster_racks(out, c->cluster.racks) != ERR_OK) return err_prefix("[cluster] racks");
    return cluster_joined(out, c->cluster.joined) == ERR_OK ? ERR_OK : err_prefix("[cluster]");
}

err_t cluster_resolve(cluster *out, const config *c) {
    if (!*c->cluster.nodes) {
        TRY(alone(out, c));
        return config_fits(c, out->world);
    }
    TRY(listed(out, c));
    TRY(find_self(out));
    int here = out->ranks[out->node];
    if (c->device.ranks && c->device.ranks != here)
        return err_set(
            ERR_CONFIG,
            "[device] ranks = %" PRId64
            ", but [cluster] nodes gives this node, %s, %d. Leave [device] ranks at 0, or make them the same",
            c->device.ranks, out->host[out->node], here);
    return config_fits(c, out->world);
}

err_t cluster_planned(cluster *out, const config *c) {
    if (!*c->cluster.nodes) return cluster_resolve(out, c);
    TRY(listed(out, c));
    return config_fits(c, out->world);
}

// --- the secret ------------------------------------------------------------------------------------------------------

enum { SECRET_LEAST = 32, SECRET_MOST = 4096 };

#define MAKE_IT \
    "Make one with `head -c 32 /dev/urandom > %s; chmod 600 %s` and copy it to every node: all need the same"
#define MAKE_ANOTHER \
    "Make one with `head -c 32 /dev/urandom > secret; chmod 600 secret`, set [cluster] secret_file = secret, and copy the file to every node: all " \
    "need the same"

// lockstep@.service takes its credential from here.
static const char *made_at(char dst[SHELL_PATH], const char *path, bool credential) {
    return shell_path(dst, credential ? "/etc/lockstep/secret" : path);
}

static err_t check_secret(const char *path, const struct stat *st, bool credential) {
    char at[SHELL_PATH];
    if (!S_ISREG(st->st_mode)) return err_set(ERR_AUTH, "%s: not a regular file. " MAKE_ANOTHER, path);
    if (st->st_uid != 0 && st->st_uid != geteuid())
        return err_set(ERR_AUTH, "%s: belongs to user %u; expected yours (%u) or root's. " MAKE_ANOTHER, path,
                       (unsigned)st->st_uid, (unsigned)geteuid());
    // systemd gives a service's user access to a credential by an ACL; the ACL's mask appears as read permission of
    // group root.
    mode_t tolerated = credential && st->st_uid == 0 && st->st_gid == 0 ? S_IRGRP : 0;
    if (st->st_mode & (S_IRWXG | S_IRWXO) & ~tolerated)
        return err_set(
            ERR_AUTH,
            "%s: mode %04o lets others at the secret; expected 0600. If it was so for long, make a new one; otherwise `chmod 600 "
            "%s`",
            path, st->st_mode & 07777, shell_path(at, path));
    if (st->st_size < SECRET_LEAST || st->st_size > SECRET_MOST)
        return err_set(ERR_AUTH, "%s: %" PRId64 " bytes; expected %d to %d%s. " MAKE_IT, path, st->st_size,
                       SECRET_LEAST, SECRET_MOST,
                       credential ? ", which lockstep@.service takes from /etc/lockstep/secret" : "",
                       made_at(at, path, credential), at);
    return ERR_OK;
}

// Personalised BLAKE2b: if other programs use the same file, our key is of no use to them.
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
    char path[CONFIG_TEXT + 32], at[SHELL_PATH];
    if (credential && (!given || !*given))
        return err_set(ERR_AUTH, "[cluster] secret_file: several nodes need a secret that they share. " MAKE_ANOTHER);
    if (credential) snprintf(path, sizeof path, "%.1023s/lockstep-secret", given);
    else snprintf(path, sizeof path, "%s", c->cluster.secret_file);
    // Open first, then check: the file that is checked is the one that is read. Without O_NONBLOCK a named pipe would
    // block here.
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return err_set(ERR_AUTH, "%s: the secret can't be opened: %s. " MAKE_IT, path, strerror(errno),
                       made_at(at, path, credential), at);
    struct stat st;
    err_t rc =
        fstat(fd, &st) == 0 ? check_secret(path, &st, credential) : err_set(ERR_AUTH, "%s: %s", path, strerror(errno));
    if (rc == ERR_OK) rc = read_secret(fd, path, st.st_size, secret);
    close(fd);
    return rc;
}
