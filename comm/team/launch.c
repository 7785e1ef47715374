// comm/team/launch.c: what the ranks of one node share because one process forked them all. Everything is anonymous: no
// name in a file system, no port, nothing that a crash could leave behind.
#include "comm/team/team.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static int *descriptors(int n) {
    int *fd = malloc((size_t)n * sizeof *fd);
    for (int i = 0; fd && i < n; i++) fd[i] = -1;
    return fd;
}

static void close_all(int *fd, int n) {
    for (int i = 0; fd && i < n; i++)
        if (fd[i] >= 0) close(fd[i]);
    free(fd);
}

static void drop(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void unmap(void *area, size_t bytes, int *fd) {
    if (!area) return;
    munmap(area, bytes);
    drop(fd);
}

void launch_close(launch *l) {
    close_all(l->doorbell, l->locals);
    close_all(l->control, 2 * l->locals);
    close_all(l->bell, l->plan.seats * l->locals);
    close_all(l->over, 1);
    unmap(l->area, l->area_bytes, &l->area_fd);
    unmap(l->more, l->more_bytes, &l->more_fd);
    free(l->ring);
    free(l->place);
    free(l->ctx);
    *l = (launch){0};
}

static void fill_places(launch *l, int nodes, const int *ranks, const char *const *hosts) {
    comm_place *p = l->place;
    for (int n = 0; n < nodes; n++)
        for (int i = 0; i < ranks[n]; i++, p++) {
            *p = (comm_place){.node = n, .local = i, .rank = (int)(p - l->place)};
            snprintf(p->host, sizeof p->host, "%s", hosts ? hosts[n] : "localhost");
        }
}

// A file without a name, so that processes that live already can be given it. Its pages exist once they are touched.
static err_t map_shared(void **out, int *fd, size_t bytes, int locals) {
    void *area = MAP_FAILED;
    *fd = memfd_create("lockstep ranks", MFD_CLOEXEC);
    if (*fd >= 0 && ftruncate(*fd, (off_t)bytes) == 0)
        area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, *fd, 0);
    int why = errno;
    if (area == MAP_FAILED) {
        drop(fd);
        return err_set(ERR_INTERNAL, "no %.1f MB of memory for %d ranks to share: %s", (double)bytes / 1e6, locals,
                       strerror(why));
    }
    *out = area;
    return ERR_OK;
}

