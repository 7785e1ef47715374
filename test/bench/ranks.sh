#!/bin/sh
# test/bench/ranks.sh BUILD BIN [quick] [part...]: what many ranks cost on this machine, as Markdown. Parts: bandwidth
# links steps hidden start (all of them). Runs that are compared take turns, and the median of their medians is compared.
# $PYTHON is the one that has PyTorch. Run it on a quiet machine. `quick` is for tests of bandwidth and links: the
# smallest sizes, whose figures say nothing.
set -eu
build=${1:-build} bin=${2:-./lockstep}
[ $# -lt 2 ] || shift 2
quick=
if [ "${1:-}" = quick ]; then quick=quick && shift; fi
parts=${*:-bandwidth links steps hidden start}
python=${PYTHON:-python3}
case $bin in /*) ;; *) bin=$PWD/$bin ;; esac
dir=$(mktemp -d)
ns=lkb$$
leave() {
    for n in 0 1; do ip netns del $ns-$n 2>/dev/null || true; done
    rm -rf "$dir"
}
trap leave EXIT
trap 'exit 143' HUP INT TERM

median() { sort -g | awk '{ x[NR] = $1 } END { print (NR % 2) ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }
ms() { sed -n 's/.*steps: median \([0-9.]*\) ms.*/\1/p'; }

# --- collectives beside PyTorch's gloo --------------------------------------------------------------------------------

has_torch() { "$python" -c 'import torch.distributed' 2>/dev/null; }

# beside OURS GLOO: two such outputs as one table, a row for each call and size; without the second, ours alone.
beside() {
    head -n 1 "$1"
    if [ -s "$2" ]; then head -n 1 "$2"; else echo "(no PyTorch in $python here: no gloo to compare with)"; fi
    awk '
        NF < 7 || $3 != "KB" { next }
        FILENAME == ARGV[1] { us[$1, $2] = $4; gb[$1, $2] = $6; next }
        !said++ { printf "%-16s %10s    %12s %9s   %12s %9s %8s\n", "", "", "ours us", "GB/s", "gloo us", "GB/s", "faster" }
        (($1, $2) in us) { printf "%-16s %10d KB %12.1f %9.3f   %12.1f %9.3f %8.2f\n", $1, $2, $4, $6, us[$1, $2], gb[$1, $2], us[$1, $2] / $4; next }
        { printf "%-16s %10d KB %12.1f %9.3f\n", $1, $2, $4, $6 }' "$2" "$1"
}

# compare RANKS [links]: over shared memory, or over connections.
compare() {
    "$build/bench_comm" "$@" $quick >"$dir/ours" || return
    : >"$dir/gloo"
    ! has_torch || "$python" test/bench/gloo.py "$1" $quick >"$dir/gloo" || return
    beside "$dir/ours" "$dir/gloo"
}

bandwidth() { for n in 2 4; do compare $n || return; done; }

# --- between two machines, of which this one plays both: our TCP, libfabric, gloo --------------------------------------

links() {
    compare 2 links || return
    for provider in tcp shm; do
        LOCKSTEP_TEST_FABRIC=$provider "$build/bench_comm" 2 links $quick || echo "(no libfabric with $provider here)"
    done
}

# --- steps: order fixed, order any, one rank --------------------------------------------------------------------------

small='[model]\nlayers=6\nheads=6\nembed=384\ncontext=256\n[batch]\nglobal=16\nmicro=2\nlanes=8\n[device]\nthreads=1\n'
baby='[model]\nlayers=4\nheads=4\nembed=128\ncontext=128\n[batch]\nglobal=16\nmicro=2\nlanes=8\n[device]\nthreads=1\n'

one_step() { # shape, ranks, order, steps: median ms of a step
    eval "printf '%b' \"\$$1\"" >"$dir/model.ini"
    printf '[device]\nranks=%s\n[reduce]\norder=%s\nbucket_mb=4\n' "$2" "$3" >"$dir/ranks.ini"
    "$bin" bench "$dir/model.ini" "$dir/ranks.ini" --steps "$4" | ms
}

steps() {
    echo "# median ms of a step over 5 turns; one rank has one thread, N ranks have one thread each, on $(nproc) cores"
    echo "# shape                        ranks   fixed      any  fixed/any   one rank  speed-up"
    for shape in small:5 baby:60; do
        for n in 2 4; do
            for k in one fixed any; do : >"$dir/$k"; done
            for turn in 1 2 3 4 5; do
                one_step ${shape%:*} 1 fixed ${shape#*:} >>"$dir/one"
                one_step ${shape%:*} $n fixed ${shape#*:} >>"$dir/fixed"
                one_step ${shape%:*} $n any ${shape#*:} >>"$dir/any"
            done
            echo "${shape%:*} $n $(median <"$dir/fixed") $(median <"$dir/any") $(median <"$dir/one")" |
                awk '{ name = $1 == "small" ? "6 layers 384 ch 16x256" : "4 layers 128 ch 16x128"
                       printf "%-28s %6d %8.2f %8.2f %10.3f %10.2f %9.2f\n", name, $2, $3, $4, $3 / $4, $5, $5 / $3 }'
        done
    done
}

# --- communication overlapped with backward, over 1 Gbit/s -----------------------------------------------------------

hidden() {
    head -c 32 /dev/urandom >"$dir/secret" && chmod 600 "$dir/secret"
    ip netns add $ns-0 && ip netns add $ns-1 || { echo "(needs network namespaces: run it as root)"; return 0; }
    ip link add name ${ns}a netns $ns-0 type veth peer name ${ns}b netns $ns-1
    for n in 0 1; do
        dev=$([ $n = 0 ] && echo ${ns}a || echo ${ns}b)
        ip -n $ns-$n addr add 10.99.0.$((n + 1))/24 dev $dev
        ip -n $ns-$n link set lo up
        ip -n $ns-$n link set $dev up
        ip netns exec $ns-$n tc qdisc add dev $dev root tbf rate 1gbit burst 128k latency 50ms
    done
    echo "# two nodes of one rank, one thread each, tc tbf 1 Gbit/s both ways; $1"
    for order in fixed any; do
        for bucket in 1 4 25; do
            printf '%b' "$2" >"$dir/model.ini"
            printf '[cluster]\nnodes = 10.99.0.1:1, 10.99.0.2:1\nsecret_file = %s/secret\nport = 28100\ntimeout = 60\n[reduce]\norder = %s\nbucket_mb = %s\n' "$dir" $order $bucket >"$dir/ranks.ini"
            ip netns exec $ns-1 "$bin" bench "$dir/model.ini" "$dir/ranks.ini" --steps "$3" >/dev/null 2>"$dir/err" &
            printf 'bucket_mb %-4s ' $bucket
            ip netns exec $ns-0 "$bin" bench "$dir/model.ini" "$dir/ranks.ini" --steps "$3" 2>&1 |
                sed -n 's/.*steps: median \([0-9.]*\) ms.*/\1 ms a step,/p; s/^2 ranks *//p' | tr '\n' ' '
            echo
            wait || cat "$dir/err"
        done
    done
}

# --- start-up ---------------------------------------------------------------------------------------------------------

start() {
    text="$dir/text.txt"
    cat comm/*.c trainer/*.c >"$text"
    printf '[run]\ndir=%s/runs\nsteps=20\n[model]\nlayers=1\nheads=1\nembed=16\ncontext=16\n[data]\ntrain=%s/t-train-*.bin\nval=\n[pack]\ninput=%s\noutput=%s/t\n[batch]\nglobal=64\nmicro=1\nlanes=64\n[schedule]\nwarmup=0\n[sample]\ntokens=0\n[eval]\nevery=0\n[checkpoint]\nevery=0\nkeep_best=no\n[log]\nevery=1\n' "$dir" "$dir" "$text" "$dir" >"$dir/start.ini"
    "$bin" pack "$dir/start.ini" >/dev/null
    echo "# process start to the first finished step, a tiny model, milliseconds; and to the end of 20 steps and the process"
    for n in 2 8 32 64; do
        printf '[run]\nname=start%s\n[device]\nranks=%s\n' $n $n >"$dir/n.ini"
        since=$(date +%s%N)
        "$bin" "$dir/start.ini" "$dir/n.ini" | while read -r word rest; do
            [ "$word" != step ] || { echo "$((($(date +%s%N) - since) / 1000000))"; cat >/dev/null; break; }
        done >"$dir/first"
        echo "$n ranks: $(cat "$dir/first") ms, all $((($(date +%s%N) - since) / 1000000)) ms"
    done
}

section() {
    printf '\n## %s\n\n```\n' "$1"
    shift
    "$@" || echo "(ended with $?)"
    echo '```'
}
for part in $parts; do
    case $part in
    bandwidth) section "Collectives of local ranks, beside PyTorch's gloo" bandwidth ;;
    links) section "Between two machines that this one plays: TCP, libfabric, gloo" links ;;
    steps) section "Steps of many ranks: order fixed, order any, one rank" steps ;;
    hidden) section "Communication hidden behind backward, 1 Gbit/s" hidden \
        "6 layers, 384 channels, 8 x 256 tokens, lanes 2" '[model]\nlayers=6\nheads=6\nembed=384\ncontext=256\n[batch]\nglobal=8\nmicro=4\nlanes=2\n[device]\nthreads=1\n' 6 ;;
    start) section "Start-up" start ;;
    esac
done
