#!/bin/sh
# test/test_slices.sh: [parallel] slices from the outside, with ./lockstep or the binary that LOCKSTEP_BIN names: sums
# in slices have the same bits on any number of ranks, which may share layers, in every stage, in pipelines and after
# every restart; and what goes in or comes out does not know of slices.
. test/support/lib.sh
. "$top/test/support/trained.sh"
least=2  # of a run of one step: that step and the state

text 30000 >text.txt
ini >base.ini <<'END'
run steps=6
device backend=cpu threads=1
model layers=2 heads=4 embed=40 vocab=259 context=24 dropout=0.1
data train=data/a-train-*.bin val=
pack input=text.txt output=data/a
batch global=12 micro=1 lanes=4
checkpoint every=0
sample tokens=0
parallel slices=4
log every=1 hash_every=1
END
expect 0 "$bin" pack base.ini

any_layout() {
    trained one "$@"
    trained portable "$@" device.simd=portable device.threads=2
    same one.hashes portable.hashes "the hashes of two vector widths"
    for deal in 2.0 2.1 2.2 2.3 3.2 3.3 4.1; do
        trained "ranks-$deal" "$@" device.ranks="${deal%.*}" parallel.zero="${deal#*.}" reduce.bucket_mb=0.02
        same one.hashes "ranks-$deal.hashes" "the hashes of one rank and of ${deal%.*}, stage ${deal#*.}"
    done
    for deal in 2.0 4.3; do
        trained "pipes-$deal" "$@" device.ranks="${deal%.*}" parallel.zero="${deal#*.}" parallel.pipeline=2
        same one.hashes "pipes-$deal.hashes" "the hashes of one rank and of ${deal%.*} in pipelines of 2"
    done
    while read -r deal ranks more; do
        trained "shares-$deal" "$@" device.ranks=$ranks $more
        same one.hashes "shares-$deal.hashes" "the hashes of one rank and of $ranks that share layers ($deal)"
    done <<'SHARES'
2 2 parallel.tensor=2
4 4 parallel.tensor=4 parallel.sequence=yes parallel.recompute=selective
2x2 4 parallel.tensor=2 parallel.zero=3 reduce.bucket_mb=0.02
2x1x2 4 parallel.tensor=2 parallel.sequence=yes parallel.pipeline=2 parallel.schedule=zb-h1
SHARES
    positions "$@"
}

# Ranks that share positions, whose sums are cut once more.
positions() {
    cp one.hashes whole.hashes
    trained tokens "$@" parallel.token_slices=4
    ! cmp -s tokens.hashes whole.hashes || fail "token slices change no bit"
    while read -r deal ranks more; do
        trained "context-$deal" "$@" parallel.token_slices=4 device.ranks=$ranks $more
        same tokens.hashes "context-$deal.hashes" "the hashes of one rank and of $ranks ($deal)"
    done <<'CONTEXTS'
none 3 parallel.zero=1
2 2 parallel.context=2 parallel.zero=2
4x2 8 parallel.context=4 parallel.zero=3 reduce.bucket_mb=0.02 parallel.recompute=block
2x2x2 8 parallel.context=2 parallel.tensor=2 parallel.pipeline=2 parallel.zero=2 parallel.schedule=zb-h1
CONTEXTS
}
gpt_layouts() {
    any_layout
    trained whole parallel.slices=1
    ! cmp -s one.hashes whole.hashes || fail "slices change no bit"
    for how in parallel.recompute=selective parallel.recompute=block parallel.offload=yes; do
        trained other $how
        same one.hashes other.hashes "the hashes with $how"
    done
}
sixteen_bits() { any_layout model.heads=8 precision.compute=bf16 precision.rounding=stochastic optimizer.type=adamw; }

llama="model.type=llama model.kv_heads=4 model.heads=8 model.layers=2 model.embed=40 model.head_dim=6 model.vocab=259 model.context=24"
llama_layouts() {
    sed -i '/^\[model\]/,/^\[data\]/{/^\[data\]/!d}' base.ini
    any_layout $llama model.tied=yes model.qk_norm=yes model.bias=all
}

# Layers with a window and without, each with angles of their own: one hash for ranks that share layers, in pipelines,
# and share positions besides.
gemma="model.type=gemma model.kv_heads=4 model.heads=8 model.layers=3 model.embed=40 model.head_dim=6 model.pattern=2 model.window=7 model.rope_factor=8 \
    model.vocab=259 model.context=24"
