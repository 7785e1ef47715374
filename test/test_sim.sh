#!/bin/sh
# test/test_sim.sh: the CUDA backend, executed by the simulator of test/sim: every operation and the whole trainer, under several orders of threads,
# warps, blocks and streams (seeds), with the race detector, and under AddressSanitizer. `make sim` builds what it runs.
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/gpu_ranks.sh"
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

# --- operations ----------------------------------------------------------------------------------------------------------------------

operations() {
    o="test/test_ops --device cuda"
    runs "2 $asan/$o --once" "1 $race/$o --once" "2 $race/$o --once" "3 $race/$o --once" "0 $sim/$o" "1 $sim/$o" "2 $sim/$o" "3 $sim/$o" "4 $sim/$o"
}

# --- the trainer ---------------------------------------------------------------------------------------------------------------------

trainer() {
    t=test/test_device
    runs "2 $race/$t" "0 $sim/$t" "3 $sim/$t"
}

# Several ranks, through the stand-in for NCCL that knows streams.
ranks() {
    bin=$sim/lockstep
    [ -x "$bin" ] || skip "$bin is not built: make sim, which needs the CUDA toolkit's headers"
    export SIM_SEED=2
    gpu_runs "[reduce]" "transport = nccl" "nccl_library = $sim/test/libnccl-sim.so"
    dealt two 2 parallel.zero=1
    dealt three 3 parallel.zero=2 precision.compute=bf16
    dealt four 4 parallel.zero=3 precision.compute=fp16 device.graph=no
}

# Steps that are queued before the one ahead of them is told say the same, end in the same weights, and stop together.
ahead() {
    bin=$sim/lockstep
    [ -x "$bin" ] || skip "$bin is not built: make sim, which needs the CUDA toolkit's headers"
    export SIM_SEED=3
    gpu_runs "[reduce]" "transport = nccl" "nccl_library = $sim/test/libnccl-sim.so"
    for ranks in 1 2; do
        settings "told-$ranks" device.ranks=$ranks run.steps=9
        settings "late-$ranks" device.ranks=$ranks run.steps=9 log.hash_every=9 eval.every=9
        for run in told late; do
            SIM_DEVICES=$ranks expect 0 timeout 100 "$bin" base.ini "$run-$ranks.ini"
            sed -n 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*/\1 \2 \3/p' "runs/$run-$ranks/log.jsonl" >"$run.said"
            "$bin" hash "runs/$run-$ranks/ckpt/step-00000009" | sed 's/  [^ ]*$//' >>"$run.said"
        done
        [ "$(wc -l <told.said)" -eq 10 ] || fail "$(wc -l <told.said) lines, expected 9 steps and the hashes"
        same told.said late.said "what $ranks ranks say of their steps at once and one step late"
    done
    settings stopped run.steps=1000000 log.hash_every=0 eval.every=0
    start "$bin" base.ini stopped.ini
    until_true 60 grep -sq '"step":20,' runs/stopped/log.jsonl
    kill -TERM "$pid"
    comes_to 75
    last=$(sed -n 's/^{"t":"step","step":\([0-9]*\),.*/\1/p' runs/stopped/log.jsonl | tail -n 1)
    [ -d "$(printf 'runs/stopped/ckpt/step-%08d' "$last")" ] || fail "the last step told is $last; saved: $(ls runs/stopped/ckpt)"
}

# What the device says when something is wrong, for the person who has to mend it: the kernel by name, file and line.
failures() {
    bin=$sim/lockstep
    [ -x "$bin" ] || skip "$bin is not built: make sim, which needs the CUDA toolkit's headers"
    gpu_runs
    settings bad device.check=yes
    SIM_FAIL=norm_backward@3 expect 70 timeout 100 "$bin" base.ini bad.ini
    says norm_backward "gpu/cuda/norm.cu:" "failed on the device" cudaErrorIllegalAddress
    settings late device.check=no
    SIM_FAIL=norm_backward@3 expect 70 timeout 100 "$bin" base.ini late.ini
    says "the device failed" cudaErrorIllegalAddress "[device] check = yes" "gpu/cuda/"
    SIM_DRIVER=12000 expect 69 timeout 100 "$bin" base.ini late.ini
    says "the driver is for CUDA 12.0" "update it"
    SIM_DEVICES=0 expect 69 timeout 100 "$bin" base.ini late.ini
    says "nvidia-smi"
    SIM_BUSY=1 expect 69 timeout 100 "$bin" base.ini late.ini
    says "another process has the GPU to itself"
    SIM_CAPABILITY=75 expect 69 timeout 100 "$bin" base.ini late.ini
    says "compute capability 7.5, expected 8.0"
    SIM_MEMORY=40 expect 69 timeout 100 "$bin" base.ini late.ini
    says "lower [batch] micro"
    settings auto device.backend=auto
    SIM_DEVICES=0 expect 0 timeout 100 "$bin" base.ini auto.ini
    says "auto chose the CPU (cuda:"
}

try bugs_in_kernels
try bugs_on_the_host
try models_of_instructions
try operations
try trainer
try ranks
try ahead
try failures
finish
