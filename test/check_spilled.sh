#!/bin/sh
# test/check_spilled.sh: [parallel] offload = nvme does what it is for: a run in less memory than its masters and
# moments take, which goes on there from its checkpoint; no other setting of offload can.
. test/support/runs.sh
large="device.threads=2 log.watch=no checkpoint.keep_best=no checkpoint.every=0 eval.every=0
    precision.compute=bf16 model.layers=8 model.heads=8 model.embed=512 batch.global=2 batch.micro=1 batch.lanes=2"
limit=280000 # kB of private memory of each process; masters and moments of 25 million parameters take more

limited() { (ulimit -d $limit && exec timeout 300 "$bin" base.ini "$1.ini"); }

below_its_state() {
    settings free $large run.steps=3
    expect 0 train free
    for steps in 2 3; do
        settings files $large parallel.offload=nvme run.steps=$steps
        expect 0 limited files
    done
    same_steps free files
    same_state free files
    expect 0 "$bin" plan base.ini files.ini
    state=$(sed -n 's/^disk .* a file of \([0-9]*\) bytes.*/\1/p' "$out")
    [ "$state" -gt $((limit * 1024)) ] || fail "masters and moments are $state bytes, and fit into the limit"
    for where in none host; do
        settings $where $large parallel.offload=$where run.steps=3
        limited $where >"$out" 2>&1 && fail "offload = $where fits too: the limit says nothing"
        says "memory"
    done
}

try below_its_state
finish
