#!/bin/sh
# test/test_cluster.sh: many ranks and nodes, from the outside. However a run is dealt to ranks and nodes, its log has
# the same losses and hashes as that of one rank; and a process that dies, hangs or does not belong here is named,
# everywhere, and nothing of it is left. One case of each kind, for `make test`; check_cluster.sh has the others.
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"

# --- the same bits ----------------------------------------------------------------------------------------------------

# Some worlds, each stage; test_ranks has them all, and check_cluster.sh from the outside.
worlds_and_stages() {
    alone ref 1
    for layout in 2-1 3-3 4-0 5-2; do
        alone "w$layout" "${layout%-*}" parallel.zero="${layout#*-}"
        like runs/ref "runs/w$layout"
    done
    # and this must differ, or nothing was compared
    alone seed 3 run.seed=2
    [ "$(hashes runs/ref)" != "$(hashes runs/seed)" ] || fail "another seed gives the same hash"
}

# The path that gradients take between GPUs, with a library in NCCL's place.
through_nccl() {
    library=$(built libnccl-standin.so)
    [ -n "$library" ] || skip "build/test/libnccl-standin.so is not built: make tests"
    alone ref 1
    for ranks in 2 4; do
        alone nccl$ranks $ranks reduce.transport=nccl reduce.nccl_library="$library" parallel.zero=$((ranks - 2))
        says "on 1 node" "nccl 2"
        like runs/ref runs/nccl$ranks
    done
}

near_two_nodes() { near 2 2 && as_one near22 parallel.zero=3 && watched near22; }

# watched RUN: each node's watcher has seen its own ranks, and the end; the first node's knows the loss.
watched() {
    for k in 0 1; do
        at=node$k/runs/$1/status.json
        grep -q '"run":"'"$1"'",.*"node":'$k',"nodes":2,.*"world":4' "$at" &&
            grep -q '"state":"done","step":20,' "$at" &&
            [ "$(grep -c '^  {"rank":['$((2 * k))$((2 * k + 1))'],.*"phase":"ended"' "$at")" -eq 2 ] ||
            fail "node $k: $(cat "$at")"
    done
    grep -q '"loss":[0-9]' "node0/runs/$1/status.json" && grep -q '"loss":null' "node1/runs/$1/status.json" ||
        fail "who knows the loss? $(cat node?/runs/"$1"/status.json)"
}
# Those inside each machine, and one between the machines; it makes no run directory.
links() {
    near 3 1
    together linked
    verb='bench links'
    boot linked
    verb=
    ended 0
    on 0 "links   3 between 3 ranks of 127.0.0.1: a quarter of them carry " "  rank 1                   rank 2 " \
        "links   1 between 2 machines: a quarter of them carry " "  127.0.0.1                127.0.0.2 "
    [ ! -e node0/runs/linked ] || fail "it made a run directory"
    expect 78 "$bin" bench links base.ini
    says "this run has one rank, which has no links"
}

# The nodes of a job of Slurm's, and a list as MPI has it.
others_lists() {
    near 2 1
    alone ref 1
    printf '# ours\n127.0.0.1 slots=2\n127.0.0.2\n' >hosts
    SLURM_JOB_NODELIST='127.0.0.[1-2]'
    export SLURM_JOB_NODELIST
    for list in slurm:1 file:../hosts; do
        settings listed-${list%:*} cluster.nodes=$list cluster.port="$port" device.threads=1
        boot listed-${list%:*}
        ended 0
        nodes_like runs/ref listed-${list%:*}
    done
    on 0 "on 2 nodes"
}
# Each node finds the racks in its settings, and the start says so.
racks_of_nodes() {
    near 1 2 1 1
    as_one racked cluster.racks=0-1,2-3 parallel.zero=1
    on 0 "ranks   5 on 4 nodes in 2 racks  zero 1"
}
far_two_nodes() { far 2 2 && as_one far-22 parallel.zero=2; }

# Hashed every fifth step only: most steps are followed by the next one, one by an evaluation, while weights are on
# their way.
over_a_bad_cable() {
    set -- run.steps=8 model.layers=1 model.embed=16 eval.every=4 eval.batches=4 log.hash_every=5
    alone tiny 1 "$@"
    lossy 20 1 1 1
    together bad-cable "$@" parallel.zero=1
    boot bad-cable
    ended 0
    nodes_like runs/tiny bad-cable
    # it was as slow as a round trip of 40 ms makes it, or the cable was a good one
    sed -n 's/^{"t":"step","step":[2-8],.*,"ms":\([0-9]*\).*/\1/p' node0/runs/bad-cable/log.jsonl |
        awk '$1 < 40 { bad = 1 } END { exit bad || NR != 7 }' ||
        fail "the cable has no delay: $(head -n 2 node0/runs/bad-cable/log.jsonl)"
}

