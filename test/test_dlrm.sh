#!/bin/sh
# test/test_dlrm.sh: clicks from the outside, with ./lockstep or the binary that LOCKSTEP_BIN names: DLRM has PyTorch's
# losses and AUC on lines of Criteo's form, the same bits on ranks that share data and stages and after a stop, and what
# is not supported is refused in words. LAYOUTS=every: in every layout, and what can be learnt is learnt
# (test/check_dlrm.sh).
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/trained.sh"
. "$top/test/support/dealt.sh"

ini >base.ini <<END
run steps=4
device backend=cpu threads=1
model type=dlrm rows=5 embed=4 bottom=6 top=8
data train=data/c-train-*.bin val=data/c-val-*.bin
pack clicks=criteo input=$top/test/golden/dlrm.tsv output=data/c val_fraction=0.2
batch global=12 micro=3 lanes=4
optimizer lr=0.01 weight_decay=0
checkpoint every=0
log every=1 hash_every=1
END
expect 0 "$bin" pack base.ini
says "packed  80 records of 13 numbers and 26 ids into 2 shards" "of them clicks"

# A recipe of PyTorch's read the same lines: test/golden/make_dlrm.py.
as_pytorch() {
    settings golden run.steps=20 model.init_from="$top/test/golden/dlrm-weights.safetensors" pack.val_fraction=0 \
        pack.output=data/g "data.train=data/g-train-*.bin" "data.val=data/g-train-*.bin" data.shuffle=no \
        batch.global=4 batch.micro=2 batch.lanes=2 schedule.type=constant schedule.warmup=-1 eval.every=20
    expect 0 "$bin" pack base.ini golden.ini
    expect 0 "$bin" base.ini golden.ini
    sed -n 's/^{"t":"step","step":[0-9]*,"loss":\([^,]*\),.*/\1/p' runs/golden/log.jsonl >found
    sed -n 's/^{"t":"eval","step":20,"loss":\([^,]*\),"accuracy":[^,]*,"auc":\([^,]*\),.*/\1 \2/p' \
        runs/golden/log.jsonl >>found
    grep -v '^#' "$top/test/golden/dlrm.txt" | tr ' ' '\n' >wanted
    tr ' ' '\n' <found | paste -d ' ' - wanted |
        awk '{ n += $1 > 0 && ($1 - $2) ^ 2 < 1e-12 } END { exit n != 22 }' ||
        fail "20 losses, and a loss and an AUC: $(tr ' ' '\n' <found | paste -d ' ' - wanted | tr '\n' ';')"
    grep -q '"eval_auc":0.94' runs/golden/status.json || fail "no auc in status.json"
}

resumed() {
    on="schedule.decay_steps=4 schedule.warmup=1"
    trained one $on
    trained again $on run.steps=2
    settings again $on device.ranks=2 parallel.zero=3
    expect 0 timeout 100 "$bin" base.ini again.ini
    hashes again >again.hashes
    same one.hashes again.hashes "the hashes of a run that was stopped, and went on with 2 ranks"
}

figure=auc
fp32() {
    any_layout
    resumed
}
sixteen_bits() { any_layout precision.compute=bf16 precision.rounding=stochastic; }

# --- rows on demand ---------------------------------------------------------------------------------------------------

# A recipe of PyTorch's begins with the same values and reads the same lines: test/golden/make_rows.py. Rows of one
# number have its sparse AdaGrad.
rows_as_pytorch() {
    for which in "one 1 0" "several 4 1"; do
        set -- $which
        settings "rows-$1" run.steps=20 run.seed=3 model.demand=yes model.embed=$2 optimizer.grad_clip=$3 \
            optimizer.lr=0.05 pack.val_fraction=0 pack.output=data/g "data.train=data/g-train-*.bin" \
            "data.val=data/g-train-*.bin" data.shuffle=no batch.global=4 batch.micro=2 batch.lanes=2 \
            schedule.type=constant schedule.warmup=-1 eval.every=20
        [ -e data/g-train-00000.bin ] || expect 0 "$bin" pack base.ini "rows-$1.ini"
        expect 0 "$bin" base.ini "rows-$1.ini"
        sed -n 's/^{"t":"step","step":[0-9]*,"loss":\([^,]*\),.*/\1/p; s/^{"t":"eval","step":20,"loss":\([^,]*\),.*/\1/p' \
            "runs/rows-$1/log.jsonl" >found
        sed -n "s/^$1 //p" "$top/test/golden/dlrm-rows.txt" | paste -d ' ' - found |
            awk '{ n += $1 > 0 && ($1 - $2) ^ 2 < 1e-12 } END { exit n != 21 }' ||
            fail "21 losses of rows of $2: $(tr '\n' ' ' <found)"
    done
}

