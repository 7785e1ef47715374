// gpu/cpu/sensors.c: the processors' part of gpu/sensors.h, over RAPL.
#include "gpu/sensors.h"

#include "gpu/cpu/rapl.h"

#include <stdio.h>
#include <stdlib.h>

struct cpu_sensors {
    rapl of;
};

err_t cpu_sensors_open(cpu_sensors **out, const char *root) {
    char dir[512];
    *out = NULL;
    cpu_sensors *c = calloc(1, sizeof *c);
    if (!c) return err_set(ERR_INTERNAL, "no memory for the processors' sensors");
    int n = snprintf(dir, sizeof dir, "%s%s", root, RAPL_DIR);
    err_t rc = n < (int)sizeof dir ? rapl_open(&c->of, dir) : err_set(ERR_CONFIG, "%s: too long a path", root);
    if (rc == ERR_OK) *out = c;
    else free(c);
    return rc == ERR_OK ? rc : err_pass(__FILE__, __LINE__, __func__, rc);
}

void cpu_sensors_close(cpu_sensors *c) {
    if (c) rapl_close(&c->of);
    free(c);
}

err_t cpu_sensors_joules(cpu_sensors *c, double *joules) { return rapl_read(&c->of, joules); }
