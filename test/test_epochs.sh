#!/bin/sh
# test/test_epochs.sh: [run] epochs from the outside, with ./lockstep or the binary that LOCKSTEP_BIN names: a run of so
# many epochs is the run of as many steps as they take, rounded up, in its bits and its schedule; more of them go on; and
# what can't be counted is refused.
. test/support/lib.sh
. "$top/test/support/trained.sh"

text 2222 >text.txt
ini >base.ini <<'INI'
run dir=runs
device threads=1
model layers=1 heads=2 embed=16 context=32
data train=data/t-train-*.bin val=
pack input=text.txt output=data/t val_fraction=0
batch global=8 micro=2 lanes=4
optimizer lr=0.01
sample tokens=0
checkpoint keep=9
log every=1 hash_every=1
INI
"$bin" pack base.ini >"$out" 2>&1 || { cat "$out"; echo "0 passed, 1 failed"; exit 1; }
samples=$("$bin" check base.ini -o run.steps=100000 | sed -n 's/.*100000 steps are \([0-9.]*\) epochs/\1/p' |
    awk '{ print int(8 * 100000 / $1 + 0.5) }')

# steps_of EPOCHS
steps_of() { awk -v e="$1" -v s="$samples" 'BEGIN { x = e * s / 8; n = int(x); print n + (x > n) }'; }

rounded_up() {
    [ "$samples" -gt 60 ] && [ $((samples % 8)) -ne 0 ] || fail "$samples samples are not what this test needs"
    n=$(steps_of 1.5)
    trained epochs run.epochs=1.5
    says "epochs  1.5 of $samples samples are $n steps of 8, rounded up from " "step    1/$n   " "/1.5  loss" \
        "epoch $(awk -v n="$n" -v s="$samples" 'BEGIN { printf "%.2f", 8 * n / s }')/1.5  loss"
    grep -c '"t":"step"' runs/epochs/log.jsonl | grep -qx "$n" || fail "expected $n steps"
    trained steps run.steps="$n"
    ! grep -q epoch "$out" || fail "a run of steps speaks of epochs"
    same steps.hashes epochs.hashes "the hashes of $n steps, and of as many epochs as they are,"
    trained ranks run.epochs=1.5 device.ranks=2 parallel.zero=1
    same epochs.hashes ranks.hashes "the hashes on one rank and on two"
    grep -q "^steps = $n .*epochs.ini:4" runs/epochs/config.ini || fail "its settings say $(grep '^steps' runs/epochs/config.ini)"
    expect 0 timeout 100 "$bin" runs/epochs/config.ini
    says "after step $n of $n: all are done"
    settings exact run.epochs=8
    expect 0 "$bin" check base.ini exact.ini
    says "$samples steps are 8.00 epochs"
}

# As with other steps: an open schedule stays that of the beginning.
goes_on() {
    cp -r runs/epochs runs/more
    settings more run.epochs=2
    expect 0 timeout 100 "$bin" base.ini more.ini
    says "continuing after step $(steps_of 1.5) of $(steps_of 2)" \
        "schedule.decay_steps = $(steps_of 1.5), as when the run began"
    cp -r runs/steps runs/further
    settings further run.steps="$(steps_of 2)"
    expect 0 timeout 100 "$bin" base.ini further.ini
    hashes more >more.hashes
    hashes further >further.hashes
    same further.hashes more.hashes "the hashes of a run that went on by epochs and by steps"
    expect 0 "$bin" fork runs/epochs forked -o run.epochs=2
    grep -q "^run.steps  *$(steps_of 1.5)  *$(steps_of 2)$" "$out" || fail "expected it to change run.steps"
    grep -q "^steps = $(steps_of 2) " runs/forked/config.ini || fail "the fork has $(grep '^steps' runs/forked/config.ini)"
}

which_counts() {
    settings both run.epochs=1 run.steps=5
    expect 78 timeout 100 "$bin" base.ini both.ini
    says "both.ini:6: [run] steps: epochs = 1 and steps = 5 both say when the run ends: leave one of them out. Nearest that works: [run] epochs = 0."
    settings first run.epochs=1
    expect 0 "$bin" plan base.ini first.ini -o run.steps=5
    says "5 steps"
    expect 0 "$bin" plan base.ini steps.ini -o run.epochs=1
    says "$(steps_of 1) steps"
    expect 0 "$bin" config base.ini first.ini
    ! grep -q '^steps' "$out" || fail "how many steps it takes is not known yet"
    cp "$out" printed.ini
    expect 0 "$bin" plan printed.ini
    says "$(steps_of 1) steps"
}

# What needs no steps needs no training data either.
no_data() {
    settings epochs run.epochs=1.5 data.train=gone.bin data.val='data/t-train-*.bin'
    expect 0 "$bin" eval base.ini epochs.ini
    says "$samples windows of 32 tokens"
    expect 78 timeout 100 "$bin" base.ini epochs.ini
    says "[run] epochs counts the samples of the training data" 'no file matches "gone.bin"'
    settings mix run.epochs=1 data.train='data/t-train-00000.bin@2 data/t-train-*.bin@1'
    expect 78 timeout 100 "$bin" base.ini mix.ini
    says "mix.ini:4: [run] epochs: [data] train is a mix of 2 parts with weights, which has no end"
    settings late run.epochs=1 schedule.warmup=500
    expect 78 timeout 100 "$bin" base.ini late.ini
    says "late.ini:6: [schedule] warmup: the warm-up of 500 steps ends after the decay, which ends at step $(steps_of 1)"
}

# 16.6 epochs of 120 samples in steps of 8 are 249 steps, though the product is a little more in doubles; a thousandth of
# a step more is one more.
to_the_sample() {
    text 3841 >whole.txt
    settings whole pack.input=whole.txt pack.output=data/w "data.train=data/w-train-*.bin"
    expect 0 "$bin" pack base.ini whole.ini
    while read -r epochs steps; do
        expect 0 "$bin" plan base.ini whole.ini -o run.epochs="$epochs"
        says " $steps steps"
    done <<'ROWS'
1 15
16.6 249
16.6001 250
16.5999 249
1.4 21
0.05 1
ROWS
    many="-o model.context=2 -o batch.global=1 -o batch.micro=1 -o batch.lanes=1"
    expect 78 "$bin" plan base.ini whole.ini $many -o run.epochs=1e9
    says "[run] epochs: 1e+09 epochs of 1920 samples are more than 10^12 steps of [batch] global = 1"
    expect 0 "$bin" plan base.ini whole.ini $many -o run.epochs=5e8
    says " 960000000000 steps"
}

try rounded_up
try to_the_sample
try goes_on
try which_counts
try no_data
finish
