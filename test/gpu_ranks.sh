#!/bin/sh
# test/gpu_ranks.sh [CASE...]: 1 to 4 NCCL ranks on one GPU, in every ZeRO stage, have the hashes of one rank. Part of
# `make gpu-check`. NCCL is the file in NCCL_LIBRARY, or whatever a run finds by itself; the last line but one says
# which.
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/gpu_ranks.sh"

prepare() { gpu_runs "[reduce]" "transport = nccl" "nccl_library = ${NCCL_LIBRARY:-}"; }
one_rank() { prepare && dealt one 1; }
two_ranks() { prepare && dealt two 2 parallel.zero=1; }
three_ranks() { prepare && dealt three 3 parallel.zero=2 precision.compute=bf16; }
four_ranks() { prepare && dealt four 4 parallel.zero=3 precision.compute=fp16; }

[ $# -gt 0 ] || set -- one_rank two_ranks three_ranks four_ranks
for each; do try "$each"; done
sed -n 's/^ranks  .*  \(nccl .*\)/with: \1/p' gpu/node0/out 2>/dev/null
finish
