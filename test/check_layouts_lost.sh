#!/bin/sh
# test/check_layouts_lost.sh: ranks that share layers, from the outside: what is refused, other verbs, nodes. A run may
# be stopped, or lose any rank at any moment, and goes on with another layout or the same. That all layouts have the
# same bits is in check_layouts.sh.
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"
. "$top/test/support/lost.sh"
. "$top/test/support/layouts.sh"

# --- what is refused, and other verbs ---------------------------------------------------------------------------------

# denied RANKS TEXT SETTING...: no run of so many ranks; it says why.
denied() {
    ranks=$1 text=$2
    shift 2
    settings denied device.ranks="$ranks" "$@"
    expect 78 train denied
    says "$text"
}

refused() {
    denied 3 "tensor = 3 ranks can't have equal shares of slices = 4. Nearest that work: [parallel] tensor = 1, or [parallel] tensor = 4 and [device] ranks = 4." parallel.tensor=3
    denied 8 "tensor = 8 ranks can't have equal shares of slices = 4. Nearest that work: [parallel] tensor = 4, or [parallel] slices = 2 and [parallel] tensor = 2" parallel.tensor=8
    denied 2 "tensor = 2 ranks can't have equal shares of slices = 1. Nearest that work: [parallel] tensor = 1, or [parallel] slices = 2." parallel.tensor=2 parallel.slices=1
    denied 8 "slices = 8 don't divide heads: 4. Nearest that work: [model] heads = 8, or [parallel] slices = 4 and [parallel] tensor = 4" parallel.tensor=8 parallel.slices=8
    denied 6 "6 ranks ([device] ranks)" parallel.tensor=4
    denied 4 "4 ranks ([device] ranks)" parallel.tensor=4 parallel.pipeline=2
    denied 8 "8 ranks ([device] ranks)" parallel.tensor=2 parallel.pipeline=2 parallel.data=3
    denied 18 "are 9 models, more than the lanes = 8" parallel.tensor=2
    token="parallel.token_slices=4 parallel.zero=2"
    denied 2 "token_slices = 8 is not a power of two up to slices = 4. Nearest that work: [parallel] token_slices = 4" \
        parallel.token_slices=8
    denied 3 "token_slices = 3 is not a power of two" parallel.token_slices=3
    denied 2 "micro-batches of 3 x 16 positions can't have [parallel] token_slices = 4: each has whole samples, or an equal part of one. Nearest that work: [batch] micro = 1, or [parallel] token_slices = 1" parallel.token_slices=4 batch.micro=3 batch.global=24
    denied 8 "context = 8 ranks can't have equal shares of token_slices = 4 and of slices = 4 with tensor = 1. Nearest that works: [parallel] context = 4." $token parallel.context=8
    denied 8 "context = 4 ranks can't have equal shares of token_slices = 4 and of slices = 4 with tensor = 2. Nearest that work: [parallel] context = 2" $token parallel.context=4 parallel.tensor=2
    denied 2 "and here zero = 1. Nearest that work: [parallel] zero = 2, or [parallel] context = 1." \
        parallel.token_slices=4 parallel.context=2 parallel.zero=1
    denied 2 "sequence = yes divides the rows that token_slices = 4 divides, too" $token parallel.tensor=2 \
        parallel.sequence=yes
    denied 3 "context = 2, pipeline = 1 does not divide 3 ranks" $token parallel.context=2
    denied 18 "are 9 models, more than the lanes = 8" $token parallel.context=2
    [ ! -e runs/denied ] || fail "something was written"
    near 2 2
    together apart parallel.tensor=2 cluster.timeout=6
    printf '[parallel]\ntensor = 4\n' >>node1/own.ini
    boot apart
    ended 78
    for k in 0 1; do on $k tensor; done
    untouched
}

