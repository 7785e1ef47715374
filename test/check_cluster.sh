#!/bin/sh
# test/check_cluster.sh: what test_cluster.sh asks for, in all other ways: every world and stage, more nodes,
# namespaces, cables that are cut, kills at any moment, and whatever takes long.
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"

# --- the same bits ----------------------------------------------------------------------------------------------------

# The model of config.ini on our own sources, as the README does it: every world size, every stage, each stage with an
# odd world.
default_model() {
    case $bin in */asan/*) skip "with sanitizers it takes minutes; every_world_and_stage does the same with a small model" ;; esac
    printf '[pack]\noutput = %s/data/self\n' "$work" >self.ini
    (cd "$top" && "$bin" pack config.ini "$work/self.ini") >"$out" 2>&1 || fail "our sources can't be packed"
    for layout in 1-0 2-1 3-0 3-3 4-2 5-1 5-2 8-3; do
        settings d$layout run.dir=runs run.steps=15 data.train="data/self-train-*.bin" data.val="" batch.lanes=8 \
            batch.micro=2 \
            schedule.warmup=6 sample.tokens=0 log.every=1 log.hash_every=3 checkpoint.keep_best=no \
            checkpoint.every=0 \
            device.ranks=${layout%-*} parallel.zero=${layout#*-}
        expect 0 timeout 100 "$bin" "$top/config.ini" d$layout.ini
        says "gpt 4 layers 128 channels"
        like runs/d1-0 runs/d$layout
    done
    [ "$(facts runs/d1-0 | grep '"t":"step"' | grep -c '"hash":')" -eq 5 ] ||
        fail "no hash in every third record of the log"
}

# All of them, with a small model whose sizes leave a tail everywhere.
every_world_and_stage() {
    alone ref 1
    for ranks in 2 3 4 5 8; do
        for stage in 0 1 2 3; do
            alone "w$ranks-z$stage" $ranks parallel.zero=$stage run.steps=20
            like runs/ref "runs/w$ranks-z$stage"
            rm -rf "runs/w$ranks-z$stage"
        done
    done
    # and these must differ, or nothing was compared
    alone seed 3 run.seed=2
    [ "$(hashes runs/ref)" != "$(hashes runs/seed)" ] || fail "another seed gives the same hash"
}

sixteen_bits_and_offload() {
    for compute in bf16 fp16; do
        set -- precision.compute=$compute run.steps=10
        alone $compute 1 "$@"
        for how in 3-1-no 4-3-no 5-2-yes 2-0-yes; do
            stage=${how#*-}
            alone $compute-$how ${how%%-*} "$@" parallel.zero=${stage%-*} parallel.offload=${stage#*-}
            like runs/$compute runs/$compute-$how
        done
    done
    [ "$(hashes runs/bf16)" != "$(hashes runs/fp16)" ] || fail "bf16 and fp16 give the same hash"
}

# Which rank adds a part of the sum changes no bit of it.
small_buckets() {
    alone ref 1
    alone buckets 3 reduce.bucket_mb=1 parallel.zero=2 data.prefetch=2 device.threads=2
    like runs/ref runs/buckets
}

# --- nodes ------------------------------------------------------------------------------------------------------------

near_four_nodes() { near 1 1 1 1 && as_one near4 parallel.zero=1; }
near_uneven_nodes() { near 1 3 1 && as_one near131 parallel.zero=2; }
far_one_node() { far 4 && alone ref 1 && together far-4 && boot far-4 && ended 0 && nodes_like runs/ref far-4; }
far_four_nodes() { far 1 1 1 1 && as_one far-1111; }

# stages_over REF RUN "CABLE" STAGES SETTING...: one node of one rank and one of two, over this cable, in each stage.
stages_over() {
    ref=$1 run_as=$2 cable_of=$3 stages=$4
    shift 4
    for stage in $stages; do
        lossy $cable_of 1 2
        together $run_as-$stage "$@" parallel.zero=$stage
        boot $run_as-$stage
        ended 0
        nodes_like runs/$ref $run_as-$stage
        reap
    done
}

# The same in the other stages, with a rank that has a neighbour, and without any hash but those of checkpoints.
stages_over_a_bad_cable() {
    set -- run.steps=6 model.layers=1 model.embed=16 eval.every=3 eval.batches=4 log.hash_every=0
    alone bare 1 "$@"
    stages_over bare bad "20 1" "0 2 3" "$@"
}

# Lanes in codes over thin wires, in a stage that sends sums back and in one that sends weights.
codes_over_thin_wires() {
    set -- run.steps=6 eval.every=3 eval.batches=4 log.hash_every=1 batch.lanes=4 batch.micro=2 reduce.compress=int8 \
        reduce.compress_back=int8
    alone coded 1 "$@"
    mbit=100
    stages_over coded thin "0 0" "0 2" "$@"
}

# One of four machines has a cable of a tenth.
slow_cable() {
    mbit=100,100,100,10
    lossy 0 0 1 1 1 1
    together linked
    verb='bench links'
    boot linked
    ended 0
    on 0 "links   6 between 4 machines: a quarter of them carry " \
        "slow    all links of 10.77.0.4: look at its cable, its port, its card and its settings"
    [ "$(grep -c '^slow' node0/out)" -eq 1 ] || fail "$(cat node0/out)"
}

# A message is 20 ms on its way.
long_cable() {
    lossy 20 0 1 1
    together linked
    verb='bench links'
    boot linked
    ended 0
    awk '/ MB\/s +[0-9.]+ us$/ { n++; us = $(NF - 1) } END { exit n != 1 || us < 20000 || us > 400000 }' node0/out ||
        fail "a message of a few bytes takes $(cat node0/out)"
}

# --- stopped and continued --------------------------------------------------------------------------------------------

# So long a run that no layout but the last gets to its end.
stopped_and_dealt_anew() {
    moves moved TERM 20 run.steps=600 eval.every=50 eval.batches=2 model.embed=16 model.layers=1 batch.global=8 <<'LAYOUTS'
4 parallel.zero=2
3 parallel.zero=0
8 parallel.zero=3
1
LAYOUTS
    [ "$stops" -eq 3 ] && [ "$before" -lt 600 ] || fail "$stops stops, the last one after step $before"
    # every sample once: the records of all steps, each once, in order
    sed -n 's/^{"t":"step","step":\([0-9]*\),.*/\1/p' runs/moved/log.jsonl |
        awk '$1 != NR { bad = 1 } END { exit bad || NR != 600 }' || fail "not each step once"
}

