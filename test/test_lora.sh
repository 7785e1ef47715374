#!/bin/sh
# test/test_lora.sh: [lora] from the outside, with ./lockstep or the binary that LOCKSTEP_BIN names. Adapters have the
# same bits on any number of ranks, in every ZeRO stage, in pipelines, with shared layers and after every restart; the
# weights beside them do not change; a checkpoint has the adapters and refuses other weights; and what is exported,
# merged, is what was trained.
. test/support/lib.sh
. "$top/test/support/trained.sh"
least=7  # six steps and the state

text 30000 >text.txt
ini >base.ini <<'END'
run steps=6
device backend=cpu threads=1
model type=llama layers=3 heads=4 kv_heads=4 embed=32 hidden=64 vocab=259 context=24
data train=data/a-train-*.bin val=
pack input=text.txt output=data/a
batch global=12 micro=1 lanes=4
checkpoint every=3 keep=9
sample tokens=0
parallel slices=4
log every=1 hash_every=1
END
expect 0 "$bin" pack base.ini
lora="lora.rank=4 lora.alpha=8 optimizer.lr=0.01 schedule.warmup=-1"
some="$lora lora.targets=q_proj,v_proj"
all="$lora lora.targets=qkv_proj,o_proj,gate_proj,down_proj"

losses() { sed -n 's/^{"t":"step","step":[0-9]*,"loss":\([0-9.e+-]*\),.*/\1/p' "runs/$1/log.jsonl"; }

any_layout() {
    trained one "$@"
    while read -r deal ranks more; do
        trained "on-$deal" "$@" device.ranks=$ranks $more
        same one.hashes "on-$deal.hashes" "the hashes of one rank and of $ranks ($more)"
    done <<'DEALS'
portable 1 device.simd=portable device.threads=2
2.0 2 parallel.zero=0 reduce.bucket_mb=0.02
2.1 2 parallel.zero=1
3.2 3 parallel.zero=2 reduce.bucket_mb=0.02
4.3 4 parallel.zero=3
t2 2 parallel.tensor=2
t4 4 parallel.tensor=4 parallel.recompute=selective parallel.sequence=yes
t2z3 4 parallel.tensor=2 parallel.zero=3 parallel.recompute=block parallel.sequence=yes
p2 2 parallel.pipeline=2
p2t2 4 parallel.tensor=2 parallel.pipeline=2 parallel.schedule=zb-h1 parallel.sequence=yes
offload 2 parallel.offload=host parallel.zero=1
DEALS
}

few_adapters_in_any_layout() { any_layout $some; }
many_adapters_in_any_layout() { any_layout $all; }
adapters_in_16_bits() { any_layout $all precision.compute=bf16 lora.dropout=0.1; }

# The first rank has the embedding and the head, and nothing that is trained.
a_rank_has_none() {
    trained one $some model.layers=2
    for zero in 0 1 2 3; do
        trained bare $some model.layers=2 device.ranks=4 parallel.pipeline=2 parallel.schedule=zb-v parallel.chunks=2 \
            parallel.zero=$zero
        same one.hashes bare.hashes "the hashes of one rank and of four, two of which train nothing, with zero = $zero"
    done
    trained bare $some model.layers=2 device.ranks=2 parallel.pipeline=2 parallel.schedule=zb-v parallel.chunks=2 \
        parallel.offload=host
    same one.hashes bare.hashes "the hashes of one rank and of two, one of which trains nothing"
}

# What is sent in fewer bits, or now and then, is of adapters alone.
beside() {
    trained few $some "$@"
    trained many $some "$@" device.ranks=4 parallel.zero=2
    same few.hashes many.hashes "the hashes of one rank and of 4 ($*)"
}
over_thin_wires() {
    beside reduce.compress=int8 reduce.compress_back=int8
    beside optimizer.type=sgd optimizer.momentum=0.9 optimizer.grad_clip=0.5 reduce.compress=topk \
        reduce.density_warmup=4
    for ranks in 2 4; do
        settings island$ranks $some outer.islands=2 outer.every=3 outer.compress=int8 log.hash_every=3 eval.every=0 \
            device.ranks=$ranks
        expect 0 "$bin" base.ini island$ranks.ini
        "$bin" hash runs/island$ranks/ckpt/step-00000006 | cut -d ' ' -f 1,2 >island$ranks.hash
    done
    [ -s island2.hash ] && same island2.hash island4.hash "the hashes of islands of one rank and of two"
    for run in few island2; do
        grep -o '"lora.base": *"[0-9a-f]*"' "$(ls -d runs/$run/ckpt/step-* | tail -n 1)/manifest.json" >$run.base
    done
    [ -s few.base ] && same few.base island2.base "the weights beside adapters, of islands too"
}

