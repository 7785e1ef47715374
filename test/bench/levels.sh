#!/bin/sh
# test/bench/levels.sh BIN MBIT OTHER: what it is worth that sums and pieces stay inside a machine first, as Markdown: 2
# nodes of 4 ranks in network namespaces, whose cable (test/support/lossy.c) carries so many megabits a second, by this
# build and another one, in turns. ms of a step, the median of a run's, and the bytes between nodes of each. Needs root,
# for the namespaces. Run it on a quiet machine.
LOCKSTEP_BIN=${1:-./lockstep}
mbit=${2:-100} other=$(realpath "$3") || exit 64
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"
name=levels steps=${STEPS:-8} here=$bin
common="device.threads=1 log.watch=no eval.every=0 checkpoint.every=0 run.steps=$steps
    model.layers=3 model.embed=256 model.heads=4 batch.global=8 batch.micro=1 batch.lanes=8"

median() { sed -n 's/^{"t":"step",.*"ms":\([0-9.]*\).*/\1/p' "$1/log.jsonl" | sed 1,2d | sort -g |
    awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }
far_bytes() { "$bin" plan base.ini "$1.ini" | sed -n '/^traffic/,/^messages/s/^  by all .* of these \([0-9]*\) between nodes.*/\1/p'; }

printf '\n2 nodes of 4 ranks, %s Mbit/s\n\n| order, zero | ms of a step | the other build | MB between nodes | the other build |\n|---|---|---|---|---|\n' "$mbit"
for order in fixed any; do
    for zero in 0 1 3; do
        row="| $order, $zero"
        ms='' far=''
        for build in "$here" "$other"; do
            bin=$build run=$order-$zero-$([ "$build" = "$here" ] && echo this || echo other)
            lossy 0 0 4 4
            together "$run" $common reduce.order=$order parallel.zero=$zero
            boot "$run"
            ended 0
            ms="$ms | $(median "node0/runs/$run")"
            far="$far | $(far_bytes "$run" | awk '{ printf "%.1f", $1 / 1e6 }')"
            reap
        done
        echo "$row$ms$far |"
    done
done
