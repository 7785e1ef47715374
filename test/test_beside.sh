#!/bin/sh
# test/test_beside.sh: checkpoints that are written while steps go on ([checkpoint] async): the same files as those that
# steps wait for, of the same steps, whoever is killed while they are written.
. test/support/runs.sh
. "$top/test/support/chaos.sh"
fast="device.threads=1 log.watch=no"
usual="$fast run.steps=90 eval.every=20 checkpoint.every=7 checkpoint.keep=1000"

# Weights and optimizer state of every checkpoint; manifests store how long a log with times was.
same_checkpoints() {
    (cd "runs/$1/ckpt" && sha256sum */*.safetensors) >files.want
    (cd "runs/$2/ckpt" && sha256sum */*.safetensors) >files.found
    same files.want files.found "the checkpoints of $1 and $2"
    [ -z "$(ls -A "runs/$2/ckpt" | grep '^\.')" ] || fail "$2: something lies about: $(ls -A "runs/$2/ckpt")"
}

# The records of checkpoints, each once; they come when a checkpoint is written, which may be some steps later.
checkpoint_records() {
    sed -n 's/^{"t":"checkpoint","step":\([0-9]*\),.*"hash":"\([0-9a-f]*\)".*/\1 \2/p' "runs/$1/log.jsonl"
}
same_records() {
    checkpoint_records "$1" >records.want
    checkpoint_records "$2" >records.found
    same records.want records.found "the log's checkpoints of $1 and $2"
}

# as_waited_for NAME OVERRIDE...
as_waited_for() {
    run=$1
    shift
    settings "$run-waits" $usual "$@"
    settings "$run" $usual checkpoint.async=yes "$@"
    expect 0 train "$run-waits"
    expect 0 train "$run"
    says "of which steps waited"
    same_steps "$run-waits" "$run"
    same_state "$run-waits" "$run"
    same_checkpoints "$run-waits" "$run"
    same_records "$run-waits" "$run"
    [ "$(readlink "runs/$run/best")" = "$(readlink "runs/$run-waits/best")" ] || fail "best is another one"
}
alone() { as_waited_for alone; }
of_three() { as_waited_for three device.ranks=3 parallel.zero=1; }
of_stages() { as_waited_for stages device.ranks=4 parallel.zero=3 parallel.pipeline=2; }

# The same checkpoints in compressed files; and another layout that writes plain ones goes on from them.
compressed() {
    settings packed $usual checkpoint.async=yes checkpoint.compress=zstd device.ranks=2 parallel.zero=1
    sed -i 's/^steps *=.*/steps = 49/' packed.ini
    expect 0 train packed
    [ "$(ls runs/packed/ckpt/step-00000049 | tr '\n' ' ')" = "manifest.json model-00000-of-00002.safetensors.blocks model-00001-of-00002.safetensors.blocks optimizer-00000-of-00002.safetensors.blocks optimizer-00001-of-00002.safetensors.blocks " ] ||
        fail "$(ls runs/packed/ckpt/step-00000049)"
    settings packed $usual device.ranks=3 parallel.zero=3
    expect 0 train packed
    says "continuing after step 49"
    same_steps alone-waits packed
    same_state alone-waits packed
    same_records alone-waits packed
    settings packed $usual checkpoint.compress=zstd
    sed -i 's/^steps *=.*/steps = 97/' packed.ini
    expect 0 train packed
    [ -f runs/packed/ckpt/step-00000097/model.safetensors.blocks ] || fail "$(ls runs/packed/ckpt/step-00000097)"
}

# Of those that are removed, what is removed when is as ever.
prunes() {
    settings prunes $fast run.steps=90 eval.every=20 checkpoint.every=7 checkpoint.async=yes checkpoint.keep=2 checkpoint.keep_best=no
    expect 0 train prunes
    [ "$(ls runs/prunes/ckpt | tr '\n' ' ')" = "step-00000084 step-00000090 " ] || fail "$(ls runs/prunes/ckpt)"
}

