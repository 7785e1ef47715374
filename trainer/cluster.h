// trainer/cluster.h: who takes part, as [cluster] nodes says it, and which of them this machine is.
#ifndef TRAINER_CLUSTER_H
#define TRAINER_CLUSTER_H

#include "comm/team.h"
#include "trainer/config.h"

typedef struct cluster {
    int nodes, world;
    int node;                        // this machine's
    int ranks[TEAM_NODES_MAX];       // of each node
    char host[TEAM_NODES_MAX][COMM_HOST];  // a name or an address; IPv6 without its brackets
} cluster;

// Reads "host:ranks, [IPv6]:ranks, gpu[01-16]:8" into *out, all but `node`; ranks left out are 1. ERR_CONFIG names the entry that is wrong, and what
// was expected. The text must not be empty.
err_t cluster_parse(cluster *out, const char *nodes);

// Can so many ranks share the work of a step? (trainer/config_rules.c)
err_t cluster_fits(const config *c, int world);

// Reads [cluster] nodes and [device] ranks, and finds this node by its own addresses, or by LOCKSTEP_NODE. ERR_CONFIG names the entry that is
// wrong, or all entries when none of them is this machine, or those that both are.
err_t cluster_resolve(cluster *out, const config *c);

// The 32 bytes that stand for the secret file's content. ERR_AUTH: there is none, others may read it, or it is too short.
err_t cluster_secret(const config *c, uint8_t secret[TEAM_KEY]);

#endif
