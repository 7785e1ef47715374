#!/bin/sh
# test/models/run.sh: the models of what nodes decide, by spin (https://spinroot.com, Debian's package spin). It looks at
# every order of events. And each of the models' mutants, which must fail.
#
#     sh test/models/run.sh quick | all
#
# quick: small sizes, without mutants, half a minute. all: a quarter of an hour and 4 GB.
set -eu
cd "$(dirname "$0")"
models=$PWD
if ! command -v spin >/dev/null || ! command -v gcc >/dev/null; then
    echo "skipped: models (spin is not installed)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0

# MODEL DEFINITIONS...: looks at all states. $errors, $states (=)
look() {
    model=$1
    shift
    mkdir "$dir/run"
    (
        cd "$dir/run"
        cp "$models/$model.pml" .
        spin -a "$@" "$model.pml" >spin.txt 2>&1
        gcc -O1 -w -DSAFETY -DCOLLAPSE -DVECTORSZ=2048 -o pan pan.c
        ./pan -m2000000 -n >out.txt 2>&1
    ) || true
    errors=$(sed -n 's/.*errors: \([0-9]*\)$/\1/p' "$dir/run/out.txt")
    states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored$/\1/p' "$dir/run/out.txt")
    # a search that was cut off shows nothing
    if grep -qE "max search depth|out of memory|truncated" "$dir/run/out.txt"; then errors="unknown, was cut off"; fi
    text="$model $*"
}

result() {
    if [ "$1" = yes ]; then
        passed=$((passed + 1))
        echo "ok: $text: $2"
    else
        failed=$((failed + 1))
        echo "FAILED: $text: $2"
        tail -n 20 "$dir/run/spin.txt" "$dir/run/out.txt" || true
    fi
    rm -rf "$dir/run"
}

holds() {
    look "$@"
    [ "$errors" = 0 ] && good=yes || good=no
    result $good "$states states, errors: $errors"
}

fails() {
    look "$@"
    [ "$errors" = 1 ] && good=yes || good=no
    result $good "must fail: $states states, errors: $errors"
}

holds votes -DN=3 -DK=1 -DB=2 -DDEATHS=1 -DCRASHES=1
holds commit -DR=2 -DSTEPS=1 -DALARMS=2 -DKILLS=1
holds epochs -DN=2 -DK=5 -DSTEPS=2 -DDEATHS=1
holds epochs -DN=2 -DK=6 -DSTEPS=2 -DLEAVERS=1 -DLEAST=2 -DKIDS=1
holds vault -DSTEPS=4 -DEVERY=2 -DLOSSES=2
holds prune -DC=2 -DLOSSES=2
if [ "${1:-all}" = all ]; then
    for mutant in NO_PAGE NO_LIFE; do fails votes -DN=3 -DK=1 -DB=2 -DDEATHS=1 -DCRASHES=1 -D$mutant; done
    fails votes -DN=2 -DK=1 -DB=2 -DDEATHS=1 -DCRASHES=1 -DTIE
    fails votes -DN=3 -DK=2 -DB=1 -DDEATHS=2 -DCRASHES=0 -DCOLD
    for mutant in NO_OK NO_FLAG TWICE; do fails commit -DR=2 -DSTEPS=1 -DALARMS=2 -DKILLS=1 -D$mutant; done
    for mutant in NO_WAIT NO_FIRST NO_MOVED NEWEST NO_MARK; do
        fails vault -DSTEPS=4 -DEVERY=2 -DLOSSES=2 -D$mutant
    done
    for mutant in EARLY NO_COPY; do fails prune -DC=2 -DLOSSES=2 -D$mutant; done
    fails epochs -DN=2 -DK=5 -DSTEPS=1 -DDEATHS=1 -DNO_OVER
    fails epochs -DN=2 -DK=5 -DSTEPS=2 -DDEATHS=2 -DORPHANS -DNO_FENCE
    fails epochs -DN=2 -DK=5 -DSTEPS=2 -DKIDS=1 -DNO_TORN
    fails epochs -DN=2 -DK=5 -DSTEPS=2 -DDEATHS=1 -DNO_LIFE
    fails epochs -DN=2 -DK=6 -DSTEPS=2 -DLEAVERS=1 -DLEAST=2 -DKIDS=1 -DNO_SHORT
    fails epochs -DN=2 -DK=14 -DSTEPS=1 -DPOISON=1 -DMUST_END -DNO_FRUITLESS
    holds epochs -DN=2 -DK=14 -DSTEPS=1 -DPOISON=1 -DMUST_END
    holds epochs -DN=2 -DK=5 -DSTEPS=1 -DKIDS=1 -DALARMS=1
    holds epochs -DN=2 -DK=6 -DSTEPS=2 -DDEATHS=2 -DORPHANS
    holds epochs -DN=3 -DK=4 -DSTEPS=1 -DDEATHS=1 -DSTAY
    holds votes -DN=2 -DK=2 -DB=2 -DDEATHS=1 -DCRASHES=1
    holds commit -DR=3 -DSTEPS=2 -DALARMS=2 -DKILLS=1
    holds vault -DSTEPS=6 -DEVERY=2 -DLOSSES=2
    holds prune -DC=3 -DLOSSES=2
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
