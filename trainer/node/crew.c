// trainer/node/crew.c: see trainer/node/crew.h.
#include "trainer/node/crew.h"

#include "trainer/node/cluster.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

// --- opening ---------------------------------------------------------------------------------------------------------

// Of this node's ranks.
static comm_place *own_places(const launch *at) {
    comm_place *copy = malloc((size_t)at->locals * sizeof *copy);
    int first = 0;
    while (at->place[first].node != at->node) first++;
    if (copy) memcpy(copy, &at->place[first], (size_t)at->locals * sizeof *copy);
    return copy;
}

err_t crew_channels(crew *w, const config *c) {
    grid shape = config_grid(c, w->world);
    channel_plan plan = grid_channels(&shape);  // of the groups that the shape needs
    return plan.role ? launch_channels(&w->at, &plan) : ERR_OK;
}

err_t crew_name_ranks(crew *w, const cluster *cl) {
    const char *hosts[TEAM_NODES_MAX];
    for (int i = 0; i < cl->nodes; i++) hosts[i] = cl->host[i];
    TRY(launch_open(&w->at, cl->nodes, cl->ranks, hosts, cl->node));
    launch_racks(&w->at, cl->rack);
    launch_joined(&w->at, cl->joined);
    w->at.waits = w->cl != NULL;
    return ERR_OK;
}

static err_t resolve(crew *w, const config *c, world_check fits, cluster *cl) {
    TRY(cluster_resolve(cl, c));
    TRY(fits(c, cl->world));
    w->world = cl->world, w->node = cl->node, w->nodes = cl->nodes, w->locals = cl->ranks[cl->node];
    w->seats = w->locals;
    return crew_name_ranks(w, cl);
}

// No rank has a world until the council has decided on one.
static err_t open_council(crew *w) {
    w->ruling = calloc(1, sizeof *w->ruling);
    if (!w->ruling) return err_set(ERR_INTERNAL, "no memory for what the council of nodes decides");
    w->h->several = w->at.waits = true;
    for (int i = 0; i < w->locals; i++) healing_restarted(w->h, i);
    w->seats = 0;
    return delegate_open(&w->d);
}

