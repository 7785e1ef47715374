#!/bin/sh
# test/check_threads.sh: whole runs in which every thread of a run has work: pools of two, loaders that
# read again, communication beside compute, signs of life, a supervisor and its listeners, nodes, evaluations, samples,
# checkpoints, a stop. The binary is that of `make tsan`: ThreadSanitizer ends a process that has a race; the runs must
# end, with equal bits.
export LOCKSTEP_BIN="${LOCKSTEP_BIN:-build/tsan/lockstep}"
. test/support/lib.sh
. "$top/test/support/net.sh"

ini >base.ini <<'END'
run dir=runs steps=6 faults=read@5x2
device threads=2
model layers=1 heads=2 embed=16 context=16 vocab=128
data train=data/plain-train-*.bin val=data/plain-val-*.bin
pack input=text.txt output=data/plain
batch global=8 micro=1 lanes=4
schedule warmup=2
reduce bucket_mb=0.002
cluster heartbeat=0.05
checkpoint every=3
eval every=2 batches=4
sample every=3 tokens=3
log every=1 hash_every=4
END
text 20000 >text.txt
head -c 32 /dev/urandom >secret
chmod 600 secret
"$bin" pack base.ini >"$out" 2>&1 || { cat "$out"; echo "0 passed, 1 failed"; exit 1; }

# as_one DIR: the run in there ended with the bits of one rank.
last_hash() { sed -n 's/^{"t":"checkpoint","step":6,.*"hash":"\([0-9a-f]*\)".*/\1/p' "$1/log.jsonl"; }
as_one() {
    [ -n "$(last_hash runs/one)" ] || fail "one rank: no hash of step 6"
    [ "$(last_hash "$1")" = "$(last_hash runs/one)" ] || fail "$1: $(last_hash "$1"), expected $(last_hash runs/one)"
}

one_rank() {
    settings one
    expect 0 timeout 200 "$bin" base.ini one.ini
}

several_ranks() {
    for stage in 0 1 2 3; do
        settings z$stage device.ranks=2 parallel.zero=$stage
        expect 0 timeout 200 "$bin" base.ini z$stage.ini
        as_one runs/z$stage
    done
}

# Each link of a pipeline is a thread.
pipelines() {
    settings deep model.layers=2
    expect 0 timeout 200 "$bin" base.ini deep.ini
    deep=$(last_hash runs/deep)
    [ -n "$deep" ] || fail "one rank: no hash of step 6"
    while read -r name ranks more; do
        settings "$name" model.layers=2 device.ranks=$ranks $more
        expect 0 timeout 200 "$bin" base.ini "$name.ini"
        [ "$(last_hash "runs/$name")" = "$deep" ] || fail "$name: $(last_hash "runs/$name"), expected $deep"
    done <<'RUNS'
pipe 3 parallel.pipeline=3
pipes 4 parallel.pipeline=2 parallel.schedule=zb-h1 parallel.zero=3
v 4 parallel.pipeline=2 parallel.schedule=zb-v parallel.chunks=2 parallel.zero=1
loop 2 parallel.pipeline=2 parallel.schedule=interleaved parallel.chunks=2
RUNS
}

# Ranks that share layers meet in the compute stream's thread, while other threads send gradients and activations.
shared_layers() {
    set -- model.layers=2 parallel.slices=2
    settings whole "$@"
    expect 0 timeout 200 "$bin" base.ini whole.ini
    whole=$(last_hash runs/whole)
    [ -n "$whole" ] || fail "one rank: no hash of step 6"
    while read -r name ranks more; do
        settings "$name" "$@" device.ranks=$ranks $more
        expect 0 timeout 200 "$bin" base.ini "$name.ini"
        [ "$(last_hash "runs/$name")" = "$whole" ] || fail "$name: $(last_hash "runs/$name"), expected $whole"
    done <<'RUNS'
share 2 parallel.tensor=2
share-rows 4 parallel.tensor=2 parallel.sequence=yes parallel.zero=3
share-pipe 4 parallel.tensor=2 parallel.pipeline=2 parallel.schedule=zb-h1
RUNS
    near 1 1
    settings far "$@" cluster.nodes="$list" cluster.port="$port" parallel.tensor=2 parallel.sequence=yes
    boot far
    ended 0
    [ "$(last_hash node0/runs/far)" = "$whole" ] || fail "two nodes: $(last_hash node0/runs/far), expected $whole"
}

