// trainer/costs/cluster_file.c: see trainer/costs/cluster_file.h.
#include "trainer/costs/cluster_file.h"

#include "base/text.h"
#include "trainer/config/ini.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

// --- the file --------------------------------------------------------------------------------------------------------

typedef struct file_key {
    const char *section, *key;
    size_t at;
    bool whole;  // an int64_t
    double least, most, is;
} file_key;

enum { UNSAID = -1 };

#define AT(field) offsetof(cluster_file, field)
#define REAL(section, key, field, is, least, most) \
    { #section, #key, AT(field), false, least, most, is }
#define WHOLE(section, key, field, is, least, most) \
    { #section, #key, AT(field), true, least, most, is }
#define FAILS(key, is, least, most) REAL(failures, key, fails.key, is, least, most)
// clang-format off
static const file_key keys[] = {
    WHOLE(cluster, nodes, fails.nodes, 1, 1, 1e6),
    WHOLE(cluster, devices, fails.devices, 8, 1, 1024),
    WHOLE(cluster, racks, racks, 1, 1, 1e6),
    WHOLE(cluster, spares, fails.spares, 0, 0, 1e6),
    WHOLE(cluster, card_devices, card_devices, 1, 1, 1024),
    REAL(links, node_gb_s, gb_s[COSTS_NODE], UNSAID, 1e-6, 1e9),
    REAL(links, node_us, us[COSTS_NODE], UNSAID, 0, 1e9),
    REAL(links, rack_gb_s, gb_s[COSTS_RACK], UNSAID, 1e-6, 1e9),
    REAL(links, rack_us, us[COSTS_RACK], UNSAID, 0, 1e9),
    REAL(links, spine_gb_s, gb_s[COSTS_SPINE], UNSAID, 1e-6, 1e9),
    REAL(links, spine_us, us[COSTS_SPINE], UNSAID, 0, 1e9),
    REAL(links, spread, spread, 0.1, 0, 10),
    REAL(stragglers, share, slow_devices, 0, 0, 1),
    REAL(stragglers, slower, slower, 1, 1, 1000),
    FAILS(gpu_mtbf_h, 0, 0, 1e12),
    FAILS(node_mtbf_h, 0, 0, 1e12),
    FAILS(network_mtbf_h, 0, 0, 1e12),
    FAILS(job_mtbf_h, 0, 0, 1e12),
    FAILS(detect_s, 30, 0, 1e6),
    FAILS(restart_s, 300, 0, 1e6),
    FAILS(repair_h, 24, 0, 1e5),
    FAILS(every_s, UNSAID, 0.001, 1e8),
    FAILS(save_s, UNSAID, 0, 1e6),
    REAL(failures, save_gb_s, save_gb_s, 20, 1e-6, 1e9),
    FAILS(slow_share, 0, 0, 1),
    FAILS(slow_factor, 1, 1, 1000),
    FAILS(days, 54, 0.01, 1e5),
    WHOLE(failures, runs, fails.runs, 400, 1, 1e5),
    WHOLE(failures, seed, fails.seed, 1, 0, 1e15),
};
// clang-format on
enum { KEYS = sizeof keys / sizeof *keys };

static void set(cluster_file *f, const file_key *k, double value) {
    char *at = (char *)f + k->at;
    if (k->whole) *(int64_t *)at = (int64_t)value;
    else *(double *)at = value;
}

// "[cluster] nodes, devices; [links] ...": all keys.
static err_t no_such_key(const char *place, const ini_entry *e) {
    char all[1024];
    text t = {.at = all, .room = sizeof all};
    for (int k = 0; k < KEYS; k++) {
        bool begins = !k || strcmp(keys[k].section, keys[k - 1].section) != 0;
        text_put(&t, begins ? "%s[%s] %s" : "%s%s", begins ? k ? "; " : "" : ", ",
                 begins ? keys[k].section : keys[k].key, keys[k].key);
    }
    return err_set(ERR_CONFIG, "%s: [%s] %s: no such key; a cluster's file has %s", place, e->section, e->key, all);
}

static err_t take(cluster_file *f, const char *path, const ini_entry *e) {
    char place[INI_PLACE], *end;
    int k = 0;
    ini_place(place, path, e->line);
    while (k < KEYS && (strcmp(keys[k].section, e->section) != 0 || (*e->key && strcmp(keys[k].key, e->key) != 0))) k++;
    if (k == KEYS) return no_such_key(place, e);
    if (!*e->key) return ERR_OK;
    double value = strtod(e->value, &end);
    bool good = end != e->value && !*end && isfinite(value) && value >= keys[k].least && value <= keys[k].most;
    if (!good || (keys[k].whole && value != floor(value)))
        return err_set(ERR_CONFIG, "%s: [%s] %s: expected a %snumber from %g to %g, found `%.60s`", place, e->section,
                       e->key, keys[k].whole ? "whole " : "", keys[k].least, keys[k].most, e->value);
    set(f, &keys[k], value);
    return ERR_OK;
}

// Between keys.
static err_t check(const cluster_file *f, const char *path) {
    int64_t nodes = f->fails.nodes, devices = f->fails.devices;
    if (nodes % f->racks)
        return err_set(ERR_CONFIG,
                       "%s: [cluster] racks = %" PRId64 ", and there are %" PRId64
                       " nodes: expected a number that divides them, since racks have as many nodes each",
                       path, f->racks, nodes);
    if (devices % f->card_devices)
        return err_set(ERR_CONFIG,
                       "%s: [cluster] card_devices = %" PRId64 ", and a node has %" PRId64
                       " devices: expected a number that divides them, since cards are shared by as many each",
                       path, f->card_devices, devices);
    return ERR_OK;
}

bool cluster_is_file(const char *text) { return strpbrk(text, "./") != NULL; }

err_t cluster_file_read(cluster_file *out, const char *path) {
    ini_file *f;
    err_t rc = ERR_OK;
    *out = (cluster_file){0};
    for (int k = 0; k < KEYS; k++) set(out, &keys[k], keys[k].is);
    TRY(ini_read(path, &f));
    for (int i = 0; i < f->count && rc == ERR_OK; i++) rc = take(out, path, &f->entry[i]);
    free(f);
    return rc == ERR_OK ? check(out, path) : rc;
}

// --- its costs -------------------------------------------------------------------------------------------------------

static void drop_calls(costs *k, costs_level level) {
    int n = 0;
    for (int i = 0; i < k->comms; i++)
        if (k->comm[i].level != level) k->comm[n++] = k->comm[i];
    k->comms = n;
}

// Between racks no link is better than between nodes, unless the file says so. All devices of a node send at once, so
// each has its share of a card.
static err_t set_link(costs *k, const cluster_file *f, costs_level level, const char *path) {
    double share = level > COSTS_NODE ? (double)f->card_devices : 1;
    costs_figure *rate = &k->link[level].rate, *near = &k->link[COSTS_RACK].rate;
    bool follows = level == COSTS_SPINE && f->gb_s[level] < 0 && (rate->is <= 0 || rate->is / share > near->is);
    if (f->gb_s[level] < 0 && f->us[level] < 0 && share <= 1 && !follows) return ERR_OK;
    if (f->gb_s[level] > 0) *rate = (costs_figure){1e9 * f->gb_s[level], f->spread};
    if (follows) *rate = *near;
    else rate->is /= share;
    if (level == COSTS_SPINE && rate->is <= 0) return ERR_OK;  // nothing between nodes is known but what was measured
    if (rate->is <= 0)
        return err_set(
            ERR_CONFIG,
            "%s: [links] %s_gb_s: expected GB/s, since the table of costs has no rate of that level, and the "
            "file has another latency, or shared cards, there",
            path, costs_level_name[level]);
    if (f->us[level] >= 0) k->link[level].s = 1e-6 * f->us[level];
    drop_calls(k, level);
    return ERR_OK;
}

err_t cluster_file_costs(costs *k, const cluster_file *f, const char *path) {
    for (int level = 0; level < COSTS_LEVELS; level++) TRY(set_link(k, f, (costs_level)level, path));
    k->stragglers.share = f->slow_devices, k->stragglers.slower = f->slower;
    k->stragglers.seed = (uint64_t)f->fails.seed;
    return ERR_OK;
}