static err_t hang_bells(int **out, int n, int locals) {
    *out = descriptors(n);
    if (!*out) return err_set(ERR_INTERNAL, "no memory for %d ranks", locals);
    for (int i = 0; i < n; i++)
        if (((*out)[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
            return err_set(ERR_INTERNAL,
                           "eventfd %d of %d, for %d ranks: %s; raise the limit of open files (LimitNOFILE)", i + 1, n,
                           locals, strerror(errno));
    return ERR_OK;
}

static err_t open_area(launch *l) {
    l->area_bytes = team_area_bytes(l->locals);
    TRY(map_shared(&l->area, &l->area_fd, l->area_bytes, l->locals));
    return hang_bells(&l->doorbell, l->locals, l->locals);
}

static err_t open_control(launch *l) {
    l->control = descriptors(2 * l->locals);
    if (!l->control) return err_set(ERR_INTERNAL, "no memory for %d ranks", l->locals);
    for (int i = 1, pair[2]; i < l->locals; i++) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
            return err_set(ERR_INTERNAL,
                           "socket pair for rank %d of %d: %s; raise the limit of open files (LimitNOFILE)", i,
                           l->locals, strerror(errno));
        l->control[i] = pair[0];
        l->control[l->locals + i] = pair[1];
    }
    return ERR_OK;
}

err_t launch_open(launch *l, int nodes, const int *ranks, const char *const *hosts, int node) {
    *l = (launch){.node = node, .nodes = nodes, .locals = ranks[node]};
    for (int n = 0; n < nodes; n++) l->world += ranks[n];
    l->place = calloc((size_t)l->world, sizeof *l->place);
    if (!l->place) return err_set(ERR_INTERNAL, "no memory for %d ranks", l->world);
    fill_places(l, nodes, ranks, hosts);
    err_t rc = l->locals > 1 ? open_area(l) : ERR_OK;
    if (rc == ERR_OK && node == 0) rc = open_control(l);
    if (rc == ERR_OK) return ERR_OK;
    err_record why = *err_last();
    launch_close(l);
    return err_restore(&why);
}

// Counted from 0, without gaps: a world may have no node of some rack.
void launch_racks(launch *l, const int *rack) {
    for (int r = 0, at = 0; r < l->world; r++) {
        at += r > 0 && rack[l->place[r].node] != rack[l->place[r - 1].node];
        l->place[r].rack = at;
    }
}

// After a loss a node may have another number of ranks. Then it is not known which of them are still neighbours.
void launch_joined(launch *l, int each) {
    for (int first = 0, end; each > 0 && first < l->world; first = end) {
        for (end = first; end < l->world && l->place[end].node == l->place[first].node; end++) {}
        for (int r = first; r < end && (end - first) % each == 0; r++) l->place[r].join = l->place[r].local / each;
    }
}

err_t launch_watch(launch *l) { return hang_bells(&l->over, 1, l->locals); }

// --- further channels ------------------------------------------------------------------------------------------------

bool launch_connects(const launch *l, int k, int a, int b) {
    const channel_plan *p = &l->plan;
    if (k < 0 || k > p->channels || a == b) return false;
    if (k == 0 || !p->needs) return true;
    return a < b ? p->needs(p->ctx, k, a, b) : p->needs(p->ctx, k, b, a);
}

// Numbers the rings, by channel, then reader, then writer. Returns how many there are.
static int count_rings(launch *l) {
    int first = 0, rings = 0, *ring = l->ring;
    while (l->place[first].node != l->node) first++;
    for (int k = 1; k <= l->plan.channels; k++)
        for (int to = 0; to < l->locals; to++)
            for (int from = 0; from < l->locals; from++)
                *ring++ = launch_connects(l, k, first + from, first + to) ? rings++ : -1;
    return rings;
}

static err_t open_more(launch *l) {
    l->ring = malloc((size_t)l->plan.channels * (size_t)l->locals * (size_t)l->locals * sizeof *l->ring);
    if (!l->ring) return err_set(ERR_INTERNAL, "no memory for the channels of %d ranks", l->locals);
    int rings = count_rings(l);
    if (rings == 0) return ERR_OK;
    l->more_bytes = team_more_bytes(l->locals, l->plan.seats, rings);
    TRY(map_shared(&l->more, &l->more_fd, l->more_bytes, l->locals));
    return hang_bells(&l->bell, l->plan.seats * l->locals, l->locals);
}

err_t launch_channels(launch *l, const channel_plan *plan) {
    if (plan->channels < 0 || plan->channels > COMM_CHANNELS || plan->seats < (plan->channels > 0))
        return err_set(ERR_INTERNAL,
                       "%d channels and %d seats; expected at most %d, and a seat where there are channels",
                       plan->channels, plan->seats, COMM_CHANNELS);
    if (plan->ctx_bytes && !(l->ctx = malloc(plan->ctx_bytes)))
        return err_set(ERR_INTERNAL, "no memory for the layout of %d ranks", l->world);
    if (l->ctx) memcpy(l->ctx, plan->ctx, plan->ctx_bytes);
    l->plan = *plan;
    l->plan.ctx = l->ctx;
    for (int r = 0; plan->role && r < l->world; r++) plan->role(l->ctx, r, l->place[r].role);
    return l->locals > 1 && plan->channels ? open_more(l) : ERR_OK;
}

void launch_become(launch *l, int local) {
    int first = 0;
    while (l->place[first].node != l->node) first++;
    l->local = l->slot = local;
    l->rank = first + local;
    if (l->area) drop(&l->area_fd);
    if (l->more) drop(&l->more_fd);
    if (!l->control) return;
    for (int i = 0; i < l->locals; i++) {
        if (local != 0) drop(&l->control[i]);
        if (local != i) drop(&l->control[l->locals + i]);
    }
}
