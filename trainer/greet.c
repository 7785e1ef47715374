// trainer/greet.c: see trainer/greet.h.
#include "trainer/greet.h"

#include "base/version.h"
#include "comm/transport.h"
#include "trainer/session/machine.h"
#include "trainer/speed.h"

#include <inttypes.h>

static void greet_ranks(const session *x, monitor *m) {
    char via[256], shape[GRID_SHAPE], order[64] = "", racks[32] = "", joined[32] = "";
    transport_describe(x->ranks, via, sizeof via);
    if (x->shape.pipeline > 1)
        snprintf(order, sizeof order, ", %s, %d micro-batches", pipeline_name(x->stages.pipe.kind),
                 x->stages.pipe.micros);
    if (grid_is_divided(&x->shape)) monitor_say(m, "layout  %s%s", grid_shape(&x->shape, shape), order);
    if (comm_racks(x->ranks) > 1) snprintf(racks, sizeof racks, " in %d racks", comm_racks(x->ranks));
    if (x->cfg->cluster.joined) snprintf(joined, sizeof joined, ", joined by %" PRId64, x->cfg->cluster.joined);
    monitor_say(m, "ranks   %d on %d node%s%s%s  zero %d%s  order %s  %s", x->ranks->world, comm_nodes(x->ranks),
                comm_nodes(x->ranks) == 1 ? "" : "s", racks, joined, x->state.o.stage,
                x->state.o.offload == OFFLOAD_NVME ? " offload to files"
                : x->state.o.offload               ? " offload"
                                                   : "",
                x->state.o.fixed     ? "fixed"
                : x->state.o.servers ? "of arrival"
                                     : "any",
                via);
}

// How servers and workers wait for each other.
static void say_mode(const config *c, char dst[96]) {
    if (c->server.mode == SERVER_ASYNC) snprintf(dst, 96, "; async: a step waits for no worker");
    if (c->server.mode == SERVER_BOUNDED)
        snprintf(dst, 96, "; bounded: a worker waits for the one that is %" PRId64 " steps behind",
                 c->server.staleness + 1);
    if (c->server.mode == SERVER_HYBRID)
        snprintf(dst, 96, "; hybrid: a step waits %g s after its first gradient", c->server.timeout);
}

// Which ranks have no lanes.
static void greet_servers(const session *x, monitor *m) {
    const grid *g = &x->shape;
    char text[160], mode[96] = "";
    int n = 0, first = grid_rank(g, (grid_place){.data = grid_workers(g)}), last = x->ranks->world - 1;
    if (!g->servers) return;
    n += snprintf(text, sizeof text, first == last ? "rank %d" : "ranks %d to %d", first, last);
    snprintf(text + n, sizeof text - (size_t)n, " keep%s the optimizer's state and run%s no lanes",
             first == last ? "s" : "", first == last ? "s" : "");
    if (config_is_served(x->cfg)) say_mode(x->cfg, mode);
    monitor_say(m, "servers %s%s", text, mode);
}

static void greet_batch(const session *x, monitor *m) {
    int64_t lanes = x->cfg->resolved.lanes, micro = x->cfg->resolved.micro;
    char each[48] = "", span[CONFIG_SPAN];
    if (x->net->units > 1) snprintf(each, sizeof each, " x %" PRId64 " %ss", x->net->units, x->net->unit);
    monitor_say(m, "batch   %" PRId64 " samples = %" PRId64 " lanes x %" PRId64 " micro-batches of %" PRId64 "%s%s",
                x->cfg->batch.global, lanes, x->cfg->batch.global / lanes / micro, micro, each,
                config_span(x->cfg, span));
}

static void greet_epochs(const session *x, monitor *m) {
    const config_resolved *r = &x->cfg->resolved;
    char up[64] = "";
    double exact = r->epochs * r->epoch_steps;
    if (!r->epochs) return;
    if ((double)x->cfg->run.steps - exact > 1e-6) snprintf(up, sizeof up, ", rounded up from %.2f", exact);
    monitor_say(m, "epochs  %g of %" PRId64 " samples are %" PRId64 " steps of %" PRId64 "%s", r->epochs,
                source_about(x->train).samples, x->cfg->run.steps, x->cfg->batch.global, up);
}

static void greet_parts(const session *x, monitor *m) {
    char text[SESSION_PART];
    int parts;
    source_parts(x->train, &parts);
    for (int k = 0; k < parts; k++) {
        session_part(x, k, text);
        monitor_say(m, "part    %s", text);
    }
}

// The named sets of [eval] sets.
static void greet_sets(const session *x, monitor *m) {
    char line[SETS_MOST * (SET_NAME + 48)];
    int n = 0;
    for (int i = 0; i < x->sets; i++) {
        source_info s = source_about(x->set[i].from);
        n += snprintf(line + n, sizeof line - (size_t)n, "%s%s %" PRId64 " %s", i ? ", " : "", x->set[i].name, s.units,
                      s.unit);
    }
    if (n) monitor_say(m, "sets    %s", line);
}

void greet(const session *x, monitor *m, bool begins) {
    source_info t = source_about(x->train);
    char shape[256], type[CONFIG_COMPUTE], faster[SPEED_FASTER];
    x->net->type->describe(x->net->options, shape, sizeof shape);
    monitor_say(m, "lockstep %s  %s  %s %s %.1f M parameters  %s", version_text(), device_about(x->dev)->name,
                x->net->type->name, shape, (double)model_elements(x->net) / 1e6, config_compute(x->cfg, type));
    monitor_say(m, "device  %s", device_about(x->dev)->choice);
    // the bits of one that goes on are decided
    if (begins && speed_faster(x, faster)) monitor_say(m, "faster  %s", faster);
    monitor_say(m, "data    train %" PRId64 " %s in %d file%s, val %" PRId64 "          memory %.1f MB", t.units,
                t.unit, t.files, t.files == 1 ? "" : "s", x->val ? source_about(x->val).units : 0,
                (double)(state_bytes(&x->state) + x->runner.memory.bytes + x->runner.staging.bytes + x->ring_bytes) /
                    1e6);
    greet_parts(x, m);
    greet_sets(x, m);
    if (x->ranks->world > 1) greet_ranks(x, m);
    greet_servers(x, m);
    greet_batch(x, m);
    greet_epochs(x, m);
}