# A node and the one that has its copies: what was trained is gone, and that is said, not trained anew.
too_many_lost() {
    near 1 1 1
    together gone $long parallel.zero=1
    boot gone
    stop_nodes gone 20 0
    rm -rf node1/runs node2/runs
    cp -R node0/runs before
    boot gone
    ended 65
    for k in 0 1 2; do on $k "step-" "missing" "$(host 1)"; done
    diff -rq before node0/runs | grep -v events.jsonl >differs
    [ ! -s differs ] || fail "what is left was touched: $(head -n 1 differs)"
}

# What all ranks find out together is everybody's reason to end, with its own exit status and not as the loss of
# somebody.
refused_together() {
    near 1 1 1
    for setting in "78 run.resume=never" "78 optimizer.lr=0.5" "65 run.resume=must"; do
        set -- $setting
        key=${2#*.} key=${key%=*}
        rm -rf node?/runs
        if [ "$1" = 78 ]; then
            together agreed run.steps=5 eval.every=0
            boot agreed
            ended 0
        fi
        together agreed run.steps=10 schedule.decay_steps=5 eval.every=0 "$2"
        for turn in 1 2 3; do
            boot agreed
            ended "$1"
            for k in 0 1 2; do
                on $k "$key"
                ! grep -E "gives up|is lost" node$k/out || fail "node $k speaks of a loss"
            done
        done
    done
}

# The node that has the log loses its disk: the earlier steps are gone from the log, the weights are the same.
first_node_lost() {
    near 2 1
    alone long 1 $long
    together first $long parallel.zero=2
    boot first
    stop_nodes first 20 0
    rm -rf node0/runs
    boot first
    ended 0
    union first
    same_end runs/long union/first
}

# Nodes that go down without a word: one, another, all, at any moment, whatever was being written. Each time the run
# continues from what the nodes have together, and it ends like one to which nothing happened.
killed_eight_times() {
    near 1 2 1
    alone cutless 1 $long checkpoint.every=3 checkpoint.keep=2
    together cuts $long checkpoint.every=3 checkpoint.keep=2 parallel.zero=1 cluster.heartbeat=0.2
    seed=5 cuts=0
    while [ $cuts -lt 8 ]; do
        before=$(last_step node0/runs/cuts)
        boot cuts
        until_step node0/runs/cuts $((${before:-0} + 2))
        seed=$(((seed * 1103515245 + 12345) % 2147483648))
        sleep "$(printf '0.%03d' $((seed / 65536 % 200)))"
        case $((cuts % 4)) in 0) who=0 ;; 1) who=1 ;; 2) who=2 ;; *) who="0 1 2" ;; esac
        for k in $who; do kill -9 "$(supervisor "$k")" 2>/dev/null; done
        until_over $pids
        for each in $pids; do wait "$each"; done
        cuts=$((cuts + 1))
    done
    [ "$(last_step node0/runs/cuts)" -lt 400 ] || fail "it was done before the last cut"
    boot cuts
    ended 0
    nodes_like runs/cutless cuts
    [ "$(grep -c '"kind":"resume"' node0/runs/cuts/events.jsonl)" -ge 6 ] ||
        fail "it hardly ever continued from a checkpoint"
}