rows_any_layout() {
    cold=yes rows=_rows any_layout model.demand=yes batch.micro=1
    for run in on-cold on-4-cold; do
        cold=$(sed -n 's/^{"t":"step","step":4,.*"rows":\([0-9]*\),"cold_rows":\([0-9]*\).*/\1 \2/p' "runs/$run/log.jsonl")
        [ "${cold#* }" -gt $((${cold% *} / 2)) ] || fail "$run: $cold rows, and of them in files"
        grep -q "^{\"t\":\"step\",\"step\":4,.*\"rows\":${cold% *}[,}]" runs/one/log.jsonl ||
            fail "$run has ${cold% *} rows, and one rank: $(grep '"step":4,' runs/one/log.jsonl)"
        grep -q "\"rows\":${cold% *},\"cold_rows\":${cold#* }[,}]" "runs/$run/status.json" ||
            fail "status.json: $(cat "runs/$run/status.json")"
        grep -q "^lockstep_cold_rows ${cold#* }$" "$run.prom" || fail "metrics: $(grep rows "$run.prom")"
    done
}

# A step that is skipped makes no rows. Ranks are killed when files of the second checkpoint are written, and go on from
# the first one.
rows_killed() {
    on="model.demand=yes checkpoint.every=1 run.faults="
    trained one ${on}nan@2
    trained again ${on}nan@2 device.ranks=3 parallel.zero=1
    same one.hashes again.hashes "the hashes of a run with a skipped step, on one rank and on three"
    [ "$(sed -n 's/^1 //p' one.hashes)" = "$(sed -n 's/^2 //p' one.hashes)" ] || fail "a skipped step has changed rows"
    sed -n 's/^{"t":"step",.*"skipped":\([a-z]*\),.*"rows":\([0-9]*\).*/\1 \2/p' runs/one/log.jsonl >made
    awk '{ r[NR] = $2 } NR == 2 && $1 != "true" { exit bad = 1 }
         END { exit bad || !(NR == 4 && r[1] > 0 && r[1] == r[2] && r[2] < r[3]) }' made ||
        fail "rows after each step: $(tr '\n' ';' <made)"
    trained one $on
    rm -rf runs/again
    settings again ${on}save@6:1 device.ranks=3 parallel.zero=3
    timeout 100 "$bin" base.ini again.ini >"$out" 2>&1 && fail "no rank was killed"
    [ -e runs/again/ckpt/step-00000001 ] || fail "the first checkpoint is gone"
    [ ! -e runs/again/ckpt/step-00000003 ] || fail "the run went on"
    settings again $on device.ranks=2
    expect 0 timeout 100 "$bin" base.ini again.ini
    hashes again >again.hashes
    same one.hashes again.hashes "the hashes of a run that was killed and went on with 2 ranks"
}

# Servers own as many rows as of the rest of the state: all of them, or what their weight leaves the others. Such a run is
# stopped, and goes on without servers, and with others; only who owns rows has a file of them.
rows_on_servers() {
    on="model.demand=yes schedule.decay_steps=4 schedule.warmup=1"
    trained one $on
    least=2 trained again $on run.steps=1 device.ranks=3 parallel.zero=1 server.count=1
    for weight in "0 servers" "0.5 ranks by \[server\] weight"; do
        "$bin" plan base.ini again.ini -o server.weight="${weight%% *}" | grep -q "^rows .* divided among the ${weight#* };" ||
            fail "plan: who owns rows with a weight of ${weight%% *}"
    done
    ls runs/again/ckpt/step-00000001 | grep -c '^table' | grep -qx 1 || fail "one server: $(ls runs/again/ckpt/*)"
    settings again $on run.steps=2 device.ranks=2 parallel.zero=2
    expect 0 timeout 100 "$bin" base.ini again.ini
    settings again $on run.steps=3 device.ranks=4 parallel.zero=3 server.count=2 server.weight=0.5
    expect 0 timeout 100 "$bin" base.ini again.ini
    of=$(sed -n 's/^ *"buckets": \([0-9]*\),$/\1/p' runs/again/ckpt/step-00000003/manifest.json)
    [ "$(echo $of)" = "682 683 1365 1366" ] || fail "of 4,096 buckets shares of 1, 1, 2, 2 of 6 are $(echo $of)"
    settings again $on device.ranks=3 parallel.zero=1 server.count=2
    expect 0 timeout 100 "$bin" base.ini again.ini
    hashes again >again.hashes
    same one.hashes again.hashes "the hashes of a run whose servers come and go"
}

