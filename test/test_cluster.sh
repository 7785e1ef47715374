#!/bin/sh
# test/test_cluster.sh: many ranks and nodes, from the outside. However a run is dealt to ranks and nodes, its log has the same
# losses and hashes as that of one rank; and whoever dies, hangs, is cut off or does not belong here is named, everywhere, and
# nothing of it is left.
. test/support/lib.sh
. "$top/test/support/net.sh"

cat >base.ini <<'END'
[run]
dir = runs
steps = 20
[model]
layers = 2
heads = 2
embed = 40
context = 24
dropout = 0.1
[data]
train = data/plain-train-*.bin
val = data/plain-val-*.bin
[pack]
input = text.txt
output = data/plain
[batch]
global = 16
micro = 1
lanes = 8
[schedule]
warmup = 5
[checkpoint]
every = 0
keep_best = no
[eval]
every = 10
batches = 8
[sample]
tokens = 0
[log]
every = 1
hash_every = 1
END
text 80000 >text.txt
head -c 32 /dev/urandom >secret
chmod 600 secret
"$bin" pack base.ini >"$out" 2>&1 || { cat "$out"; echo "0 passed, 1 failed"; exit 1; }

# --- looking at runs -----------------------------------------------------------------------------------------------------------------

train() { timeout 100 "$bin" base.ini "$1.ini"; }

# facts DIR: the log without what a clock said and without what only several ranks have to say.
facts() {
    sed -e 's/,"ms":[^,}]*//' -e 's/,"tokens_per_s":[^,}]*//' -e 's/,"[a-z]*_wait_ms":[^,}]*//g' -e 's/,"comm_[a-z]*":[^,}]*//g' \
        -e 's/,"slowest_rank":[^,}]*//' -e 's/,"[a-z]*_compute_ms":[^,}]*//g' "$1/log.jsonl"
}

newest() { ls -d "$1"/ckpt/step-* 2>/dev/null | tail -n 1; }
newest_name() { basename "$(newest "$1")"; }
hashes() { "$bin" hash "$(newest "$1")" 2>&1 | sed "s/  [^ ]*$//"; }
last_step() { sed -n 's/^{"t":"step","step":\([0-9]*\),.*/\1/p' "$1/log.jsonl" 2>/dev/null | tail -n 1; }
has_logged() { [ "$(last_step "$1")" -ge "$2" ] 2>/dev/null; }

# until_step RUN STEP: until it has logged that step; node0/runs/RUN is one of the nodes' runs.
until_step() {
    until=$(($(now) + 40000))
    until has_logged "$1" "$2"; do
        case $1 in node*) cp node0/out "$out"; who=$(supervisor 0) ;; *) cp "$out.started" "$out"; who=$pid ;; esac
        [ "$(now)" -lt $until ] || fail "waited too long for step $2"
        grep -q ') [^Z]' "/proc/$who/stat" 2>/dev/null || has_logged "$1" "$2" || fail "it ended before step $2"
        sleep 0.01
    done
}

# same_end A B: the newest checkpoints of these run directories are of the same step and have the same hashes, every digest verified.
same_end() {
    [ "$(newest_name "$1")" = "$(newest_name "$2")" ] || fail "the newest checkpoint is $(newest "$2"), expected that of $(newest "$1")"
    hashes "$1" >hash.want
    hashes "$2" >hash.found
    grep -q '^hash [0-9a-f]*  state_hash [0-9a-f]*$' hash.want || fail "$1: no hash: $(cat hash.want)"
    same hash.want hash.found "the hashes of the newest checkpoints of $1 and $2"
}

# like A B: run directory B reads as if it were A: every record, the newest checkpoint, nothing left lying about.
like() {
    facts "$1" >log.want
    facts "$2" >log.found
    same log.want log.found "the logs of $1 and $2"
    same_end "$1" "$2"
    find "$2" -name '*.tmp*' -o -name '.old*' -o -name '.tmp-*' >litter
    [ ! -s litter ] || fail "$2: temporary files are left: $(head -n 3 litter)"
}

# alone RUN RANKS SETTING...: on this machine alone, with so many ranks; a run that is there already is not made again.
alone() {
    run=$1 ranks=$2
    shift 2
    [ ! -d "runs/$run" ] || return 0
    settings "$run" device.ranks="$ranks" "$@"
    expect 0 train "$run"
}

# together RUN SETTING...: the settings of a run on the nodes that were made.
together() {
    run=$1
    shift
    settings "$run" cluster.nodes="$list" cluster.port="$port" "$@"
}