static err_t open_rest(crew *w, const supervised *of) {
    bool heals = of->heals;
    w->records = of->records;
    size_t n = (size_t)w->locals;
    w->place = own_places(&w->at);
    w->pid = calloc(n, sizeof *w->pid);
    w->exit = calloc(n, sizeof *w->exit);
    w->yard = malloc(n * sizeof *w->yard);
    w->h = heals ? healing_new(w->locals) : NULL;
    w->b = mmap(NULL, board_bytes(w->locals), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (w->b == MAP_FAILED) w->b = NULL;
    if (w->b) board_init(w->b, w->locals);
    for (int i = 0; w->yard && i < w->locals; i++) w->yard[i] = -1;
    if (!w->place || !w->pid || !w->exit || !w->yard || !w->b || (heals && !w->h))
        return err_set(ERR_INTERNAL, "no memory to watch %d ranks", w->locals);
    if (w->b) w->b->drains = w->cl != NULL;
    if (w->cl) TRY(open_council(w));
    if (!heals || !of->keep) return ERR_OK;
    w->vault = of->keep();
    return w->vault >= 0 ? ERR_OK : err_last()->code;
}

err_t crew_open(crew *w, const config *c, const supervised *of) {
    *w = (crew){.fits = of->fits,
                .root = -1,
                .own_yard = -1,
                .vault = -1,
                .voice.fd = -1,
                .over = -1,
                .leaves = -1,
                .own_delegate = -1,
                .d.fd = -1};
    cluster *cl = malloc(sizeof *cl);
    if (!cl) return err_set(ERR_INTERNAL, "no memory for the list of nodes");
    err_t rc = resolve(w, c, of->fits, cl);
    if (rc == ERR_OK) rc = fault_parse(&w->faults, c->run.faults);
    w->faults.rank = w->node;
    if (rc == ERR_OK && of->heals && cl->nodes > 1) w->cl = cl;
    else free(cl);
    if (rc == ERR_OK && !w->cl) rc = crew_channels(w, c);
    if (rc == ERR_OK) rc = open_rest(w, of);
    if (rc == ERR_OK) return ERR_OK;
    err_record why = *err_last();
    crew_close(w);
    return err_restore(&why);
}

static void close_yard(crew *w, int local) {
    if (w->yard[local] >= 0) close(w->yard[local]);
    w->yard[local] = -1;
}

void crew_close(crew *w) {
    launch_close(&w->at);
    for (int i = 0; w->yard && i < w->locals; i++) close_yard(w, i);
    free(w->pid), free(w->exit), free(w->place), free(w->yard), free(w->h);
    delegate_close(&w->d);
    free(w->ruling), free(w->cl);
    if (w->over >= 0) close(w->over);
    if (w->b) munmap(w->b, board_bytes(w->locals));
    if (w->vault >= 0) close(w->vault);
    w->vault = -1;
    w->over = -1, w->ruling = NULL, w->cl = NULL;
    w->pid = NULL, w->exit = NULL, w->place = NULL, w->yard = NULL, w->h = NULL, w->b = NULL;
}

void crew_forget(crew *w) {
    for (int i = 0; i < w->locals; i++) close_yard(w, i);
    delegate_forget(&w->d);
    notify_close(&w->voice);
}

// --- forking ---------------------------------------------------------------------------------------------------------

pid_t crew_fork_one(crew *w, int local) {
    int pair[2] = {-1, -1};
    if (w->h && yard_open(pair) != ERR_OK) return -1;
    pid_t pid = fork();
    int why = errno;
    if (pid == 0) {
        if (pair[0] >= 0) close(pair[0]);
        w->own_yard = pair[1];
        return 0;
    }
    if (pair[1] >= 0) close(pair[1]);
    w->yard[local] = pair[0];
    if (pid < 0) close_yard(w, local);
    else w->pid[local] = pid, w->left++, w->exit[local].ended = false;
    errno = why;
    return pid;
}

int crew_fork(crew *w) {
    fflush(NULL);  // or every rank would write our buffered output again
    for (int i = 0; i < w->locals; i++) {
        pid_t pid = crew_fork_one(w, i);
        if (pid == 0) return i;
        if (pid < 0) return -1;
    }
    return w->locals;
}

err_t crew_no_process(const crew *w, int local, int why) {
    char who[COMM_NAME];
    return err_set(
        ERR_UNAVAILABLE,
        "no process for %s (%d of %d of this node were started): %s; raise the limit of processes (TasksMax, ulimit -u) or "
        "lower the number of ranks",
        comm_place_text(&w->place[local], who), w->left, w->locals, strerror(why));
}

err_t crew_no_fork(crew *w) {
    int why = errno;
    err_t rc = crew_no_process(w, w->left, why);
    crew_signal(w, SIGKILL);
    for (int i = 0; i < w->locals; i++)
        if (w->pid[i]) waitpid(w->pid[i], NULL, 0);
    w->left = 0;
    return rc;
}

int crew_seat(const crew *w, int slot) {
    int seat = 0;
    for (int i = 0; w->h && i < slot; i++) seat += w->h->slot[i].place != SLOT_RETIRED;
    return w->h ? seat : slot;
}

// --- ends ------------------------------------------------------------------------------------------------------------

void crew_signal(crew *w, int signal) {
    for (int i = 0; i < w->locals; i++)
        if (w->pid[i]) kill(w->pid[i], signal);
    w->sent = signal;
}

const char *crew_end_text(const crew *w, int local, int status, char dst[CREW_END]) {
    char who[COMM_NAME];
    comm_place_text(&w->place[local], who);
    if (!WIFSIGNALED(status)) snprintf(dst, CREW_END, "%s ended with %d", who, WEXITSTATUS(status));
    else {
        int signal = WTERMSIG(status);
        const char *name = sigdescr_np(signal);
        snprintf(dst, CREW_END, "%s was killed by signal %d (%s)", who, signal, name ? name : "unknown");
    }
    return dst;
}

bool crew_is_cause(int status) { return WIFSIGNALED(status) || WEXITSTATUS(status) != ERR_UNAVAILABLE; }

static void note_end(crew *w, int local, int status, double now) {
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    w->pid[local] = 0;
    w->left--;
    close_yard(w, local);
    w->stopped |= code == ERR_INTERRUPTED;
    bool ours = w->sent && WIFSIGNALED(status) && (w->sent == SIGKILL || WTERMSIG(status) == w->sent);
    w->exit[local] = (crew_exit){true, ours || (w->h && w->h->slot[local].hung), status};
    if (w->h) {
        healing_ended(w->h, local, status, now);
        return;
    }
    if (code == ERR_OK || code == ERR_INTERRUPTED || ours) return;
    if (w->root < 0) w->failed_at = now;
    else if (crew_is_cause(w->root_status) || !crew_is_cause(status)) return;
    w->root = local;
    w->root_status = status;
    atomic_store(&w->b->failed, 1);
}

void crew_reap(crew *w, double now) {
    for (int i = 0; i < w->locals; i++) {
        int status;
        pid_t got = w->pid[i] ? waitpid(w->pid[i], &status, WNOHANG) : 0;
        if (got < 0) status = ERR_INTERNAL << 8;  // another waitpid has reaped our child
        if (got != 0) note_end(w, i, status, now);
    }
}
