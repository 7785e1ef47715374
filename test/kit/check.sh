#!/bin/sh
# check.sh: test/gpu_check.sh of the kit, from wherever the kit is. Standard output is the page.
cd "$(dirname "$0")" || exit 1
LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} LOCKSTEP_NEED_GPU=1
export LD_LIBRARY_PATH LOCKSTEP_NEED_GPU
exec sh test/gpu_check.sh build build/lockstep
