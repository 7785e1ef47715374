#!/bin/sh
# test/bench/watch.sh BIN [TURNS]: what it costs to watch a run, on this machine, as Markdown: the default model with
# everything on (log of each step, TensorBoard, records of ranks, watcher, live page, metrics file, report), beside the
# same with nothing on. Two lengths of a run, whose difference has no start and no end in it. Runs take turns; medians.
# Run it on a quiet machine.
set -eu
bin=${1:-./lockstep} turns=${2:-5}
case $bin in /*) ;; *) bin=$PWD/$bin ;; esac
[ -s LICENSE ] || { echo "test/bench/watch.sh: run it in the project's directory" >&2; exit 1; }
text=$PWD/LICENSE dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 143' HUP INT TERM
cd "$dir"

few=50 many=350
median() { sort -g | awk '{ x[NR] = $1 } END { print (NR % 2) ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }

printf '[pack]\ninput = %s\noutput = data\n[data]\ntrain = data-train-*.bin\nval = data-val-*.bin\n[eval]\nevery = 0\n[sample]\ntokens = 0\n[checkpoint]\nevery = 0\n[schedule]\ndecay_steps = %s\n' \
    "$text" $many >base.ini
printf '[log]\nevery = 1\nranks_every = 1\nmachine_every = 1\ntensorboard = yes\nhttp = 127.0.0.1:%s\nprom_file = lockstep.prom\n' $((20000 + $$ % 10000)) >on.ini
printf '[log]\nevery = 1000000\nranks_every = 0\njsonl = no\nwatch = no\nreport = no\n' >off.ini
"$bin" pack base.ini >/dev/null

# run on|off STEPS: its seconds.
run() {
    printf '[run]\nname = %s\nsteps = %s\n' "$1" "$2" >steps.ini
    rm -rf "runs/$1"
    from=$(date +%s%N)
    "$bin" base.ini "$1.ini" steps.ini >"$1.out" 2>&1
    echo $((($(date +%s%N) - from) / 1000))
}

for turn in $(seq "$turns"); do
    for each in on off; do
        short=$(run $each $few)
        long=$(run $each $many)
        awk -v a="$short" -v b="$long" -v n=$((many - few)) 'BEGIN { printf "%.4f\n", (b - a) / n / 1000 }' \
            >>"$each.all"
    done
done
for each in on off; do median <"$each.all" >"$each"; done
echo "| a step of the default model | ms | / nothing on |"
echo "|---|---|---|"
echo "| nothing on | $(cat off) | 1.000 |"
awk -v a="$(cat on)" -v b="$(cat off)" 'BEGIN { printf "| everything on | %s | %.4f |\n", a, a / b }'
