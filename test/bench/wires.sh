#!/bin/sh
# test/bench/wires.sh BIN [MBIT...]: what [reduce] compress is worth where wires are thin, as Markdown: 4 nodes of one
# rank, each with a lane, in network namespaces whose cables carry so many megabits a second (100), by
# test/support/lossy.c; and on one machine, in memory. ms of a step, the median of a run's, and what a rank sends. All
# runs of a codec must come to one hash. OPTIMIZERS: adamw, sgd or both. Needs root, for the namespaces. Run it on a
# quiet machine.
LOCKSTEP_BIN=${1:-./lockstep}
[ $# -eq 0 ] || shift
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"
steps=${STEPS:-12} zero=${ZERO:-0}
common="device.threads=1 log.watch=no eval.every=0 checkpoint.every=0 run.steps=$steps parallel.zero=$zero
    model.layers=3 model.embed=256 model.heads=4 batch.global=4 batch.micro=1 batch.lanes=4 data.shuffle=yes"
plain=$common
# adamw and sgd: what is compared under each.
under() {
    optimizer=$1
    case $1 in
    adamw) codecs="none none|fp16 none|int8 none|int8 int8" common=$plain ;;
    sgd)
        codecs="none none|int8 int8|topk none"
        common="$plain optimizer.type=sgd optimizer.lr=0.1 optimizer.momentum=0.9 optimizer.grad_clip=0"
        ;;
    esac
}

median() { sed -n 's/^{"t":"step",.*"ms":\([0-9.]*\).*/\1/p' "$1/log.jsonl" | sed 1,2d | sort -g |
    awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }
sent() { "$bin" plan base.ini "$1.ini" | sed -n 's/^  sent by a rank .*  \([0-9.]* [kMG]B\)$/\1/p'; }
row() { # NAME DIR INI: prints it, beside the first row of its table
    ms=$(median "$2")
    first=${first:-$ms}
    echo "| $1 | $ms | $(awk -v a="$first" -v b="$ms" 'BEGIN { printf "%.2f", a / b }') | $(sent "$3") | $(sed -n 's/.*"hash":"\([0-9a-f]*\)".*/\1/p' "$2/log.jsonl" | tail -n 1) |"
}
head_of() { printf '\n%s\n\n| there, back | ms of a step | times as many steps | sent by a rank | hash |\n|---|---|---|---|---|\n' "$1"; }

each_codec() { # what runs one: its name and settings follow
    first=
    echo "$codecs" | tr '|' '\n' >codecs
    while read -r there back; do
        name=$optimizer-$there-$back
        "$1" "$name" reduce.compress="$there" reduce.compress_back="$back"
    done <codecs
}
far_one() {
    run=$1
    shift
    mbit=$cable_mbit
    lossy 0 0 1 1 1 1
    together "$run" $common "$@"
    boot "$run"
    ended 0
    row "$(echo "${run#*-}" | tr '-' ' ')" "node0/runs/$run" "$run"
    reap
}
near_one() {
    run=$1
    shift
    settings "$run" $common "$@" device.ranks=4
    timeout 300 "$bin" base.ini "$run.ini" >"$out" 2>&1 || fail "$run"
    row "$(echo "${run#*-}" | tr '-' ' ')" "runs/$run" "$run"
}

thin() {
    head_of "4 nodes, $cable_mbit Mbit/s, zero = $zero, $optimizer"
    each_codec far_one
}
memory() {
    head_of "4 ranks of one machine, shared memory, zero = $zero, $optimizer"
    each_codec near_one
}
for each in ${OPTIMIZERS:-adamw sgd}; do
    under $each
    for cable_mbit in ${*:-100}; do thin; done
    memory
done