# union RUN: what the nodes have of its newest checkpoint goes to union/RUN. Each file lies on two nodes, its own and the next, the
# manifest on all; what has the same name is the same.
union() {
    step=$(newest_name "node0/runs/$1")
    all=union/$1/ckpt/$step
    rm -rf "union/$1"
    mkdir -p "$all"
    for k in $(seq 0 $((nodes - 1))); do
        [ "$(newest_name "node$k/runs/$1")" = "$step" ] || fail "node $k: $step is not its newest checkpoint"
        find "node$k/runs/$1" -name '*.tmp*' -o -name '.old*' -o -name '.tmp-*' >litter
        [ ! -s litter ] || fail "temporary files are left: $(head -n 3 litter)"
        for file in "node$k/runs/$1/ckpt/$step"/*; do
            [ ! -e "$all/${file##*/}" ] || cmp -s "$file" "$all/${file##*/}" || fail "$file is not what another node has under this name"
            cp "$file" "$all"
        done
    done
    copies=$((nodes > 1 ? 2 : 1))
    for file in "$all"/*; do
        want=$copies
        [ "${file##*/}" != manifest.json ] || want=$nodes
        found=$(ls node?/runs/"$1"/ckpt/"$step"/"${file##*/}" | wc -l)
        [ "$found" -eq $want ] || fail "${file##*/} lies on $found nodes, expected $want"
    done
}

# nodes_like WANT RUN: the run on nodes reads like the one in WANT: node 0 has the log, all of them the checkpoint.
nodes_like() {
    union "$2"
    cp "node0/runs/$2/log.jsonl" "union/$2"
    like "$1" "union/$2"
}

# --- the same bits -------------------------------------------------------------------------------------------------------------------

# The model of config.ini on our own sources, as the README does it: every world size, every stage, each stage with an odd world.
default_model() {
    case $bin in */asan/*) skip "with sanitizers it takes minutes; every_world_and_stage does the same with a small model" ;; esac
    printf '[pack]\noutput = %s/data/self\n' "$work" >self.ini
    (cd "$top" && "$bin" pack config.ini "$work/self.ini") >"$out" 2>&1 || fail "our sources can't be packed"
    for layout in 1-0 2-1 3-0 3-3 4-2 5-1 5-2 8-3; do
        settings d$layout run.dir=runs run.steps=50 data.train="data/self-train-*.bin" data.val="" batch.lanes=8 batch.micro=2 \
            schedule.warmup=20 sample.tokens=0 log.every=1 log.hash_every=10 checkpoint.keep_best=no checkpoint.every=0 \
            device.ranks=${layout%-*} parallel.zero=${layout#*-}
        expect 0 timeout 100 "$bin" "$top/config.ini" d$layout.ini
        says "gpt 4 layers 128 channels"
        like runs/d1-0 runs/d$layout
    done
    [ "$(facts runs/d1-0 | grep '"t":"step"' | grep -c '"hash":')" -eq 5 ] || fail "no hash in every tenth record of the log"
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

# The sum is the same; who adds it is not told to the model.
small_buckets() {
    alone ref 1
    alone buckets 3 reduce.bucket_mb=1 parallel.zero=2 data.prefetch=2 device.threads=2
    like runs/ref runs/buckets
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

# --- nodes ---------------------------------------------------------------------------------------------------------------------------

# as_one RUN SETTING...: the nodes that were made train a run that ends like one rank's.
as_one() {
    alone ref 1
    together "$@"
    boot "$1"
    ended 0
    on 0 "on $nodes nodes"
    nodes_like runs/ref "$1"
    nothing_left
}

near_four_nodes() { near 1 1 1 1 && as_one near4 parallel.zero=1; }
near_two_nodes() { near 2 2 && as_one near22 parallel.zero=3; }
near_uneven_nodes() { near 1 3 1 && as_one near131 parallel.zero=2; }
far_one_node() { far 4 && alone ref 1 && together far-4 && boot far-4 && ended 0 && nodes_like runs/ref far-4; }
far_four_nodes() { far 1 1 1 1 && as_one far-1111; }
far_two_nodes() { far 2 2 && as_one far-22 parallel.zero=2; }

over_a_bad_cable() {
    tiny="run.steps=5 model.layers=1 model.embed=16 eval.every=0"
    alone tiny 1 $tiny
    lossy 20 1 1 1
    together bad-cable $tiny
    boot bad-cable
    ended 0
    nodes_like runs/tiny bad-cable
    # it was as slow as a round trip of 40 ms makes it, or the cable was a good one
    sed -n 's/^{"t":"step","step":[2-5],.*,"ms":\([0-9]*\).*/\1/p' node0/runs/bad-cable/log.jsonl |
        awk '$1 < 40 { bad = 1 } END { exit bad || NR != 4 }' ||
        fail "the cable has no delay: $(head -n 2 node0/runs/bad-cable/log.jsonl)"
}

