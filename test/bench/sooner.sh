#!/bin/sh
# test/bench/sooner.sh BIN TEXT [MBIT [SEED...]]: which way of sharing what is learned reaches a loss first where wires
# are thin, as Markdown. 4 nodes of one rank, each with a lane, in network namespaces whose cables carry so many
# megabits a second (100), by test/support/lossy.c, train the GPT of wires.sh (2.4 M parameters) on 8 samples of 64
# bytes of TEXT a step: without codes, with int8 both ways, and as 4 islands that mix their weights every 10 and 50
# steps (nesterov, int8, moments of their own). The loss is of validation, after every 50 steps; the seconds are those
# of the steps, without evaluations. STEPS: 400; LOSSES: which ones are looked for. Needs root, for the namespaces. A
# run without codes takes ten minutes; what else the machine does slows all of them.
LOCKSTEP_BIN=${1:-./lockstep} text=$(realpath "${2:?the text to train on}") cable_mbit=${3:-100}
[ $# -gt 3 ] && shift 3 || set -- 1
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"
steps=${STEPS:-400} losses=${LOSSES:-"2.6 2.5 2.45 2.4 2.35"}
ini >base.ini <<END
run dir=runs steps=$steps
device threads=1
model layers=3 heads=4 embed=256 context=64
data train=data/t-train-*.bin val=data/t-val-*.bin
pack input=$text output=data/t tokenizer=bytes
batch global=8 micro=2 lanes=4
optimizer type=adamw lr=1e-3 beta1=0.9 beta2=0.99 grad_clip=1
schedule type=cosine warmup=20
checkpoint every=0 keep_best=no
eval every=50 batches=32
sample tokens=0
log watch=no every=1
cluster timeout=900
END
timeout 100 "$bin" pack base.ini >"$out" 2>&1 || fail "packing $text"

# curve DIR: lines "step seconds loss".
curve() {
    awk '{ step = $0; sub(/.*"step":/, "", step); step += 0 }
        /^{"t":"step"/ { ms = $0; sub(/.*"ms":/, "", ms); all += ms }
        /^{"t":"eval"/ { loss = $0; sub(/.*"loss":/, "", loss); printf "%d %.1f %.4f\n", step, all / 1000, loss }' "$1/log.jsonl"
}

# reached LOSS <CURVE: seconds after which the loss is so low, between two evaluations by a line; "-": it never is.
reached() {
    awk -v want="$1" '$3 <= want && !found { found = 1; print NR == 1 ? $2 : t + ($2 - t) * (x - want) / (x - $3) }
        { t = $2; x = $3 } END { if (!found) print "-" }' | awk '{ print $1 == "-" ? "-" : sprintf("%.0f", $1) }'
}

one() { # NAME SETTING...
    run=$1
    shift
    mbit=$cable_mbit
    lossy 0 0 1 1 1 1
    together "$run" run.seed="$seed" "$@"
    boot "$run"
    ended 0
    curve "node0/runs/$run" >"$run.curve"
    reap
    printf '| %s | %s | %s | %s |' "$run" "$(awk 'END { printf "%.0f", 1000 * $2 / $1 }' "$run.curve")" \
        "$(awk 'END { print $2 }' "$run.curve")" "$(awk 'END { print $3 }' "$run.curve")"
    for loss in $losses; do printf ' %s |' "$(reached "$loss" <"$run.curve")"; done
    echo
}

for seed; do
    printf '\n%s, 4 nodes, %s Mbit/s, seed %s, load %s\n\n' "$("$bin" version | head -n 1)" "$cable_mbit" "$seed" \
        "$(cut -d ' ' -f 1 /proc/loadavg)"
    printf '| | ms of a step | seconds, all | loss | %s\n|---|---|---|---|' "$(for l in $losses; do printf 's to %s | ' "$l"; done)"
    for l in $losses; do printf -- '---|'; done
    echo
    one plain
    one int8 reduce.compress=int8 reduce.compress_back=int8
    for every in 10 50; do
        one islands-$every outer.islands=4 outer.every=$every outer.type=nesterov outer.compress=int8 outer.moments=own
    done
    for run in plain int8 islands-10 islands-50; do
        printf '\n%s: step, seconds, loss\n\n```\n' "$run"
        cat "$run.curve"
        printf '```\n'
    done
done
