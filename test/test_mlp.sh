#!/bin/sh
# test/test_mlp.sh: the perceptron and its images from the outside, with ./lockstep or the binary that LOCKSTEP_BIN
# names: one result however a run is dealt to ranks, stopped, and its images stored; every verb; and what is refused.
. test/support/lib.sh
. "$top/test/support/logs.sh"
. "$top/test/support/images.sh"
image_run
mkdir data
images data/all 0 700

# as_one ONE RUN: RUN logged what ONE did: 40 steps, 4 evaluations, and the hashes of the last checkpoint.
as_one() {
    logged "$1" >logged.want
    logged "$2" >logged.found
    [ "$(wc -l <logged.want)" -eq 45 ] && tail -n 1 logged.want |
        grep -qE '^hash [0-9a-f]{16}  state_hash [0-9a-f]{16}$' ||
        fail "$1: expected 40 steps, 4 evaluations and two hashes: $(tail -n 1 logged.want)"
    same logged.want logged.found "what $1 and $2 logged"
    same "runs/$1/answers.json" "runs/$2/answers.json" "what $1 and $2 say of the images"
}

# --- one result -------------------------------------------------------------------------------------------------------

learns() {
    expect 0 train ref
    says "mlp 42-24-17-5 relu" "620 images in 2 files, val 80" "24 samples = 4 lanes x 3 micro-batches of 2" \
        "samples/s" "accuracy" "done    40 steps"
    grep '"t":"step","step":40,' runs/ref/log.jsonl >last
    grep -q '"samples":960,"ms":[0-9.]*,"samples_per_s":[0-9.]*,' last ||
        fail "expected 960 samples, and how many a second, in: $(cat last)"
    ! grep -q token runs/ref/log.jsonl || fail "a run on images counts tokens"
    grep -q '^{"step":40,"samples":80,"right":80,"of_classes":5,$' runs/ref/answers.json ||
        fail "expected what it says of 80 images after step 40: $(head -c 200 runs/ref/answers.json)"
    grep -q '<h2>What the model says</h2>' runs/ref/report.html || fail "its page does not show it"
    sed -n 's/^{"t":"eval","step":40,"loss":\([0-9.e-]*\),"accuracy":\([0-9.]*\),.*"samples":80,.*/\1 \2/p' \
        runs/ref/log.jsonl >last
    awk '{ good = $1 < 0.5 && $2 > 0.9 && $2 <= 1 } END { exit !good }' last ||
        fail "loss and accuracy after 40 steps: $(cat last)"
    as_one ref ref
}

# one_result SETTING...: neither ranks, stages and offload matter, nor where and how a run was interrupted.
one_result() {
    settings one "$@"
    rm -rf runs/one
    expect 0 train one
    while read -r ranks zero more; do
        rm -rf runs/dealt
        settings dealt "$@" device.ranks=$ranks parallel.zero=$zero $more
        expect 0 train dealt
        as_one one dealt
    done <<'DEALS'
1 0 parallel.offload=yes device.threads=2
2 0
3 1
4 2
2 3 reduce.bucket_mb=0.001
4 3 parallel.offload=yes
DEALS
    while read -r steps ranks zero then_ranks then_zero; do
        rm -rf runs/resumed
        settings resumed "$@" run.steps=$steps device.ranks=$ranks parallel.zero=$zero
        expect 0 train resumed
        settings resumed "$@" device.ranks=$then_ranks parallel.zero=$then_zero
        expect 0 train resumed
        event resumed resume "after step $steps of 40"
        as_one one resumed
    done <<'RESUMED'
20 2 3 3 1
10 4 1 1 0
RESUMED
    tail -n 1 logged.want >>ends
}

with_relu() { one_result; }
with_gelu() { one_result model.activation=gelu; }
in_bf16() { one_result precision.compute=bf16 precision.rounding=stochastic; }
without_hidden_layers() { one_result model.hidden=; }

