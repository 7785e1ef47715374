#!/bin/sh
# test/test_lies.sh: ranks that should hold the same and do not, and steps that are skipped: found and decided alike in
# every layout, and the bits are those of one rank, or of the undisturbed run.
. test/support/runs.sh
plain="device.threads=1 log.watch=no run.steps=40 checkpoint.every=20 eval.every=0 parallel.slices=2"
quick="device.threads=1 log.watch=no run.steps=40 eval.every=0 parallel.slices=2"
elastic="log.hash_every=0 cluster.elastic=yes snapshot.every=4"
healing="$plain $elastic"

settings whole $plain
undisturbed() { expect 0 train whole; }

# --- what ranks hold -------------------------------------------------------------------------------------------------

# lies NAME RANKS FAULT EVENT OVERRIDE...: a run that heals: EVENT says who lied, and nothing is left of it.
lies() {
    run=$1 ranks=$2 fault=$3 said=$4
    shift 4
    settings "$run" $healing "device.ranks=$ranks" "run.faults=$fault" "$@"
    expect 0 train "$run"
    event "$run" lie "$said"
    event "$run" back "to the snapshot in memory"
    same_state whole "$run"
}
# In step 14, found at the snapshot after step 16. The sums of the steps between are wrong on all ranks.
in_a_replica() {
    lies three 3 lie@14:2 "rank 2 (localhost) holds other values than those that should hold the same after step 16"
    event three lie '"step":16' "ln_f.bias" "after step 12 it was the same" "all ranks go back"
    event three back "from step 16 back to step 12"
    expect 0 "$bin" status runs/three
    says "lies      1 in 24 h" "rank 2 (localhost) holds other values"
}
# A checkpoint is due before a snapshot.
before_a_checkpoint() {
    settings soon $quick $elastic device.ranks=3 checkpoint.every=5 run.faults=lie@14:1
    expect 0 train soon
    event soon lie "rank 1 (localhost) holds other values"
    event soon back "from step 15 back to step 12"
    same_state whole soon
}
one_of_two() {
    lies two 2 lie@14:1 "rank 0 (localhost) and rank 1 (localhost) do not hold the same, and no third"
    event two liar '"step":16' "after step 16 it was rank 1 (localhost) that held other values"
}
# A tensor of 32 bytes: a word of the sum is not full.
in_a_small_tensor() {
    settings small $plain $elastic model.embed=8 model.heads=2 device.ranks=3 run.faults=lie@14:2
    expect 0 train small
    event small lie '"step":16' "rank 2 (localhost) holds other values" "ln_f.bias"
}
# Of four that are two groups of two, both ways, it is the one that differs in both.
in_two_groups() { lies square 4 lie@14:3 "rank 3 (localhost, data 1, tensor 1) holds other" parallel.tensor=2; }
# ZeRO 1 keeps weights in use whole; each update overwrites them with what their owner has.
of_weights_in_use() {
    lies zero1 3 lie@16:0 "rank 0 (localhost) holds other values" parallel.zero=1
    settings bf16 $plain precision.compute=bf16
    expect 0 train bf16
    settings bf16zero1 $healing precision.compute=bf16 device.ranks=3 parallel.zero=1 run.faults=lie@16:0
    expect 0 train bf16zero1
    event bf16zero1 lie "rank 0 (localhost) holds other values" "ln_f.bias in use"
    same_state bf16 bf16zero1
}
# Whoever it is, it goes on lying.
one_of_two_again() {
    settings pair $healing device.ranks=2 "run.faults=lie@6x20:0"
    expect 70 train pair
    says "rank 0 (localhost) and rank 1 (localhost) do not hold the same" "the first time"
}
again_and_again() {
    settings again $healing device.ranks=3 run.faults=lie@6x30:1
    expect 70 train again
    says "rank 1 (localhost) holds other values than those that should hold the same after step 8" "the first time" \
        "Look at that machine's memory"
}
# A process that was started again knows nothing of its first lie. The others do.
in_another_world() {
    settings reborn $healing device.ranks=3 "run.faults=lie@14x30:2, unit@66:2"
    expect 70 train reborn
    [ "$(grep -c '"kind":"lie"' runs/reborn/events.jsonl)" -eq 2 ] || fail "expected two lies"
    event reborn healed "rank 2 (localhost) was killed by signal 9 (Killed)"
    says "rank 2 (localhost) holds other values" "the first time"
}
in_a_run_that_does_not_heal() {
    settings mortal $quick device.ranks=3 log.hash_every=0 checkpoint.every=10 run.faults=lie@14:2
    expect 69 train mortal
    says "rank 2 (localhost) holds other values" "ln_f.bias" "the same command continues after step 10"
    [ ! -e runs/mortal/ckpt/step-00000020 ] || fail "a state that differs was saved"
    settings mortal $quick device.ranks=3 log.hash_every=0 checkpoint.every=10
    expect 0 train mortal
    same_state whole mortal
}
# What was said of the loss before is of steps that are taken again: where it is as bad again, it is said again.
of_a_run_that_is_ruined() {
    settings ruined device.threads=1 log.watch=no eval.every=0 $elastic device.ranks=3 run.steps=170 \
        schedule.type=constant optimizer.lr=3 run.faults=lie@102:2
    expect 0 train ruined
    event ruined lie "rank 2 (localhost) holds other values"
    [ "$(grep -c '"kind":"ruined"' runs/ruined/events.jsonl)" -eq 2 ] || fail "expected to hear twice that it is ruined"
}
# Then it is not noticed: the test of the tests.
without_comparing() {
    settings blind $healing device.ranks=3 run.faults=lie@14:2 checkpoint.compare=no
    expect 0 train blind
    differ whole blind
}
differ() {
    [ "$("$bin" hash "runs/$1" | cut -d ' ' -f 1,2)" != "$("$bin" hash "runs/$2" | cut -d ' ' -f 1,2)" ] ||
        fail "$1 and $2 have the same weights"
}

