// test/ops/rows.c: the table. A row is a promise; op_test.h says what a row checks.
//
// The tolerance is for the arithmetic alone, as normalised mean square error. Where it comes from: one FP32 rounding has a
// relative mean square of about 2^-48 / 6 = 6e-16. A chain of n additions of random signs grows it about n / 2 times (partial
// sums are smaller than the whole one), so
//     1e-14   a few roundings: element by element
//     3e-14   a dozen, with a division, a square root or an exponential that is off by two units in the last place
//     1e-13   sums of up to a hundred elements, or of many in a tree
//     1e-12   sequential sums of several hundred, and gradients through them
// An output stored in 16 bits is allowed one rounding of its type besides (values.c), and nothing for the sums that lead to it.
#include "test/ops/op_test.h"

#include <stdio.h>

// In the three compute types.
#define TYPES(op, opt, nmse, why, ...)                  \
    {op, {__VA_ARGS__}, FP32, opt, nmse, why},          \
    {op, {__VA_ARGS__}, BF16, opt, nmse, why},          \
    {op, {__VA_ARGS__}, FP16, opt, nmse, why}

enum { BIAS = MATMUL_BIAS, GELU = MATMUL_BIAS | MATMUL_GELU, DGELU = MATMUL_DGELU, ACC = MATMUL_ACCUMULATE, TA = OPT_TA,
      TB = OPT_TB };
#define TO(t) ((unsigned)(t) << OPT_TO_SHIFT)

