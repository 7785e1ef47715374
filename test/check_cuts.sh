#!/bin/sh
# test/check_cuts.sh: networks that are never quiet for long, and kills while a node joins. Of three nodes one is cut
# off again and again, or one after the other; of a run that takes a node in a rank is killed, or the node itself.
#
# Whatever follows, there is one history: each world began after one step, each node has logged steps of the run that
# nobody disturbed, every step is in the log of some node, and a node that was put out has joined again at the end.
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"
. "$top/test/support/healing.sh"
. "$top/test/support/chaos_nodes.sh"
# long enough that it is not the ranks who notice what the nodes should
elastic=$(echo "$elastic" | sed 's/timeout=20/timeout=120/')

# with K FAULTS: [run] faults of node K alone, from its next start.
with() { sed -i "/^faults/d; s/^dir = .*/&\nfaults = $2/" "node$1/own.ini"; }

# slow_for SECONDS: so long, about, ranks need for their first steps, however many they are.
slow_for() {
    drag=drag@1x$(($1 * 100))
    for k in $(seq 0 $((nodes - 1))); do with "$k" "$drag"; done
}

# --- one history ------------------------------------------------------------------------------------------------------

# "WORLD STEP" of each world that a node has seen begin.
worlds_of() { sed -n 's/.*; world \([0-9]*\) of this run began .* after step \([0-9]*\) .*/\1 \2/p' "$1/events.jsonl"; }

one_history() {
    for what in steps_of hashes_of; do
        for k in $(seq 0 $((nodes - 1))); do $what "node$k/runs/$run"; done | sort -u | sort -n >found
        $what runs/$whole >want
        same want found "$what all nodes"
    done
    for k in $(seq 0 $((nodes - 1))); do part_of_steps "$k"; done
    for k in $(seq 0 $((nodes - 1))); do worlds_of "node$k/runs/$run"; done | sort -u | sort -n >worlds
    awk '$1 == last { exit 1 } { last = $1 }' worlds || fail "a world began twice: $(tr '\n' ',' <worlds)"
}

# all_to_the_end: all nodes take part again, and end with the last step.
all_to_the_end() {
    before=$(furthest)
    slowly 100 all_came_further
    ended 0
    one_history
    for k in $(seq 0 $((nodes - 1))); do
        [ "$(last_step "node$k/runs/$run")" -eq "$steps" ] || fail "node $k has not come to the end with the others"
        [ "$(newest_name "node$k/runs/$run")" = "$(newest_name runs/$whole)" ] ||
            fail "node $k: no checkpoint of the last step"
    done
    nothing_left
}

# lacks_steps K: what was put out has gone on for itself if it has all steps.
lacks_steps() {
    [ "$(steps_of "node$1/runs/$run" | wc -l)" -lt "$steps" ] || fail "node $1 was put out, and has logged all steps"
}

# --- cables -----------------------------------------------------------------------------------------------------------

# At the switch: the node sees that it has no carrier.
pull() { ip -n "$mark-sw" link set "plug$1" down; }
plug_in() { ip -n "$mark-sw" link set "plug$1" up; }

# flapping TIMES K SECONDS: so often, the cable of node K is out for so long, and in for as long.
flapping() {
    far 1 1 1
    slow_for 16
    heals "$name"
    after 0 40
    for each in $(seq "$1"); do
        pull "$2"
        sleep "$3"
        plug_in "$2"
        sleep "$3"
    done
    all_to_the_end
}

# Shorter than dead_s: connections may bridge it or not.
far_flaps() {
    steps=2000 whole=flaps
    flapping 10 1 0.3
}
far_flaps_lowest() {
    steps=2000 whole=flaps
    flapping 10 0 0.3
}

# Longer than dead_s: the node is put out, asks to join while its cable is out again, and comes in when it holds.
far_flaps_slowly() {
    steps=4000 whole=flaps_slowly
    flapping 8 1 0.9
    has_event_ever 0 "node 1 has not been heard for" || fail "a node that was cut off for 0.9 s was not put out"
    lacks_steps 1
}
has_event_ever() { grep '"kind":"healed"' "node$1/runs/$run/events.jsonl" | grep -qF -e "$2"; }