# A checkpoint that fails is an event, and those before and after it are there.
fails() {
    settings fails $fast run.steps=90 checkpoint.every=7 checkpoint.keep=1000 checkpoint.async=yes "run.faults=sync@9" eval.every=0
    expect 0 train fails
    event fails checkpoint_failed '"step":14' "fsync"
    [ -d runs/fails/ckpt/step-00000007 ] && [ -d runs/fails/ckpt/step-00000021 ] || fail "$(ls runs/fails/ckpt)"
    [ ! -e runs/fails/ckpt/step-00000014 ] || fail "step 14 is there"
}
# The lowest loss of an evaluation counts only where its weights could be saved.
# What was not saved is not the best: neither its loss nor its step is in the next checkpoint.
best_is_taken_back() {
    settings back $fast eval.every=20 checkpoint.async=yes checkpoint.every=45 "run.faults=rename@4" run.steps=50
    expect 0 train back
    event back checkpoint_failed '"step":40'
    grep -q '"best_step": *20\b' runs/back/ckpt/step-00000045/manifest.json ||
        fail "the best is not that of step 20: $(grep -o '"best_step[^,]*' runs/back/ckpt/step-00000045/manifest.json)"
}
# What a run with a new [run] steps keeps of its beginning is in what it writes.
adopts() {
    sed -i '/^warmup/d; /^decay_steps/d' base.ini
    for steps in 60 200; do
        settings adopts $fast eval.every=0 checkpoint.async=yes checkpoint.every=30 checkpoint.keep=100 run.steps=$steps
        expect 0 train adopts
    done
    for step in 60 90 200; do
        grep -q '"schedule.decay_steps": *"60"' runs/adopts/ckpt/step-*$step/manifest.json ||
            fail "step $step: $(grep -o '"schedule.[wd][^,]*' runs/adopts/ckpt/step-*$step/manifest.json)"
    done
}
best_fails() {
    settings best $fast eval.every=20 checkpoint.async=yes checkpoint.every=0 "run.faults=rename@4" run.steps=50
    expect 0 train best
    event best checkpoint_failed '"step":40'
    [ "$(readlink runs/best/best)" = ckpt/step-00000050 ] || fail "best is $(readlink runs/best/best)"
}
# What is known to be saved is the step of the checkpoint, not the one after which it was found written.
knows_what_is_saved() {
    settings known $fast run.steps=40 eval.every=0 checkpoint.every=10 checkpoint.async=yes log.hash_every=0 \
        device.ranks=3 "run.faults=lie@24:2, drag@1x100000"
    expect 69 train known
    says "rank 2 (localhost, data 2) holds other values"
    grep -qE 'the same command continues after step (10|20), which' "$out" || fail "of which step is there a checkpoint?"
}
# The next one falls due while one is being written: it is waited for, and none is left out.
is_waited_for() {
    settings often $fast checkpoint.keep=1000 checkpoint.async=yes checkpoint.every=1 device.ranks=2 eval.every=0 run.steps=40
    expect 0 train often
    [ "$(ls runs/often/ckpt | wc -l)" -eq 40 ] || fail "$(ls runs/often/ckpt | wc -l) checkpoints of 40 steps"
    event often checkpoint_waited "until the checkpoint of step" "the disk is slower than [checkpoint] every asks for"
}

# --- killed -----------------------------------------------------------------------------------------------------------

killed="$fast checkpoint.every=3 eval.every=20"
undisturbed() {
    settings whole $killed run.steps=250
    expect 0 train whole
}
# kill -9 of everything, at any moment, and on with the same command.
all_killed() {
    settings all $killed run.steps=250 checkpoint.async=yes device.ranks=2
    hits=0
    while [ $hits -lt 8 ]; do
        saved all
        before=$newest
        start "$bin" base.ini all.ini
        until_true 20 has_saved all $((before + 3))
        roll 60
        doze $rolled
        ranks_of "$pid"
        kill -9 "$pid" $ranks 2>/dev/null
        wait "$pid" 2>/dev/null
        pid=
        hits=$((hits + 1))
    done
    expect 0 train all
    same_steps whole all
    same_state whole all
    same_records whole all
}
# Ranks of a run that heals: what they were writing ends with their world.
some_killed() {
    settings some $killed checkpoint.async=yes cluster.elastic=yes cluster.heartbeat=0.2 device.ranks=3 snapshot.every=4 run.steps=600
    settings some-whole $killed run.steps=600
    expect 0 train some-whole
    chaos some 8
    same_steps some-whole some
    same_state some-whole some
    event some healed "was killed by signal 9"
    [ -z "$(ls -A runs/some/ckpt | grep '^\.')" ] || fail "something lies about: $(ls -A runs/some/ckpt)"
    checkpoint_records some | sort -n | uniq -d >twice
    [ ! -s twice ] || fail "logged twice: $(cat twice)"
    checkpoint_records some | cut -d ' ' -f 1 | sort >records.found
    checkpoint_records some-whole | cut -d ' ' -f 1 | sort >records.want
    comm -13 records.want records.found >more
    [ ! -s more ] || fail "checkpoints of other steps: $(cat more)"
}
stops() {
    settings stop $fast eval.every=20 checkpoint.async=yes checkpoint.every=2 run.steps=1000000 device.ranks=2
    start "$bin" base.ini stop.ini
    until_true 20 has_saved stop 6
    kill -TERM "$pid"
    await 75
    saved stop
    event stop stop "saved step $newest"
}

try alone
try compressed
try of_three
try of_stages
try prunes
try fails
try best_fails
try best_is_taken_back
try adopts
try knows_what_is_saved
try is_waited_for
try undisturbed
try all_killed
try some_killed
try stops
finish
