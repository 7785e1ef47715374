// comm/fabric/endpoint.c: see comm/fabric/endpoint.h.
#include "comm/fabric/endpoint.h"

#include "base/clock.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Where a provider has no descriptor to wait for, a rank looks again and again for AWAKE_S after the last news, and
// then every NAP_NS.
enum { READS = 16, NAP_NS = 50000 };
static const double AWAKE_S = 0.0005;

// --- open and close --------------------------------------------------------------------------------------------------

static err_t failed(const endpoint *e, const char *what, int code) {
    return err_set(ERR_UNAVAILABLE, "fabric: %s on %s, %s: %s", what, e->info->fabric_attr->prov_name,
                   e->info->domain_attr->name, e->lib.strerror(code < 0 ? -code : code));
}

#define FABRIC(what, call) \
    do { \
        int code_ = (int)(call); \
        if (code_ != 0) return failed(e, what, code_); \
    } while (0)

// With a descriptor to sleep on, where the provider has one.
static err_t open_queue(endpoint *e) {
    struct fi_cq_attr a = {.format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD};
    e->news = -1;
    if (fi_cq_open(e->domain, &a, &e->cq, NULL) == 0) {
        if (fi_control(&e->cq->fid, FI_GETWAIT, &e->news) != 0) e->news = -1;
        return ERR_OK;
    }
    a.wait_obj = FI_WAIT_NONE;
    FABRIC("opening a completion queue", fi_cq_open(e->domain, &a, &e->cq, NULL));
    return ERR_OK;
}

// shm names its memory after the process. One that was killed leaves it there, and a later one of the same number finds
// it in use (prov/shm: smr_retry_map). The first try removes what it finds, so that another one starts.
static int start(endpoint *e) {
    int code = fi_enable(e->ep);
    for (int i = 0; i < 3 && code == -FI_EBUSY; i++) code = fi_enable(e->ep);
    return code;
}

static err_t open_all(endpoint *e) {
    struct fi_av_attr a = {.type = e->info->domain_attr->av_type};
    if (a.type == FI_AV_UNSPEC) a.type = FI_AV_TABLE;
    FABRIC("opening the fabric", e->lib.fabric(e->info->fabric_attr, &e->fabric, NULL));
    FABRIC("opening the device", fi_domain(e->fabric, e->info, &e->domain, NULL));
    FABRIC("opening an address table", fi_av_open(e->domain, &a, &e->av, NULL));
    TRY(open_queue(e));
    FABRIC("opening an endpoint", fi_endpoint(e->domain, e->info, &e->ep, NULL));
    FABRIC("binding the endpoint", fi_ep_bind(e->ep, &e->av->fid, 0));
    FABRIC("binding the endpoint", fi_ep_bind(e->ep, &e->cq->fid, FI_TRANSMIT | FI_RECV));
    FABRIC("starting the endpoint", start(e));
    return ERR_OK;
}

err_t endpoint_open(endpoint *e, const transport_options *o, const char *host, size_t receives) {
    *e = (endpoint){.news = -1};
    TRY(fabric_library_open(&e->lib));
    err_t rc = fabric_choose(&e->info, &e->lib, o, host, receives);
    if (rc != ERR_OK) {
        fabric_library_close(&e->lib);
        return rc;
    }
    pthread_mutex_init(&e->lock, NULL);
    e->registers = o->registers || (e->info->domain_attr->mr_mode & FI_MR_LOCAL);
    rc = open_all(e);
    if (rc == ERR_OK) return ERR_OK;
    err_record why = *err_last();
    endpoint_close(e);
    return err_restore(&why);
}

static void let_go(struct fid *f) {
    if (f) fi_close(f);
}

void endpoint_end(endpoint *e) {
    pthread_mutex_lock(&e->lock);
    if (!e->ended && e->ep) fi_close(&e->ep->fid);
    e->ended = true;
    pthread_mutex_unlock(&e->lock);
}

