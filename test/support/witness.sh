# test/support/witness.sh: what a rank holds that lives on while others are killed, again and again; and chance from a
# seed. For scripts that have read test/support/lib.sh, set `witness` to its pid, and have a function steps_later that
# waits until the run has come a few steps further.
seed=${SEED:-20}
narrower=
roll() {
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    rolled=$((seed / 65536 % $1))
}
doze() { sleep "$(printf '0.%03d' "$1")"; }

# holds PID: how many descriptors and threads it has, and how much memory of its own, in KB: the
# rings that ranks share are new in each world, and fill as they are used.
holds() {
    fds=$(ls "/proc/$1/fd" | wc -l) threads=$(ls "/proc/$1/task" | wc -l)
    rss=$(awk '/^RssAnon/ { print $2 }' "/proc/$1/status")
}

# What the witness holds a few steps after the last kill: the least of several looks, since a file that is being written
# is a descriptor, and memory that was freed goes back in time.
settled() {
    steps_later
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

# Of the witness, from kill `first` to the last: descriptors and threads as many, memory 2 % more at most, or 160 KB
# where that is less: a checkpoint that is being written takes as much now and then. What leaks never comes back: so it
# has a few chances. was: what it held then. narrower: not empty where the world may have become smaller, and holds less.
grows() {
    for chance in 1 2 3 4 5 6 7 8; do
        settled
        set -- $was
        allowed=$(($3 / 50 > 160 ? $3 + $3 / 50 : $3 + 160))
        [ "$rss" -gt $allowed ] || break
    done
    echo "    witness after $first kills: $1 descriptors, $2 threads, $3 KB; after $kills: $fds, $threads, $rss KB"
    as_many "$fds" "$1" || fail "$fds descriptors after $kills kills, $1 after $first"
    as_many "$threads" "$2" || fail "$threads threads after $kills kills, $2 after $first"
    [ "$rss" -le $allowed ] || fail "$rss KB after $kills kills, $3 KB after $first"
}
as_many() { [ "$1" -eq "$2" ] || { [ -n "$narrower" ] && [ "$1" -lt "$2" ]; }; }
