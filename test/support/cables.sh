# test/support/cables.sh: nodes whose cables carry so much, for scripts that have read test/support/net.sh.
#
#   shaped MBIT RANKS...   nodes as `far` makes them, none of which sends more megabits a second: the kernel sees to
#                          that (tc tbf), or test/support/lossy.c where it can't. $shaper says which: tbf or lossy
shaper=tbf
shaped() {
    mbit=$1
    shift
    if [ "$shaper" = lossy ]; then lossy 0 0 "$@" && return; fi
    far "$@"
    burst=$(awk -v r="$mbit" 'BEGIN { b = r * 1e6 / 8 / 200; printf "%d", b < 262144 ? 262144 : b }')
    for k in $(seq 0 $(($# - 1))); do
        ip netns exec "$mark-$k" tc qdisc add dev eth0 root tbf rate "${mbit}mbit" burst "$burst" latency 50ms \
            2>"$out" || { shaper=lossy && reap && lossy 0 0 "$@" && return; }
    done
}
