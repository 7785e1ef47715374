#!/bin/sh
# test/bench/levels.sh BIN MBIT OTHER: what it is worth that sums and pieces stay inside a machine first, as Markdown: 2
# nodes of 4 ranks in network namespaces, whose cable carries so many megabits a second, by this build and another one,
# in turns ($ROUNDS, 2). ms of a step, the median of all runs', and the bytes between nodes of each. With order = fixed
# both builds must come to one hash. Needs root, for the namespaces. Run it on a quiet machine.
#
# For OTHER build one to which all ranks are alike:
#     sed -i 's/c->place\[r\].node + 1/r + 1/; s/c->place\[r\].node/r/; s/\[l->place\[r\].node\]/[r]/
#         s/ + c->place\[r\].local//; s/ + l->place\[root\].local//' comm/levels.c
#     sed -i 's/at == 0   ? false/at < LEVELS - 1 ? false/' comm/reduce.c
LOCKSTEP_BIN=${1:-./lockstep}
mbit=${2:-100} rate=$mbit other=$(realpath "$3") || exit 64
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"
. "$top/test/support/cables.sh"
name=levels steps=${STEPS:-12} here=$bin
common="device.threads=1 log.watch=no eval.every=0 checkpoint.every=0 run.steps=$steps
    model.layers=3 model.embed=256 model.heads=4 batch.global=8 batch.micro=1 batch.lanes=8"

step_ms() { sed -n 's/^{"t":"step",.*"ms":\([0-9.]*\).*/\1/p' "$1/log.jsonl" | sed 1,2d; }
median() { sort -g | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }
hash_of() { sed -n 's/.*"hash":"\([0-9a-f]*\)".*/\1/p' "$1/log.jsonl" | tail -n 1; }
far_bytes() { "$bin" plan base.ini "$1.ini" | sed -n '/^traffic/,/^messages/s/^  by all .* of these \([0-9]*\) between nodes.*/\1/p'; }

# one BUILD NAME: a run; its times are added to NAME.ms.
one() {
    bin=$1 run=$2
    shaped "$rate" 4 4
    together "$run" $common reduce.order=$order parallel.zero=$zero
    rm -rf node?/runs/"$run"
    boot "$run"
    ended 0
    step_ms "node0/runs/$run" >>"$run.ms"
    hash_of "node0/runs/$run" >"$run.hash"
    reap
}

printf '\n2 nodes of 4 ranks, %s Mbit/s\n\n| order, zero | ms of a step | the other build | MB between nodes | the other build |\n|---|---|---|---|---|\n' "$rate"
for order in fixed any; do
    for zero in 0 1 3; do
        this=this-$order-$zero that=other-$order-$zero
        for round in $(seq "${ROUNDS:-2}"); do
            one "$here" $this
            one "$other" $that
        done
        [ $order = any ] || cmp -s $this.hash $that.hash || fail "zero $zero: the builds come to unlike hashes"
        bin=$here this_far=$(bin=$here far_bytes $this) that_far=$(bin=$other far_bytes $that)
        echo "$order, $zero $(median <$this.ms) $(median <$that.ms) $this_far $that_far" |
            awk '{ printf "| %s %s | %.0f | %.0f | %.1f | %.1f |\n", $1, $2, $3, $4, $5 / 1e6, $6 / 1e6 }'
    done
done
printf '\ncables: %s\n' "$shaper"
