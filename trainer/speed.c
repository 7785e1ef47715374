// trainer/speed.c: see trainer/speed.h.
#include "trainer/speed.h"

#include "gpu/peak.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

static const double SPEED_S = 0.03;  // for the measurement

static double measure(const session *x, int local) {
    const config *c = x->cfg;
    device *d = NULL;
    stream *s = NULL;
    device_options o = {.kind = device_about(x->dev)->kind,
                        .index = local,
                        .threads = device_about(x->dev)->threads,
                        .width = (vector_width)c->device.simd,
                        .products = c->precision.products};
    double peak = 0;
    if (device_open(&d, &o) != ERR_OK) return 0;
    if (stream_open(d, &s) == ERR_OK) peak = peak_matmul_within(d, s, c->precision.compute, SPEED_S);
    stream_close(s);
    device_close(d);
    return peak;
}

// One rank without a peak leaves the sum unknown. Servers run no model.
static err_t add_up(const session *x, double *peak) {
    comm *host = x->ranks->host;
    double sum = x->state.o.serves ? 0 : *peak > 0 ? *peak : NAN;
    if (x->ranks->world > 1) {
        TRY(host->table->all_reduce(host, &sum, 1, FP64, REDUCE_SUM, x->s));
        TRY(stream_wait(x->s));
    }
    *peak = sum > 0 ? sum : 0;
    return ERR_OK;
}

err_t speed_open(speed *v, const session *x, int local) {
    err_record before = *err_last();
    *v = (speed){.flops = (double)x->cfg->batch.global * x->net->flops, .page = sysconf(_SC_PAGESIZE)};
    v->statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    v->peak = measure(x, local);
    err_restore(&before);
    return add_up(x, &v->peak);
}

bool speed_faster(const session *x, char dst[SPEED_FASTER]) {
    const config *c = x->cfg;
    bool native = c->device.simd == WIDTH_AUTO || c->device.simd == WIDTH_AVX512BF16,
         cpu = device_about(x->dev)->kind == DEVICE_CPU;
    dst[0] = 0;
    if (!cpu || !native || c->precision.products != PRODUCTS_FP32 || c->precision.compute == FP16 ||
        !cpu_native_pairs_pay())
        return false;
    snprintf(dst, SPEED_FASTER,
             "[precision] products = bf16-pairs multiplies about twice as fast here; %sthe bits are another run's",
             c->precision.compute == BF16 ? "" : "it rounds operands to BF16, and ");
    return true;
}

void speed_close(speed *v) {
    if (v->page && v->statm >= 0) close(v->statm);
    *v = (speed){0};
}

double speed_mfu(const speed *v, double ms) {
    return v->peak > 0 && v->flops > 0 && ms > 0 ? v->flops / (1e-3 * ms * v->peak) : NAN;
}

int64_t speed_resident(const speed *v) {
    char text[128];
    long long size, pages;
    ssize_t n = v->page && v->statm >= 0 ? pread(v->statm, text, sizeof text - 1, 0) : -1;
    if (n <= 0) return 0;
    text[n] = 0;
    return sscanf(text, "%lld %lld", &size, &pages) == 2 ? pages * v->page : 0;
}

int64_t speed_device_bytes(const session *x) {
    int64_t used, total;
    if (device_about(x->dev)->kind == DEVICE_CPU || device_memory(x->dev, &used, &total) != ERR_OK) return 0;
    return used;
}
