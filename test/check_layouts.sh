#!/bin/sh
# test/check_layouts.sh: ranks that share layers, from the outside, with pipelines, pipelines beside each other and ZeRO. Whatever the layout, a run logs what one
# rank logs: every loss, norm, evaluation, sample and hash. It may be stopped, or lose any rank at any moment, and goes on with another layout or the same.
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"
. "$top/test/support/lost.sh"
. "$top/test/support/images.sh"

# 8 lanes, and eight blocks, in steps of 8 samples. The loss is scaled up soon, so that a step in FP16 overflows now and then.
sed -i -e 's/^layers = .*/layers = 6/' -e 's/^heads = .*/heads = 4\nvocab = 259/' -e 's/^embed = .*/embed = 16/' -e 's/^context = .*/context = 16/' \
    -e 's/^global = .*/global = 8/' base.ini
ini >>base.ini <<'END'
device threads=1
precision scale_window=4
parallel slices=4
reduce bucket_mb=0.01
cluster heartbeat=0.1
END

# --- the same bits ----------------------------------------------------------------------------------------------------

# Each value meets each value of every other column, where a run can have both: a pipeline of one rank has no schedule, ZeRO wants several ranks. A lane has
# `micros` micro-batches; interleaved pipelines of 3 want 3. `sequence` is for half of the ranks that share layers.
layouts() {
    cat <<'ROWS'
tensor pipeline schedule    data zero recompute offload compute micros sequence
1      1        1f1b        2    1    selective yes     fp16    1      no
1      1        1f1b        3    2    none      no      fp32    3      no
1      2        gpipe       2    3    selective no      fp16    3      no
1      2        1f1b        2    0    block     no      bf16    1      no
1      2        zb-h1       1    0    none      no      fp32    1      no
1      2        zb-v        2    1    none      yes     bf16    3      no
1      2        zb-v        2    2    selective no      bf16    1      no
1      3        gpipe       2    2    block     yes     bf16    1      no
1      3        1f1b        3    0    none      no      fp32    1      no
1      3        interleaved 1    0    block     no      fp16    3      no
1      3        interleaved 3    2    selective no      fp32    3      no
1      3        zb-h1       3    3    block     no      bf16    1      no
1      3        zb-v        2    1    block     no      fp32    1      no
1      4        1f1b        1    0    none      yes     fp16    1      no
1      4        interleaved 2    3    none      no      fp16    1      no
1      4        zb-h1       2    1    none      no      bf16    1      no
2      1        1f1b        1    0    block     no      bf16    1      yes
2      1        1f1b        2    1    selective no      fp32    3      yes
2      1        1f1b        2    3    none      no      bf16    1      no
2      1        1f1b        3    0    selective yes     bf16    3      no
2      1        1f1b        3    2    selective yes     fp16    1      no
2      2        gpipe       3    0    block     no      fp16    1      no
2      2        gpipe       3    1    block     no      fp16    1      yes
2      2        gpipe       3    2    selective no      fp32    3      yes
2      2        gpipe       3    3    none      yes     bf16    1      no
2      2        1f1b        2    3    selective no      fp16    1      no
2      2        1f1b        3    1    none      yes     fp32    1      yes
2      2        interleaved 2    0    block     yes     fp16    3      yes
2      2        interleaved 2    3    selective yes     fp32    1      yes
2      2        zb-h1       3    1    none      yes     bf16    1      yes
2      2        zb-h1       3    1    selective no      fp16    3      no
2      2        zb-v        3    0    block     no      bf16    3      yes
2      2        zb-v        3    2    block     yes     fp32    1      no
2      3        gpipe       2    1    none      no      fp16    1      no
2      3        1f1b        2    1    selective yes     bf16    1      yes
2      3        interleaved 2    2    none      yes     bf16    3      yes
2      3        zb-h1       2    0    selective no      fp32    1      yes
2      3        zb-h1       2    3    none      yes     fp16    3      no
2      3        zb-v        1    0    none      yes     fp16    1      yes
2      3        zb-v        2    1    block     yes     fp16    3      yes
2      3        zb-v        2    3    selective yes     fp32    1      yes
2      4        gpipe       2    0    none      no      bf16    3      no
2      4        gpipe       2    1    selective yes     fp32    1      no
2      4        gpipe       2    2    none      yes     bf16    1      yes
2      4        1f1b        2    2    block     no      bf16    1      no
2      4        interleaved 2    0    selective no      fp16    1      yes
2      4        interleaved 2    1    block     yes     fp32    1      no
2      4        zb-h1       1    0    block     yes     fp32    3      no
2      4        zb-h1       2    2    block     no      fp32    1      yes
2      4        zb-v        2    2    none      yes     fp16    3      yes
2      4        zb-v        2    3    block     yes     fp16    1      no
2      4        zb-v        2    3    none      no      fp32    1      no
4      1        1f1b        2    0    none      yes     fp32    1      yes
4      1        1f1b        2    2    block     no      fp16    3      no
4      1        1f1b        3    1    block     yes     bf16    1      yes
4      1        1f1b        3    2    selective yes     bf16    1      yes
4      1        1f1b        3    3    block     yes     fp32    1      no
4      1        1f1b        3    3    none      no      fp16    1      yes
4      2        gpipe       2    1    selective yes     bf16    3      no
4      2        gpipe       2    2    none      yes     fp16    1      no
4      2        gpipe       2    3    block     no      fp32    3      no
4      2        interleaved 2    0    block     no      bf16    1      yes
4      2        interleaved 2    1    none      no      bf16    1      no
4      2        interleaved 2    1    selective no      fp16    3      yes
4      2        interleaved 2    2    block     yes     fp32    1      no
4      2        zb-h1       2    2    selective yes     fp16    1      yes
4      2        zb-h1       2    2    none      yes     bf16    3      no
4      2        zb-h1       2    3    block     no      fp32    1      yes
4      2        zb-v        2    0    selective no      fp16    1      no
4      2        zb-v        2    1    selective yes     fp32    1      no
4      3        gpipe       1    0    selective yes     fp32    1      no
4      4        zb-v        3    3    selective no      bf16    3      yes
ROWS
}

