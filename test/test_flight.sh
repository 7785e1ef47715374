#!/bin/sh
# test/test_flight.sh: after each failure of a run a file in its directory says which rank held up the others.
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"
call='(exchange|all_reduce|all_gather|reduce_scatter|all_to_all|broadcast) #[0-9]+ of ranks 0-3 \([a-z ]+ [0-9]+ of step [0-9]+\)'

# reads REGEX...: the last command printed lines with these.
reads() {
    for regex; do grep -qE -e "$regex" "$out" || fail "expected it to say \"$regex\""; done
}

# recorded DIR N: it has N recordings; $newest is the last one's path.
recorded() {
    ls "$1"/flight-*.txt >files 2>/dev/null
    [ "$(wc -l <files)" -eq "$2" ] || fail "$1 has $(wc -l <files) recordings, expected $2"
    newest=$(tail -n 1 files)
}

# fails CODE: the run ends so, and its error and an event name the recording, whose verdict is then printed.
fails() {
    comes_to "$1"
    recorded runs/"$run" 1
    says "flight recording: $newest"
    grep '"kind":"flight"' "runs/$run/events.jsonl" | grep -qF "flight recording: $newest: " ||
        fail "no event names it: $(cat "runs/$run/events.jsonl")"
    expect 0 "$bin" flight "runs/$run"
    says "$newest"
}

# begin RUN SETTING...: a run of 4 ranks that does not end.
begin() {
    run=$1
    shift
    settings "$run" $endless device.ranks=4 device.threads=1 cluster.heartbeat=0.1 "$@"
    start "$bin" base.ini "$run.ini"
    until_step "runs/$run" 5
}
# misses RUNDIR: it is known there that a rank is lost. Who stands still is killed then, or all would wait for it.
misses() { grep -q '"kind":"failed"' "$1/events.jsonl" 2>/dev/null; }
third() { children "$pid" | sed -n 3p; }

# It is killed between two calls, or in one that the others have entered, too.
killed() {
    begin killed
    kill -9 "$(third)"
    fails 69
    reads '^rank 2 \(localhost\) was killed by signal 9 \(Killed\); its last task: '
    reads "^rank 2 \\(localhost\\) has not entered $call; ranks? [0-9, -]+ waits? in it since [0-9.]+ s$|^ranks? .* in $call since"
    for r in 0 1 2 3; do grep -q "^rank $r (localhost).*: its last [0-9]* calls" "$newest" || fail "no calls of rank $r"; done
    grep -qE '^ +-[0-9.]+ +[0-9.]+ +done +all_gather ' "$newest" || fail "no call is told: $(sed -n '20,30p' "$newest")"
}

stopped() {
    begin stopped cluster.timeout=2
    kill -STOP "$(third)"
    fails 69
    reads "^rank 2 \\(localhost\\) has not entered $call; ranks? [013, -]+ waits? in it since [1-9][.0-9]* s$" \
        '^rank 2 \(localhost\) was killed, since it had not ended after the failure; its last task: [a-z ]+.*, since [1-9]'
}

# Whoever is left to say it is the supervisor.
all_killed() {
    begin all
    all=$(children "$pid")
    kill -STOP $all
    kill -9 $all
    fails 69
    for r in 0 1 2 3; do reads "^rank $r \\(localhost\\) was killed by signal 9"; done
}

# In a divided model the one that is waited for is named, not those that wait for others in turn.
divided() {
    begin divided parallel.pipeline=2 parallel.zero=3 cluster.timeout=2
    still=$(third)
    kill -STOP "$still"
    until_true 20 misses runs/divided
    kill -9 "$still"
    fails 69
    reads '^rank 2 \(localhost, stage 1[^)]*\) has not entered [a-z_]+ #[0-9]+ of ranks .*; ranks? .* waits? in it since [1-9]' \
        '^rank 2 \(localhost, stage 1[^)]*\) was killed by signal 9'
    ! grep -qE '^rank [013] .*has not entered' "$out" || fail "others are named, too"
}

through_nccl() {
    library=$(built libnccl-standin.so)
    [ -n "$library" ] || skip "build/test/libnccl-standin.so is not built: make tests"
    begin nccl reduce.transport=nccl reduce.nccl_library="$library"
    kill -9 "$(third)"
    fails 69
    reads '^rank 2 \(localhost\) was killed by signal 9'
    grep -qE '^ +-[0-9.]+ +[0-9.]+ +queued +all_gather ' "$newest" || fail "no call was queued"
}