# These must differ, or the comparisons above compare nothing.
other_settings_give_other_bits() {
    for change in run.seed=2 batch.lanes=2 data.shuffle=no model.hidden=24 optimizer.lr=0.021 data.holdout=79; do
        settings other "$change"
        rm -rf runs/other
        expect 0 train other
        hashes other >>ends
    done
    [ "$(wc -l <ends)" -eq 10 ] && [ "$(sort -u ends | wc -l)" -eq 10 ] || fail "expected ten hashes: $(cat ends)"
}

# A stop on request may come anywhere.
stopped() {
    all="schedule.type=constant schedule.decay_steps=0 eval.every=0 checkpoint.every=100000"
    settings stopped run.steps=1000000 device.ranks=2 parallel.zero=2 $all
    start "$bin" base.ini stopped.ini
    until_true 20 has_logged stopped 30
    kill -TERM "$pid"
    await 75
    steps=$(($(last_step stopped) + 5))
    settings stopped run.steps=$steps device.ranks=3 parallel.zero=3 $all
    settings straight run.steps=$steps $all
    expect 0 train stopped
    expect 0 train straight
    same_steps straight stopped
    same_state straight stopped
}

# Plain or compressed, in one pair of files or several.
files_do_not_matter() {
    mkdir gz parts
    gzip -nc data/all-images >gz/images.gz
    gzip -nc data/all-labels >gz/labels.gz
    images parts/a 0 33
    images parts/b 33 500
    images parts/c 533 167
    gzip parts/b-images parts/c-labels
    for files in "gz/images.gz gz/labels.gz" "parts/*"; do
        rm -rf runs/files
        settings files "data.train=$files" data.prefetch=2
        expect 0 train files
        as_one ref files
    done
}

# What is held out is the end of the files: as if it stood in files of its own.
holdout_is_like_files_of_its_own() {
    mkdir own
    images own/train 0 620
    images own/val 620 80
    settings own data.holdout=0 "data.train=own/train-*" "data.val=own/val-*"
    expect 0 train own
    as_one ref own
    expect 0 "$bin" eval base.ini ref.ini
    cp "$out" held-out
    expect 0 "$bin" eval base.ini own.ini
    same held-out "$out" "evaluations of what is held out, and of files of its own,"
}

# --- verbs ------------------------------------------------------------------------------------------------------------

evaluates() {
    expect 0 "$bin" eval base.ini ref.ini
    grep -qE '^step 40  loss [0-9.]+  accuracy [01]\.[0-9]+  80 images$' "$out" ||
        fail "expected step, loss, accuracy and the number of images"
    sed -n 's/^{"t":"eval","step":40,"loss":\([^,]*\),"accuracy":\([^,]*\),.*/\1 \2/p' runs/ref/log.jsonl >recorded
    sed 's/.* loss \(.*\)  accuracy \(.*\)  80.*/\1 \2/' "$out" | paste -d ' ' - recorded |
        awk '{ good = ($1 - $3) ^ 2 < 1e-12 && ($2 - $4) ^ 2 < 1e-12 } END { exit !good }' ||
        fail "the log says loss and accuracy $(cat recorded)"
    cp "$out" wanted
    for ranks in 2 3 4; do
        settings ref device.ranks=$ranks parallel.zero=$((ranks - 1))
        expect 0 "$bin" eval base.ini ref.ini
        same wanted "$out" "evaluations on one rank and on $ranks"
    done
    settings ref
}

# What is held out, once more as a named set.
evaluates_a_set() {
    mkdir held && images held/all 620 80
    settings set run.steps=10 "eval.sets=held: held/all-*"
    expect 0 train set
    says "held.accuracy "
    sed -n 's/^{"t":"eval",.*"accuracy":\([^,]*\),"held.loss":\([^,]*\),"held.accuracy":\([^,]*\),.*/\1 \2 \3/p' \
        runs/set/log.jsonl >found
    sed -n 's/^{"t":"eval",.*"loss":\([^,]*\),"accuracy":\([^,]*\),"held.loss.*/\2 \1 \2/p' runs/set/log.jsonl >wanted
    same wanted found "loss and accuracy of what is held out, and of the same as a set,"
    grep -q '<dt>Loss on held</dt><dd>[0-9.]*<small>accuracy [0-9.]*<' runs/set/report.html || fail "the page lacks the accuracy"
}

