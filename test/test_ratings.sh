#!/bin/sh
# test/test_ratings.sh: ratings from the outside, with ./lockstep or the binary that LOCKSTEP_BIN names: a DLRM that says
# numbers has PyTorch's losses on lines of MovieLens' form, the same bits on any ranks and after a stop or a kill, comes
# near what can be known of made-up ratings, and what does not fit is refused in words. LAYOUTS=every: in every layout
# (test/check_ratings.sh).
. test/support/lib.sh
. "$top/test/support/trained.sh"
. "$top/test/support/dealt.sh"

ini >base.ini <<END
run steps=4
device backend=cpu threads=1
model type=dlrm task=regress dense=0 tables=2 rows=5 embed=4 bottom= top=6 mean=2.75
data train=data/r-train-*.bin val=data/r-val-*.bin
pack clicks=ratings input=$top/test/golden/dlrm-ratings.csv output=data/r val_fraction=0.2
batch global=12 micro=3 lanes=4
optimizer lr=0.01 weight_decay=0
checkpoint every=0
log every=1 hash_every=1
END
expect 0 "$bin" pack base.ini
says "packed  80 records of 0 numbers and 2 ids into 2 shards" "in the mean"

# golden WHICH SETTING...: 20 losses, then loss and RMSE of all lines, as a recipe of PyTorch's has them that read the
# lines by itself (test/golden/make_ratings.py), within a millionth.
golden() {
    which=$1
    shift
    settings "$which" run.steps=20 pack.val_fraction=0 pack.output=data/g "data.train=data/g-train-*.bin" \
        "data.val=data/g-train-*.bin" data.shuffle=no batch.global=4 batch.micro=2 batch.lanes=2 \
        schedule.type=constant schedule.warmup=-1 eval.every=20 "$@"
    [ -e data/g-train-00000.bin ] || expect 0 "$bin" pack base.ini "$which.ini"
    expect 0 "$bin" base.ini "$which.ini"
    sed -n 's/^{"t":"step","step":[0-9]*,"loss":\([^,]*\),.*/\1/p' "runs/$which/log.jsonl" >found
    sed -n 's/^{"t":"eval","step":20,"loss":\([^,]*\),"rmse":\([^,]*\),.*/\1 \2/p' "runs/$which/log.jsonl" |
        tr ' ' '\n' >>found
    sed -n "s/^$which //p" "$top/test/golden/dlrm-ratings.txt" | paste -d ' ' - found |
        awk '{ off = ($1 - $2) / ($1 > 1 ? $1 : 1); n += $1 > 0 && off ^ 2 < 1e-12 } END { exit n != 22 }' ||
        fail "22 figures: $(tr '\n' ' ' <found)"
}

dense_as_pytorch() {
    golden dense model.init_from="$top/test/golden/dlrm-ratings.safetensors"
    rmse=$(sed -n '$p' found)
    grep -q "\"eval_rmse\":${rmse%?}" runs/dense/status.json || fail "no rmse in status.json"
    expect 0 "$bin" status runs/dense
    "$bin" eval base.ini dense.ini -o run.name=dense >said
    grep -q "root of the mean squared error" runs/dense/report.html || fail "no curve of the RMSE in report.html"
    grep -q "  rmse 1.450428" said || fail "$(cat said)"
}
rows_as_pytorch() { golden rows run.seed=3 model.demand=yes optimizer.lr=0.05; }

figure=rmse LAYOUTS=${LAYOUTS:-stages}
stages() {
    cat <<'DEALS'
2.0 2 parallel.zero=0
4.1 4 parallel.zero=1
2.2 2 parallel.zero=2 reduce.bucket_mb=0.001
4.3 4 parallel.zero=3
p2z3 4 parallel.pipeline=2 parallel.zero=3 parallel.recompute=block
DEALS
}
stages_rows() { stages | grep -v pipeline; }

fp32() {
    any_layout
    on="schedule.decay_steps=4 schedule.warmup=1"
    trained one $on
    trained again $on run.steps=2
    settings again $on device.ranks=2 parallel.zero=3
    expect 0 timeout 100 "$bin" base.ini again.ini
    hashes again >again.hashes
    same one.hashes again.hashes "the hashes of a run that was stopped, and went on with 2 ranks"
}
sixteen_bits() { any_layout precision.compute=bf16 precision.rounding=stochastic; }
rows_any_layout() { rows=_rows any_layout model.demand=yes batch.micro=1; }

# killed SETTING...: a rank dies when the files of the second checkpoint are written, and the run goes on from the first.
killed() {
    on="checkpoint.every=1 $*"
    trained one $on
    rm -rf runs/again
    settings again $on run.faults=save@6:1 device.ranks=3 parallel.zero=3
    timeout 100 "$bin" base.ini again.ini >"$out" 2>&1 && fail "no rank was killed"
    [ -e runs/again/ckpt/step-00000001 ] || fail "the first checkpoint is gone"
    [ ! -e runs/again/ckpt/step-00000004 ] || fail "the run went on"
    settings again $on device.ranks=2 parallel.zero=2
    expect 0 timeout 100 "$bin" base.ini again.ini
    hashes again >again.hashes
    same one.hashes again.hashes "the hashes of a run that was killed and went on with 2 ranks"
    expect 0 "$bin" eval base.ini again.ini
    cp "$out" wanted
    settings one $on device.ranks=3
    expect 0 "$bin" eval base.ini one.ini
    same wanted "$out" "evaluations on two ranks and on three"
    says "  rmse " "  15 samples"
}
dense_killed() { killed; }
rows_killed() { killed model.demand=yes; }

