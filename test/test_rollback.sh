#!/bin/sh
# test/test_rollback.sh: [optimizer] rollback: a run meets data on which its loss leaps up, goes back to before it, and
# leaves it out: to the same bits on any ranks, from any stored state, and after a kill at any moment.
. test/support/runs.sh

# A text that is learned quickly, with noise for three steps from step 61 on, and for six from step 90 on. A step reads
# 8 windows of 32 bytes, and looks one byte ahead.
lines() { awk -v n="$1" 'BEGIN { for (i = 0; i < 8 * n; i++) print "abcdefghijklmnopqrstuvwxyz01234" }'; }
noise() {
    awk -v n="$1" 'BEGIN { srand(7); for (i = 0; i < 8 * n; i++) { line = ""
        for (k = 0; k < 31; k++) line = line sprintf("%c", 33 + int(90 * rand())); print line } }'
}
{ lines 60; noise 3; lines 26; noise 6; lines 40; } >text.txt
rm -f data/*
"$bin" pack base.ini -o pack.val_fraction=0.05 >"$out" 2>&1 || { cat "$out"; echo "0 passed, 1 failed"; exit 1; }
common="device.threads=1 data.shuffle=no data.prefetch=2 model.layers=2 parallel.slices=2 schedule.type=constant
    optimizer.lr=0.01 checkpoint.keep_best=no eval.every=0 log.hash_every=1 log.watch=no"
spiky="$common run.steps=110 checkpoint.every=25"
back="$spiky optimizer.rollback=20"
out_of_it="61 62 63 90 91 92 93 94 95 "

# left_out RUN: the steps that its log does not have.
left_out() { steps "$1" | awk '{ for (last++; last < $1; last++) printf "%d ", last } END { print "" }'; }
# as_whole RUN
as_whole() {
    same_steps whole "$1"
    same_state whole "$1"
}
# goes RUN SAVES SETTING...: with the bits of the run on one rank. SAVES: steps from one checkpoint to the next.
goes() {
    name=$1 every=$2
    shift 2
    settings "$name" $common optimizer.rollback=20 run.steps=110 checkpoint.every="$every" "$@"
    expect 0 train "$name"
    as_whole "$name"
}

goes_back() {
    settings whole $back
    expect 0 train whole
    [ "$(left_out whole)" = "$out_of_it" ] || fail "left out: $(left_out whole)"
    [ "$(grep -c '"kind":"rollback"' runs/whole/events.jsonl)" -eq 3 ] || fail "$(grep rollback runs/whole/events.jsonl)"
    event whole rollback "the loss was more than 20 times its median" "in steps 61 to 63" "back to step 50, to the newest checkpoint" "number 1 of at most 5"
    event whole rollback "in steps 90 to 92" "back to step 75" "number 2 of at most 5"
    event whole rollback "in steps 93 to 95" "number 3 of at most 5"
    [ "$(steps whole | awk '$2 > 1 && $1 > 40' | wc -l)" -eq 0 ] || fail "a step of noise is in the log"
    expect 0 "$bin" status runs/whole
    says "went back 3 in 24 h" "in steps 93 to 95"
    # states from after it tell of the steps that were left out
    tr -d ' \n' <runs/whole/ckpt/step-00000110/manifest.json | grep -qF '"left_out":[[61,63],[90,92],[93,95]]' ||
        fail "the manifest: $(grep -A 14 left_out runs/whole/ckpt/step-00000110/manifest.json)"
}
# It is the data that was left out: a run without the noise has other bits, one without the key goes on through it.
only_where_it_is_asked_for() {
    settings through $spiky
    expect 0 train through
    [ -z "$(left_out through)" ] || fail "left out: $(left_out through)"
    steps whole | tail -n 1 >want
    steps through | tail -n 1 >found
    ! cmp -s want found || fail "the noise changed nothing"
}
on_any_ranks() {
    goes two 25 device.ranks=2
    goes four 25 device.ranks=4 parallel.zero=2
    goes pipeline 25 device.ranks=4 parallel.pipeline=2 parallel.zero=1
}
# Wherever it goes back to: to the beginning, to each step before it, or to a snapshot.
to_any_state() {
    goes beginning 1000
    event beginning rollback "back to step 0, to the beginning"
    goes "each" 1
    event "each" rollback "in steps 61 to 63" "back to step 60"
    goes snapshot 1000 device.ranks=2 cluster.elastic=yes snapshot.every=7
    event snapshot rollback "in steps 61 to 63" "back to step 56, to the snapshot in memory"
    goes written 3 checkpoint.async=yes
}
# To the weights of another run, in a process whose file has moments of steps that are gone.
to_given_weights() {
    given="$common optimizer.rollback=20 run.steps=70 checkpoint.every=1000 run.seed=5 model.init_from=runs/whole"
    settings memory $given
    settings files $given device.ranks=2 parallel.zero=1 parallel.offload=nvme
    for run in memory files; do
        expect 0 train $run
        event $run rollback "back to step 0, to the beginning"
    done
    same_steps memory files
    same_state memory files
}

# With what lanes keep of what they did not send, and its momentum: to the beginning, and to the step before.
with_what_was_not_sent() {
    sparse="$(echo "$common" | sed 's/optimizer.lr=0.01//') optimizer.rollback=3 run.steps=70 optimizer.type=sgd
        optimizer.lr=0.1 optimizer.momentum=0.9 optimizer.grad_clip=0 reduce.compress=topk"
    settings kept $sparse checkpoint.every=1
    settings forgotten $sparse checkpoint.every=1000 device.ranks=2
    for run in kept forgotten; do expect 0 train $run; done
    event kept rollback "to the newest checkpoint"
    event forgotten rollback "back to step 0, to the beginning"
    same_steps kept forgotten
    same_state kept forgotten
}

# Ended at any step, and given more: on other ranks too. And a stop within the noise waits until it is over.
after_a_stop() {
    for every in 40 60 64 77 89 96; do
        settings "stop$every" $common optimizer.rollback=20 checkpoint.every=25 run.steps=$every
        expect 0 train "stop$every"
        settings "stop$every" $back device.ranks=2
        expect 0 train "stop$every"
        as_whole "stop$every"
    done
}
within_the_noise() {
    settings stops $back "run.faults=drag@1x1000000"
    start "$bin" base.ini stops.ini
    until_true 60 has_logged stops 61
    kill -TERM "$pid"
    await 75
    [ "$(ls runs/stops/ckpt | grep -c 'step-0000006[123]')" -eq 0 ] || fail "a step of noise is stored: $(ls runs/stops/ckpt)"
    settings stops $back
    expect 0 train stops
    as_whole stops
}
# Killed in the middle of it.
after_kills() {
    settings killed $back device.ranks=2 parallel.zero=1 cluster.elastic=yes snapshot.every=4 \
        "run.faults=unit@250:0,update@700:1"
    expect 0 train killed
    as_whole killed
    for rank in 0 1; do
        grep -q "\"healed\".*rank $rank .*was killed by signal 9" runs/killed/events.jsonl || fail "rank $rank was not killed"
    done
    settings dies $back device.ranks=1 "run.faults=unit@258"  # in the replay
    expect 69 train dies
    settings dies $back
    expect 0 train dies
    as_whole dies
}
# What ranks hold alike is kept after data was left out, too: fewer steps were computed then than are counted. Rank 1 is
# lost in the 97th that is computed after the last way back, which is step 106, and so late in it that rank 0 is there.
goes_on_where_it_was() {
    settings live $common optimizer.rollback=20 run.steps=110 checkpoint.every=1000 device.ranks=2 cluster.elastic=yes \
        snapshot.every=1000 snapshot.live=yes "run.faults=drag@675:1,unit@1352:1"
    expect 0 train live
    as_whole live
    event live healed "rank 1 (localhost) was killed by signal 9 (Killed)" "after step 105 from where the ranks that were left are"
}
# What never gets better ends with words.
gives_up() {
    { lines 60; noise 40; } >text.txt
    rm -f data/*
    "$bin" pack base.ini -o pack.val_fraction=0.05 >"$out" 2>&1 || fail "can't pack"
    settings up $back
    expect 75 train up
    says "has gone back 5 times already, which is the most" "Next: lockstep fork"
    [ "$(grep -c '"kind":"rollback"' runs/up/events.jsonl)" -eq 5 ] || fail "$(grep rollback runs/up/events.jsonl)"
    event up gave_up "in steps 76 to 78"
}
is_refused() {
    settings half optimizer.rollback=0.5
    expect 78 "$bin" check base.ini half.ini
    says "rollback = 0.5: half of all losses are above their median"
}

try goes_back
try only_where_it_is_asked_for
try on_any_ranks
try to_any_state
try to_given_weights
try with_what_was_not_sent
try after_a_stop
try within_the_noise
try after_kills
try goes_on_where_it_was
try gives_up
try is_refused
finish