context_shares_positions() {
    trained one $all parallel.token_slices=2 lora.dropout=0.3
    trained two $all parallel.token_slices=2 lora.dropout=0.3 device.ranks=2 parallel.context=2 parallel.zero=2
    same one.hashes two.hashes "the hashes of one rank and of two that share positions"
}

# Slices are other sums: near, and not the same.
slices_are_near() {
    trained four $all
    trained whole $all parallel.slices=1
    losses four >four.losses
    losses whole >whole.losses
    paste four.losses whole.losses | awk '{ d = $1 - $2; if (d * d > 1e-8) exit 1 } END { exit NR != 6 }' ||
        fail "losses with slices and without differ"
    awk 'NR == 1 { first = $1 } END { exit !($1 < first - 0.1) }' four.losses || fail "adapters have learned nothing"
}

restarts_are_exact() {
    trained whole $some
    for ranks in 1 2; do
        rm -rf runs/parts
        settings parts $some run.steps=4 schedule.decay_steps=6 device.ranks=$ranks parallel.zero=$((ranks + 1))
        expect 0 timeout 100 "$bin" base.ini parts.ini
        settings parts $some run.steps=6 device.ranks=2
        expect 0 timeout 100 "$bin" base.ini parts.ini
        hashes parts >parts.hashes
        [ "$(tail -n 1 parts.hashes)" = "$(tail -n 1 whole.hashes)" ] || fail "a restart changes bits"
    done
}

# A checkpoint has the adapters alone, whatever is in them; plan knows what is allocated.
checkpoints_hold_adapters() {
    trained held $some
    for each in runs/held/ckpt/step-*/; do
        bytes=$(cat "$each"*.safetensors* | wc -c)
        # 3 layers, 2 adapters of 4 * (32 + 32), master and two moments
        [ "$bytes" -lt $((3 * 2 * 4 * 64 * 4 * 3 + 20000)) ] || fail "$each has $bytes bytes"
    done
    grep -q '"lora.base"' runs/held/ckpt/step-*/manifest.json || fail "no hash of the weights in the manifest"
}

other_weights_are_refused() {
    trained held $some
    settings held $some run.steps=8 run.seed=5
    settings other run.seed=5
    expect 0 timeout 100 "$bin" base.ini other.ini
    expect 0 "$bin" export runs/other other-model
    settings held $some run.steps=8 model.init_from=other-model
    expect 78 "$bin" base.ini held.ini
    says 'its adapters were trained beside weights with the hash' 'set [model] init_from to what it was'
}

merged_is_what_was_trained() {
    settings plain run.steps=3
    expect 0 timeout 100 "$bin" base.ini plain.ini
    expect 0 "$bin" export runs/plain plain-model
    trained tuned $all lora.dropout=0.0625 model.init_from=plain-model data.val='data/a-val-*.bin' eval.batches=0 eval.every=0
    expect 0 "$bin" export runs/tuned merged-model --merge
    expect 0 "$bin" export runs/tuned adapters
    grep -q '"lora_dropout": *0.0625' adapters/adapter_config.json || fail "the probability is not in its file"
    [ -s adapters/adapter_model.safetensors ] && [ -s adapters/adapter_config.json ] || fail "no files of adapters"
    settings tuned $all lora.dropout=0.0625 model.init_from=plain-model data.val='data/a-val-*.bin' eval.batches=0
    expect 0 "$bin" eval base.ini tuned.ini
    a=$(sed -n 's/.*loss \([0-9.]*\).*/\1/p' "$out" | tail -n 1)
    settings merged model.init_from=merged-model data.val='data/a-val-*.bin' eval.batches=0
    expect 0 "$bin" eval base.ini merged.ini
    b=$(sed -n 's/.*loss \([0-9.]*\).*/\1/p' "$out" | tail -n 1)
    settings plain2 model.init_from=plain-model data.val='data/a-val-*.bin' eval.batches=0
    expect 0 "$bin" eval base.ini plain2.ini
    c=$(sed -n 's/.*loss \([0-9.]*\).*/\1/p' "$out" | tail -n 1)
    echo "$a $b $c" | awk '{ d = $1 - $2; exit !(d * d < 1e-10 && $1 != "" && $3 - $1 > 0.01) }' ||
        fail "loss $a with adapters, $b merged, $c without"
}

