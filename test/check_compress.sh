#!/bin/sh
# test/check_compress.sh: compressed checkpoints ([checkpoint] compress) in every layout, with and without
# [checkpoint] async: each layout continues from the checkpoint of the one before, compressed or not, and the final
# state is that of an uninterrupted run. Every verb that reads a checkpoint also reads a compressed one.
. test/support/runs.sh
fast="device.threads=1 log.watch=no eval.every=30 checkpoint.every=10 checkpoint.keep=1000"

settings whole $fast run.steps=90
undisturbed() { expect 0 train whole; }

# relay NAME SETTING...: ten steps of one layout after the other.
relay() {
    run=$1 at=0
    shift
    for layout in "device.ranks=1" "device.ranks=2" "device.ranks=4 parallel.zero=1" "device.ranks=3 parallel.zero=3" \
        "device.ranks=2 parallel.pipeline=2" "device.ranks=4 parallel.zero=2" "device.ranks=4 parallel.zero=3 parallel.pipeline=2" \
        "device.ranks=1" "device.ranks=2 parallel.zero=1"; do
        at=$((at + 10))
        settings "$run" $fast run.steps=$at $layout "$@"
        expect 0 train "$run"
    done
    same_state whole "$run"
    same_steps whole "$run"
    ls runs/"$run"/ckpt/step-*/*.blocks >"$out" || fail "nothing is compressed"
}
waiting() { relay waits checkpoint.compress=zstd; }
beside() { relay beside checkpoint.compress=zstd checkpoint.async=yes checkpoint.compress_level=3; }

# reads WHAT...: says the same of both runs but for their names.
reads() {
    for run in whole waits; do
        "$bin" "$@" "runs/$run" $last >"$run.read" 2>&1 || fail "$* runs/$run: $(cat "$run.read")"
    done
    sed 's/waits/whole/g' waits.read >found
    same whole.read found "$*"
}
readers() {
    last= reads hash
    for run in whole waits; do
        expect 0 "$bin" export "runs/$run" "export-$run"
        rm -rf "export-$run/README.md"
    done
    diff -r export-whole export-waits >"$out" || fail "the exports differ: $(head -n 3 "$out")"
    expect 0 "$bin" inspect runs/waits/ckpt/step-00000080
    for run in whole waits; do
        settings $run-eval $fast run.steps=90
        sed -i "s/^name = .*/name = $run/" $run-eval.ini
        "$bin" eval base.ini $run-eval.ini 2>&1 | sed -n 's/.*\(loss [0-9.]*\).*/\1/p' >$run.loss
        "$bin" sample base.ini $run-eval.ini 2>/dev/null >$run.text
    done
    [ -s whole.loss ] && same whole.loss waits.loss "the losses"
    same whole.text waits.text "the samples"
    expect 0 "$bin" fork runs/waits@60 forked
    "$bin" hash runs/waits/ckpt/step-00000060 | cut -d ' ' -f 2 >want
    "$bin" hash runs/forked/ckpt/step-00000060 2>&1 | cut -d ' ' -f 2 >found
    same want found "the fork"
    for from in whole waits; do
        settings begun-$from $fast run.steps=3 model.init_from="runs/$from"
        expect 0 train begun-$from
    done
    same_state begun-whole begun-waits
}

try undisturbed
try waiting
try beside
try readers
finish
