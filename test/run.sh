#!/bin/sh
# test/run.sh PROGRAM...: runs these test programs, fuzz targets and scripts, LOCKSTEP_TEST_JOBS (3) at a time, each in
# bounded time, reports them in this order, and closes with "N passed, N failed, N skipped". What a program printed is
# shown when it failed; its log stays beside it, a script's in build/. Many wait now and then, so more run at a time
# than two cores would need.
limit=${LOCKSTEP_TEST_LIMIT:-900} jobs=${LOCKSTEP_TEST_JOBS:-3}
export CUDA_VISIBLE_DEVICES=  # `auto` is the CPU here, whose bits are written down; GPUs have make gpu-check
passed=0 failed=0 skipped=0
[ "$jobs" -ge 1 ] || { echo "LOCKSTEP_TEST_JOBS=$jobs: expected a number from 1" >&2; exit 64; }

# Most of the time of many tests is waiting for fsync. What they write goes to memory, where there is room for it, but
# for those that ask whether a disk has it, and those that make a root file system.
memory=
case ${TMPDIR:-} in
'')
    room=$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print ($4 > 2000000) }')
    [ "$room" != 1 ] || [ ! -w /dev/shm ] || memory=/dev/shm
    ;;
esac
wants_a_disk() {
    case ${1##*/} in
    test_durable | test_durable_run | test_durable_pack | test_checkpoint_crash | test_writer_crash | test_checkpoint_blocks_crash | test_io | check_systemd.sh | check_fresh.sh) ;;
    *) return 1 ;;
    esac
}

# The longest start first, so that both cores end together. Which they are only decides how long all takes.
longest="check_sim.sh check_sim_layouts.sh check_sim_runs.sh check_layouts.sh check_fresh.sh check_release.sh check_pipes.sh
    check_readme.sh
    check_layouts_lost.sh check_pipes_lost.sh check_cuts.sh check_cluster.sh check_alarms.sh check_systemd.sh check_arm64.sh
    test_sim.sh test_cluster.sh test_channels test_ranks test_ops check_data.sh test_team check_watch.sh test_matmul_slices
    check_pairs.sh test_pipes test_runs.sh test_supervisor test_checkpoint_crash test_sample test_checkpoint_slices
    test_slices test_pack test_matmul test_http test_door"

# Those that work hard and demand that something happens within so many seconds never meet each other: each would make
# the other late. They come first, one after the other; beside them runs all else.
keeps_apart() {
    case ${1##*/} in
    test_comm | test_comm_fail | test_comm_team | test_nccl | test_nccl_library | test_world) ;;
    test_uneven | test_order_any | test_async | test_heal.sh | test_beside.sh | test_saves.sh | test_evict.sh | test_faults.sh | check_faults.sh) ;;
    test_mlp | test_pipe_wait | test_unread | test_cluster.sh) ;;
    test_live.sh | check_cluster.sh | check_nodes.sh | check_pipes_lost.sh | check_layouts_lost.sh | check_promtool.sh) ;;
    check_browser.sh) ;;
    *) return 1 ;;
    esac
}

# Those that wait for deadlines and need no processor meanwhile: one after the other, beside all that run.
only_waits() {
    case ${1##*/} in
    test_team | test_fence | test_team_auth | test_channels | test_http | test_door | test_watcher) ;;
    test_supervisor | test_healed | test_loader | test_council_net | test_delegate | check_watch.sh) ;;
    *) return 1 ;;
    esac
}

log_of() { case $1 in *.sh) echo "build/$(basename "$1").log" ;; *) echo "$1.log" ;; esac; }

# cmocka's summary lines, which name the group in newer versions ("tests: 4 test(s)"), or the plain closing line of a
# script: prints "passed failed skipped"
count() {
    awk 'match($0, /^\[  [A-Z]+ *\] ([a-z_]+: )?[0-9]+ test/) {
             n = substr($0, 1, RLENGTH - 5); sub(/.* /, "", n)
             if (/PASSED/) p += n; if (/FAILED/) f += n; if (/SKIPPED/) s += n }
         /^[0-9]+ passed, [0-9]+ failed/ { p += $1; f += $3; s += $5 } END { print p + 0, f + 0, s + 0 }' "$1"
}

