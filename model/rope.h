// model/rope.h: the angles of rotary position embedding (Su et al. 2021), as a table that the operation `rotary` reads.
#ifndef MODEL_ROPE_H
#define MODEL_ROPE_H

#include <stdbool.h>
#include <stdint.h>

// the first two: Llama's words of [model] rope_scaling
typedef enum { ROPE_DEFAULT, ROPE_LLAMA3, ROPE_LINEAR } rope_kind;

typedef struct rope {
    rope_kind kind;
    double theta;  // pair i of D/2 turns by theta^(-2i/D) a position
    // ROPE_LLAMA3 (Llama 3.1): waves longer than original / low positions are stretched `factor` times, those shorter
    // than original / high stay, and between them it is blended.
    double factor, low, high;
    int64_t original;
    // ROPE_LINEAR (Chen et al. 2023): all waves are stretched `factor` times.
} rope;

bool rope_equal(const rope *a, const rope *b);

// The angle by which pair i of D/2 turns from one position to the next. Rounded to FP32, as everyone who trained with
// it has it.
float rope_step(const rope *r, int64_t i, int64_t D);

// table (T,D) = of each position the cosines of its D/2 angles, then their sines. T at most ROPE_MOST.
enum { ROPE_MOST = 1000000 };
void rope_table(const rope *r, int64_t T, int64_t D, float *table);

#endif
