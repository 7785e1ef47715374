// gpu/cuda/sensors.c: see gpu/sensors.h. NVML needs neither CUDA nor its headers, so that this is linked into every
// build.
#include "gpu/sensors.h"

#include "gpu/cuda/nvml_api.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct gpu_sensors {
    nvml n;
    char uuid[NVML_UUID];
};

err_t gpu_sensors_open(gpu_sensors **out, const char *bus_id, const char *library) {
    *out = NULL;
    gpu_sensors *g = calloc(1, sizeof *g);
    if (!g) return err_set(ERR_INTERNAL, "no memory for a GPU's sensors");
    if (nvml_open(&g->n, library, bus_id) != ERR_OK) {
        free(g);
        return err_pass(__FILE__, __LINE__, __func__, err_last()->code);
    }
    nvml_uuid(&g->n, g->uuid);
    *out = g;
    return ERR_OK;
}

void gpu_sensors_close(gpu_sensors *g) {
    if (g) nvml_close(&g->n);
    free(g);
}

const char *gpu_sensors_uuid(const gpu_sensors *g) { return g->uuid; }

err_t gpu_sensors_read(const gpu_sensors *g, gpu_reading *out) {
    *out = (gpu_reading){.of = {.watts = NAN, .celsius = NAN, .mhz = NAN, .joules = NAN, .limited = LIMITED_UNKNOWN}};
    nvml_load load;
    nvml_read_load(&g->n, &load);
    out->utilisation = load.utilisation, out->limit_watts = load.limit_watts;
    out->used = load.used, out->total = load.total;
    err_t rc = nvml_sense(&g->n, &out->of);
    return rc == ERR_OK || isnan(load.utilisation) == 0 || load.total >= 0 ? ERR_OK : rc;
}
