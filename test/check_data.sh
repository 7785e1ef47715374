#!/bin/sh
# test/check_data.sh: training on real text comes to the loss that is written down here. Needs tinyshakespeare.txt in LOCKSTEP_TEST_DATA.
. test/support/lib.sh

# 300 steps of nanoGPT's laptop run. A CPU's bits are the same everywhere, so the loss is written down to its last digit, and so are the weights.
baby() {
    text=${LOCKSTEP_TEST_DATA:-}/tinyshakespeare.txt
    [ -f "$text" ] || skip "LOCKSTEP_TEST_DATA has no tinyshakespeare.txt"
    cp "$top/model/gpt-baby.ini" "$text" .
    settings short run.steps=300 eval.every=300 sample.tokens=0 checkpoint.every=0
    expect 0 "$bin" pack gpt-baby.ini
    expect 0 "$bin" gpt-baby.ini short.ini
    sed -n 's/^{"t":"eval","step":300,"loss":\([0-9.]*\),.*/\1/p' runs/short/log.jsonl >found
    "$bin" hash runs/short/best | cut -d ' ' -f 2 >>found
    printf '%s\n' 2.39445636 eef22f863947e7a4 >wanted
    same wanted found "the loss and the hash after 300 steps"
}

try baby
finish