gemma_layouts() {
    sed -i '/^\[model\]/,/^\[data\]/{/^\[data\]/!d}' base.ini
    trained one $gemma
    trained share $gemma device.ranks=4 parallel.tensor=2 parallel.sequence=yes parallel.pipeline=2 \
        parallel.schedule=zb-h1
    same one.hashes share.hashes "the hashes of one rank and of 2 x 2"
    trained tokens $gemma parallel.token_slices=2
    ! cmp -s tokens.hashes one.hashes || fail "token slices change no bit"
    trained cube $gemma parallel.token_slices=2 device.ranks=8 parallel.tensor=2 parallel.pipeline=2 \
        parallel.context=2 parallel.zero=2 parallel.recompute=selective
    same tokens.hashes cube.hashes "the hashes of one rank and of 2 x 2 x 2"
}

# LARS adds up the squares of rows that ranks share, and of rows that each of them has.
lars="optimizer.type=lars optimizer.lr=0.5 optimizer.trust=0.02 optimizer.momentum=0.9 schedule.decay_steps=6 schedule.warmup=1"
lars_layouts() {
    trained one $lars
    while read -r deal ranks more; do
        trained "lars-$deal" $lars device.ranks=$ranks $more
        same one.hashes "lars-$deal.hashes" "the hashes of one rank and of $ranks ($deal)"
    done <<'DEALS'
offload 1 parallel.offload=yes
pipe 2 parallel.pipeline=2
pipe-offload 4 parallel.pipeline=2 parallel.zero=1 parallel.offload=nvme
2 2 parallel.tensor=2
2x2 4 parallel.tensor=2 parallel.zero=3 reduce.bucket_mb=0.02
2x1x2 4 parallel.tensor=2 parallel.sequence=yes parallel.pipeline=2 parallel.zero=2
DEALS
    trained again $lars run.steps=3
    settings again $lars device.ranks=3 parallel.zero=3
    expect 0 timeout 100 "$bin" base.ini again.ini
    hashes again >again.hashes
    same one.hashes again.hashes "the hashes of a run that was stopped, and went on with 3 ranks"
    trained tokens $lars parallel.token_slices=2
    trained context $lars parallel.token_slices=2 device.ranks=4 parallel.context=2 parallel.tensor=2 parallel.zero=2
    same tokens.hashes context.hashes "the hashes of one rank and of 2 x 2 that share positions"
}

resumed() {
    trained one
    trained again run.steps=3 schedule.decay_steps=6 schedule.warmup=1
    settings again device.ranks=3 parallel.zero=3 schedule.decay_steps=6 schedule.warmup=1
    expect 0 timeout 100 "$bin" base.ini again.ini
    hashes again >again.hashes
    trained through schedule.decay_steps=6 schedule.warmup=1
    same again.hashes through.hashes "the hashes of a run that was stopped"
    settings again parallel.slices=2 run.steps=9 schedule.decay_steps=6 schedule.warmup=1
    expect 78 timeout 100 "$bin" base.ini again.ini
    says "parallel.slices"
}

# Weights that nothing changes: lr = 0.
kept="run.steps=1 optimizer.lr=0 optimizer.weight_decay=0"
in_and_out() {
    trained one $kept
    trained whole $kept parallel.slices=1
    for from in one whole; do expect 0 "$bin" export "runs/$from" "out-$from"; done
    same out-one/model.safetensors out-whole/model.safetensors "initial values with and without slices"
    for deal in 1.0 3.2; do
        trained "back-$deal" $kept run.seed=5 model.init_from=out-one device.ranks="${deal%.*}" \
            parallel.zero="${deal#*.}"
        expect 0 "$bin" export "runs/back-$deal" "out-$deal"
        same out-one/model.safetensors "out-$deal/model.safetensors" "weights that went in and out"
    done
}

refused() {
    settings three parallel.slices=3
    expect 78 "$bin" base.ini three.ini
    says "three.ini:4: [parallel] slices: slices = 3 is not a power of two. Nearest that work: [parallel] slices = 4, or [parallel] slices = 2."
    settings eight parallel.slices=8
    expect 78 "$bin" base.ini eight.ini
    says "eight.ini:4: [parallel] slices: slices = 8 don't divide heads: 4. Nearest that work: [parallel] slices = 4, or [model] heads = 8"
    settings wide parallel.slices=4 model.heads=10
    expect 78 "$bin" base.ini wide.ini
    says "[model] heads: slices = 4 don't divide heads: 10. Nearest that work: [parallel] slices = 2, or [model] heads = 8"
}

try gpt_layouts
try sixteen_bits
try lars_layouts
try resumed
try in_and_out
try refused
try llama_layouts
try gemma_layouts
finish