# --- steps that are skipped ------------------------------------------------------------------------------------------

# skips NAME OVERRIDE...: outliers, and a gradient that is not finite in one rank's part: as in one rank's run.
outliers="device.threads=1 log.watch=no checkpoint.every=20 eval.every=0 parallel.slices=2 optimizer.skip_norm=0.88"
all="run.steps=40"
settings out $outliers $all run.faults=nan@21
skips_in_one() {
    expect 0 train out
    n=$(grep -c '"why":"outlier"' runs/out/log.jsonl)
    [ "$n" -ge 2 ] || fail "$n steps were outliers"
    grep '"step":21,' runs/out/log.jsonl | grep -q '"skipped":true.*"why":"not finite"' || fail "step 21 was not skipped"
    event out skipped '"step":21' "the gradient is not finite"
    event out skipped "times the mean of those before" "more than [optimizer] skip_norm = 0.88"
}
skips() {
    run=$1 fault=$2
    shift 2
    settings "$run" $outliers $all "run.faults=$fault" "$@"
    expect 0 train "$run"
    same_steps out "$run"
    same_state out "$run"
}
skips_in_all_layouts() {
    skips d3 nan@21:1 device.ranks=3
    skips z2 nan@21:2 device.ranks=4 parallel.zero=2
    skips t2z3 nan@21:3 device.ranks=4 parallel.tensor=2 parallel.zero=3
    skips p2 nan@21:1 device.ranks=2 parallel.pipeline=2
    skips off nan@21:0 device.ranks=2 parallel.offload=yes
    skips heals "nan@21:1, lie@25:2" device.ranks=3 cluster.elastic=yes snapshot.every=4
}
# The mean goes on where it was.
skips_after_a_restart() {
    settings cut $outliers run.steps=23 run.faults=nan@21
    expect 0 train cut
    settings cut $outliers $all device.ranks=3
    expect 0 train cut
    same_state out cut
}
# A fork keeps the mean, or drops it where nothing is skipped.
forks() {
    for norm in 0 5; do
        settings "fork$norm" run.steps=43 optimizer.skip_norm=$norm
        expect 0 "$bin" fork runs/out "fork$norm" "fork$norm.ini"
        expect 0 "$bin" "runs/fork$norm/config.ini"
        n=$(sed -n 's/.*"norms": \([0-9]*\).*/\1/p' "runs/fork$norm/ckpt/step-00000043/manifest.json")
        [ "${n:-0}" -ge $((norm * 4)) ] && [ "${n:-0}" -le $((norm * 9)) ] || fail "skip_norm $norm: ${n:-no} norms"
    done
}
stops_after_so_many() {
    settings many $outliers $all device.ranks=3 run.faults=nan@10x100:1 run.bad_steps=6
    expect 75 train many
    says "stopped by [run] bad_steps = 6" "in steps 10 to 15" "skip_norm"
}

try undisturbed
try in_a_replica
try before_a_checkpoint
try one_of_two
try in_a_small_tensor
try one_of_two_again
try in_two_groups
try of_weights_in_use
try again_and_again
try in_another_world
try in_a_run_that_does_not_heal
try of_a_run_that_is_ruined
try without_comparing
try skips_in_one
try skips_in_all_layouts
try skips_after_a_restart
try forks
try stops_after_so_many
finish
