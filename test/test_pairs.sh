#!/bin/sh
# test/test_pairs.sh: [precision] products = bf16-pairs from the outside, with ./lockstep or the binary that
# LOCKSTEP_BIN names: one hash for each type and model, whatever the vector width, the ranks and their layout, and after
# every restart; another one than that of products = fp32; and what is refused, looked at and advised. No hash is
# written down: runs are compared with each other.
. test/support/pairs.sh

# --- one hash ---------------------------------------------------------------------------------------------------------

same_layouts() {
    while read -r deal ranks more; do
        trained "$deal" "$@" device.ranks="$ranks" reduce.bucket_mb=0.02 $more
        as_one "$deal"
    done <<'DEALS'
two 2
two-sharded 2 parallel.zero=3
recomputed 1 parallel.recompute=block
norms 1 parallel.recompute=selective
shares 2 parallel.tensor=2
stages 2 parallel.pipeline=2
all 4 parallel.tensor=2 parallel.sequence=yes parallel.pipeline=2 parallel.schedule=zb-h1 parallel.recompute=selective
sharded-stages 4 parallel.pipeline=2 parallel.zero=3
DEALS
}

one_hash() {
    trained one "$@"
    says ", products bf16-pairs"
    same_widths "$@"
    same_layouts "$@"
    trained plain "$@" precision.products=fp32
    ! cmp -s one.hashes plain.hashes || fail "pairs change no bit"
}
gpt_fp32() { one_hash model.dropout=0.1; }
gpt_bf16() { one_hash model.dropout=0.1 precision.compute=bf16; }
llama="model.type=llama model.kv_heads=4 model.heads=8 model.layers=2 model.embed=40 model.head_dim=6 model.vocab=259 model.context=24"
llama_of() {
    sed -i '/^\[model\]/,/^\[data\]/{/^\[data\]/!d}' base.ini
    one_hash $llama model.qk_norm=yes model.bias=all "$@"
}
llama_fp32() { llama_of; }
llama_bf16() { llama_of precision.compute=bf16 precision.rounding=stochastic; }

# A residual network, of odd numbers of channels.
resnet_of() {
    sed -i -e '/^\[model\]/,/^\[data\]/{/^\[data\]/!d}' -e '/^\[parallel\]/,/^\[log\]/{/^\[log\]/!d}' \
        -e "s|^train = .*|train = $top/test/golden/resnet-basic-images.idx $top/test/golden/resnet-basic-labels.idx|" base.ini
    net="model.type=resnet20 model.width=7 model.image=16 model.classes=12 batch.micro=3 batch.lanes=2
        optimizer.type=sgd optimizer.lr=0.05"
    trained one $net "$@"
    says ", products bf16-pairs"
    same_widths $net "$@"
    while read -r deal ranks more; do
        trained "$deal" $net "$@" device.ranks="$ranks" reduce.bucket_mb=0.02 $more
        as_one "$deal"
    done <<'DEALS'
two 2
two-sharded 2 parallel.zero=3 parallel.recompute=selective
stages 2 parallel.pipeline=2 parallel.schedule=zb-h1
recomputed 1 parallel.recompute=block
DEALS
    trained plain $net "$@" precision.products=fp32
    ! cmp -s one.hashes plain.hashes || fail "pairs change no bit"
}
resnet_fp32() { resnet_of; }
resnet_bf16() { resnet_of precision.compute=bf16; }

# Killed without warning, and continued in another layout.
killed() {
    long="run.steps=60 model.dropout=0.1 precision.compute=bf16"
    trained one $long
    settings dies $long checkpoint.every=1
    start "$bin" base.ini dies.ini
    until_true 60 has_saved dies 3
    kill -9 "$pid"
    await 137
    saved dies
    [ "$newest" -lt 60 ] || fail "it ended before it was killed"
    settings dies $long device.ranks=2 parallel.tensor=2
    expect 0 train dies
    says "continuing after step $newest of 60"
    ! grep -q '^faster' "$out" || fail "the bits of a run that goes on are decided"
    hashes one >one.state
    hashes dies >dies.state
    same one.state dies.state "the hashes of a run that was killed"
}

# --- what bits are a run's --------------------------------------------------------------------------------------------

