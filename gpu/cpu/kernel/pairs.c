// gpu/cpu/kernel/pairs.c: the operations of one vector width for products = bf16-pairs, and what is asked of a
// processor before they are used.
#include "gpu/cpu/kernel/cells.h"
#include "gpu/cpu/kernel/kernel.h"

static float number_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// Pairs at the edges: results around 2^-126, where it matters what is flushed and when; denormals, zeros, cancellation,
// large and infinite numbers.
static const uint16_t edges[] = {0x0000, 0x8000, 0x0001, 0x807f, 0x0080, 0x8080, 0x0081, 0x3f80,
                                 0xbf80, 0x3f81, 0xbf7f, 0x2000, 0x2040, 0xa040, 0x1fc0, 0x20c1,
                                 0x4000, 0x7f7f, 0xff7f, 0x7f80, 0x3eff, 0xc2a5, 0x1f81, 0x9fff};
enum { EDGES = sizeof edges / sizeof *edges };
static const uint32_t starts[] = {0,           0x80000000u, 0x00800000u, 0x80800000u, 0x00800001u,
                                  0x81000000u, 0x3f800000u, 0xbf800001u, 0x007fffffu, 0x80000001u};
enum { STARTS = sizeof starts / sizeof *starts };

static bool same(float x, float y) { return memcmp(&x, &y, sizeof x) == 0 || (x != x && y != y); }

// step(x0, y0, step(x1, y1, c)) as it is specified.
static float pair_exact(uint16_t x0, uint16_t y0, uint16_t x1, uint16_t y1, float c) {
    vf a[4] = {vf_set1(number_of((uint32_t)x0 << 16)), vf_set1(number_of((uint32_t)y0 << 16)),
               vf_set1(number_of((uint32_t)x1 << 16)), vf_set1(number_of((uint32_t)y1 << 16))};
    for (int i = 0; i < 4; i++) a[i] = product_operand(a[i], true);
    float lane[VL];
    vf_store(lane, product_exact(a[0], a[1], product_exact(a[2], a[3], vf_set1(c))));
    return lane[0];
}

// The same in this body, sixteen pairs at a time: cells of x in every lane, those of y across.
static void pairs_here(float out[VL], const uint16_t x[2], const uint16_t y[2][VL], float c) {
    float xs[2][VL] = {{0}}, ys[2][VL];
    vf acc = vf_set1(c);
    for (int64_t i = 0; i < product_cells(2); i++) {
        vf_store(xs[cell_place(i)], cells_along_n(BF16, x, CELL_K * i, CELL_K == 2 ? 2 : 1));
        vf_store(ys[cell_place(i)], cells_across(BF16, y, VL * CELL_K * i, VL * CELL_K * i + VL));
    }
    product_state p = product_begin();
    for (int64_t i = 0; i < product_cells(2); i++) acc = product_step(&p, vf_set1(xs[i][0]), vf_load(ys[i]), acc);
    product_hold(&acc);
    if (!product_end(&p)) {
        vf_store(out, acc);
        return;
    }
    for (int l = 0; l < VL; l++) out[l] = pair_exact(x[0], y[0][l], x[1], y[1][l], c);
}

static bool holds(void) {
    uint32_t at = 1;
    for (int round = 0; round < 4 * EDGES; round++) {
        uint16_t x[2], y[2][VL];
        float out[VL], c = number_of(starts[round % STARTS]);
        for (int i = 0; i < 2; i++) at = at * 1664525u + 1013904223u, x[i] = edges[(at >> 12) % EDGES];
        for (int i = 0; i < 2 * VL; i++)
            at = at * 1664525u + 1013904223u, y[i / VL][i % VL] = edges[(at >> 12) % EDGES];
        pairs_here(out, x, y, c);
        for (int l = 0; l < VL; l++)
            if (!same(out[l], pair_exact(x[0], y[0][l], x[1], y[1][l], c))) return false;
    }
    return true;
}

const cpu_pairs KERNEL_GLUE(cpu_pairs, SIMD) = {.matmul = KERNEL(matmul),
                                                .attention_forward = KERNEL(attention_forward),
                                                .attention_backward = KERNEL(attention_backward),
                                                .attention_past = KERNEL(attention_past),
                                                .conv_forward = KERNEL(conv_forward),
                                                .conv_inputs = KERNEL(conv_inputs),
                                                .conv_weights = KERNEL(conv_weights),
                                                .holds = holds};