# --- stopped and continued -----------------------------------------------------------------------------------------------------------

# Worlds 4, 3, 8, 1: each but the last is stopped after a few steps. So long a run that none of them gets to its end unasked.
stopped_and_dealt_anew() {
    set -- run.steps=600 eval.every=50 eval.batches=2 model.embed=16 model.layers=1 batch.global=8
    before=0
    for layout in 4:2 3:0 8:3; do
        settings moved "$@" device.ranks="${layout%:*}" parallel.zero="${layout#*:}"
        start "$bin" base.ini moved.ini
        until_step runs/moved $((before + 20))
        kill -TERM "$pid"
        comes_to 75
        says "stopped after step"
        before=$(last_step runs/moved)
        saved=$(newest_name runs/moved)
        [ "$saved" = "$(printf 'step-%08d' "$before")" ] || fail "step $before was the last one, saved is $saved"
    done
    [ "$before" -lt 600 ] || fail "it was done before it was stopped for the third time"
    settings moved "$@" device.ranks=1
    expect 0 train moved
    alone unmoved 1 "$@"
    like runs/unmoved runs/moved
    # every sample once: the records of all steps, each once, in order
    sed -n 's/^{"t":"step","step":\([0-9]*\),.*/\1/p' runs/moved/log.jsonl |
        awk '$1 != NR { bad = 1 } END { exit bad || NR != 600 }' || fail "not each step once"
    [ "$(grep -c '"kind":"resume"' runs/moved/events.jsonl)" -eq 3 ] || fail "not three resumes in events.jsonl"
}

long="run.steps=400 eval.every=0 model.embed=16 model.layers=1 batch.global=8"

# stop_nodes RUN STEP K...: SIGTERM to the supervisors of these nodes behind that step; all stop.
stop_nodes() {
    run=$1
    until_step "node0/runs/$run" "$2"
    shift 2
    for k; do kill -TERM "$(supervisor "$k")"; done
    ended 75
    on 0 "stopped after step"
}

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

# What all ranks find out together is everybody's reason to end, with its own exit status and not as the loss of somebody.
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

# The node that has the log loses its disk: the steps before are no longer told of, the weights are the same.
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

# Nodes that go down without a word: one, another, all, at any moment, whatever was being written. Each time the run continues from
# what the nodes have together, and it ends like one to which nothing happened.
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
    [ "$(grep -c '"kind":"resume"' node0/runs/cuts/events.jsonl)" -ge 6 ] || fail "it hardly ever continued from a checkpoint"
}

# --- lost ----------------------------------------------------------------------------------------------------------------------------

forever="run.steps=1000000 schedule.type=constant eval.every=0 log.hash_every=0"
endless="$forever model.embed=16 model.layers=1"

# all_lose RANK HOST CODES K...: the nodes end with these codes within 5 s, and nodes K say which rank was lost, of which node, and
# what it was doing.
all_lose() {
    rank=$1 host=$2
    ended $3
    [ $took -le 5000 ] || fail "it took $took ms until all had ended, expected 5 s at most"
    shift 3
    for k; do on_matching "$k" "rank $rank \\($host\\) is lost: .*, in [a-z].* of step [0-9]+"; done
    nothing_left
}

# Signs of life say what a rank is doing; some must have come.
begin_endless() {
    together "$1" $endless cluster.timeout="${2:-20}" cluster.heartbeat=0.1
    boot "$1"
    until_step "node0/runs/$1" 5
    sleep 0.5
}

# A rank of a node with several, then one that is a node's only one, then rank 0, to which all others are connected.
rank_killed() {
    "$@" 2 2 1
    begin_endless killed
    kill -9 "$(rank 1 1)"
    all_lose 3 "$(host 1)" 69 0 1 2
    on 1 "rank 3 was killed by signal 9"
    begin_endless killed-alone
    kill -9 "$(rank 2 0)"
    all_lose 4 "$(host 2)" 69 0 1
    on 2 "rank 4 was killed by signal 9"
    begin_endless killed-first
    kill -9 "$(rank 0 0)"
    all_lose 0 "$(host 0)" 69 0 1 2
    on 0 "rank 0 was killed by signal 9"
}
near_rank_killed() { rank_killed near; }
far_rank_killed() { rank_killed far; }

