#!/bin/sh
# test/check_pipes_lost.sh: pipelines from the outside: what is refused, other verbs, nodes. A run may be stopped, or
# lose any rank at any moment, and goes on with the same layout or another one. That all layouts have the same bits is
# in check_pipes.sh.
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"
. "$top/test/support/lost.sh"

# 8 lanes of 3 micro-batches; a model of $deep has eight blocks.
deep=model.layers=6
small="model.embed=16 model.context=16 device.threads=1 reduce.bucket_mb=0.01 cluster.heartbeat=0.1"

# --- what is refused, and other verbs ---------------------------------------------------------------------------------

# What no pipeline can run is refused, before anything is written.
refused() {
    set -- $deep $small
    settings cut device.ranks=2 $(pipes 1f1b 2) "$@"
    printf '[parallel]\nstages = 3 2\n' >>cut.ini
    expect 78 train cut
    says "stages = 3 2: expected 2 numbers of blocks, 1 or more each, that add up to the model's 8 blocks"
    settings deeper device.ranks=5 $(pipes zb-v 5) "$@"
    expect 78 train deeper
    says "deeper.ini" "pipeline = 5 ranks with 2 stages each are 10 stages, and the model has only 8 blocks"
    [ "$(wc -l <"$out")" -eq 1 ] || fail "expected one line for all ranks: $(cat "$out")"
    [ ! -e runs/cut ] && [ ! -e runs/deeper ] || fail "something was written"
    # Of 8 lanes the last of three pipelines has 2, and the others 3, which 2 stages can't share evenly. All ranks say
    # so, not only those of the others.
    near 2 2 2
    together odd "$@" $(pipes interleaved 2) batch.global=8 cluster.timeout=20
    boot odd
    ended 78
    for k in 0 1 2; do
        on $k "schedule = interleaved takes micro-batches in groups of pipeline = 2, and 3 of a step pass through a pipeline"
    done
    [ $took -le 5000 ] || fail "it took $took ms until all had ended"
    untouched
}

# The other verbs, with a pipeline's settings, in one process.
verbs() {
    set -- $deep $small run.steps=6 eval.every=6 sample.tokens=12 parallel.zero=3
    settings verbs device.ranks=4 $(pipes zb-v 2) "$@"
    expect 0 train verbs
    sed -n 's/^{"t":"eval".*"loss":\([^,]*\),.*/\1/p' runs/verbs/log.jsonl >eval.want
    expect 0 "$bin" eval base.ini verbs.ini
    says "step 6  loss $(printf '%.6f' "$(cat eval.want)")"
    for verb in check plan sample; do expect 0 "$bin" $verb base.ini verbs.ini; done
    expect 0 "$bin" bench base.ini verbs.ini
    says "4 ranks  zero 3"
}

# --- nodes ------------------------------------------------------------------------------------------------------------

# on_nodes NAME SCHEDULE PIPELINE SETTING...: the nodes that were made train to what one rank comes to.
on_nodes() {
    pipe=$1 pipeline="$(pipes "$2" "$3")"
    shift 3
    set -- $deep $small run.steps=12 eval.every=6 sample.tokens=12 "$@"
    alone ref-nodes 1 "$@"
    together "$pipe" "$@" $pipeline
    boot "$pipe"
    ended 0
    on 0 "on $nodes nodes"
    nodes_like runs/ref-nodes "$pipe"
    nothing_left
}

near_two_nodes() { near 2 2 && on_nodes near22 zb-v 2 parallel.zero=3; }
near_three_nodes() { near 1 2 1 && on_nodes near121 1f1b 4; }
far_two_nodes() { far 2 2 && on_nodes far22 1f1b 2 parallel.zero=2; }
far_four_nodes() { far 1 1 1 1 && on_nodes far1111 interleaved 4; }

# --- stopped and continued --------------------------------------------------------------------------------------------

