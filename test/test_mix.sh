#!/bin/sh
# test/test_mix.sh: a run on data mixed by weight, from the outside, with ./lockstep or the binary that LOCKSTEP_BIN
# names: one result however it is dealt to ranks, stopped and continued; what `check` says of the parts; and what is
# refused.
. test/support/runs.sh
text 9000 | tr a-z A-Z >upper.txt
printf '[pack]\ninput = upper.txt\noutput = data/upper\n' >upper.ini
"$bin" pack upper.ini >"$out" 2>&1 || { cat "$out"; echo "0 passed, 1 failed"; exit 1; }
sed -i -e 's|^train = .*|train = data/plain-train-*.bin@0.7 data/upper-train-*.bin@0.3|' \
    -e 's/^\(decay_\)*steps = .*/\1steps = 40/' -e 's/^every = 5$/every = 1000/' base.ini

# as_one RUN: it logged what the run `one` did, and ended in the same state.
as_one() {
    same_steps one "$1"
    same_state one "$1"
}

one_result() {
    settings one
    expect 0 train one
    says "part    data/plain-train-*.bin@0.7: 70 % of the samples, 0.10 epochs of its 72000 tokens in 1 file"
    says "part    data/upper-train-*.bin@0.3: 30 % of the samples, 0.38 epochs of its 8100 tokens in 1 file"
    settings dealt device.ranks=3
    expect 0 train dealt
    as_one dealt
    settings resumed run.steps=13 device.ranks=3
    expect 0 train resumed
    settings resumed run.steps=27
    expect 0 train resumed
    settings resumed device.ranks=2 parallel.zero=2
    expect 0 train resumed
    event resumed resume "after step 27 of 40"
    as_one resumed
}

# Weights are part of the data: what continues with others is another run.
other_weights_are_other_data() {
    for weights in "0.6 0.4" "0.3 0.7"; do
        settings one run.steps=50 "data.train=data/plain-train-*.bin@${weights% *} data/upper-train-*.bin@${weights#* }"
        expect 78 train one
        says "the training dataset was" "restore the files and weights of [data] train"
    done
    settings one run.steps=41 "data.train=data/plain-train-*.bin@7 data/upper-train-*.bin@3"
    expect 0 train one
}

check_says_parts() {
    settings checked run.steps=1000
    expect 0 "$bin" check base.ini checked.ini
    says "1000 steps are 3.20 epochs" "every checksum is right"
    says "part    data/upper-train-*.bin@0.3: 30 % of the samples, 9.49 epochs of its 8100 tokens in 1 file"
    cp data/upper-train-00000.bin whole
    flip data/upper-train-00000.bin 500
    expect 65 "$bin" check base.ini checked.ini
    says "upper-train-00000.bin: block 0 at offset" "faults in 1 of 2 parts"
    mv whole data/upper-train-00000.bin
}

refused() {
    settings wrong "data.val=data/plain-val-*.bin@1 data/upper-val-*.bin@2"
    expect 78 "$bin" config base.ini wrong.ini
    says "wrong.ini:" "[data] val: weights say how often" "the same names without @ and weight"
    settings wrong data.holdout=5 data.val=
    expect 78 "$bin" config base.ini wrong.ini
    says "wrong.ini:" "[data] holdout: holdout = 5 takes" "name files of validation data in val"
    settings wrong "data.train=data/plain-train-*.bin@0.7 data/upper-train-*.bin"
    expect 78 "$bin" config base.ini wrong.ini
    says "wrong.ini:" "[data] train: data/upper-train-*.bin has no weight, and data/plain-train-*.bin@0.7 has one"
    settings wrong "data.train=data/plain-train-*.bin@0"
    expect 78 "$bin" config base.ini wrong.ini
    says "the weight 0 is not a positive decimal"
    settings wrong "data.train=data/plain-train-*.bin@1 data/none*@2"
    expect 78 "$bin" check base.ini wrong.ini
    says "[data] train: data/none*@2: no file matches"
}

try one_result
try other_weights_are_other_data
try check_says_parts
try refused
finish
