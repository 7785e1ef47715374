#!/bin/sh
# test/bench/outer.sh BIN TEXT [SEED...]: what rarer synchronisation costs in loss, as Markdown: a GPT of 4 layers and
# 128 channels, context 64, on the bytes of TEXT (tinyshakespeare), 600 steps of 16 samples in 4 lanes, by 1 island, and
# by 4 that mix their weights every EVERY (10 50) steps, also in codes and with moments of their own. The loss is that
# of the last tenth of the text, which no run trains on. The figures depend on no machine, and a run takes a few minutes
# of one. FROM=STEPS: all begin with the weights of one plain run of so many steps, with their seed. MORE: settings of
# the outer optimizer that are tried beside it. CODES: of [reduce], without islands, such as "int4,none int4,int4"; with
# EVERY=" " nothing else is tried.
LOCKSTEP_BIN=${1:-./lockstep} text=$(realpath "${2:?the text to train on}")
shift 2
. test/support/lib.sh
ini >base.ini <<END
run steps=600
device ranks=4 threads=1
model layers=4 heads=4 embed=128 context=64
data train=data/t-train-*.bin val=data/t-val-*.bin
pack input=$text output=data/t tokenizer=bytes
batch global=16 micro=4 lanes=4
optimizer type=adamw lr=1e-3 beta1=0.9 beta2=0.99 grad_clip=1
schedule type=cosine warmup=20
checkpoint every=0 keep_best=no
eval every=600 batches=0
sample tokens=0
log watch=no
cluster timeout=900
END
timeout 100 "$bin" pack base.ini >"$out" 2>&1 || fail "packing $text"

row() { # NAME SEED SETTING...: prints it, beside the first row of its table
    run=$1 seed=$2
    shift 2
    settings "$run" run.seed="$seed" $from "$@"
    "$bin" base.ini "$run.ini" >"$out" 2>&1 || fail "$run"
    loss=$(sed -n 's/^{"t":"eval",.*"loss":\([0-9.]*\).*/\1/p' "runs/$run/log.jsonl" | tail -n 1)
    first=${first:-$loss}
    echo "| $run | $loss | $(awk -v a="$first" -v b="$loss" 'BEGIN { printf "%+.1f %%", 100 * (b / a - 1) }') |"
}

# The weights that the runs of a seed begin with.
before() { # SEED
    settings "before-$1" run.seed="$1" run.steps="$FROM" eval.every="$FROM" checkpoint.every="$FROM"
    "$bin" base.ini "before-$1.ini" >"$out" 2>&1 || fail "before-$1"
    from="model.init_from=runs/before-$1"
    first=$(sed -n 's/^{"t":"eval",.*"loss":\([0-9.]*\).*/\1/p' "runs/before-$1/log.jsonl" | tail -n 1)
    echo "| $FROM steps before | $first | |"
    first=
}

for seed in ${*:-1}; do
    first= from=
    printf '\n%s\n\n| seed %s | loss | against plain |\n|---|---|---|\n' "$(basename "$text"), $("$bin" version | head -n 1)" "$seed"
    [ -z "${FROM:-}" ] || before "$seed"
    row "plain-$seed" "$seed"
    for code in ${CODES:-}; do
        row "$(echo "$code" | tr , -)-$seed" "$seed" reduce.compress="${code%,*}" reduce.compress_back="${code#*,}"
    done
    for every in ${EVERY:-10 50}; do
        for type in nesterov average; do
            row "$type-$every-$seed" "$seed" outer.islands=4 outer.every="$every" outer.type=$type
        done
        for more in ${MORE:-compress=int8 moments=own compress=int8,moments=own}; do
            row "nesterov-$(echo "$more" | tr -d = | tr , -)-$every-$seed" "$seed" outer.islands=4 outer.every="$every" \
                outer.type=nesterov $(echo "outer.$more" | sed 's/,/ outer./g')
        done
    done
done
