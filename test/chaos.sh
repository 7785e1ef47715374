#!/bin/sh
# test/chaos.sh: `make chaos [SEED=n] [KILLS=200]`: in each of six layouts, so many kills in one run of 4 ranks. The
# hashes of all steps and of the last state are those of one rank to which nothing happened; the witness, the rank that
# is never killed, holds no more after the last kills than after the first. What it draws depends on SEED alone, when it
# happens also on the machine. A table says how long the ranks took to go on.
#
# test/check_heal.sh is the same with fewer kills.
. test/support/runs.sh
. "$top/test/support/chaos.sh"
most=${KILLS:-200}
steps=$((100 * most + 600))
small="run.steps=$steps checkpoint.every=10 eval.every=0 device.threads=1 log.watch=no model.embed=16"
echo "SEED=$seed KILLS=$most"

# Columns: kills, losses (several kills may be one), seconds from the loss to the next world: half, 95 of 100, all.
table() {
    sed -n 's/.*"kind":"healed".* began \([0-9.]*\) s later, of which leaving took \([0-9.]*\) s.*/\1 \2/p' \
        "runs/$1/events.jsonl" | sort -n | awk -v name="$1" -v kills="$kills" '
        { at[NR] = $1; left += $2 }
        END { printf "    %-10s %d kills, %d worlds: %.3f s half, %.3f s 95 %%, %.3f s longest; leaving %.3f s on average\n",
              name, kills, NR, at[int((NR + 1) / 2)], at[int(0.95 * NR + 0.5)], at[NR], left / NR }'
}

layout() {
    run=$1
    shift
    settings "$run" $small cluster.elastic=yes cluster.heartbeat=0.2 device.ranks=4 "$@"
    chaos "$run" "$most"
    same_steps "$like" "$run"
    same_state "$like" "$run"
    table "$run"
}

settings whole $small
settings sliced $small parallel.slices=2
undisturbed() { expect 0 train whole && expect 0 train sliced; }
try undisturbed
like=whole
try zero0 layout zero0 snapshot.every=3
try zero1 layout zero1 parallel.zero=1 snapshot.every=1
try zero2 layout zero2 parallel.zero=2 snapshot.every=7
try disk layout disk parallel.zero=3 snapshot.every=0
try pipeline layout pipeline parallel.pipeline=2 parallel.zero=3 snapshot.every=2
like=sliced
try tensor layout tensor parallel.tensor=2 parallel.slices=2 snapshot.every=5
finish
