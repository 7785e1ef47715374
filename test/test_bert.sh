#!/bin/sh
# test/test_bert.sh: BERT from the outside, with ./lockstep or the binary that LOCKSTEP_BIN names: masked tokens, pairs,
# classes and numbers of texts have the same bits on ranks that share data, layers and stages, and after a stop; what is
# exported comes back the same, and what is not supported is refused in words. LAYOUTS=every: in every layout
# (test/check_bert.sh).
. test/support/lib.sh
. "$top/test/support/trained.sh"

words="$top/test/golden/tokenizer/bert.json"
ini >base.ini <<END
run steps=4
device backend=cpu threads=1
model type=bert layers=2 heads=4 embed=32 hidden=48 vocab=400 context=32 dropout=0.1 mask_token=4 begin_token=2 end_token=3
data train=data/a-train-*.bin val=data/a-val-*.bin
pack input=$top/test/golden/tokenizer/train.txt output=data/a tokenizer=$words val_fraction=0.1
batch global=12 micro=3 lanes=4
checkpoint every=0
sample tokens=0
parallel slices=4
log every=1 hash_every=1
END
expect 0 "$bin" pack base.ini
settings texts "pack.input=$top/test/golden/bert/samples.jsonl" pack.output=data/b pack.template=labels
expect 0 "$bin" pack base.ini texts.ini
says "36 samples of 3 classes for a context of 32 tokens; 5 cut to fit"
sorts="model.task=classify model.classes=3"
classes="$sorts data.train=data/b-train-*.bin data.val=data/b-val-*.bin pack.output=data/b"

settings graded "pack.input=$top/test/golden/bert/numbers.jsonl" pack.output=data/n pack.template=numbers \
    pack.val_fraction=0.25
expect 0 "$bin" pack base.ini graded.ini
says "36 samples with numbers for a context of 32 tokens; 5 cut to fit"
numbers="model.task=regress data.train=data/n-train-*.bin data.val=data/n-val-*.bin pack.output=data/n"

some() {
    cat <<'DEALS'
3.1 3 parallel.zero=1 reduce.bucket_mb=0.02
t2p2 4 parallel.tensor=2 parallel.pipeline=2 parallel.schedule=zb-h1
t2z3 4 parallel.tensor=2 parallel.zero=3 parallel.recompute=block
DEALS
}

every() {
    some
    cat <<'DEALS'
portable 1 device.simd=portable device.threads=2
2.0 2 parallel.zero=0
2.2 2 parallel.zero=2 reduce.bucket_mb=0.02
4.3 4 parallel.zero=3 reduce.bucket_mb=0.02
t4 4 parallel.tensor=4 parallel.recompute=selective
gpipe 2 parallel.pipeline=2 parallel.schedule=gpipe
1f1b 2 parallel.pipeline=2 parallel.schedule=1f1b parallel.recompute=block
interleaved 2 parallel.pipeline=2 parallel.schedule=interleaved
p2z3 4 parallel.pipeline=2 parallel.zero=3
offload 2 parallel.offload=host parallel.zero=1
servers 4 parallel.zero=2 server.count=2 reduce.bucket_mb=0.02
DEALS
}

# What evaluations said.
figures() { sed -n 's/^{"t":"eval",\(.*\),"ms":.*/\1/p' "runs/$1/log.jsonl"; }

any_layout() {
    trained one "$@"
    figures one >one.figures
    grep -q loss one.figures || fail "nothing was evaluated"
    ${LAYOUTS:-some} >deals
    while read -r deal ranks more; do
        trained "on-$deal" "$@" device.ranks=$ranks $more
        same one.hashes "on-$deal.hashes" "the hashes of one rank and of $ranks ($more)"
        figures "on-$deal" >on.figures
        same one.figures on.figures "what one rank's evaluation said, and that of $ranks ($more)"
    done <deals
}

# A stop in the middle, and on with other ranks.
resumed() {
    on="schedule.decay_steps=4 schedule.warmup=1"
    trained one $on "$@"
    trained again $on "$@" run.steps=2
    settings again $on "$@" device.ranks=2 parallel.zero=3
    expect 0 timeout 100 "$bin" base.ini again.ini
    hashes again >again.hashes
    same one.hashes again.hashes "the hashes of a run that was stopped, and went on with 2 ranks"
}

masked() { any_layout; }

# Masked tokens, and whether texts follow one another.
paired() {
    pairs="model.next_sentence=yes"
    any_layout $pairs
    grep -q '"accuracy":0\.[0-9]*,"masked_loss":[0-9]' one.figures || fail "no loss of masked tokens: $(cat one.figures)"
    expect 0 "$bin" eval one.ini base.ini one.ini
    says "  accuracy 0." "  masked_loss "
    resumed $pairs
    expect 0 "$bin" export runs/one paired --tokenizer "$words"
    grep -q '"BertForPreTraining"' paired/config.json || fail "another architecture: $(cat paired/config.json)"
    trained back $pairs optimizer.lr=0 optimizer.weight_decay=0 model.init_from=paired run.seed=5
    expect 0 "$bin" export runs/back paired-back
    same paired/model.safetensors paired-back/model.safetensors "weights of a model of pairs that went out, in and out"
    expect 0 "$bin" inspect paired
    says "next_sentence = yes"
    trained alone model.init_from=paired # what pairs alone have is left out
    settings other $pairs model.init_from=runs/alone/ckpt/step-00000004
    expect 78 "$bin" base.ini other.ini
    says "[model] describes another model"
    [ "${LAYOUTS:-some}" = some ] || any_layout $pairs precision.compute=bf16 precision.rounding=stochastic
}

