#!/bin/sh
# test/gpu_ranks.sh: 1 to 4 NCCL ranks on one GPU, in every ZeRO stage, have the hashes of one rank. Part of `make gpu-check`.
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/gpu_ranks.sh"

one_rank() { gpu_runs && dealt one 1; }
two_ranks() { gpu_runs && dealt two 2 parallel.zero=1; }
three_ranks() { gpu_runs && dealt three 3 parallel.zero=2 precision.compute=bf16; }
four_ranks() { gpu_runs && dealt four 4 parallel.zero=3 precision.compute=fp16; }

try one_rank
try two_ranks
try three_ranks
try four_ranks
finish