# Of two machines each has the rows of its own rank, and the manifest says where they are.
rows_of_two_machines() {
    on="model.demand=yes parallel.zero=1"
    trained one $on
    head -c 32 /dev/urandom >secret
    near 1 1
    settings machines $on cluster.nodes="$list" cluster.port=$port
    boot machines
    ended 0
    at=$(ls -d node0/runs/machines/ckpt/step-*)
    [ "$(sed -n 's/^ "hash": "\(.*\)",/hash \1 /p; s/^ "state_hash": "\(.*\)",/ state_hash \1/p' "$at/manifest.json" |
        tr -d '\n')" = "$(tail -n 1 one.hashes)" ] || fail "two machines: $(grep hash "$at/manifest.json")"
    for k in 0 1; do
        [ "$(grep -A2 "\"name\": \"table-0000$k" "$at/manifest.json" | tail -n 1)" = \
            "   \"host\": \"$(host $k)\"," ] || fail "the rows of rank $k are said to be elsewhere"
        [ -s node$k/runs/machines/ckpt/step-*/table-0000$k-of-00002.safetensors ] ||
            fail "the rows of rank $k are not on its machine"
    done
}

# Where the first step is skipped, no rank has a row when it is saved, and there is no file of any.
rows_of_none() {
    on="model.demand=yes checkpoint.every=1 schedule.decay_steps=4 schedule.warmup=1 run.faults="
    trained one ${on}nan@1
    least=2 trained again ${on}nan@1 run.steps=1 device.ranks=3 parallel.zero=1
    [ "$(ls runs/again/ckpt/step-00000001 | grep -c table)" -eq 0 ] || fail "$(ls runs/again/ckpt/step-00000001)"
    settings again $on device.ranks=2 parallel.zero=1
    expect 0 timeout 100 "$bin" base.ini again.ini
    hashes again >again.hashes
    says "  dlrm 26 tables of rows of 4 on demand 0.0 M"
    same one.hashes again.hashes "the hashes of a run that went on without any row"
}

# Three ranks begin, two go on; then the newest rows are damaged, and one rank goes on from those before.
rows_resumed() {
    on="model.demand=yes schedule.decay_steps=4 schedule.warmup=1"
    trained one $on
    least=2 trained again $on run.steps=2 eval.every=1 device.ranks=3 parallel.zero=2
    settings again $on device.ranks=2 parallel.zero=3
    expect 0 timeout 100 "$bin" base.ini again.ini
    hashes again >again.hashes
    same one.hashes again.hashes "the hashes of a run of 3 ranks that went on with 2"
    tail -n 1 again.hashes | grep -q "^hash $(sed -n 's/^4 //p' again.hashes) " || fail "a checkpoint has another hash"
    for n in 1 3; do
        settings one $on device.ranks=$n
        expect 0 "$bin" eval base.ini one.ini
        cp "$out" "evaluated.$n"
    done
    same evaluated.1 evaluated.3 "evaluations on one rank and on three"
    file=$(ls runs/again/ckpt/step-00000004/table-*-of-00002.safetensors | tail -n 1)
    size=$(wc -c <"$file")
    printf '\377' | dd of="$file" bs=1 seek=$((size - 9)) conv=notrunc status=none
    expect 65 "$bin" hash runs/again/ckpt/step-00000004
    says "${file##*/}: the rows of buckets 2048 to 4095 have another digest"
    settings again $on device.ranks=1
    expect 0 timeout 100 "$bin" base.ini again.ini
    grep -q '"damaged".*table-00001-of-00002' runs/again/events.jsonl || fail "the damage is in no event"
    hashes again >again.hashes
    same one.hashes again.hashes "the hashes after damage"
    expect 0 "$bin" fork runs/again other
    expect 0 "$bin" hash runs/other
    settings dense model.demand=no
    expect 78 "$bin" eval base.ini dense.ini -o run.name=again
    says "tables.weight"
}

in_files() {
    on="model.demand=yes checkpoint.every=1 batch.micro=1" files="model.demand_mb=0.001 parallel.offload_dir=disk/of"
}

