// trainer/config/cluster_parse.h: the nodes of a run, as listed in [cluster] nodes.
#ifndef TRAINER_CONFIG_CLUSTER_PARSE_H
#define TRAINER_CONFIG_CLUSTER_PARSE_H

#include "comm/team/team.h"

typedef struct cluster {
    int nodes, world;
    int node;                              // this machine's
    int ranks[TEAM_NODES_MAX];             // of each node
    char host[TEAM_NODES_MAX][COMM_HOST];  // a name or an address; IPv6 without its brackets
    int racks;                             // 1: nothing is known of racks
    int rack[TEAM_NODES_MAX];              // of each node
    int joined;                            // neighbouring ranks of each node; 0: nothing is known
} cluster;

// Reads "host:ranks, [IPv6]:ranks, gpu[01-16]:8" into *out, all but `node`; ranks left out are 1. ERR_CONFIG names the
// wrong entry and what was expected. The text must not be empty.
err_t cluster_parse(cluster *out, const char *nodes);

// Reads [cluster] racks into a cluster that cluster_parse has filled in: "4" racks of as many nodes each, or the nodes
// of each, "0-3, 4-7, 8"; "": one rack. Nodes are counted from 0, as they are listed. ERR_CONFIG: what was expected.
err_t cluster_racks(cluster *out, const char *racks);

// Takes [cluster] joined, which must divide the ranks of each node. ERR_CONFIG: what was expected.
err_t cluster_joined(cluster *c, int64_t joined);

// The decimal number at *p, of 1 to 9 digits; moves *p past it. -1: there is none.
int cluster_number(const char **p);

#endif