const op_row test_rows[] = {
    // op               options       nmse   why                                  M N K
    TYPES(OP_matmul,    0,            1e-14, "smallest legal",                    1, 1, 1),
    TYPES(OP_matmul,    0,            1e-13, "odd tails in every direction",      13, 37, 29),
    TYPES(OP_matmul,    TA,           1e-13, "odd tails, a transposed",           13, 37, 29),
    TYPES(OP_matmul,    TB,           1e-13, "odd tails, b transposed",           13, 37, 29),
    TYPES(OP_matmul,    TA | TB,      1e-13, "odd tails, both transposed",        13, 37, 29),
    TYPES(OP_matmul,    TB | BIAS,    1e-13, "a layer, odd",                      7, 65, 33),
    TYPES(OP_matmul,    BIAS,         1e-13, "bias, b as it lies",                5, 17, 40),
    TYPES(OP_matmul,    TB | GELU,    1e-13, "fused GELU, odd",                   9, 131, 31),
    TYPES(OP_matmul,    MATMUL_GELU,  1e-13, "GELU without bias",                 3, 16, 16),
    TYPES(OP_matmul,    DGELU,        1e-13, "fused GELU gradient, odd",          11, 67, 45),
    TYPES(OP_matmul,    TB | DGELU,   1e-13, "GELU gradient, b transposed",       4, 19, 23),
    TYPES(OP_matmul,    TA | ACC,     1e-13, "weight gradient, odd",              35, 41, 27),
    TYPES(OP_matmul,    ACC,          1e-13, "accumulate, b as it lies",          6, 49, 18),
    TYPES(OP_matmul,    TB | ACC,     1e-13, "accumulate, b transposed",          6, 49, 18),
    TYPES(OP_matmul,    TA | TB | ACC, 1e-13, "accumulate, both transposed",      6, 49, 18),
    TYPES(OP_matmul,    TB,           1e-13, "one row: sampling",                 1, 300, 64),
    TYPES(OP_matmul,    TA | ACC,     1e-13, "one sample: outer product",         33, 65, 1),
    TYPES(OP_matmul,    TB,           1e-13, "one column",                        65, 1, 70),
    TYPES(OP_matmul,    0,            2e-12, "long sum, several K blocks, odd",   5, 18, 2051),
    TYPES(OP_matmul,    TA | ACC,     2e-12, "long accumulated sum",              17, 19, 1537),
    TYPES(OP_matmul,    TB | BIAS,    5e-13, "real width",                        64, 768, 768),
    TYPES(OP_matmul,    TB | GELU,    5e-13, "real width, into the MLP",          64, 1024, 256),
    TYPES(OP_matmul,    DGELU,        5e-13, "real width, out of the MLP",        64, 1024, 256),
    TYPES(OP_matmul,    TA | ACC,     5e-13, "real width, weight gradient",       768, 257, 64),
    TYPES(OP_matmul,    0,            3e-13, "more rows than a block holds",      515, 96, 130),
    // Operands beyond four million elements, which an implementation may want to take in pieces: of the wide side, then of k.
    {OP_matmul, {4, 11003, 400},   FP32, TB,       5e-13, "wide head"},
    {OP_matmul, {4, 11003, 400},   BF16, TB | GELU, 5e-13, "wide head, 16-bit result of several K blocks"},
    {OP_matmul, {11003, 5, 400},   FP32, TA | ACC, 5e-13, "tall"},
    {OP_matmul, {11003, 5, 400},   FP16, BIAS,     5e-13, "tall, 16-bit result of several K blocks"},
    {OP_matmul, {16, 17, 262200},  FP32, TB | BIAS, 2e-12, "very long sum"},
    {OP_matmul, {17, 16, 262200},  FP32, TA | ACC, 2e-12, "very long accumulated sum"},
    {OP_matmul, {16, 17, 262200},  BF16, BIAS,     2e-12, "very long sum, 16-bit result"},
    {OP_matmul, {13, 37, 29}, BF16, TB | OPT_OUT32, 1e-13, "FP32 result of 16-bit operands"},
    {OP_matmul, {13, 37, 29}, FP16, OPT_OUT32, 1e-13, "FP32 result of 16-bit operands"},
    {OP_matmul, {64, 515, 128}, BF16, TB | OPT_OUT32, 3e-13, "FP32 logits"},

    // op                    options  nmse   why                                  N C
    TYPES(OP_bias_backward,  0,       1e-14, "smallest legal",                    1, 1),
    TYPES(OP_bias_backward,  0,       1e-13, "odd tail",                          5, 257),
    TYPES(OP_bias_backward,  0,       2e-13, "real width",                        64, 768),
    TYPES(OP_bias_backward,  0,       1e-12, "many rows",                         1025, 19),
    TYPES(OP_bias_backward,  0,       2e-13, "groups, several tiles, ragged",     203, 776),
    TYPES(OP_bias_backward,  0,       1e-12, "many groups, narrow",               3001, 8),
    TYPES(OP_bias_backward,  0,       1e-12, "groups, odd tiles",                 331, 517),

    // op                       options        nmse   why                         B T C H
    TYPES(OP_attention_forward, 0,             1e-14, "smallest legal",           1, 1, 1, 1),
    TYPES(OP_attention_forward, 0,             5e-14, "odd length and head size", 2, 37, 21, 3),
    TYPES(OP_attention_forward, OPT_DROP,      5e-14, "odd, with dropout",        3, 23, 10, 2),
    TYPES(OP_attention_forward, OPT_DROP,      5e-14, "dropout, whole blocks",    2, 64, 64, 2),
    TYPES(OP_attention_forward, OPT_EXTREME,   1e-8,  "scores of hundreds, whose last place is 3e-5", 2, 33, 32, 4),
    TYPES(OP_attention_forward, 0,             1e-13, "real width",               1, 64, 768, 12),
    TYPES(OP_attention_forward, 0,             2e-13, "long row, odd",            1, 257, 32, 1),
    TYPES(OP_attention_forward, 0,             2e-13, "three tiles, two heads of 64", 2, 130, 128, 2),
    TYPES(OP_attention_forward, OPT_DROP,      2e-13, "three tiles, dropout across quads", 2, 130, 128, 2),
    TYPES(OP_attention_forward, OPT_DROP,      2e-13, "row length odd to quads",  3, 65, 72, 1),
    TYPES(OP_attention_forward, 0,             2e-13, "one row a sample",         5, 1, 96, 2),
    TYPES(OP_attention_forward, 0,             2e-13, "head of 96, several tiles", 1, 200, 192, 2),
    TYPES(OP_attention_forward, OPT_DROP,      2e-13, "head of 128",              1, 200, 128, 1),
    TYPES(OP_attention_forward, 0,             2e-13, "head of 160",              1, 65, 320, 2),
    TYPES(OP_attention_forward, OPT_DROP,      2e-13, "widest head",              1, 130, 256, 1),
    TYPES(OP_attention_forward, 0,             2e-13, "wide head of no whole chunk", 1, 70, 201, 1),
    TYPES(OP_attention_forward, OPT_DROP | OPT_AT, 5e-14, "dropout's step and sample in memory", 3, 23, 10, 2),
    {OP_attention_forward, {1, 1000, 64, 1}, FP32, OPT_DROP, 3e-13, "very long row"},

    TYPES(OP_attention_backward, 0,            3e-13, "smallest legal: one key, so q and k have no gradient", 1, 1, 1, 1),
    TYPES(OP_attention_backward, 0,            3e-13, "odd length and head size", 2, 37, 21, 3),
    TYPES(OP_attention_backward, OPT_DROP,     3e-13, "odd, with dropout",        3, 23, 10, 2),
    TYPES(OP_attention_backward, OPT_DROP,     3e-13, "dropout, whole blocks",    2, 64, 64, 2),
    TYPES(OP_attention_backward, 0,            3e-13, "real width",               1, 64, 768, 12),
    TYPES(OP_attention_backward, 0,            5e-13, "long row, odd",            1, 257, 32, 1),
    TYPES(OP_attention_backward, 0,             5e-13, "three tiles, two heads of 64", 2, 130, 128, 2),
    TYPES(OP_attention_backward, OPT_DROP,      5e-13, "three tiles, dropout across quads", 2, 130, 128, 2),
    TYPES(OP_attention_backward, OPT_DROP,      5e-13, "row length odd to quads",  3, 65, 72, 1),
    TYPES(OP_attention_backward, 0,             5e-13, "one row a sample",         5, 1, 96, 2),
    TYPES(OP_attention_backward, 0,             5e-13, "head of 96, several tiles", 1, 200, 192, 2),
    TYPES(OP_attention_backward, OPT_DROP,      5e-13, "head of 128",              1, 200, 128, 1),
    TYPES(OP_attention_backward, 0,             5e-13, "head of 160",              1, 65, 320, 2),
    TYPES(OP_attention_backward, OPT_DROP,      5e-13, "widest head",              1, 130, 256, 1),
    TYPES(OP_attention_backward, 0,             5e-13, "wide head of no whole chunk", 1, 70, 201, 1),
    TYPES(OP_attention_backward, OPT_DROP | OPT_AT, 3e-13, "dropout's step and sample in memory", 3, 23, 10, 2),
    {OP_attention_backward, {1, 1000, 64, 1}, FP32, OPT_DROP, 1e-12, "very long row"},

    // op                        options       nmse   why                         N C
    TYPES(OP_layer_norm_forward, 0,            3e-14, "smallest legal: no variance", 1, 1),
    TYPES(OP_layer_norm_forward, 0,            3e-14, "odd tail",                 5, 257),
    TYPES(OP_layer_norm_forward, OPT_RESIDUAL, 3e-14, "odd, fused residual",      7, 31),
    TYPES(OP_layer_norm_forward, OPT_RESIDUAL, 3e-14, "real width",               64, 768),
    TYPES(OP_layer_norm_forward, 0,            3e-14, "long row",                 3, 5003),
    TYPES(OP_layer_norm_forward, OPT_RESIDUAL, 3e-14, "a warp's longest row",     5, 1024),
    TYPES(OP_layer_norm_forward, OPT_RESIDUAL, 3e-14, "a block's shortest row",   3, 1032),
    TYPES(OP_layer_norm_forward, 0,            3e-14, "a block's longest row",    2, 8192),
    TYPES(OP_layer_norm_forward, OPT_RESIDUAL, 3e-14, "beyond registers",         2, 8200),
    TYPES(OP_layer_norm_forward, 0,            3e-14, "beyond registers, odd",    2, 8209),
    {OP_layer_norm_forward, {4, 259}, FP32, OPT_EXTREME, 1e-8, "mean 1000: one unit in the last place of x is 6e-5"},

    TYPES(OP_layer_norm_backward, 0,           1e-13, "odd tail",                 5, 257),
    TYPES(OP_layer_norm_backward, OPT_RESIDUAL, 1e-13, "odd, residual gradient",  7, 31),
    TYPES(OP_layer_norm_backward, OPT_RESIDUAL | OPT_ALIAS, 1e-13, "dx on dresidual", 9, 45),
    TYPES(OP_layer_norm_backward, OPT_RESIDUAL, 1e-13, "smallest legal",          1, 1),
    TYPES(OP_layer_norm_backward, OPT_RESIDUAL, 1e-13, "real width",              64, 768),
    TYPES(OP_layer_norm_backward, 0,           1e-13, "many rows",                517, 24),
    TYPES(OP_layer_norm_backward, 0,           1e-13, "long row",                 3, 5003),
    TYPES(OP_layer_norm_backward, OPT_RESIDUAL | OPT_ALIAS, 1e-13, "longest row of one pass, 3 groups", 19, 4096),
    TYPES(OP_layer_norm_backward, OPT_RESIDUAL | OPT_ALIAS, 1e-13, "two passes, 2 groups", 70, 4104),
    TYPES(OP_layer_norm_backward, 0,           1e-13, "two passes, odd, 2 groups", 70, 4099),
    TYPES(OP_layer_norm_backward, 0,           1e-13, "16-byte rows, many groups", 517, 40),

    TYPES(OP_gelu_forward,  0,                 3e-14, "smallest legal",           1, 1),
    TYPES(OP_gelu_forward,  0,                 3e-14, "odd tail",                 3, 257),
    TYPES(OP_gelu_forward,  OPT_EXTREME,       3e-14, "saturated",                3, 65),
    TYPES(OP_gelu_forward,  0,                 3e-14, "real width",               64, 3072),
    TYPES(OP_gelu_backward, 0,                 3e-14, "smallest legal",           1, 1),
    TYPES(OP_gelu_backward, 0,                 3e-14, "odd tail",                 3, 257),
    TYPES(OP_gelu_backward, OPT_ALIAS,         3e-14, "dx on dy",                 3, 101),
    TYPES(OP_gelu_backward, OPT_EXTREME,       3e-14, "saturated",                3, 65),
    TYPES(OP_gelu_backward, 0,                 3e-14, "real width",               64, 3072),

    TYPES(OP_relu_forward,  0,                 0,     "smallest legal",           1, 1),
    TYPES(OP_relu_forward,  0,                 0,     "odd tail",                 3, 257),
    TYPES(OP_relu_forward,  OPT_ALIAS,         0,     "in place",                 3, 101),
    TYPES(OP_relu_forward,  0,                 0,     "real width, several work items", 64, 3072),
    TYPES(OP_relu_backward, 0,                 0,     "smallest legal",           1, 1),
    TYPES(OP_relu_backward, 0,                 0,     "odd tail",                 3, 257),
    TYPES(OP_relu_backward, OPT_ALIAS,         0,     "dx on dy",                 3, 101),
    TYPES(OP_relu_backward, 0,                 0,     "real width, several work items", 64, 3072),

    // op                       options        nmse   why                         B T C V
    TYPES(OP_embedding_forward, 0,             1e-14, "smallest legal",           1, 1, 1, 1),
    TYPES(OP_embedding_forward, 0,             1e-14, "odd",                      3, 5, 257, 11),
    TYPES(OP_embedding_forward, 0,             1e-14, "real width",               4, 64, 768, 256),
    TYPES(OP_embedding_forward, 0,             1e-14, "more than four packs a lane", 2, 3, 1544, 11),
    TYPES(OP_embedding_backward, 0,            1e-14, "smallest legal",           1, 1, 1, 1),
    TYPES(OP_embedding_backward, 0,            3e-14, "odd, every token repeats", 3, 17, 37, 5),
    TYPES(OP_embedding_backward, 0,            3e-14, "most tokens absent",       2, 9, 257, 1000),
    TYPES(OP_embedding_backward, OPT_EXTREME,  3e-13, "one token everywhere",     4, 65, 33, 3),
    TYPES(OP_embedding_backward, 0,            3e-14, "real width",               4, 64, 768, 256),
    TYPES(OP_embedding_backward, 0,            1e-13, "several segments",         8, 131, 40, 7),
    TYPES(OP_embedding_backward, OPT_EXTREME,  3e-12, "one token in several segments", 5, 150, 65, 3),
    TYPES(OP_embedding_backward, 0,            3e-14, "several tiles of the scan", 2, 300, 3, 9001),
    {OP_embedding_backward, {2, 150, 2, 262159}, FP32, 0, 3e-14, "two windows of tokens"},
    {OP_embedding_backward, {2, 150, 2, 70001}, FP32, 0, 3e-14, "several tokens a warp"},

    // op                  options             nmse   why                         N V, and Vp where it is not V
    TYPES(OP_cross_entropy, 0,                 3e-14, "one class: no loss, no gradient", 1, 1),
    TYPES(OP_cross_entropy, 0,                 3e-14, "odd, with ignored targets", 11, 257),
    TYPES(OP_cross_entropy, OPT_LOSS_ONLY,     3e-14, "losses only",              7, 33),
    TYPES(OP_cross_entropy, OPT_EXTREME,       3e-14, "logits 1e4 apart",         9, 101),
    TYPES(OP_cross_entropy, OPT_EXTREME | OPT_LOSS_ONLY, 3e-14, "logits 1e4 apart, losses only", 9, 101),
    TYPES(OP_cross_entropy, 0,                 3e-14, "bytes",                    64, 256),
    TYPES(OP_cross_entropy, 0,                 3e-14, "thousands of classes, aligned rows", 5, 1536),
    TYPES(OP_cross_entropy, OPT_EXTREME,       3e-14, "thousands of classes, logits 1e4 apart", 4, 4099),
    TYPES(OP_cross_entropy, 0,                 3e-14, "GPT-2's vocabulary",       3, 50257),
    TYPES(OP_cross_entropy, 0,                 3e-14, "GPT-2's vocabulary, padded", 3, 50304),
    TYPES(OP_cross_entropy, OPT_LOSS_ONLY,     3e-14, "tens of thousands, losses only", 2, 20001),
    TYPES(OP_cross_entropy, 0,                 3e-14, "columns that are no classes", 11, 131, 256),
    TYPES(OP_cross_entropy, OPT_EXTREME,       3e-14, "one more column, rows at any address", 9, 100, 101),
    TYPES(OP_cross_entropy, OPT_LOSS_ONLY,     3e-14, "columns that are no classes, losses only", 7, 33, 128),
    TYPES(OP_cross_entropy, 0,                 3e-14, "one class of many columns", 3, 1, 640),
    TYPES(OP_cross_entropy, OPT_EXTREME,       3e-14, "thousands of classes, fewer than columns", 4, 4099, 4224),
    TYPES(OP_cross_entropy, 0,                 3e-14, "GPT-2's vocabulary in its memory", 3, 50257, 50304),
    TYPES(OP_top_1,         0,                 0,     "one row, one class: a hit", 1, 1),
    TYPES(OP_top_1,         0,                 0,     "one class of many columns", 3, 1, 40),
    TYPES(OP_top_1,         0,                 0,     "digits, with ties",        64, 10),
    TYPES(OP_top_1,         0,                 0,     "odd tail, ties, targets of no class", 101, 257),
    TYPES(OP_top_1,         OPT_EXTREME,       0,     "NaN, infinities, rows of -inf", 83, 37),
    TYPES(OP_top_1,         OPT_EXTREME,       0,     "columns that are no classes, rows at any address", 59, 100, 101),
    TYPES(OP_top_1,         0,                 0,     "GPT-2's vocabulary in its memory", 5, 50257, 50304),
    {OP_loss_means, {1, 1}, FP32, 0, 1e-30, "smallest legal"},
    {OP_loss_means, {5, 257}, FP32, 0, 1e-30, "odd"},
    {OP_loss_means, {12, 1024}, FP32, 0, 1e-30, "real length"},
    {OP_loss_means, {3, 5003}, FP32, 0, 1e-30, "long and odd"},

    // op             options                  nmse   why                         B E
    TYPES(OP_dropout, 0,                       1e-14, "smallest legal",           1, 1),
    TYPES(OP_dropout, 0,                       1e-14, "odd, samples begin inside a philox block", 5, 257),
    TYPES(OP_dropout, OPT_ALIAS,               1e-14, "in place",                 3, 131),
    TYPES(OP_dropout, OPT_EXTREME,             1e-14, "p = 0 keeps all",          3, 67),
    TYPES(OP_dropout, 0,                       1e-14, "aligned samples",          3, 4104),
    TYPES(OP_dropout, OPT_AT,                  1e-14, "step and sample in memory", 5, 264),
    TYPES(OP_dropout, OPT_AT | OPT_ALIAS,      1e-14, "step and sample in memory, odd, in place", 3, 131),
    TYPES(OP_dropout, 0,                       1e-14, "real width, samples longer than a work item", 4, 49155),
    TYPES(OP_add,     0,                       1e-14, "smallest legal",           1),
    TYPES(OP_add,     0,                       1e-14, "odd tail",                 8197),
    TYPES(OP_add,     OPT_ALIAS,               1e-14, "y on a",                   1031),
    TYPES(OP_add,     OPT_ALIAS2,              1e-14, "y on b",                   1031),
    TYPES(OP_cast,    TO(FP32),                1e-14, "to FP32",                  4099),
    TYPES(OP_cast,    TO(BF16),                1e-14, "to BF16",                  4099),
    TYPES(OP_cast,    TO(FP16),                1e-14, "to FP16",                  4099),

    // op               n                      type  options nmse  why
    {OP_sum_squares,   {1},                    FP32, 0, 1e-30, "smallest legal"},
    {OP_sum_squares,   {1003},                 FP32, 0, 1e-30, "odd, less than a chunk"},
    {OP_sum_squares,   {CHUNK},                FP32, 0, 1e-30, "one chunk"},
    {OP_sum_squares,   {3 * CHUNK + 5},        FP32, OPT_EXTREME, 1e-30, "several chunks, squares beyond FP32"},
    {OP_sum_squares,   {40 * CHUNK + 1},       FP32, 0, 1e-30, "chunks enough for any other tree to show"},
    {OP_step_decide,   {1},                    FP32, 0, 1e-30, "one chunk"},
    {OP_step_decide,   {7001},                 FP32, 0, 1e-30, "a large model's chunks"},
    TYPES(OP_adamw,   0,                       3e-14, "smallest legal",           1),
    TYPES(OP_adamw,   0,                       3e-14, "odd tail",                 4099),
    TYPES(OP_adamw,   OPT_SKIP,                0,     "a step decided against",   1031),
    TYPES(OP_adamw,   OPT_SKIP | OPT_NO_W,     0,     "skipped, no rounded copy", 67),
    {OP_adamw,         {1031},                 FP32, OPT_NO_W, 3e-14, "no rounded copy"},
    {OP_adamw,         {2 * CHUNK + 3},        BF16, 0, 3e-14, "several chunks"},
    {OP_adamw,         {1},                    BF16, OPT_STOCHASTIC, 3e-14, "smallest legal"},
    {OP_adamw,         {4099},                 BF16, OPT_STOCHASTIC, 3e-14, "odd tail"},
    {OP_adamw,         {4099},                 FP16, OPT_STOCHASTIC, 3e-14, "odd tail"},
    {OP_adamw,         {2 * CHUNK + 3},        FP16, OPT_STOCHASTIC, 3e-14, "several chunks"},
    {OP_adamw,         {1031},                 BF16, OPT_STOCHASTIC | OPT_SKIP, 0, "a step decided against"},
    {OP_cast_stochastic, {1},                  FP16, 0, 0, "smallest legal"},
    {OP_cast_stochastic, {4099},               BF16, 0, 0, "odd tail, every magnitude"},
    {OP_cast_stochastic, {4099},               FP16, 0, 0, "odd tail, every magnitude"},
    {OP_cast_stochastic, {2 * CHUNK + 3},      BF16, 0, 0, "several chunks"},
};
const int test_row_count = sizeof test_rows / sizeof *test_rows;

