#!/bin/sh
# test/check_kit.sh: the kit of `make gpu-kit` over the simulator: the whole page comes out in a root file system that
# has nothing but what the kit's README names. The kit for real GPUs is in check_release.sh, which compiles for them.
. test/support/lib.sh
. "$top/test/support/kit.sh"

over_the_simulator() {
    [ -x "$top/build/sim/lockstep" ] || skip "build/sim is not built: make sim"
    made sim "$top/build/gpu-kit-sim" 90
    kit "$top/build/gpu-kit-sim"
    inside GPU_CHECK=short SIM_SEED=1 NCCL_LIBRARY=/kit/build/test/libnccl-sim.so /bin/sh /kit/check.sh
    [ $got -eq 0 ] || fail "check.sh ended with $got"
    says "# simulator, " "## Operations" "## Whole training steps" "## Matrix products, measured" \
        "| operations | [  PASSED  ]" \
        "| trainer against the CPU's and PyTorch's | [  PASSED  ]" "1 passed, 0 failed, 0 skipped; nccl 2" \
        "0 failed, 0 left out for want of time, 3 for want of a tool"
    [ -z "$(ls -A "$root/tmp")" ] || fail "it left something in /tmp: $(ls -A "$root/tmp")"
}

try over_the_simulator
finish
