// gpu/cuda/absent.c: stands in for the CUDA device in a binary that was built without it.
#include "gpu/backend.h"

int cuda_device_count(void) { return 0; }
bool cuda_device_bus(int index, char dst[DEVICE_BUS]) { return (void)index, dst[0] = 0, false; }

err_t cuda_device_open(device **out, const device_options *o) {
    (void)o;
    *out = NULL;
    return err_set(ERR_UNAVAILABLE,
                   "cuda: this binary was built without it; [device] backend = cpu or auto runs without it");
}
