# test/support/witness.sh: what a rank holds that lives on while others are killed, again and again; and chance from a
# seed. For scripts that have read test/support/lib.sh, set `witness` to its pid, and have a function steps_later that
# waits until the run has come a few steps further with the witness, or is false: then there is nothing to see.
seed=${SEED:-20}
roll() {
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    rolled=$((seed / 65536 % $1))
}
doze() { sleep "$(printf '0.%03d' "$1")"; }

# What is freed goes back at once, so that what a rank holds is what it uses.
export MALLOC_MMAP_THRESHOLD_=32768 MALLOC_TRIM_THRESHOLD_=32768 MALLOC_ARENA_MAX=1

# holds PID: how many descriptors and threads it has, and how much memory of its own, in KB: the
# rings that ranks share are new in each world, and fill as they are used.
holds() {
    fds=$(ls "/proc/$1/fd" | wc -l) threads=$(ls "/proc/$1/task" | wc -l)
    rss=$(awk '/^RssAnon/ { print $2 }' "/proc/$1/status")
}

# What the witness holds a few steps after the last kill: the least of several looks, since a file that is being written
# is a descriptor, and memory that was freed goes back in time.
settled() {
    steps_later || return 1
    holds "$witness"
    least="$fds $threads $rss"
    for try in 1 2 3 4 5 6 7 8; do
        doze 15
        holds "$witness"
        least=$(echo "$fds $threads $rss $least" | awk '{ for (i = 1; i < 4; i++) printf "%d ", $i < $(i + 3) ? $i : $(i + 3) }')
    done
    set -- $least
    fds=$1 threads=$2 rss=$3
}

# look: once every 20 kills, adds what the witness holds to the file `held`.
look() {
    [ $kills -ge $((20 * (1 + ${looks:-0}))) ] || return 0
    looks=$((${looks:-0} + 1))
    settled || return 0
    echo "$fds $threads $rss" >>held
}

# The least of the first third of the looks, and of the last third: an allocator keeps some buffer at times and gives it
# back at others, but what leaks never comes back. There may be as many descriptors and threads, and 2 % more memory; or
# 64 KB, since a heap is never packed tightly; or 160 KB, the largest such buffer, where there are too few looks to have
# seen it come and go.
grows() {
    [ ${looks:-0} -gt 0 ] || return 0
    ! settled || echo "$fds $threads $rss" >>held
    [ -s held ] || fail "the witness was never in a world that went on for a minute"
    part=$((($(wc -l <held) + 2) / 3)) slack=64
    [ $looks -ge 6 ] || slack=160
    set -- $(least head $part) $(least tail $part)
    allowed=$(($3 / 50 > slack ? $3 + $3 / 50 : $3 + slack))
    echo "    witness in the first looks: $1 descriptors, $2 threads, $3 KB; in the last, after $kills kills: $4, $5, $6 KB"
    [ "$4" -le "$1" ] || fail "$4 descriptors after $kills kills, $1 at first"
    [ "$5" -le "$2" ] || fail "$5 threads after $kills kills, $2 at first"
    [ "$6" -le $allowed ] || fail "$6 KB after $kills kills, $3 KB at first"
}
# least head|tail N: the least of each column of so many lines.
least() {
    "$1" -n "$2" held | awk 'NR == 1 { for (i = 1; i < 4; i++) m[i] = $i }
        { for (i = 1; i < 4; i++) if ($i < m[i]) m[i] = $i } END { print m[1], m[2], m[3] }'
}
