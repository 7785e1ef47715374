#!/bin/sh
# test/test_ema.sh: [optimizer] ema from the outside, with ./lockstep or the binary that LOCKSTEP_BIN names: the mean is
# that of the weights of all steps, computed again from their exports; it changes nothing else; its bits are the same on
# any number of ranks, in every stage, in pipelines, with shared layers and offload, and after a stop.
. test/support/lib.sh
. "$top/test/support/trained.sh"

text 20000 >text.txt
ini >base.ini <<'END'
run steps=3
device backend=cpu threads=1
model layers=2 heads=2 embed=16 vocab=259 context=16
data train=data/a-train-*.bin val=
pack input=text.txt output=data/a
batch global=4 micro=1 lanes=4
checkpoint every=1 keep=9
sample tokens=0
parallel slices=2
optimizer lr=0.02 ema=0.75
schedule decay_steps=3 warmup=1
log every=1 hash_every=1
END
expect 0 "$bin" pack base.ini

# values DIR: of an export, one a line.
values() {
    header=$(od -An -t u8 -N 8 "$1/model.safetensors")
    od -An -v -t f4 -w4 -j $((header + 8)) "$1/model.safetensors"
}

# written RUN: the weights of each step, and the mean of all, as columns.
written() {
    for step in 1 2 3; do
        expect 0 "$bin" export "runs/$1/ckpt/step-0000000$step" "$1-$step"
        values "$1-$step" >"$1-$step.values"
    done
    expect 0 "$bin" export "runs/$1/ckpt/step-00000003" "$1-mean" --ema
    says "exported the mean of weights up to step 3"
    values "$1-mean" | paste "$1-1.values" "$1-2.values" "$1-3.values" - >"$1.columns"
    [ "$(wc -l <"$1.columns")" -gt 5000 ] || fail "$1: too few weights were exported"
}

# mean RUN SHARES: the exported mean is that of the weights of the three steps, by these shares.
mean() {
    awk -v shares="$2" 'BEGIN { split(shares, of); all = of[1] + of[2] + of[3] }
    {
        want = (of[1] * $1 + of[2] * $2 + of[3] * $3) / all; off = $4 - want; size = want < 0 ? -want : want
        if ((off < 0 ? -off : off) > 1e-6 * size + 1e-7) { print "weight " NR ": " $0 ", expected " want; exit 1 }
    }' "$1.columns" >"$out" || fail "$1: the mean is not that of the weights"
}

# With ema = 0.75 each step counts 3/4 of the next.
mean_of_steps() {
    trained one
    written one
    mean one "9 12 16"
}

# A step that is skipped leaves the mean, and does not count.
skipped_steps() {
    trained skipped run.faults=nan@2
    written skipped
    cmp -s skipped-1.values skipped-2.values || fail "the second step was not skipped"
    mean skipped "3 0 4"
}

# The weights of each step are those of a run without it; what the checkpoint holds is more.
nothing_else() {
    trained without optimizer.ema=0
    sed -n 's/^[0-9]* //p' one.hashes >one.steps
    sed -n 's/^[0-9]* //p' without.hashes >without.steps
    same one.steps without.steps "the hashes of the steps with a mean and without"
    expect 64 "$bin" export runs/without x --ema
    says "--ema: runs/without keeps no mean of its weights ([optimizer] ema = 0): leave it out"
    expect 78 "$bin" fork runs/one@3 forked -o optimizer.ema=0.5
    says "the mean of the weights is one of all steps since the first"
    settings one optimizer.ema=0.5 run.steps=4
    expect 78 timeout 100 "$bin" base.ini one.ini
    says "optimizer.ema"
}

# layouts SETTING...: all give the bits of one rank: of the weights and of the whole state.
layouts() {
    trained first "$@"
    while read -r deal ranks more; do
        trained "$deal" "$@" device.ranks="$ranks" $more
        same first.hashes "$deal.hashes" "the hashes of one rank and of $ranks ($deal)"
    done
}

any_layout() {
    layouts <<'DEALS'
zero1 2 parallel.zero=1
zero3 4 parallel.zero=3
tensor 4 parallel.tensor=2 parallel.zero=2
pipe 2 parallel.pipeline=2
host 1 parallel.offload=host
nvme 2 parallel.offload=nvme parallel.zero=1
DEALS
    trained again run.steps=2
    settings again device.ranks=2 parallel.zero=2
    expect 0 timeout 100 "$bin" base.ini again.ini
    hashes again >again.hashes
    same first.hashes again.hashes "the hashes of a run that was stopped, and went on with 2 ranks"
}

muon_layouts() {
    layouts optimizer.type=muon optimizer.lr=0.004 precision.compute=bf16 <<'DEALS'
muon-zero3 2 parallel.zero=3
muon-host 2 parallel.tensor=2 parallel.offload=host
DEALS
    mv runs/first runs/muon
    written muon
    mean muon "9 12 16"
}

refused() {
    settings wrong outer.islands=2 outer.every=1
    expect 78 timeout 100 "$bin" base.ini wrong.ini
    says "ema follows the weights of each step, and islands hold the same at boundaries only"
}

try mean_of_steps
try skipped_steps
try nothing_else
try any_layout
try muon_layouts
try refused
finish
