#!/bin/sh
# test/test_t5.sh: T5 from the outside, with ./lockstep or the binary that LOCKSTEP_BIN names: both versions have the same
# bits on ranks that share data and layers, and after a stop; what is exported comes back the same, and what is not
# supported is refused in words. So do texts and what is said of them. LAYOUTS=every: in every layout (test/check_t5.sh).
. test/support/lib.sh
. "$top/test/support/trained.sh"

words="$top/test/golden/tokenizer/t5.json"
ini >base.ini <<END
run steps=3
device backend=cpu threads=1
model type=t5 layers=2 heads=8 head_dim=4 embed=24 hidden=48 vocab=440 context=28 buckets=8 max_distance=12 dropout=0.1 sentinel_token=439
data train=data/a-train-*.bin val=data/a-val-*.bin
pack input=$top/test/golden/tokenizer/train.txt output=data/a tokenizer=$words val_fraction=0.1
batch global=8 micro=2 lanes=4
checkpoint every=0
sample tokens=0
parallel slices=4
log every=1 hash_every=1
END
expect 0 "$bin" pack base.ini
older="model.type=t5-1.0 model.decoder_layers=1"
to_text="model.task=text model.decoder_context=6"
settings texts $to_text "pack.input=$top/test/golden/bert/samples.jsonl" pack.output=data/b pack.template=text \
    pack.val_fraction=0.25
expect 0 "$bin" pack base.ini texts.ini
says "36 samples of texts of at most 28 and 6 tokens, with 192 tokens of answers; 6 cut to fit"
longer="run.steps=12 optimizer.lr=1e-2" # some answers are right then
texts="$to_text data.answers=yes data.train=data/b-train-*.bin data.val=data/b-val-*.bin pack.output=data/b"

some() {
    cat <<'DEALS'
3.1 3 parallel.zero=1 reduce.bucket_mb=0.02
t2z3 4 parallel.tensor=2 parallel.zero=3 parallel.recompute=block
DEALS
}

every() {
    some
    cat <<'DEALS'
portable 1 device.simd=portable device.threads=2
selective 1 parallel.recompute=selective
2.0 2 parallel.zero=0
2.2 2 parallel.zero=2 reduce.bucket_mb=0.02
4.3 4 parallel.zero=3 reduce.bucket_mb=0.02
t4 4 parallel.tensor=4 parallel.recompute=selective
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
    on="schedule.decay_steps=3 schedule.warmup=1"
    trained one $on "$@"
    least=1 trained again $on "$@" run.steps=1
    settings again $on "$@" device.ranks=2 parallel.zero=3
    expect 0 timeout 100 "$bin" base.ini again.ini
    hashes again >again.hashes
    same one.hashes again.hashes "the hashes of a run that was stopped, and went on with 2 ranks"
}

newer_version() {
    any_layout
    resumed
}
older_version() { any_layout $older; }

# Texts with labels, whose words are what is said; a stop in the middle of an epoch.
text_to_text() {
    any_layout $texts $longer
    grep -q '"accuracy":0.[0-9]*[1-9]' one.figures || fail "all is right, or nothing is: $(cat one.figures)"
    grep -q '"eval_accuracy":0.[0-9]*[1-9]' runs/one/status.json || fail "no eval_accuracy in status.json"
    expect 0 "$bin" eval one.ini base.ini one.ini
    says "  accuracy 0." "  macro F1 0."
    sed 's/.*accuracy/accuracy/' "$out" >one.said
    expect 0 timeout 100 "$bin" eval base.ini on-t2z3.ini
    sed 's/.*accuracy/accuracy/' "$out" >on.said
    same one.said on.said "what eval says with one rank and with 4"
    resumed $texts
}

# More answers than F1 is said of.
many_answers() {
    awk 'BEGIN { for (i = 0; i < 300; i++) printf "{\"prompt\": \"%d\", \"response\": \"%d\"}\n", i, i }' >many.jsonl
    settings many $to_text pack.input=many.jsonl pack.output=data/m pack.template=text pack.val_fraction=0
    expect 0 "$bin" pack base.ini many.ini
    trained many $to_text data.answers=yes "data.train=data/m-train-*.bin" "data.val=data/m-train-*.bin" \
        pack.output=data/m
    expect 0 "$bin" eval base.ini many.ini
    says "  accuracy 0." "  300 windows"
    ! grep -q F1 "$out" || fail "F1 of 300 answers"
    for n in 256 257; do
        head -n $n many.jsonl >some.jsonl
        settings some $to_text pack.input=some.jsonl pack.output=data/o pack.template=text pack.val_fraction=0
        expect 0 "$bin" pack base.ini some.ini
        expect 0 "$bin" eval base.ini many.ini -o "data.val=data/o-train-*.bin"
        says "  $n windows"
        [ $n -eq 256 ] && { says "  macro F1 0."; continue; }
        ! grep -q F1 "$out" || fail "F1 of 257 answers"
    done
}

# The weights of a model that was trained on spans.
from_spans() {
    trained spans
    trained on $texts model.init_from=runs/spans optimizer.lr=0 optimizer.weight_decay=0
    expect 0 "$bin" export runs/spans spans-model
    expect 0 "$bin" export runs/on on-model
    same spans-model/model.safetensors on-model/model.safetensors "weights of spans, in a run on texts"
}

older_texts() { any_layout $older $texts $longer; }

