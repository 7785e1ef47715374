#!/bin/sh
# test/test_heal.sh: ranks of one machine are killed, and the run goes on in the processes that live: to the same bits.
. test/support/runs.sh
. "$top/test/support/chaos.sh"
. "$top/test/support/phases.sh"
fast="device.threads=1 log.watch=no"
small="$fast run.steps=600 snapshot.every=4 checkpoint.every=50 eval.every=200"
elastic="cluster.elastic=yes cluster.heartbeat=0.2"
healing="$small $elastic"
endless="$fast $elastic run.steps=1000000 checkpoint.every=20 eval.every=0"

settings whole $small
# Where ranks are killed by the clock, a run is long enough for all the kills on a machine that does much else.
longer() { echo "$*" | sed 's/run\.steps=600/run.steps=900/'; }
settings long $(longer "$small")
undisturbed() { expect 0 train whole; expect 0 train long; }

# heals_to_the_same NAME KILLS OVERRIDE...: a run of 4 ranks.
heals_to_the_same() {
    run=$1 most=$2
    shift 2
    settings "$run" $(longer "$healing") device.ranks=4 "$@"
    chaos "$run" "$most"
    same_steps long "$run"
    same_state long "$run"
    event "$run" lost "is lost"
    event "$run" healed "was killed by signal 9 (Killed)" "of this run began" "of which leaving took"
}
in_step() { heals_to_the_same zero0 8; }
with_everything_divided() { heals_to_the_same zero3 8 parallel.zero=3 parallel.pipeline=2; }

# One rank alone has nobody to wait for it; and a rank that is killed at the same point again and again is given up.
alone() {
    settings one $healing device.ranks=1
    start "$bin" base.ini one.ini
    until_true 20 has_saved one 8
    ranks_of "$pid"
    kill -9 $ranks
    await 0
    like whole one
    event one healed "rank 0 (localhost) was killed by signal 9 (Killed); world 2"
}
at_a_point() {
    settings point $healing device.ranks=2 "run.faults=unit@30:1"  # 16 units a step are two ranks'
    expect 0 train point
    same_steps whole point
    same_state whole point
    says "healed: rank 1 (localhost) was killed by signal 9 (Killed); world 2 of this run"
}
seldom="$fast $elastic run.steps=600 eval.every=200 snapshot.every=500 snapshot.live=yes checkpoint.every=500"
# What ranks hold alike is not computed again; where they do not hold the same after all, it is. All that are left have to
# be in the same step: who is lost is slow in it.
where_it_was() {
    settings there $seldom device.ranks=2 "run.faults=drag@29:1,unit@60:1"
    expect 0 train there
    same_steps whole there
    same_state whole there
    event there healed "continuing after step 14 from where the ranks that were left are"
}
# A step that was skipped before this process began is one that was done.
where_it_was_after_a_skipped_step() {
    few="$fast $elastic eval.every=0 snapshot.every=500 snapshot.live=yes checkpoint.every=500 model.layers=1
        model.embed=16 optimizer.skip_norm=1000"
    settings skipped $few device.ranks=2 run.steps=10 "run.faults=nan@3:1"
    expect 0 train skipped
    settings skipped $few device.ranks=2 run.steps=300 "run.faults=drag@29x300:1,unit@60:1"
    expect 0 train skipped
    event skipped skipped '"step":3,'
    event skipped healed "continuing after step 24 from where the ranks that were left are"
}
not_what_differs() {
    settings torn $seldom device.ranks=3 log.hash_every=600 run.faults=lie@3:1,drag@29:2,unit@60:2
    expect 0 train torn
    same_state whole torn
    event torn torn "the ranks that were left held different values of " "a bit has flipped"
    event torn healed "continuing after step 0 from the snapshot in memory"
}
# [run] resume = never is about what a run finds when it begins.
from_its_own_checkpoint() {
    settings never $fast $elastic device.ranks=2 run.steps=60 run.resume=never snapshot.every=0 checkpoint.every=5 \
        eval.every=0 "run.faults=unit@60:1"
    expect 0 train never
    event never healed "from the newest checkpoint"
    expect 78 train never
}
# A run with a new [run] steps keeps the learning rate's decay of its checkpoint: also in a rank that is started again.
prolonged() {
    sed '/^decay_steps/d' base.ini >open.ini
    for run in longer calm; do
        [ $run = longer ] && two="$elastic device.ranks=2 snapshot.every=4" || two=
        for steps in 60 100; do
            settings $run $fast $two run.steps=$steps eval.every=0 checkpoint.every=20 \
                ${two:+run.faults=unit@60:1}
            expect 0 timeout 100 "$bin" open.ini $run.ini
        done
    done
    event longer healed "rank 1 (localhost) was killed by signal 9 (Killed)" '"step":7'
    same_state calm longer
}
rarely=$(echo "$healing" | sed "s/checkpoint.every=50/checkpoint.every=600/")
again_and_again() {
    settings again $rarely device.ranks=2 parallel.pipeline=2 "run.faults=unit@500x1000:1"
    expect 69 train again
    says "rank 1 (localhost" "was killed by signal 9 (Killed): 4 times in a row, and no new step was finished between"
    goes_on_from_memory again
}
# goes_on_from_memory RUN: no checkpoint was due yet when it ended. What was in memory was saved first, and the run goes
# on from there, to the same.
goes_on_from_memory() {
    event "$1" last "was in memory alone, and is saved"
    settings "$1" $rarely device.ranks=2
    expect 0 train "$1"
    from=$(sed -n 's/.*"kind":"resume".*continuing after step \([0-9]*\) .*/\1/p' "runs/$1/events.jsonl" | tail -n 1)
    [ "${from:-0}" -gt 0 ] || fail "it went on after step ${from:-0}"
    same_steps whole "$1"
    same_state whole "$1"
}
# While its ranks are started again it is asked to stop. It saves, and ends.
asked_while_it_heals() {
    settings asks $rarely device.ranks=2 parallel.pipeline=2 "run.faults=unit@500x1000:1"
    start "$bin" base.ini asks.ini
    twice() { [ "$(grep -c '"kind":"healed"' runs/asks/events.jsonl 2>/dev/null)" = 2 ]; }
    until_true 20 twice
    sleep 0.3  # the third one waits a second
    kill -TERM "$pid"
    await 75
    goes_on_from_memory asks
}
# What the newest checkpoint has is not written again.
is_on_disk() {
    settings disk $fast $elastic run.steps=600 eval.every=0 snapshot.every=20 checkpoint.every=20 device.ranks=2 \
        parallel.pipeline=2 "run.faults=unit@280x1000:1"  # in step 35, of 8 units
    expect 69 train disk
    event disk last '"step":20,' "nothing that is whole in memory is newer than the newest checkpoint"
}
# A disk fails at the end: no message says that the run goes on.
disk_fails_at_the_end() {
    settings full $rarely device.ranks=2 parallel.pipeline=2 "run.faults=unit@500x1000:1,write@1x1000000"
    expect 69 train full
    event full checkpoint_failed "No space left on device" "1 missed in a row; mend that disk or make room on it"
    ! grep "tries again at step" runs/full/events.jsonl || fail "it says that it tries again"
    event full last "was in memory alone, and could not be saved"
}
# Where a narrower world fits, it goes on without that place.
goes_on_narrower() {
    settings narrow $healing device.ranks=3 "run.faults=unit@30x1000:2"
    expect 0 train narrow
    same_steps whole narrow
    same_state whole narrow
    event narrow healed "rank 2 (localhost) was killed by signal 9 (Killed): 4 times in a row without a new step, so the run goes on without it"
}

