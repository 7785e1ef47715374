#!/bin/sh
# test/check_nodes.sh: what test_nodes.sh asks for, in all other ways: nodes that come again, that stand still, that are
# cut off in one direction or both; other layouts; and many losses in one run (test/chaos_nodes.sh has more).
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"
. "$top/test/support/healing.sh"
. "$top/test/support/chaos_nodes.sh"
. "$top/test/support/phases.sh"
most=${KILLS:-20}
# long enough that it is not the ranks who notice what the nodes should
elastic=$(echo "$elastic" | sed 's/timeout=20/timeout=120/')

# --- layouts ----------------------------------------------------------------------------------------------------------

# Two pipelines of two stages over two nodes: a lost rank is replaced, and every rank keeps its stage.
pipeline() {
    small=$(echo "$small" | sed 's/layers=1/layers=2/') whole=two_layers
    near 2 2
    heals pipeline parallel.pipeline=2
    after 0 30
    kill -9 "$(rank 1 1)"
    until_true 20 has_event 0 healed "world 2 of this run"
    after 0 120
    kill -9 "$(rank 0 0)"
    until_true 20 has_event 0 healed "world 3 of this run"
    ends_well 0 1
    figures 0
}

zero3() {
    near 1 1 1
    heals zero3 parallel.zero=3
    for victim in 2 0 1; do
        after 0 $((40 + victim * 5))
        worlds=$((${worlds:-1} + 1))
        kill -9 "$(rank $victim 0)"
        until_true 20 has_event 0 healed "world $worlds of this run"
    done
    ends_well 0 1 2
    figures 0
}

# --- nodes that come again --------------------------------------------------------------------------------------------

# A node that was killed is started again, and is taken in when the others have had ten quiet seconds.
rejoined() {
    steps=2400 whole=long
    near 1 1 1
    heals rejoined
    after 0 70
    kill -9 "$(supervisor 2)"
    until_true 20 has_event 0 healed "world 2 of this run"
    again 2
    slowly 60 has_event 0 healed "joining: node 2"
    ends_well 0 1
    part_of_steps 2
    figures 0
}

# A whole machine stands still for longer than dead_s: supervisor, council and ranks. Then it goes on where it was: its
# ranks are strangers, none of their steps counts, and it is taken in like one that was started again.
node_stands_still() {
    steps=2400 whole=long
    near 1 1 1
    heals still
    after 0 70
    all=$(all_of 0)
    kill -STOP $all
    until_true 20 has_event 1 healed "world 2 of this run"
    after 1 150
    kill -CONT $all
    slow=1 slowly 60 has_event 1 healed "joining: node 0"
    ends_well 1 2
    part_of_steps 0
    figures 1
}

# Of two nodes the higher one stands still. The lower one comes to the end alone; the other one has seen no other end.
higher_stands_still() {
    near 1 1
    heals higher-still cluster.give_up_s=4
    after 0 70
    all=$(all_of 1)
    kill -STOP $all
    until_true 20 has_event 0 healed "world 2 of this run"
    kill -CONT $all
    codes="0 69" ends_well 0
    on 1 "gives up"
    part_of_steps 1
}

# A rank stands still: the others are silent with it until the timeout, and it is killed when it does not leave.
rank_stands_still() {
    elastic="cluster.elastic=yes cluster.heartbeat=0.2 cluster.timeout=3 cluster.dead_s=0.6"
    near 1 2
    heals rank-still
    after 0 40
    who=$(rank 1 0)
    kill -STOP "$who"
    until_true 30 has_event 1 healed "killed by signal 9 (Killed), since it had not left after a failure"
    ! kill -0 "$who" 2>/dev/null || fail "the rank that stood still lives"
    has_event 0 lost "rank 1 (127.0.0.2) is lost: it shows no sign of life" || fail "node 0 does not say who was silent"
    ends_well 0 1
    figures 0
}

# --- cables -----------------------------------------------------------------------------------------------------------

# The cable of a node is out for 5 s. When it is back the node hears that it is no member any more.
far_cut_one() {
    steps=2400 whole=long
    far 1 1 1
    heals cut-one
    after 0 70
    struck=$(wall)
    ip -n "$mark-1" link set eth0 down
    until_true 20 has_caught_up "node0/runs/$run"
    has_event 0 healed "world 2 of this run" || fail "world 2 did not begin with that loss"
    phases "node0/runs/$run" 0.5
    slowly 8 is_past $(($(now) + 4000))
    ip -n "$mark-1" link set eth0 up
    slowly 20 grep -q "no member: waits to be taken in" node1/out
    kill -9 "$(supervisor 1)"
    codes="0 137 0" ends_well 0 2
    part_of_steps 1
    figures 0
}
is_past() { [ "$(now)" -ge "$1" ]; }

# Two nodes, and no cable between them.
far_cut_two() {
    far 1 1
    heals cut-two cluster.give_up_s=2
    after 0 70
    ip -n "$mark-1" link set eth0 down
    until_true 20 has_event 0 healed "world 2 of this run"
    codes="0 69" ends_well 0
    on 1 "gives up"
    part_of_steps 1
    figures 0
}

# What node 1 sends to node 0 is lost; the other way it comes, and both hear node 2.
far_one_way() {
    far 1 1 1
    heals one-way cluster.give_up_s=4
    after 0 70
    ip -n "$mark-1" neigh replace "$(host 0)" lladdr 02:00:00:00:00:99 nud permanent dev eth0
    until_true 30 has_event 0 healed "world 2 of this run"
    codes="0 69 0" ends_well 0 2
    part_of_steps 1
    figures 0
}

# Only the port of the council is closed: ranks that are heard are no loss.
far_council_filtered() {
    far 1 1
    heals filtered
    after 0 40
    ip -n "$mark-1" rule add ipproto tcp dport $port table 99
    ip -n "$mark-1" route add table 99 default via "$(host 77)" dev eth0
    ip -n "$mark-1" neigh replace "$(host 77)" lladdr 02:00:00:00:00:99 nud permanent dev eth0
    ends_well 0 1
    [ -z "$(event_of 0 healed)" ] || fail "a world ended with a port: $(event_of 0 healed)"
}

try pipeline
try zero3
try rejoined
try node_stands_still
try higher_stands_still
try rank_stands_still
try far_cut_one
try far_cut_two
try far_one_way
try far_council_filtered
try chaos_of_two chaos_of 1 2 1
try chaos_of_three chaos_of 0 1 1 1
finish
