#!/bin/sh
# test/check_sim.sh: the CUDA backend over the simulator of test/sim under several orders of threads, warps, blocks and
# streams (seeds), with the race detector, and under AddressSanitizer. `make sim sim-race sim-asan` builds what it runs.
. test/support/lib.sh
. "$top/test/support/sim.sh"

# --- the simulator finds what was planted -----------------------------------------------------------------------------

bugs_in_kernels() { runs "0 $race/test/sim/test_simt" "0 $asan/test/sim/test_simt 3"; }
bugs_on_the_host() { runs "0 $race/test/test_cudart"; }

# What CI proves rests on the models being the instructions: `make gpu-check` runs the same program on a GPU.
models_of_instructions() { runs "2 $race/test/sim/test_wrappers" "3 $asan/test/sim/test_wrappers"; }

# --- operations and the trainer ---------------------------------------------------------------------------------------

# Matrix products: which plan is taken, kept, stored, refused.
products() {
    t=test/test_cublaslt
    runs "2 $sim/$t" "2 $asan/$t"
}

# The longest first, so that two cores end together. Seed 0 is the order that is always run, with all that a row
# promises. The other seed follows from the commit, so that other builds see other orders, and a run of the same commit
# sees the same. The plain build has nothing to add to it: the race detector's runs the same order, compares the same
# results, and looks at every access besides. FP16 and BF16 are one template, with the same tiles and accesses:
# the race detector looks at the one, AddressSanitizer at the other.
operations_and_the_trainer() {
    o="test/test_ops --device cuda" t=test/test_device
    other=$(git -C "$top" rev-parse HEAD 2>/dev/null | cut -c1-4)
    other=$((0x${other:-1} + 1))
    echo "seed $other"
    runs "$other $asan/$o --once --but bf16" "0 $sim/$o" "$other $race/$t" "$other $race/$o --once --but fp16" \
        "0 $sim/$t"
}

# Two thirds: test_sim.sh has the first.
texts_that_grow() { runs "0 $sim/test/test_past cuda 1" "0 $sim/test/test_past cuda 2"; }

try bugs_in_kernels
try bugs_on_the_host
try models_of_instructions
try products
try operations_and_the_trainer
try texts_that_grow
finish