// What `--bench` times: GPT-2 124M at 4 x 64, the default model's width, and 16-bit storage where it matters.
const op_row bench_rows[] = {
    {OP_matmul, {256, 2304, 768}, FP32, TB | BIAS, 0, "qkv"},
    {OP_matmul, {256, 2304, 768}, BF16, TB | BIAS, 0, "qkv"},
    {OP_matmul, {256, 768, 768}, FP32, TB | BIAS, 0, "projection"},
    {OP_matmul, {256, 3072, 768}, FP32, TB | GELU, 0, "MLP in, fused GELU"},
    {OP_matmul, {256, 768, 3072}, FP32, TB | BIAS, 0, "MLP out"},
    {OP_matmul, {256, 3072, 768}, FP32, DGELU, 0, "MLP out, input gradient"},
    {OP_matmul, {3072, 768, 256}, FP32, TA | ACC, 0, "MLP in, weight gradient"},
    {OP_matmul, {3072, 768, 256}, BF16, TA | ACC, 0, "MLP in, weight gradient"},
    {OP_matmul, {256, 50257, 768}, FP32, TB, 0, "logits"},
    {OP_matmul, {256, 768, 50257}, FP32, 0, 0, "logits, input gradient"},
    {OP_matmul, {256, 50304, 768}, FP32, TB, 0, "logits, with padding"},
    {OP_matmul, {256, 768, 50304}, FP32, 0, 0, "logits, input gradient, with padding"},
    {OP_matmul, {50304, 768, 256}, FP32, TA | ACC, 0, "logits, weight gradient, with padding"},
    {OP_matmul, {768, 384, 128}, FP32, TB | BIAS, 0, "small model's qkv"},
    {OP_bias_backward, {256, 3072}, FP32, 0, 0, "MLP"},
    {OP_attention_forward, {4, 64, 768, 12}, FP32, 0, 0, "T 64"},
    {OP_attention_forward, {1, 1024, 768, 12}, FP32, 0, 0, "T 1024"},
    {OP_attention_forward, {1, 1024, 768, 12}, BF16, 0, 0, "T 1024"},
    {OP_attention_forward, {1, 1024, 768, 12}, FP32, OPT_DROP, 0, "T 1024, dropout"},
    {OP_attention_backward, {4, 64, 768, 12}, FP32, 0, 0, "T 64"},
    {OP_attention_backward, {1, 1024, 768, 12}, FP32, 0, 0, "T 1024"},
    {OP_attention_backward, {1, 1024, 768, 12}, BF16, 0, 0, "T 1024"},
    {OP_layer_norm_forward, {4096, 768}, FP32, OPT_RESIDUAL, 0, "fused residual"},
    {OP_layer_norm_forward, {4096, 768}, BF16, OPT_RESIDUAL, 0, "fused residual"},
    {OP_layer_norm_backward, {4096, 768}, FP32, OPT_RESIDUAL, 0, "residual gradient"},
    {OP_layer_norm_backward, {4096, 768}, BF16, OPT_RESIDUAL, 0, "residual gradient"},
    {OP_gelu_forward, {4096, 3072}, FP32, 0, 0, "MLP"},
    {OP_gelu_forward, {4096, 3072}, BF16, 0, 0, "MLP"},
    {OP_gelu_backward, {4096, 3072}, FP32, 0, 0, "MLP"},
    {OP_relu_forward, {4096, 3072}, FP32, 0, 0, ""},
    {OP_relu_backward, {4096, 3072}, FP32, 0, 0, ""},
    {OP_embedding_forward, {16, 1024, 768, 50257}, FP32, 0, 0, ""},
    {OP_embedding_backward, {4, 1024, 768, 50257}, FP32, 0, 0, ""},
    {OP_cross_entropy, {256, 50257}, FP32, 0, 0, "losses and gradient"},
    {OP_cross_entropy, {256, 50257}, BF16, 0, 0, "losses and gradient"},
    {OP_cross_entropy, {256, 50257, 50304}, FP32, 0, 0, "losses and gradient, with padding"},
    {OP_cross_entropy, {256, 50257, 50304}, BF16, 0, 0, "losses and gradient, with padding"},
    {OP_top_1, {256, 50257, 50304}, FP32, 0, 0, ""},
    {OP_loss_means, {64, 1024}, FP32, 0, 0, ""},
    {OP_dropout, {16, 786432}, FP32, 0, 0, ""},
    {OP_add, {16777216}, FP32, 0, 0, ""},
    {OP_cast, {16777216}, FP32, TO(BF16), 0, "FP32 to BF16"},
    {OP_cast, {16777216}, FP16, TO(FP32), 0, "FP16 to FP32"},
    {OP_sum_squares, {16777216}, FP32, 0, 0, ""},
    {OP_step_decide, {7596}, FP32, 0, 0, "124 M parameters"},
    {OP_adamw, {16777216}, FP32, 0, 0, ""},
    {OP_adamw, {16777216}, BF16, 0, 0, ""},
    {OP_adamw, {16777216}, BF16, OPT_STOCHASTIC, 0, ""},
};
const int bench_row_count = sizeof bench_rows / sizeof *bench_rows;

