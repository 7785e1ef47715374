// trainer/node/cluster.h: which node of the run this machine is, and the secret that the nodes share.
#ifndef TRAINER_NODE_CLUSTER_H
#define TRAINER_NODE_CLUSTER_H

#include "trainer/config/cluster_parse.h"
#include "trainer/config/config.h"

// Reads [cluster] nodes and [device] ranks, and finds this node by its addresses, or by LOCKSTEP_NODE. ERR_CONFIG names
// the wrong entry, or all entries when none of them is this machine, or those that are this machine when several are.
err_t cluster_resolve(cluster *out, const config *c);

// The same without finding this node: for a plan, and for a check on another machine.
err_t cluster_planned(cluster *out, const config *c);

// A 32-byte hash of the secret file. ERR_AUTH: there is no file, others may read it, or it is too short.
err_t cluster_secret(const config *c, uint8_t secret[TEAM_KEY]);

#endif