# Weights in 8 bits are those that they stand for: a run beside these in FP32 has the same bits. So has every layout.
eight_bits_are_the_weights_they_stand_for() {
    least=4
    wide="run.steps=3 model.layers=2 model.embed=128 model.hidden=128 parallel.slices=2"
    eight="$wide $all lora.weights=int8 model.init_from=wide-model"
    settings wide $wide
    expect 0 timeout 100 "$bin" base.ini wide.ini
    expect 0 "$bin" export runs/wide wide-model
    trained eight $eight
    while read -r deal ranks more; do
        trained "on-$deal" $eight device.ranks=$ranks $more
        same eight.hashes "on-$deal.hashes" "the hashes of one rank and of $ranks ($more)"
    done <<'DEALS'
t2z3 4 parallel.tensor=2 parallel.zero=3 parallel.recompute=block parallel.sequence=yes
p2 2 parallel.pipeline=2 parallel.schedule=zb-h1 device.simd=portable
DEALS
    settings still $eight
    expect 0 timeout 100 "$bin" base.ini still.ini -o run.steps=1 -o optimizer.lr=0 -o optimizer.weight_decay=0
    expect 0 "$bin" export runs/still meant-model --merge
    trained meant $wide $all model.init_from=meant-model
    sed '$d' eight.hashes >eight.steps
    sed '$d' meant.hashes >meant.steps
    same eight.steps meant.steps "the hashes beside weights in 8 bits and beside those that they stand for"
    trained other $wide $all model.init_from=wide-model
    ! cmp -s eight.hashes other.hashes || fail "weights in 8 bits are the weights themselves"
    losses eight >eight.losses
    losses other >other.losses
    paste eight.losses other.losses | awk '{ d = $1 - $2; if (d * d > 1e-4) exit 1 } END { exit NR != 3 }' ||
        fail "losses beside weights in 8 bits are far from those beside the weights"
    expect 0 "$bin" export runs/eight eight-model --merge
    settings eight $eight data.val='data/a-val-*.bin' eval.batches=0
    expect 0 "$bin" eval base.ini eight.ini
    a=$(sed -n 's/.*loss \([0-9.]*\).*/\1/p' "$out" | tail -n 1)
    settings merged $wide model.init_from=eight-model data.val='data/a-val-*.bin' eval.batches=0
    expect 0 "$bin" eval base.ini merged.ini
    b=$(sed -n 's/.*loss \([0-9.]*\).*/\1/p' "$out" | tail -n 1)
    echo "$a $b" | awk '{ d = $1 - $2; exit !(d * d < 1e-10 && $1 != "") }' || fail "loss $a with adapters, $b merged"
}

eight_bits_are_refused_where_they_cannot_be() {
    expect 78 "$bin" check base.ini -o lora.weights=int8
    says "weights = int8 is for frozen weights beside adapters, and rank = 0 makes none"
    settings narrow $all lora.weights=int8
    expect 78 "$bin" check base.ini narrow.ini
    says "[lora] weights = int8: layers.0.self_attn.qkv_proj.weight has 32 inputs in a slice, expected a multiple of 64"
    expect 78 "$bin" check base.ini narrow.ini -o model.embed=64  # of what is divided by inputs each slice has a part
    says "layers.0.self_attn.o_proj.weight has 16 inputs in a slice, expected a multiple of 64" "fewer [parallel] slices"
}

