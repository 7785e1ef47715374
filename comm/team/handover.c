// comm/team/handover.c: see comm/team/handover.h.
#include "comm/team/handover.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

// The kernel carries at most 253 descriptors with a message (SCM_MAX_FD).
enum { PACKET_FDS = 200, PAUSE_MS = 5 };

// What follows. Pointers of `of` are the giver's: they only say what there is.
typedef struct packet {
    launch of;
    int local, descriptors;
    size_t places, rings, ctx;  // bytes of the sheet, one after the other
} packet;

static packet packet_of(const launch *l, int local) {
    packet p = {.of = *l, .local = local};
    p.places = (size_t)l->world * sizeof *l->place;
    p.rings = l->ring ? (size_t)l->plan.channels * (size_t)l->locals * (size_t)l->locals * sizeof *l->ring : 0;
    p.ctx = l->ctx ? l->plan.ctx_bytes : 0;
    return p;
}

static size_t sheet_bytes(const packet *p) { return p->places + p->rings + p->ctx; }

// --- descriptors -----------------------------------------------------------------------------------------------------

static int bells_of(const launch *l) { return l->plan.seats * l->locals; }

static int most_descriptors(const launch *l) { return 4 + 2 * l->locals + bells_of(l); }

typedef struct list {
    int *fd, n;
} list;

static void add(list *to, int fd) { to->fd[to->n++] = fd; }

static void add_all(list *to, const int *fd, int n) {
    for (int i = 0; fd && i < n; i++) add(to, fd[i]);
}

// Rank 0 has an end of the pair to each neighbour, these have one each.
static void list_control(list *to, const launch *l, int local) {
    if (!l->control) return;
    if (local == 0) add_all(to, l->control + 1, l->locals - 1);
    else add(to, l->control[l->locals + local]);
}

// In the order in which place_descriptors() takes them.
static void list_descriptors(list *to, const launch *l, int local, int sheet) {
    add(to, sheet);
    if (l->area) add(to, l->area_fd);
    if (l->more) add(to, l->more_fd);
    add_all(to, l->doorbell, l->locals);
    add_all(to, l->bell, bells_of(l));
    add_all(to, l->over, 1);
    list_control(to, l, local);
}

// --- giving ----------------------------------------------------------------------------------------------------------

static err_t not_taken(const char *why) {
    return err_set(ERR_UNAVAILABLE, "a rank that lives takes no part in the next world: %s", why);
}

// Too many descriptors may be on their way (ETOOMANYREFS): the taker lessens them.
static err_t send_packet(int to, const struct msghdr *m) {
    double until = clock_now() + HANDOVER_S;
    while (sendmsg(to, m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        if (errno == EINTR) continue;
        bool full = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ETOOMANYREFS;
        if (!full || clock_now() >= until) return not_taken(strerror(errno));
        poll(NULL, 0, PAUSE_MS);
    }
    return ERR_OK;
}

typedef union ancillary {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(PACKET_FDS * sizeof(int))];
} ancillary;

static err_t send_descriptors(int to, const int *fd, int n) {
    char one = 0;
    struct iovec v = {&one, 1};
    ancillary room = {0};
    struct msghdr m = {.msg_iov = &v,
                       .msg_iovlen = 1,
                       .msg_control = room.bytes,
                       .msg_controllen = CMSG_SPACE((size_t)n * sizeof *fd)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN((size_t)n * sizeof *fd);
    memcpy(CMSG_DATA(c), fd, (size_t)n * sizeof *fd);
    return send_packet(to, &m);
}

static err_t write_sheet(const launch *l, const packet *p, int *fd) {
    struct iovec part[] = {{l->place, p->places}, {l->ring, p->rings}, {l->ctx, p->ctx}};
    *fd = memfd_create("lockstep launch", MFD_CLOEXEC);
    if (*fd >= 0 && writev(*fd, part, 3) == (ssize_t)sheet_bytes(p)) return ERR_OK;
    return err_set(ERR_INTERNAL, "no memory for the places of %d ranks: %s", l->world, strerror(errno));
}

static err_t give(packet *p, int to, const list *all) {
    struct iovec v = {p, sizeof *p};
    p->descriptors = all->n;
    TRY(send_packet(to, &(struct msghdr){.msg_iov = &v, .msg_iovlen = 1}));
    for (int i = 0; i < all->n; i += PACKET_FDS)
        TRY(send_descriptors(to, all->fd + i, all->n - i < PACKET_FDS ? all->n - i : PACKET_FDS));
    return ERR_OK;
}

err_t launch_give(const launch *l, int local, int to) {
    packet p = packet_of(l, local);
    list all = {.fd = malloc((size_t)most_descriptors(l) * sizeof *all.fd)};
    int sheet = -1;
    err_t rc = all.fd ? write_sheet(l, &p, &sheet) : err_set(ERR_INTERNAL, "no memory for %d ranks", l->world);
    if (rc == ERR_OK) {
        list_descriptors(&all, l, local, sheet);
        rc = give(&p, to, &all);
    }
    if (sheet >= 0) close(sheet);
    free(all.fd);
    return rc;
}

// --- taking ----------------------------------------------------------------------------------------------------------

static err_t giver_gone(ssize_t got) {
    return err_set(ERR_UNAVAILABLE, "no world follows: %s", got < 0 ? strerror(errno) : "the supervisor is gone");
}

static ssize_t receive(int from, struct msghdr *m) {
    ssize_t n;
    do n = recvmsg(from, m, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    return n;
}

// Adds what came to the list: never more than was asked for.
static err_t receive_descriptors(int from, list *to, int want) {
    char one;
    struct iovec v = {&one, 1};
    ancillary room;
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = room.bytes, .msg_controllen = sizeof room.bytes};
    ssize_t got = receive(from, &m);
    if (got <= 0) return giver_gone(got);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    int n = c && c->cmsg_type == SCM_RIGHTS ? (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int)) : 0;
    for (int i = 0; i < n; i++) {
        int fd;
        memcpy(&fd, CMSG_DATA(c) + (size_t)i * sizeof fd, sizeof fd);
        if (i < want) add(to, fd);
        else close(fd);
    }
    return n == want && !(m.msg_flags & MSG_CTRUNC)
               ? ERR_OK
               : err_set(ERR_UNAVAILABLE, "%d of %d descriptors came; raise the limit of open files (LimitNOFILE)", n,
                         want);
}

