#!/bin/sh
# test/check_data.sh: training on real text and real images comes to the loss that is written down here. Needs
# tinyshakespeare.txt, and mnist/, in LOCKSTEP_TEST_DATA. A CPU's bits are the same everywhere, so losses are written
# down to the last digit, and so are the weights.
. test/support/lib.sh

# 300 steps of nanoGPT's laptop run.
baby() {
    text=${LOCKSTEP_TEST_DATA:-}/tinyshakespeare.txt
    [ -f "$text" ] || skip "LOCKSTEP_TEST_DATA has no tinyshakespeare.txt"
    cp "$top/model/gpt/baby.ini" "$text" .
    settings short run.steps=300 eval.every=300 sample.tokens=0 checkpoint.every=0
    expect 0 "$bin" pack baby.ini
    expect 0 "$bin" baby.ini short.ini
    sed -n 's/^{"t":"eval","step":300,"loss":\([0-9.]*\),.*/\1/p' runs/short/log.jsonl >found
    "$bin" hash runs/short/best | cut -d ' ' -f 2 >>found
    printf '%s\n' 2.39445636 eef22f863947e7a4 >wanted
    same wanted found "the loss and the hash after 300 steps"
}

# mnist BAR WANTED [SETTING...]: 20 epochs of model/mlp/mnist.ini. Of the 1,000 images that are held out so many percent
# are right at the end, and loss, accuracy and hash are those that are wanted.
mnist() {
    bar=$1 wanted=$2
    shift 2
    files=${LOCKSTEP_TEST_DATA:-}/mnist
    [ -f "$files/t10k-images-idx3-ubyte.gz" ] || skip "LOCKSTEP_TEST_DATA has no mnist/t10k-images-idx3-ubyte.gz"
    cp "$files"/t10k-*.gz .
    settings mnist "$@" eval.every=1410 log.every=141 checkpoint.every=0
    rm -rf runs
    expect 0 "$bin" "$top/model/mlp/mnist.ini" mnist.ini
    sed -n 's/^{"t":"eval","step":2820,"loss":\([0-9.]*\),"accuracy":\([0-9.]*\),.*"samples":1000,.*/\1 \2/p' \
        runs/mnist/log.jsonl >found
    awk -v bar="$bar" 'NF == 2 && 100 * $2 >= bar { good = 1 } END { exit !good }' found ||
        fail "loss and accuracy are $(cat found), expected $bar % at least"
    "$bin" hash runs/mnist/ckpt/step-00002820 | cut -d ' ' -f 2 >>found
    echo $wanted >wanted
    tr '\n' ' ' <found | sed 's/ $//' >line && echo >>line
    same wanted line "loss, accuracy and hash after 20 epochs"
}

adamw() { mnist 93.5 "0.346499681 0.946 e1b60a91eab7726f"; }
adamw_bf16() { mnist 93.5 "0.272707739 0.958 fe84aaa7cf98fbd6" precision.compute=bf16; }

by_sgd="optimizer.type=sgd optimizer.lr=0.1 optimizer.momentum=0.9 schedule.type=cosine"
sgd() { mnist 95 "0.226432294 0.958 2037ba97ffc3b065" $by_sgd; }
sgd_bf16() { mnist 95 "0.201918783 0.96 85a56216aca794f3" $by_sgd precision.compute=bf16; }

try baby
for optimizer in adamw adamw_bf16 sgd sgd_bf16; do try mnist_$optimizer $optimizer; done
finish
