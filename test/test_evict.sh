#!/bin/sh
# test/test_evict.sh: [cluster] evict_slow: a rank, or a node, that stays slow is put out, and the run goes on without
# it, to the same bits. A slow rank is one that sleeps 10 ms for each micro-batch, which takes the others about 0.2 ms.
. test/support/lib.sh
. "$top/test/support/logs.sh"
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"
. "$top/test/support/healing.sh"
steps=200
tiny="device.threads=1 model.embed=16 model.layers=1 eval.every=0 snapshot.every=6 log.hash_every=20 checkpoint.every=100"
quick="cluster.elastic=yes cluster.slow_s=1 cluster.heartbeat=0.2"
slow="run.faults=drag@1x1000000"

undisturbed() { alone whole 1 $tiny run.steps=$steps; }

# puts_out RUN RANK SETTING...: of 4 ranks on this machine. The fault follows the rank's number: where the last one is
# put out, nobody has it any more.
puts_out() {
    name=$1 who=$2
    shift 2
    alone whole 1 $tiny run.steps=$steps
    alone "$name" 4 $tiny $quick cluster.evict_slow=yes run.steps=$steps "$slow:$who" "$@"
    same_end runs/whole "runs/$name"
    for what in steps_of hashes_of; do
        $what runs/whole >want
        $what "runs/$name" >found
        same want found "$what"
    done
    event "$name" slow "rank $who (localhost" "times as slow as the others" "the run is to go on without it"
    event "$name" evicted "rank $who (localhost" "so the run goes on without it; world 2 of this run began"
    [ "$(grep -c '"kind":"healed"' "runs/$name/events.jsonl")" -eq 0 ] || fail "a loss: $(grep healed "runs/$name/events.jsonl")"
}
last_rank() { puts_out last 3; }
with_shards() { puts_out shards 3 parallel.zero=3 cluster.min_ranks=3; }
# The place of the log, and of the directory's lock. The next one has its number, and is slow, too, until one is left.
first_rank() {
    slow="run.faults=drag@1x250" puts_out first 0
    [ "$(grep -c '"kind":"evicted"' runs/first/events.jsonl)" -le 3 ] || fail "a rank alone was put out"
}
# A pipeline is put out as a whole: what is left of it waits.
of_a_pipeline() { puts_out pipeline 3 parallel.pipeline=2; }

# The rank that is put out is killed while it leaves: it is gone either way.
that_dies_as_it_leaves() {
    alone dies 4 $tiny $quick cluster.evict_slow=yes run.steps=$steps "$slow:3,turn@1:3"
    same_end runs/whole runs/dies
    event dies evicted "rank 3 (localhost" "so the run goes on without it; world 2 of this run began"
}

# stays RUN EVENT TEXT SETTING...: it is named, and stays.
stays() {
    name=$1 said=$2 text=$3
    shift 3
    alone "$name" 4 $tiny $quick run.steps=60 "$slow:3" "$@"
    [ "$(grep -c '"kind":"evicted"' "runs/$name/events.jsonl")" -eq 0 ] || fail "it was put out"
    event "$name" "$said" "rank 3 (localhost" "$text"
}
where_it_must_stay() {
    stays no straggler "the others wait for it" cluster.evict_slow=no
    stays few slow "no world without it fits the model and min_ranks" cluster.evict_slow=yes cluster.min_ranks=4
    stays dealt slow "no world without it fits" cluster.evict_slow=yes parallel.deal=2,2,2,2
}
# Nobody is slow where all are, and a few slow steps say nothing.
where_nobody_is_slow() {
    alone all 4 $tiny $quick run.steps=60 cluster.evict_slow=yes "$slow"
    alone once 4 $tiny $quick run.steps=200 cluster.evict_slow=yes "run.faults=drag@1x6:3"
    for run in all once; do
        [ "$(grep -c '"kind":"\(slow\|evicted\)"' runs/$run/events.jsonl)" -eq 0 ] || fail "$run: somebody was slow"
    done
}
is_refused() {
    settings refused cluster.evict_slow=yes
    expect 78 "$bin" check base.ini refused.ini
    says "evict_slow = yes wants elastic = yes"
}

# A node is drained, as one that is asked to stop.
node() {
    steps=1500 whole=longer  # or the run is over before the node hears why it was put out
    near 1 1 1
    heals node cluster.evict_slow=yes cluster.slow_s=1 "$slow:2"
    codes="0 0 75" ends_well 0 1
    told 0 evicted "node 2 stays" "times as slow as the others, so the run goes on without it; world 2 of this run"
    told 1 evicted "continuing after step"
    [ -z "$(event_of 0 lost)" ] || fail "the node left before the others had saved: $(event_of 0 lost)"
    on 2 "was put out, since it stays slow"
}

# What a person sees of it.
has_metric() { grep -qx "$1" told.prom 2>/dev/null; }
is_told() {
    settings told $(echo "$tiny") $quick cluster.evict_slow=yes run.steps=1000000 device.ranks=4 log.prom_file=told.prom \
        schedule.type=constant "$slow:3"
    start "$bin" base.ini told.ini
    until_true 40 has_metric 'lockstep_evicted_total 1'
    until_true 10 grep -q '"state":"training"' runs/told/status.json  # and not one that waits for the rank for ever
    expect 0 "$bin" status runs/told
    says "put out   1 in 24 h" "rank 3 (localhost) stays"
    kill -9 "$(children "$pid" | tail -n 1)"  # this is counted as a loss, not as an eviction
    until_true 20 has_metric 'lockstep_heals_total 1'
    has_metric 'lockstep_evicted_total 1' || fail "put out: $(grep '^lockstep_evicted' told.prom)"
    kill -TERM "$pid"
    await 75
}

try undisturbed
try last_rank
try with_shards
try that_dies_as_it_leaves
try first_rank
try of_a_pipeline
try where_it_must_stay
try where_nobody_is_slow
try is_refused
try node
try is_told
finish
