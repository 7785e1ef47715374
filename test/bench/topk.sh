#!/bin/sh
# test/bench/topk.sh: what [reduce] compress = topk costs in learning: accuracy on images that are not trained on, of a
# perceptron (MNIST's test set, 1,000 held out) and of ResNet-20 (any set of 28 x 28 images in ten classes, such as
# Fashion-MNIST; Debian: dataset-fashion-mnist), by SGD with momentum.
#
#     sh test/bench/topk.sh LOCKSTEP DATA mlp|resnet SEED...
#
# DATA is a directory with t10k-*.gz, for resnet with train-*.gz, too. KINDS: dense, topk (1 %), warm (its density falls
# over a tenth of the steps), clip (that, and lanes are clipped, by CLIP=1), held (dense, clipped). STEPS: of resnet.
# OTHER=FILE adds `forgets`, by a second binary, which drops what it does not send: in gpu/cpu/kernel/sparse.c
# send_largest() stores 0.0f in j->residual[i + k], always. LR, MOMENTUM, BATCH: 0.1, 0.9 and 64.
set -u
bin=$1 data=$2 kind=$3
shift 3
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
lr=${LR:-0.1} batch=${BATCH:-64} test="$data/t10k-images-idx3-ubyte.gz $data/t10k-labels-idx1-ubyte.gz"
if [ "$kind" = mlp ]; then
    model="model.type=mlp model.hidden=256,128 model.inputs=784" steps=2820 train=$test val= holdout=1000
else
    model="model.type=resnet20 model.image=28 model.channels=1 model.mean=0.286 model.deviation=0.353"
    steps=${STEPS:-1400} val=$test holdout=0
    train="$data/train-images-idx3-ubyte.gz $data/train-labels-idx1-ubyte.gz"
fi
warmup=$((steps / 10))

# The settings NAME=VALUE as a file.
write() {
    for each; do
        key=${each%%=*}
        printf '[%s]\n%s = %s\n' "${key%%.*}" "${key#*.}" "$(printf %s "${each#*=}" | tr ',' ' ')"
    done
}

# NAME BINARY SEED SETTING...: prints the accuracy after the last step.
learn() {
    name=$1 with=$2 seed=$3
    shift 3
    {
        write run.name="$name" run.dir="$dir" run.seed="$seed" run.steps=$steps device.backend=cpu device.threads=1 \
            model.classes=10 $model batch.global=$batch batch.micro=$((batch / 4)) batch.lanes=4 data.holdout=$holdout \
            optimizer.type=sgd optimizer.lr="$lr" optimizer.momentum="${MOMENTUM:-0.9}" optimizer.weight_decay=0 \
            optimizer.grad_clip=0 schedule.type=cosine eval.every=$steps eval.batches=0 checkpoint.every=0 log.watch=no
        printf '[data]\ntrain = %s\nval = %s\n' "$train" "$val"
    } >"$dir/base.ini"
    write "$@" run.name="$name" >"$dir/more.ini"
    "$with" "$dir/base.ini" "$dir/more.ini" >"$dir/log" 2>&1 || { cat "$dir/log" >&2; exit 1; }
    sed -n 's/.*"t":"eval".*"accuracy":\([0-9.]*\),.*/\1/p' "$dir/$name/log.jsonl" | tail -1
    rm -rf "${dir:?}/$name"
}

topk="reduce.compress=topk reduce.density=0.01" clip=optimizer.grad_clip=${CLIP:-1}
kinds=${KINDS:-dense topk warm}
for seed; do
    for each in $kinds ${OTHER:+forgets}; do
        with=$bin
        case $each in
        dense) of= ;;
        held) of=$clip ;;
        topk) of=$topk ;;
        warm) of="$topk reduce.density_warmup=$warmup" ;;
        clip) of="$topk reduce.density_warmup=$warmup $clip" ;;
        forgets) of=$topk with=$OTHER ;;
        esac
        printf 'seed %s %s %s\n' "$seed" "$each" "$(learn "$each" "$with" "$seed" $of)"
    done
done
