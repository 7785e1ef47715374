#!/bin/sh
# test/test_stories.sh: stories from the outside: packed, trained on, sampled. A run knows with which tokenizer its
# shards were made and how low its loss can be, and refuses another tokenizer before it computes anything.
. test/support/lib.sh

ini >base.ini <<'INI'
run name=s steps=4
device threads=1
model type=llama layers=1 heads=1 embed=16 context=16 vocab=320
data train=data/s-train-*.bin val=data/s-val-*.bin
pack input=stories:1:20000 output=data/s tokenizer=train:320
batch global=2 micro=2
eval every=2
sample tokens=20
log every=1
INI

packed() {
    expect 0 "$bin" pack base.ini
    says "1 file, 20000 bytes" "bytes a token" "the best possible loss on it is 0."
    best=$(sed -n 's/.*the best possible loss on it is //p' "$out")
    expect 0 "$bin" data info data/s-val-00000.bin
    says "tokenizer data/s-tokenizer.json, vocabulary " ", best possible loss $best"
}

# Bytes decode to letters: what a token of this run is not is shown as ?<302>.
trained_and_sampled() {
    expect 0 "$bin" base.ini
    says ", best possible $best (" "% above) over "
    ! grep -q '?<' "$out" || fail "the sample is not decoded"
    [ "$(grep -c "\"t\":\"eval\".*\"possible\":0\.[0-9]*[,}]" runs/s/log.jsonl)" -eq 2 ] ||
        fail "log.jsonl: $(grep eval runs/s/log.jsonl)"
    expect 0 "$bin" sample base.ini --prompt "One"
    ! grep -q '?<' "$out" || fail "the sample is not decoded"
    expect 0 "$bin" sample base.ini --prompts stories:1:20  # a prompt a line
    [ "$(grep -c '"prompt":"' "$out")" -eq 1 ] || fail "expected the one line of stories:1:20: $(cat "$out")"
    expect 65 "$bin" eval base.ini --choices stories:1:200
    says "stories:1:200: line 1: not valid JSON"
    expect 78 "$bin" sample base.ini --prompts stories:one
    says "lockstep: --prompts: \"stories:one\": expected stories:SEED or"
    expect 0 "$bin" eval base.ini
    says "  best possible 0.3"
    expect 0 "$bin" tail --lines 99 runs/s
    says ", best possible $best ("
}

# elsewhere WHAT...: a run that is refused before it begins.
elsewhere() {
    expect 78 "$bin" base.ini other.ini
    says "$@"
    [ ! -e runs/other ] || fail "a run was begun"
}

others_are_refused() {
    printf '[run]\nname = other\n[sample]\ntokenizer = %s\n' "$top/test/golden/tokenizer/smollm.json" >other.ini
    printf '[model]\nvocab = 1000\n' >>other.ini
    elsewhere "smollm.json: its vocabulary (" "is not the one that the shards of [data] train were made with (data/s-tokenizer.json, "
    printf '[run]\nname = other\n' >other.ini
    mv data/s-tokenizer.json kept.json
    elsewhere "were made with the tokenizer data/s-tokenizer.json, vocabulary " \
        "put it there, or name it in [sample] tokenizer"
    printf '[run]\nname = other\n[sample]\ntokenizer = kept.json\n' >other.ini
    expect 0 "$bin" base.ini other.ini
    mv kept.json data/s-tokenizer.json
    rm -rf runs/other
    printf '[pack]\noutput = data/letters\ntokenizer = bytes\n' >letters.ini
    expect 0 "$bin" pack base.ini letters.ini
    printf '[run]\nname = other\n[data]\nval = data/letters-val-*.bin\n' >other.ini
    elsewhere "[data] val was made with the tokenizer bytes, and [data] train with data/s-tokenizer.json: expected one vocabulary for both"
}

# Shards that were moved, with their tokenizer beside them.
moved() {
    mkdir kept
    cp data/s-*.bin data/s-about.json kept
    mv data/s-tokenizer.json kept
    printf '[run]\nname = moved\n[data]\ntrain = kept/s-train-*.bin\nval = kept/s-val-*.bin\n' >moved.ini
    "$bin" base.ini moved.ini >"$out" 2>&1
    code=$?
    mv kept/s-tokenizer.json data
    [ $code -eq 0 ] || fail "the tokenizer beside the shards was not taken"
    says ", best possible $best ("
    ! grep -q '?<' "$out" || fail "the sample is not decoded"
}

# The loss that is possible on a set is none of another one's: of two that differ in it nothing is said.
two_sets() {
    printf '[pack]\noutput = data/more\ntokenizer = data/s-tokenizer.json\ninput = stories:2:30000\n' >more.ini
    expect 0 "$bin" pack base.ini more.ini
    says "the best possible loss on it is 0."
    ! grep -qF "loss on it is $best" "$out" || fail "both sets have the same best loss"
    printf '[data]\nval = "data/s-val-*.bin data/more-val-*.bin"\n' >both.ini
    expect 0 "$bin" eval base.ini both.ini
    ! grep -q "best possible" "$out" || fail "it says how low the loss can be on two sets that differ in it"
    printf '[data]\nval = "data/more-val-*.bin data/more-train-*.bin"\n' >both.ini
    expect 0 "$bin" eval base.ini both.ini
    says "best possible 0."
}

# Two days of the same text: whoever packs it has the same tokens, and the same hash.
same_for_everybody() {
    printf '[pack]\noutput = data/again\n' >again.ini
    expect 0 "$bin" pack base.ini again.ini
    for split in train val; do
        cmp data/s-$split-00000.bin data/again-$split-00000.bin || fail "other $split shards"
    done
    printf '[pack]\noutput = data/again\ninput = stories:2:20000\n' >again.ini
    expect 0 "$bin" pack base.ini again.ini
    ! cmp -s data/s-train-00000.bin data/again-train-00000.bin || fail "another seed has the same text"
    printf '[pack]\ninput = stories:first\n' >again.ini
    expect 78 "$bin" pack base.ini again.ini
    says "[pack] input: \"stories:first\": expected stories:SEED or stories:SEED:BYTES"
}

try packed
best=$(sed -n 's/.*"best_loss": //p' data/s-about.json | awk '{ printf "%.4f", $1 }')
try trained_and_sampled
try others_are_refused
try moved
try two_sets
try same_for_everybody
finish