# --- lost -------------------------------------------------------------------------------------------------------------

far_rank_killed() { rank_killed far; }

# With its supervisor a node's ranks die. Each of them may be the one that is missed first.
supervisor_killed() {
    near 2 1 2
    begin_endless headless
    kill -9 "$(supervisor 2)"
    all_lose '[34]' "$(host 2)" "69 69 137" 0 1
}

far_cut_off() {
    far 1 1 1
    begin_endless cut 3
    ip -n "$mark-1" link set eth0 down
    ended 69
    [ $took -le 11000 ] || fail "it took $took ms until all had ended, with timeout = 3"
    for k in 0 2; do on $k "rank 1 ($(host 1)) is lost: it shows no sign of life"; done
    on 1 "rank 0 ($(host 0)) is lost: it shows no sign of life"
    nothing_left
}

# A cable that is out for a moment: what was on its way is sent again, and the run goes on.
far_unplugged_for_a_moment() {
    far 1 1
    alone long 1 $long
    together moment $long cluster.timeout=20 cluster.heartbeat=0.2
    boot moment
    until_step node0/runs/moment 10
    ip -n "$mark-sw" link set plug1 down
    sleep 0.3
    at=$(last_step node0/runs/moment)
    sleep 0.3
    [ "$(last_step node0/runs/moment)" -eq "$at" ] || fail "the cable is out, and the run went on"
    ip -n "$mark-sw" link set plug1 up
    ended 0
    nodes_like runs/long moment
}