sorted() {
    any_layout $classes
    expect 0 "$bin" eval one.ini base.ini one.ini
    says "accuracy" "macro F1" "samples"
}

numbered() {
    any_layout $numbers
    grep -q '"pearson":-*0\.[0-9]*,"spearman":-*0\.[0-9]' one.figures || fail "no correlations: $(cat one.figures)"
    grep -q '"eval_pearson":-*0\.' runs/one/status.json || fail "no eval_pearson in status.json"
    grep -q '"eval_spearman":-*0\.' runs/one/status.json || fail "no eval_spearman in status.json"
    expect 0 "$bin" eval one.ini base.ini one.ini
    says "  pearson " "  spearman " "  9 samples"
    expect 0 "$bin" export runs/one rated --tokenizer "$words"
    grep -q '"problem_type": "regression"' rated/config.json || fail "no regression: $(cat rated/config.json)"
    trained back $numbers optimizer.lr=0 optimizer.weight_decay=0 model.init_from=rated run.seed=5
    expect 0 "$bin" export runs/back rated-back
    same rated/model.safetensors rated-back/model.safetensors "weights of a model of numbers that went out, in and out"
    [ "${LAYOUTS:-some}" = some ] || resumed $numbers
}

sixteen_bits() {
    any_layout precision.compute=bf16 precision.rounding=stochastic
    any_layout precision.compute=bf16 precision.products=bf16-pairs $classes
    any_layout precision.compute=bf16 $numbers
}

in_and_out() {
    trained one $classes
    expect 0 "$bin" export runs/one given --tokenizer "$words"
    grep -q '"1": "good"' given/config.json || fail "the classes have lost their names: $(cat given/config.json)"
    trained back $classes run.steps=4 optimizer.lr=0 optimizer.weight_decay=0 model.init_from=given run.seed=5
    expect 0 "$bin" export runs/back back
    same given/model.safetensors back/model.safetensors "weights that went out, in and out"
    settings mlm model.init_from=given
    expect 65 "$bin" base.ini mlm.ini
    says "cls.predictions.bias is missing"
    trained head model.init_from=given model.init_missing=yes
}

refused() {
    settings rows parallel.sequence=yes
    expect 78 "$bin" base.ini rows.ini
    says "works on whole samples" "Nearest that works: [parallel] sequence = no"
    settings tokens parallel.token_slices=2
    expect 78 "$bin" base.ini tokens.ini
    says "works on whole samples" "Nearest that works: [parallel] token_slices = 1"
    settings token model.vocab=100 model.mask_token=100
    expect 78 "$bin" base.ini token.ini
    says "mask_token = 100 is no token" "vocab = 259 leaves room"
    settings masks model.masked=0.99
    expect 78 "$bin" base.ini masks.ini
    says "masked = 0.99 of context = 32 positions are 32, and there are 30 between a sample's ends"
    settings pairs model.task=classify model.next_sentence=yes
    expect 78 "$bin" base.ini pairs.ini
    says "next_sentence = yes is for task = mlm"
    settings kinds model.next_sentence=yes model.types=1
    expect 78 "$bin" base.ini kinds.ini
    says "types = 1 is too few, set types = 2"
    settings short model.next_sentence=yes model.context=4
    expect 78 "$bin" base.ini short.ini
    says "context = 4 is too short, set context = 5 or more"
    settings plain $sorts
    expect 78 "$bin" base.ini plain.ini
    says "no text has a label: pack them with [pack] template = labels"
    settings named model.task=regress "data.train=data/b-train-*.bin" data.val=
    expect 78 "$bin" base.ini named.ini
    says "the labels of these files are classes" "or set [model] task = classify"
    settings labelled "data.train=data/b-train-*.bin"
    expect 78 "$bin" base.ini labelled.ini
    says "reads plain text"
    settings few model.task=classify model.classes=2 "data.train=data/b-train-*.bin" data.val=
    expect 65 "$bin" check base.ini few.ini
    says "is of class 2, and the model has [model] classes = 2"
}

# Backward of tanh reads its result, so dropout must not lie in the same memory.
pooled_is_kept() {
    settings pooled $sorts
    expect 0 "$bin" plan --graph base.ini pooled.ini
    awk '/scratch/ { at[$1] = $NF } END { exit !(at["tanh"] != "" && at["tanh"] != at["dropped"]) }' "$out" ||
        fail "tanh and what is dropped of it lie in the same memory"
}

if [ "${LAYOUTS:-some}" = some ]; then
    try pooled_is_kept
    try masked
    try paired
    try sorted
    try numbered
    try in_and_out
    try refused
else
    try masked
    try paired
    try sorted
    try numbered
    try sixteen_bits
fi
finish