# same_layout TENSOR PIPELINE SCHEDULE ...: 50 steps with the layout of that row are those of one rank.
same_layout() {
    all="batch.global=$((8 * $9)) run.steps=50 eval.every=25 sample.tokens=12 precision.compute=$8"
    alone "ref-$8-$9" 1 $all
    layout=$(echo "$*" | tr ' ' -) shape="$(pipes "$3" "$2") parallel.tensor=$1 parallel.zero=$5 parallel.recompute=$6 parallel.offload=$7 parallel.sequence=${10}"
    alone "$layout" $(($1 * $2 * $4)) $shape $all
    like "runs/ref-$8-$9" "runs/$layout"
    rm -rf "runs/$layout"
    count=$((count + 1))
}

every_layout() {
    count=0
    layouts | sed 1d >rows
    while read -r row; do same_layout $row; done <rows
    [ $count -eq "$(sort -u rows | wc -l)" ] && [ $count -ge 60 ] || fail "$count layouts"
    grep -q '"skipped":true' runs/ref-fp16-1/log.jsonl || fail "no step of FP16 was skipped"
    for run in runs/ref-*; do hashes "$run"; done | sort -u >found
    [ "$(wc -l <found)" -eq 6 ] || fail "expected six hashes: $(cat found)"
}

# llama_like NAME SETTING...: a Llama with these settings, in layouts whose ranks share 13 rows.
llama_like() {
    family=$1
    shift
    set -- run.steps=20 sample.tokens=12 "$@"
    alone "$family" 1 "$@"
    while read -r name ranks more; do
        alone "$family-$name" "$ranks" $more "$@"
        like "runs/$family" "runs/$family-$name"
        rm -rf "runs/$family-$name"
    done <<'LAYOUTS'
t2 2 parallel.tensor=2
t4 4 parallel.tensor=4 parallel.sequence=yes parallel.recompute=block
t2-d3 6 parallel.tensor=2 parallel.zero=3
t2-p2 4 parallel.tensor=2 parallel.sequence=yes parallel.pipeline=2 parallel.schedule=zb-h1
t4-p2 8 parallel.tensor=4 parallel.pipeline=2 parallel.recompute=selective
t2-p2-d2 8 parallel.tensor=2 parallel.sequence=yes parallel.pipeline=2 parallel.zero=2 parallel.recompute=selective
LAYOUTS
    alone "$family-k" 1 parallel.token_slices=4 "$@"
    while read -r name ranks more; do
        alone "$family-$name" "$ranks" parallel.token_slices=4 $more "$@"
        like "runs/$family-k" "runs/$family-$name"
        rm -rf "runs/$family-$name"
    done <<'LAYOUTS'
k4-d2 2 parallel.zero=1
c4 4 parallel.context=4 parallel.zero=2 parallel.recompute=block
c2-t2 4 parallel.context=2 parallel.tensor=2 parallel.zero=3
c2-p2 4 parallel.context=2 parallel.pipeline=2 parallel.schedule=zb-h1 parallel.zero=2
LAYOUTS
}