# In one process, whatever the layout; a bench has all ranks.
verbs() {
    set -- run.steps=6 eval.every=6 sample.tokens=12 sample.temperature=0 parallel.zero=3
    settings verbs device.ranks=8 $(pipes zb-v 2) parallel.tensor=2 "$@"
    expect 0 train verbs
    sed -n 's/^{"t":"eval".*"loss":\([^,]*\),.*/\1/p' runs/verbs/log.jsonl >eval.want
    expect 0 "$bin" eval base.ini verbs.ini
    says "step 6  loss $(printf '%.6f' "$(cat eval.want)")"
    expect 0 "$bin" sample base.ini verbs.ini
    cp "$out" sampled
    alone verbs-1 1 "$@"
    expect 0 "$bin" sample base.ini verbs-1.ini
    same "$out" sampled "what runs of one rank and of eight write"
    for verb in check plan; do expect 0 "$bin" $verb base.ini verbs.ini; done
    expect 0 "$bin" bench base.ini verbs.ini --steps 3
    says "8 ranks  zero 3"
    settings pair device.ranks=2 parallel.tensor=2 parallel.sequence=yes
    expect 0 "$bin" bench step base.ini pair.ini --steps 3
    says tensor
}

# --- nodes ------------------------------------------------------------------------------------------------------------

# on_nodes SETTING...: the nodes that were made train to what one rank comes to.
on_nodes() {
    run=nodes shape=$*
    set -- run.steps=12 eval.every=6 sample.tokens=12
    ref=ref-nodes
    for key in $shape; do case $key in parallel.token_slices=*) ref=ref-positions && set -- "$@" "$key" ;; esac; done
    alone $ref 1 "$@"
    together nodes $shape run.steps=12 eval.every=6 sample.tokens=12
    boot nodes
    ended 0
    on 0 "on $nodes nodes"
    nodes_like runs/$ref nodes
    nothing_left
}

# Ranks that share layers are in one node, or apart: of 1, 2 and 1 ranks the second node has one of each pair.
near_inside() { near 2 2 && on_nodes parallel.tensor=2 $(pipes zb-h1 2); }
near_apart() {
    near 1 2 1 && on_nodes parallel.tensor=2 parallel.sequence=yes parallel.zero=3
    rm -rf node?
    near 2 2 && on_nodes parallel.tensor=4
}
far_inside() {
    far 4 4 && on_nodes parallel.tensor=2 $(pipes 1f1b 2) parallel.zero=2
    net_down
    rm -rf node?
    far 2 2 2 2 && on_nodes parallel.tensor=2 parallel.sequence=yes $(pipes zb-v 2) parallel.zero=3
}
far_positions() {
    far 2 2 && on_nodes parallel.token_slices=4 parallel.context=4 parallel.zero=2
    net_down
    rm -rf node?
    far 2 2 2 2 && on_nodes parallel.token_slices=4 parallel.context=2 parallel.tensor=2 $(pipes 1f1b 2) parallel.zero=3
}
far_apart() {
    far 1 1 1 1 && on_nodes parallel.tensor=2 $(pipes interleaved 2)
    net_down
    rm -rf node?
    far 2 2 && on_nodes parallel.tensor=4 parallel.sequence=yes parallel.recompute=block
}

# --- stopped and continued --------------------------------------------------------------------------------------------

# stopped_by TERM|KILL: a run is stopped in one layout after the other, and goes on in the next.
stopped_by() {
    moves "moved-$1" "$1" 6 run.steps=300 eval.every=100 eval.batches=2 checkpoint.every=5 <<'STOPS'
8 parallel.tensor=2 parallel.sequence=yes parallel.pipeline=2 parallel.zero=3
1 parallel.zero=0
8 parallel.tensor=4 parallel.pipeline=2 parallel.schedule=zb-h1
4 parallel.zero=2
4 parallel.tensor=2 parallel.pipeline=2 parallel.schedule=gpipe
STOPS
    [ "$stops" -eq 4 ] && [ "$before" -lt 300 ] || fail "$stops stops, the last one after step $before"
}

# The same among layouts that share positions.
moved_positions() {
    run=moved-positions
    set -- eval.every=20 eval.batches=2 checkpoint.every=10 parallel.token_slices=4 schedule.decay_steps=40
    alone unmoved-positions 1 run.steps=40 "$@"
    while read -r steps ranks layout; do
        settings "$run" "$@" run.steps=$steps device.ranks="$ranks" $layout
        expect 0 train "$run"
    done <<'MOVES'
10 8 parallel.context=4 parallel.pipeline=2 parallel.zero=2
20 1 parallel.zero=0
30 4 parallel.context=2 parallel.tensor=2 parallel.zero=3
40 6 parallel.context=2 parallel.zero=2
MOVES
    hashes "runs/$run" >found
    hashes runs/unmoved-positions >want
    same want found "hashes of a run that was moved"
}

