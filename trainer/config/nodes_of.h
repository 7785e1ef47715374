// trainer/config/nodes_of.h: [cluster] nodes where others have the list: a job of Slurm's, or a file of hosts.
//
//   slurm        the nodes of this job, from Slurm's environment; a rank each, or as many as the job has GPUs a node
//   slurm:8      the same, eight ranks each
//   file:PATH    one host a line, as lists for MPI have them: host, host:8 or host slots=8; # begins a comment
#ifndef TRAINER_CONFIG_NODES_OF_H
#define TRAINER_CONFIG_NODES_OF_H

#include "base/err.h"

#include <stddef.h>

// Where `nodes` (room bytes) is one of these, it becomes the list that it stands for, as cluster_parse reads it. All
// nodes of a run must come to the same list. ERR_CONFIG: what is missing or wrong, and what works.
err_t nodes_of(char *nodes, size_t room);

#endif
