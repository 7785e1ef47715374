#!/bin/sh
# test/test_sim.sh: the CUDA backend, executed by the simulator of test/sim: what is planted is found, operations and
# the trainer agree with the CPU's, under one order of threads, warps, blocks and streams. check_sim.sh has other
# orders, races and ASan, check_sim_runs.sh and check_sim_layouts.sh whole runs.
. test/support/lib.sh
. "$top/test/support/sim.sh"

bugs_in_kernels() { runs "0 $sim/test/sim/test_simt"; }
bugs_on_the_host() { runs "0 $sim/test/test_cudart"; }
models_of_instructions() { runs "1 $sim/test/sim/test_wrappers"; }
products() { runs "0 $sim/test/test_cublaslt"; }
# Of the operations the rows of BF16, in which models are trained, and codes, which have none; check_sim.sh has all.
operations_and_the_trainer() {
    runs "0 $sim/test/test_device *_like_*" "0 $sim/test/test_ops --device cuda --once bf16" \
        "0 $sim/test/test_ops --device cuda --once code"
}
# Llama and the families after it, against transformers: logits, gradients, steps.
families() { runs "0 $sim/test/test_families cuda"; }
# Keys and values that are kept while a text grows change no bit. Each model in one type; check_sim.sh has the others.
texts_that_grow() { runs "0 $sim/test/test_past cuda 0"; }

try bugs_in_kernels
try bugs_on_the_host
try models_of_instructions
try products
try operations_and_the_trainer
try families
try texts_that_grow
finish