// The library stays: some providers have threads, or handlers that run when the process ends.
void endpoint_close(endpoint *e) {
    endpoint_end(e);
    for (int i = 0; i < e->regions; i++) let_go(&e->region[i].mr->fid);
    let_go(e->cq ? &e->cq->fid : NULL);
    let_go(e->av ? &e->av->fid : NULL);
    let_go(e->domain ? &e->domain->fid : NULL);
    let_go(e->fabric ? &e->fabric->fid : NULL);
    e->lib.freeinfo(e->info);
    pthread_mutex_destroy(&e->lock);
}

// --- addresses -------------------------------------------------------------------------------------------------------

err_t endpoint_name(endpoint *e, uint8_t dst[FABRIC_ADDRESS], size_t *bytes) {
    *bytes = FABRIC_ADDRESS;
    FABRIC("asking for the endpoint's address", fi_getname(&e->ep->fid, dst, bytes));
    return ERR_OK;
}

err_t endpoint_reach(endpoint *e, const uint8_t *name, size_t bytes, fi_addr_t *to) {
    (void)bytes;
    pthread_mutex_lock(&e->lock);
    int n = e->ended ? -FI_ECANCELED : fi_av_insert(e->av, name, 1, to, 0, NULL);
    pthread_mutex_unlock(&e->lock);
    return n == 1 ? ERR_OK : failed(e, "adding another rank's address", n < 0 ? n : -FI_EADDRNOTAVAIL);
}

// --- memory ----------------------------------------------------------------------------------------------------------

err_t endpoint_register(endpoint *e, void *base, size_t bytes) {
    err_t rc = ERR_OK;
    struct fid_mr *mr = NULL;
    if (!e->registers || !bytes) return ERR_OK;
    pthread_mutex_lock(&e->lock);
    int code = e->ended || e->regions == FABRIC_REGIONS
                   ? 0
                   : fi_mr_reg(e->domain, base, bytes, FI_SEND | FI_RECV, 0, e->key++, 0, &mr, NULL);
    if (mr) e->region[e->regions++] = (fabric_region){base, bytes, mr};
    pthread_mutex_unlock(&e->lock);
    if (code != 0) {
        rc = failed(e, "registering memory", code);
        rc = err_prefix("%.1f MB (ulimit -l limits it; systemd: LimitMEMLOCK=infinity)", (double)bytes / 1e6);
    }
    return rc;
}

// *desc (=) what the provider wants to know of this memory. Outside the regions it is registered for this operation.
static int describe_memory(endpoint *e, fabric_op *op, const void *data, size_t bytes, void **desc) {
    const char *at = data;
    *desc = NULL;
    if (!e->registers || !bytes) return 0;
    for (int i = 0; i < e->regions; i++) {
        const fabric_region *r = &e->region[i];
        if (at < r->base || at + bytes > r->base + r->bytes) continue;
        *desc = fi_mr_desc(r->mr);
        return 0;
    }
    int code = fi_mr_reg(e->domain, data, bytes, FI_SEND | FI_RECV, 0, e->key++, 0, &op->region, NULL);
    if (code == 0) *desc = fi_mr_desc(op->region);
    return code;
}

void op_forget(fabric_op *op) {
    if (op->region) fi_close(&op->region->fid);
    op->region = NULL;
}

// --- operations ------------------------------------------------------------------------------------------------------

static void mark(fabric_op *op, op_state state) { atomic_store_explicit(&op->state, state, memory_order_release); }

static bool posted(fabric_op *op, ssize_t code) {
    if (code == 0) return true;
    op_forget(op);
    op->why = (int)-code;
    mark(op, code == -FI_EAGAIN ? OP_FREE : OP_FAILED);
    return false;
}