# Each but the last is stopped by SIGTERM after a few steps, and another layout goes on.
stopped_and_cut_anew() {
    moves moved TERM 12 $deep $small run.steps=700 eval.every=100 eval.batches=2 <<'LAYOUTS'
4 parallel.pipeline=2 parallel.zero=3
1 parallel.zero=0
2 parallel.pipeline=2 parallel.schedule=zb-h1
4 parallel.pipeline=4 parallel.schedule=interleaved parallel.chunks=2
6 parallel.pipeline=3 parallel.zero=1/ 1 1 6
4 parallel.pipeline=2 parallel.schedule=zb-v parallel.chunks=2 parallel.zero=2/ 1 3 2 2
3 parallel.zero=3
8 parallel.pipeline=4 parallel.zero=1
LAYOUTS
    [ "$stops" -eq 7 ] && [ "$before" -lt 700 ] || fail "$stops stops, the last one after step $before"
}

# --- lost -------------------------------------------------------------------------------------------------------------

# While micro-batches go through: wherever in a step.
killed_in_steps() {
    set -- $deep $small run.steps=400 eval.every=0 checkpoint.every=4
    rm -f phases
    whole=whole-steps pause=150
    alone $whole 1 "$@"
    loses steps-1f1b 4 $(pipes 1f1b 4) "$@"
    loses steps-zb-v 3 $(pipes zb-v 3) "$@"
    loses steps-interleaved 2 $(pipes interleaved 2) "$@"
    loses steps-zb-h1 4 $(pipes zb-h1 2) parallel.zero=3 "$@"
    loses steps-gpipe 4 $(pipes gpipe 2) parallel.zero=1 "$@"
    seen "wait for activations of stage" "wait for gradients of stage"
}

# Nearly all the time is an evaluation's, a sample's, or, on a disk, a checkpoint's.
killed_in_evaluations() {
    set -- $deep $small run.steps=50 checkpoint.every=4 eval.every=1 eval.batches=1000
    rm -f phases
    whole=whole-evals pause=150
    alone $whole 1 "$@"
    loses evals-1f1b 4 $(pipes 1f1b 4) "$@"
    loses evals-zb-v 4 $(pipes zb-v 2) parallel.zero=3 "$@"
    seen evaluate
}

killed_in_samples() {
    set -- $deep $small run.steps=20 checkpoint.every=1 eval.every=0 sample.every=1 sample.tokens=1500
    rm -f phases
    whole=whole-samples pause=300
    alone $whole 1 "$@"
    loses samples-zb-h1 4 $(pipes zb-h1 4) "$@"
    loses samples-interleaved 4 $(pipes interleaved 2) parallel.zero=3 "$@"
    seen sample
}

killed_in_checkpoints() {
    set -- $deep $small run.steps=120 checkpoint.every=1 eval.every=0
    rm -f phases
    whole=whole-checkpoints pause=100
    alone $whole 1 "$@"
    loses checkpoints-1f1b 3 $(pipes 1f1b 3) "$@"
    loses checkpoints-zb-v 4 $(pipes zb-v 2) parallel.zero=2 "$@"
    # at any moment of a run whose checkpoints take no time, it may be none of theirs
    loses_at save@6:1 checkpoints-gpipe 2 $(pipes gpipe 2) "$@"
    seen checkpoint
}

# --- lost before a certain unit ---------------------------------------------------------------------------------------

# units PHASE RANK: how many units this rank begins from the start of a step to the end of that phase. The drawing in
# `drawn` says it: a column is a moment, and a backward unit that is not divided takes two. A pipeline warms up until
# the last rank has work; it drains when no rank has a forward unit left.
units() {
    sed -n 's/^rank [0-9]*  //p' drawn | awk -v phase="$1" -v rank="$2" '
        { row[n++] = $0; for (c = length; c > 0 && substr($0, c, 1) !~ /[0-9]/; c--) {} if (c > last) last = c }
        END {
            end = phase == "warm-up" ? n - 1 : phase == "steady" ? last : length(row[0])
            for (c = 1; c <= end; c++) {
                unit = substr(row[rank], c, 1)
                count += unit != "."
                c += unit ~ /[a-z]/ && row[0] !~ /[A-Z]/
            }
            print count + 0
        }'
}