# Most rows are in files, in a directory that is made for them; a rank is killed in an update, three go on, and then two
# whose rows are all in memory. No file is left.
rows_in_files() {
    in_files
    trained one $on
    rm -rf runs/again
    settings again $on $files device.ranks=2 parallel.zero=1 run.faults=update@6:1
    timeout 100 "$bin" base.ini again.ini >"$out" 2>&1 && fail "no rank was killed"
    [ "$(ls runs/again/ckpt)" ] || fail "there is no checkpoint to go on from"
    [ ! -e runs/again/ckpt/step-00000003 ] || fail "the run went on"
    settings again $on $files device.ranks=3 run.steps=3 schedule.decay_steps=4
    expect 0 timeout 100 "$bin" base.ini again.ini
    settings again $on device.ranks=2 schedule.decay_steps=4
    expect 0 timeout 100 "$bin" base.ini again.ini
    hashes again >again.hashes
    same one.hashes again.hashes "the hashes of a run that was killed, and went on with rows in files and in memory"
    [ -z "$(ls disk/of)" ] || fail "files are left: $(ls disk/of)"
    grep -q '"cold_rows":[1-9]' runs/again/log.jsonl || fail "no row was in a file"
}

# What a disk does to the rows of rank 1 ends the run, names file, slot and row, and the newest checkpoint stands: in
# step 2, in its hash, in its checkpoint.
rows_lost() {
    in_files
    trained one $on
    while read -r fault code says; do
        rm -rf runs/lost
        settings lost $on $files device.ranks=2 run.faults="$fault"
        expect "$code" timeout 100 "$bin" base.ini lost.ini
        says "disk/of/rows-of-rank-1" "slot " ", id " " of table " "$says"
        [ -e runs/lost/ckpt/step-00000001 ] || fail "$fault: there is no checkpoint"
        [ ! -e runs/lost/ckpt/step-00000004 ] || fail "$fault: the run went on"
        ! grep '"checkpoint_failed"' runs/lost/events.jsonl | grep -v rows-of-rank-1 || fail "$fault: another cause"
        sed -n 's/^{"t":"step","step":\([0-9]*\),.*"hash":"\([0-9a-f]*\)".*/\1 \2/p' runs/lost/log.jsonl >said
        ! grep -vxFf one.hashes said || fail "$fault: the log has a hash of no state"
        ! grep "compare what ranks hold" runs/lost/events.jsonl || fail "$fault: one rank waited for the other"
        settings lost $on $files device.ranks=2
        expect 0 timeout 100 "$bin" base.ini lost.ini
        hashes lost >lost.hashes
        same one.hashes lost.hashes "the hashes of a run that went on after $fault"
    done <<'FAULTS'
spill_read@470:1 74 Input/output error
spill_read@625:1 74 Input/output error
spill_read@900:1 74 Input/output error
spill_write@200:1 74 No space left on device
spill_flip@200x40:1 65 the disk did not return what was written last
FAULTS
}

# A rank's file has more rows than are read or written at a time, and what is read is what was saved. `rows` of such
# tables is no number of rows: it may be as large as no table of a row for each of them.
rows_in_pieces() {
    settings many pack.clicks=planted pack.input=planted:1:700:10000 pack.val_fraction=0 pack.output=data/m
    expect 0 "$bin" pack base.ini many.ini
    on="model.demand=yes model.rows=90000000 data.train=data/m-train-*.bin data.val= batch.global=360 batch.micro=90
        schedule.decay_steps=3 schedule.warmup=1"
    least=2 trained one $on run.steps=2
    [ "$(sed -n 's/^{"t":"step","step":1,.*"rows":\([0-9]*\).*/\1/p' runs/one/log.jsonl)" -gt 4096 ] ||
        fail "there are too few rows: $(cat runs/one/log.jsonl)"
    least=2 trained again $on run.steps=1
    settings again $on run.steps=2
    expect 0 timeout 100 "$bin" base.ini again.ini
    hashes again >again.hashes
    same one.hashes again.hashes "the hashes of a run that went on with thousands of rows"
}