// What `--bench` times on a GPU: GPT-2 124M at 8 x 1024, V padded to 50304 but where the odd one is the point.
const op_row bench_rows_gpu[] = {
    {OP_matmul, {8192, 2304, 768}, BF16, TB | BIAS, 0, "qkv"},
    {OP_matmul, {8192, 2304, 768}, FP16, TB | BIAS, 0, "qkv"},
    {OP_matmul, {8192, 2304, 768}, FP32, TB | BIAS, 0, "qkv"},
    {OP_matmul, {8192, 768, 768}, BF16, TB | BIAS, 0, "projection"},
    {OP_matmul, {8192, 3072, 768}, BF16, TB | GELU, 0, "MLP in, fused GELU"},
    {OP_matmul, {8192, 768, 3072}, BF16, TB | BIAS, 0, "MLP out"},
    {OP_matmul, {8192, 3072, 768}, BF16, DGELU, 0, "MLP out, input gradient"},
    {OP_matmul, {8192, 768, 3072}, BF16, 0, 0, "MLP in, input gradient"},
    {OP_matmul, {8192, 768, 768}, BF16, 0, 0, "projection, input gradient"},
    {OP_matmul, {8192, 768, 2304}, BF16, 0, 0, "qkv, input gradient"},
    {OP_matmul, {768, 3072, 8192}, BF16, TA | ACC, 0, "MLP out, weight gradient"},
    {OP_matmul, {768, 768, 8192}, BF16, TA | ACC, 0, "projection, weight gradient"},
    {OP_matmul, {2304, 768, 8192}, BF16, TA | ACC, 0, "qkv, weight gradient"},
    {OP_matmul, {3072, 768, 8192}, BF16, TA | ACC, 0, "MLP in, weight gradient"},
    {OP_matmul, {3072, 768, 8192}, FP32, TA | ACC, 0, "MLP in, weight gradient"},
    {OP_matmul, {8192, 50304, 768}, BF16, TB, 0, "logits"},
    {OP_matmul, {1024, 768, 50304}, BF16, 0, 0, "logits, input gradient"},
    {OP_matmul, {50304, 768, 1024}, BF16, TA | ACC, 0, "logits, weight gradient"},
    {OP_matmul, {8192, 50257, 768}, BF16, TB, 0, "logits, odd rows"},
    {OP_matmul, {1024, 768, 50257}, BF16, 0, 0, "logits, input gradient, odd rows"},
    {OP_matmul, {50257, 768, 1024}, BF16, TA | ACC, 0, "logits, weight gradient, odd rows"},
    {OP_bias_backward, {8192, 3072}, BF16, 0, 0, "MLP"},
    {OP_bias_backward, {8192, 3072}, FP32, 0, 0, "MLP"},
    {OP_attention_forward, {8, 1024, 768, 12}, BF16, 0, 0, "T 1024"},
    {OP_attention_forward, {8, 1024, 768, 12}, FP16, 0, 0, "T 1024"},
    {OP_attention_forward, {8, 1024, 768, 12}, BF16, OPT_DROP, 0, "T 1024, dropout"},
    {OP_attention_forward, {2, 4096, 768, 12}, BF16, 0, 0, "T 4096"},
    {OP_attention_forward, {8, 1024, 768, 12}, FP32, 0, 0, "T 1024"},
    {OP_attention_backward, {8, 1024, 768, 12}, BF16, 0, 0, "T 1024"},
    {OP_attention_backward, {8, 1024, 768, 12}, FP16, 0, 0, "T 1024"},
    {OP_attention_backward, {8, 1024, 768, 12}, BF16, OPT_DROP, 0, "T 1024, dropout"},
    {OP_attention_backward, {2, 4096, 768, 12}, BF16, 0, 0, "T 4096"},
    {OP_attention_backward, {8, 1024, 768, 12}, FP32, 0, 0, "T 1024"},
    {OP_layer_norm_forward, {8192, 768}, BF16, OPT_RESIDUAL, 0, "fused residual"},
    {OP_layer_norm_forward, {8192, 768}, FP32, OPT_RESIDUAL, 0, "fused residual"},
    {OP_layer_norm_backward, {8192, 768}, BF16, OPT_RESIDUAL, 0, "residual gradient"},
    {OP_layer_norm_backward, {8192, 768}, FP32, OPT_RESIDUAL, 0, "residual gradient"},
    {OP_gelu_forward, {8192, 3072}, BF16, 0, 0, "MLP"},
    {OP_gelu_backward, {8192, 3072}, BF16, 0, 0, "MLP"},
    {OP_relu_forward, {8192, 3072}, BF16, 0, 0, ""},
    {OP_relu_backward, {8192, 3072}, BF16, 0, 0, ""},
    {OP_embedding_forward, {8, 1024, 768, 50304}, BF16, 0, 0, ""},
    {OP_embedding_backward, {8, 1024, 768, 50304}, BF16, 0, 0, ""},
    {OP_cross_entropy, {1024, 50304}, BF16, 0, 0, "losses and gradient"},
    {OP_cross_entropy, {1024, 50257, 50304}, BF16, 0, 0, "losses and gradient, with padding"},
    {OP_cross_entropy, {1024, 50257, 50304}, FP32, 0, 0, "losses and gradient, with padding"},
    {OP_cross_entropy, {1024, 50257}, BF16, 0, 0, "losses and gradient, odd rows"},
    {OP_cross_entropy, {1024, 50304}, FP32, 0, 0, "losses and gradient"},
    {OP_cross_entropy, {1024, 50304}, BF16, OPT_LOSS_ONLY, 0, "losses only"},
    {OP_cross_entropy, {65536, 256}, BF16, 0, 0, "bytes"},
    {OP_top_1, {1024, 50257, 50304}, BF16, 0, 0, ""},
    {OP_loss_means, {8, 1024}, FP32, 0, 0, ""},
    {OP_dropout, {8, 786432}, BF16, 0, 0, ""},
    {OP_add, {16777216}, FP32, 0, 0, ""},
    {OP_add, {16777216}, BF16, 0, 0, ""},
    {OP_cast, {16777216}, FP32, TO(BF16), 0, "FP32 to BF16"},
    {OP_cast, {16777216}, BF16, TO(FP32), 0, "BF16 to FP32"},
    {OP_sum_squares, {16777216}, FP32, 0, 0, ""},
    {OP_step_decide, {7596}, FP32, 0, 0, "124 M parameters"},
    {OP_adamw, {16777216}, FP32, 0, 0, ""},
    {OP_adamw, {16777216}, BF16, 0, 0, ""},
    {OP_adamw, {16777216}, BF16, OPT_STOCHASTIC, 0, ""},
};
const int bench_row_gpu_count = sizeof bench_rows_gpu / sizeof *bench_rows_gpu;

