# test/support/told.sh: runs whose logged numbers are compared. After test/support/lib.sh.

# told RUN COUNT: hashes, losses and norms of its steps and evaluations are in RUN.told, COUNT of them or more.
told() {
    sed -n 's/^{"t":"\(step\|eval\)","step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2 \3/p' "runs/$1/log.jsonl" >"$1.told"
    sed -n 's/^{"t":"step".*"grad_norm":\([^,]*\),.*"hash":"\([0-9a-f]*\)".*/\1 \2/p' "runs/$1/log.jsonl" >>"$1.told"
    [ "$(wc -l <"$1.told")" -ge "$2" ] || fail "$1 told of $(wc -l <"$1.told") numbers, expected $2"
}

# trained RUN SETTING...: what it logged is in RUN.told.
trained() {
    run=$1
    rm -rf "runs/$run"
    settings "$@"
    expect 0 timeout 100 "$bin" base.ini "$run.ini"
    told "$run" 12
}
