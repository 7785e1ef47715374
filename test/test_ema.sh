#!/bin/sh
# test/test_ema.sh: [optimizer] ema from the outside, with ./lockstep or the binary that LOCKSTEP_BIN names: the mean is
# that of the weights of all steps, computed again from their exports; it changes nothing else; its bits are the same on
# any number of ranks, in every stage, in pipelines, with shared layers and offload, and after a stop. With [eval]
# weights = ema evaluations and samples are of the mean, and the run is the same.
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

# Before the first update there is no mean to export; after it the mean is the weights.
first_of_all() {
    trained early run.faults=nan@1
    expect 65 "$bin" export runs/early/ckpt/step-00000001 none --ema
    says "--ema: " "runs/early/ckpt/step-00000001 has no update, and so no mean of weights yet: expected a later one"
    [ ! -e none ] || fail "a directory was made"
    expect 0 "$bin" export runs/early/ckpt/step-00000001 as-it-was
    written early
    cmp -s early-1.values early-2.values && fail "the second step changed nothing"
    expect 0 "$bin" export runs/early/ckpt/step-00000002 second --ema
    says "exported the mean of weights up to step 2"
    values second >second.values
    paste early-1.values early-2.values early-2.values second.values >early.columns
    mean early "0 0 1"
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

# --- evaluated --------------------------------------------------------------------------------------------------------

last="data.val=data/a-train-*.bin eval.every=1 eval.batches=2 sample.every=1 sample.tokens=24"
looks="$last eval.weights=ema"

# losses RUN, texts RUN: of its evaluations and its samples.
losses() { sed -n 's/^{"t":"eval","step":\([0-9]*\),"loss":\([0-9.]*\),.*/\1 \2/p' "runs/$1/log.jsonl"; }
texts() { sed -n 's/^{"t":"sample",.*"text":"\(.*\)"}/\1/p' "runs/$1/log.jsonl"; }

# The mean that is exported, as weights of another run, has the loss that was logged; the last weights have another.
evaluated() {
    trained looked $looks
    same one.hashes looked.hashes "the hashes of a run, and of one that looks at the mean after each step"
    losses looked >looked.losses
    texts looked >looked.texts
    [ "$(wc -l <looked.losses)" -eq 3 ] && [ "$(wc -l <looked.texts)" -eq 3 ] || fail "expected three of each"
    for step in 1 2 3; do
        expect 0 "$bin" eval base.ini looked.ini --ckpt "runs/looked/ckpt/step-0000000$step"
        sed -n 's/^step \([0-9]*\)  loss \([0-9.]*\) .*/\1 \2/p' "$out" >>asked.losses
        expect 0 "$bin" sample base.ini looked.ini --ckpt "runs/looked/ckpt/step-0000000$step"
        [ $step -eq 3 ] && sed 's/^One//' "$out" >asked.text
    done
    expect 0 "$bin" export runs/looked of-looked --ema
    settings mean $last model.init_from=of-looked
    expect 0 "$bin" eval base.ini mean.ini
    sed -n 's/^step 0  loss \([0-9.]*\) .*/3 \1/p' "$out" | cat asked.losses - >all.losses
    paste -d ' ' looked.losses asked.losses | cat - all.losses | awk '
        NF == 4 { logged[$1] = $2; n++; if ($1 != $3 || ($2 - $4) ^ 2 > 1e-12) exit bad = 1 }
        NF == 2 { n++; if (($2 - logged[$1]) ^ 2 > 1e-11) exit bad = 1 }
        END { exit bad || n != 7 }' || fail "losses of the mean: $(tr '\n' ' ' <looked.losses), and $(tr '\n' ' ' <all.losses)"
    tail -n 1 looked.texts | sed 's/\\u[0-9a-f]\{4\}//g' | tr -cd ' -~' >logged.text
    tr -cd ' -~' <asked.text | cmp -s - logged.text || fail "the sample in the log is $(cat logged.text)"
    trained last $last
    losses last >last.losses
    texts last | cmp -s - looked.texts && fail "the last weights write what their mean writes"
    sed 1d looked.losses | cut -d ' ' -f 2 >a && sed 1d last.losses | cut -d ' ' -f 2 >b
    paste -d ' ' a b | awk '$1 == $2 { exit 1 }' || fail "a loss of the mean is that of the last weights"
    expect 0 "$bin" export runs/looked last-weights
    values last-weights | cmp -s - one-3.values || fail "an export without --ema has other weights"
}

# looks_alike SETTING...: in each layout the run has the hashes of one rank, and the losses and samples too.
looks_alike() {
    rm -rf runs
    layouts $looks "$@"
    losses first >first.losses
    texts first >first.texts
    for each in runs/*; do
        losses "${each#runs/}" >found.losses
        texts "${each#runs/}" >found.texts
        same first.losses found.losses "losses of the mean on one rank and in ${each#runs/}"
        same first.texts found.texts "samples of the mean on one rank and in ${each#runs/}"
    done
}

looked_at_anywhere() {
    looks_alike <<'DEALS'
look0 2 parallel.zero=0
look1 3 parallel.zero=1
look2 2 parallel.zero=2
look3 4 parallel.zero=3
looktensor 4 parallel.tensor=2 parallel.zero=1
lookpipe 4 parallel.pipeline=2 parallel.zero=3
lookhost 2 parallel.offload=host parallel.zero=1
lookserver 3 server.count=1 parallel.zero=1
DEALS
    looks_alike precision.compute=bf16 precision.rounding=stochastic <<'DEALS'
bf16zero1 2 parallel.zero=1
bf16zero3 2 parallel.zero=3
bf16host 2 parallel.offload=host
DEALS
    trained blind precision.compute=bf16 precision.rounding=stochastic
    same first.hashes blind.hashes "the hashes in bf16 of a run that looks at the mean, and of one that does not"
}

# The first evaluation after a step that changed nothing is of the weights as they are.
before_the_first() {
    trained early $looks run.faults=nan@1
    trained plain $last run.faults=nan@1
    [ "$(losses early | head -n 1)" = "$(losses plain | head -n 1)" ] || fail "there was no mean after step 1"
    [ "$(losses early | tail -n 1)" != "$(losses plain | tail -n 1)" ] || fail "there is a mean after step 3"
}

# Data that can't be read end the run, but not before it is saved: with its own weights.
unreadable() {
    cp data/a-train-00000.bin data/bad.bin
    printf 'xxxxxxxx' | dd of=data/bad.bin bs=1 seek=9000 conv=notrunc 2>"$out"
    settings bad data.val=data/bad.bin eval.every=2 eval.weights=ema device.ranks=2 parallel.zero=1
    expect 65 timeout 100 "$bin" base.ini bad.ini
    says "data/bad.bin: block 0"
    trained one run.steps=2 checkpoint.every=2
    hashes bad >bad.hashes
    same one.hashes bad.hashes "the hashes after step 2, and after an evaluation that failed"
}

planned() {
    settings looked $looks
    expect 0 "$bin" plan base.ini looked.ini
    sed -n 's/^  masters (fp32)  *\([0-9]*\) .*/\1/p' "$out" >found
    expect 0 "$bin" plan base.ini looked.ini -o eval.weights=last
    sed -n 's/^  masters (fp32)  *\([0-9]*\) .*/\1/p' "$out" | paste -d ' ' found - |
        awk '{ exit !($1 - 2 * $2 >= 0 && $1 - 2 * $2 <= 1024) }' || fail "expected room for the masters twice: $(cat found)"
}

refused() {
    settings wrong optimizer.ema=0 eval.weights=ema
    expect 78 timeout 100 "$bin" base.ini wrong.ini
    says "weights = ema is the mean of the weights, and with [optimizer] ema = 0 none is kept" "[eval] weights = last"
    settings wrong eval.weights=ema parallel.offload=nvme
    expect 78 timeout 100 "$bin" base.ini wrong.ini
    says "with offload = nvme these are in a file" "[eval] weights = last"
    settings without eval.weights=ema data.val='data/a-train-*.bin'
    expect 65 "$bin" eval base.ini without.ini
    settings wrong outer.islands=2 outer.every=1
    expect 78 timeout 100 "$bin" base.ini wrong.ini
    says "ema follows the weights of each step, and islands hold the same at boundaries only"
}

# Running statistics of batch norms have a mean, too. A mean that forgets nearly all is what the run ends with.
running_statistics() {
    { printf '\0\0\010\003\0\0\0\100\0\0\0\020\0\0\0\020'; head -c 16384 text.txt; } >x-images
    { printf '\0\0\010\001\0\0\0\100'; head -c 64 text.txt | tr -c 'a-m' '\001' | tr 'a-m' '\000'; } >x-labels
    ini >images.ini <<'END'
run name=images steps=6
device backend=cpu threads=1
model type=resnet20 classes=2 image=16 channels=1
data train=TWO val=TWO
batch global=16 micro=8 lanes=2
optimizer type=sgd lr=0.05 momentum=0.9 ema=1e-6
schedule decay_steps=6
checkpoint every=6
END
    sed -i 's/TWO/x-images x-labels/' images.ini
    expect 0 "$bin" images.ini
    for weights in last ema; do
        expect 0 "$bin" eval images.ini -o eval.weights=$weights
        grep '^step 6  loss [0-9]' "$out" >$weights.eval || fail "no loss of weights = $weights"
    done
    same last.eval ema.eval "the evaluations of the last weights and of a mean that is nearly them"
    # the share is the one with which the mean was made, whatever the settings say now
    expect 0 "$bin" eval images.ini -o eval.weights=ema -o optimizer.ema=0.9
    grep '^step 6  loss [0-9]' "$out" >other.eval
    same ema.eval other.eval "the evaluations of one mean with two settings of ema"
}

try running_statistics
try mean_of_steps
try skipped_steps
try first_of_all
try nothing_else
try any_layout
try muon_layouts
try evaluated
try looked_at_anywhere
try before_the_first
try unreadable
try planned
try refused
finish
