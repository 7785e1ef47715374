#!/bin/sh
# test/support/same_bits.sh: small runs, a row for each, and what each of them computed to the last bit.
# check_same_bits.sh reads this file and compares with the tables in test/golden; by itself it makes such a table, with
# any binary, old or new:
#
#   sh test/support/same_bits.sh cpu lockstep >test/golden/same_bits.txt
#   sh test/support/same_bits.sh since lockstep >test/golden/same_bits_since.txt
#   sh test/support/same_bits.sh sim build/sim/lockstep >test/golden/same_bits_sim.txt
#
# A table is made anew when bits are to change, and with a binary that is known to be right: never to make a comparison
# pass.
alone=no
if [ "${0##*/}" = same_bits.sh ]; then
    alone=yes
    [ $# -eq 2 ] || { echo "usage: sh test/support/same_bits.sh cpu|since|sim BIN" >&2; exit 64; }
    LOCKSTEP_BIN=$2
fi
. test/support/lib.sh
. "$top/test/support/net.sh"

# --- the rows ---------------------------------------------------------------------------------------------------------

# Weights that come with their data, and write more than spaces.
gpt="model.init_from=golden/gpt-weights.safetensors data.train=golden/gpt-tokens.bin data.val=golden/gpt-tokens.bin data.format=raw16 \
model.heads=4 model.embed=48 model.vocab=131 model.context=32"
look="model.init_from=golden/look-weights.safetensors data.train=golden/look-val.bin data.val=golden/look-val.bin data.format=raw16 \
model.vocab=128 model.context=32"

# A Llama whose heads are not embed / heads, and one with all that its families add, in a context beyond the one that
# RoPE's scaling begins with.
llama="model.type=llama model.heads=4 model.kv_heads=2 model.head_dim=10 model.hidden=36"
qwen="$llama model.bias=all model.qk_norm=yes model.window=12 model.rope_theta=500 model.rope_scaling=llama3 model.rope_original=16 model.context=70 \
batch.global=8 batch.lanes=4"

pairs="precision.products=bf16-pairs"

# More than one tile of attention (64), block of a product's k (384), chunk of a digest (16384), and a message that all
# ways of adding take.
large="model.layers=1 model.embed=136 model.context=70 model.vocab=259 batch.global=24 batch.micro=6 batch.lanes=4 run.steps=3"

# A row is NAME | RANKS | SETTING... and, if it is resumed, | RANKS | SETTING... of what goes on after step 3. 2+1 are
# two nodes, of two ranks and one. Every key that decides bits stands in some row. Threads and vector widths do not:
# test_runs.sh has them.
rows_cpu() {
    cat <<ROWS
fp32              | 1 |
fp32-dropout      | 1 | model.dropout=0.1
bf16              | 1 | precision.compute=bf16
bf16-dropout      | 1 | precision.compute=bf16 model.dropout=0.1
bf16-stochastic   | 1 | precision.compute=bf16 precision.rounding=stochastic
fp16              | 1 | precision.compute=fp16
fp16-dropout      | 1 | precision.compute=fp16 model.dropout=0.1
fp16-stochastic   | 1 | precision.compute=fp16 precision.rounding=stochastic model.dropout=0.1

seed              | 1 | run.seed=2 model.dropout=0.1
dropout-half      | 1 | model.dropout=0.5
shuffle-no        | 1 | data.shuffle=no
epochs            | 1 | data.train=golden/gpt-tokens.bin data.val=golden/gpt-tokens.bin data.format=raw16 model.context=32 run.steps=8
compressed        | 1 | data.train=data/small-train-*.bin data.val=data/small-val-*.bin model.vocab=259

recompute-norms   | 1 | parallel.recompute=selective model.dropout=0.1
recompute-block   | 1 | parallel.recompute=block model.dropout=0.1
bf16-norms        | 1 | parallel.recompute=selective precision.compute=bf16 model.dropout=0.1
bf16-block        | 1 | parallel.recompute=block precision.compute=bf16 model.dropout=0.1
fp16-block        | 1 | parallel.recompute=block precision.compute=fp16
offload           | 1 | parallel.offload=yes
bf16-offload      | 1 | parallel.offload=yes precision.compute=bf16 precision.rounding=stochastic model.dropout=0.1
head-chunks-2     | 1 | model.head_chunks=2
head-chunks-5     | 1 | model.head_chunks=5 batch.micro=2 model.dropout=0.1
bf16-head-chunks  | 1 | model.head_chunks=3 batch.micro=2 precision.compute=bf16

lanes-1           | 1 | batch.lanes=1
lanes-2           | 1 | batch.lanes=2
lanes-4           | 1 | batch.lanes=4
lanes-16          | 1 | batch.lanes=16
micro-2           | 1 | batch.micro=2
micro-4           | 1 | batch.micro=4 batch.lanes=4
micro-8           | 1 | batch.micro=8 batch.lanes=1 precision.compute=bf16
micro-3           | 1 | batch.micro=3 batch.lanes=4 batch.global=12 model.dropout=0.1
accumulate-4      | 1 | batch.micro=2 batch.lanes=4 batch.global=32
bf16-accumulate   | 1 | batch.micro=1 batch.lanes=2 batch.global=12 precision.compute=bf16 model.dropout=0.1
fp16-accumulate   | 1 | batch.micro=3 batch.lanes=2 batch.global=18 precision.compute=fp16

odd               | 1 | model.embed=40 model.context=19 model.vocab=259 model.dropout=0.1 batch.micro=3 batch.lanes=4 batch.global=12
bf16-odd          | 1 | model.embed=40 model.context=19 model.vocab=259 model.dropout=0.1 batch.micro=2 precision.compute=bf16
fp16-odd          | 1 | model.embed=40 model.context=19 model.vocab=259 model.dropout=0.1 batch.micro=2 precision.compute=fp16
narrow            | 1 | model.heads=3 model.embed=21 model.context=17 model.vocab=257 model.layers=1
bf16-narrow       | 1 | model.heads=3 model.embed=21 model.context=17 model.vocab=257 model.layers=1 precision.compute=bf16
one-head          | 1 | model.heads=1 model.layers=3 model.context=32
wide              | 1 | model.heads=4 model.embed=72 model.context=33 batch.micro=2 run.steps=4

large             | 1 | $large
large-bf16        | 1 | $large precision.compute=bf16 precision.rounding=stochastic
large-fp16        | 1 | $large precision.compute=fp16 model.dropout=0.1
large-block       | 1 | $large model.dropout=0.1 parallel.recompute=block
large-3           | 3 | $large model.dropout=0.1 parallel.zero=2 reduce.bucket_mb=0.2
large-any-zero-0  | 4 | $large reduce.order=any parallel.zero=0
large-any-zero-3  | 3 | $large reduce.order=any parallel.zero=3 precision.compute=bf16
large-any-nodes   | 2+1 | $large reduce.order=any parallel.zero=1
long              | 1 | model.heads=1 model.layers=1 model.context=300 batch.global=4 batch.lanes=4 run.steps=3 model.dropout=0.1
long-bf16         | 1 | model.heads=1 model.layers=1 model.context=300 batch.global=4 batch.lanes=4 run.steps=3 precision.compute=bf16

clip-no           | 1 | optimizer.grad_clip=0
clip-low          | 1 | optimizer.grad_clip=0.1
decay-no          | 1 | optimizer.weight_decay=0
decay-high        | 1 | optimizer.weight_decay=2.5 optimizer.lr=0.02
adam              | 1 | optimizer.beta1=0.8 optimizer.beta2=0.95 optimizer.eps=1e-5 optimizer.lr=0.01
linear            | 1 | schedule.type=linear
constant          | 1 | schedule.type=constant
wsd               | 1 | schedule.type=wsd schedule.warmup=1 run.steps=8 schedule.decay_steps=8
cosine-to-0       | 1 | schedule.final_fraction=0 schedule.warmup=3
beyond-decay      | 1 | schedule.decay_steps=4
scale-fixed       | 1 | precision.compute=fp16 precision.loss_scale=1024
scale-odd         | 1 | precision.compute=bf16 precision.loss_scale=100
scale-grows       | 1 | precision.compute=fp16 precision.scale_window=2 run.steps=8
scale-too-high    | 1 | precision.compute=fp16 precision.loss_scale=16777216
scale-falls       | 1 | precision.compute=fp16 precision.scale_window=1 run.steps=14 $look

2-zero-0          | 2 | model.dropout=0.1 parallel.zero=0
2-zero-1          | 2 | model.dropout=0.1 parallel.zero=1
2-zero-2          | 2 | model.dropout=0.1 parallel.zero=2
2-zero-3          | 2 | model.dropout=0.1 parallel.zero=3
3-zero-0          | 3 | model.dropout=0.1 parallel.zero=0
3-zero-1          | 3 | model.dropout=0.1 parallel.zero=1
3-zero-2          | 3 | model.dropout=0.1 parallel.zero=2
3-zero-3          | 3 | model.dropout=0.1 parallel.zero=3
4-zero-0          | 4 | precision.compute=bf16 parallel.zero=0
4-zero-1          | 4 | precision.compute=bf16 parallel.zero=1
4-zero-2          | 4 | precision.compute=bf16 parallel.zero=2
4-zero-3          | 4 | precision.compute=bf16 parallel.zero=3
8-zero-0          | 8 | model.embed=40 parallel.zero=0
8-zero-3          | 8 | model.embed=40 parallel.zero=3
9-zero-2          | 9 | batch.lanes=16 model.dropout=0.1 parallel.zero=2
fp16-3-zero-2     | 3 | precision.compute=fp16 precision.scale_window=2 parallel.zero=2
stochastic-4      | 4 | precision.compute=bf16 precision.rounding=stochastic model.dropout=0.1 parallel.zero=3 reduce.bucket_mb=0.01
offload-2         | 2 | parallel.offload=yes precision.compute=bf16 parallel.zero=1
offload-3         | 3 | parallel.offload=yes parallel.zero=3 model.dropout=0.1
block-3           | 3 | parallel.recompute=block parallel.zero=3 model.dropout=0.1
buckets-small     | 3 | reduce.bucket_mb=0.001 parallel.zero=2 model.dropout=0.1
buckets-middle    | 2 | reduce.bucket_mb=0.07 parallel.zero=0 model.dropout=0.1
chunks-3          | 3 | model.head_chunks=5 batch.micro=2 batch.global=32 parallel.zero=1 model.dropout=0.1

any-1             | 1 | reduce.order=any model.dropout=0.1
any-2-zero-0      | 2 | reduce.order=any model.dropout=0.1 parallel.zero=0
any-3-zero-0      | 3 | reduce.order=any model.dropout=0.1 parallel.zero=0
any-3-zero-1      | 3 | reduce.order=any model.dropout=0.1 parallel.zero=1
any-3-zero-2      | 3 | reduce.order=any model.dropout=0.1 parallel.zero=2
any-3-zero-3      | 3 | reduce.order=any model.dropout=0.1 parallel.zero=3
any-3-tiny        | 3 | reduce.order=any model.heads=1 model.embed=8 model.context=8 model.vocab=259 parallel.zero=0 reduce.bucket_mb=0.001
any-9-zero-0      | 9 | reduce.order=any batch.lanes=16 model.dropout=0.1 parallel.zero=0 reduce.bucket_mb=0.001
any-9-zero-1      | 9 | reduce.order=any batch.lanes=16 model.dropout=0.1 parallel.zero=1
any-4-bf16        | 4 | reduce.order=any precision.compute=bf16 parallel.zero=3 reduce.bucket_mb=0.01
any-4-offload     | 4 | reduce.order=any parallel.offload=yes parallel.zero=2

nodes-zero-0      | 1+1 | model.dropout=0.1 parallel.zero=0
nodes-zero-2      | 2+1 | model.dropout=0.1 parallel.zero=2
nodes-zero-3      | 2+2 | precision.compute=bf16 parallel.zero=3
nodes-any-zero-0  | 1+1 | reduce.order=any model.dropout=0.1 parallel.zero=0
nodes-any-zero-2  | 2+1 | reduce.order=any model.dropout=0.1 parallel.zero=2
nodes-any-zero-3  | 2+2 | reduce.order=any model.dropout=0.1 parallel.zero=3

resumed           | 1 | model.dropout=0.1 | 1 | model.dropout=0.1
resumed-fp16      | 1 | precision.compute=fp16 precision.scale_window=2 | 2 | precision.compute=fp16 precision.scale_window=2 parallel.zero=1
resumed-bf16      | 2 | precision.compute=bf16 precision.rounding=stochastic parallel.zero=3 | 1 | precision.compute=bf16 precision.rounding=stochastic
resumed-on-3      | 1 | model.dropout=0.1 | 3 | model.dropout=0.1 parallel.zero=2
resumed-on-2      | 4 | model.dropout=0.1 parallel.zero=3 | 2 | model.dropout=0.1 parallel.zero=1
resumed-block     | 3 | model.dropout=0.1 parallel.zero=1 | 3 | model.dropout=0.1 parallel.zero=3 parallel.recompute=block
resumed-offload   | 1 | parallel.offload=yes | 2 | parallel.zero=2 reduce.bucket_mb=0.01
resumed-any       | 3 | reduce.order=any parallel.zero=2 | 2 | reduce.order=any parallel.zero=0
resumed-on-nodes  | 2 | model.dropout=0.1 parallel.zero=2 | 1+1 | model.dropout=0.1 parallel.zero=3
resumed-off-nodes | 2+1 | model.dropout=0.1 parallel.zero=3 | 1 | model.dropout=0.1

sample            | 1 | sample.tokens=40 sample.every=2 optimizer.lr=0.02 $look
sample-bf16       | 1 | sample.tokens=24 sample.every=3 precision.compute=bf16 $look
sample-3-zero-3   | 3 | sample.tokens=50 sample.every=3 model.dropout=0.1 parallel.zero=3 $look
eval-all          | 1 | eval.batches=0 eval.every=6 batch.micro=4 batch.lanes=4
eval-often        | 3 | eval.batches=5 eval.every=1 parallel.zero=2 precision.compute=fp16
init              | 1 | $gpt
init-2-zero-3     | 2 | $gpt parallel.zero=3
init-checkpoint   | 1 | model.init_from=runs/fp32/ckpt/step-00000006/model.safetensors run.seed=5
ROWS
}

# What was changed on purpose after b86639b: the draws of a sample (4d3290c), and a warm-up that has no number
# (04a9171). And what b86639b lacks: Llama.
rows_since() {
    cat <<ROWS
draws             | 1 | sample.tokens=40 sample.every=2 sample.temperature=0.8 sample.top_k=40 $look
draws-from-all    | 1 | sample.tokens=40 sample.every=2 sample.temperature=1.2 sample.top_k=0 precision.compute=bf16 $look
draws-3-zero-3    | 3 | sample.tokens=40 sample.every=2 sample.temperature=1 sample.top_k=5 parallel.zero=3 $look
warmup-open       | 1 | schedule.warmup=0 run.steps=20 schedule.decay_steps=20
warmup-no         | 1 | schedule.warmup=-1

llama             | 1 | $llama
llama-bf16        | 1 | $llama precision.compute=bf16 precision.rounding=stochastic
llama-fp16        | 1 | $llama precision.compute=fp16 model.tied=yes
llama-norms       | 1 | $llama precision.compute=bf16 parallel.recompute=selective
llama-block-3     | 3 | $llama parallel.recompute=block parallel.zero=3 model.bias=qkv
llama-any-2       | 2 | $llama reduce.order=any parallel.zero=1
llama-slices      | 2 | $llama parallel.slices=2 parallel.tensor=2
llama-stages      | 2 | $llama parallel.pipeline=2 precision.compute=bf16
qwen              | 1 | $qwen
qwen-bf16         | 1 | $qwen precision.compute=bf16
qwen-2-zero-2     | 2 | $qwen parallel.zero=2 precision.compute=fp16
llama-resumed     | 2 | $qwen parallel.zero=3 | 1 | $qwen
llama-sample      | 1 | $llama sample.tokens=40 sample.every=2 sample.temperature=0.8 sample.top_k=40 sample.top_p=0.9 optimizer.lr=0.02
qwen2             | 1 | model.init_from=golden/families/qwen2 model.type=llama model.heads=4 model.kv_heads=2 model.embed=24 model.hidden=36 model.vocab=61 \
model.context=40 model.bias=qkv model.tied=yes model.norm_eps=0.01 data.train=golden/families/tokens.bin data.val=golden/families/tokens.bin \
data.format=raw16

pairs             | 1 | $pairs
pairs-bf16        | 1 | $pairs precision.compute=bf16 model.dropout=0.1
pairs-large       | 1 | $pairs $large
pairs-large-bf16  | 3 | $pairs $large precision.compute=bf16 precision.rounding=stochastic parallel.zero=2
pairs-norms       | 1 | $pairs precision.compute=bf16 parallel.recompute=selective model.head_chunks=3 batch.micro=2
pairs-llama       | 2 | $pairs $llama parallel.slices=2 parallel.tensor=2
pairs-qwen        | 2 | $pairs $qwen precision.compute=bf16 parallel.zero=3 | 1 | $pairs $qwen precision.compute=bf16
pairs-draws       | 1 | $pairs sample.tokens=40 sample.every=2 sample.temperature=0.8 sample.top_k=40 precision.compute=bf16 $look
ROWS
}

# On the simulated GPU, whose bits are others, a row takes four seconds: few rows.
rows_sim() {
    cat <<ROWS
fp32              | 1 | model.dropout=0.1
bf16              | 1 | precision.compute=bf16
bf16-stochastic   | 1 | precision.compute=bf16 precision.rounding=stochastic model.dropout=0.1
fp16              | 1 | precision.compute=fp16 precision.scale_window=2
recompute-block   | 1 | precision.compute=bf16 model.dropout=0.1 parallel.recompute=block
recompute-norms   | 1 | precision.compute=bf16 model.dropout=0.1 parallel.recompute=selective
odd               | 1 | model.embed=40 model.context=19 model.vocab=259 precision.compute=bf16 batch.micro=2 model.head_chunks=3
sample            | 1 | sample.tokens=12 sample.every=3 precision.compute=bf16 batch.global=4 $look
offload           | 1 | precision.compute=bf16 parallel.offload=yes
2-zero-0          | 2 | precision.compute=bf16 model.dropout=0.1 parallel.zero=0
2-zero-1          | 2 | model.dropout=0.1 parallel.zero=1
2-zero-2          | 2 | precision.compute=bf16 model.dropout=0.1 parallel.zero=2
2-zero-3          | 2 | precision.compute=fp16 parallel.zero=3
2-any-zero-2      | 2 | reduce.order=any precision.compute=bf16 parallel.zero=2
resumed           | 1 | precision.compute=bf16 model.dropout=0.1 | 2 | precision.compute=bf16 model.dropout=0.1 parallel.zero=1
ROWS
}

# --- how a row is run -------------------------------------------------------------------------------------------------

# prepare cpu|since|sim: base.ini and its data, and the file `rows`.
prepare() {
    "rows_$1" | sed '/^$/d' >rows
    backend=cpu global=16 lanes=8 windows=4
    [ "$1" != sim ] || backend=cuda global=8 lanes=4 windows=2
    ini >base.ini <<END
run dir=runs steps=6
device backend=$backend threads=1
model layers=2 heads=2 embed=32 context=16 vocab=256
data train=data/plain-train-*.bin val=data/plain-val-*.bin
pack input=text.txt output=data/plain
batch global=$global micro=1 lanes=$lanes
optimizer lr=0.003
schedule warmup=2 decay_steps=6
checkpoint every=0 keep_best=no
eval every=3 batches=$windows
sample tokens=0 prompt=the temperature=0
log every=1 hash_every=1
END
    if [ "$1" = sim ]; then
        export SIM_SEED=1
        printf '[reduce]\ntransport = nccl\nnccl_library = %s/test/libnccl-sim.so\n' "${bin%/*}" >>base.ini
    fi
    text 40000 >text.txt
    head -c 32 /dev/urandom >secret
    ln -s "$top/test/golden" golden
    printf '[pack]\noutput = data/small\nshard_tokens = 7777\ncompress = yes\n' >small.ini
    for each in "" small.ini; do
        "$bin" pack base.ini $each >"$out" 2>&1 || { cat "$out"; echo "0 passed, 1 failed"; exit 1; }
    done
}

# to_step STEPS RANKS SETTING...: run $row begins, or goes on. What nodes have of it goes to runs/$row, node 0's in
# doubt.
to_step() {
    steps=$1 ranks=$2
    shift 2
    case $ranks in
    *+*)
        near $(echo "$ranks" | tr + ' ')
        for k in $(seq 0 $((nodes - 1))); do
            mkdir "node$k/runs"
            [ ! -d "runs/$row" ] || cp -r "runs/$row" "node$k/runs"
        done
        settings "$row" cluster.nodes="$list" cluster.port="$port" "$@" ${steps:+"$steps"}
        boot "$row"
        ended 0
        for k in $(seq $((nodes - 1)) -1 0); do cp -r "node$k/runs/$row" runs; done
        ;;
    *)
        settings "$row" device.ranks="$ranks" "$@" ${steps:+"$steps"}
        SIM_DEVICES=$ranks expect 0 timeout 100 "$bin" base.ini "$row.ini"
        ;;
    esac
}