static int *own_copy(const list *from, int first, int n) {
    int *fd = malloc((size_t)n * sizeof *fd);
    if (fd) memcpy(fd, from->fd + first, (size_t)n * sizeof *fd);
    return fd;
}

static void *copy_part(const char **at, size_t bytes) {
    void *copy = bytes ? malloc(bytes) : NULL;
    if (copy) memcpy(copy, *at, bytes);
    *at += bytes;
    return copy;
}

static void *map_given(int fd, size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

static bool read_sheet(launch *l, const packet *p, int fd) {
    size_t bytes = sheet_bytes(p);
    char *all = map_given(fd, bytes);
    const char *at = all;
    if (!all) return false;
    l->place = copy_part(&at, p->places);
    l->ring = copy_part(&at, p->rings);
    l->ctx = copy_part(&at, p->ctx);
    l->plan.ctx = l->ctx;
    munmap(all, bytes);
    return l->place && (l->ring || !p->rings) && (l->ctx || !p->ctx);
}

// Where only this rank has an end, the others' are -1, as after launch_become.
static bool place_control(launch *l, const packet *p, const list *all, int at) {
    int n = 2 * l->locals;
    l->control = malloc((size_t)n * sizeof *l->control);
    for (int i = 0; l->control && i < n; i++) l->control[i] = -1;
    for (int i = 1; l->control && p->local == 0 && i < l->locals; i++) l->control[i] = all->fd[at++];
    if (l->control && p->local) l->control[l->locals + p->local] = all->fd[at];
    return l->control != NULL;
}

// What is left out for want of memory is closed with the process, which then ends.
static err_t place_descriptors(launch *l, const packet *p, const list *all) {
    const launch *of = &p->of;
    int at = 0;
    *l = *of;
    l->place = NULL, l->area = l->more = l->ctx = NULL, l->doorbell = l->control = l->bell = l->ring = l->over = NULL;
    l->area_fd = l->more_fd = -1;
    bool ok = read_sheet(l, p, all->fd[at++]);
    if (of->area) ok = (l->area = map_given(all->fd[at++], of->area_bytes)) && ok;
    if (of->more) ok = (l->more = map_given(all->fd[at++], of->more_bytes)) && ok;
    if (of->doorbell) ok = (l->doorbell = own_copy(all, at, l->locals)) && ok, at += l->locals;
    if (of->bell) ok = (l->bell = own_copy(all, at, bells_of(of))) && ok, at += bells_of(of);
    if (of->over) ok = (l->over = own_copy(all, at, 1)) && ok, at++;
    if (of->control) ok = place_control(l, p, all, at) && ok;
    if (ok) return launch_become(l, p->local), ERR_OK;
    launch_close(l);
    return err_set(ERR_INTERNAL, "no memory for the next world of %d ranks", of->world);
}

err_t launch_take(launch *l, int from) {
    packet p;
    struct iovec v = {&p, sizeof p};
    ssize_t got = receive(from, &(struct msghdr){.msg_iov = &v, .msg_iovlen = 1});
    if (got != sizeof p) return giver_gone(got);
    list all = {.fd = malloc((size_t)p.descriptors * sizeof *all.fd)};
    err_t rc = all.fd ? ERR_OK : err_set(ERR_INTERNAL, "no memory for %d ranks", p.of.world);
    while (rc == ERR_OK && all.n < p.descriptors) {
        int left = p.descriptors - all.n;
        rc = receive_descriptors(from, &all, left < PACKET_FDS ? left : PACKET_FDS);
    }
    if (rc == ERR_OK) rc = place_descriptors(l, &p, &all);
    else
        for (int i = 0; i < all.n; i++) close(all.fd[i]);
    free(all.fd);
    return rc;
}
