// trainer/node/rank.c: see trainer/node/rank.h.
#include "trainer/node/rank.h"

#include "base/cores.h"
#include "trainer/node/notify.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

// systemd may signal every process of the unit, and people use killall: a rank handles SIGTERM as its supervisor does.
// LISTENED, from this process itself, ends the thread: cancelling it would need libgcc_s, which a bare machine has not.
enum { LISTENED = SIGUSR2 };
static void *listen_for_term(void *ctx) {
    board *b = ctx;
    siginfo_t from;
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, LISTENED);
    for (int heard = 0;;) {
        int signal = sigwaitinfo(&wanted, &from);
        if (signal == LISTENED && from.si_pid == getpid()) return NULL;
        if (signal != SIGTERM) continue;
        if (heard++) _exit(ERR_INTERRUPTED);
        if (!b->drains) atomic_store(&b->stop, 1);
    }
}

static err_t start_listener(pthread_t *listener, board *b, const sigset_t *before) {
    sigset_t all, term = *before;
    sigfillset(&all);
    sigaddset(&term, SIGTERM);
    signal(SIGINT, SIG_IGN);  // a terminal's Ctrl-C reaches the whole group; the supervisor passes it on
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    int failed = pthread_create(listener, NULL, listen_for_term, b);
    pthread_sigmask(SIG_SETMASK, &term, NULL);
    return failed ? err_set(ERR_INTERNAL, "no thread to listen for SIGTERM: %s", strerror(failed)) : ERR_OK;
}

// The NUMA nodes of the GPUs of this machine's ranks; NULL: they have none. Free it.
static int *gpu_nodes(const config *c, int locals) {
    int *near = c->resolved.kind == DEVICE_CUDA ? malloc((size_t)locals * sizeof *near) : NULL;
    char bus[DEVICE_BUS];
    for (int i = 0; near && i < locals; i++)
        near[i] = device_bus(c->resolved.kind, i, bus) ? cores_near_pci("/sys", bus) : -1;
    return near;
}

static err_t run_body(const config *c, const launch *at, board *b, rank_body body) {
    if (at->locals == 1 || c->device.threads) return body(c, at, b);
    config *mine = malloc(sizeof *mine);
    if (!mine) return err_set(ERR_INTERNAL, "no memory for a rank's settings");
    *mine = *c;
    int *near = gpu_nodes(c, at->locals);
    mine->device.threads = cores_take(at->local, at->locals, near);
    free(near);
    err_t rc = body(mine, at, b);
    free(mine);
    return rc;
}

// Puts this rank's name before the text, unless it is there: the team adds it to errors that it sends to others.
static void say_who(const comm_place *me) {
    char who[COMM_NAME];
    comm_place_text(me, who);
    if (strncmp(err_last()->text, who, strlen(who)) != 0) err_prefix("%s", who);
}

// A rank that heals lives through many worlds, and its memory must not follow their moods. While steps are computed
// nothing is allocated, so one heap does for all threads; and what is large is the system's again as soon as it is
// freed: glibc would keep more and more of it.
static void keep_little(void) {
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, 128 * 1024);
}

err_t rank_live(launch *at, board *b, int local, int slot, const rank_life *of, int *rank) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != of->parent) raise(SIGKILL);  // the parent died before prctl
    keep_little();
    launch_become(at, local);
    at->slot = slot;
    notify_forget();
    *rank = at->rank;
    atomic_store(&b->rank[slot].pid, getpid());
    pthread_t listener;
    int world = at->world;
    comm_place me = at->place[at->rank];
    err_t rc = start_listener(&listener, b, of->before);
    if (rc == ERR_OK) {
        rc = run_body(of->c, at, b, of->body);
        pthread_kill(listener, LISTENED);
        pthread_join(listener, NULL);
    }
    if (rc != ERR_OK && rc != ERR_INTERRUPTED && world > 1) say_who(&me);
    launch_close(at);
    return rc;
}
