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

# The second node has servers alone. Without it the first one's ranks keep the state, one of them as a server.
servers() {
    near 2 2
    heals served parallel.zero=1 server.count=2
    after 0 60
    kill -9 $(all_of 1)
    until_true 20 has_event 0 healed "world 2 of this run"
    codes="0 137" ends_well 0
    figures 0
}

# A thousand strangers at the ports where the nodes of a run with servers hear each other, and a thousand where their
# ranks do when they meet, from before that until the end: some say nothing, some say it slowly, some lie. The run's steps
# are the same, and a lost node is replaced meanwhile.
crowded() {
    strangers=$(built crowd)
    [ -n "$strangers" ] || skip "test/support/crowd.c is not built: make tests"
    near 1 1 1
    "$strangers" 2000 600 $port 2 "$(host 0)" "$(host 1)" >crowd.out 2>&1 &
    crowd=$!
    until_true 20 grep -qs calling crowd.out
    heals crowded parallel.zero=1 server.count=1
    after 0 70
    kill -9 "$(supervisor 2)"
    until_true 40 has_event 0 healed "world 2 of this run"
    codes="0 0 137" ends_well 0 1
    figures 0
    kill $crowd || fail "the strangers left too early: $(cat crowd.out)"
    wait $crowd
    crowd=
    sed -n 's/^most/    strangers: at most/p' crowd.out
    awk '$1 == "most" { most = $2; answered = $7 } END { exit most < 900 || answered < 100 }' crowd.out ||
        fail "too few strangers came, or were heard: $(cat crowd.out)"
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

# A stage of a pipeline on each machine: the one that is left fits no layout alone. It can neither go on nor save.
stages_apart() {
    small=$(echo "$small" | sed 's/layers=1/layers=2/') whole=two_layers
    near 1 1
    heals stages parallel.pipeline=2 cluster.give_up_s=2
    after 0 70
    kill -9 "$(supervisor 0)"
    ended 137 69
    on 1 "gives up; what is in memory is not saved: no layout of the run fits the ranks of this machine alone (1)"
    nothing_left
    boot "$run"
    ends_well 0 1
    told 0 resume "continuing after step"
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

# Every process of every node is killed. The same command continues from the newest checkpoint, to the same bits.
all_at_once() {
    near 2 1 1
    heals at-once parallel.zero=2
    after 0 130
    kill -9 $(all_of 0) $(all_of 1) $(all_of 2)
    ended 137
    nothing_left
    boot "$run"
    ends_well 0 1 2
    told 0 resume "continuing after step"
}

# Who gives up is killed while it saves what it has. It ends, and the run goes on from what was saved before.
last_world_lost() {
    steps=1000 whole=thousand
    near 2 2
    saves=1000 heals last-lost cluster.give_up_s=2 run.faults=save@2:1
    after 0 40
    kill -9 "$(supervisor 0)"
    ended 137 69
    on 1 "gives up"
    [ -z "$(event_of 1 last)" ] || fail "it says that it was not lost: $(event_of 1 last)"
    nothing_left
    boot "$run"
    ends_well 0 1
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

# A cut through the middle of four nodes: a second switch, with a cable between the two, which is pulled.
two_switches() {
    ip -n "$mark-sw" link add second type bridge && ip -n "$mark-sw" link set second up &&
        ip -n "$mark-sw" link add between type veth peer name across &&
        ip -n "$mark-sw" link set between master switch up && ip -n "$mark-sw" link set across master second up &&
        for k; do ip -n "$mark-sw" link set "plug$k" master second || return; done
} 2>"$out"
pull() { ip -n "$mark-sw" link set between down; }
mend() { ip -n "$mark-sw" link set between up; }

# The half of the ranks that has the lowest voter goes on. The other half waits, and joins again after the cut has
# healed. There is one history: every node has logged only steps of the undisturbed run.
# A node's snapshot has its copy on the next node, so a half that consists of every second node has all snapshots.
far_cut_in_half() {
    steps=3000 whole=longest
    elastic=$(echo "$elastic" | sed 's/dead_s=0.6/dead_s=1.5/')  # on a busy machine a healthy node may be silent for 0.6 s
    far 1 1 1 1
    two_switches 1 3 || fail "no second switch"
    heals half run.faults=drag@200x1500  # 15 s that do not pass sooner for half as many ranks
    after 0 70
    pull
    until_true 30 has_event 0 healed "world 2 of this run"
    until_true 20 grep -q "too few voters are heard" node1/out
    until_true 20 grep -q "too few voters are heard" node3/out
    before=$(last_step node1/runs/half)
    slowly 4 is_past $(($(now) + 2000))
    [ "$(last_step node1/runs/half)" -eq "$before" ] || fail "the half without the lowest voter goes on"
    mend
    slowly 90 came_to node1 "$before"
    slowly 90 came_to node3 "$before"
    ends_well 0 2
    part_of_steps 1
    part_of_steps 3
    [ "$(last_step node1/runs/half)" -eq $steps ] && [ "$(last_step node3/runs/half)" -eq $steps ] ||
        fail "who was cut off has not come to the end with the others"
    figures 0
}
came_to() { [ "$(last_step "$1/runs/half")" -gt "$2" ]; }

# They stay apart: the half without the lowest voter gives up, and the other one comes to the end.
far_cut_for_good() {
    far 1 1 1 1
    two_switches 1 3 || fail "no second switch"
    heals apart cluster.give_up_s=4
    after 0 70
    pull
    until_true 30 has_event 0 healed "world 2 of this run"
    codes="0 69 0 69" ends_well 0 2
    on 1 "gives up"
    on 3 "gives up"
    part_of_steps 1
    part_of_steps 3
}

# Neighbours cut off together take a node's snapshot and its copy along, and their parts of checkpoints: neither half has
# all. Both end, as what can be started again; and so it is, when the cable is in its place.
far_cut_beside_neighbours() {
    far 1 1 1 1
    two_switches 2 3 || fail "no second switch"
    heals beside cluster.give_up_s=4
    after 0 70
    pull
    ended 69
    on 0 "the nodes that are left have too little to go on"
    on 2 "gives up"
    mend
    boot "$run"
    ends_well 0 1 2 3
    has_event 0 resume "continuing after step 60" || fail "it did not go on from the checkpoint"
}

# What node 1 sends to node 0 is lost; the other way it comes, and both hear node 2.
far_one_way() {
    far 1 1 1
    heals one-way cluster.give_up_s=4
    after 0 70
    ip -n "$mark-1" neigh replace "$(host 0)" lladdr 02:00:00:00:00:99 nud permanent dev eth0
    until_true 30 one_of_both_went_on
    if has_event 0 healed "world 2 of this run"; then stays=0 goes=1 codes="0 69 0"; else stays=1 goes=0 codes="69 0 0"; fi
    ends_well $stays 2
    part_of_steps $goes
    figures $stays
}
one_of_both_went_on() { has_event 0 healed "world 2 of this run" || has_event 1 healed "world 2 of this run"; }

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
try servers
try crowded
try rejoined
try node_stands_still
try higher_stands_still
try stages_apart
try rank_stands_still
try all_at_once
try last_world_lost
try far_cut_one
try far_cut_two
try far_cut_in_half
try far_cut_for_good
try far_cut_beside_neighbours
try far_one_way
try far_council_filtered
try chaos_of_two chaos_of 1 2 1
try chaos_of_three chaos_of 0 1 1 1
finish
