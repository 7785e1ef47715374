#!/bin/sh
# test/test_outer.sh: [outer] from the outside: islands that mix their weights every so many steps. A run is killed,
# stopped and continued by other ranks, is evaluated by one rank, and another one begins from it.
. test/support/runs.sh
islands="device.threads=1 log.watch=no log.hash_every=5 outer.islands=2 outer.every=5 outer.type=nesterov"
common="$islands run.steps=60 checkpoint.every=10 eval.every=20"

# said RUN: what it says of the model, of each step, evaluation and checkpoint, without what clocks and ranks said.
said() { untimed "$1" | sed 's/"comm_ms".*"loss_scale"/"loss_scale"/'; }

# After a kill the newest boundary that was saved is where the others go on.
killed() {
    settings whole $common device.ranks=2
    expect 0 train whole
    settings killed $common device.ranks=4 parallel.zero=3
    start "$bin" base.ini killed.ini
    until_true 60 has_saved killed 10
    kill -9 "$pid"
    wait "$pid" 2>/dev/null
    pid=
    settings killed $common device.ranks=4 parallel.pipeline=2 run.resume=must
    expect 0 train killed
    said whole >said.want
    said killed >said.found
    [ "$(wc -l <said.want)" -ge 69 ] || fail "expected 60 steps, 3 evaluations and 6 checkpoints"
    same said.want said.found "what the runs say of their steps"
    same_state whole killed
}

# A stop waits for the next boundary, where all islands hold the same, and saves that.
stopped() {
    settings stopped $islands device.ranks=4 run.steps=100000 checkpoint.every=0 eval.every=0
    start "$bin" base.ini stopped.ini
    until_true 60 has_logged stopped 7
    kill -TERM "$pid"
    await 75
    last=$(last_step stopped)
    [ "$last" -ge 10 ] && [ $((last % 5)) -eq 0 ] || fail "it ended after step $last, and boundaries are 5, 10, ..."
    saved stopped
    [ "$newest" -eq "$last" ] || fail "it saved step $newest, and ended after step $last"
}

# What is saved is a model like any other, and is evaluated with the same words.
shown() {
    loss=$(sed -n 's/^{"t":"eval","step":60,.*"loss":\([0-9.]*\),.*/\1/p' runs/whole/log.jsonl)
    expect 0 "$bin" eval base.ini whole.ini
    says "$(printf "%.4f" "$loss")"
    expect 78 "$bin" base.ini whole.ini -o device.ranks=1 -o run.name=alone
    says "[outer] islands = 2 does not divide 1 rank" "[device] ranks = 2"
}

# The momentum of islands goes with a fork, and is nothing that another type could begin with.
forked() {
    expect 78 "$bin" fork runs/whole other -o outer.type=average
    says "the momentum of islands is in one of both only"
    expect 78 "$bin" fork runs/whole other -o outer.islands=1 -o outer.type=average -o outer.every=1
    says "the momentum of islands is in one of both only"
    expect 0 "$bin" fork runs/whole other -o outer.every=10 -o run.steps=80 -o log.hash_every=10
    expect 0 "$bin" runs/other/config.ini
    says "step   80/80"
}

# What codes left out, and moments of their own, are each island's: a checkpoint has all of them.
killed_with_codes() {
    codes="$common outer.compress=int8 outer.moments=own parallel.slices=2"
    settings coded $codes device.ranks=2
    expect 0 train coded
    settings stumbled $codes device.ranks=4 parallel.zero=2
    start "$bin" base.ini stumbled.ini
    until_true 60 has_saved stumbled 10
    kill -9 "$pid"
    wait "$pid" 2>/dev/null
    pid=
    cp -r runs/stumbled runs/slanted
    settings stumbled $codes device.ranks=4 parallel.pipeline=2 run.resume=must
    expect 0 train stumbled
    same_state coded stumbled
    # rows that ranks of a layer don't divide: both have what was left out of them
    settings slanted $codes device.ranks=4 parallel.tensor=2 run.resume=must
    expect 0 train slanted
    same_state coded slanted
    expect 78 "$bin" fork runs/coded other-codes -o outer.moments=mean
    says "outer.moments is own" "what each island has of its own would not fit"
    expect 78 "$bin" fork runs/coded other-codes -o outer.compress=none
    says "what each island has of its own would not fit"
    expect 0 "$bin" fork runs/coded other-codes -o outer.compress=fp16 -o run.steps=65
    expect 0 "$bin" runs/other-codes/config.ini
    says "step   65/65"
    expect 0 "$bin" plan base.ini coded.ini
    says "weights go in int8"
}

# Islands that never hold the same: what is logged, evaluated, sampled and exported is their mean; a checkpoint of any
# step has what each holds and what is on its way.
killed_apart() {
    apart="device.threads=1 log.watch=no log.hash_every=7 outer.islands=2 outer.every=6 outer.overlap=2 outer.moments=own \
        outer.type=nesterov outer.compress=int8 run.steps=41 checkpoint.every=7 eval.every=11 sample.tokens=8 sample.every=20"
    settings adrift $apart device.ranks=2
    echo 'fragments = h.0.*:4+3 w*:5' >>adrift.ini
    sed -i 's/^fragments/[outer]\nfragments/' adrift.ini
    expect 0 train adrift
    sed 's/= adrift$/= afloat/; s/^ranks *=.*/ranks = 4/' adrift.ini >afloat.ini
    printf '[parallel]\nzero = 3\n' >>afloat.ini
    start "$bin" base.ini afloat.ini
    until_true 60 has_saved afloat 14
    kill -9 "$pid"
    wait "$pid" 2>/dev/null
    pid=
    sed -i 's/^zero = 3/pipeline = 2/' afloat.ini
    printf '[run]\nresume = must\n' >>afloat.ini
    expect 0 train afloat
    said adrift >said.want
    said afloat >said.found
    [ "$(grep -c '"t":"sample"' said.want)" -ge 2 ] || fail "expected samples"
    same said.want said.found "what the runs say of their steps"
    same_state adrift afloat
    loss=$(sed -n 's/^{"t":"eval","step":41,.*"loss":\([0-9.]*\),.*/\1/p' runs/adrift/log.jsonl)
    expect 0 "$bin" eval base.ini adrift.ini
    says "$(printf "%.4f" "$loss")"
    expect 78 "$bin" fork runs/adrift moored -o outer.overlap=0
    says "outer.overlap is 2" "what each island has of its own would not fit"
    expect 0 "$bin" fork runs/adrift moored -o outer.keep=0 -o run.steps=44
    expect 0 "$bin" runs/moored/config.ini
    says "step   44/44"
    expect 0 "$bin" plan base.ini adrift.ini
    says "islands 2 mix tensors by fragments" "beside the 2 steps that follow"
    # weights of such a run begin another one
    expect 0 "$bin" base.ini adrift.ini -o run.name=anew -o model.init_from=runs/adrift -o run.steps=7
    expect 78 "$bin" base.ini adrift.ini -o run.name=none -o 'outer.fragments=h.*:3 nothing.*:4'
    says "no tensor is left for the pattern nothing.*"
}

try killed
try killed_apart
try killed_with_codes
try stopped
try shown
try forked
finish