# What a run wrote of its newest weights, and of older ones.
writes_answers() {
    mkdir -p answers older
    for ranks in 1 3; do
        settings ref device.ranks=$ranks
        rm -f answers/answers.json
        expect 0 "$bin" eval base.ini ref.ini --answers answers
        says "answers/answers.json: what it says of them"
        same runs/ref/answers.json answers/answers.json "the answers of the run and of eval on $ranks ranks"
    done
    settings ref
    expect 0 "$bin" eval base.ini ref.ini --ckpt runs/ref/ckpt/step-00000020 --answers older
    grep -q '^{"step":20,"samples":80,' older/answers.json || fail "step 20: $(head -n 1 older/answers.json)"
    cmp -s older/answers.json answers/answers.json && fail "the answers of steps 20 and 40 are alike"
    expect 74 "$bin" eval base.ini ref.ini --answers nowhere
    says "nowhere" "No such file"
    expect 64 "$bin" eval base.ini ref.ini --answers answers --text base.ini
    says "--answers is about the validation data"
    settings noval data.holdout=0
    expect 78 "$bin" eval base.ini noval.ini --answers answers
    says "[data] val is empty"
}

has_nothing_to_sample() {
    expect 78 "$bin" sample base.ini ref.ini --prompt "It is "
    one_line
    says "type mlp" "nothing to sample"
    ! grep -q "It is" "$out" || fail "it printed the prompt of a text that can't be continued"
    settings sampled sample.tokens=10 sample.every=5
    expect 0 train sampled
    ! grep -q 'sample at' "$out" || fail "it printed a sample"
    ! grep -q '"t":"sample"' runs/sampled/log.jsonl || fail "it logged a sample"
    as_one ref sampled
}

checks_data() {
    expect 0 "$bin" check base.ini
    says "model   mlp, 0.00 M parameters" "train   620 images in 2 files" "val     80 images in 2 files" \
        "every checksum is right"
    gzip -nc data/all-images >packed.gz
    settings packed "data.train=packed.gz data/all-labels"
    expect 0 "$bin" check base.ini packed.ini
    flip packed.gz 5000
    expect 65 "$bin" check base.ini packed.ini
    one_line
    says packed.gz offset
    [ ! -e runs/packed ] || fail "check made a run directory"
}

plans() {
    for deal in "1 0" "3 2"; do
        set -- $deal
        settings planned run.steps=2 device.ranks=$1 parallel.zero=$2
        rm -rf runs/planned
        expect 0 train planned
        held=$(sed -n 's/^data .* memory \([0-9.]* [kMG]*B\)$/\1/p' "$out")
        expect 0 "$bin" plan base.ini planned.ini
        says "zero $2" activations moments "loader's ring"
        [ -n "$held" ] && [ "$held" = "$(awk '$1 == "all" { printf "%.1f MB", $2 / 1e6 }' "$out")" ] ||
            fail "the run says that it takes $held, its plan says otherwise"
    done
}

benches() {
    expect 0 "$bin" bench base.ini --steps 3
    grep -qE '42-24-17-5 relu .* 24 x 1 samples .* samples/s .* GFLOP/s' "$out" ||
        fail "expected sizes, samples a second, and GFLOP/s"
    [ ! -e runs/default ] || fail "bench made a run directory"
}

prints_settings() {
    expect 0 "$bin" config base.ini
    cp "$out" effective.ini
    says 'hidden = "24 17"' "inputs = 42" "classes = 5" "activation = relu"
    sed -n '/^\[model\]/,/^$/p' "$out" >model.section
    ! grep -qE '^(heads|embed|vocab|context|layers|dropout|head_chunks) =' model.section ||
        fail "it prints a key of gpt"
    expect 0 "$bin" config effective.ini
    sed 's/ *;.*//' effective.ini >once
    sed 's/ *;.*//' "$out" >twice
    same once twice "settings and what was read back of them"
}

