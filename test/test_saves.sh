#!/bin/sh
# test/test_saves.sh: checkpoints that can't be written or read in a run that heals and has its state in memory, too: it
# goes on, to the same bits, and ends only after so many in a row, or where the last one fails.
. test/support/runs.sh
. "$top/test/support/chaos.sh"
fast="device.threads=1 log.watch=no eval.every=0"
elastic="cluster.elastic=yes cluster.heartbeat=0.2 device.ranks=2"
heals="cluster.elastic=yes cluster.heartbeat=0.2 snapshot.every=4"

settings whole $fast checkpoint.every=20 run.steps=200
undisturbed() { expect 0 train whole; }

# Rank 1's disk fails from its second checkpoint on, which is of step 40: each that fails is one fsync.
# fails_for RUN TIMES:1[,FAULT...] SETTING...
fails_for() {
    run=$1 times=$2
    shift 2
    settings "$run" $fast run.steps=200 device.ranks=2 checkpoint.every=20 checkpoint.keep=1000 "run.faults=sync@3x$times" "$@"
}
misses_some() {
    fails_for some 4:1 $heals "$@"
    expect 0 train some
    event some checkpoint_failed '"step":40' "rank 1 (localhost" "fsync" "1 missed in a row; the run goes on, with its state in memory" \
        "tries again at step" ": mend that disk or make room on it. After 10 in a row the run ends"
    event some checkpoint_failed '"step":100' "4 missed in a row"
    [ -d runs/some/ckpt/step-00000020 ] && [ -d runs/some/ckpt/step-00000120 ] || fail "$(ls runs/some/ckpt)"
    [ ! -e runs/some/ckpt/step-00000080 ] || fail "step 80 is there"
    same_steps whole some
    same_state whole some
}
waiting() { misses_some; }
beside() { rm -r runs/some && misses_some checkpoint.async=yes; }

# A checkpoint between them begins the count anew, whether steps wait for it or not.
counts_in_a_row() {
    for async in no yes; do
        rm -rf runs/row
        settings row $fast $heals device.ranks=2 run.steps=200 checkpoint.every=20 checkpoint.misses=2 \
            checkpoint.async=$async "run.faults=sync@3:1, rename@7:0, write@60:1"
        expect 0 train row
        [ "$(grep -c '"checkpoint_failed".* 1 missed in a row' runs/row/events.jsonl)" = 3 ] || fail "$(grep missed runs/row/events.jsonl)"
        ! grep -q "2 missed" runs/row/events.jsonl || fail "two in a row"
    done
}
ends_after_many() {
    fails_for many 1000000:1 $heals checkpoint.misses=3
    expect 74 train many
    says "3 checkpoints in a row could not be written ([checkpoint] misses)" "it continues after step 20"
    event many checkpoint_failed '"step":80' "3 missed in a row; mend that disk"
    [ "$(last_step_of many)" = 80 ] || fail "it ended after step $(last_step_of many)"
    sed -i '/^faults/d' many.ini
    expect 0 train many
    same_steps whole many
    same_state whole many
}
# A rank that takes the place of a lost one has seen none of those before it: the ranks count alike all the same.
after_a_loss() {
    fails_for loss "1000000:1, unit@280:0" $heals checkpoint.misses=3
    expect 74 train loss
    event loss healed "rank 0 (localhost) was killed by signal 9 (Killed)"
    says "3 checkpoints in a row could not be written ([checkpoint] misses)"
    event loss checkpoint_failed '"step":80' "3 missed in a row; mend that disk"
}
last_step_of() { sed -n 's/^{"t":"step","step":\([0-9]*\),.*/\1/p' "runs/$1/log.jsonl" | tail -n 1; }
the_last_fails() {
    fails_for last 1000000:1 $heals checkpoint.misses=0
    expect 74 train last
    says "the last checkpoint, of step 200, could not be written"
    event last checkpoint_failed '"step":200' "9 missed in a row"
}
# Without snapshots, or without healing, it is as ever: nothing is counted.
without_snapshots() {
    fails_for none 8:1 checkpoint.misses=2 cluster.elastic=yes snapshot.every=0
    expect 0 train none
    fails_for rigid 8:1 checkpoint.misses=2
    expect 0 train rigid
    ! grep -q "in a row" runs/none/events.jsonl runs/rigid/events.jsonl || fail "counted"
}

# --- what is on the disk is of no use ---------------------------------------------------------------------------------

# spoiled HOW: a rank is killed, and every checkpoint is damaged, or gone. The newest one is newer than what is in memory,
# so it is read: that is of step 45, and stays so for 45 steps.
spoiled() {
    settings "$1" $fast $elastic checkpoint.every=7 snapshot.every=45 run.steps=400
    settings "$1-whole" $fast checkpoint.every=7 run.steps=400
    [ -d "runs/$1-whole" ] || expect 0 train "$1-whole"
    start "$bin" base.ini "$1.ini"
    until_true 20 has_saved "$1" 49
    ranks_of "$pid"
    kill -STOP $ranks
    case $1 in
    damaged) for each in runs/"$1"/ckpt/step-*/model*.safetensors; do printf x | dd of="$each" bs=1 seek=3000 conv=notrunc 2>"$out"; done ;;
    gone) rm -r runs/"$1"/ckpt ;;
    esac
    echo $ranks >pids
    kill -9 $(cut -d ' ' -f 1 pids)
    kill -CONT $(cut -d ' ' -f 2 pids)
    await 0
    event "$1" healed "was killed by signal 9" "from the snapshot in memory"
    same_steps "$1-whole" "$1"
    same_state "$1-whole" "$1"
}
damaged() { spoiled damaged && event damaged damaged "tensor"; }
gone() { spoiled gone; }

try undisturbed
try waiting
try beside
try counts_in_a_row
try ends_after_many
try after_a_loss
try the_last_fails
try without_snapshots
try damaged
try gone
finish