# --- lost -------------------------------------------------------------------------------------------------------------

# cube SCHEDULE: the settings of two pipelines of two stages of two ranks.
cube() { echo "parallel.tensor=2 $(pipes "$1" 2)"; }

killed_in_steps() {
    set -- run.steps=300 eval.every=0 checkpoint.every=4
    rm -f phases
    whole=whole-steps pause=150
    alone $whole 1 "$@"
    loses steps-1f1b 8 $(cube 1f1b) parallel.zero=2 "$@"
    loses steps-4 4 parallel.tensor=4 parallel.sequence=yes "$@"
    seen "add up slices" "gather rows"
    whole=whole-positions
    set -- parallel.token_slices=4 "$@"
    alone $whole 1 "$@"
    loses steps-context 8 parallel.context=4 $(pipes zb-v 2) parallel.zero=2 "$@"
    seen "exchange rows for heads" "exchange heads for rows"
}

# Nearly all the time is an evaluation's, a sample's, a checkpoint's.
killed_in_evaluations() {
    set -- run.steps=40 checkpoint.every=4 eval.every=1 eval.batches=600
    rm -f phases
    whole=whole-evals pause=150
    alone $whole 1 "$@"
    loses evals 8 $(cube zb-v) parallel.sequence=yes parallel.zero=3 "$@"
    seen "evaluate"
}

killed_in_samples() {
    set -- run.steps=40 checkpoint.every=1 eval.every=0 sample.every=1 sample.tokens=400
    rm -f phases
    whole=whole-samples pause=200
    alone $whole 1 "$@"
    loses samples 8 $(cube interleaved) parallel.zero=1 "$@"
    seen "sample"
}

killed_in_checkpoints() {
    set -- run.steps=120 checkpoint.every=1 eval.every=0
    rm -f phases
    whole=whole-checkpoints pause=100
    alone $whole 1 "$@"
    loses checkpoints 8 $(cube zb-h1) parallel.zero=3 "$@"
    loses_at save@6:1 at-checkpoints 8 $(cube zb-h1) parallel.zero=3 "$@"
    seen "checkpoint"
}

# --- data that can't be read ------------------------------------------------------------------------------------------

# all_say CODE TEXT: all nodes end with that code, soon, and say so.
all_say() {
    ended $1
    [ $took -le 10000 ] || fail "it took $took ms until all had ended"
    for k in $(seq 0 $((nodes - 1))); do on $k "$2"; done
}

# A read of one rank fails, of each rank in turn and each time some steps later; all stop after the same step, and go
# on.
unread() {
    set -- run.steps=30 eval.every=0 data.retry=0
    alone ref-unread 1 "$@"
    near 2 2 2 2
    together unread "$@" $(cube 1f1b) cluster.timeout=20
    cp unread.ini whole.ini
    for victim in 0 1 2 3 4 5 6 7; do
        roll 8
        { cat whole.ini && printf '[run]\nfaults = read@%d:%d\n' $((11 + rolled)) $victim; } >unread.ini
        boot unread
        all_say 74 "plain-train-00000.bin: read of"
        on 0 "$(called $victim 8 $(cube 1f1b) | sed "s/localhost/$(host $((victim / 2)))/")"
    done
    cp whole.ini unread.ini
    boot unread
    ended 0
    nodes_like runs/ref-unread unread
}

# One node's copy of the data has a byte that is another.
damaged() {
    near 2 2 2 2
    rm node2/data && cp -r data node2/data
    flip node2/data/plain-train-00000.bin $(($(size data/plain-train-00000.bin) / 2))
    together damaged $(cube 1f1b) eval.every=0 run.steps=100000 cluster.timeout=20
    boot damaged
    all_say 65 "plain-train-00000.bin: block"
    nothing_left
}

try refused
try verbs
try near_inside
try near_apart
try far_inside
try far_apart
try far_positions
try stopped_by_term stopped_by TERM
try stopped_by_kill stopped_by KILL
try moved_positions
try killed_in_steps
try killed_in_evaluations
try killed_in_samples
try killed_in_checkpoints
try unread
try damaged
finish
