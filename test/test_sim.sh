#!/bin/sh
# test/test_sim.sh: the CUDA backend, executed by the simulator of test/sim: every operation and the trainer, under several orders of threads, warps,
# blocks and streams (seeds), with the race detector, and under AddressSanitizer. `make sim` builds what it runs; test_sim_runs.sh has whole runs.
. test/support/lib.sh
sim=$top/build/sim race=$top/build/sim-race asan=$top/build/sim-asan

# good LOG WHAT: the program that wrote it said in the way of test/run.sh that it tested something, and that all went well.
good() {
    cp "$1" "$out"
    grep -qE '^\[  PASSED  \] [1-9]|^[1-9][0-9]* passed, 0 failed' "$1" && ! grep -qE '^\[  FAILED|^simulator: [1-9][0-9]* finding' "$1" || fail "$2"
    ! grep -q '^skipped: ' "$1" || fail "$2 skipped: $(grep -m 1 '^skipped: ' "$1")"
}

# runs "SEED PROGRAM [ARGUMENT...]"...: all of them end with 0, from the top directory, two at a time: CI has two cores.
runs() {
    rm -f job-*
    n=0
    for job; do
        program=${job#* }
        [ -x "${program%% *}" ] || skip "${program%% *} is not built: make sim, which needs the CUDA toolkit's headers"
        n=$((n + 1))
        echo "$job" >"job-$n"
    done
    seq $n | xargs -P 2 -I{} sh -c 'set -- {} $(cat job-{}); here=$PWD; n=$1; export SIM_SEED="$2"; shift 2
        cd "$0" && "$@" >"$here/job-$n.log" 2>&1 </dev/null; echo $? >"$here/job-$n.end"' "$top"
    for k in $(seq $n); do
        good "job-$k.log" "$(cat "job-$k")"
        [ "$(cat "job-$k.end")" -eq 0 ] || fail "$(cat "job-$k"): ended with $(cat "job-$k.end")"
    done
}

# --- the simulator finds what was planted --------------------------------------------------------------------------------------------

bugs_in_kernels() { runs "0 $sim/test/sim/test_simt" "0 $race/test/sim/test_simt" "0 $asan/test/sim/test_simt 3"; }
bugs_on_the_host() { runs "0 $sim/test/test_cudart" "0 $race/test/test_cudart"; }

# What CI proves rests on the models being the instructions: `make gpu-check` runs the same program on a GPU.
models_of_instructions() { runs "1 $sim/test/sim/test_wrappers" "2 $race/test/sim/test_wrappers" "3 $asan/test/sim/test_wrappers"; }

# --- operations and the trainer ------------------------------------------------------------------------------------------------------

# Matrix products: which plan is taken, kept, stored, refused.
products() {
    t=test/test_cublaslt
    runs "0 $sim/$t" "2 $sim/$t" "2 $asan/$t"
}

# The longest first, so that two cores end together. Four orders plain: two of them with all that a row promises, two with one execution of it.
operations_and_the_trainer() {
    o="test/test_ops --device cuda" t=test/test_device
    runs "2 $race/$t" "2 $asan/$o --once" "1 $race/$o --once" "2 $race/$o --once" "0 $sim/$t" "3 $sim/$t" \
        "0 $sim/$o" "3 $sim/$o" "1 $sim/$o --once" "2 $sim/$o --once"
}

try bugs_in_kernels
try bugs_on_the_host
try models_of_instructions
try products
try operations_and_the_trainer
finish
