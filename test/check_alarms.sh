#!/bin/sh
# test/check_alarms.sh: what a person is woken for, on real runs: a rank that is stopped, a loader that is slow, a disk
# that is full, a device that is too hot (a simulated one, over a stand-in for NVML): each is found within the time that
# its rule says (trainer/watch/alarms.h), and named in events, status.json and `lockstep status`. Twenty ordinary runs
# ring nothing.
. test/support/lib.sh
. "$top/test/support/small.sh"
. "$top/test/support/logs.sh"

small_run <<'END'
[checkpoint]
every = 100
[eval]
every = 200
batches = 2
[log]
every = 10
END

seconds() { date +%s; }

# rings RUN KIND LIMIT SINCE: the event comes, at most LIMIT seconds after SINCE.
rings() {
    until_true $(($3 + 10)) has_event "$1" "$2"
    took=$(($(seconds) - $4))
    [ $took -le "$3" ] || fail "$2 came after $took s, expected at most $3"
    echo "info: $2 after $took s"
}

# status CODE RUN_DIR TEXT...: what the verb says.
status() {
    want=$1 dir=$2
    shift 2
    expect "$want" "$bin" status "$dir"
    says "$@"
}

# pid_of RUN RANK
pid_of() { sed -n 's/^ *{"rank":'"$2"',.*"pid":\([0-9]*\).*/\1/p' "runs/$1/status.json"; }
knows_ranks() { [ -n "$(pid_of "$1" 1 2>/dev/null)" ]; }
is_over() { ! grep -q '"kind":"'"$2" "runs/$1/status.json"; }

# ends RUN: on request, with all it has.
ends() {
    kill -TERM "$pid"
    await 75
}

begin() {
    settings "$@"
    start "$bin" base.ini "$1.ini"
    until_true 60 has_logged "$1" 50
    until_true 10 knows_ranks "$1"
}

a_stopped_rank() {
    begin stopped checkpoint.every=0 eval.every=0
    rank=$(pid_of stopped 1)
    kill -STOP "$rank"
    since=$(seconds)
    rings stopped stopped 13 "$since"
    status 1 runs/stopped "ATTENTION: a rank's process is stopped" "rank 1 (localhost), CPU" \
        "next      kill -CONT $rank"
    rings stopped hang 34 "$since"
    event stopped hang "waiting for rank 1 (localhost), CPU: its process is stopped; phase step" \
        "Next: kill -CONT $rank"
    sleep 1.2
    status 1 runs/stopped "ATTENTION: the run hangs" "waits for rank 1 (localhost), CPU, pid $rank: phase step" \
        "at risk: " "next      kill -CONT $rank"
    expect 0 "$bin" report runs/stopped
    grep -q '<p class="k" role="alert">no step for [0-9]* s after step [0-9]*: waiting for rank 1 (localhost), CPU: its process is stopped' runs/stopped/report.html ||
        fail "the page does not say who is waited for"
    [ "$("$bin" status runs/stopped --json | sed -n 's/.*"waits_for":{"rank":\([0-9]*\).*/\1/p')" = 1 ] ||
        fail "JSON names another rank"
    kill -CONT "$rank"
    until_true 5 has_event stopped unhang
    until_true 5 has_event stopped continued
    until_true 5 is_over stopped hang
    status 0 runs/stopped "FINE: "
    ends stopped
}

a_slow_loader() {
    begin slow 'run.faults="slow@2000x100000000:1"' data.prefetch=2
    since=$(seconds)
    rings slow slow_reader 90 "$since"  # of which a part is quick yet
    event slow slow_reader "rank 1 (localhost), CPU" "of the last" "were waiting for data" "iostat"
    ! grep '"slow_reader"' runs/slow/events.jsonl | grep -q 'rank 0' || fail "rank 0 has no slow reads"
    sleep 1.2
    status 1 runs/slow "ATTENTION: the loader is slow" "rank 1 (localhost), CPU" "next      iostat"
    ends slow
}