# --- refused ----------------------------------------------------------------------------------------------------------

# refused LINE TEXT...: base.ini with this line of [model] is refused with one line that says this, before anything is
# touched.
refused() {
    printf '[model]\n%s\n' "$1" >broken.ini
    shift
    for verb in train check plan config bench eval; do
        expect 78 "$bin" $verb base.ini broken.ini
        one_line
        says "lockstep: broken.ini:2: [model] " "$@"
    done
}

wrong_settings() {
    rm -rf runs
    for key in heads layers embed vocab context dropout head_chunks; do
        refused "$key = 4" "$key: no such key" "(keys: type inputs hidden classes activation init_from init_missing init_resize demand_mb;"
    done
    refused "hidden = 256 x" 'hidden: expected at most 64 widths from 1 to 1048576, such as 256 128, found `256 x` at `x`'
    refused "hidden = 256,128" 'found `256,128`'
    refused "hidden = 12 0" 'at `0`'
    refused "hidden = -3" 'at `-3`'
    refused "hidden = 1048577" 'at `1048577`'
    refused "hidden = $(yes 2 | head -n 65 | tr '\n' ' ')" "at most 64 widths"
    refused "classes = 1" "classes" 2
    refused "activation = tanh" 'activation' '`tanh`' "relu" "gelu"
    [ ! -e runs ] || fail "a run directory was made"
}

# misfit TEXT...: the settings of misfit.ini and their data do not fit together; nothing is written.
misfit() {
    for verb in train check; do
        expect 78 "$bin" $verb ${files:-base.ini} misfit.ini
        one_line
        says "$@"
    done
    [ ! -e runs ] || fail "a run directory was made"
}

wrong_data() {
    rm -rf runs
    settings misfit model.inputs=100
    misfit "[data] train" "the model reads \`pixels\` as fp32 (100), and the files have fp32 (6,7)"
    settings misfit pack.input=text.txt pack.output=text
    text 5000 >text.txt
    expect 0 "$bin" pack base.ini misfit.ini
    settings misfit "data.train=text-train-*.bin"
    misfit "[data] train" "the model reads \`pixels\`" "tokens" "do not fit together"
    settings misfit data.holdout=0 "data.val=text-val-*.bin"
    misfit "[data] val" "the model reads \`pixels\`" "tokens"
    settings misfit run.dir=runs run.steps=2 model.layers=1 "data.train=data/all-*" "data.val=data/all-*"
    files=misfit.ini misfit "[data] train" "the model reads \`tokens\`" "pixels and label" "do not fit together"
    settings misfit data.holdout=700
    misfit "holdout = 700 of 700 samples"
    settings misfit model.classes=4
    for verb in train check; do
        expect 65 "$bin" $verb base.ini misfit.ini
        one_line
        says "data/all-labels: offset 10: label 4, expected less than 4, the number of the model's classes"
    done
    [ ! -e runs ] || fail "a run directory was made"
}

# A run goes on with the settings and the images that it has begun with.
changed() {
    settings changed run.steps=5
    expect 0 train changed
    cp -RP runs/changed before
    while read -r key then now; do
        settings changed "$key=$now"
        expect 78 train changed
        one_line
        says "$key is $then in the checkpoint and $now now"
    done <<'KEYS'
model.activation relu gelu
model.classes 5 6
data.holdout 80 79
KEYS
    images else 1 700
    settings changed "data.train=else-*"
    expect 78 train changed
    says "training dataset" "[data] train"
    diff -rq before runs/changed | grep -v events.jsonl >differs
    [ ! -s differs ] || fail "the refused run was touched: $(head -n 1 differs)"
}

settings ref
try learns
try with_relu
try with_gelu
try in_bf16
try without_hidden_layers
try other_settings_give_other_bits
try stopped
try files_do_not_matter
try holdout_is_like_files_of_its_own
try evaluates
try evaluates_a_set
try writes_answers
try has_nothing_to_sample
try checks_data
try plans
try benches
try prints_settings
try wrong_settings
try wrong_data
try changed
finish