# A rank that stands still is lost after [cluster] timeout; 5 s later it is killed.
standing_still() {
    settings still $endless device.ranks=3 cluster.timeout=2
    start "$bin" base.ini still.ini
    until_true 20 has_saved still 20
    ranks_of "$pid"
    set -- $ranks
    struck=$(wall)
    kill -STOP "$2"
    until_true 20 has_caught_up runs/still
    event still healed "since it had not left after a failure"
    phases runs/still 1.5
    kill -TERM "$pid"
    await 75
}

# Asked to stop, it saves and ends as ever; an error that stays ends all ranks.
stops() {
    settings asked $endless device.ranks=4
    start "$bin" base.ini asked.ini
    until_true 20 has_saved asked 20
    ranks_of "$pid"
    set -- $ranks
    struck=$(wall)
    kill -9 "$1"
    until_true 20 has_caught_up runs/asked
    phases runs/asked
    kill -TERM "$pid"
    await 75
    event asked stop "the same command continues"
}
# What a person, or a monitor, sees of it.
has_metric() { grep -qx "$1" told.prom 2>/dev/null; }
is_told() {
    settings told device.threads=1 $elastic run.steps=1000000 checkpoint.every=20 eval.every=0 device.ranks=2 \
        log.prom_file=told.prom
    start "$bin" base.ini told.ini
    until_true 20 has_saved told 20
    until_true 20 has_metric 'lockstep_heals_total 0'
    ranks_of "$pid"
    set -- $ranks
    kill -9 "$2"
    until_true 20 has_metric 'lockstep_heals_total 1'
    expect 0 "$bin" status runs/told
    says "healed    1 in 24 h" "healed: rank 1 (localhost) was killed"  # more has room beside a small step alone
    event told healed "rank 1 (localhost) was killed by signal 9 (Killed); world 2"
    kill -TERM "$pid"
    await 75
}
fails_for_good() {
    settings bad $healing device.ranks=1 run.faults=read@30x100000 data.retry=0
    expect 74 train bad
    says "Input/output error" "ended with 74: 4 times in a row, and no new step was finished between"
}

# Steps that are computed again are counted once: 50 in a row, with a loss far above the lowest, all of one world.
counts_steps_once() {
    settings high $fast $elastic device.ranks=2 optimizer.lr=10 optimizer.grad_clip=0 run.steps=700 eval.every=0 \
        checkpoint.every=40 snapshot.every=0 log.hash_every=0 "run.faults=unit@190:1"  # in step 648: it goes on after step 640
    expect 0 "$bin" fork runs/whole high high.ini
    expect 0 "$bin" runs/high/config.ini
    event high healed '"step":640' "rank 1 (localhost) was killed by signal 9 (Killed)"
    event high ruined '"step":690'
}
wants_ranks_that_exist() {
    settings many $healing "cluster.nodes=127.0.0.1:1,127.0.0.2:1" cluster.secret_file=none cluster.min_ranks=3
    expect 78 "$bin" check base.ini many.ini
    says "min_ranks = 3, and nodes has 2 in all"
}

try undisturbed
try in_step
try with_everything_divided
try alone
try at_a_point
try where_it_was
try where_it_was_after_a_skipped_step
try not_what_differs
try from_its_own_checkpoint
try prolonged
try again_and_again
try asked_while_it_heals
try is_on_disk
try disk_fails_at_the_end
try goes_on_narrower
try standing_still
try stops
try is_told
try fails_for_good
try counts_steps_once
try wants_ranks_that_exist
finish