# One rank, and an error of its own: there is nobody to wait for, and its phases are told.
alone_with_an_error() {
    run=error
    settings error $endless run.faults=read@30x100000 data.retry=0
    start "$bin" base.ini error.ini
    fails 74
    says "rank 0 (localhost) ended with 74"
    ! grep -q " waits\? " "$out" || fail "for whom?"
    grep -q '  phase  .* step of step' "$newest" || fail "no phase is told"
}

# Neither an end on request nor settings that are refused are failures.
not_a_failure() {
    begin asked
    kill -TERM "$pid"
    comes_to 75
    recorded runs/asked 0
    settings none run.resume=must
    expect 78 "$bin" config base.ini none.ini -o run.nonsense=1
    expect 65 "$bin" flight runs/asked
    says "no flight recording"
    : >runs/asked/flight-20000101T000000Z-node0-world1.txt
    expect 65 "$bin" flight runs/asked
    says "world1.txt: no flight recording"
    expect 65 "$bin" flight base.ini
    says "base.ini: no flight recording"
    expect 64 "$bin" flight
}

# A run that heals leaves one at each loss, and keeps the newest eight.
healing() {
    settings healed run.steps=60 schedule.decay_steps=60 log.hash_every=0 eval.every=0 device.ranks=2 device.threads=1 cluster.elastic=yes \
        snapshot.every=2
    expect 0 timeout 100 "$bin" base.ini healed.ini -o "run.faults=unit@30x1000:1"
    recorded runs/healed 4
    grep -q "flight recording: $newest" runs/healed/events.jsonl || fail "no event names $newest"
    head -n 1 files >first
    echo torn >runs/healed/flight-99990101T000000Z-node0-world1.txt
    echo torn >runs/healed/flight-19990101T000000Z-node0-world1.txt
    expect 0 "$bin" flight runs/healed
    says "$newest" "flight-99990101T000000Z-node0-world1.txt: no flight recording" \
        "flight-19990101T000000Z-node0-world1.txt: no flight recording"
    rm runs/healed/flight-99990101T000000Z-node0-world1.txt runs/healed/flight-19990101T000000Z-node0-world1.txt
    expect 0 "$bin" flight "$(cat first)"
    says "rank 1 (localhost) was killed by signal 9 (Killed); its last task: "
    grep -q '  phase  *world 3$' "$newest" || fail "worlds are not told apart"
    for k in 1 2 3 4 5 6; do cp "$newest" "runs/healed/flight-2000010${k}T000000Z-node0-world1.txt"; done
    expect 0 timeout 100 "$bin" base.ini healed.ini -o run.steps=90 -o "run.faults=unit@30:1"
    recorded runs/healed 8
    ! grep -q flight-20000103 files && grep -q flight-20000104 files || fail "not the newest were kept: $(cat files)"
}

# Each machine records its own ranks; put together they say who it was.
two_machines() {
    near 2 2
    begin_endless hung 2
    still=$(rank 1 1)
    kill -STOP "$still"
    until_true 20 misses node0/runs/hung
    kill -9 "$still"
    ended 69
    recorded node0/runs/hung 1
    grep -qE '; what ranks? .* did is in the recordings of other machines' "$newest" || fail "$(sed -n 1,12p "$newest")"
    expect 0 "$bin" flight node0/runs/hung
    says "of node 1 there is no recording of this failure here"
    expect 0 "$bin" flight node1/runs/hung node0/runs/hung
    reads "^rank 3 \\(127.0.0.2\\) has not entered $call; ranks? [0-2, -]+ waits? in it since [1-9]"
    nothing_left
}

# Machines that go on without a restart record each loss, too: all of them, of the same world. One that is told to
# leave is no loss.
machines_that_heal() {
    steps=20
    . "$top/test/support/healing.sh"
    near 2 1 1
    more="run.steps=1000000 schedule.type=constant" heals moving
    after 0 30
    kill -9 "$(rank 0 1)"
    until_true 20 has_event 2 healed "world 2 of this run"
    for k in 0 1 2; do until_true 20 has_event $k flight "node$k-world1.txt"; done
    expect 0 "$bin" flight node0/runs/moving node1/runs/moving node2/runs/moving
    says "node0-world1.txt" "node1-world1.txt" "node2-world1.txt" "rank 1 (127.0.0.1) was killed by signal 9 (Killed)"
    reads '^rank 0 ' '^rank 2 ' '^rank 3 '
    ! grep -q "there is no recording" "$out" || fail "one is missing"
    kill -TERM "$(supervisor 2)"
    until_true 20 has_event 0 healed "leaving: node 2; world 3 of this run"
    for k in 0 1 2; do recorded node$k/runs/moving 1; done
}

try killed
try stopped
try all_killed
try divided
try through_nccl
try alone_with_an_error
try not_a_failure
try healing
try two_machines
try machines_that_heal
finish