# aged CHECKPOINT: as a build wrote it that did not know the key.
aged() {
    text=$(sed '/"precision.products"/d' "$1/manifest.json" | head -n -2)
    text=${text%,}
    printf '%s,\n "digest": "%s"\n}\n' "$text" "$(printf '%s' "$text" | b2sum -l 256 | cut -c 1-64)" >manifest
    ! grep -q 'precision.products' manifest || fail "the key is still there"
    cp manifest "$1/manifest.json"
}

keeps_its_products() {
    plain=precision.products=fp32
    trained one $plain
    trained goes $plain run.steps=2 schedule.warmup=1 schedule.decay_steps=3
    settings goes schedule.warmup=1 schedule.decay_steps=3
    expect 78 train goes
    one_line
    says "precision.products is fp32 in the checkpoint and bf16-pairs now, and the bits depend on it: put fp32 back, or start another [run] name"
    saved goes
    aged "$newest_dir"
    expect 78 train goes
    one_line
    says "precision.products = bf16-pairs is not known to this checkpoint: build" "always did what fp32 means: put that"
    settings goes schedule.warmup=1 schedule.decay_steps=3 $plain
    expect 0 train goes
    says "continuing after step 2 of 3"
    told goes
    same one.hashes goes.hashes "the hashes of a run that an older build began"
    trained pairs run.steps=2 schedule.warmup=1 schedule.decay_steps=3
    settings pairs schedule.warmup=1 schedule.decay_steps=3 $plain
    expect 78 train pairs
    says "precision.products is bf16-pairs in the checkpoint and fp32 now"
}

# A fork may have others, also one of an older build's run.
forked() {
    settings from precision.products=fp32
    expect 0 train from
    saved from
    aged "$newest_dir"
    settings onto run.steps=5 schedule.decay_steps=5 precision.products=bf16-pairs
    expect 0 "$bin" fork runs/from onto onto.ini
    grep -qE '^ *precision.products +fp32 +bf16-pairs$' "$out" || fail "it does not say what is other"
    expect 0 timeout 100 "$bin" runs/onto/config.ini
    says "continuing after step 3 of 5" ", products bf16-pairs"
}

# The checkpoint says with which products it is looked at, and the INI does not: at what the run itself said.
looked_at() {
    seen="data.holdout=40 sample.tokens=40 sample.prompt=abc optimizer.lr=0.01 run.steps=8 eval.every=8"
    for products in bf16-pairs fp32; do
        settings look-$products $seen precision.products=$products
        expect 0 train look-$products
        sed -n 's/^{"t":"eval","step":8,"loss":\([0-9.]*\),.*/\1/p' runs/look-$products/log.jsonl >loss
        for says in bf16-pairs fp32; do
            settings look $seen precision.products=$says
            expect 0 "$bin" eval base.ini look.ini -o run.name=look-$products
            sed -n 's/^step 8  loss \([0-9.]*\) .*/\1/p' "$out" >loss.$says
            awk 'NR == FNR { want = $1; next } { d = $1 - want; exit !(d < 1e-6 && d > -1e-6) }' loss loss.$says ||
                fail "a loss of $(cat loss.$says) with $says in the INI, and the run said $(cat loss)"
            "$bin" sample base.ini look.ini -o run.name=look-$products >text.$says 2>"$out" || fail "no sample"
        done
        same text.bf16-pairs text.fp32 "samples of a checkpoint with $products"
        cp loss.fp32 loss-$products
    done
    ! cmp -s loss-fp32 loss-bf16-pairs || fail "pairs change no loss"
    expect 0 "$bin" eval base.ini look.ini -o run.name=look-bf16-pairs -o device.ranks=2
    says "loss $(cat loss-bf16-pairs)"
    settings look $seen precision.compute=fp16 precision.products=fp32
    expect 0 "$bin" eval base.ini look.ini -o run.name=look-bf16-pairs # FP16 has no pairs
    settings look $seen precision.products=bf16-pairs
    saved look-fp32
    aged "$newest_dir"
    expect 0 "$bin" eval base.ini look.ini -o run.name=look-fp32 --ckpt "$newest_dir"
    says "loss $(cat loss-fp32)"
    expect 0 "$bin" export runs/look-bf16-pairs exported
}

# --- what is refused, and said ----------------------------------------------------------------------------------------

