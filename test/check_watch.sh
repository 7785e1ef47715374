#!/bin/sh
# test/check_watch.sh: what takes long with the process that watches a run: it is started again when it dies, not at
# once and not for ever, and a disk that is full is its own matter.
. test/support/lib.sh
. "$top/test/support/small.sh"
. "$top/test/support/logs.sh"

small_run <<'END'
[device]
ranks = 1
[log]
machine_every = 1
END

# A run that does little: each read takes a quarter of a second.
idle='run.faults="slow@1x1000000"'

watcher() { cat /proc/[0-9]*/stat 2>/dev/null | sed -n 's/^\([0-9]*\) (lockstep\/watch) [^Z] '"$1"' .*/\1/p'; }
has_watcher() { [ -n "$(watcher "$1")" ]; }
restarts() { grep -c '"kind":"watch_restarted"' "runs/$1/events.jsonl" 2>/dev/null; }
restarted() { [ "$(restarts "$1")" -ge "$2" ]; }
has_status() { [ -s "runs/$1/status.json" ]; }

# Killed each time as soon as it is there: three times more than the first, 10 seconds apart, and then no more.
started_again() {
    settings again "$idle"
    start "$bin" base.ini again.ini
    until_true 20 has_status again
    began=$(date +%s)
    for n in 1 2 3; do
        kill -9 "$(watcher "$pid")"
        until_true 15 restarted again $n
    done
    took=$(($(date +%s) - began))
    [ $took -ge 28 ] && [ $took -le 40 ] || fail "three starts took $took s, expected 30"
    event again watch_restarted "was killed by signal 9" "(start 2)"
    kill -9 "$(watcher "$pid")"
    sleep 12
    ! has_watcher "$pid" || fail "it was started a fourth time"
    [ "$(restarts again)" -eq 3 ] || fail "$(restarts again) events"
    kill -TERM "$pid"
    await 75
    grep -c '"state":"training"' runs/again/status.json >/dev/null ||
        fail "the last status is $(head -n 3 runs/again/status.json)"
}

# A tmpfs without room for another file, but with some at the end of events.jsonl: one event, while it lasts, of
# whatever finds no room; the run goes on, and so do status and lines afterwards. When it is full again, that is another
# event.
full_disk() {
    mkdir -p disk && mount -t tmpfs -o size=2m tmpfs disk 2>/dev/null || skip "no tmpfs may be mounted here"
    mkdir disk/full
    echo '{"t":"event","at":"2026-11-24T12:00:00Z","kind":"resume","step":0,"text":"its page has room for more"}' \
        >disk/full/events.jsonl
    settings full run.dir=disk log.every=1000000 "$idle"
    start "$bin" base.ini full.ini
    until_true 20 test -s disk/full/machine.jsonl
    events() { grep -c '"kind":"watch_failed"' disk/full/events.jsonl; }
    told() { [ "$(events)" -ge "$1" ]; }
    grows() { [ "$(wc -l <disk/full/machine.jsonl)" -gt $((was + 1)) ]; }
    for n in 1 2; do
        dd if=/dev/zero of=disk/ballast bs=4k 2>/dev/null
        until_true 10 told $n
        sleep 4
        [ "$(events)" -eq $n ] || fail "expected $n events: $(cat disk/full/events.jsonl)"
        kill -0 "$pid" 2>/dev/null || fail "it ended"
        rm disk/ballast
        was=$(wc -l <disk/full/machine.jsonl)
        until_true 10 grows
    done
    grep '"kind":"watch_failed"' disk/full/events.jsonl | grep -q 'No space left on device' ||
        fail "$(cat disk/full/events.jsonl)"
    ! grep -v '^{"t":"machine",.*}\]}$' disk/full/machine.jsonl | grep -q . ||
        fail "half a line: $(grep -v '^{"t":"machine",.*}\]}$' disk/full/machine.jsonl)"
    kill -TERM "$pid"
    await 75
    [ "$(events)" -eq 2 ] || fail "$(cat disk/full/events.jsonl)"
    grep -q '"state":"stopped"' disk/full/status.json || fail "the last status is $(cat disk/full/status.json)"
}

try started_again
try full_disk
finish