# Tables that are frozen have no gradient, and the others learn as beside tables whose rate moves no bit.
frozen_tables() {
    still="optimizer.grad_clip=0 schedule.decay_steps=4 schedule.warmup=1"
    trained zero $still "optimizer.groups=tables.*: lr=1e-20"
    trained one $still "optimizer.groups=tables.*: frozen"
    trained again $still "optimizer.groups=tables.*: frozen" device.ranks=3 parallel.zero=1
    same one.hashes again.hashes "the hashes with frozen tables on one rank and on three"
    for run in zero one; do
        sed -n 's/^{"t":"step","step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "runs/$run/log.jsonl" >"$run.losses"
    done
    [ "$(wc -l <one.losses)" -eq 4 ] || fail "losses: $(cat one.losses)"
    same zero.losses one.losses "the losses with tables whose rate moves no bit, and with frozen ones"
}

evaluates() {
    trained one
    says "  dlrm 26 tables of 5 rows of 4 0.0 M parameters"
    expect 0 "$bin" eval base.ini one.ini
    says "  auc 0." "samples"
    cp "$out" wanted
    settings one device.ranks=2 parallel.zero=2
    expect 0 "$bin" eval base.ini one.ini
    same wanted "$out" "evaluations on one rank and on two"
}

# Each evaluation counts its own samples; and what is no number has no area, and no sign.
area_of_each() {
    trained one eval.every=2
    figures one | sed -n 's/^"step":4,"loss":\([^,]*\),.*"auc":\([^,]*\),.*/\1 \2/p' >logged
    expect 0 "$bin" eval base.ini one.ini --ckpt runs/one/ckpt/step-00000004
    sed -n 's/^step 4  loss \([0-9.]*\) .* auc \([0-9.]*\) .*/\1 \2/p' "$out" | paste -d ' ' logged - |
        awk '{ n += ($1 - $3) ^ 2 < 1e-11 && ($2 - $4) ^ 2 < 1e-11 } END { exit n != 1 }' ||
        fail "the second evaluation has $(cat logged)"
    cp "$top/test/golden/dlrm-weights.safetensors" nan.safetensors
    head=$(od -An -t u8 -N 8 nan.safetensors | tr -d ' ')
    head -c $(($(size nan.safetensors) - head - 8)) /dev/zero | tr '\0' '\377' |
        dd of=nan.safetensors bs=4096 oflag=seek_bytes seek=$((head + 8)) conv=notrunc 2>"$out"
    settings nan model.init_from=nan.safetensors
    expect 0 "$bin" eval base.ini nan.ini
    says "  loss nan  " "  auc nan  "
}