# Masks are drawn four elements at a time: where ranks divide rows or positions, what is dropped begins with such four.
dropped_columns_are_fours() {
    narrow="model.layers=1 model.heads=2 model.kv_heads=2 model.head_dim=8 parallel.slices=2 lora.rank=2 lora.dropout=0.1"
    while read -r code set; do
        settings fours $narrow $set
        expect "$code" "$bin" plan base.ini fours.ini
        [ "$code" -eq 0 ] || says "a multiple of 4: leave one of them out" "[lora] dropout"
    done <<'SETS'
0 lora.targets=q_proj model.embed=36 device.ranks=2 parallel.tensor=2 parallel.sequence=yes
78 lora.targets=q_proj model.embed=34 device.ranks=2 parallel.tensor=2 parallel.sequence=yes
0 lora.targets=o_proj model.embed=34 device.ranks=2 parallel.tensor=2 parallel.sequence=yes
0 lora.targets=q_proj model.embed=34 device.ranks=2 parallel.tensor=2
0 lora.targets=q_proj model.embed=36 parallel.token_slices=2
78 lora.targets=q_proj model.embed=34 parallel.token_slices=2
0 lora.targets=down_proj model.hidden=56 parallel.token_slices=2
78 lora.targets=down_proj model.hidden=60 parallel.token_slices=2
0 lora.targets=down_proj model.hidden=60
SETS
}

# PEFT's losses, from the same values on the same samples (test/golden/make_lora.py).
as_peft_trains_them() {
    awk 'BEGIN { s = 1; for (i = 0; i < 6000; i++) { s = (s * 1229 + 351) % 65536; printf "\\%03o\\000", int(s / 64) % 61 } }' >octal
    printf "$(cat octal)" >tokens.bin
    [ "$(wc -c <tokens.bin)" -eq 12000 ] || fail "tokens.bin is not whole"
    mkdir base && cp "$top/test/golden/families/llama/model.safetensors" base
    sed 's/\("max_position_embeddings": \)[0-9]*/\132/' "$top/test/golden/families/llama/config.json" >base/config.json
    sed -n "/^INI = /,/^'''/p" "$top/test/golden/make_lora.py" |
        sed -e '1s/.*/[run]/' -e "/^'''/d" -e 's/{name}/peft/' -e 's/{steps}/20/' -e 's/{lr}/0.01/' >peft.ini
    expect 0 timeout 100 "$bin" peft.ini
    losses peft >peft.losses
    paste peft.losses "$top/test/golden/lora.txt" |
        awk '{ d = $1 - $2; if (d * d > 1e-12) exit 1 } END { exit NR != 20 }' || fail "losses are not PEFT's"
}

# Adapters that PEFT saved: with them the loss is PEFT's, and they are what is exported again.
goes_on_from_pefts() {
    [ -s peft.ini ] || fail "as_peft_trains_them made no settings"
    sed -e 's/^name = .*/name = from/' -e 's/^steps = .*/steps = 1/' -e 's/^lr = .*/lr = 0/' peft.ini >from.ini
    cp -r "$top/test/golden/peft" theirs
    printf '[lora]\ninit_from = theirs\n[optimizer]\nweight_decay = 0\n[log]\nhash_every = 1\n' >more.ini
    expect 0 timeout 100 "$bin" from.ini more.ini
    losses from | paste - "$top/test/golden/peft/loss.txt" |
        awk '{ d = $1 - $2; if (d * d > 1e-12) exit 1 } END { exit NR != 1 }' ||
        fail "the loss with PEFT's adapters is $(losses from), expected $(cat "$top/test/golden/peft/loss.txt")"
    expect 0 "$bin" export runs/from again
    sed -e 's/^name = .*/name = again/' from.ini >again.ini
    expect 0 timeout 100 "$bin" again.ini more.ini -o lora.init_from=again
    hashes from >from.hashes
    hashes again >again.hashes
    same from.hashes again.hashes "the hashes with PEFT's adapters and with those that were exported again"
    expect 0 "$bin" inspect theirs
    says "rank = 3" "alpha = 6" "q_proj" "up_proj" "init_from = theirs"
}

