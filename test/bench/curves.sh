#!/bin/sh
# test/bench/curves.sh BIN [steps]: does training in BF16 pairs learn as FP32 does? Two shapes ($SHAPES), each trained
# in FP32 with two seeds, in pairs with FP32 and with BF16 storage, and by PyTorch ($PYTHON) under BF16 autocast from
# the same weights on the same samples ($WAYS: which of these). Prints mean losses. GPT-2 wants $TOKENIZER, a folder
# with its tokenizer, and $TEXT, a file to learn from; else it is left out.
set -eu
export LC_ALL=C
bin=$1 steps=${2:-300} shapes=${SHAPES:-default gpt2} ways=${WAYS:-fp32 seed pairs-fp32 pairs-bf16 torch}
python=${PYTHON:-python3}
case $bin in /*) ;; *) bin=$PWD/$bin ;; esac
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 143' HUP INT TERM
cd "$dir"

settings() { # layers heads embed vocab context batch warmup lr
    layers=$1 heads=$2 embed=$3 vocab=$4 context=$5 batch=$6 warmup=$7 lr=$8
    cat >base.ini <<END
[device]
backend = cpu
[model]
layers = $layers
heads = $heads
embed = $embed
vocab = $vocab
context = $context
[data]
train = train.raw
val = val.raw
format = raw16
shuffle = no
[batch]
global = $batch
micro = $batch
[schedule]
warmup = $warmup
decay_steps = $steps
[optimizer]
lr = $lr
[log]
every = 1
report = no
[checkpoint]
every = $steps
[eval]
every = 0
END
}

# run NAME OVERRIDE...: trains, and leaves "step N loss X" and "val X" in the file NAME.
run() {
    name=$1
    shift
    "$bin" train base.ini -o run.name="$name" -o run.steps="$steps" "$@" >said 2>&1 || { cat said >&2; exit 1; }
    sed -n 's/.*"t":"step","step":\([0-9]*\),"loss":\([0-9.]*\),.*/step \1 loss \2/p' "runs/$name/log.jsonl" >"$name"
    "$bin" eval base.ini -o run.name="$name" -o run.steps="$steps" "$@" >said 2>&1 || { cat said >&2; exit 1; }
    sed -n 's/.*loss \([0-9.]*\).*/val \1/p' said | head -n 1 >>"$name"
}

peer() {
    "$bin" train base.ini -o run.name=zero -o run.steps=1 -o optimizer.lr=1e-30 -o optimizer.weight_decay=0 \
        >said 2>&1 || { cat said >&2; exit 1; }
    "$bin" export runs/zero zero >said 2>&1 || { cat said >&2; exit 1; }
    "$python" "$here/curve.py" --weights zero/model.safetensors --train train.raw --val val.raw --threads "$(nproc)" \
        --layers "$layers" --heads "$heads" --embed "$embed" --vocab "$vocab" --context "$context" --batch "$batch" \
        --steps "$steps" --warmup "$warmup" --lr "$lr" >torch
}

row() { # file, text
    awk -v steps="$steps" -v text="$2" '
        $1 == "step" { k = int(($2 - 1) * 6 / steps); sum[k] += $4; n[k]++ }
        $1 == "val" { val = $2 }
        END { printf "%-34s", text; for (k = 0; k < 6; k++) printf " %8.4f", sum[k] / n[k]
            printf " %8.4f\n", val }' "$1"
}

table() {
    echo "# $1: $steps steps of $batch x $context tokens; mean loss of each sixth of the steps; then of validation"
    for way in $ways; do
        case $way in
        fp32) run fp32 && row fp32 "FP32" ;;
        seed) run seed -o run.seed=7 && row seed "FP32, another seed" ;;
        pairs-*)
            run $way -o precision.products=bf16-pairs -o precision.compute=${way#pairs-}
            row $way "pairs, ${way#pairs-} storage"
            ;;
        torch) peer && row torch "PyTorch, BF16 autocast" ;;
        esac
    done
    rm -rf runs zero
}

# tokens OVERRIDE...: packs, and leaves train.raw and val.raw.
tokens() {
    rm -f train.raw val.raw
    "$bin" pack "$here/../../config.ini" -o pack.output=packed "$@" >said 2>&1 || { cat said >&2; exit 1; }
    for part in train val; do "$bin" data convert --to raw16 packed-$part-*.bin $part.raw >said; done
}

for shape in $shapes; do
    case $shape in
    default) tokens && settings 4 4 128 256 128 16 30 1e-3 && table "The default run" ;;
    gpt2)
        [ -n "${TOKENIZER:-}${TEXT:-}" ] || { echo "(neither TOKENIZER nor TEXT: GPT-2 124M was left out)"; continue; }
        tokens -o pack.tokenizer="$TOKENIZER" -o pack.input="$TEXT" -o pack.val_fraction=0.01
        settings 12 12 768 50257 64 4 50 6e-4
        table "GPT-2 124M"
        ;;
    esac
done