# dies NUMBER RANK RANKS SETTING...: of the run with these settings that rank is killed before its unit of that number,
# one of its second step; all say who it was.
dies() {
    printf '[run]\nfaults = unit@%d:%d\n' "$1" "$2" >fault.ini
    victim=$2
    shift 2
    expect 69 timeout 100 "$bin" base.ini "$run.ini" fault.ini
    says "$(called $victim "$@") was killed by signal 9" "$(called $victim "$@") is lost: "
    [ "$(last_step "runs/$run")" = 1 ] || fail "it ended after step $(last_step "runs/$run"), expected 1"
}

# Before a unit in the middle of each phase, on each rank that has one there; a gpipe's pipeline is steady while all
# ranks have forward units.
killed_in_phase() {
    schedule=$1 deaths=0
    set -- $deep $small batch.global=6 batch.lanes=1 run.steps=3 schedule.warmup=1 eval.every=0 checkpoint.every=1
    alone whole-phases 1 "$@"
    run=phases-$schedule
    settings "$run" device.ranks=3 $(pipes "$schedule" 3) "$@"
    expect 0 "$bin" plan base.ini "$run.ini" --draw
    cp "$out" drawn
    for victim in 0 1 2; do
        before=0
        for phase in warm-up steady drain; do
            end=$(units $phase $victim) all=$(units drain $victim)
            if [ "$end" -gt "$before" ]; then
                rm -rf "runs/$run"
                dies $((all + (before + end + 1) / 2)) $victim 3 $(pipes "$schedule" 3)
                expect 0 train "$run"
                like runs/whole-phases "runs/$run"
                deaths=$((deaths + 1))
            fi
            before=$end
        done
    done
    [ $deaths -eq 8 ] || fail "$deaths deaths, expected 8: the last rank has no unit while the pipeline warms up"
}

# A unit counts once, also where it is run block by block: a step's last one can be hit, and there is none after it.
killed_before_the_last_unit() {
    set -- $deep $small batch.global=8 batch.lanes=4 run.steps=2 schedule.warmup=1 eval.every=0 checkpoint.every=1
    alone whole-units 1 "$@"
    for schedule in gpipe 1f1b interleaved zb-h1 zb-v; do
        run=units-$schedule
        settings "$run" device.ranks=4 parallel.zero=3 $(pipes $schedule 2) "$@"
        expect 0 "$bin" plan base.ini "$run.ini" --draw
        cp "$out" drawn
        all=$(units drain 1)
        dies $((2 * all)) 3 4 $(pipes $schedule 2)
        printf '[run]\nfaults = unit@%d:3\n' $((all + 1)) >fault.ini
        expect 0 timeout 100 "$bin" base.ini "$run.ini" fault.ini
        like runs/whole-units "runs/$run"
    done
}

# A rank of each stage stands still for longer than [cluster] timeout.
stopped_for_too_long() {
    settings still device.ranks=3 $forever $deep model.embed=16 $(pipes 1f1b 3) cluster.timeout=2 cluster.heartbeat=0.2
    for victim in 1 0; do
        start "$bin" base.ini still.ini
        until_step runs/still 5
        kill -STOP "$(children "$pid" | sed -n "$((victim + 1))p")"
        from=$(now)
        comes_to 69
        [ $(($(now) - from)) -le 10000 ] || fail "it took $(($(now) - from)) ms until all had ended, with timeout = 2"
        says "rank $victim (localhost, stage $victim) is lost: it shows no sign of life"
        rm -rf runs/still
    done
}

try refused
try verbs
try near_two_nodes
try near_three_nodes
try far_two_nodes
try far_four_nodes
try stopped_and_cut_anew
try killed_in_steps
for schedule in gpipe 1f1b interleaved zb-h1 zb-v; do
    try "killed_in_each_phase_of_$schedule" killed_in_phase $schedule
done
try killed_before_the_last_unit
try killed_in_evaluations
try killed_in_samples
try killed_in_checkpoints
try stopped_for_too_long
finish
