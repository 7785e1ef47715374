#!/bin/sh
# test/check_layouts.sh: ranks that share layers, from the outside, with pipelines, pipelines beside each other and
# ZeRO. Whatever the layout, a run logs what one rank logs: every loss, norm, evaluation, sample and hash. Nodes, stops
# and losses are in check_layouts_lost.sh.
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"
. "$top/test/support/lost.sh"
. "$top/test/support/images.sh"
. "$top/test/support/layouts.sh"

# --- the same bits ----------------------------------------------------------------------------------------------------

# Each value meets each value of every other column, where a run can have both: a pipeline of one rank has no schedule,
# ZeRO wants several ranks. A lane has `micros` micro-batches; interleaved pipelines of 3 want 3. `sequence` is for half
# of the ranks that share layers.
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

# Of twelve steps, two evaluations and a sample. In FP16 the scale grows with every step that is applied, so that two of
# them overflow.
twelve="run.steps=12 eval.every=6 sample.tokens=12 precision.scale_window=1"

# same_layout TENSOR PIPELINE SCHEDULE ...: 12 steps with the layout of that row are those of one rank.
same_layout() {
    all="batch.global=$((8 * $9)) $twelve precision.compute=$8"
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
    set -- $twelve "$@"
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
    sed -e 's/^layers = .*/layers = 4/' -e 's/^heads = .*/heads = 8/' -e 's/^embed = .*/embed = 24\ntype = llama/' \
        -e 's/^context = .*/context = 13/' -e '/^dropout/d' \
        ../base.ini >base.ini
    llama_like own model.kv_heads=4 model.head_dim=2 model.tied=no precision.compute=bf16
    llama_like tied model.kv_heads=4 model.tied=yes model.qk_norm=yes model.head_dim=6 model.bias=all \
        precision.compute=fp16
    llama_like window model.kv_heads=8 model.head_dim=4 model.tied=no model.window=5
}

# A window in some layers only, and angles of two kinds.
gemma() {
    rm -rf gemma && mkdir gemma && cd gemma || fail "no directory"
    ln -s ../data data
    sed -e 's/^layers = .*/layers = 4/' -e 's/^heads = .*/heads = 8/' -e 's/^embed = .*/embed = 24\ntype = gemma/' \
        -e 's/^context = .*/context = 13/' -e '/^dropout/d' \
        ../base.ini >base.ini
    llama_like two model.kv_heads=4 model.head_dim=6 model.pattern=2 model.window=5 model.rope_factor=8 \
        precision.compute=bf16
    llama_like three model.kv_heads=8 model.head_dim=4 model.pattern=3 model.window=3
}

# Ranks that share positions, each with one token slice, two or four. Of micro-batches of `micro` samples a token slice
# has one sample, or a part of one.
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

# same_positions CONTEXT TENSOR ...: 12 steps with the layout of that row are those of one rank.
same_positions() {
    micro=${11}
    all="parallel.token_slices=4 batch.global=$((8 * micro * ${10})) batch.micro=$micro $twelve precision.compute=$9"
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
        set -- precision.compute="$1" model.activation="$2" model.hidden="24 17 20" parallel.slices=4 \
            precision.scale_window=4
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

for case in every_layout every_context llama gemma perceptron; do try $case; done
finish