# PEFT's files of other forms, and those that don't fit, are refused with what to set; nothing begins.
other_adapters_are_refused() {
    [ -d theirs ] || fail "goes_on_from_pefts made no copy"
    refuses() {
        expect "$1" "$bin" from.ini more.ini
        shift
        says "$@"
    }
    rm -rf runs/from
    sed -i 's/^rank = .*/rank = 4/' from.ini
    refuses 78 "[lora] init_from" "rank = 3, alpha = 6, and the settings say 4 and 6"
    sed -i -e 's/^rank = .*/rank = 3/' -e 's/^targets = .*/targets = q_proj v_proj/' from.ini
    refuses 65 "are not those of the [model] section with [lora] targets" "o_proj.lora_A.weight is not of this model"
    sed -i 's/^targets = .*/targets = q_proj v_proj o_proj up_proj k_proj/' from.ini
    refuses 65 "base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight is missing"
    sed -i 's/^targets = .*/targets = q_proj v_proj o_proj up_proj/' from.ini
    for form in use_dora use_rslora; do
        sed -i "s/\"$form\": false/\"$form\": true/" theirs/adapter_config.json
        refuses 65 "has $form, which adapters here have not"
        sed -i "s/\"$form\": true/\"$form\": false/" theirs/adapter_config.json
    done
    sed -i 's/"bias": "none"/"bias": "all"/' theirs/adapter_config.json
    refuses 65 "bias all: expected none"
    sed -i 's/"bias": "all"/"bias": "none"/' theirs/adapter_config.json
    sed -i 's/init_from = theirs/init_from = base/' more.ini
    refuses 78 "expected adapters as PEFT saves them" "whole weights are for [model] init_from"
    sed -i 's/^init_from = base/init_from = theirs/' from.ini
    refuses 78 "holds adapters alone"
    [ ! -d runs/from ] || [ ! -s runs/from/log.jsonl ] || fail "a run began"
}

# planned NAME: bytes of a rank.
planned() { awk -v name="$1" '$0 ~ "^  " name { sub("^  " name, ""); print $1; exit }' "$out"; }

# The 8,030,261,248 weights of Llama 3.1 8B in BF16, and of each adapter 16 * (4096 + 4096), or + 1024 for values.
plan_counts_masters_of_adapters_alone() {
    expect 0 "$bin" plan "$top/model/llama/8b.ini" -o device.backend=cpu -o device.ranks=1 -o precision.compute=bf16 -o lora.rank=16 \
        -o 'lora.targets=q_proj v_proj'
    adapters=$((32 * 16 * (2 * 4096 + 4096 + 1024)))
    [ "$(planned 'masters .fp32.')" = $((4 * adapters)) ] || fail "masters are not those of the adapters"
    [ "$(planned moments)" = $((8 * adapters)) ] || fail "moments are not those of the adapters"
    [ "$(planned weights)" = $((2 * (8030261248 + adapters))) ] || fail "weights are not two bytes each"
    expect 0 "$bin" plan "$top/model/llama/8b.ini" -o device.backend=cpu -o device.ranks=1 -o precision.compute=bf16 -o lora.rank=16 \
        -o 'lora.targets=q_proj v_proj' -o lora.weights=int8
    layers=$((32 * 4096 * (4096 + 2 * 1024 + 4096 + 3 * 14336)))
    [ "$(planned weights)" = $((layers * 17 / 16 + 2 * (8030261248 - layers + adapters + 2 * 14336 * 4096))) ] ||
        fail "weights are not a byte each, a scale for 64, and what one matrix is widened into"
}

try few_adapters_in_any_layout
try many_adapters_in_any_layout
try adapters_in_16_bits
try a_rank_has_none
try over_thin_wires
try context_shares_positions
try slices_are_near
try restarts_are_exact
try checkpoints_hold_adapters
try other_weights_are_refused
try plan_counts_masters_of_adapters_alone
try eight_bits_are_the_weights_they_stand_for
try eight_bits_are_refused_where_they_cannot_be
try dropped_columns_are_fours
try as_peft_trains_them
try goes_on_from_pefts
try other_adapters_are_refused
try merged_is_what_was_trained
finish
