#!/bin/sh
# test/test_run.sh: test/run.sh itself: what it says of programs that pass, fail, crash, hang or test nothing, one and
# several at a time.
. test/support/lib.sh
mkdir build

# program NAME LINE...: build/NAME.sh, a script of these lines.
program() {
    file=build/$1.sh
    shift
    for line; do echo "$line"; done >"$file"
}

# runs CODE JOBS NAME...: run.sh ends with this exit status; `told` is what it printed, without the seconds.
runs() {
    code=$1 jobs=$2 list=
    shift 2
    for each; do list="$list build/$each.sh"; done
    LOCKSTEP_TEST_JOBS=$jobs LOCKSTEP_TEST_LIMIT=${limit:-60} expect "$code" sh "$top/test/run.sh" $list
    sed 's/, [0-9]* s, CPU [0-9]* s$//' "$out" >told
}

program good 'echo "3 passed, 0 failed, 1 skipped"' 'echo "skipped: what needs more"'
program cmocka 'echo "[  PASSED  ] 4 test(s)."'
program newer 'echo "[  PASSED  ] 2 test(s)."' 'echo "[  SKIPPED ] tests: 11 test(s), listed below:"' \
    'echo "[  SKIPPED ] what_needs_a_gpu"' \
    'echo "[  FAILED  ] tests: 1 test(s), listed below:"' 'exit 1'
program slow 'sleep 0.5' 'echo "1 passed, 0 failed"'
program bad 'echo "a reason"' 'echo "1 passed, 2 failed"' 'exit 1'
program crashed 'echo "2 passed, 0 failed"' 'echo "last words"' 'kill -SEGV $$'
program silent 'echo "nothing was tested"'
program hangs 'echo "and then"' 'exec sleep 60'

# However many run at a time, and whichever ends first: whole, and in the order of the list.
in_order() {
    cat >want <<'END'
slow.sh: 1 passed, 0 failed, 0 skipped
good.sh: 3 passed, 0 failed, 1 skipped
skipped: what needs more
bad.sh: 1 passed, 2 failed, 0 skipped
--- bad.sh ended with 1
a reason
1 passed, 2 failed
---
cmocka.sh: 4 passed, 0 failed, 0 skipped
9 passed, 2 failed, 1 skipped
END
    for jobs in 1 2 3 9; do
        runs 1 $jobs slow good bad cmocka
        same want told "what is reported of four programs, $jobs at a time,"
    done
    [ "$(cat build/slow.sh.log)" = "1 passed, 0 failed" ] || fail "the log of slow.sh holds: $(cat build/slow.sh.log)"
    runs 0 2 slow good cmocka
    says "8 passed, 0 failed, 1 skipped"
}

# Newer versions of cmocka write the name of the group before the number.
versions_of_cmocka() {
    runs 1 1 newer
    says "newer.sh: 2 passed, 1 failed, 11 skipped, " "[  SKIPPED ] what_needs_a_gpu" "2 passed, 1 failed, 11 skipped"
}

# A program is given nothing: many take their first argument for the names of the tests to run. A fuzz target is given its
# seconds and its first input.
arguments() {
    for each in plain fuzz_target; do
        printf '#!/bin/sh\necho "$each: $*"\necho "1 passed, 0 failed"\n' >build/$each
        sed -i "s/\$each/$each/" build/$each
        chmod +x build/$each
    done
    LOCKSTEP_FUZZ_SECONDS=7 LOCKSTEP_FUZZ_FIRST=9 expect 0 sh "$top/test/run.sh" build/plain build/fuzz_target
    cat build/plain.log build/fuzz_target.log >told
    printf '%s\n' "plain: " "1 passed, 0 failed" "fuzz_target: 7 9" "1 passed, 0 failed" >want
    same want told "what programs are given"
}

# One that can't say how it ended has failed, and nobody beside it.
failures_are_named() {
    for jobs in 1 2; do
        runs 1 $jobs slow crashed good
        says "crashed.sh: 2 passed, 1 failed, 0 skipped, " "--- crashed.sh ended with 139" "last words" \
            "6 passed, 1 failed, 1 skipped"
        runs 1 $jobs good silent slow
        says "silent.sh: 0 passed, 1 failed, 0 skipped, " "4 passed, 1 failed, 1 skipped"
        limit=1 runs 1 $jobs hangs good slow
        says "hangs.sh: 0 passed, 1 failed, 0 skipped, " "--- hangs.sh ended with 124" "and then" \
            "4 passed, 1 failed, 1 skipped"
        runs 1 $jobs good nowhere
        says "nowhere.sh: 0 passed, 1 failed, 0 skipped, " "3 passed, 1 failed, 1 skipped"
    done
    runs 1 2 silent
    expect 1 sh "$top/test/run.sh"
    says "0 passed, 0 failed, 0 skipped"
    LOCKSTEP_TEST_JOBS=0 expect 64 sh "$top/test/run.sh" build/good.sh
}

