#!/bin/sh
# test/test_muon.sh: Muon and groups of parameters from the outside, with ./lockstep or the binary that LOCKSTEP_BIN
# names: the same bits on any number of ranks, in every stage, in pipelines, with shared layers and offload, and after a
# stop; what is frozen stays; what is wrong is said.
. test/support/lib.sh
. "$top/test/support/trained.sh"

text 20000 >text.txt
ini >base.ini <<'END'
run steps=4
device backend=cpu threads=1
model layers=2 heads=4 embed=40 vocab=259 context=16
data train=data/a-train-*.bin val=
pack input=text.txt output=data/a
batch global=8 micro=1 lanes=4
checkpoint every=0
sample tokens=0
parallel slices=4
optimizer type=muon lr=0.004
schedule decay_steps=4 warmup=1
log every=1 hash_every=1
END
expect 0 "$bin" pack base.ini

# layouts SETTING...: all give the bits of one rank.
layouts() {
    trained one "$@"
    while read -r deal ranks more; do
        trained "$deal" "$@" device.ranks="$ranks" $more
        same one.hashes "$deal.hashes" "the hashes of one rank and of $ranks ($deal)"
    done
}

any_layout() {
    layouts <<'DEALS'
zero0 2
zero1 3 parallel.zero=1
zero2 4 parallel.zero=2 reduce.bucket_mb=0.02
zero3 3 parallel.zero=3
tensor 2 parallel.tensor=2
tensor-offload 2 parallel.tensor=2 parallel.offload=host
tensor-3 4 parallel.tensor=2 parallel.zero=3
pipe 4 parallel.pipeline=2 parallel.zero=2
DEALS
    trained again run.steps=2
    settings again device.ranks=4 parallel.tensor=2 parallel.zero=1
    expect 0 timeout 100 "$bin" base.ini again.ini
    hashes again >again.hashes
    same one.hashes again.hashes "the hashes of a run that was stopped, and went on with 2 x 2 ranks"
    trained whole parallel.slices=1
    ! cmp -s one.hashes whole.hashes || fail "slices change no bit"
}

# Frozen rows are in no store; those of one layer and not of the other.
frozen='optimizer.groups=wte.weight wpe.weight h.0.attn.*: frozen, h.1.mlp.*: lr=0.5 decay=0'
frozen_layouts() {
    layouts "$frozen" <<'DEALS'
frozen-zero3 2 parallel.zero=3
frozen-tensor 4 parallel.tensor=2 parallel.pipeline=2
DEALS
}

# Another run does not go on with it, and the plan says which they are.
frozen_goes_on() {
    trained moved "$frozen" optimizer.type=adamw
    trained again "$frozen" optimizer.type=adamw run.steps=2
    settings again "$frozen" optimizer.type=adamw device.ranks=2
    expect 0 timeout 100 "$bin" base.ini again.ini
    hashes again >again.hashes
    same moved.hashes again.hashes "the hashes of a run that was stopped, and went on with 2 ranks"
    settings moved optimizer.type=adamw run.steps=6
    expect 78 timeout 100 "$bin" base.ini moved.ini
    says "optimizer.groups"
    settings moved "$frozen" optimizer.type=adamw
    expect 0 "$bin" plan base.ini moved.ini
    says "group   wte.weight wpe.weight h.0.attn.*: 6 parameters of 17560 elements: frozen"
    says "        wte.weight wpe.weight h.0.attn.c_attn.weight h.0.attn.c_attn.bias h.0.attn.c_proj.weight h.0.attn.c_proj.bias"
    says "group   h.1.mlp.*: 4 parameters of 13000 elements: lr x 0.5, decay 0"
}

refused() {
    while IFS='|' read -r set words; do
        settings wrong "$set"
        expect 78 timeout 100 "$bin" base.ini wrong.ini
        says "$words"
    done <<'REFUSED'
optimizer.groups=h.0.mpl.*: frozen|wrong.ini:4: [optimizer] groups: h.0.mpl.* matches none of the 29 parameters, such as h.0.mlp.c_fc
optimizer.groups=wte.weight: type=muon|[optimizer] groups: wte.weight: type=muon is for matrices between hidden layers, and wte.weight is none
optimizer.groups=*: frozen|[optimizer] groups: all parameters are frozen: a run has to train some
optimizer.groups=h.*: type=adamw|[optimizer] groups: type = muon updates matrices between hidden layers, such as h.0.attn.c_attn.weight, and the groups leave it none
optimizer.groups=h.*: frozen|[optimizer] groups: type = muon updates matrices between hidden layers, such as h.0.attn.c_attn.weight, and the groups leave it none
optimizer.groups=h.0.ln_1.weight: frozen|h.0.ln_1.weight is frozen and h.0.ln_1.bias is not, and their gradients are formed together: freeze both, as h.0.ln_1.* does
optimizer.groups=h.*: lr=0.5 type=sgd|type=sgd: the parameters of a run may be updated by adamw and by muon side by side
parallel.offload=nvme|offload = nvme updates chunk by chunk, and muon needs a whole matrix
REFUSED
}

# A group that asks for it has what type = muon gives all: of its parameters those that are no matrices stay with adamw.
muon_by_groups() {
    trained all
    trained groups optimizer.type=adamw "optimizer.groups=h.*: type=muon"
    same all.hashes groups.hashes "the hashes of muon, and of adamw with muon for all blocks"
    trained some "optimizer.groups=h.0.*: type=adamw"
    trained groups optimizer.type=adamw "optimizer.groups=h.1.*: type=muon"
    same some.hashes groups.hashes "the hashes of muon but for the first block, and of adamw but for the second"
    ! cmp -s all.hashes some.hashes || fail "groups change nothing"
    settings wrong optimizer.type=adamw "optimizer.groups=*.bias: type=muon"
    expect 78 timeout 100 "$bin" base.ini wrong.ini
    says "[optimizer] groups: type = muon updates matrices between hidden layers, such as h.0.attn.c_attn.weight, " \
        "the groups leave it none"
}

# A group's decay is that of its matrices, too.
decay_of_groups() {
    trained none optimizer.weight_decay=0
    trained groups optimizer.weight_decay=0.3 "optimizer.groups=*: decay=0"
    trained all optimizer.weight_decay=0.3
    same none.hashes groups.hashes "the hashes without decay, and with groups that have none"
    ! cmp -s none.hashes all.hashes || fail "weight_decay changes nothing"
}

try any_layout
try frozen_layouts
try frozen_goes_on
try refused
try muon_by_groups
try decay_of_groups
finish