a_full_disk() {
    [ "$(id -u)" -eq 0 ] || skip "needs root, to mount a small tmpfs"
    mkdir -p disk && mount -t tmpfs -o size=64m tmpfs disk 2>/dev/null || skip "no tmpfs may be mounted here"
    mkdir -p runs && ln -s ../disk/full runs/full
    begin full run.dir=disk checkpoint.every=0 eval.every=0 log.every=100
    ! has_event full disk_full || fail "a disk that is nearly empty rings"
    free=$(df -k --output=avail disk | tail -n 1)
    since=$(seconds)
    dd if=/dev/zero of=disk/ballast bs=1k count=$((free - 900)) 2>/dev/null
    rings full disk_full 3 "$since"
    event full disk_full "localhost: the run's disk has" "kB free of 67.1 MB" "make room there"
    sleep 1.2
    status 1 runs/full "ATTENTION: the disk is full, or will be soon" "next      make room"
    rm disk/ballast
    until_true 5 has_event full disk_well
    ends full
    umount disk
}

a_hot_device() {
    sim=$top/build/sim nvml=$top/build/test/nvml
    [ -x "$sim/lockstep" ] && [ -e "$nvml/libnvidia-ml.so.1" ] || skip "no simulated GPU was built: make sim"
    bin=$sim/lockstep
    export SIM_SEED=2 SIM_DEVICES=1 LD_LIBRARY_PATH="$nvml"
    export LOCKSTEP_NVML_41="power=250500 energy=5000 heat=60,60,60,60,60,91 clock=1980,1980,1980,1980,1980,1200 reasons=0,0,4,0,0,72"
    settings hot device.backend=cuda device.ranks=1 batch.global=2 batch.lanes=2 eval.every=0 checkpoint.every=0 \
        log.every=1
    start "$bin" base.ini hot.ini
    until_true 120 has_logged hot 1
    since=$(seconds)
    rings hot throttled 45 "$since"
    event hot throttled "rank 0 (localhost), GPU ffff:41:00.0" "limited by heat; 1200 MHz" "91 C"
    ends hot
}

alarms='"kind":"\(hang\|stopped\|slow_reader\|throttled\|disk_full\|dead\)"'

# Run $1 of the twenty: some ranks, sizes, evaluations, checkpoints, samples, each of another rhythm; three quarters of
# a minute.
ordinary() {
    k=$1
    settings "plain-$k" device.ranks=$((1 + k % 3)) model.embed=$((16 * (1 + k % 4))) model.layers=$((1 + k % 2)) \
        eval.every=$((50 + 37 * k)) \
        eval.batches=$((1 + k)) checkpoint.every=$((20 + 61 * k)) sample.tokens=$((k % 4 * 20)) \
        sample.every=$((70 + 13 * k)) \
        log.every=$((1 + k % 10)) run.seed="$k" batch.global=$((8 * (1 + k % 5)))
    timeout -s TERM 45 "$bin" base.ini "plain-$k.ini" >"plain-$k.out" 2>&1
    echo $? >"plain-$k.rc"
}

# All at once, on whatever machine this is: each is often late.
twenty_ordinary_runs() {
    for k in $(seq 0 19); do ordinary "$k" & done
    wait
    for k in $(seq 0 19); do
        case $(cat "plain-$k.rc") in 75 | 124) ;; *) tail -n 3 "plain-$k.out" >"$out"; fail \
            "run $k ended with $(cat "plain-$k.rc")" ;; esac
        [ -s "runs/plain-$k/status.json" ] || fail "nobody watched run $k"
        ! grep "$alarms" "runs/plain-$k/events.jsonl" >"$out" || fail "run $k rang"
    done
}

try a_stopped_rank
try a_slow_loader
try a_full_disk
try a_hot_device
try twenty_ordinary_runs
finish
