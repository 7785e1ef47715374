#!/bin/sh
# test/run.sh PROGRAM...: runs these test programs, fuzz targets and scripts, each in bounded time, and closes with
# "N passed, N failed, N skipped". What a program printed is shown when it failed; its log stays beside it, a script's in build/.
limit=${LOCKSTEP_TEST_LIMIT:-900}
export CUDA_VISIBLE_DEVICES=  # `auto` is the CPU here, whose bits are written down; GPUs have make gpu-check
passed=0 failed=0 skipped=0

# cmocka's summary lines, or the plain closing line of a script: prints "passed failed skipped"
count() {
    awk '/^\[  PASSED  \] [0-9]+ test/ { p += $4 } /^\[  FAILED  \] [0-9]+ test/ { f += $4 } /^\[  SKIPPED \] [0-9]+ test/ { s += $4 }
         /^[0-9]+ passed, [0-9]+ failed/ { p += $1; f += $3; s += $5 } END { print p + 0, f + 0, s + 0 }' "$1"
}

for t; do
    name=${t#build/}
    case $t in *.sh) log=build/$(basename "$t").log ;; *) log=$t.log ;; esac
    start=$(date +%s)
    case $t in *.sh) timeout "$limit" sh "$t" >"$log" 2>&1 ;; */fuzz_*) timeout "$limit" "$t" "${LOCKSTEP_FUZZ_SECONDS:-5}" >"$log" 2>&1 ;;
    *) timeout "$limit" "$t" >"$log" 2>&1 ;; esac
    rc=$?
    set -- $(count "$log")
    [ $rc -eq 0 ] || [ "$2" -gt 0 ] || set -- "$1" 1 "$3"  # crashed or ran out of time before it could say so
    [ $(($1 + $2 + $3)) -gt 0 ] || set -- 0 1 0            # ended well and tested nothing
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
    echo "$name: $1 passed, $2 failed, $3 skipped, $(($(date +%s) - start)) s"
    grep -h '^\[  SKIPPED \] [a-z]\|^skipped: ' "$log" | sort -u
    [ $rc -eq 0 ] || { echo "--- $name ended with $rc"; tail -n 60 "$log"; echo "---"; }
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