# Each node has the questions itself. They are asked while it trains and after it, and the answers are one rank's; only
# rank 0 says them.
questions_on_nodes() {
    printf '{"query": "the a", "choices": ["one", "two step lane", "x"], "gold": 1}\n{"ctx": "tree sum", "endings": ["bit", "qqqqqq"], "label": "0"}\n' >q.jsonl
    text 2000 >part.txt
    set -- run.steps=6 eval.every=3 log.hash_every=0 eval.choices=q.jsonl eval.text=part.txt
    alone asked 1 "$@"
    expect 0 "$bin" eval base.ini asked.ini
    cp "$out" answers
    near 2 1
    cp q.jsonl part.txt node0
    cp q.jsonl part.txt node1
    together asking "$@" parallel.zero=3
    boot asking
    ended 0
    nodes_like runs/asked asking
    verb=eval
    boot asking
    ended 0
    same answers node0/out "the answers of one rank and of two nodes"
    [ ! -s node1/out ] || fail "node 1 says something too: $(cat node1/out)"
    sed -i 's/lane/sum/' node1/q.jsonl
    boot asking
    ended 78
    for k in 0 1; do on $k dataset; done
    verb=
    nothing_left
}

# --- stopped and continued --------------------------------------------------------------------------------------------

# One is asked, or all; then a node comes back with an empty disk. Its files are on its buddy's.
stopped_nodes() {
    near 1 1 2
    alone long 1 $long
    together lost $long parallel.zero=1
    boot lost
    stop_nodes lost 20 1
    nothing_left
    rm -rf node1/runs
    boot lost
    stop_nodes lost $(($(last_step node0/runs/lost) + 20)) 0 1 2
    rm -rf node2/runs
    boot lost
    ended 0
    nodes_like runs/long lost
}

# --- lost -------------------------------------------------------------------------------------------------------------

# The same without any network.
local_rank_killed() {
    settings single $endless device.ranks=3 cluster.heartbeat=0.1
    start "$bin" base.ini single.ini
    until_step runs/single 5
    sleep 0.5
    kill -9 "$(children "$pid" | sed -n 3p)"
    from=$(now)
    comes_to 69
    [ $(($(now) - from)) -le 5000 ] || fail "it took $(($(now) - from)) ms until it had ended"
    says "rank 2 (localhost) was killed by signal 9"
    for each in 0 1; do
        grep -qE "rank $each \\(localhost\\): in [a-z ]+[0-9]+ of step [0-9]+: rank 2 \\(localhost\\) is lost: .*, in [a-z].* of step [0-9]+" "$out" ||
            fail "rank $each does not miss rank 2"
    done
}

near_rank_killed() { rank_killed near; }

# Longer than the timeout: it is given up, and what is left of it is ended by its supervisor.
rank_hangs() {
    near 1 2
    begin_endless hung 2
    kill -STOP "$(rank 1 1)"
    ended 69
    [ $took -le 15000 ] || fail "it took $took ms until all had ended, with timeout = 2"
    for k in 0 1; do on $k "rank 2 ($(host 1)) is lost: it shows no sign of life"; done
    nothing_left
}

# --- who may take part ------------------------------------------------------------------------------------------------

no_secret() {
    near 1 1
    together secretless cluster.timeout=5
    for k in 0 1; do printf '[run]\ndir = runs\n' >node$k/own.ini; done
    boot secretless
    ended 77
    for k in 0 1; do on $k "[cluster] secret_file" "head -c 32 /dev/urandom"; done
    untouched
}

# Node 1 does not get in, and can't be told from a stranger; node 2 could.
wrong_secret() {
    near 1 2 1
    together wrong cluster.timeout=4
    head -c 32 /dev/urandom >node1/secret
    boot wrong
    ended 69 77 69
    [ $took -le 12000 ] || fail "it took $took ms with timeout = 4"
    for k in 0 2; do on $k "2 of 4 ranks did not come within 4 s: rank 1, 2 (127.0.0.2)"; done
    on 1 "secret"
    untouched
    nothing_left
}

missing_node() {
    near 1 1 1
    together missing cluster.timeout=3
    boot missing 0
    boot missing 1
    ended 69
    for k in 0 1; do on $k "1 of 3 ranks did not come within 3 s: rank 2 (127.0.0.3)"; done
    nothing_left
}

# The nodes' settings and data are compared before anything else is done; both sides say both values.
other_settings() {
    near 1 1
    together other cluster.timeout=10
    printf '[optimizer]\nlr = 0.01\n[parallel]\nzero = 2\n' >>node1/own.ini
    boot other
    ended 78
    for k in 0 1; do
        on $k "rank 1 (127.0.0.2) and rank 0 (127.0.0.1) have different settings: [optimizer] lr = 0.01 and 0.001; [parallel] zero = 2 and 0: the INI"
    done
    untouched
    near 2 2
    together other cluster.timeout=30
    printf '[optimizer]\nlr = 0.01\n[run]\nseed = 7\n' >>node1/own.ini
    boot other
    ended 78
    [ $took -le 3000 ] || fail "it took $took ms until all had ended, with timeout = 30"
    for k in 0 1; do
        on $k "(127.0.0.2) and rank 0 (127.0.0.1) have different settings: [run] seed = 7 and 1337; [optimizer] lr = 0.01 and 0.001"
    done
    near 1 1
    printf '[run]\ndir = runs\n[cluster]\nsecret_file = secret\n[device]\nthreads = 1\n[data]\nprefetch = 3\n' \
        >node1/own.ini
    together other run.steps=5 cluster.timeout=10
    boot other
    ended 0
}

