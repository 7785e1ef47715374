#!/bin/sh
# test/bench/breakeven.sh BIN [quick] [THERE,BACK...]: below which bandwidth codes of [reduce] compress pay (int8,int8
# unless others are named; topk,none runs under sgd), beside what `lockstep plan` says, as Markdown. Two nodes of one
# rank in network namespaces, whose cables carry a quarter, half, once, twice and four times what plan says; with codes
# and without in turns. ms of a step are medians. What codes gain a step is (bytes saved) / bandwidth - (time lost), so
# the measured break-even is where a line through the gains over 1/bandwidth comes to 0. Cables are the kernel's (tc
# tbf), or test/support/lossy.c where it has none. Needs root, for the namespaces. Run it on a quiet machine. `quick` is
# for tests: its figures say nothing.
LOCKSTEP_BIN=${1:-./lockstep}
[ $# -eq 0 ] || shift
quick=
if [ "${1:-}" = quick ]; then quick=yes && shift; fi
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"
. "$top/test/support/cables.sh"
name=breakeven steps=${STEPS:-24} layers=3 embed=256 times="0.25 0.5 1 2 4" rounds=${ROUNDS:-3}
[ -z "$quick" ] || steps=5 layers=1 embed=32 times="0.5 2" rounds=1

settings_of() { # THERE BACK
    echo "device.threads=1 log.watch=no eval.every=0 checkpoint.every=0 run.steps=$steps model.layers=$layers
        model.embed=$embed model.heads=4 batch.global=2 batch.micro=1 batch.lanes=2 data.shuffle=yes
        reduce.compress=$1 reduce.compress_back=$2"
    case "$codec" in topk*) echo "optimizer.type=sgd optimizer.lr=0.1 optimizer.momentum=0.9 optimizer.grad_clip=0" ;; esac
}

median() { sort -g | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }
ms_of() { sed -n 's/^{"t":"step",.*"ms":\([0-9.]*\).*/\1/p' "$1/log.jsonl" | sed 1,2d | median; }

# one RUN THERE BACK: ms of a step.
one() {
    run=$1
    shift
    together "$run" $(settings_of "$@")
    rm -rf node?/runs/"$run"
    boot "$run"
    ended 0
    ms_of "node0/runs/$run" >>"$run.ms"
}

# planned: Mbit/s, by plan; empty: codes pay on any wire, or on none.
planned() {
    lay far 1 1
    port=20100
    together plan $(settings_of "$@")
    "$bin" plan base.ini plan.ini >"$out" 2>&1 || fail "plan"
    awk '/ they pay where / { printf "%.4g", 1000 * $10 }' "$out"
}

break_even() {
    codec=$1 there=${1%,*} back=${1#*,}
    plan=$(planned "$there" "$back") || { echo "$plan"; exit 1; }
    printf '\n2 nodes, %s to owners, %s back\n\n| Mbit/s | ms of a step, none | coded | times as many steps |\n|---|---|---|---|\n' "$there" "$back"
    : >gains
    for t in $times; do
        rate=$(awk -v b="${plan:-1000}" -v t="$t" 'BEGIN { printf "%d", b * t < 1 ? 1 : b * t }')
        rm -f plain.ms coded.ms
        for round in $(seq "$rounds"); do
            shaped "$rate" 1 1
            one plain none none
            one coded "$there" "$back"
            reap
        done
        echo "$rate $(median <plain.ms) $(median <coded.ms)" |
            tee -a gains | awk '{ printf "| %d | %.2f | %.2f | %.2f |\n", $1, $2, $3, $2 / $3 }'
    done
    # least squares of the gain over 1/rate
    awk -v plan="$plan" -v by="$shaper" '
        { x = 1 / $1; y = $2 - $3; n++; sx += x; sy += y; sxx += x * x; sxy += x * y }
        END {
            slope = (n * sxy - sx * sy) / (n * sxx - sx * sx); least = (sy - slope * sx) / n
            printf "\nbreak-even: plan says %s; measured ", plan == "" ? "none: on any wire, or on no wire" : plan " Mbit/s"
            if (slope > 0 && least < 0) {
                printf "%.4g Mbit/s", -slope / least
                if (plan != "") printf ", %.2f of it", -slope / least / plan
            } else printf "%s", (slope > 0 ? "on any wire" : "on no wire")
            printf " (cables: %s)\n", by
        }' gains
}

for each in ${*:-int8,int8}; do break_even "$each"; done