# work PROGRAM SLOTS: runs it; then $ended/PROGRAM holds its exit status, its seconds and the CPU seconds of all its
# processes, and the pipe a line: SLOTS.
work() {
    start=$(date +%s) program=$1 slots=$2
    case $1 in
    *.sh) set -- sh "$1" ;;
    */fuzz_*) set -- "$1" "${LOCKSTEP_FUZZ_SECONDS:-5}" "${LOCKSTEP_FUZZ_FIRST:-0}" ;;
    *) set -- "$1" ;;
    esac
    [ -z "$memory" ] || wants_a_disk "$program" || export TMPDIR=$memory
    timeout "$limit" "$@" >"$(log_of "$program")" 2>&1 3>&-
    code=$?
    times >"$ended/$program.times"
    used=$(awk -F '[ms ]+' 'NR == 2 { print int($1 * 60 + $2 + $3 * 60 + $4 + 0.5) }' "$ended/$program.times")
    echo "$code $(($(date +%s) - start)) $used" >"$ended/$program"
    echo "$slots" >&3
}

# take: the next one that may run now is $next; of those that keep apart one, if none of them runs, and the same of
# those that only wait, which take no slot.
take() {
    taken=1
    if [ -n "$idle" ] && over "$waiter"; then
        waiter=${idle%% *} next=${idle%% *} idle=${idle#* } taken=0
    elif [ $running -ge "$jobs" ]; then
        return 1
    elif [ -n "$apart" ] && over "$lone"; then
        lone=${apart%% *} next=${apart%% *} apart=${apart#* }
    elif [ -n "$rest" ]; then
        next=${rest%% *} rest=${rest#* }
    else
        return 1
    fi
}
over() { [ -z "$1" ] || [ -s "$ended/$1" ]; }

# tell PROGRAM: how it ended.
tell() {
    name=${1#build/} log=$(log_of "$1")
    read -r rc seconds used <"$ended/$1"
    set -- $(count "$log")
    [ "$rc" -eq 0 ] || [ "$2" -gt 0 ] || set -- "$1" 1 "$3"  # crashed or ran out of time before it could say so
    [ $(($1 + $2 + $3)) -gt 0 ] || set -- 0 1 0              # ended well and tested nothing
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
    echo "$name: $1 passed, $2 failed, $3 skipped, $seconds s, CPU $used s"
    grep -h '^\[  SKIPPED \] [a-z]\|^skipped: ' "$log" | grep -v 'listed below' | sort -u
    [ "$rc" -eq 0 ] || { echo "--- $name ended with $rc"; tail -n 60 "$log"; echo "---"; }
}

ended=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-run.XXXXXX") || exit 1
trap 'rm -rf "$ended"' EXIT
trap 'exit 143' HUP INT TERM
mkfifo "$ended/pipe" && exec 3<>"$ended/pipe" || exit 1
apart='' idle='' rest='' lone='' waiter='' running=0
enlist() {
    if keeps_apart "$1"; then
        apart="$apart$1 "
    elif [ "$jobs" -gt 1 ] && only_waits "$1"; then
        idle="$idle$1 "
    else
        rest="$rest$1 "
    fi
}
is_long() { for each in $longest; do [ "$each" != "${1##*/}" ] || return 0; done; return 1; }
for name in $longest; do
    for t; do [ "${t##*/}" != "$name" ] || enlist "$t"; done
done
for t; do
    mkdir -p "$ended/$(dirname "$t")"
    is_long "$t" || enlist "$t"
done
for t; do
    until [ -s "$ended/$t" ]; do
        while take; do
            work "$next" $taken &
            running=$((running + taken))
        done
        read -r slots <&3
        running=$((running - slots))
    done
    tell "$t"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