# The pause is shorter than the timeout: no rank is given up.
paused() {
    near 2 1
    alone long 1 $long
    together paused $long cluster.timeout=20 cluster.heartbeat=0.2
    boot paused
    until_step node0/runs/paused 10
    for victim in 0:1 1:0 0:0; do
        who=$(rank ${victim%:*} ${victim#*:})
        kill -STOP "$who"
        sleep 0.7
        at=$(last_step node0/runs/paused)
        sleep 0.3
        [ "$(last_step node0/runs/paused)" -eq "$at" ] ||
            fail "rank ${victim#*:} of node ${victim%:*} was stopped, and the run went on"
        kill -CONT "$who"
        until_step node0/runs/paused $((at + 5))
    done
    ended 0
    nodes_like runs/long paused
}

# Rank 1 gets a fifth of the time that it needs, and is named. Every step is stopped, most of them twice. Longer stops
# would settle on one place of the step, and a rank that is stopped while it waits for the other one is not slow.
# (test_report asks which ranks are named, with exact figures. Here the machine may hold up another rank, which is then
# rightly named too.)
straggler() {
    settings slow $forever model.embed=64 model.context=64 batch.micro=8 batch.global=64 log.every=5 device.ranks=2
    start "$bin" base.ini slow.ini
    until_step runs/slow 5
    slow=$(children "$pid" | sed -n 2p)
    n=0 early=$(events_of_rank_1)
    while [ $n -lt 1000 ]; do
        kill -STOP "$slow"
        sleep 0.02
        ! slow_enough || n=1000  # asked while it stands still: it shall not run longer than it must
        kill -CONT "$slow"
        sleep 0.005
        n=$((n + 1))
    done
    kill -TERM "$pid"
    comes_to 75
    slow_enough || fail "rank 1 was slowed down and not named: $(tail -n 3 runs/slow/events.jsonl)"
}

events_of_rank_1() { grep -c '"kind":"straggler".*"text":"rank 1 (localhost)' runs/slow/events.jsonl; }
slow_enough() { [ "$(events_of_rank_1)" -gt "$early" ]; }

# --- many -------------------------------------------------------------------------------------------------------------

sixty_four_ranks() {
    set -- run.steps=20 model.layers=1 model.embed=8 model.heads=1 model.context=8 batch.lanes=64 batch.global=64 \
        batch.micro=1 \
        eval.every=0 log.hash_every=5
    alone many-1 1 "$@"
    for ranks in 2 8 32 64; do
        settings many-$ranks device.ranks=$ranks "$@"
        from=$(now)
        start timeout 60 "$bin" base.ini many-$ranks.ini
        until_step runs/many-$ranks 1
        echo "start-up of $ranks ranks: $(awk -v ms=$(($(now) - from)) 'BEGIN { printf "%.2f", ms / 1000 }') s"
        comes_to 0
        like runs/many-1 runs/many-$ranks
    done
}

# --- who may take part ------------------------------------------------------------------------------------------------

open_secret() {
    near 1 1
    together open cluster.timeout=2
    chmod 644 node0/secret
    chmod 640 node1/secret
    boot open
    ended 77
    on 0 "0644" "chmod 600 secret"
    on 1 "0640" "chmod 600 secret"
    untouched
}

# First the one at which rank 0 waits for the others, then the one for its data. It belongs to another lockstep, waiting
# for a node that does not come, and has the port above as well.
port_taken() {
    near 1 1
    port=$((port + 1))
    together taken cluster.timeout=3
    for taken in $port $((port + 1)); do
        settings squatter cluster.nodes="$(host 0), 127.0.0.77" cluster.port=$((2 * taken - port - 1)) \
            cluster.timeout=30 \
            cluster.secret_file=secret run.dir=other
        LOCKSTEP_NODE=0 start "$bin" base.ini squatter.ini
        until_true 10 is_listening "$taken"
        boot taken 0
        ended 69
        on 0 "$(host 0):$taken" "ss -ltnp" "[cluster] port"
        kill -9 "$pid"
        await 137
    done
}

other_data() {
    near 1 1
    together otherdata cluster.timeout=10
    rm node1/data
    mkdir node1/data
    text 79000 >text2.txt
    settings pack2 pack.input=text2.txt pack.output=node1/data/plain
    expect 0 "$bin" pack base.ini pack2.ini
    boot otherdata
    ended 78
    both_say dataset
    untouched
}

other_world() {
    near 1 1
    together world cluster.timeout=5
    sed -i 's/^secret_file.*/&\nnodes = "127.0.0.1:1, 127.0.0.2:2"/' node1/own.ini
    boot world
    ended 78
    for k in 0 1; do on $k "world size 3" "has 2"; done
    untouched
}

# Of three nodes none has all files of a checkpoint: fork says which are missing and where they are. With them the first
# node forks, the others have nothing of the new run and get it when it starts, and it ends as one rank's run does.
forked() {
    alone ref 1
    near 1 1 1
    together whole parallel.zero=1 checkpoint.every=10
    boot whole
    ended 0
    (cd node0 && expect 65 "$bin" fork runs/whole@10 part) || exit 1
    says "2 of its 6 files are missing: model-00001-of-00003.safetensors (of rank 1, written on 127.0.0.2)" \
        "Copy them into this directory"
    [ ! -e node0/runs/part ] && [ ! -e node0/runs/.part.fork ] || fail "something is left"
    for file in node1/runs/whole/ckpt/step-00000010/*; do
        [ -e "node0/runs/whole/ckpt/step-00000010/${file##*/}" ] || cp "$file" node0/runs/whole/ckpt/step-00000010
    done
    (cd node0 && expect 0 "$bin" fork runs/whole@10 part) || exit 1
    together part parallel.zero=1
    boot part
    ended 0
    nodes_like runs/ref part
    nothing_left
}

# Both stop at the same step; the first one says how to go on.
diverged() {
    near 1 1
    together lost optimizer.lr=1000 optimizer.grad_clip=0 run.steps=100 run.bad_steps=10
    boot lost
    ended 75
    on 0 "stopped by [run] bad_steps = 10: no finite loss or gradient in steps " ". Next: lockstep "
    on 1 "the run has diverged; the first node says how to go on"
    for k in 0 1; do grep -q '"state":"diverged"' node$k/runs/lost/status.json || fail "node $k does not say it"; done
    nothing_left
}

try forked
try diverged
try default_model
try every_world_and_stage
try sixteen_bits_and_offload
try small_buckets
try near_four_nodes
try near_uneven_nodes
try far_one_node
try far_four_nodes
try stages_over_a_bad_cable
try codes_over_thin_wires
try slow_cable
try long_cable
try stopped_and_dealt_anew
try too_many_lost
try refused_together
try first_node_lost
try killed_eight_times
try far_rank_killed
try supervisor_killed
try far_cut_off
try far_unplugged_for_a_moment
try paused
try straggler
try sixty_four_ranks
try open_secret
try port_taken
try other_data
try other_world
finish
