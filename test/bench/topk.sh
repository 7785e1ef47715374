#!/bin/sh
# test/bench/topk.sh: what [reduce] compress = topk costs in learning: accuracy on held-out images of a perceptron, and
# of ResNet-20, which learn MNIST's test set, without topk, with it, and with its density warming up.
#
#     sh test/bench/topk.sh LOCKSTEP DATA mlp|resnet SEED...
#
# DATA is a directory with mnist/t10k-*.gz. CLIP=C adds clipped runs. OTHER=FILE adds those of a second binary, which
# drops what it does not send: in gpu/cpu/kernel/sparse.c send_largest() stores 0.0f in j->residual[i + k], always.
set -u
bin=$1 data=$2/mnist kind=$3
shift 3
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
if [ "$kind" = mlp ]; then
    model="model.type=mlp model.hidden=256,128 model.inputs=784" steps=2820 warmup=282
    batch="batch.global=64 batch.micro=16" lr=0.1
else
    model="model.type=resnet20 model.image=28 model.channels=1 model.mean=0.13 model.deviation=0.31"
    batch="batch.global=64 batch.micro=16" steps=${STEPS:-280} lr=0.1
    warmup=$((steps / 10))
fi

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
            model.classes=10 $model $batch batch.lanes=4 data.holdout=1000 optimizer.type=sgd optimizer.lr=$lr \
            optimizer.momentum=0.9 optimizer.weight_decay=0 optimizer.grad_clip=0 schedule.type=cosine \
            eval.every=$steps eval.batches=0 checkpoint.every=0 log.watch=no
        printf '[data]\ntrain = %s %s\nval =\n' "$data/t10k-images-idx3-ubyte.gz" "$data/t10k-labels-idx1-ubyte.gz"
    } >"$dir/base.ini"
    write "$@" run.name="$name" >"$dir/more.ini"
    "$with" "$dir/base.ini" "$dir/more.ini" >"$dir/log" 2>&1 || { cat "$dir/log" >&2; exit 1; }
    sed -n 's/.*"t":"eval".*"accuracy":\([0-9.]*\),.*/\1/p' "$dir/$name/log.jsonl" | tail -1
}

topk="reduce.compress=topk reduce.density=0.01"
for seed; do
    printf 'seed %s dense %s\n' "$seed" "$(learn dense "$bin" "$seed")"
    printf 'seed %s topk %s\n' "$seed" "$(learn topk "$bin" "$seed" $topk)"
    printf 'seed %s topk, warmup %s %s\n' "$seed" $warmup \
        "$(learn warm "$bin" "$seed" $topk reduce.density_warmup=$warmup)"
    [ -z "${CLIP:-}" ] || printf 'seed %s topk, warmup, clip %s %s\n' "$seed" "$CLIP" \
        "$(learn clip "$bin" "$seed" $topk reduce.density_warmup=$warmup optimizer.grad_clip="$CLIP")"
    [ -z "${OTHER:-}" ] || printf 'seed %s topk that forgets %s\n' "$seed" "$(learn forgets "$OTHER" "$seed" $topk)"
done