# told: "ROW step loss norm rate hash" for each step, "ROW eval step loss", "ROW sample step text", as they stand in the
# log; at the end both hashes of the checkpoint, every digest verified.
told() {
    {
        sed -n -e 's/^{"t":"step","step":\([0-9]*\),.*"loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*"lr":\([^,]*\),.*"hash":"\([0-9a-f]*\)".*/\1 \2 \3 \4 \5/p' \
            -e 's/^{"t":"eval","step":\([0-9]*\),.*"loss":\([^,]*\),.*/eval \1 \2/p' \
            -e 's/^{"t":"sample","step":\([0-9]*\),.*"text":\(".*"\)}$/sample \1 \2/p' "runs/$row/log.jsonl"
        "$bin" hash "$(ls -d "runs/$row"/ckpt/step-* | tail -n 1)" | sed 's/  [^ ]*$//'
    } | sed "s/^/$row /"
}

# bits NAME RANKS SETTINGS [RANKS SETTINGS]: runs that row; what it logged is in the file found.
bits() {
    row=$1
    if [ $# -eq 5 ]; then
        to_step run.steps=3 $2 $3
        to_step "" $4 $5
    else
        to_step "" $2 $3
    fi
    told >found
    grep -q "^$row hash [0-9a-f]*  state_hash [0-9a-f]" found || fail "its checkpoint has no hashes: $(tail -n 1 found)"
}

# each_row COMMAND: calls it with each row's fields.
each_row() {
    while IFS='|' read -r row ranks settings again more <&4; do
        "$1" $row "$ranks" "$settings" ${again:+"$again" "$more"}
    done 4<rows
}

# kind_of TABLE: the kind of device that it is of.
kind_of() { if [ "$1" = sim ]; then echo cuda; else echo cpu; fi; }

# --- a table ----------------------------------------------------------------------------------------------------------

print_row() {
    name=$1
    (trap 'reap' EXIT; bits "$@" && cat found) >row.out || { cat row.out >&2; exit 1; }
    cat row.out
}

if [ $alone = yes ]; then
    prepare "$1"
    echo "# What small runs computed, to the last bit: loss, norm of the gradient, learning rate and hash of each step; evaluations, samples, and the hashes"
    echo "# of the last checkpoint. Made with $("$bin" version | head -n 1) by: sh test/support/same_bits.sh $1 BIN"
    echo "# Revisions: $("$bin" version | sed -n 's/^revision *//p' | tr ';' '\n' | sed -n "s/^ *\($(kind_of "$1") \)/\1/p") (gpu/revision.c)"
    each_row print_row
fi
