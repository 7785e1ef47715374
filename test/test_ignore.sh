#!/bin/sh
# test/test_ignore.sh: [data] ignore from the outside, with ./lockstep or the binary that LOCKSTEP_BIN names: losses of
# padding don't count, and a step's gradient is the mean over those that do, in the same bits on any number of ranks in
# any layout.
. test/support/lib.sh
. "$top/test/support/told.sh"

ini >base.ini <<'END'
run steps=6
device backend=cpu threads=1
model layers=2 heads=4 embed=40 vocab=259 context=24 dropout=0.1
data train=real.bin val=real.bin format=raw16 shuffle=no ignore=258
batch global=4 micro=1 lanes=1
optimizer grad_clip=0.5
checkpoint every=0
eval every=3 batches=0
sample tokens=0
log every=1 hash_every=1
END

# windows REAL PADDING: a raw16 file of 6 steps, each of so many windows of 24 tokens that begin with 258, and of so
# many that have nothing else.
windows() {
    printf "$(awk -v real="$1" -v padding="$2" 'BEGIN {
        for (step = 0; step < 6; step++)
            for (w = 0; w < real + padding; w++)
                for (t = 0; t < 24; t++) {
                    token = 258
                    if (w < real && t) { x = (x * 4093 + 1021) % 65521; token = x % 3 ? x % 97 : 32 }
                    printf "\\%03o\\%03o", token % 256, token / 256
                }
        printf "\\002\\001"
    }')"
}
windows 4 0 >real.bin
windows 4 4 >padded.bin
windows 0 4 >nothing.bin
windows 12 0 >text.bin

# Windows of padding alone change no bit, although each of the others then has half the share of the batch: not of
# losses, norms, weights or evaluations.
padding_changes_nothing() {
    for type in fp32 bf16; do
        trained real-$type precision.compute=$type
        trained padded-$type precision.compute=$type data.train=padded.bin data.val=padded.bin batch.global=8 \
            batch.lanes=2
        same real-$type.told padded-$type.told "what was logged with windows of padding and without ($type)"
    done
    trained counted data.ignore=-1
    ! cmp -s real-fp32.told counted.told || fail "padding that counts changes nothing either"
    trained unseen data.ignore=200 "data.train=text.bin" "data.val="
    trained none data.ignore=-1 "data.train=text.bin" "data.val="
    for run in unseen none; do grep -o '"hash":"[0-9a-f]*"' runs/$run/log.jsonl >$run.hashes; done
    same none.hashes unseen.hashes "the hashes with a token that never comes and with none"
}

# A space is every third token.
any_layout() {
    wide="data.train=text.bin data.val=text.bin data.ignore=32 batch.global=12 batch.lanes=4 parallel.slices=4 parallel.token_slices=2 ${1:-}"
    trained one $wide
    while read -r name more; do
        trained "$name" $wide $more
        same one.told "$name.told" "what was logged by one rank and by $name"
    done <<'LAYOUTS'
three device.ranks=3 parallel.zero=1
two-3 device.ranks=2 parallel.zero=3 reduce.bucket_mb=0.02
shared device.ranks=2 parallel.tensor=2 parallel.sequence=no parallel.recompute=block
positions device.ranks=4 parallel.tensor=2 parallel.context=2 parallel.zero=2
pipes device.ranks=4 parallel.pipeline=2 parallel.schedule=zb-h1
threads device.threads=2 device.simd=portable parallel.offload=yes
LAYOUTS
}
any_layout_fp16() { any_layout "precision.compute=fp16 precision.scale_window=2 model.head_chunks=3"; }

goes_on() {
    trained one data.train=text.bin data.val= data.ignore=32
    rm -rf runs/two
    settings two data.train=text.bin data.val= data.ignore=32 run.steps=4 schedule.decay_steps=6
    expect 0 timeout 100 "$bin" base.ini two.ini
    settings two data.train=text.bin data.val= data.ignore=33
    expect 78 timeout 100 "$bin" base.ini two.ini
    says data.ignore 32 33
    settings two data.train=text.bin data.val= data.ignore=32 schedule.decay_steps=6 device.ranks=2 parallel.pipeline=2
    expect 0 timeout 100 "$bin" base.ini two.ini
    told two 12
    same one.told two.told "what was logged in one go and in two"
}

# Nothing to learn from: no step, no loss, the same weights, and the loss scale stays.
nothing_counts() {
    settings empty data.train=nothing.bin data.val=nothing.bin run.steps=3 precision.compute=fp16 model.dropout=0
    expect 0 timeout 100 "$bin" base.ini empty.ini
    [ "$(grep -c '"loss":null.*"grad_norm":null.*"loss_scale":32768.*"skipped":true,' runs/empty/log.jsonl)" -eq 3 ] \
        || fail "steps: $(head -n 3 runs/empty/log.jsonl)"
    [ "$(grep -o '"hash":"[0-9a-f]*"' runs/empty/log.jsonl | sort -u | wc -l)" -eq 1 ] || fail "weights have changed"
    grep -q '"t":"eval".*"loss":null' runs/empty/log.jsonl ||
        fail "evaluation: $(grep '"t":"eval"' runs/empty/log.jsonl)"
}

refused() {
    settings wrong data.ignore=259
    expect 78 "$bin" check base.ini wrong.ini
    says "wrong.ini:" "[data] ignore: ignore = 259 is not one of the tokens 0 .. vocab - 1 = 258" \
        "Nearest that work: [data] ignore = 258, or [model] vocab = 260."
    settings wrong data.ignore=3 data.val= parallel.slices=1
    printf '[model]\ntype = mlp\ninputs = 4\n' >mlp.ini
    expect 78 "$bin" config mlp.ini wrong.ini
    says "wrong.ini:" "ignore = 3 is a token, and type = mlp reads none"
}

try padding_changes_nothing
try any_layout
try any_layout_fp16
try goes_on
try nothing_counts
try refused
finish