# One lane of one micro-batch: rows that share values share the memory of their gradients, too.
alone() {
    one="batch.global=2 batch.micro=2 batch.lanes=1"
    trained one $one $older
    trained two $one $older device.ranks=2 parallel.tensor=2
    same one.hashes two.hashes "the hashes of one lane, and of two ranks that share layers"
}

sixteen_bits() {
    any_layout precision.compute=bf16 precision.rounding=stochastic
    any_layout precision.compute=bf16 precision.products=bf16-pairs $older
    any_layout precision.compute=bf16 precision.rounding=stochastic $texts
}

# What it says of a prompt in a run, after each step, and of many prompts at once or one by one: the same in every layout.
says_the_same() {
    set -- model.noise=0.5 model.span=2 sample.every=1 sample.tokens=25 sample.temperature=2 sample.top_p=0.95 \
        "sample.prompt=the of and a"
    trained one "$@"
    grep '^{"t":"sample"' runs/one/log.jsonl >one.said
    [ "$(wc -l <one.said)" -ge 3 ] || fail "no sample of each step"
    for deal in "2 parallel.zero=3" "4 parallel.tensor=2 parallel.zero=3" "4 parallel.tensor=4"; do
        trained several "$@" device.ranks=${deal%% *} ${deal#* }
        grep '^{"t":"sample"' runs/several/log.jsonl >several.said
        same one.said several.said "what a run of one rank said, and one of $deal"
    done
    printf 'the of and a\n\nin\nthe of and a in to that it is was for on as with he be at by this had not are but\nto\n' >prompts.txt
    for batch in 1 4 5; do
        settings one "$@" sample.batch=$batch
        expect 0 "$bin" sample base.ini one.ini --prompts prompts.txt
        cp "$out" "prompts.$batch"
        same prompts.1 "prompts.$batch" "what is said of five prompts, one at a time and $batch"
    done
    settings one "$@" sample.batch=4 device.ranks=2 parallel.tensor=2
    expect 0 "$bin" sample base.ini one.ini --prompts prompts.txt
    same prompts.1 "$out" "what one rank says of five prompts, and what two say that share layers"
}

in_and_out() {
    trained one $older
    expect 0 "$bin" export runs/one given --tokenizer "$words"
    grep -q '"feed_forward_proj": "relu"' given/config.json || fail "another version: $(cat given/config.json)"
    trained back $older optimizer.lr=0 optimizer.weight_decay=0 model.init_from=given run.seed=5
    expect 0 "$bin" export runs/back back
    same given/model.safetensors back/model.safetensors "weights that went out, in and out"
    expect 0 "$bin" inspect given
    says "type = t5" "decoder_layers = 1" "activation = relu" "tied = yes"
    sed -i '/"num_decoder_layers"/d' given/config.json  # as files of the first models: as many as the encoder has
    expect 0 "$bin" inspect given
    says "type = t5" "layers = 2" "decoder_layers = 2"
}

refused() {
    settings stages parallel.pipeline=2 device.ranks=2
    expect 78 "$bin" base.ini stages.ini
    says "all layers of this model share a table" "Nearest that works: [parallel] pipeline = 1"
    settings rows parallel.sequence=yes
    expect 78 "$bin" base.ini rows.ini
    says "works on whole samples" "Nearest that works: [parallel] sequence = no"
    settings tokens parallel.token_slices=2
    expect 78 "$bin" base.ini tokens.ini
    says "works on whole samples" "Nearest that works: [parallel] token_slices = 1"
    settings token model.sentinel_token=440
    expect 78 "$bin" base.ini token.ini
    says "sentinel_token = 440 is no token"
    settings few model.sentinel_token=0 model.context=64
    expect 78 "$bin" base.ini few.ini
    says "a sample has 3 spans, and from sentinel_token = 0 down there are 1 tokens"
    for verb in train plan check; do
        settings asked eval.text="$words"
        expect 78 "$bin" $verb base.ini asked.ini
        says "[eval] text: a model of type t5 says another text than it reads"
    done
    settings buckets model.buckets=6
    expect 78 "$bin" base.ini buckets.ini
    says "buckets = 6 can't be halved twice"
    settings room model.decoder_context=8
    expect 78 "$bin" base.ini room.ini
    says "decoder_context = 8 is for task = text" "set decoder_context = 0"
    settings ends model.task=text model.decoder_context=1
    expect 78 "$bin" base.ini ends.ini
    says "decoder_context = 1 has room for the token that ends an answer, and for none of it"
    settings plain model.task=text
    expect 78 "$bin" base.ini plain.ini
    says "with [pack] template = text"
    settings answers $to_text "data.train=data/b-train-*.bin" data.val=
    expect 78 "$bin" base.ini answers.ini
    says "set [data] answers = yes"
    settings spans "data.train=data/b-train-*.bin"
    expect 78 "$bin" base.ini spans.ini
    says "reads plain text"
    settings chats $to_text pack.template=plain pack.tokenizer=bytes
    expect 78 "$bin" pack base.ini chats.ini
    says "set [pack] template = text"
    settings other pack.template=text
    expect 78 "$bin" pack base.ini other.ini
    says "set [model] type = t5, task = text"
}

if [ "${LAYOUTS:-some}" = some ]; then
    try newer_version
    try older_version
    try text_to_text
    try many_answers
    try from_spans
    try alone
    try says_the_same
    try in_and_out
    try refused
else
    try newer_version
    try older_version
    try text_to_text
    try older_texts
    try sixteen_bits
fi
finish