const op_kind *kind_of(op_id op) {
    static const op_kind *const kind[OP_COUNT] = {
#define ENTRY(op) [OP_##op] = &kind_##op,
        OPS(ENTRY)
#undef ENTRY
    };
    return kind[op];
}

// "matmul 64x768x768 bf16 tb+bias: real width"
void row_name(char *out, size_t size, const op_row *row) {
    static const struct { unsigned bit; const char *name; } option[] = {
        {MATMUL_BIAS, "bias"}, {MATMUL_GELU, "gelu"}, {MATMUL_DGELU, "dgelu"}, {MATMUL_ACCUMULATE, "acc"}, {OPT_TA, "ta"},
        {OPT_TB, "tb"},
        {OPT_OUT32, "fp32 out"}, {OPT_DROP, "dropout"}, {OPT_RESIDUAL, "residual"}, {OPT_ALIAS, "alias"}, {OPT_ALIAS2, "alias b"},
        {OPT_LOSS_ONLY, "loss only"}, {OPT_EXTREME, "extreme"}, {OPT_SKIP, "skip"}, {OPT_NO_W, "no w"},
        {OPT_STOCHASTIC, "stochastic"}, {OPT_AT, "at"},
    };
    size_t at = (size_t)snprintf(out, size, "%s", kind_of(row->op)->name);
    for (int i = 0; i < 4 && row->size[i] && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%lld", i ? "x" : " ", (long long)row->size[i]);
    if (at < size) at += (size_t)snprintf(out + at, size - at, " %s", dtype_name(row->type));
    for (size_t i = 0; i < sizeof option / sizeof *option; i++)
        if ((row->options & option[i].bit) && at < size) at += (size_t)snprintf(out + at, size - at, " %s", option[i].name);
    if (at < size && row->why[0]) snprintf(out + at, size - at, ": %s", row->why);
}
