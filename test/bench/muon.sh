#!/bin/sh
# test/bench/muon.sh BIN TEXT [SEED...]: what the default model has learned from TEXT after the default steps, by AdamW
# and by Muon, as Markdown: the loss of validation at the end. Both are tuned alike: each learning rate of RATES_ADAMW
# and RATES_MUON with the first seed, the best one with the others too. All else is as config.ini has it. STEPS for
# fewer. The figures have the same bits on any CPU, busy or not.
LOCKSTEP_BIN=${1:-./lockstep} text=$(realpath "${2:?the text to train on}")
[ $# -gt 2 ] && shift 2 || set -- 1 2 3
. test/support/lib.sh
name=muon
adamw=${RATES_ADAMW:-"0.001 0.002 0.004 0.008 0.016"} muon=${RATES_MUON:-"0.005 0.01 0.02 0.04"}

# loss KIND RATE SEED: at the last step.
loss() {
    ini >one.ini <<END
run name=$1-$2-$3 seed=$3 steps=${STEPS:-600}
data train=data/t-train-*.bin val=data/t-val-*.bin
pack input=$text output=data/t
device threads=1
optimizer type=$1 lr=$2
eval every=${STEPS:-600} batches=64
checkpoint every=0
sample tokens=0
log watch=no
END
    [ -d data ] || timeout 100 "$bin" pack one.ini >"$out" 2>&1 || fail "packing $text"
    timeout 3600 "$bin" one.ini >"$out" 2>&1 || fail "training with $1"
    sed -n 's/^{"t":"eval","step":[0-9]*,.*"loss":\([0-9.]*\),.*/\1/p' "runs/$1-$2-$3/log.jsonl" | tail -n 1
}

for kind in adamw muon; do
    printf '\n| %s, lr | seed | loss |\n|---|---|---|\n' $kind
    : >tried
    for rate in $(eval "echo \$$kind"); do
        at=$(loss $kind "$rate" "$1")
        echo "$at $rate" >>tried
        echo "| $rate | $1 | $at |"
    done
    best=$(sort -g tried | sed -n '1s/.* //p')
    for seed; do
        [ "$seed" = "$1" ] || echo "| $best | $seed | $(loss $kind "$best" "$seed") |"
    done
done
