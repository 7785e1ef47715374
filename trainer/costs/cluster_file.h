// trainer/costs/cluster_file.h: a cluster in an INI of its own, which need not exist: where its devices are, what their
// links reach, how many of them are slower than the others, and what fails how often. `plan --cluster FILE` plans and
// predicts for it, `failures FILE` simulates what fails.
//
//   [cluster]     nodes devices racks spares card_devices
//   [links]       node_gb_s node_us rack_gb_s rack_us spine_gb_s spine_us spread
//   [stragglers]  share slower
//   [failures]    the fields of failure_rules
#ifndef TRAINER_COSTS_CLUSTER_FILE_H
#define TRAINER_COSTS_CLUSTER_FILE_H

#include "trainer/costs/costs.h"

typedef struct failure_rules {
    int64_t nodes, devices;                                      // of each node
    double gpu_mtbf_h, node_mtbf_h, network_mtbf_h, job_mtbf_h;  // of one device, one node, the whole; 0: never fails
    double detect_s, restart_s;
    int64_t spares;
    double repair_h;                 // until a node that was replaced is a spare
    double every_s, save_s;          // work between two saves; how long steps wait for one
    double slow_share, slow_factor;  // for a share of the time, some rank makes all so many times as slow
    double days;
    int64_t runs, seed;
} failure_rules;

typedef struct cluster_file {
    failure_rules fails;  // every_s, save_s below 0: the file does not say
    int64_t racks;
    int64_t card_devices;                         // devices of a node that share one network card
    double gb_s[COSTS_LEVELS], us[COSTS_LEVELS];  // of links; below 0: as the table of costs says
    double spread;                                // of the rates that the file has
    double slow_devices, slower;                  // a share of all devices computes so many times as long
    double save_gb_s;                             // at which a device's state is copied while steps wait
} cluster_file;

// Is --cluster TEXT a file, and not nodes x devices?
bool cluster_is_file(const char *text);

// ERR_CONFIG names file and line: unknown keys, numbers out of range, racks that do not divide the nodes.
err_t cluster_file_read(cluster_file *out, const char *path);

// The table of costs as it is on such a cluster: links that the file describes replace what was measured of that level,
// and devices are slower. ERR_CONFIG: a rate that neither of them has.
err_t cluster_file_costs(costs *k, const cluster_file *f, const char *path);

#endif