# Of planted clicks it is known how low the loss can be: as `pack` said of the validation records, and of no named set.
says_what_is_possible() {
    settings known pack.clicks=planted pack.input=planted:1:2000:4 pack.val_fraction=0.2 pack.output=data/k \
        "data.train=data/k-train-*.bin" "data.val=data/k-val-*.bin" \
        'eval.sets=same: data/k-val-*.bin, other: data/k-train-*.bin'
    expect 0 "$bin" pack base.ini known.ini
    best=
    for split in train val; do
        expect 0 "$bin" data info data/k-$split-00000.bin
        best="$best $(sed -n 's/.*, best possible loss \([0-9.]*\)$/\1/p' "$out")"
    done
    set -- $best
    [ $# -eq 2 ] && [ "$1" != "$2" ] || fail "the best possible losses are $best"
    expect 0 "$bin" base.ini known.ini
    expect 0 "$bin" eval base.ini known.ini
    [ "$(wc -l <"$out")" -eq 3 ] || fail "expected a line for the validation data and for each set"
    said=$(grep -v '  set ' "$out" | sed -n 's/.*  best possible \([0-9.]*\) .*/\1/p')
    awk -v said="$said" -v best="$2" 'BEGIN { exit !((said - best) ^ 2 <= 0.00005 ^ 2) }' ||
        fail "expected best possible $2 of the validation records"
    ! grep '  set ' "$out" | grep -q "best possible" || fail "it says what is possible on a named set"
    grep '  set same  ' "$out" | sed 's/set same  //' >same
    grep -v '  set ' "$out" | sed 's/  best possible [0-9.]*//' >whole
    same whole same "the figures of records as validation data and as a named set"
}

refused() {
    settings refused model.demand=yes model.demand_mb=0.0001
    for verb in "" plan; do
        expect 78 timeout 100 "$bin" $verb base.ini refused.ini
        says "[model] demand_mb: 100 bytes don't hold a row of 4 and what moves rows: expected at least 0.000"
    done
    settings refused model.demand=yes model.demand_mb=1000000000 # what rows may take counts before they are there
    expect 78 timeout 100 "$bin" base.ini refused.ini
    says "this run needs 1000000.0 GB of memory, and "
    while IFS='|' read -r set says; do  # set: as for a shell
        eval "settings refused $set"
        expect 78 "$bin" check base.ini refused.ini
        says "$says"
    done <<'ROWS'
model.tables=25|set [model] dense = 13 and tables = 26
model.dense=12|set [model] dense = 13 and tables = 26
model.demand=yes precision.compute=bf16|rows on demand are FP32. Nearest that work: [precision] compute = fp32
model.demand=yes parallel.pipeline=2 device.ranks=2|its first block to its last. Nearest that work: [parallel] pipeline = 1
model.demand=yes parallel.offload=host|in host memory already. Nearest that work: [parallel] offload = none
model.demand=yes parallel.balance=auto device.ranks=2|that a run begins with. Nearest that work: [parallel] balance = none
model.demand=yes server.count=1 server.mode=async parallel.zero=1 device.ranks=2|servers that wait for all lanes. Nearest that work: [server] mode = sync
model.demand=yes outer.islands=2 device.ranks=2|no mean is taken of them. Nearest that work: [outer] islands = 1
model.demand=yes reduce.compress=int8|few of them anyway. Nearest that work: [reduce] compress = none
model.demand=yes reduce.order=any|added along the tree of lanes. Nearest that work: [reduce] order = fixed
model.demand=yes checkpoint.async=yes|not from a copy. Nearest that work: [checkpoint] async = no
model.demand=yes checkpoint.compress=zstd|saved as they are. Nearest that work: [checkpoint] compress = none
model.demand=yes optimizer.ema=0.9|no mean beside them. Nearest that work: [optimizer] ema = 0
model.demand=yes model.init_from=x|leave out [model] init_from
model.demand=yes device.backend=cuda|set [device] backend = cpu
model.demand_mb=5|and this model has none. Nearest that works: [model] demand_mb = 0
model.rows=90000000|expected rows of at most 82595524
'model.bottom=6 x'|expected at most 10 widths from 1 to 1048576
model.top=0|expected at most 10 widths from 1 to 1048576
model.top=1048577|expected at most 10 widths from 1 to 1048576
'model.top=1 2 3 4 5 6 7 8 9 10 11'|found `1 2 3 4 5 6 7 8 9 10 11` at `11`
parallel.slices=2|the layers of a dlrm can't be divided: expected slices = 1, found 2
ROWS
    printf '[model]\ntype = mlp\n[data]\ntrain = data/c-train-*.bin\nval =\n' >mlp.ini
    expect 78 "$bin" check mlp.ini
    says 'the model reads `pixels`, and the samples of these files have label and dense'
    printf '0\t1\n' >bad.tsv
    settings refused pack.input=bad.tsv
    expect 65 "$bin" pack base.ini refused.ini
    says "bad.tsv: line 1: 2 columns with tabs between, expected 40"
}

# The planted model's own loss on the same records is what a trained one is compared with.
learns() {
    settings learns run.steps=1600 model.bottom= model.top= pack.clicks=planted \
        pack.input=planted:1:900000:4 pack.val_fraction=0.05 pack.output=data/p "data.train=data/p-train-*.bin" \
        "data.val=data/p-val-*.bin" batch.global=512 batch.micro=256 batch.lanes=2 optimizer.lr=0.02 schedule.type=linear \
        schedule.final_fraction=0.01 optimizer.grad_clip=0 log.every=1600 log.hash_every=0 eval.every=1600
    expect 0 "$bin" pack base.ini learns.ini
    says "loss of the planted model 0."
    expect 0 "$bin" base.ini learns.ini
    sed -n 's/^{"t":"eval".*"loss":\([^,]*\),.*"possible":\([^,]*\),.*/\1 \2/p' runs/learns/log.jsonl >last
    awk '{ good = $1 > 0 && $1 < 1.01 * $2 } END { exit !good }' last || fail "loss and the planted model's: $(cat last)"
}

try as_pytorch
try fp32
try sixteen_bits
try rows_as_pytorch
try rows_any_layout
try rows_killed
try rows_on_servers
try rows_of_two_machines
try rows_of_none
try rows_resumed
try rows_in_files
try rows_in_pieces
try rows_lost
try frozen_tables
try evaluates
try area_of_each
try says_what_is_possible
try refused
[ "${LAYOUTS:-some}" = some ] || try learns
finish