# The cable of the next node is pulled when the one of the last is put in: each time the others have just gone on.
far_moves() {
    steps=2000 whole=flaps
    far 1 1 1
    slow_for 16
    heals "$name"
    after 0 40
    pull 0
    until_true 20 has_event 1 healed "world 2 of this run"
    plug_in 0
    pull 1
    until_true 20 has_event 2 healed "world 3 of this run"
    plug_in 1
    pull 2
    sleep 2
    plug_in 2
    all_to_the_end
    lacks_steps 0
    lacks_steps 1
}

# ... and sooner than they can.
far_moves_fast() {
    steps=2000 whole=flaps
    far 1 1 1
    slow_for 16
    heals "$name"
    after 0 40
    for each in 0 1 2 0 1 2; do
        pull "$each"
        sleep 0.7
        plug_in "$each"
    done
    all_to_the_end
}

# Cables are pulled and put in by chance, several at a time, for up to 1.5 s. Who was put out more than once waits
# longer than the run goes on.
far_storm() {
    steps=2000 whole=flaps
    far 1 1 1
    slow_for 16
    heals "$name"
    after 0 40
    for each in $(seq 20); do
        roll 3
        if [ $rolled -eq 0 ]; then plug_in $((each % 3)); else pull $((each % 3)); fi
        roll 3
        plug_in $rolled
        roll 15
        sleep "$(printf '%d.%d' $((rolled / 10)) $((rolled % 10)))"
    done
    for k in 0 1 2; do plug_in $k; done
    end_who_waits
    ended $codes
    one_history
    nothing_left
}

# All cables are out: no node hears a majority, so no step is finished until the cables are in again.
far_all_apart() {
    steps=2000 whole=flaps
    far 1 1 1
    slow_for 10
    heals "$name"
    after 0 40
    for k in 0 1 2; do pull $k; done
    for k in 0 1 2; do until_true 20 grep -q "too few voters are heard" "node$k/out"; done
    before=$(furthest)
    sleep 2
    [ "$(furthest)" -eq "$before" ] || fail "somebody has gone on alone: from step $before to $(furthest)"
    for k in 0 1 2; do plug_in $k; done
    all_to_the_end
}

# --- kills at a join --------------------------------------------------------------------------------------------------

# joining [K FAULT]: three nodes of which the last one is killed; the others go on. Node K has this fault, too.
joining() {
    steps=1000 whole=joined
    elastic=$(echo "$elastic" | sed 's/dead_s=0.6/dead_s=1.5/')  # on a busy machine a healthy node may be silent for 0.6 s
    near 1 1 1
    slow_for 16
    [ $# -eq 0 ] || with "$1" "$drag,$2"
    heals "$name"
    after 0 40
    kill -9 "$(supervisor 2)"
    until_over "$(supervisor 2)"
    until_true 20 has_event 0 healed "world 2 of this run"
}

# comes [FAULT]: the last node is started again, and fails so while it joins.
comes() {
    with 2 "$drag${1:+,$1}"
    again 2
}

# has_begun WORLD: node 0 has seen it, or a later one.
has_begun() { worlds_of node0/runs/"$run" | awk -v world="$1" '$1 >= world { found = 1 } END { exit !found }'; }

# A rank of the node that joins is killed: it is started again, and the node joins all the same.
joiner() {
    joining
    comes "$1"
    slowly 60 has_begun 4
    all_to_the_end
    was_killed 2
    lacks_steps 2
}

# The same of a rank of those that are there.
member() {
    joining "$1" "$2"
    comes
    all_to_the_end
    was_killed "$1"
    same_steps 0
    same_steps 1
    lacks_steps 2
}
# was_killed K: a rank of node K, as that node says.
was_killed() {
    grep -qF "was killed by signal 9 (Killed)" "node$1/out" "node$1/runs/$run/events.jsonl" ||
        fail "no rank of node $1 was killed"
}

# The supervisor of the node that joins, and its ranks with it. The others go on without it, and take it in when it is
# started once more.
joiner_ends() {
    joining
    comes "$1"
    until_true 60 has_ended "$(supervisor 2)"
    slowly 20 has_begun 4
    comes
    all_to_the_end
    same_steps 0
    same_steps 1
    lacks_steps 2
}
has_ended() { ! lives "$1"; }

try far_flaps
try far_flaps_lowest
try far_flaps_slowly
try far_moves
try far_moves_fast
try far_storm
try far_all_apart
try joiner_meets joiner meet@1
try joiner_gathers joiner gather@1
try joiner_begins joiner begin@1
try member_turns member 1 turn@1
try member_meets member 0 meet@3
try member_begins member 0 begin@5
try joiner_ends joiner_ends give@1
finish