bool endpoint_send(endpoint *e, fabric_op *op, fi_addr_t to, uint64_t tag, const void *data, size_t bytes) {
    void *desc;
    pthread_mutex_lock(&e->lock);
    mark(op, OP_POSTED);
    ssize_t code = e->ended ? -FI_ECANCELED : describe_memory(e, op, data, bytes, &desc);
    if (code == 0) code = fi_tsend(e->ep, data, bytes, desc, to, tag, &op->context);
    bool done = posted(op, code);
    pthread_mutex_unlock(&e->lock);
    return done;
}

bool endpoint_receive(endpoint *e, fabric_op *op, uint64_t tag, void *data, size_t bytes) {
    void *desc;
    pthread_mutex_lock(&e->lock);
    mark(op, OP_POSTED);
    ssize_t code = e->ended ? -FI_ECANCELED : describe_memory(e, op, data, bytes, &desc);
    if (code == 0) code = fi_trecv(e->ep, data, bytes, desc, FI_ADDR_UNSPEC, tag, 0, &op->context);
    bool done = posted(op, code);
    pthread_mutex_unlock(&e->lock);
    return done;
}

// --- completions -----------------------------------------------------------------------------------------------------

static fabric_op *op_of(void *context) { return context; }
_Static_assert(offsetof(fabric_op, context) == 0, "an operation begins with its context");

static bool read_failure(endpoint *e) {
    struct fi_cq_err_entry x = {0};
    if (fi_cq_readerr(e->cq, &x, 0) != 1) return false;
    fabric_op *op = op_of(x.op_context);
    if (!op) return true;
    op->why = x.err;
    op_forget(op);
    mark(op, OP_FAILED);
    return true;
}

void endpoint_turn(endpoint *e) {
    struct fi_cq_msg_entry done[READS];
    bool any = false;
    pthread_mutex_lock(&e->lock);
    for (bool more = !e->ended; more;) {
        ssize_t n = fi_cq_read(e->cq, done, READS);
        for (ssize_t i = 0; i < n; i++) {
            fabric_op *op = op_of(done[i].op_context);
            op->bytes = done[i].len;
            op_forget(op);
            mark(op, OP_ENDED);
        }
        more = n == READS || (n == -FI_EAVAIL && read_failure(e));
        any |= n > 0 || n == -FI_EAVAIL;
    }
    if (any && e->news < 0) e->heard = clock_now();
    for (link_sleeper *s = any ? e->asleep : NULL; s; s = s->next)
        if (write(s->fd, &(uint64_t){1}, sizeof(uint64_t)) < 0) continue;  // it is awake already
    pthread_mutex_unlock(&e->lock);
}

void endpoint_doze(endpoint *e, link_sleeper *me) {
    pthread_mutex_lock(&e->lock);
    me->next = e->asleep;
    e->asleep = me;
    pthread_mutex_unlock(&e->lock);
}

int endpoint_watch(endpoint *e, struct pollfd dst[LINK_WATCHED], int64_t *most_ns) {
    struct fid *queue = &e->cq->fid;
    pthread_mutex_lock(&e->lock);
    bool awake = clock_now() < e->heard + AWAKE_S;
    if (e->news < 0) {
        pthread_mutex_unlock(&e->lock);
        if (awake) sched_yield();
        if (*most_ns > NAP_NS) *most_ns = NAP_NS;
        return awake ? -1 : 0;
    }
    bool quiet = !e->ended && fi_trywait(e->fabric, &queue, 1) == 0;
    pthread_mutex_unlock(&e->lock);
    dst[0] = (struct pollfd){.fd = e->news, .events = POLLIN};
    return quiet ? 1 : -1;
}

void endpoint_rise(endpoint *e, link_sleeper *me) {
    uint64_t rung;
    pthread_mutex_lock(&e->lock);
    link_sleeper **at = &e->asleep;
    while (*at && *at != me) at = &(*at)->next;
    if (*at) *at = me->next;
    pthread_mutex_unlock(&e->lock);
    if (read(me->fd, &rung, sizeof rung) < 0) return;  // it did not ring
}