# Heads in groups; the head's weights its own, or shared with the embedding; norms of queries and keys; a window.
llama() {
    rm -rf llama && mkdir llama && cd llama || fail "no directory"
    ln -s ../data data
    sed -e 's/^layers = .*/layers = 4/' -e 's/^heads = .*/heads = 8/' -e 's/^embed = .*/embed = 24\ntype = llama/' -e 's/^context = .*/context = 13/' -e '/^dropout/d' \
        ../base.ini >base.ini
    llama_like own model.kv_heads=4 model.head_dim=2 model.tied=no precision.compute=bf16
    llama_like tied model.kv_heads=4 model.tied=yes model.qk_norm=yes model.head_dim=6 model.bias=all precision.compute=fp16
    llama_like window model.kv_heads=8 model.head_dim=4 model.tied=no model.window=5
}

# A window in some layers only, and angles of two kinds.
gemma() {
    rm -rf gemma && mkdir gemma && cd gemma || fail "no directory"
    ln -s ../data data
    sed -e 's/^layers = .*/layers = 4/' -e 's/^heads = .*/heads = 8/' -e 's/^embed = .*/embed = 24\ntype = gemma/' -e 's/^context = .*/context = 13/' -e '/^dropout/d' \
        ../base.ini >base.ini
    llama_like two model.kv_heads=4 model.head_dim=6 model.pattern=2 model.window=5 model.rope_factor=8 precision.compute=bf16
    llama_like three model.kv_heads=8 model.head_dim=4 model.pattern=3 model.window=3
}

# Ranks that share positions, each with one token slice, two or four. Of micro-batches of `micro` samples a token slice has one sample, or a part of one.
contexts() {
    cat <<'ROWS'
context tensor pipeline schedule    data zero recompute offload compute micros micro
1       1      1        1f1b        3    1    none      no      fp32    1      1
1       2      2        zb-h1       1    0    block     no      bf16    1      1
1       1      2        zb-v        2    2    none      no      fp16    1      2
1       4      1        1f1b        2    3    selective yes     fp32    2      1
2       1      1        1f1b        1    2    none      no      fp32    1      1
2       1      1        1f1b        3    3    block     no      bf16    1      1
2       2      1        1f1b        2    2    selective no      fp16    1      2
2       1      2        gpipe       2    2    none      yes     fp16    1      2
2       2      2        1f1b        1    3    none      no      fp32    2      1
2       2      3        interleaved 1    2    block     no      bf16    3      1
2       1      2        zb-h1       3    3    selective no      fp32    1      1
2       2      4        zb-v        2    2    none      no      bf16    1      1
4       1      1        1f1b        1    2    selective yes     bf16    1      1
4       1      1        1f1b        2    3    none      no      fp32    2      1
4       1      2        zb-v        1    3    block     no      fp16    1      2
4       1      3        zb-h1       2    2    none      no      fp32    1      1
ROWS
}

# same_positions CONTEXT TENSOR ...: 30 steps with the layout of that row are those of one rank.
same_positions() {
    micro=${11}
    all="parallel.token_slices=4 batch.global=$((8 * micro * ${10})) batch.micro=$micro run.steps=30 eval.every=15 sample.tokens=12 precision.compute=$9"
    alone "positions-$9-${10}-$micro" 1 $all
    layout=positions$(echo "$*" | tr ' ' -) shape="$(pipes "$4" "$3") parallel.context=$1 parallel.tensor=$2 parallel.zero=$6 parallel.recompute=$7 parallel.offload=$8"
    alone "$layout" $(($1 * $2 * $3 * $5)) $shape $all
    like "runs/positions-$9-${10}-$micro" "runs/$layout"
    rm -rf "runs/$layout"
    count=$((count + 1))
}

every_context() {
    count=0
    contexts | sed 1d >rows
    while read -r row; do same_positions $row; done <rows
    [ $count -eq "$(sort -u rows | wc -l)" ] && [ $count -ge 16 ] || fail "$count layouts"
}

