// trainer/costs/sheets.c: see trainer/costs/sheets.h.
#include "trainer/costs/sheets.h"

#include <string.h>
#include <sys/stat.h>

// What a product and a stream of bytes reach of the published peaks is a measured figure of one H100 (8192 x 8192 x
// 8192 random BF16 numbers; a copy), and is taken for all three. Of links: all-reduces within a node of A100 reach 223
// of NVLink's 300 GB/s, at 40 us for the smallest (vTrain, github.com/VIA-Research/vTrain, tables of a100, MIT
// licence); the share is taken for all three, and for cards of InfiniBand.
#define REACHED \
    "reach matmul 0.8 0.1 spread\n" \
    "reach attention_forward 0.35 0.25 spread\n" \
    "reach attention_backward 0.3 0.25 spread\n" \
    "reach other 0.85 0.15 spread\n"

// Of the host, a GPU's share of an eighth: memory of 2 TB less what the system keeps; PCI Express with 16 lanes, of
// which copies reach 0.8; memory channels of two processors, of which a stream of bytes is taken to reach 0.6. A DGX
// H100 and H200 has PCIe 5 (64 GB/s one way) and two Xeon 8480C with 8 channels of DDR5-4800, a DGX A100 PCIe 4 (32
// GB/s) and two EPYC 7742 with 8 channels of DDR4-3200 (their datasheets).
#define HOST_5 \
    "host_memory 240e9 bytes\n" \
    "host_link 51e9 bytes/s 0.2 spread\n" \
    "host_copy 46e9 bytes/s 0.4 spread\n"
#define HOST_4 \
    "host_memory 240e9 bytes\n" \
    "host_link 25e9 bytes/s 0.2 spread\n" \
    "host_copy 31e9 bytes/s 0.4 spread\n"

// CPUs: a rank has the cores of a socket. Peaks are at the base clock, where processors stay when all cores compute for
// long: 2 units of 8 FP32 numbers multiply and add on Zen 4, 2 of 16 on Sapphire Rapids. Products of 16-bit numbers are
// made of FP32 ones. What of it operations reach was measured on two cores
// (test/bench/results/cpu-zen5-2-cores-2026-11-20.md); so was what one thread moves through shared memory,
// and what it takes of products beside it (planner-zen4-2-cores-2026-12-01.md), and what it moves through TCP
// (thin-wires-zen5-2-cores-2026-11-29.md). How long it takes until all cores of a socket have begun an operation is not
// known: 10 us are taken for it.
#define CORES \
    "launch 10 us 0.5 spread\n" \
    "reach matmul 0.75 0.1 spread\n" \
    "reach attention_forward 0.6 0.2 spread\n" \
    "reach attention_backward 0.7 0.1 spread\n" \
    "reach other 0.6 0.3 spread\n" \
    "link node 4e9 bytes/s 20 us 0.25 spread\n" \
    "link rack 0.75e9 bytes/s 60 us 0.5 spread\n" \
    "link spine 0.75e9 bytes/s 75 us 0.5 spread\n" \
    "beside 1 0.3 spread\n"

// clang-format off
static const char h100[] =
    "lockstep costs 2\n"
    "device NVIDIA H100 SXM 80 GB, 8 in a node\n"
    "sheet\n"
    "# NVIDIA H100 Tensor Core GPU datasheet, 2023: dense BF16 and FP16, FP32, HBM3, NVLink 900 GB/s both ways\n"
    "# memory: 80 GB less what CUDA and NCCL keep for themselves\n"
    "memory 77e9 bytes\n"
    "peak fp32 66.9e12 flop/s 0.1 spread\n"
    "peak bf16 989.4e12 flop/s 0.05 spread\n"
    "peak fp16 989.4e12 flop/s 0.05 spread\n"
    "copy 3.35e12 bytes/s 0.05 spread\n"
    "launch 2 us 0.25 spread\n"
    "tiles 132 128 256 192\n"
    REACHED
    "link node 335e9 bytes/s 30 us 0.15 spread\n"
    HOST_5
    "# a card of 400 Gbit/s for each GPU: NVIDIA DGX H100 datasheet, 2023\n"
    "link rack 37e9 bytes/s 45 us 0.25 spread\n"
    "link spine 37e9 bytes/s 60 us 0.35 spread\n"
    "end 18\n";