# With its supervisor a node's ranks die. Each of them may be the one that is missed first.
supervisor_killed() {
    near 2 1 2
    begin_endless headless
    kill -9 "$(supervisor 2)"
    all_lose '[34]' "$(host 2)" "69 69 137" 0 1
}

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
    says "rank 2 was killed by signal 9"
    for each in 0 1; do
        grep -qE "rank $each \\(localhost\\): in [a-z ]+[0-9]+ of step [0-9]+: rank 2 \\(localhost\\) is lost: .*, in [a-z].* of step [0-9]+" "$out" ||
            fail "rank $each does not miss rank 2"
    done
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

# Shorter than the timeout: nobody is given up.
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
        [ "$(last_step node0/runs/paused)" -eq "$at" ] || fail "rank ${victim#*:} of node ${victim%:*} was stopped, and the run went on"
        kill -CONT "$who"
        until_step node0/runs/paused $((at + 5))
    done
    ended 0
    nodes_like runs/long paused
}

# Rank 1 gets a fifth of the time that it needs, and is named. Every step is stopped, most of them twice: stops longer than a step would fall into
# step with the run, always in the same place, and where it only waits for the other rank anyway nobody is slow. (Who is named and who is not,
# by exact figures: test_report. Here the machine may hold up another rank, and that one is rightly named too.)
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

# --- many ----------------------------------------------------------------------------------------------------------------------------

sixty_four_ranks() {
    set -- run.steps=20 model.layers=1 model.embed=8 model.heads=1 model.context=8 batch.lanes=64 batch.global=64 batch.micro=1 \
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

# --- who may take part ---------------------------------------------------------------------------------------------------------------

untouched() { for k in $(seq 0 $((nodes - 1))); do [ ! -e "node$k/runs" ] || fail "node $k: something was written"; done; }

no_secret() {
    near 1 1
    together secretless cluster.timeout=5
    for k in 0 1; do printf '[run]\ndir = runs\n' >node$k/own.ini; done
    boot secretless
    ended 77
    for k in 0 1; do on $k "[cluster] secret_file" "head -c 32 /dev/urandom"; done
    untouched
}

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

# First the one at which rank 0 waits for the others, then the one for its data. Whoever has it is another lockstep, waiting for a node that
# does not come, and has the port above as well.
port_taken() {
    near 1 1
    port=$((port + 1))
    together taken cluster.timeout=3
    for taken in $port $((port + 1)); do
        settings squatter cluster.nodes="$(host 0), 127.0.0.77" cluster.port=$((2 * taken - port - 1)) cluster.timeout=30 \
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
is_listening() { listening /proc/net | grep -qx "$1"; }

# The nodes' settings and data are compared before anything else is done; both sides say both values.
other_settings() {
    near 1 1
    together other cluster.timeout=10
    printf '[optimizer]\nlr = 0.01\n' >>node1/own.ini
    boot other
    ended 78
    both_say configuration
    untouched
    printf '[run]\ndir = runs\n[cluster]\nsecret_file = secret\n[device]\nthreads = 1\n[data]\nprefetch = 3\n' >node1/own.ini
    together other run.steps=5 cluster.timeout=10
    boot other
    ended 0
}

# both_say WHAT: both nodes name the same two values.
both_say() {
    for k in 0 1; do
        on $k "$1"
        sed -n "s/.*rank 1 (127.0.0.2) runs $1 \([^,]*\), rank 0 (127.0.0.1) runs \([^:]*\):.*/\1 \2/p" node$k/out | head -n 1 >said$k
    done
    same said0 said1 "what both say of the $1"
    awk '$1 == $2 { exit 1 }' said0 || fail "the same $1 twice: $(cat said0)"
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

try default_model
try every_world_and_stage
try sixteen_bits_and_offload
try small_buckets
try through_nccl
try near_four_nodes
try near_two_nodes
try near_uneven_nodes
try far_one_node
try far_four_nodes
try far_two_nodes
try over_a_bad_cable
try stopped_and_dealt_anew
try stopped_nodes
try too_many_lost
try refused_together
try first_node_lost
try killed_eight_times
try local_rank_killed
try near_rank_killed
try far_rank_killed
try supervisor_killed
try far_cut_off
try far_unplugged_for_a_moment
try rank_hangs
try paused
try straggler
try sixty_four_ranks
try no_secret
try open_secret
try wrong_secret
try missing_node
try port_taken
try other_settings
try other_data
try other_world
try no_port
finish