# The RMSE is the root of the loss; a model begins with the mean, which is what it says of all that it does not know.
begins_with_the_mean() {
    settings mean run.steps=1 optimizer.lr=0 model.rows=1000 model.init_from= model.mean=2.5 model.top= eval.every=1
    expect 0 "$bin" base.ini mean.ini
    sed -n 's/^{"t":"eval","step":1,"loss":\([^,]*\),"rmse":\([^,]*\),.*/\1 \2/p' runs/mean/log.jsonl >found
    # the validation records' own mean square around 2.5, with nothing of ids but small numbers
    wanted=$(awk -F, 'NR > 1 { n++; x += ($3 - 2.5) ^ 2 } END { print x / n }' "$top/test/golden/dlrm-ratings.csv")
    awk -v w="$wanted" '{ a = $1 - $2 * $2; ok = a * a < 1e-14 && $1 > w / 2 && $1 < 2 * w } END { exit !ok }' found ||
        fail "loss and RMSE $(cat found), and the ratings are $wanted around the mean"
}

# The validation records, once more as a named set: all of them, and the first two micro-batches.
evaluates_a_set() {
    as_a_set 0
    cp found all
    as_a_set 2
    cmp -s all found && fail "two micro-batches have the loss of all"
    return 0
}
as_a_set() {
    settings set eval.every=4 eval.batches="$1" "eval.sets=held: data/r-val-*.bin"
    rm -rf runs/set
    expect 0 "$bin" base.ini set.ini
    sed -n 's/^{"t":"eval",.*"held.loss":\([^,]*\),"held.rmse":\([^,]*\),.*/\1 \2/p' runs/set/log.jsonl >found
    sed -n 's/^{"t":"eval",.*"loss":\([^,]*\),"rmse":\([^,]*\),"held.loss.*/\1 \2/p' runs/set/log.jsonl >wanted
    [ -s wanted ] || fail "no evaluation: $(tail -n 3 runs/set/log.jsonl)"
    same wanted found "loss and RMSE of the validation data, and of the same as a set,"
}

refused() {
    while IFS='|' read -r set says; do  # set: as for a shell
        eval "settings refused $set"
        expect 78 "$bin" check base.ini refused.ini
        says "$says"
    done <<'ROWS'
model.task=classify|has ratings: set [model] task = regress
model.tables=3|set [model] dense = 0 and tables = 2
model.dense=1|the model reads 1 numbers and 2 ids a record
model.bottom=8|bottom = 8 reads a sample's numbers, and dense = 0 says that there are none: leave bottom empty
model.task=rate|no such value `rate`
ROWS
    printf 'userId,movieId,rating,timestamp\n1,2,3.0,4\n1,2,4.7,4\n' >bad.csv
    settings refused pack.input=bad.csv
    expect 65 "$bin" pack base.ini refused.ini
    says 'bad.csv: line 3: column 3: `4.7`, expected a rating, 0.5 to 5 in halves'
}

# near WHICH: a trained model's RMSE is within 3 % of the planted model's own on the same records. Without what ids have
# to do with each other it would be 8 % above.
near() {
    sed -n 's/^{"t":"eval".*"loss":\([^,]*\),"rmse":\([^,]*\),.*"possible":\([^,]*\),.*/\1 \2 \3/p' \
        "runs/$1/log.jsonl" | tail -n 1 >last
    awk '{ best = sqrt($3); good = $2 > 0.9 * best && $2 < 1.03 * best } END { exit !good }' last ||
        fail "loss, RMSE and the planted model's loss: $(cat last)"
}

learns() {
    on="pack.input=planted:1:100000:200:300 pack.val_fraction=0.1 pack.output=data/p data.train=data/p-train-*.bin
        data.val=data/p-val-*.bin model.mean=3.2 model.top= batch.global=1024 batch.micro=256
        optimizer.grad_clip=0 log.every=100 log.hash_every=0"
    settings learns run.steps=600 $on model.rows=301 model.embed=8 eval.every=600
    expect 0 "$bin" pack base.ini learns.ini
    says "loss of the planted model 0." "RMSE 0.7"
    expect 0 "$bin" base.ini learns.ini
    near learns
    says "best possible 0."
}

# What all ids share learns more slowly than rows.
rows_learn() {
    settings rows-learn run.steps=1000 $on model.embed=4 model.rows=16 model.demand=yes optimizer.lr=0.5 \
        "optimizer.groups=*: lr=0.003" eval.every=1000
    expect 0 "$bin" base.ini rows-learn.ini
    near rows-learn
}

learn() {
    learns
    rows_learn
}

try dense_as_pytorch
try rows_as_pytorch
try fp32
try sixteen_bits
try rows_any_layout
try dense_killed
try rows_killed
try begins_with_the_mean
try evaluates_a_set
try refused
try learn
finish
