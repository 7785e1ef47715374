#!/bin/sh
# test/bench/breakeven.sh BIN [quick] [THERE,BACK...]: below which bandwidth codes of [reduce] compress pay (fp16,none
# and fp16,fp16 unless others are named), beside what `lockstep plan` says, as Markdown. Two nodes of one rank in
# network namespaces, whose cables carry from a half to twice what plan says; with codes and without in turns. ms of a
# step are medians, a gain is the median of the turns' differences. What codes gain a step is (bytes saved) / bandwidth
# - (time lost), so the measured break-even is where a line through the gains over 1/bandwidth comes to 0. Cables are
# the kernel's (tc tbf), or test/support/lossy.c where it has none. Needs root, for the namespaces. Run it on a quiet
# machine. `quick` is for tests: its figures say nothing.
#
# What a cable carries is what `lockstep bench links` measures: of 1 Gbit/s of a cable a tenth is headers and waiting.
#
# A break-even can be seen where the cable is slower than the network of the kernel, and where coding is not lost in the
# noise of what else a step does. So the bodies are the portable ones, which code slowly, and the model is two tables of
# embeddings (DLRM): a step computes next to nothing, and sends all of their gradients.
LOCKSTEP_BIN=${1:-./lockstep}
[ $# -eq 0 ] || shift
quick=
if [ "${1:-}" = quick ]; then quick=yes && shift; fi
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"
. "$top/test/support/cables.sh"
name=breakeven steps=${STEPS:-24} rows=20000 times="0.5 0.7 1 1.4 2" rounds=${ROUNDS:-5}
[ -z "$quick" ] || steps=5 rows=2000 times="0.5 2" rounds=1
ini >base.ini <<END
run dir=runs steps=$steps
model type=dlrm task=regress dense=0 tables=2 rows=$rows embed=64 bottom= top=
pack clicks=ratings input=planted:1:20000:900:1600 output=data/ratings val_fraction=0.1
data train=data/ratings-train-*.bin val=data/ratings-val-*.bin
device threads=1 simd=portable
batch global=2 micro=1 lanes=2
optimizer type=sgd lr=0.01 momentum=0.9 grad_clip=0
checkpoint every=0 keep_best=no
eval every=0
log every=1 watch=no
END
"$bin" pack base.ini >"$out" 2>&1 || { cat "$out"; exit 1; }

median() { sort -g | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }
ms_of() { sed -n 's/^{"t":"step",.*"ms":\([0-9.]*\).*/\1/p' "$1/log.jsonl" | sed 1,2d | median; }

# one RUN THERE BACK: ms of a step.
one() {
    run=$1
    shift
    together "$run" reduce.compress="$1" reduce.compress_back="$2"
    rm -rf node?/runs/"$run"
    boot "$run"
    ended 0
    ms_of "node0/runs/$run" >>"$run.ms"
}

# carried: Mbit/s between the two nodes, as they are wired now.
carried() {
    together links
    verb='bench links'
    boot links
    verb=
    ended 0
    awk '/MB\/s .* us$/ { print 8 * $3; exit }' node0/out
}

# planned THERE BACK: Mbit/s, by plan; nothing: codes pay on any wire, or on none.
planned() {
    together plan reduce.compress="$1" reduce.compress_back="$2"
    "$bin" plan base.ini plan.ini >"$out" 2>&1 || fail "plan"
    awk '/ they pay where / { printf "%.4g\n", 1000 * $10 }' "$out"
}

break_even() {
    there=${1%,*} back=${1#*,}
    lay far 1 1
    port=20100
    first=$(planned "$there" "$back") || { echo "$first"; exit 1; }
    printf '\n2 nodes, %s to owners, %s back\n\n' "$there" "$back"
    printf '| cable, Mbit/s | carried | ms of a step, none | coded | gained |\n|---|---|---|---|---|\n'
    rm -f gains plans
    for t in $times; do
        rate=$(awk -v b="${first:-1000}" -v t="$t" 'BEGIN { printf "%d", b * t < 1 ? 1 : b * t }')
        rm -f plain.ms coded.ms links
        for round in $(seq "$rounds"); do
            shaped "$rate" 1 1
            planned "$there" "$back" >>plans
            carried >>links
            one plain none none
            one coded "$there" "$back"
            reap
        done
        echo "$rate $(median <links) $(median <plain.ms) $(median <coded.ms)" \
            "$(paste plain.ms coded.ms | awk '{ print $1 - $2 }' | median)" |
            tee -a gains | awk '{ printf "| %d | %d | %.2f | %.2f | %.2f |\n", $1, $2, $3, $4, $5 }'
    done
    # least squares of the gain over 1/carried
    awk -v plan="$(median <plans)" -v by="$shaper" '
        { x = 1 / $2; y = $5; n++; sx += x; sy += y; sxx += x * x; sxy += x * y }
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

for each in ${*:-fp16,none fp16,fp16}; do break_even "$each"; done
