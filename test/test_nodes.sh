#!/bin/sh
# test/test_nodes.sh: a run of several nodes loses ranks and nodes and goes on, to the same bits; a node is drained, and
# all are stopped; and what two nodes that lose each other do. check_nodes.sh has what takes longer.
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"
. "$top/test/support/healing.sh"
. "$top/test/support/phases.sh"
forever="run.steps=1000000 schedule.type=constant"

# A rank of a node with several, and the one to which all others are connected. The processes that live stay.
rank_lost() {
    near 2 2
    saves=1000 heals lost parallel.zero=2
    after 0 30
    stays="$(rank 0 1) $(rank 1 1)"
    who=$(rank 1 0) struck=$(wall)
    kill -9 "$who"
    until_true 20 has_caught_up "node0/runs/$run"
    has_event 0 healed "reports a failure; world 2 of this run" || fail "world 2 did not begin with that loss"
    phases "node0/runs/$run"
    told 1 healed "rank 2 (127.0.0.2) was killed by signal 9 (Killed); world 2" "from the snapshot in memory"
    kill -9 "$(rank 0 0)"
    until_true 20 has_event 0 healed "rank 0 (127.0.0.1) was killed by signal 9 (Killed); world 3 of this run"
    for each in $stays; do kill -0 "$each" || fail "a rank that was not killed is gone"; done
    ends_well 0 1
}

# A whole node: the others go on without it, with the node's lanes. Rank 0 is another one then, and logs.
# Its tensors are longer than a chunk: what a rank has of them is cut otherwise in the next world.
node_lost() {
    small=$(echo "$small" | sed 's/embed=16/embed=144/') whole=wide steps=200
    near 1 1 1
    saves=1000 heals node parallel.zero=2
    after 1 70
    kill -9 "$(supervisor 0)"
    until_true 20 has_event 1 healed "world 2 of this run"
    told 1 healed "from the snapshot in memory"
    codes="137 0 0" ends_well 1 2
}

# SIGTERM to one node drains it: the others save, go on without it from that step, and it ends.
drained() {
    steps=1000 whole=long
    near 1 1 1
    heals drained
    after 0 40
    kill -TERM "$(supervisor 0)"
    until_true 20 has_event 1 healed "leaving: node 0; world 2 of this run"
    told 1 healed "from the newest checkpoint"
    [ -z "$(event_of 1 lost)" ] || fail "the node left before the others had saved: $(event_of 1 lost)"
    kill -9 "$(rank 2 0)"
    until_true 20 has_event 1 healed "reports a failure; world 3 of this run"
    codes="75 0 0" ends_well 1 2
    on 0 "has left: "
}

# To all of them, they save and stop; the same command continues. And so where the rest is too small.
stopped() {
    near 1 1
    more="$forever" heals stopped
    after 0 40
    kill -TERM "$(supervisor 0)" "$(supervisor 1)"
    ended 75
    on 0 "the same command continues"
    nothing_left
    boot stopped
    until_true 20 has_event 0 resume "continuing after step"
    kill -TERM "$(supervisor 0)" "$(supervisor 1)"
    ended 75
    more="$forever" heals few cluster.min_ranks=2
    after 0 40
    kill -TERM "$(supervisor 1)"
    ended 75
    on 0 "the same command continues"
}

# goes_on_from STEP: the same command on all nodes continues after that step or a later one, to the end.
goes_on_from() {
    nothing_left
    boot "$run"
    until_true 20 has_event 0 resume "continuing after step"
    at=$(event_of 0 resume | sed 's/.*continuing after step \([0-9]*\).*/\1/')
    [ "$at" -ge "$1" ] || fail "it continues after step $at, and step $1 was in memory"
}

# A rank is lost while all save and stop. No record follows a stop, so each node saves what it has, and ends. The ranks
# of a node meet for it, though they were asked to stop.
stopped_short() {
    steps=1000 whole=long
    near 2 2
    saves=1000 heals short cluster.min_ranks=4 run.faults=save@1:3
    after 0 40
    kill -TERM "$(supervisor 1)"
    ended 75
    on 0 "while all were to save and stop"
    has_event 0 last "was in memory alone, and is saved" || fail "node 0 saved nothing: $(event_of 0 last)"
    goes_on_from 36
    ends_well 0 1
}

# A bit flips on a node: all go back together, and nobody leaves.
lied() {
    near 1 1 1
    heals lied "run.faults=lie@62:2"
    ends_well 0 1 2
    told 0 lie "rank 2 (127.0.0.3) holds other values than those that should hold the same"
    told 0 back "to the snapshot in memory"
}

# Of two nodes the lower one goes on alone. The higher one waits for it, and ends.
lower_of_two() {
    near 1 1
    heals two
    after 0 70
    kill -9 "$(supervisor 1)"
    until_true 20 has_event 0 healed "world 2 of this run"
    codes="0 137" ends_well 0
}
# It saves what it holds first, whether its ranks kept that themselves or for the other one.
higher_of_two() {
    steps=1000 whole=long
    for zero in 0 2; do
        near $((1 + zero / 2)) $((1 + zero / 2))
        saves=1000 heals higher$zero cluster.give_up_s=2 parallel.zero=$zero
        after 0 40
        kill -9 "$(supervisor 0)"
        ended 137 69
        on 1 "gives up"
        has_event 1 last "was in memory alone, and is saved" || fail "node 1 saved nothing: $(event_of 1 last)"
        goes_on_from 34
        ends_well 0 1
    done
}

# The process that sits in the council may be killed: the ranks do not notice.
council_lost() {
    near 1 1
    heals council
    after 0 20
    kill -9 "$(delegate 0)"
    doze 100
    kill -9 "$(delegate 1)"
    ends_well 0 1
    [ -z "$(event_of 0 healed)" ] || fail "a world ended with a council"
}
doze() { sleep "$(printf '0.%03d' "$1")"; }

# Who runs something else is no part of the run, and says so.
other_settings() {
    near 1 1
    together one $small $elastic
    together other $small $elastic optimizer.lr=0.5
    sed -i 's/^name *=.*/name = one/' other.ini
    run=one
    boot one 0
    boot other 1
    ended 78
    keys="node 1 (127.0.0.2) and node 0 (127.0.0.1) have different settings: [optimizer] lr = 0.5 and 0.001: "
    on 0 "$keys" "the INI must be the same on all nodes"
    on 1 "$keys"
    untouched
    nothing_left
}
stop_while_waiting() {
    near 1 1
    together waits $small $elastic
    run=waits
    boot waits 0
    until_true 10 grep -q "waiting: waits for node 1 (127.0.0.2): a run begins with all nodes" node0/out
    kill -TERM "$(supervisor 0)"
    ended 75
    on 0 "asked to leave before a run began"
}

# A run that does not begin is no run: systemd tries again, or a person looks.
gives_up_at_the_start() {
    near 1 1
    together alone $small $elastic run.steps=10 cluster.give_up_s=3
    run=alone
    boot alone 0
    ended 69
    on 0 "gives up after 3 s: waits for node 1 (127.0.0.2): a run begins with all nodes"
    untouched
}

try rank_lost
try node_lost
try drained
try stopped
try stopped_short
try lied
try lower_of_two
try higher_of_two
try council_lost
try other_settings
try stop_while_waiting
try gives_up_at_the_start
finish