# first_sees SECONDS JOBS FIRST SECOND: how many of the two have begun when FIRST ends, which waits for SECOND for so
# long.
first_sees() {
    rm -f ./*.on
    for each in "$3" "$4"; do
        program "$each" "touch $each.on; tries=$1" 'both() { [ "$(ls *.on | wc -l)" -eq 2 ]; }' \
            'until both || [ $tries -eq 0 ]; do sleep 1; tries=$((tries - 1)); done' 'ls *.on | wc -l' \
            'echo "1 passed, 0 failed"'
    done
    runs 0 "$2" "$3" "$4"
    seen=$(head -n 1 "build/$3.sh.log")
}

# Programs of which one may disturb another one's times or take its ports.
meetings() {
    first_sees 1 2 test_cluster test_live
    [ "$seen" -eq 1 ] || fail "two that keep apart have met"
    first_sees 60 2 test_cluster other
    [ "$seen" -eq 2 ] || fail "two that may run at a time have not met"
    first_sees 60 2 some other
    [ "$seen" -eq 2 ] || fail "two that may run at a time have not met"
    first_sees 1 1 some other
    [ "$seen" -eq 1 ] || fail "two have met where one runs at a time"
}

# Those that only wait take no slot: two that work run beside one of them. They don't meet each other.
waiting_takes_no_slot() {
    rm -f ./*.on
    for each in check_watch one two; do
        program "$each" "touch $each.on; tries=60" 'all() { [ "$(ls *.on | wc -l)" -eq 3 ]; }' \
            'until all || [ $tries -eq 0 ]; do sleep 1; tries=$((tries - 1)); done' 'all && echo "1 passed, 0 failed"'
    done
    runs 0 2 one check_watch two
    rm -f ./*.on
    for each in check_watch test_watcher; do
        program "$each" '#!/bin/sh' "touch $each.on; sleep 1; ls *.on | wc -l; rm $each.on" 'echo "1 passed, 0 failed"'
    done
    mv build/test_watcher.sh build/test_watcher && chmod +x build/test_watcher
    for jobs in 1 3; do
        LOCKSTEP_TEST_JOBS=$jobs expect 0 sh "$top/test/run.sh" build/test_watcher build/check_watch.sh
        for each in build/test_watcher.log build/check_watch.sh.log; do
            [ "$(head -n 1 $each)" -eq 1 ] || fail "two that only wait have met, $jobs at a time"
        done
    done
}

# For each program the runner prints the CPU time of it and its children, beside the time that it took.
cost() {
    program busy 'sh -c "ulimit -t 1; while :; do :; done"' 'echo "1 passed, 0 failed"'
    runs 0 2 busy slow
    grep -qE '^busy\.sh: .*, [0-9]+ s, CPU [1-9] s$' "$out" || fail "the CPU time of a busy program is not printed"
    grep -qE '^slow\.sh: .*, [0-9]+ s, CPU 0 s$' "$out" || fail "a program that slept has CPU time"
}

# The longest begin first, whatever the order in which they are named and reported.
longest_first() {
    for each in some test_sim; do program $each "echo $each >>order" 'echo "1 passed, 0 failed"'; done
    runs 0 1 some test_sim
    [ "$(tr '\n' ' ' <order)" = "test_sim some " ] || fail "they began in the order $(tr '\n' ' ' <order)"
    [ "$(head -n 1 told)" = "some.sh: 1 passed, 0 failed, 0 skipped" ] || fail "reported first was $(head -n 1 told)"
}

# Files of tests go to memory, but for those that ask whether a disk has them, and where TMPDIR says otherwise.
memory_or_disk() {
    [ "$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print ($4 > 2000000) }')" = 1 ] || skip "/dev/shm has no room"
    for each in some check_fresh; do program $each 'echo "in ${TMPDIR:-/tmp}"' 'echo "1 passed, 0 failed"'; done
    (unset TMPDIR && expect 0 sh "$top/test/run.sh" build/some.sh build/check_fresh.sh) || exit
    [ "$(head -n 1 build/some.sh.log)" = "in /dev/shm" ] || fail "a test's files went $(head -n 1 build/some.sh.log)"
    [ "$(head -n 1 build/check_fresh.sh.log)" = "in /tmp" ] ||
        fail "a disk's test's files went $(head -n 1 build/check_fresh.sh.log)"
    (TMPDIR=$PWD && export TMPDIR && expect 0 sh "$top/test/run.sh" build/some.sh) || exit
    [ "$(head -n 1 build/some.sh.log)" = "in $PWD" ] || fail "TMPDIR was not heeded"
}

try in_order
try longest_first
try memory_or_disk
try versions_of_cmocka
try arguments
try failures_are_named
try cost
try meetings
try waiting_takes_no_slot
finish
