#!/bin/sh
# test/bench/sooner.sh BIN TEXT [MBIT [SEED...]]: which way of sharing what is learned reaches a loss first where wires
# are thin, as Markdown: without codes, with int8 both ways, and as 4 islands that mix their weights every 10 steps
# (nesterov, int8, moments of their own). The GPT of outer.sh (0.8 M parameters, 16 samples of 64 bytes of TEXT a step).
#
# A run has the same bits over any cables. So what it learns is measured on this machine, in memory: the loss of
# validation after every 50 steps of STEPS (600). What a step takes is measured on 4 nodes of one rank in network
# namespaces, whose cables carry so many megabits a second (100): the median of 40 steps, and for islands that of steps
# with a boundary and of those without, as many of each as there are. Needs root, for the namespaces. What else the
# machine does makes steps longer: the load is printed. LOSSES: which ones are looked for.
LOCKSTEP_BIN=${1:-./lockstep} text=$(realpath "${2:?the text to train on}") rate=${3:-100}
[ $# -gt 3 ] && shift 3 || set -- 1
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"
. "$top/test/support/cables.sh"
steps=${STEPS:-600} losses=${LOSSES:-"2.7 2.6 2.5 2.4 2.3 2.25"} timed=41 every=10
ini >base.ini <<END
run dir=runs steps=$steps
device threads=1
model layers=4 heads=4 embed=128 context=64
data train=data/t-train-*.bin val=data/t-val-*.bin
pack input=$text output=data/t tokenizer=bytes
batch global=16 micro=4 lanes=4
optimizer type=adamw lr=1e-3 beta1=0.9 beta2=0.99 grad_clip=1
schedule type=cosine warmup=20
checkpoint every=0 keep_best=no
eval every=50 batches=32
sample tokens=0
log watch=no every=1
cluster timeout=900
END
timeout 100 "$bin" pack base.ini >"$out" 2>&1 || fail "packing $text"

settings_of() { # WAY
    case $1 in
    plain) ;;
    int8) echo reduce.compress=int8 reduce.compress_back=int8 ;;
    islands) echo outer.islands=4 outer.every=$every outer.type=nesterov outer.compress=int8 outer.moments=own ;;
    esac
}

median() { sort -g | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }

# stretch DIR WITH: ms of its steps after which islands mix (1), or of the others (0), the first one left out.
stretch() {
    sed -n 's/^{"t":"step","step":\([0-9]*\),.*"ms":\([0-9.]*\).*/\1 \2/p' "$1/log.jsonl" |
        awk -v every=$every -v with="$2" '$1 > 1 && ($1 % every == 0) == with { print $2 }' | median
}

# ms_of WAY: of a step, over cables.
ms_of() {
    shaped "$rate" 1 1 1 1
    together far $(settings_of "$1") run.seed=1 run.steps=$timed eval.every=0
    [ "$1" != islands ] || together far $(settings_of "$1") run.seed=1 run.steps=$((timed - 1)) eval.every=0
    rm -rf node?/runs/far
    boot far
    ended 0
    reap
    awk -v a="$(stretch node0/runs/far 0)" -v b="$(stretch node0/runs/far 1)" -v n=$every -v way="$1" \
        'BEGIN { print way == "islands" ? ((n - 1) * a + b) / n : a }' >"$1.ms"
}

# curve DIR: lines "step loss".
curve() { sed -n 's/^{"t":"eval","step":\([0-9]*\),.*"loss":\([0-9.]*\).*/\1 \2/p' "$1/log.jsonl"; }

# reached LOSS MS <CURVE: seconds after which the loss is so low, between two evaluations by a line; "-": it never is.
reached() {
    awk -v want="$1" -v ms="$2" '$2 <= want && !at { at = NR == 1 ? $1 : t + ($1 - t) * (x - want) / (x - $2) }
        { t = $1; x = $2 } END { if (at) printf "%.1f", at * ms / 1000; else printf "-" }'
}

for way in plain int8 islands; do ms_of $way; done
printf '\n%s, 4 nodes, %s Mbit/s (%s), load %s\n' "$("$bin" version | head -n 1)" "$rate" "$shaper" \
    "$(cut -d ' ' -f 1 /proc/loadavg)"
for seed; do
    printf '\n| seed %s | ms of a step | loss |' "$seed"
    for l in $losses; do printf ' s to %s |' "$l"; done
    printf '\n|---|---|---|'
    for l in $losses; do printf -- '---|'; done
    echo
    for way in plain int8 islands; do
        settings near $(settings_of $way) run.seed="$seed" device.ranks=4
        rm -rf runs/near
        "$bin" base.ini near.ini >"$out" 2>&1 || fail "$way"
        curve runs/near >$way.curve
        ms=$(cat $way.ms)
        printf '| %s | %.0f | %.4f |' $way "$ms" "$(awk 'END { print $2 }' $way.curve)"
        for l in $losses; do printf ' %s |' "$(reached "$l" "$ms" <$way.curve)"; done
        echo
    done
    printf '\nloss after each 50 steps:\n\n```\n'
    for way in plain int8 islands; do echo "$way $(awk '{ printf " %.3f", $2 }' $way.curve)"; done
    printf '```\n'
done