static const char h200[] =
    "lockstep costs 2\n"
    "device NVIDIA H200 SXM 141 GB, 8 in a node\n"
    "sheet\n"
    "# NVIDIA H200 Tensor Core GPU datasheet, 2024: as the H100, with HBM3e\n"
    "# memory: 141 GB less what CUDA and NCCL keep for themselves\n"
    "memory 137e9 bytes\n"
    "peak fp32 66.9e12 flop/s 0.1 spread\n"
    "peak bf16 989.4e12 flop/s 0.05 spread\n"
    "peak fp16 989.4e12 flop/s 0.05 spread\n"
    "copy 4.8e12 bytes/s 0.05 spread\n"
    "launch 2 us 0.25 spread\n"
    "tiles 132 128 256 192\n"
    REACHED
    "link node 335e9 bytes/s 30 us 0.15 spread\n"
    HOST_5
    "# a card of 400 Gbit/s for each GPU: NVIDIA DGX H200 datasheet, 2024\n"
    "link rack 37e9 bytes/s 45 us 0.25 spread\n"
    "link spine 37e9 bytes/s 60 us 0.35 spread\n"
    "end 18\n";

static const char a100[] =
    "lockstep costs 2\n"
    "device NVIDIA A100 SXM 80 GB, 8 in a node\n"
    "sheet\n"
    "# NVIDIA A100 Tensor Core GPU datasheet, 2021: dense BF16 and FP16, FP32, HBM2e, NVLink 600 GB/s both ways\n"
    "# memory: 80 GB less what CUDA and NCCL keep for themselves\n"
    "memory 77e9 bytes\n"
    "peak fp32 19.5e12 flop/s 0.1 spread\n"
    "peak bf16 312e12 flop/s 0.05 spread\n"
    "peak fp16 312e12 flop/s 0.05 spread\n"
    "copy 2.039e12 bytes/s 0.05 spread\n"
    "launch 3 us 0.25 spread\n"
    "tiles 108 128 256 128\n"
    REACHED
    "link node 223e9 bytes/s 40 us 0.1 spread\n"
    HOST_4
    "# a card of 200 Gbit/s for each GPU: NVIDIA DGX A100 datasheet, 2021\n"
    "link rack 18.5e9 bytes/s 50 us 0.25 spread\n"
    "link spine 18.5e9 bytes/s 65 us 0.35 spread\n"
    "end 18\n";

static const char epyc9654[] =
    "lockstep costs 2\n"
    "device AMD EPYC 9654, the 96 cores of a socket\n"
    "sheet\n"
    "# AMD EPYC 9654 datasheet, 2022: 96 cores, base clock 2.4 GHz, 12 channels of DDR5-4800, 460.8 GB/s\n"
    "# memory: 12 x 32 GB less what the system keeps\n"
    "memory 370e9 bytes\n"
    "peak fp32 7.37e12 flop/s 0.1 spread\n"
    "peak bf16 7.37e12 flop/s 0.1 spread\n"
    "peak fp16 7.37e12 flop/s 0.1 spread\n"
    "copy 460.8e9 bytes/s 0.05 spread\n"
    CORES
    "end 15\n";

static const char xeon8480[] =
    "lockstep costs 2\n"
    "device Intel Xeon Platinum 8480+, the 56 cores of a socket\n"
    "sheet\n"
    "# Intel Xeon Platinum 8480+ datasheet, 2023: 56 cores, base clock 2.0 GHz, 8 channels of DDR5-4800, 307.2 GB/s\n"
    "# memory: 8 x 32 GB less what the system keeps\n"
    "memory 245e9 bytes\n"
    "peak fp32 7.17e12 flop/s 0.1 spread\n"
    "peak bf16 7.17e12 flop/s 0.1 spread\n"
    "peak fp16 7.17e12 flop/s 0.1 spread\n"
    "copy 307.2e9 bytes/s 0.05 spread\n"
    CORES
    "end 15\n";
// clang-format on

static const struct {
    const char *name, *text;
} sheets[] = {{"h100", h100}, {"h200", h200}, {"a100", a100}, {"epyc9654", epyc9654}, {"xeon8480", xeon8480}};
const char sheet_names[] = "h100, h200, a100, epyc9654, xeon8480";

const char *sheet_text(const char *name) {
    for (size_t i = 0; i < sizeof sheets / sizeof *sheets; i++)
        if (strcmp(sheets[i].name, name) == 0) return sheets[i].text;
    return NULL;
}

err_t sheet_or_file(costs *out, const char *name) {
    struct stat st;
    const char *text = sheet_text(name);
    if (stat(name, &st) == 0) return costs_load(out, name);
    if (text) return costs_parse(out, name, text);
    return err_set(
        ERR_CONFIG,
        "--costs %s: no such file, and no sheet of that name; expected a file of `lockstep bench step --save`, "
        "or one of %s",
        name, sheet_names);
}
