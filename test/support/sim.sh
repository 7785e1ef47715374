# test/support/sim.sh: programs over the simulator of test/sim, for the scripts that run them. After lib.sh.
sim=$top/build/sim race=$top/build/sim-race asan=$top/build/sim-asan

# good LOG WHAT: the program that wrote it said in the way of test/run.sh that it tested something, and that all went
# well.
good() {
    cp "$1" "$out"
    grep -qE '^\[  PASSED  \] [1-9]|^[1-9][0-9]* passed, 0 failed' "$1" &&
        ! grep -qE '^\[  FAILED|^simulator: [1-9][0-9]* finding' "$1" || fail "$2"
    ! grep -q '^skipped: ' "$1" || fail "$2 skipped: $(grep -m 1 '^skipped: ' "$1")"
}

# runs "SEED PROGRAM [ARGUMENT...]"...: all of them end with 0, from the top directory, two at a time.
runs() {
    rm -f job-*
    n=0
    for job; do
        program=${job#* }
        [ -x "${program%% *}" ] || skip "${program%% *} is not built: make sim, which needs the CUDA toolkit's headers"
        n=$((n + 1))
        echo "$job" >"job-$n"
    done
    seq $n | xargs -P 2 -I{} sh -c 'set -- {} $(cat job-{}); here=$PWD; n=$1; export SIM_SEED="$2"; shift 2
        cd "$0" && "$@" >"$here/job-$n.log" 2>&1 </dev/null; echo $? >"$here/job-$n.end"' "$top"
    for k in $(seq $n); do
        good "job-$k.log" "$(cat "job-$k")"
        [ "$(cat "job-$k.end")" -eq 0 ] || fail "$(cat "job-$k"): ended with $(cat "job-$k.end")"
    done
}
