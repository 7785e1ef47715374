# test/support/runs.sh: what test_runs.sh and check_widths.sh share: the settings of a small run, and its data.
. test/support/lib.sh
. "$top/test/support/logs.sh"

ini >base.ini <<'END'
run dir=runs steps=250
device threads=2
model layers=2 heads=2 embed=32 context=32
data train=data/plain-train-*.bin val=data/plain-val-*.bin
pack input=text.txt output=data/plain
batch global=8 micro=2 lanes=4
schedule warmup=5 decay_steps=250
checkpoint every=5
eval every=20 batches=4
sample tokens=0
log every=1 hash_every=1
END
text 80000 >text.txt
"$bin" pack base.ini >"$out" 2>&1 || { cat "$out"; echo "0 passed, 1 failed"; exit 1; }

# Sizes that leave a tail everywhere.
odd="run.steps=4 model.embed=40 model.context=19 model.dropout=0.1 batch.micro=3 batch.global=12 \
    eval.batches=1 checkpoint.keep_best=no checkpoint.every=1000"

# same_width TYPE SIMD: the hashes of every step, and of the last state, do not depend on SIMD and threads.
same_width() {
    for threads in 1 2 4; do
        run=$1-$2-$threads
        settings "$run" $odd precision.compute="$1" device.simd="$2" device.threads=$threads
        "$bin" base.ini "$run.ini" >"$out" 2>&1
        got=$?
        [ $got -ne 69 ] || skip "this processor has no $2"
        [ $got -eq 0 ] || fail "$run ended with $got"
        says "cpu $2 x$threads thread"
        [ "$run" = "$1-portable-1" ] || { same_steps "$1-portable-1" "$run" && same_state "$1-portable-1" "$run"; }
    done
}