# Each node has memory of its own: its ranks are added up, those of other nodes are not.
memory_of_each_node() {
    for ranks in 1 2; do
        near $ranks $ranks
        together huge model.layers=24 model.heads=24 model.embed=24576 cluster.timeout=10
        boot huge
        ended 78
        case $ranks in 1) who="this run needs" ;; *) who="the $ranks ranks on this machine need" ;; esac
        on 0 "$who " " of memory, and "
    done
}

# Two builds that differ in one constant, and in no word that git has for them: here one binary, and a copy that says
# other sources of itself. Only the first digit is another one: the linker may have made the end of this text, "40" or
# "0", the same bytes as another constant.
other_build() {
    sources=$("$bin" version | sed -n 's/^sources *//p') usual=$bin
    [ ${#sources} -eq 16 ] || fail "no digest of the sources: $sources"
    near 1 1
    together builds cluster.timeout=10
    case $sources in 0*) other=1${sources#?} ;; *) other=0${sources#?} ;; esac
    sed "s/$sources/$other/" "$bin" >other-build && chmod +x other-build
    boot builds 0
    bin=$work/other-build
    boot builds 1
    bin=$usual
    ended 78
    for k in 0 1; do
        on $k "rank 1 (127.0.0.2) runs build $other, rank 0 (127.0.0.1) runs $sources" "copy one binary"
    done
    untouched
    nothing_left
}

# A node that waits says for whom, to people and to a service manager, and can be stopped at once. So can one that has
# joined.
silent_nodes() {
    near 1 1 1
    together waits cluster.timeout=60
    boot waits 0
    until_true 10 grep -qs "waiting for 127.0.0.2, 127.0.0.3 (1 of 3 nodes are here)" node0/out
    boot waits 1
    until_true 10 grep -qs "joined 127.0.0.1; waiting for other nodes" node1/out
    until_true 10 grep -qs "waiting for 127.0.0.3 (2 of 3 nodes are here)" node0/out
    since=$(now)
    kill -TERM "$(supervisor 1)"
    ended 75
    [ $(($(now) - since)) -le 3000 ] || fail "it took $(($(now) - since)) ms until all had stopped"
    on 0 "rank 1 (127.0.0.2): stopped on request while the ranks were meeting: nothing was trained, nothing had to be saved"
    on 1 "stopped on request; nothing was trained, nothing had to be saved"
    for k in 0 1; do ! grep "checkpoint\|continues" node$k/out || fail "there is no checkpoint to speak of"; done
    untouched
    nothing_left
    near 1 1
    together joins run.steps=6
    boot joins
    ended 0
    on 1 "joined; progress is on node 0 (127.0.0.1)"
    ! grep "joined; progress" node0/out || fail "node 0 sends people elsewhere"
}

# Each node counts what is bad; it is said, and written down, on one of them.
diverging_nodes() {
    near 1 1
    together wild optimizer.lr=1000 optimizer.grad_clip=0 run.steps=200 run.bad_steps=8
    boot wild
    ended 75
    for kind in diverged gave_up; do
        grep -q "\"kind\":\"$kind\"" node0/runs/wild/events.jsonl || fail "node 0 does not say $kind"
        ! grep "\"kind\":\"$kind\"" node1/runs/wild/events.jsonl 2>/dev/null || fail "node 1 says $kind, too"
    done
    on 0 "stopped by [run] bad_steps = 8: no finite loss or gradient in steps "
}

# A run of one node is nobody's business: it has no socket but those between its own processes.
no_port() {
    settings quiet $endless device.ranks=3
    start "$bin" base.ini quiet.ini
    until_step runs/quiet 3
    who="$pid $(children "$pid")"
    [ "$(echo $who | wc -w)" -eq 4 ] || fail "expected a supervisor and three ranks, found $who"
    for each in $who; do
        for socket in $(ls -l /proc/"$each"/fd | sed -n 's/.*socket:\[\([0-9]*\)\].*/\1/p'); do
            (cd /proc/net && cat tcp tcp6 udp udp6 raw raw6 packet) 2>/dev/null | grep -q " $socket " &&
                fail "process $each has a socket of the network"
        done
    done
    kill -TERM "$pid"
    comes_to 75
    # the same look finds the ports of a node that waits for another one
    near 1 1
    together waits cluster.timeout=20
    boot waits 0
    until_true 10 is_listening "$port"
    ports_of $(children $pids) | grep -qx "$port" || fail "this test does not see that a port is open"
}

try worlds_and_stages
try through_nccl
try near_two_nodes
try links
try others_lists
try racks_of_nodes
try far_two_nodes
try over_a_bad_cable
try questions_on_nodes
try stopped_nodes
try local_rank_killed
try near_rank_killed
try rank_hangs
try no_secret
try wrong_secret
try missing_node
try other_settings
try memory_of_each_node
try other_build
try silent_nodes
try diverging_nodes
try no_port
finish
