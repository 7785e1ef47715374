// trainer/node/cluster.h: which of the nodes that take part this machine is, and the secret that they share.
#ifndef TRAINER_NODE_CLUSTER_H
#define TRAINER_NODE_CLUSTER_H

#include "trainer/config/cluster_parse.h"
#include "trainer/config/config.h"

// Reads [cluster] nodes and [device] ranks, and finds this node by its own addresses, or by LOCKSTEP_NODE. ERR_CONFIG names the entry that is
// wrong, or all entries when none of them is this machine, or those that both are.
err_t cluster_resolve(cluster *out, const config *c);

// The 32 bytes that stand for the secret file's content. ERR_AUTH: there is none, others may read it, or it is too short.
err_t cluster_secret(const config *c, uint8_t secret[TEAM_KEY]);

#endif