refused() {
    settings half precision.compute=fp16
    expect 78 "$bin" check base.ini half.ini
    says "[precision] products = fp32, or [precision] compute = fp32."
    settings gpu device.backend=cuda
    expect 78 "$bin" check base.ini gpu.ini
    says "products = bf16-pairs is an arithmetic of CPUs, whose bits no GPU computes, and backend = cuda is a GPU" \
        "[precision] products = fp32" "[device] backend = cpu"
    settings width device.simd="$(case $(uname -m) in aarch64) echo avx512bf16 ;; *) echo neon ;; esac)"
    expect 69 "$bin" check base.ini width.ini
    says "this processor lacks the vector width that [device] simd asks for; set simd = auto (same bits)"
}

# Where auto is a GPU, which is simulated here: no other bits in silence. What was trained in pairs can be looked at
# there, with FP32's products.
on_a_gpu() {
    sim=$top/build/sim/lockstep
    [ -x "$sim" ] || skip "$sim is not built: make sim, which needs the CUDA toolkit's headers"
    settings look-at data.holdout=20
    expect 0 train look-at
    settings found data.holdout=20 device.backend=auto
    for verb in check train eval sample; do
        SIM_DEVICES=1 expect 78 "$sim" $verb base.ini found.ini
        one_line
        says "products = bf16-pairs is an arithmetic of CPUs, whose bits no GPU computes, and auto chose the GPU: " \
            "[device] backend = cpu"
    done
    settings look-at data.holdout=20 device.backend=auto precision.products=fp32
    SIM_DEVICES=1 expect 0 "$sim" eval base.ini look-at.ini
    says "step 3  loss "
    SIM_DEVICES=1 expect 0 "$sim" check base.ini found.ini -o precision.products=fp32 -o run.name=new
    says_nothing a GPU
}

says_faster() { says "faster  [precision] products = bf16-pairs multiplies about twice as fast here; "; }
says_nothing() { ! grep -q '^faster' "$out" || fail "expected no advice: $*"; }

# Whether the processor has an instruction that multiplies pairs faster than FMAs do: then a run says so.
pays() {
    settings pays precision.products=fp32
    has_native && expect 0 "$bin" check base.ini pays.ini && grep -q '^faster' "$out"
}

# Where it has, and only there.
advised() {
    if pays; then native=yes; else native=no; fi
    for compute in fp32 bf16 fp16; do
        for products in fp32 bf16-pairs; do
            [ "$compute $products" != "fp16 bf16-pairs" ] || continue
            settings hint precision.compute=$compute precision.products=$products
            expect 0 "$bin" check base.ini hint.ini
            if [ $native = yes ] && [ $products = fp32 ] && [ $compute != fp16 ]; then
                says_faster
            else
                says_nothing $compute $products
            fi
        done
    done
    settings narrow precision.products=fp32 device.simd=portable
    expect 0 "$bin" check base.ini narrow.ini
    says_nothing simd = portable
    settings new precision.products=fp32 run.steps=1
    expect 0 train new
    [ $native = no ] || says_faster
    [ $native = no ] || says "it rounds operands to BF16"
    expect 0 train new
    says_nothing a run that goes on
    expect 0 "$bin" check base.ini new.ini
    says_nothing a run that has a checkpoint
    settings auto run.steps=1
    expect 0 train auto
    if [ $native = yes ]; then says "cpu avx512bf16 x1 thread"; else ! grep -q avx512bf16 "$out" || fail "slow pairs"; fi
}

# Wherever its type is named.
named() {
    settings is precision.compute=bf16
    if pays; then native=yes; else native=no; fi
    expect 0 "$bin" plan --graph layer base.ini is.ini
    says "run     bf16, products bf16-pairs, micro-batches of 1 samples"
    expect 0 "$bin" bench base.ini is.ini --steps 2
    expect 0 "$bin" bench step base.ini is.ini --steps 2
    if [ $native = yes ]; then says "cpu avx512bf16 x1 thread" ", BF16 pairs "; else says ", FMA "; fi
    for products in fp32 bf16-pairs; do
        settings plan precision.products=$products
        expect 0 "$bin" plan base.ini plan.ini
        sed '/^machine/d' "$out" >$products.plan
    done
    same fp32.plan bf16-pairs.plan "the plans"
}

for case in gpt_fp32 gpt_bf16 killed keeps_its_products forked looked_at refused on_a_gpu advised named llama_fp32 \
    llama_bf16 resnet_fp32 resnet_bf16; do
    try $case
done
finish
