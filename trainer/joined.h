// trainer/joined.h: which GPUs of this machine NVLink joins, for `lockstep check`, beside what [cluster] joined says.
#ifndef TRAINER_JOINED_H
#define TRAINER_JOINED_H

#include "gpu/nvlinks.h"
#include "trainer/config/config.h"

#include <stdio.h>

// Of the GPUs that this process sees; nothing of a run on CPUs, or where there is one GPU. Initialises CUDA.
void joined_print(const config *c, FILE *out);

// The same of links that are known. joined: as the INI has it.
void joined_print_links(const nvlinks *x, const char (*bus)[DEVICE_BUS], int64_t joined, FILE *out);

#endif