# Of the perceptron's hidden layers the first and the third are divided.
perceptron() {
    . "$top/test/support/logs.sh"
    rm -rf perceptron && mkdir -p perceptron/data && cd perceptron || fail "no directory"
    image_run
    images data/all 0 200
    for kind in "fp32 relu" "bf16 gelu" "fp16 relu"; do
        set -- $kind
        rm -rf runs
        set -- precision.compute="$1" model.activation="$2" model.hidden="24 17 20" parallel.slices=4 precision.scale_window=4
        settings one "$@"
        expect 0 train one
        logged one >one.logged
        [ "$(wc -l <one.logged)" -eq 45 ] || fail "expected 40 steps, 4 evaluations and two hashes: $(tail -n 2 one.logged)"
        while read -r ranks more; do
            settings dealt device.ranks="$ranks" "$@" $more
            rm -rf runs/dealt
            expect 0 train dealt
            logged dealt >dealt.logged
            same one.logged dealt.logged "in $kind, what one rank and $ranks ($more) logged"
        done <<'DEALS'
2 parallel.tensor=2
4 parallel.tensor=4 parallel.offload=yes
8 parallel.tensor=2 parallel.zero=3
4 parallel.tensor=2 parallel.pipeline=2 parallel.schedule=zb-h1
12 parallel.tensor=2 parallel.pipeline=3 parallel.zero=2
DEALS
    done
}

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
    denied 2 "token_slices = 8 is not a power of two up to slices = 4. Nearest that work: [parallel] token_slices = 4" parallel.token_slices=8
    denied 3 "token_slices = 3 is not a power of two" parallel.token_slices=3
    denied 2 "micro-batches of 3 x 16 positions can't have [parallel] token_slices = 4: each has whole samples, or an equal part of one. Nearest that work: [batch] micro = 1, or [parallel] token_slices = 1" parallel.token_slices=4 batch.micro=3 batch.global=24
    denied 8 "context = 8 ranks can't have equal shares of token_slices = 4 and of slices = 4 with tensor = 1. Nearest that works: [parallel] context = 4." $token parallel.context=8
    denied 8 "context = 4 ranks can't have equal shares of token_slices = 4 and of slices = 4 with tensor = 2. Nearest that work: [parallel] context = 2" $token parallel.context=4 parallel.tensor=2
    denied 2 "and here zero = 1. Nearest that work: [parallel] zero = 2, or [parallel] context = 1." parallel.token_slices=4 parallel.context=2 parallel.zero=1
    denied 2 "sequence = yes divides the rows that token_slices = 4 divides, too" $token parallel.tensor=2 parallel.sequence=yes
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

# stopped_by TERM|KILL: a run is stopped in one layout after the other, and goes on in the next; KILL takes the supervisor, and its ranks end too.
stopped_by() {
    how=$1 run=moved-$1 before=0 stops=0
    set -- run.steps=300 eval.every=100 eval.batches=2 checkpoint.every=5
    while read -r ranks layout; do
        settings "$run" "$@" device.ranks="$ranks" $layout
        start "$bin" base.ini "$run.ini"
        until_step "runs/$run" $((before + 6))
        all=$(children "$pid")
        kill -$how "$pid"
        until_over $all
        comes_to $([ $how = TERM ] && echo 75 || echo 137)
        before=$(last_step "runs/$run")
        saved=$(newest_name "runs/$run")
        [ $how = KILL ] || [ "$saved" = "$(printf 'step-%08d' "$before")" ] || fail "step $before was the last one, saved is $saved"
        stops=$((stops + 1))
    done <<'STOPS'
8 parallel.tensor=2 parallel.sequence=yes parallel.pipeline=2 parallel.zero=3
1 parallel.zero=0
8 parallel.tensor=4 parallel.pipeline=2 parallel.schedule=zb-h1
4 parallel.zero=2
STOPS
    [ $stops -eq 4 ] && [ "$before" -lt 300 ] || fail "$stops stops, the last one after step $before"
    settings "$run" "$@" device.ranks=4 parallel.tensor=2 parallel.pipeline=2 parallel.schedule=gpipe
    expect 0 train "$run"
    [ "$(grep -c '"kind":"resume"' "runs/$run/events.jsonl")" -eq 4 ] || fail "not four resumes in events.jsonl"
    alone unmoved 1 "$@"
    like runs/unmoved "runs/moved-$how"
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
    seen "checkpoint"
}

# --- data that can't be read ------------------------------------------------------------------------------------------

# all_say CODE TEXT: all nodes end with that code, soon, and say so.
all_say() {
    ended $1
    [ $took -le 10000 ] || fail "it took $took ms until all had ended"
    for k in $(seq 0 $((nodes - 1))); do on $k "$2"; done
}

# A read of one rank fails, of each rank in turn and each time some steps later; all stop after the same step, and go on.
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

try every_layout
try every_context
try llama
try gemma
try perceptron
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
