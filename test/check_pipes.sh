#!/bin/sh
# test/check_pipes.sh: pipelines from the outside. Whatever the layout, a run logs what one rank logs: every loss, norm,
# evaluation, sample and hash. Nodes, stops and losses are in check_pipes_lost.sh.
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"
. "$top/test/support/lost.sh"

# 8 lanes of 3 micro-batches; a model of $deep has eight blocks.
deep=model.layers=6
small="model.embed=16 model.context=16 device.threads=1 reduce.bucket_mb=0.01 cluster.heartbeat=0.1"

# --- the same bits ----------------------------------------------------------------------------------------------------

# same_layout TYPE SCHEDULE PIPELINE DATA ZERO [SETTING...]: 24 steps with that layout are those of one rank.
same_layout() {
    type=$1 schedule=$2 pipeline=$3 data=$4 zero=$5
    shift 5
    all="$deep $small batch.global=24 run.steps=24 eval.every=12 sample.tokens=12 precision.compute=$type"
    alone "ref-$type" 1 $all
    layout=$type-$schedule-$pipeline-$data-$zero
    alone "$layout" $((pipeline * data)) $(pipes "$schedule" "$pipeline") parallel.zero=$zero $all "$@"
    like "runs/ref-$type" "runs/$layout"
    rm -rf "runs/$layout"
    layouts=$((layouts + 1))
}

# Each schedule at each depth beside one, two and three pipelines; ZeRO, recomputation and offload in turn.
every_layout() {
    layouts=0 turn=0
    for schedule in gpipe 1f1b interleaved zb-h1 zb-v; do
        for shape in 2:1 2:2 2:3 3:1 3:2 3:3 4:1 4:2; do
            pipeline=${shape%:*} data=${shape#*:} zero=0
            # 3 lanes of 3 micro-batches are no multiple of 2 stages
            [ "$schedule $shape" != "interleaved 2:3" ] || continue
            [ "$data" -eq 1 ] || zero=$((turn % 4))
            case $((turn % 3)) in 0) how=none ;; 1) how=selective ;; *) how=block ;; esac
            same_layout fp32 "$schedule" "$pipeline" "$data" $zero parallel.recompute=$how
            turn=$((turn + 1))
        done
    done
    [ $layouts -eq 39 ] || fail "$layouts layouts"
}

# In 16 bits, with offload in turn, and without a pipeline.
sixteen_bits() {
    layouts=0 turn=0
    for type in bf16 fp16; do
        for layout in gpipe:2:2:3 gpipe:3:1:0 1f1b:2:3:2 1f1b:4:2:1 1f1b:1:2:3 interleaved:2:2:1 interleaved:3:1:0 \
            interleaved:4:1:0 zb-h1:2:2:2 zb-h1:3:2:3 \
            zb-h1:4:1:0 zb-v:2:3:3 zb-v:3:2:1 zb-v:4:1:0; do
            set -- $(echo $layout | tr : ' ')
            [ $((turn % 3)) -eq 2 ] && offload=yes || offload=no
            same_layout $type "$@" parallel.offload=$offload
            turn=$((turn + 1))
        done
    done
    [ $layouts -eq 28 ] || fail "$layouts layouts"
    [ "$(hashes runs/ref-bf16)" != "$(hashes runs/ref-fp16)" ] || fail "bf16 and fp16 give the same hash"
}

# A Llama whose head is heavy and has weights of its own, cut by hand.
llama() {
    set -- $small run.steps=20 model.type=llama model.kv_heads=1 model.layers=4 model.tied=no precision.compute=bf16
    sed '/^dropout/d' base.ini >plain.ini && mv plain.ini base.ini
    alone llama-1 1 "$@"
    for cut in "1f1b 2:5 1" "zb-h1 2:1 5" "gpipe 3:2 2 2"; do
        name=$(echo "llama-$cut" | tr ' :' '--') schedule=${cut%%:*}
        alone "$name" "${schedule#* }" $(pipes $schedule) "$@"
        rm -rf "runs/$name"
        printf '[parallel]\nstages = %s\n' "${cut#*:}" >>"$name.ini"
        expect 0 train "$name"
        like runs/llama-1 "runs/$name"
    done
}

for case in every_layout sixteen_bits llama; do try $case; done
finish
