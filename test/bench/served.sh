#!/bin/sh
# test/bench/served.sh LOCKSTEP TEXT [SEED...]: one worker of four at a quarter of the others' speed: how long sync, hybrid,
# bounded and async servers take to a given loss, as Markdown. A small GPT on TEXT, AdamW, four workers and one server on
# this machine. A micro-batch takes 10 ms longer than it does, and the slow worker's four times as long as that, asleep,
# so that cores don't decide. The loss is that of validation, after every 20 steps; a step has as many samples in each
# mode; bounded and async make four updates of it, and have a learning rate of their own. STEPS: of a run (400). LR: 0.002.
# LR_ASYNC: 0.001. TIMEOUTS: how long hybrid waits for late ones, a run for each (0.02): the slow worker is 0.03 late.
set -u
bin=$(realpath "$1") text=$(realpath "$2")
shift 2
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
cat >base.ini <<END
[run]
dir = runs
steps = ${STEPS:-400}
[device]
backend = cpu
ranks = 5
threads = 1
[data]
train = data-train-*.bin
val = data-val-*.bin
[pack]
input = $text
output = data
[model]
layers = 2
embed = 64
heads = 4
context = 64
[batch]
global = 16
micro = 4
lanes = 4
[optimizer]
lr = ${LR:-0.002}
[schedule]
type = constant
warmup = 20
[parallel]
zero = 1
[server]
count = 1
every = 20
timeout = 0.02
[eval]
every = 20
batches = 20
[checkpoint]
every = 0
[sample]
tokens = 0
[log]
watch = no
every = 1
END
"$bin" pack base.ini >/dev/null || exit 1

# run NAME SETTING...: leaves "seconds loss" of each evaluation in NAME.curve, and the last line `served` in NAME.stale.
run() {
    name=$1
    rm -rf "runs/$name"
    shift
    "$bin" base.ini -o run.name="$name" -o "run.faults=${FAULTS}" "$@" >"$name.out" 2>&1 || { tail "$name.out"; exit 1; }
    awk -F '[:,}]' '/"t":"step"/ { for (i = 1; i < NF; i++) if ($i == "\"ms\"") s += $(i + 1) / 1000 }
        /"t":"eval"/ { for (i = 1; i < NF; i++) if ($i == "\"loss\"") print s, $(i + 1) }' "runs/$name/log.jsonl" >"$name.curve"
    grep '^served' "$name.out" >"$name.stale"
}

# reached NAME LOSS: seconds until an evaluation is at most so high.
reached() { awk -v l="$2" '$2 <= l { printf "%.1f", $1; found = 1; exit } END { if (!found) printf "-" }' "$1.curve"; }

FAULTS="drag@1x100000000,quarter@1x100000000:1"
for seed in ${*:-1}; do
    run sync -o run.seed="$seed" -o server.mode=sync
    hybrids=
    for t in ${TIMEOUTS:-0.02}; do
        run "hybrid-$t" -o run.seed="$seed" -o server.mode=hybrid -o server.timeout="$t"
        hybrids="$hybrids hybrid-$t"
    done
    for mode in bounded async; do run "$mode" -o run.seed="$seed" -o server.mode=$mode -o optimizer.lr="${LR_ASYNC:-0.001}"; done
    losses=$(awk 'NR == 4 || NR == 8 || NR == 16 { printf "%.2f ", $2 }' sync.curve)
    printf '\nseed %s: seconds of steps until the loss of validation is\n\n| |' "$seed"
    for l in $losses; do printf ' %s |' "$l"; done
    printf ' in the end |\n|---|'
    for l in $losses last; do printf -- '---|'; done
    echo
    for mode in sync $hybrids bounded async; do
        printf '| %s |' "$mode"
        for l in $losses; do printf ' %s |' "$(reached $mode "$l")"; done
        tail -n 1 "$mode.curve" | awk '{ printf " %.3f after %.1f s |\n", $2, $1 }'
    done
    for mode in $hybrids bounded async; do echo; echo "$mode: $(cut -d ' ' -f 2- <"$mode.stale")"; done
done
