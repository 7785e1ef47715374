// gpu/cpu/rapl.h: how much energy the machine's processors have used: RAPL (running average power limit; Intel SDM vol.
// 3B, "Power and thermal management", and AMD's equivalent), as Linux's powercap class shows it:
// DIR/intel-rapl:N/energy_uj, one counter for each package. AMD's are found under the same names.
#ifndef GPU_CPU_RAPL_H
#define GPU_CPU_RAPL_H

#include "base/err.h"

#include <stdint.h>

#define RAPL_DIR "/sys/class/powercap"
enum { RAPL_PACKAGES = 64 };

typedef struct rapl {
    int count;  // packages
    struct {
        int fd, zone;
        uint64_t last, range;
    } package[RAPL_PACKAGES];  // microjoules; restarts after `range`
    double joules;             // of all packages, since rapl_open
} rapl;

// Finds the packages in dir (RAPL_DIR) and reads them once. ERR_UNAVAILABLE says what is missing, or who may read it.
// The file descriptors stay open: reading makes no heap call.
err_t rapl_open(rapl *r, const char *dir);
void rapl_close(rapl *r);

// *joules = used since rapl_open by all packages. Call it before any counter wraps twice: once a minute is enough for
// 1000 W.
err_t rapl_read(rapl *r, double *joules);

#endif
