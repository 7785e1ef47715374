#!/bin/sh
# test/test_runs.sh: the three promises, from the outside. Whatever happens to a run of ./lockstep, or to a copy of the
# binary named by LOCKSTEP_BIN: killed, stopped, out of disk, damaged, on another number of threads, on another vector
# width: the log has the same steps, losses and hashes as that of a run to which nothing happened.
. test/support/runs.sh

# A number below $1, from a seed that is always the same; in $rolled. Starts no process.
seed=20
roll() {
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    rolled=$((seed / 65536 % $1))
}
doze() { sleep "$(printf '0.%03d' "$1")"; }

# --- two runs ---------------------------------------------------------------------------------------------------------

settings ref
two_runs_are_the_same() {
    expect 0 train ref
    says "step    1/250" "done    250 steps"
    steps ref | awk '$1 != NR || $3 !~ /^[0-9a-f]+$/ || length($3) != 16 { bad = 1 } END { exit bad || NR != 250 }' ||
        fail "the log does not hold steps 1 to 250 with a hash each"
    [ "$(steps ref | awk '{ print $3 }' | sort -u | wc -l)" -eq 250 ] ||
        fail "the weights did not change with every step"
    steps ref | awk 'NR == 1 { a = $2 } NR == 250 { exit !($2 < a - 1) }' || fail "the loss did not fall"
    settings ref2 run.dir=elsewhere device.threads=1
    expect 0 train ref2
    mv elsewhere/ref2 runs/ref2
    like ref ref2
}

# --- killed -----------------------------------------------------------------------------------------------------------

