#!/bin/sh
# test/test_documents.sh: samples that are several documents, from the outside, with ./lockstep or the binary that
# LOCKSTEP_BIN names: learned as PyTorch learns them under a block-diagonal mask, with the same bits in any layout, and
# refused where they can't be told apart.
. test/support/lib.sh
. "$top/test/support/told.sh"

ini >base.ini <<'END'
run steps=6
device backend=cpu threads=1
model layers=2 heads=4 embed=40 vocab=61 context=24
data train=tokens.bin val=tokens.bin format=raw16 shuffle=no documents=yes document_end=60
batch global=12 micro=1 lanes=4
optimizer grad_clip=0.5
parallel slices=4 token_slices=2
checkpoint every=0
eval every=3 batches=12
sample tokens=0
log every=1 hash_every=1
END

# As test/golden/make_documents.py has them: up to 63 tokens, and 60.
printf "$(awk 'BEGIN {
    for (s = 1; n < 1921;) {
        s = (s * 1229 + 351) % 65536
        for (left = int(s / 64) % 64; left; left--) { s = (s * 1229 + 351) % 65536; put(int(s / 64) % 60) }
        put(60)
    }
}
function put(token) { printf "\\%03o\\000", token; n++ }')" >tokens.bin

any_layout() {
    trained one "$@"
    while read -r name more; do
        trained "$name" "$@" $more
        same one.told "$name.told" "what was logged by one rank and by $name"
    done <<'LAYOUTS'
three device.ranks=3 parallel.zero=1 device.simd=portable
shared device.ranks=2 parallel.tensor=2 parallel.recompute=block parallel.zero=3
positions device.ranks=4 parallel.tensor=2 parallel.context=2 parallel.zero=2
pipes device.ranks=4 parallel.pipeline=2 parallel.schedule=zb-h1 parallel.recompute=selective
LAYOUTS
}
gpt_in_any_layout() {
    any_layout model.dropout=0.1
    trained blind model.dropout=0.1 data.documents=no data.document_end=-1
    ! cmp -s one.told blind.told || fail "documents that see each other change nothing"
    trained one parallel.token_slices=1
    trained rows parallel.token_slices=1 device.ranks=2 parallel.tensor=2 parallel.sequence=yes
    same one.told rows.told "what was logged by one rank and by two that share rows"
}
llama_in_any_layout() {
    any_layout precision.compute=bf16 precision.products=bf16-pairs model.type=llama model.kv_heads=4 model.window=20
}

goes_on() {
    trained one data.val=
    rm -rf runs/two
    settings two data.val= run.steps=4 schedule.decay_steps=6
    expect 0 timeout 100 "$bin" base.ini two.ini
    expect 78 timeout 100 "$bin" base.ini two.ini -o data.document_end=59 -o run.steps=6
    says data.document_end 59 60
    settings two data.val= schedule.decay_steps=6 device.ranks=2 parallel.pipeline=2
    expect 0 timeout 100 "$bin" base.ini two.ini
    told two 12
    same one.told two.told "what was logged in one go and in two"
}

# The losses of transformers' GPT-2 and Llama (test/golden/make_documents.py).
as_pytorch_learns_them() {
    ini >golden.ini <<'END'
run steps=10
device backend=cpu threads=1
model context=48 init_resize=yes
data train=tokens.bin val= format=raw16 shuffle=no documents=yes document_end=60
batch global=4 micro=2 lanes=1
optimizer lr=0.01 grad_clip=0
schedule type=constant warmup=-1
checkpoint every=0
sample tokens=0
log every=1
END
    first=1
    for family in gpt2 llama; do
        cp -r "$top/test/golden/families/$family" "$family"
        "$bin" inspect "$family" >"$family.ini"
        settings "of-$family"
        expect 0 timeout 100 "$bin" "$family.ini" golden.ini "of-$family.ini"
        sed -n 's/^{"t":"step".*"loss":\([^,]*\),.*/\1/p' "runs/of-$family/log.jsonl" >"$family.losses"
        sed -n "$first,$((first + 9))p" "$top/test/golden/documents.txt" | paste "$family.losses" - |
            awk '{ d = $1 - $2; if (d * d > 1e-12) { print; exit 1 } } END { exit NR != 10 }' >"$out" ||
            fail "losses of $family are not PyTorch's"
        first=11
    done
}

# Several conversations in a row, and one in each.
conversations() {
    awk 'BEGIN { for (i = 0; i < 60; i++) printf "{\"prompt\": \"%d+%d?\", \"response\": \"%d\"}\n", i % 7, i % 9, i % 7 + i % 9 }' >sums.jsonl
    printf '[pack]\ninput = sums.jsonl\noutput = sums\ntemplate = plain\nval_fraction = 0\ndocuments = yes\n' >pack.ini
    printf '[data]\nanswers = yes\nformat = auto\ntrain = sums-train-*.bin\nval =\ndocument_end = -1\n' >>pack.ini
    printf '[model]\nvocab = 256\n[parallel]\ntoken_slices = 1\nslices = 1\n[run]\nname = sums\n' >>pack.ini
    expect 0 "$bin" pack base.ini pack.ini
    says "60 samples for a context of 24 tokens" "rows, which are full to"
    expect 0 "$bin" data info sums-train-00000.bin
    says "answers marked, several documents in each"
    expect 0 timeout 100 "$bin" base.ini pack.ini
    expect 78 "$bin" check base.ini pack.ini -o data.documents=no
    says "rows of these files hold several documents each" "set [data] documents = yes"
}

# What an evaluation of a text reads is one document: with the same weights its loss is that of a run that tells none
# apart.
likelihoods_are_of_one_document() {
    printf 'some text, and more of it\n' >text.txt
    printf '[eval]\ntext = text.txt\nbatches = 2\n[model]\nvocab = 256\n[data]\nval =\n[run]\nsteps = 1\n' >text.ini
    printf '[optimizer]\nlr = 0\nweight_decay = 0\n' >>text.ini
    for documents in yes no; do
        [ $documents = yes ] && end=60 || end=-1
        expect 0 timeout 100 "$bin" base.ini text.ini -o run.name=text-$documents -o data.documents=$documents \
            -o data.document_end=$end
        grep -o '"bits_per_byte":[0-9.]*' runs/text-$documents/log.jsonl >$documents.bits
    done
    [ -s yes.bits ] || fail "nothing was evaluated"
    same no.bits yes.bits "how likely a text is where documents are not told apart, and where they are"
}

refused() {
    expect 78 "$bin" check base.ini -o data.document_end=-1
    says "set document_end to the token that ends one"
    expect 78 "$bin" check base.ini -o data.documents=no
    says "document_end = 60 ends documents, which documents = no does not tell apart"
    expect 78 "$bin" check base.ini -o data.document_end=61
    says "document_end = 61 is not one of the tokens 0 .. vocab - 1 = 60"
    printf '[model]\ntype = mlp\ninputs = 4\n[data]\ndocuments = yes\n' >mlp.ini
    expect 78 "$bin" config mlp.ini
    says "documents = yes is for models that continue texts"
    printf '[model]\ntype = bert\n[data]\ndocuments = yes\n' >bert.ini
    expect 78 "$bin" config bert.ini
    says "documents = yes is for models that continue texts"
}

try gpt_in_any_layout
try llama_in_any_layout
try goes_on
try as_pytorch_learns_them
try conversations
try likelihoods_are_of_one_document
try refused
finish
