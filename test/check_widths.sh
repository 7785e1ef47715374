#!/bin/sh
# test/check_widths.sh: the bits of BF16 and FP16 don't depend on the vector width, and no bits on the number of
# threads. Of FP32's widths test_runs.sh knows.
. test/support/runs.sh

same_bits_bf16_portable() { same_width bf16 portable; }
same_bits_bf16_avx2() { same_width bf16 avx2; }
same_bits_bf16_avx512() { same_width bf16 avx512; }
same_bits_bf16_neon() { same_width bf16 neon; }
same_bits_fp16_portable() { same_width fp16 portable; }
same_bits_fp16_avx2() { same_width fp16 avx2; }
same_bits_fp16_avx512() { same_width fp16 avx512; }
same_bits_fp16_neon() { same_width fp16 neon; }

# More of everything, so that there is work for many threads; those that wait for a core are as good as any.
same_bits_for_any_threads() {
    large="run.steps=5 model.embed=96 model.heads=3 model.context=65 model.dropout=0.1 batch.micro=3 batch.global=24 device.simd=avx2 \
        eval.batches=1 checkpoint.keep_best=no checkpoint.every=1000"
    for compute in fp32 bf16 fp16; do
        for threads in 1 2 3 4 8; do
            settings large-$compute-$threads $large precision.compute=$compute device.threads=$threads
            train large-$compute-$threads >"$out" 2>&1
            got=$?
            [ $got -ne 69 ] || skip "this processor has no avx2, and without it this takes long"
            [ $got -eq 0 ] || fail "large-$compute-$threads ended with $got"
            [ $threads -eq 1 ] || { same_steps large-$compute-1 large-$compute-$threads &&
                same_state large-$compute-1 large-$compute-$threads; }
        done
    done
}

for type in bf16 fp16; do
    for simd in portable avx2 avx512 neon; do try same_bits_${type}_$simd; done
done
try same_bits_for_any_threads
finish