# A checkpoint of step $2 or later is being written or removed right now.
is_saving() {
    for each in runs/"$1"/ckpt/.tmp-step-*; do
        [ -e "$each" ] && [ $((1${each##*step-} - 100000000)) -ge "$2" ] && return 0
    done
    return 1
}

is_saving_or_done() { is_saving "$@" || has_saved killed 250; }

# A quarter of the kills falls anywhere after the start, half is aimed at a checkpoint, a quarter at what lies between
# two.
wait_for_the_moment() {
    saved killed
    roll 2
    aim=$((newest + 5 + 5 * rolled))
    [ $aim -le 250 ] || aim=250
    case $(($1 % 4)) in
    0) roll 90 ;;
    1 | 2) until_true 20 is_saving_or_done killed $aim && roll 30 ;;
    3) until_true 20 has_saved killed $aim && roll 60 ;;
    esac
    [ $rolled -lt 4 ] || doze $rolled
}

# The run came to its end between two kills, whether or not someone was still aiming at it.
killed_run_is_whole() {
    like ref killed
    same_steps ref killed
    [ "$(grep -c '"kind":"resume"' runs/killed/events.jsonl)" -le "$1" ] || fail "more resumes than starts"
    event killed resume "continuing after step"
}

# Twenty kills that hit. A machine that is done before they are used up starts again from nothing.
killed_twenty_times() {
    settings killed
    inside=0 early=0 hits=0 starts=0 rounds=1
    while [ $hits -lt 20 ]; do
        starts=$((starts + 1))
        start "$bin" base.ini killed.ini
        wait_for_the_moment $hits
        kill -9 "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
        got=$? pid=
        mv "$out.started" "$out"
        if [ $got -eq 0 ] && [ $rounds -lt 5 ]; then
            killed_run_is_whole $starts
            rm -rf runs/killed
            rounds=$((rounds + 1)) starts=0
            continue
        fi
        [ $got -eq 137 ] || fail "after $hits kills the run ended by itself with $got"
        hits=$((hits + 1))
        is_saving killed 0 && inside=$((inside + 1))
        saved killed
        [ "$newest" -gt 0 ] || early=$((early + 1))
    done
    echo "info: of 20 kills $inside fell into a checkpoint, $early came before the first one; $rounds round(s), the last left step $newest of 250"
    expect 0 train killed
    killed_run_is_whole $((starts + 1))
}

# --- stopped ----------------------------------------------------------------------------------------------------------

# No checkpoint is due here: what continues is what the stop has saved.
stopped_by_signals() {
    set -- checkpoint.every=100000 checkpoint.keep_best=no schedule.type=constant schedule.decay_steps=0 eval.every=0
    settings stopped run.steps=100000 "$@"
    before=0
    for signal in TERM INT; do
        start "$bin" base.ini stopped.ini
        until_true 20 has_logged stopped $((before + 3))
        kill -$signal "$pid"
        await 75
        says "stopped after step" "on request"
        saved stopped
        [ "$newest" -gt $before ] || fail "SIG$signal: step $newest is saved, expected one after $before"
        [ "$newest" -eq "$(last_step stopped)" ] || fail "SIG$signal: step $newest is saved, the last finished one is $(last_step stopped)"
        [ "$(steps stopped | wc -l)" -eq "$newest" ] ||
            fail "SIG$signal: $newest steps, $(steps stopped | wc -l) records"
        event stopped stop "saved step $newest"
        before=$newest
    done
    last=$((before + 10))
    settings stopped run.steps=$last "$@"
    settings not-stopped run.steps=$last "$@"
    expect 0 train stopped
    expect 0 train not-stopped
    like not-stopped stopped
    steps stopped | awk '$1 != NR { exit 1 }' || fail "a step is missing, or was done twice"
}

# Every step is evaluated, writes a sample and is saved. A stop saves it before and after these, and the log has one
# record of it.
stopped_where_all_is_due() {
    set -- schedule.type=constant schedule.decay_steps=0 checkpoint.every=1 eval.every=1 eval.batches=2 sample.every=1 \
        sample.tokens=5
    settings due run.steps=100000 "$@"
    start "$bin" base.ini due.ini
    until_true 20 has_logged due 3
    kill -TERM "$pid"
    await 75
    last=$(($(last_step due) + 2))
    settings due run.steps=$last "$@"
    settings not-due run.steps=$last "$@"
    expect 0 train due
    expect 0 train not-due
    like not-due due
}

# A sample long enough to be caught in the middle of; step 5 is saved, step 10 not yet.
stopped_twice() {
    settings twice run.steps=20 sample.every=10 sample.tokens=1000000
    start "$bin" base.ini twice.ini
    until_true 20 has_logged twice 10
    kill -TERM "$pid"
    doze 200
    kill -0 "$pid" 2>/dev/null || fail "one SIGTERM was enough: nothing is left to test"
    kill -TERM "$pid"
    from=$(date +%s)
    await 75
    [ $(($(date +%s) - from)) -le 2 ] || fail "the second SIGTERM took $(($(date +%s) - from)) s"
    saved twice
    [ "$newest" -eq 5 ] || fail "step $newest is the newest checkpoint, expected 5"
    settings twice run.steps=20
    settings once run.steps=20
    expect 0 train twice
    expect 0 train once
    event twice resume "after step 5 of 20"
    like once twice
    settings twice run.steps=20
    cp runs/twice/log.jsonl log.before
    expect 0 train twice
    says "done    20 steps"
    like once twice
    # Only the record of the last checkpoint is written anew, with another time.
    grep -v '"t":"checkpoint","step":20,' log.before >log.want
    grep -v '"t":"checkpoint","step":20,' runs/twice/log.jsonl >log.found
    same log.want log.found "the log before and after running a complete run again:"
}

# The signal comes while a sample is written, before the last step and after it: either way nothing is left to continue.
stopped_when_complete() {
    for seen in 5 6; do
        settings complete$seen run.steps=6 sample.every=5 sample.tokens=4000
        start "$bin" base.ini complete$seen.ini
        until_true 20 has_logged complete$seen $seen
        kill -TERM "$pid"
        await 0
        saved complete$seen
        [ "$newest" -eq 6 ] || fail "step $newest is the newest checkpoint, expected 6"
        ! has_event complete$seen stop || fail "it says that it was stopped"
    done
}

# --- same bits --------------------------------------------------------------------------------------------------------

same_bits_fp32_portable() { same_width fp32 portable; }
same_bits_fp32_avx2() { same_width fp32 avx2; }
same_bits_fp32_avx512() { same_width fp32 avx512; }
same_bits_fp32_neon() { same_width fp32 neon; }

# The other way round: these must change the bits, or the comparisons above compare nothing.
other_bits() {
    n=0
    for change in run.seed=2 model.dropout=0.2 batch.lanes=1 data.shuffle=no optimizer.lr=0.002 \
        precision.compute=fp16; do
        settings other$n $odd
        printf "[%s]\n%s\n" "${change%%.*}" "${change#*.}" >change.ini
        expect 0 "$bin" base.ini other$n.ini change.ini
        steps other$n | tail -n 1 >>ends
        n=$((n + 1))
    done
    steps fp32-portable-1 | tail -n 1 >>ends
    [ "$(sort -u ends | wc -l)" -eq $((n + 1)) ] || fail "two of these runs end in the same hash: $(cat ends)"
}

same_bits_for_any_shards() {
    n=0
    for pack in "pack.compress=yes" "pack.shard_tokens=7777" "pack.compress=yes pack.shard_tokens=9999"; do
        settings pack $pack pack.output=data/$n
        expect 0 "$bin" pack base.ini pack.ini
        for prefetch in 2 64; do
            settings shards-$n-$prefetch $odd data.train="data/$n-train-*.bin" data.val="data/$n-val-*.bin" \
                data.prefetch=$prefetch eval.every=4
            expect 0 train shards-$n-$prefetch
            same_steps fp32-portable-1 shards-$n-$prefetch
            like shards-0-2 shards-$n-$prefetch
        done
        n=$((n + 1))
    done
}

# --- no room ----------------------------------------------------------------------------------------------------------

settings short run.steps=20 checkpoint.keep=1 checkpoint.keep_best=no
with_a_full_disk() {
    [ "$(id -u)" -eq 0 ] || skip "needs root, to mount a small tmpfs"
    mkdir -p "$mounted"
    mount -t tmpfs -o size=2m tmpfs "$mounted" 2>/dev/null || skip "can't mount a tmpfs here"
    settings full run.dir="$mounted" run.steps=20 checkpoint.keep=1 checkpoint.keep_best=no
    ln -s "$mounted/full" runs/full
    # room for the log and one checkpoint, not for the second
    one=$(du -sk runs/short/ckpt/step-* | awk '{ print $1 }')
    room=$(df -Pk "$mounted" | awk 'NR == 2 { print $4 }')
    dd if=/dev/zero of="$mounted/ours" bs=1k count=$((room - one - one / 2)) 2>/dev/null ||
        fail "the tmpfs has no room for a file of ours"
    expect 74 train full
    says "could not be written"
    event full checkpoint_failed "No space left"
    same_steps short full
    expect 0 "$bin" hash runs/full/ckpt/step-00000005
    # not a byte left, not even for the log: cutting it back to step 5 frees a page, and a hundred steps need more
    dd if=/dev/zero of="$mounted/more" bs=1k count=4096 2>/dev/null
    settings full run.dir="$mounted" run.steps=100 checkpoint.keep=1 checkpoint.keep_best=no
    expect 74 train full
    says "log_failed: record not written" "No space left"
    last=$(last_step full)
    [ "${last:-0}" -lt 100 ] || fail "the log has all of the hundred steps"
    [ "$(tail -c 2 runs/full/log.jsonl)" = "}" ] || fail "it ends in half a record: $(tail -n 1 runs/full/log.jsonl)"
    settings full run.dir="$mounted" run.steps=20 checkpoint.keep=1 checkpoint.keep_best=no
    expect 0 "$bin" hash runs/full/ckpt/step-00000005
    rm "$mounted/more" "$mounted/ours"
    expect 0 train full
    like short full
    umount "$mounted" || fail "can't unmount $mounted"
}

# faulty FAULTS: a run of 20 steps with them; it may say that its last checkpoint is missing, and the same command
# without them makes it whole.
faulty() {
    rm -rf runs/faulty
    settings faulty run.steps=20 checkpoint.keep=1 checkpoint.keep_best=no run.faults="$1"
    train faulty >"$out" 2>&1
    got=$?
    [ $got -eq 0 ] || [ $got -eq 74 ] || fail "faults = $1: exit status $got"
    same_steps short faulty
    event faulty checkpoint_failed "runs/faulty"
    saved faulty
    [ $got -eq 0 ] && [ "$newest" -ne 20 ] && fail "faults = $1: exit status 0, and step $newest is the newest checkpoint"
    [ $got -eq 74 ] && [ "$newest" -eq 20 ] && fail "faults = $1: exit status 74, and step 20 is saved"
    settings faulty run.steps=20 checkpoint.keep=1 checkpoint.keep_best=no
    expect 0 train faulty
    same_state short faulty
    same_steps short faulty
}

# Without privileges: the same code sees the same errors at chosen moments.
with_rehearsed_failures() {
    for faults in write@1 write@2 write@30 write@50 write@90 sync@1 sync@2 sync@4 sync@5 sync@6 rename@1 rename@2 \
        flip@1 flip@30; do
        faulty $faults
        has_saved faulty 20 || fail "faults = $faults"
    done
    faulty write@1x1000000
    faulty sync@10x1000000
    faulty rename@3x1000000
    faulty write@150x1000000
}

reads_are_tried_again() {
    settings reads run.steps=20 checkpoint.keep=1 checkpoint.keep_best=no run.faults=read@10x3
    expect 0 train reads
    like short reads
    settings reads2 run.steps=20 run.faults=read@40x100000 data.retry=2
    expect 74 train reads2
    says "plain-train-00000.bin" "offset"
}

# --- damaged ----------------------------------------------------------------------------------------------------------

settings whole run.steps=20 checkpoint.keep_best=no
damaged() {
    rm -rf runs/damaged
    cp -RP runs/whole runs/damaged
    settings damaged run.steps=20 checkpoint.keep_best=no
    new=runs/damaged/ckpt/step-00000020
    old=runs/damaged/ckpt/step-00000015
}

# mended TEXT...: the newest checkpoint is refused for this reason, the one before it used, and the end is the same.
mended() {
    expect 0 train damaged
    event damaged damaged "$@"
    event damaged resume "after step 15 of 20"
    like whole damaged
}

damaged_tensor() {
    for file in model optimizer; do
        damaged
        # what the header says of the tensor that ends last, where the byte is flipped
        bytes=$(size $new/$file.safetensors)
        tensor=$(head -c 65536 $new/$file.safetensors | tr '}' '\n' |
            sed -n 's/^,*{*"\([^"]*\)":.*"data_offsets":\[[0-9]*,\([0-9]*\)\]$/\2 \1/p' |
            sort -n | tail -n 1 | sed 's/.* //')
        [ -n "$tensor" ] || fail "no tensor in the header of $file.safetensors"
        flip $new/$file.safetensors $((bytes - 1))
        mended $new/$file.safetensors "tensor $tensor " "damaged"
    done
}

damaged_files() {
    damaged
    flip $new/model.safetensors 20
    mended $new/model.safetensors
    damaged
    head -c $(($(size $new/manifest.json) / 2)) $new/manifest.json >cut
    cp cut $new/manifest.json
    mended $new/manifest.json
    damaged
    flip $new/manifest.json 100
    mended $new/manifest.json
    damaged
    head -c 1000 $new/optimizer.safetensors >cut
    cp cut $new/optimizer.safetensors
    mended $new/optimizer.safetensors
    damaged
    : >$new/model.safetensors
    mended $new/model.safetensors
    for file in model.safetensors optimizer.safetensors manifest.json; do
        damaged
        rm $new/$file
        mended $new/$file "missing"
    done
}

# What can't be read may be whole: an end that the unit tries again, with nothing to be moved away.
unreadable_both() {
    damaged
    cp -r $new $old .
    for dir in $new $old; do ln -sf manifest.json $dir/manifest.json; done
    expect 74 train damaged
    says "runs/damaged/ckpt: of 2 checkpoints 2 could not be read. " "leave it where it is"
    event damaged unreadable $new/manifest.json
    event damaged unreadable $old/manifest.json
    for dir in $new $old; do rm $dir/manifest.json && cp ${dir##*/}/manifest.json $dir; done
    expect 0 train damaged
    event damaged resume "after step 20 of 20"
}

damaged_both() {
    damaged
    cp runs/damaged/log.jsonl log.before
    flip $new/model.safetensors 9000
    rm $old/manifest.json
    expect 65 train damaged
    says "runs/damaged/ckpt" "none of its 2 checkpoints" "start from the beginning"
    event damaged damaged $new/model.safetensors
    event damaged damaged $old/manifest.json
    same log.before runs/damaged/log.jsonl "the log before and after a refused start:"
    rm -rf runs/damaged/ckpt
    expect 0 train damaged
    like whole damaged
}

# The shard that a byte was flipped in is first read at some later step.
damaged_data() {
    settings pack pack.shard_tokens=2000 pack.output=data/many
    expect 0 "$bin" pack base.ini pack.ini
    settings shard run.steps=20 checkpoint.every=100 checkpoint.keep_best=no data.train="data/many-train-*.bin"
    cp data/many-train-00007.bin good
    flip data/many-train-00007.bin $(($(size good) - 100))
    expect 65 train shard
    says "data/many-train-00007.bin" "offset"
    event shard failed "data/many-train-00007.bin" "offset"
    reached=$(last_step shard)
    saved shard
    [ "$newest" -eq "$reached" ] || fail "step $newest is saved, expected $reached, the last one before the damage"
    [ "${reached:-0}" -ge 1 ] && [ "${reached:-0}" -lt 20 ] ||
        fail "steps before the damage: ${reached:-0}, expected 1 to 19"
    cp good data/many-train-00007.bin
    expect 0 train shard
    settings unharmed run.steps=20 checkpoint.keep_best=no
    expect 0 train unharmed
    same_steps unharmed shard
}

# What can't be evaluated has been trained all the same.
damaged_validation_data() {
    settings val run.steps=25 checkpoint.every=100 checkpoint.keep_best=no data.val="data/val.bin"
    cp data/plain-val-00000.bin data/val.bin
    flip data/val.bin $(($(size data/val.bin) - 100))
    settings val run.steps=25 checkpoint.every=100 checkpoint.keep_best=no data.val="data/val.bin" eval.batches=0
    expect 65 train val
    says "data/val.bin" "offset"
    saved val
    [ "$newest" -eq 20 ] || fail "step $newest is saved, expected 20"
    cp data/plain-val-00000.bin data/val.bin
    expect 0 train val
    event val resume "after step 20 of 25"
}

# --- refused ----------------------------------------------------------------------------------------------------------

two_in_one_directory() {
    settings shared run.steps=100000 schedule.type=constant schedule.decay_steps=0
    start "$bin" base.ini shared.ini
    until_true 20 has_logged shared 1
    first=$pid
    from=$(date +%s)
    expect 69 train shared
    says "runs/shared: another process"
    [ $(($(date +%s) - from)) -le 2 ] || fail "the second one waited"
    kill -0 "$first" 2>/dev/null || fail "the first one is gone"
    kill -TERM "$first"
    await 75
    # a lock dies with its process
    start "$bin" base.ini shared.ini
    until_true 20 has_logged shared $(($(last_step shared) + 2))
    kill -9 "$pid"
    await 137
    settings shared run.steps=1 run.resume=must schedule.type=constant schedule.decay_steps=0
    train shared >"$out" 2>&1
    [ $? -ne 69 ] || fail "a dead process still holds the lock"
}

# The file is not the lock alone: without it a second run is refused too, the first one makes it again at its next
# checkpoint, and a run that has it but not the directory, as builds before did, is respected.
lock_is_deleted() {
    command -v flock >/dev/null || skip "no flock"
    settings unlocked run.steps=100000 schedule.type=constant schedule.decay_steps=0 checkpoint.every=20
    start "$bin" base.ini unlocked.ini
    until_true 20 has_logged unlocked 1
    rm runs/unlocked/lock
    expect 69 timeout -s KILL 20 "$bin" base.ini unlocked.ini
    says "runs/unlocked: another process"
    "$bin" status runs/unlocked >"$out" 2>&1
    grep -qE "training|saving" "$out" || fail "status does not see that it lives"
    until_true 20 test -e runs/unlocked/lock
    ! flock -n runs/unlocked/lock true || fail "the file that was made again is not locked"
    mv runs/unlocked runs/moved
    mkdir runs/unlocked
    until_true 20 test -e runs/unlocked/lock
    expect 69 timeout -s KILL 20 "$bin" base.ini unlocked.ini
    says "runs/unlocked: another process"
    kill -TERM "$pid"
    await 75
    start flock -F runs/unlocked/lock sleep 60
    until_true 20 sh -c "! flock -n runs/unlocked/lock true"
    expect 69 timeout -s KILL 20 "$bin" base.ini unlocked.ini
    says "runs/unlocked/lock: another process"
    kill -KILL "$pid"
    await 137
}

# Who takes the run's place while it is gone for a moment has it: the first one ends, and writes nothing more there.
another_took_it() {
    settings taken run.steps=100000 schedule.type=constant schedule.decay_steps=0 checkpoint.every=20
    start "$bin" base.ini taken.ini
    first=$pid
    until_true 20 has_logged taken 1
    all="$first $(cat /proc/$first/task/*/children)"  # its rank, too: a rank that goes on makes the directory again
    kill -STOP $all
    mv runs/taken runs/moved2
    "$bin" base.ini taken.ini >second 2>&1 &
    second=$!
    trap 'kill -9 $all $second 2>/dev/null' EXIT
    until_true 20 has_logged taken 25
    kill -CONT $all
    await 69
    says "runs/taken" "another process"
    kill -TERM $second
    wait $second
    [ $? -eq 75 ] || fail "the second one"
}

resume_modes() {
    settings must run.steps=10 run.resume=must
    expect 65 train must
    says "runs/must/ckpt" "resume = must"
    one_line
    settings must run.steps=10 run.resume=never
    expect 0 train must
    expect 78 train must
    says "runs/must" "step 10" "resume = never"
    one_line
    settings must run.steps=15 run.resume=must
    expect 0 train must
}

# Nothing of a refused run changes.
changed_settings() {
    settings changed run.steps=10
    expect 0 train changed
    cp -RP runs/changed before
    while read -r key then now; do
        settings changed run.steps=10 "$key=$now"
        expect 78 train changed
        one_line
        says "$key is $then in the checkpoint and $now now"
        diff -rq before runs/changed | grep -v events.jsonl >differs
        [ ! -s differs ] || fail "$key: the refused run was touched: $(head -n 1 differs)"
    done <<'END'
run.seed 1337 7
model.dropout 0 0.5
batch.global 8 16
batch.lanes 4 2
precision.compute fp32 bf16
optimizer.lr 0.001 0.002
schedule.decay_steps 250 300
data.shuffle yes no
END
    settings changed run.steps=10 model.embed=64
    expect 78 train changed
    says "model.embed"
    # other tokens are other data; the same tokens, compressed, are not
    text 79990 >text2.txt
    settings pack pack.output=data/second pack.input=text2.txt
    expect 0 "$bin" pack base.ini pack.ini
    settings changed run.steps=10 data.train="data/second-train-*.bin"
    expect 78 train changed
    says "training dataset" "[data] train"
    settings pack pack.output=data/compressed pack.compress=yes
    expect 0 "$bin" pack base.ini pack.ini
    settings changed run.steps=20 data.train="data/compressed-train-*.bin" device.threads=1 data.prefetch=3 log.every=2
    expect 0 train changed
}

# A finished run goes on with a larger `steps`. Where warm-up and decay were left open they stay as they were, on any
# number of ranks.
extended() {
    settings extended run.steps=20 schedule.decay_steps=40
    expect 0 train extended
    settings extended run.steps=40 schedule.decay_steps=40
    expect 0 train extended
    event extended resume "after step 20 of 40"
    settings straight run.steps=40 schedule.decay_steps=40
    expect 0 train straight
    like straight extended
    settings open run.steps=20 schedule.decay_steps=0 schedule.warmup=0
    expect 0 train open
    for steps in 30 40; do
        settings open run.steps=$steps schedule.decay_steps=0 schedule.warmup=0 device.ranks=2 device.threads=1
        expect 0 train open
        says "schedule.warmup = 2 and schedule.decay_steps = 20, as when the run began"
    done
    event open settings "schedule.decay_steps = 20"
    grep -q '^decay_steps = 20 ' runs/open/config.ini || fail "runs/open/config.ini has another decay than the run"
    expect 0 train open  # all is done: nothing more is computed
    settings spelled run.steps=40 schedule.decay_steps=20 schedule.warmup=2
    expect 0 train spelled
    same_steps spelled open
    settings open run.steps=40 schedule.decay_steps=30 schedule.warmup=3
    expect 78 train open
    says "2 settings that the bits depend on are others than in the checkpoint" \
        "schedule.warmup is 2 in the checkpoint and 3 now" \
        "schedule.decay_steps is 20 in the checkpoint and 30 now"
    settings open run.steps=5 schedule.decay_steps=20 schedule.warmup=2
    expect 0 train open
    saved open
    [ "$newest" -eq 40 ] || fail "asked for fewer steps than are done: step $newest is left of 40"
}

# --- the best one -----------------------------------------------------------------------------------------------------

# The learning rate rises until it ruins what was learnt before.
best_is_kept() {
    set -- run.steps=60 optimizer.lr=2 schedule.type=constant schedule.warmup=60 eval.every=5 eval.batches=0
    settings best "$@"
    expect 0 train best
    sed -n 's/^{"t":"eval","step":\([0-9]*\),"loss":\([^,]*\),.*/\2 \1/p' runs/best/log.jsonl | sort -n |
        head -n 1 >lowest
    read -r loss step <lowest || fail "no evaluation in the log"
    [ "$step" -lt 50 ] || fail "the best step is $step, expected one that has been pruned but for being the best"
    [ "$(readlink runs/best/best)" = "ckpt/step-$(printf %08d "$step")" ] ||
        fail "best is $(readlink runs/best/best), expected step $step"
    [ "$(ls runs/best/ckpt | wc -l)" -eq 3 ] || fail "expected steps 55 and 60 and the best one, found $(ls runs/best/ckpt | tr '\n' ' ')"
    expect 0 "$bin" hash runs/best/best
    expect 0 "$bin" eval base.ini best.ini
    says "step $step  loss"
    awk -v want="$loss" '{ d = $4 - want; exit !(d < 1e-6 && d > -1e-6) }' "$out" ||
        fail "expected the logged loss $loss"
    settings nobest "$@" checkpoint.keep_best=no
    expect 0 train nobest
    same_steps best nobest
    [ ! -e runs/nobest/best ] || fail "best is there with keep_best = no"
    [ "$(ls runs/nobest/ckpt | tr '\n' ' ')" = "step-00000055 step-00000060 " ] ||
        fail "kept: $(ls runs/nobest/ckpt | tr '\n' ' ')"
}

# With a learning rate of 0 no evaluation is better than the first: the one after step 5.
patience="run.steps=60 optimizer.lr=0 eval.every=5 eval.patience=2 checkpoint.every=1000"
ends_for_lack_of_patience() {
    settings patient $patience checkpoint.keep_best=no
    for time in first second; do
        expect 0 train patient
        event patient patience "ended after step 15 by [eval] patience = 2: the validation loss was lowest" "at step 5, and 2"
        [ "$(steps patient | wc -l)" -eq 15 ] || fail "the $time time: $(steps patient | wc -l) steps"
    done
    says "done    15 steps"
    for more in "device.ranks=2 checkpoint.async=yes" "device.ranks=3 cluster.elastic=yes snapshot.every=4 run.faults=unit@30:1"; do
        settings again $patience checkpoint.keep_best=no $more
        rm -rf runs/again
        expect 0 train again
        same_steps patient again
        same_state patient again
    done
    settings patient run.steps=60 optimizer.lr=0 eval.every=5 eval.patience=4 checkpoint.every=1000 checkpoint.keep_best=no
    expect 0 train patient
    event patient patience "ended after step 25 by" "at step 5, and 4"
}
# The count goes on where a run was stopped.
patience_is_kept() {
    kept="run.steps=60 optimizer.lr=0 eval.every=5 eval.patience=2 checkpoint.every=10 checkpoint.keep_best=no"
    settings impatient $kept run.faults=unit@100
    expect 69 train impatient
    saved impatient
    [ "$newest" = 10 ] || fail "killed after step $newest, expected 10"
    settings impatient $kept
    expect 0 train impatient
    same_steps again impatient
}
refuses_to_wait() {
    settings never eval.patience=2 eval.every=0
    expect 78 train never
    says "[eval] patience" "patience = 2 counts evaluations, and every = 0 asks for none"
    settings blind eval.patience=2 data.val=
    expect 78 train blind
    says "patience = 2 looks at the loss on validation data, and there is none"
}

# Energy counters of two processors, in a /sys/class of its own; they stand still, so that what is logged is known. The
# first rank of the machine reads them.
energy_of_processors() {
    [ "$(id -u)" -eq 0 ] || skip "needs root, to put counters into /sys/class/powercap"
    unshare -m true 2>/dev/null && unshare -m mount -t tmpfs tmpfs /sys/class 2>/dev/null ||
        skip "can't mount over /sys/class here"
    settings energy run.steps=6 device.ranks=2 device.threads=1 log.power_every=2 log.hash_every=0 eval.every=0 \
        checkpoint.every=0
    cat >counted.sh <<'END'
mount -t tmpfs tmpfs /sys/class || exit 1
for k in 0 1; do
    mkdir -p /sys/class/powercap/intel-rapl:$k && cd /sys/class/powercap/intel-rapl:$k || exit 1
    echo package-$k >name
    echo 65532610987 >max_energy_range_uj
    echo 12345678 >energy_uj
done
cd "$1" && exec "$2" base.ini energy.ini
END
    expect 0 timeout 120 unshare -m sh counted.sh "$PWD" "$bin"
    for step in 2 4 6; do
        echo '{"t":"power","step":'$step',"watts":0,"joules_per_token":0,"devices":[{"rank":0,"watts":0,"celsius":null,"mhz":null,"limited":null}]}'
    done >wanted
    grep '"t":"power"' runs/energy/log.jsonl >found
    same wanted found "records of power"
    ! has_event energy power || fail "the counters are there: $(cat runs/energy/events.jsonl)"
}

try two_runs_are_the_same
try killed_twenty_times
try stopped_by_signals
try stopped_where_all_is_due
try stopped_twice
try stopped_when_complete
for simd in portable avx2 avx512 neon; do try same_bits_fp32_$simd; done
try other_bits
try same_bits_for_any_shards
try energy_of_processors
train short >"$out" 2>&1
try with_a_full_disk
try with_rehearsed_failures
try reads_are_tried_again
train whole >"$out" 2>&1
try damaged_tensor
try damaged_files
try damaged_both
try unreadable_both
try damaged_data
try damaged_validation_data
try two_in_one_directory
try lock_is_deleted
try another_took_it
try resume_modes
try changed_settings
try extended
try best_is_kept
try ends_for_lack_of_patience
try patience_is_kept
try refuses_to_wait
finish