# So do ranks that share positions.
shared_positions() {
    set -- model.layers=2 parallel.slices=2 parallel.token_slices=2
    settings kept "$@"
    expect 0 timeout 200 "$bin" base.ini kept.ini
    kept=$(last_hash runs/kept)
    [ -n "$kept" ] || fail "one rank: no hash of step 6"
    while read -r name ranks more; do
        settings "$name" "$@" device.ranks=$ranks parallel.context=2 $more
        expect 0 timeout 200 "$bin" base.ini "$name.ini"
        [ "$(last_hash "runs/$name")" = "$kept" ] || fail "$name: $(last_hash "runs/$name"), expected $kept"
    done <<'RUNS'
context 2 parallel.zero=2
context-pipe 4 parallel.zero=3 parallel.pipeline=2 parallel.schedule=zb-h1
RUNS
}

several_nodes() {
    near 1 2
    settings nodes cluster.nodes="$list" cluster.port="$port" parallel.zero=2
    boot nodes
    ended 0
    as_one node0/runs/nodes
}

# Rows are fetched beside what is computed, and read and written by threads of their own.
rows_on_demand() {
    ini >clicks.ini <<'END'
run dir=runs steps=6
device threads=2
model type=dlrm rows=5 embed=4 demand=yes
data train=data/c-train-*.bin val=data/c-val-*.bin
pack clicks=planted input=planted:1:600:400 output=data/c
batch global=24 micro=2 lanes=4
optimizer lr=0.01 weight_decay=0
cluster heartbeat=0.05
checkpoint every=3
eval every=2 batches=4
log every=1 hash_every=4
END
    expect 0 timeout 200 "$bin" pack clicks.ini
    expect 0 timeout 200 "$bin" clicks.ini -o run.name=clicks
    clicks=$(last_hash runs/clicks)
    [ -n "$clicks" ] || fail "one rank: no hash of step 6"
    while read -r name more; do
        settings "$name" $more
        expect 0 timeout 200 "$bin" clicks.ini "$name.ini"
        grep -q '"cold_rows":[1-9]' "runs/$name/log.jsonl" || fail "$name: no row was in a file"
        [ "$(last_hash "runs/$name")" = "$clicks" ] || fail "$name: $(last_hash "runs/$name"), expected $clicks"
    done <<'RUNS'
cold model.demand_mb=0.02
cold-ranks device.ranks=3 model.demand_mb=0.01 parallel.zero=1
cold-turns device.ranks=2 model.demand_mb=0.02 parallel.zero=3
RUNS
}

# A signal reaches a listener's thread, and the ranks agree on the step that is the last.
logged() { grep -q "$1" runs/stopped/log.jsonl runs/stopped/events.jsonl 2>/dev/null; }
stopped_and_continued() {
    set -- device.ranks=2 parallel.zero=1 run.steps=100000 schedule.type=constant eval.every=0 sample.every=0
    for sign in '"step":3,' '"kind":"resume"'; do
        settings stopped "$@"
        start "$bin" base.ini stopped.ini
        until_true 100 logged "$sign"
        kill -TERM "$pid"
        await 75
    done
}

# Servers that apply gradients as they come have a thread for each worker; and one that finds another order than in its
# record ends while they wait.
servers_do_not_wait() {
    served="device.ranks=4 parallel.zero=1 server.count=2 server.mode=async server.every=1"
    settings served $served server.record=yes
    expect 0 timeout 200 "$bin" base.ini served.ini
    settings again $served server.replay=runs/served
    expect 0 timeout 200 "$bin" base.ini again.ini
    [ "$(last_hash runs/again)" = "$(last_hash runs/served)" ] || fail "again: another hash"
    mkdir -p other
    for k in 0 1; do sed 's/^pull 1 \(.*\)/pull 1 9\1/' runs/served/served-$k.log >other/served-$k.log; done
    settings torn $served server.replay=other
    expect 65 timeout 200 "$bin" base.ini torn.ini
}

try one_rank
try several_ranks
try pipelines
try shared_layers
try shared_positions
try several_nodes
try rows_on_demand
try stopped_and_continued
try servers_do_not_wait
finish
