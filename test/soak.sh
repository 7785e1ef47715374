#!/bin/sh
# test/soak.sh: what takes minutes. The baby run (model/gpt/baby.ini) under three seeds in FP32, then in BF16 and FP16:
# the median validation loss is at most 1.90 (nanoGPT publishes 1.88 over 20 batches; this is the whole split), and
# 16-bit storage ends within 0.02 of FP32. Needs tinyshakespeare.txt in LOCKSTEP_TEST_DATA.
set -eu
bin=$PWD/${1:-lockstep}
if [ ! -f "${LOCKSTEP_TEST_DATA:-}/tinyshakespeare.txt" ]; then
    echo "skipped: soak (LOCKSTEP_TEST_DATA has no tinyshakespeare.txt)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cp model/gpt/baby.ini "$dir/"
cp "$LOCKSTEP_TEST_DATA/tinyshakespeare.txt" "$dir/"
cd "$dir"
"$bin" pack baby.ini

# Trains with seed $1 in type $2 and prints the last validation loss.
last_loss() {
    printf '[run]\nname = %s-%s\nseed = %s\n[precision]\ncompute = %s\n[eval]\nevery = 2000\n[sample]\ntokens = 0\n' \
        "$2" "$1" "$1" "$2" >"more-$2-$1.ini"
    "$bin" baby.ini "more-$2-$1.ini" >"$2-$1.log"
    sed -n 's/^{"t":"eval","step":2000,"loss":\([0-9.]*\).*/\1/p' "runs/$2-$1/log.jsonl"
}

for seed in 1 2 3; do
    loss=$(last_loss $seed fp32)
    [ -n "$loss" ] || { echo "seed $seed diverged"; echo "0 passed, 1 failed"; exit 1; }
    echo "fp32 seed $seed: $loss"
    echo "$loss" >>losses
done
median=$(sort -n losses | sed -n 2p)
first=$(head -n 1 losses)
bf16=$(last_loss 1 bf16)
fp16=$(last_loss 1 fp16)
echo "median fp32 $median; seed 1: fp32 $first, bf16 $bf16, fp16 $fp16"
awk -v m="$median" -v a="$first" -v b="$bf16" -v h="$fp16" 'function off(x) { return x > a ? x - a : a - x }
    BEGIN { f = !(m + 0 > 1 && m <= 1.90) + !(b + 0 > 1 && off(b) <= 0.02) + !(h + 0 > 1 && off(h) <= 0.02); printf "%d passed, %d failed\n", 3 - f, f; exit f > 0 }'
