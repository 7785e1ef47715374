// gpu/cpu/device.c: the CPU as a device: its memory, and which body of kernels this processor can run.
#include "base/cores.h"
#include "base/memory.h"
#include "gpu/backend.h"
#include "gpu/chains.h"
#include "gpu/cpu/cpu.h"
#include "gpu/cpu/rapl.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct cpu_device {
    device head;
    pool *workers;
    rapl energy;          // no packages: not opened yet
    vector_width wanted;  // as it was opened
    ops table;            // of the width, with the products that were asked for
} cpu_device;

static void cpu_close(device *d) {
    cpu_device *c = (cpu_device *)d;
    pool_close(c->workers);
    rapl_close(&c->energy);
    free(c);
}

static err_t cpu_sense(device *d, device_sensors *out) {
    cpu_device *c = (cpu_device *)d;
    *out = (device_sensors){.watts = NAN, .celsius = NAN, .mhz = NAN, .joules = NAN, .limited = LIMITED_UNKNOWN};
    if (c->energy.count == 0) TRY(rapl_open(&c->energy, RAPL_DIR));
    return rapl_read(&c->energy, &out->joules);
}

static err_t cpu_alloc(device *d, memory_kind kind, size_t bytes, void **out) {
    (void)d, (void)kind;
    *out = NULL;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        memory_room m = memory_find("");
        return memory_refuse("the system refuses", (int64_t)bytes, true, &m);
    }
    madvise(p, bytes, MADV_HUGEPAGE);  // fewer TLB misses; a refusal costs nothing but speed
    *out = p;
    return ERR_OK;
}

static void cpu_free(device *d, memory_kind kind, void *p, size_t bytes) {
    (void)d, (void)kind;
    munmap(p, bytes);
}

static err_t open_stream(device *d, stream **out) { return cpu_stream_open(d, ((cpu_device *)d)->workers, out); }

static err_t set_products(device *d, products p);

static const backend cpu_backend = {
    .close = cpu_close,
    .sense = cpu_sense,
    .set_products = set_products,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .stream_open = open_stream,
    .stream_open_queue = cpu_stream_open_queue,
    .stream_close = cpu_stream_close,
    .stream_wait = cpu_stream_wait,
    .stream_call = cpu_stream_call,
    .stream_native = cpu_stream_native,
    .event_open = cpu_event_open,
    .event_open_timed = cpu_event_open_timed,
    .event_close = cpu_event_close,
    .event_record = cpu_event_record,
    .event_wait = cpu_event_wait,
    .stream_wait_event = cpu_stream_wait_event,
    .event_elapsed = cpu_event_elapsed,
    .copy = cpu_copy,
    .zero = cpu_zero,
};

typedef struct width_row {
    vector_width width;
    const char *name;
    const ops *table;
    const cpu_pairs *pairs;
    bool usable;
} width_row;

#if defined(__x86_64__)
// Conversions of halves (CPUID 1, ECX bit 29), a name that not every compiler's __builtin_cpu_supports knows.
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
}

// Native products of BF16 pairs: AVX512_BF16 (CPUID 7.1, EAX bit 5).
static bool has_avx512_bf16(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}
#endif

// Widest first. A width is usable where the processor and the operating system have it.
enum { WIDTHS = 4 };
static int widths(width_row row[WIDTHS]) {
    int n = 0;
#if defined(__x86_64__)
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    row[n++] = (width_row){WIDTH_AVX512BF16, "avx512bf16", &cpu_ops_avx512, &cpu_pairs_avx512bf16,
                           avx512 && has_avx512_bf16()};
    row[n++] = (width_row){WIDTH_AVX512, "avx512", &cpu_ops_avx512, &cpu_pairs_avx512, avx512};
    row[n++] = (width_row){WIDTH_AVX2, "avx2", &cpu_ops_avx2, &cpu_pairs_avx2, avx2};
#elif defined(__aarch64__)
    row[n++] = (width_row){WIDTH_NEON, "neon", &cpu_ops_neon, &cpu_pairs_neon, true};
#endif
    row[n++] = (width_row){WIDTH_PORTABLE, "portable", &cpu_ops_portable, &cpu_pairs_portable, true};
    return n;
}

// A processor whose products of pairs are not the written-down ones is asked for the next width, as is one that
// multiplies them faster by FMAs. For products of FP32, avx512bf16 is avx512.
static err_t choose_width(vector_width wanted, products products, width_row *chosen) {
    width_row row[WIDTHS];
    int n = widths(row);
    bool differs = false;
    for (int i = 0; i < n; i++) {
        if (!row[i].usable || (wanted != WIDTH_AUTO && wanted != row[i].width)) continue;
        differs = products == PRODUCTS_BF16_PAIRS && !row[i].pairs->holds();
        if (differs) continue;
        if (row[i].width == WIDTH_AVX512BF16 && wanted == WIDTH_AUTO &&
            (products == PRODUCTS_FP32 || !chains_pairs_pay()))
            continue;
        *chosen = row[i];
        return ERR_OK;
    }
    if (differs)
        return err_set(ERR_UNAVAILABLE,
                       "cpu: the products of BF16 pairs that this processor forms with the vector width "
                       "of [device] simd are not the written-down ones (gpu/README.md); set simd = auto");
    return err_set(
        ERR_UNAVAILABLE,
        "cpu: this processor lacks the vector width that [device] simd asks for; set simd = auto (same bits)");
}

bool cpu_has_native_pairs(void) {
    width_row row[WIDTHS];
    int n = widths(row);
    for (int i = 0; i < n; i++)
        if (row[i].width == WIDTH_AVX512BF16) return row[i].usable && row[i].pairs->holds();
    return false;
}

bool cpu_native_pairs_pay(void) { return cpu_has_native_pairs() && chains_pairs_pay(); }

static err_t set_products(device *d, products p) {
    cpu_device *c = (cpu_device *)d;
    width_row width = {0};
    TRY(choose_width(c->wanted, p, &width));
    c->table = *width.table;
    if (p == PRODUCTS_BF16_PAIRS) {
        c->table.matmul = width.pairs->matmul, c->table.attention_forward = width.pairs->attention_forward;
        c->table.attention_backward = width.pairs->attention_backward,
        c->table.attention_past = width.pairs->attention_past;
        c->table.conv_forward = width.pairs->conv_forward, c->table.conv_inputs = width.pairs->conv_inputs;
        c->table.conv_weights = width.pairs->conv_weights;
    }
    int threads = c->head.info.threads;
    snprintf(c->head.info.name, sizeof c->head.info.name, "cpu %s x%d thread%s", width.name, threads,
             threads == 1 ? "" : "s");
    return ERR_OK;
}

err_t cpu_device_open(device **out, const device_options *o) {
    *out = NULL;
    cpu_device *c = calloc(1, sizeof *c);
    if (!c) return err_set(ERR_INTERNAL, "no memory for a device");
    int threads = o->threads > 0 ? o->threads : cores_usable();
    c->head = (device){.backend = &cpu_backend, .ops = &c->table, .info = {.kind = DEVICE_CPU, .threads = threads}};
    c->wanted = o->width;
    err_t rc = set_products(&c->head, o->products);
    if (rc == ERR_OK) rc = pool_open(&c->workers, threads);
    if (rc != ERR_OK) {
        free(c);
        return err_pass(__FILE__, __LINE__, __func__, rc);
    }
    *out = &c->head;
    return ERR_OK;
}
