#!/bin/sh
# test/test_balance.sh: lanes dealt by hand, and anew while a run goes on: the bits of one rank. How fast the ranks are
# is made up of sleeping, 10 ms a micro-batch, and as long again on one of them.
. test/support/runs.sh
small="run.steps=45 device.threads=1 model.layers=1 parallel.slices=2 batch.global=16 batch.micro=1 batch.lanes=16 \
    checkpoint.every=1000 checkpoint.keep_best=no eval.every=0 log.watch=no"
slow="run.faults=drag@1x1000000,twice@1x1000000:2"

settings whole $small
one_rank() { expect 0 train whole; }

# by_hand RUN OVERRIDE...
by_hand() {
    run=$1
    shift
    settings "$run" $small "$@"
    expect 0 train "$run"
    same_steps whole "$run"
    same_state whole "$run"
}
in_turns() { by_hand turns device.ranks=4 parallel.zero=3 parallel.deal=8,0,7,1; }
in_pipelines() { by_hand pipelines device.ranks=4 parallel.zero=1 parallel.pipeline=2 parallel.deal=13,3; }
in_slices() { by_hand slices device.ranks=4 parallel.tensor=2 parallel.deal=0,16; }

# by_speed RUN OVERRIDE...: rank 2 has fewer lanes after the second window, whatever else this machine does.
by_speed() {
    run=$1
    shift
    settings "$run" $small $slow device.ranks=4 parallel.balance=auto "$@"
    expect 0 train "$run"
    same_steps whole "$run"
    same_state whole "$run"
    event "$run" balance '"step":20' "lanes 4,4,4,4 become" "rank 2 (localhost) takes" "ms for a lane, the median rank"
}
while_it_runs() { by_speed speed; }
while_it_runs_with_shards() { by_speed shards parallel.zero=1; }

# The world that follows begins with what was measured: also of the place whose rank was lost.
after_a_loss() {
    settings lost $small "$slow,unit@250:1" device.ranks=4 parallel.balance=auto cluster.elastic=yes snapshot.every=3
    expect 0 train lost
    same_steps whole lost
    same_state whole lost
    event lost healed "was killed by signal 9 (Killed)"
    event lost balance "by what ranks took for a lane in the world before" "lanes 4,4,4,4 become"
    at=$(sed -n 's/.*"kind":"healed","step":\([0-9]*\).*/\1/p' runs/lost/events.jsonl)
    event lost balance "\"step\":$at," "in the world before"
    [ "$(grep -c 'in the world before' runs/lost/events.jsonl)" -eq 1 ] || fail "not once: $(grep balance runs/lost/events.jsonl)"
}

# Models of two ranks each share the lanes; what was measured is of ranks.
after_a_loss_of_a_model() {
    settings model $small "$slow,unit@700:1" device.ranks=4 parallel.tensor=2 parallel.balance=auto cluster.elastic=yes \
        snapshot.every=3
    expect 0 train model
    same_steps whole model
    same_state whole model
    event model balance "by what ranks took for a lane in the world before"
    dealt=$(sed -n 's/.*lanes 8,8 become \([0-9]*\),[0-9]*, by what ranks took.*/\1/p' runs/model/events.jsonl)
    [ "${dealt:-0}" -ge 9 ] || fail "the faster model has ${dealt:-no} lanes: $(grep balance runs/model/events.jsonl)"
}

# Fewer ranks have other lanes, and the lanes of those are dealt by speed again.
in_a_narrower_world() {
    settings narrow $small device.ranks=4 parallel.balance=auto cluster.elastic=yes snapshot.every=3 \
        "run.faults=drag@1x1000000,twice@1x1000000:2,unit@100x1000:3"
    expect 0 train narrow
    same_steps whole narrow
    same_state whole narrow
    event narrow healed "so the run goes on without it"
    event narrow balance "lanes 5,5,6 become"
}

# What a person sees of it; a rank with lanes after its speed is no straggler.
shows_lanes() { "$bin" status runs/told | grep -q '^lanes  *[0-9]* [0-9]* [0-9]* [0-9]* of the ranks here$'; }
is_told() {
    settings told $(echo $small | sed 's/log.watch=no//; s/steps=45/steps=100000/') $slow device.ranks=4 \
        parallel.balance=auto
    start "$bin" base.ini told.ini
    until_true 30 has_logged told 45
    until_true 30 shows_lanes
    [ "$(grep -c '"straggler","step":[3-9]' runs/told/events.jsonl)" -eq 0 ] || fail "it is named a straggler"
    kill -TERM "$pid"
    await 75
}

# A rank that is as fast as the others again has as many lanes again.
recovers() {
    settings recovers $(echo $small | sed 's/steps=45/steps=110/') "run.faults=drag@1x1000000,twice@1x100:2" \
        device.ranks=4 parallel.balance=auto
    expect 0 train recovers
    event recovers balance "lanes 4,4,4,4 become"
    event recovers balance "become 4,4,4,4"
}
is_refused() {
    settings refused $small device.ranks=4 parallel.balance=auto "$1"
    expect 78 "$bin" check base.ini refused.ini
    says "$2"
}
where_it_cannot_be() {
    is_refused parallel.zero=2 "balance = auto wants zero = 0 or 1"
    is_refused parallel.pipeline=2 "balance = auto wants pipeline = 1"
    is_refused reduce.order=any "would let measured times choose the result"
    is_refused parallel.deal=4,4,4 "expected 4 whole numbers"
    is_refused parallel.deal=4,4,4,5 "that add up to lanes = 16"
    is_refused parallel.deal=4,4,-4,12 "that add up to lanes = 16"
}
is_planned() {
    settings planned $small device.ranks=4 parallel.deal=8,0,7,1
    expect 0 "$bin" plan base.ini planned.ini
    says "lanes   16 on 4 ranks, dealt 8,0,7,1, at most 8 each: 50.0 % of the time idle"
    settings any $small device.ranks=4 parallel.balance=auto
    expect 0 "$bin" plan base.ini any.ini
    says "dealt by measured speed: memory is for any deal"
}

try one_rank
try in_turns
try in_pipelines
try in_slices
try while_it_runs
try recovers
try while_it_runs_with_shards
try after_a_loss
try after_a_loss_of_a_model
try in_a_narrower_world
try is_told
try where_it_cannot_be
try is_planned
finish
