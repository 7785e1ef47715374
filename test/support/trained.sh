# test/support/trained.sh: runs beside base.ini whose bits are compared, for scripts that have read test/support/lib.sh.

# hashes RUN: of each step, and of the last state.
hashes() {
    sed -n 's/^{"t":"step","step":\([0-9]*\),.*"hash":"\([0-9a-f]*\)".*/\1 \2/p' "runs/$1/log.jsonl"
    "$bin" hash "$(ls -d "runs/$1"/ckpt/step-* | tail -n 1)" | sed 's/  [^ ]*$//'
}

# trained RUN SETTING...: its hashes are in RUN.hashes, at least `least` (3) of them.
trained() {
    run=$1
    rm -rf "runs/$run"
    settings "$@"
    expect 0 timeout 100 "$bin" base.ini "$run.ini"
    hashes "$run" >"$run.hashes"
    [ "$(wc -l <"$run.hashes")" -ge "${least:-3}" ] || fail "$run has no hash of each step"
}
