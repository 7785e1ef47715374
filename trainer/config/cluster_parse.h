// trainer/config/cluster_parse.h: the nodes of a run, as listed in [cluster] nodes.
#ifndef TRAINER_CONFIG_CLUSTER_PARSE_H
#define TRAINER_CONFIG_CLUSTER_PARSE_H

#include "comm/team/team.h"

typedef struct cluster {
    int nodes, world;
    int node;                              // this machine's
    int ranks[TEAM_NODES_MAX];             // of each node
    char host[TEAM_NODES_MAX][COMM_HOST];  // a name or an address; IPv6 without its brackets
} cluster;

// Reads "host:ranks, [IPv6]:ranks, gpu[01-16]:8" into *out, all but `node`; ranks left out are 1. ERR_CONFIG names the
// wrong entry and what was expected. The text must not be empty.
err_t cluster_parse(cluster *out, const char *nodes);

// The decimal number at *p, of 1 to 9 digits; moves *p past it. -1: there is none.
int cluster_number(const char **p);

#endif
