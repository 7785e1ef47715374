#!/bin/sh
# test/test_chat.sh: conversations from the outside, with ./lockstep or the binary that LOCKSTEP_BIN names: packed with a
# template, learned in the same bits in any layout, and answered.
. test/support/lib.sh
. "$top/test/support/told.sh"

# sums FROM TO: additions and their results, as lines of JSON. Some results are written in words, so that the number of
# tokens that count differs.
sums() {
    awk -v from="$1" -v to="$2" 'BEGIN {
        split("zero one two three four five six seven eight nine", w, " ")
        for (i = from; i < to; i++) {
            a = i % 10; b = int(i / 10) % 10; c = a + b
            printf "{\"prompt\": \"%d+%d?\", \"response\": \"%s\"}\n", a, b, c < 10 && i % 3 == 0 ? w[c + 1] : c
        }
    }'
}
sums 0 100 >sums.jsonl

ini >base.ini <<'END2'
run steps=6
device backend=cpu threads=1
model layers=2 heads=4 embed=40 context=24 dropout=0.1
data train=datasets/sums-train-*.bin val=datasets/sums-val-*.bin answers=yes
pack input=sums.jsonl output=datasets/sums template=plain shard_tokens=700 val_fraction=0.2
batch global=12 micro=1 lanes=4
optimizer grad_clip=0.5
parallel slices=4 token_slices=2
checkpoint every=0
eval every=3 batches=0
sample tokens=0 template=plain
log every=1 hash_every=1
END2
expect 0 "$bin" pack base.ini
says "packed  1 file" "into 4 shards: train 2000 tokens, val 500" "100 samples for a context of 24 tokens" "0 cut at the end, 0 left out"

any_layout() {
    trained one ${1:-}
    while read -r name more; do
        trained "$name" ${1:-} $more
        same one.told "$name.told" "what was logged by one rank and by $name"
    done <<'LAYOUTS'
four device.ranks=4 parallel.zero=1
two-3 device.ranks=2 parallel.zero=3 reduce.bucket_mb=0.02
shared device.ranks=2 parallel.tensor=2 parallel.sequence=no parallel.recompute=block
positions device.ranks=4 parallel.tensor=2 parallel.context=2 parallel.zero=2
pipes device.ranks=2 parallel.pipeline=2 data.prefetch=3
LAYOUTS
}
any_layout_bf16() { any_layout precision.compute=bf16; }

goes_on() {
    trained one data.val=
    rm -rf runs/two
    settings two data.val= run.steps=4 schedule.decay_steps=6
    expect 0 timeout 100 "$bin" base.ini two.ini
    settings two data.val= schedule.decay_steps=6 data.answers=no
    expect 78 timeout 100 "$bin" base.ini two.ini
    says answers
    settings two data.val= schedule.decay_steps=6 device.ranks=2 parallel.zero=2
    expect 0 timeout 100 "$bin" base.ini two.ini
    told two 12
    same one.told two.told "what was logged in one go and in two"
}

# How blocks are stored is nothing to a run, nor into how many files rows are divided, since files are whole rows. What the
# prompts are is: they are read, though not learned.
the_files_change_nothing() {
    trained one data.val=
    expect 0 "$bin" pack base.ini -o pack.output=datasets/zip -o pack.compress=yes -o pack.shard_tokens=100000
    trained zip "data.train=datasets/zip-train-*.bin" data.val=
    same one.told zip.told "what was logged of plain and of compressed shards"
    sed 's/?/!/' sums.jsonl >other.jsonl
    expect 0 "$bin" pack base.ini -o pack.output=datasets/other -o pack.input=other.jsonl
    trained other "data.train=datasets/other-train-*.bin" data.val=
    ! cmp -s one.told other.told || fail "other prompts change nothing"
}

# Of words: what ends an answer is learned, and ends a sample.
it_answers() {
    printf '%s\n' '{"prompt": "sky", "response": "blue"}' '{"prompt": "grass", "response": "green"}' \
        '{"prompt": "snow", "response": "white"}' '{"prompt": "coal", "response": "black"}' >colours.jsonl
    settings colours run.steps=60 "data.train=datasets/colours-train-*.bin" data.val= pack.input=colours.jsonl \
        pack.output=datasets/colours pack.val_fraction=0 pack.template=chatml sample.template=chatml model.context=80 \
        model.dropout=0 batch.global=4 batch.micro=4 batch.lanes=1 optimizer.lr=0.01 parallel.token_slices=1 \
        sample.tokens=30 sample.temperature=0 sample.prompt=sky checkpoint.every=60
    expect 0 "$bin" pack base.ini colours.ini
    expect 0 timeout 100 "$bin" base.ini colours.ini
    for pair in sky:blue grass:green snow:white coal:black; do
        expect 0 "$bin" sample base.ini colours.ini --prompt "${pair%:*}"
        [ "$(cat "$out")" = "$(printf '%s\n%s' "${pair%:*}" "${pair#*:}")" ] || fail "expected ${pair#*:}"
    done
    printf 'sky\ncoal\n' >asked.txt
    expect 0 "$bin" sample base.ini colours.ini --prompts asked.txt
    says '{"prompt":"sky","text":"blue","prompt_tokens":53,"tokens":14,"ended":"stop"}' '"text":"black"'
}

refused() {
    expect 78 "$bin" check base.ini -o data.answers=no
    says "[data] train" "answers are marked in these files" "set [data] answers = yes"
    expect 78 "$bin" check base.ini -o model.context=48
    says "these samples were packed for [model] context = 24" "set context = 24"
    expect 78 "$bin" check base.ini -o sample.template=auto -o sample.tokens=9
    says "[sample] template" "chatml, llama3 or plain"
    expect 65 "$bin" pack base.ini -o pack.input="$top/LICENSE"
    says "LICENSE: with a template, a file is lines of JSON"
    expect 78 "$bin" pack base.ini -o pack.tokenizer=train:300
    says "a tokenizer is made from texts"
    printf '[model]\ntype = mlp\ninputs = 4\n[data]\nanswers = yes\n' >mlp.ini
    expect 78 "$bin" config mlp.ini
    says "mlp.ini:5:" "answers = yes is for texts, and type = mlp reads no tokens"
    printf '[pack]\ninput = %s\noutput = datasets/no\ntemplate = plain\n[model]\ntype = mlp\n' sums.jsonl >pack.ini
    expect 78 "$bin" pack pack.ini
    says "type mlp reads no tokens"
    expect 65 "$bin" data convert datasets/sums-train-00000.bin new.bin
    says "answers are marked in these files"
    expect 0 "$bin" data info datasets/sums-train-00000.bin
    says "28 samples for a context of 24, answers marked"
    expect 0 "$bin" data verify datasets/sums-train-00000.bin
}

try any_layout
try any_layout_bf16
try goes_on
try the_files_change_nothing
try it_answers
try refused
finish
