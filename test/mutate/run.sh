#!/bin/sh
# test/mutate/run.sh: do the tests notice when the code is wrong?
#
#   make mutate AT="comm trainer/plan/plan.c" N=20 SEED=1 JOBS=2
#     AT    files or rooms, each on its own account (all rooms)
#     N     mutants of each of them (20)
#     SEED  which ones; the same seed, the same mutants (1)
#     JOBS  so many at a time (one for each core)
#
# A mutant is one small change of one file (test/mutate/mutate.c). It is built in a copy of the tree and run against the
# tests that test/mutate/guards names for its file, in their order, until one fails. Those that none notices are printed
# with file and line: each is the same program in other words, or a test that is missing. What does not compile, or
# compiles to the same objects, is no mutant, and another is drawn. A mutant may do anything, so its tests run in
# namespaces of their own, where it sees no other process and no network, and writes nowhere but in its copy; all of it
# ends with its test, at the latest after four times what the test takes without a mutant, and 20 s.
set -u
export LC_ALL=C
work=${MUTATE_WORK:-$PWD/build/mutate} guards=${MUTATE_GUARDS:-$PWD/test/mutate/guards} slack=${MUTATE_SLACK:-20}
at=${AT:-base data model comm trainer gpu/cpu} n=${N:-20} seed=${SEED:-1} jobs=${JOBS:-$(nproc)}
unset AT N SEED JOBS MAKEFLAGS MAKEOVERRIDES MFLAGS
case $n$seed$jobs in *[!0-9]*) echo "mutate: N, SEED and JOBS are numbers" >&2; exit 64 ;; esac
leave() { echo "mutate: $2" >&2; exit "$1"; }
trap 'trap "" TERM; kill 0; exit 143' HUP INT TERM  # what runs in namespaces ends as well

# -O1 compiles fast, and without -g what is the same program is the same object file. gcc 12 sees a table of no bytes at
# -O1 where there is one (stringop-overread).
build() {
    make -s CUDA=none VERSION=mutant BUILD=build BIN=build/lockstep CFLAGS='-O1 -Wno-stringop-overread' "$@"
}

# In namespaces: of processes, so that they end together and reach no other; of mounts; of networks.
root=$([ "$(id -u)" -eq 0 ] || echo --map-root-user)
apart() { unshare $root --mount --pid --net --ipc --fork --kill-child --mount-proc "$@"; }
enclose='mount --bind . . && mount -o remount,bind,ro / && cd "$PWD" && ip link set lo up || exit 126'
inside=$enclose'
export TMPDIR=$PWD/tmp LOCKSTEP_BIN=build/lockstep CUDA_VISIBLE_DEVICES=
ulimit -c 0 -f 4194304
{ "$@"; echo "mutate: ended with $?"; } >pipe 2>&1 </dev/null &
exec awk "{ print; fflush() }
          /^\[  FAILED  \]|^FAILED: / { exit 1 }
          /^mutate: ended with / { exit \$NF }" <pipe'

# confined LIMIT TEST LOG: runs it in the current directory until it ends, a case of it has failed, or LIMIT seconds are
# over.
confined() {
    limit=$1 test=$2 log=$3
    rm -rf tmp pipe && mkdir tmp && mkfifo pipe
    case $test in
    *.sh) set -- sh "test/$test" ;;
    *:*) set -- "build/test/${test%%:*}" "${test#*:}" ;;
    *) set -- "build/test/$test" ;;
    esac
    apart timeout --foreground -s KILL "$limit" sh -c "$inside" sh "$@" >"$log" 2>&1
}

target() { case $1 in *.sh) echo "build/lockstep" ;; *) echo "build/test/${1%%:*}" ;; esac; }

# guards_of FILE: the tests named in the first line of the table whose pattern is the file's.
guards_of() {
    sed 's/#.*//' "$guards" | while read -r pattern tests; do
        case $1 in $pattern) [ -z "$pattern" ] || { echo "$tests"; break; } ;; esac
    done
}

# --- the tree without a mutant ---------------------------------------------------------------------------------------

# The sources of now beside the objects of last time.
copy_tree() {
    mkdir -p "$work/tree/build" || exit 74
    find "$work/tree" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
    tar -cf - --exclude=./.git --exclude=./build --exclude=./lockstep --exclude=./runs --exclude=./datasets . |
        tar -xf - -C "$work/tree"
}

# The files of a place that are compiled.
files_of() {
    find "$1" -name '*.c' 2>/dev/null | sort | while read -r f; do
        set -- "build/${f%.c}".o "build/${f%.c}".*.o
        [ ! -e "$1" ] && [ ! -e "$2" ] || echo "$f"
    done
}

build_or_leave() { build "$@" >"$work/log.build" 2>&1 || { tail -n 20 "$work/log.build"; exit 70; }; }

# measure TEST: it must pass here; times/TEST becomes its seconds.
measure() {
    [ "$work/times/$1" -nt "$(target "$1")" ] && return
    began=$(date +%s)
    confined 900 "$1" "$work/log.$1"
    rc=$?
    [ $rc -eq 0 ] || { tail -n 20 "$work/log.$1"; leave 1 "$1 ends with $rc without a mutant"; }
    echo $(($(date +%s) - began)) >"$work/times/$1"
}

# --- one mutant ------------------------------------------------------------------------------------------------------

# What was changed or made since the mutant began is again as in the tree without one.
restore() {
    find . -newer "$work/stamp.$slot" -type f ! -path './tmp/*' | while read -r f; do
        cp -p "$work/tree/$f" "$f" 2>/dev/null || rm -f "$f"
    done
}

# Does the mutant differ from the original, in code?
differs() {
    find build -newer "$work/stamp.$slot" -name '*.o' | while read -r f; do
        cmp -s "$f" "$work/tree/$f" || echo "$f"
    done | grep -q .
}

# how RC LOG: in a word, why a test ended so.
how() {
    if [ "$1" -eq 137 ]; then echo time
    elif grep -q 'Assertion `' "$2"; then echo assert
    elif grep -q 'with exception: ' "$2" || [ "$1" -gt 128 ]; then echo crash
    else echo test
    fi
}

# verdict FILE: the first test that notices, and how; or nothing.
verdict() {
    for t in $(guards_of "$1"); do
        log=$work/log.$slot.$t
        build "$(target "$t")" >"$log" 2>&1 || { echo "$t link"; return; }
        confined $((4 * $(cat "$work/times/$t") + slack)) "$t" "$log"
        rc=$?
        [ $rc -eq 0 ] || { echo "$t $(how $rc "$log")"; return; }
    done
}

# mutant PLACE ROW FILE NUMBER: in the copy of $slot. found/PLACE.ROW becomes "none" and why, or the change, a tab and
# the verdict.
mutant() {
    found=$work/found/$1.$2
    cd "$work/slot.$slot" || exit 74
    touch "$work/stamp.$slot"
    what=$("$work/mutate" make "$3" "$4" "$work/mutated.$slot.c") && cp "$work/mutated.$slot.c" "$3" || exit 70
    if ! build build/liblockstep.a >"$work/log.$slot.build" 2>&1; then echo "none compiles"
    elif ! differs; then echo "none differs"
    else
        ended=$(verdict "$3")
        printf '%s\t%s\n' "$what" "$ended"
        [ -n "$ended" ] || echo "survived: $what" >&2
    fi >"$found"
    restore
    echo "$slot $found" >&3
}

# --- all of them -----------------------------------------------------------------------------------------------------

# tell PLACE: one line of the table.
tell() {
    awk -F '\t' -v place="$1" '
        /^none compiles/ { broken++; next }
        /^none differs/ { same++; next }
        { n++; if ($2 == "") next; killed++; split($2, how, " "); by[how[2]]++ }
        END { printf "%-24s %7d %6d %5.0f%% %6d %6d %6d %6d %9d %9d\n", place, n, killed, n ? 100 * killed / n : 0,
                     by["test"] + by["link"], by["crash"], by["assert"], by["time"], broken, same }'
}

# place AT: draws mutants until there are N, JOBS at a time. Which they are does not depend on how they end.
place() {
    name=$(echo "$1" | tr / -) row=0 count=0
    "$work/mutate" draw "$seed" $(files_of "$1") >"$work/drawn"
    exec 4<"$work/drawn"
    while :; do
        while [ -n "$free" ] && [ $count -lt "$n" ] && read -r file number <&4; do
            slot=${free%% *} free=${free#* } row=$((row + 1)) count=$((count + 1)) running=$((running + 1))
            mutant "$name" $row "$file" "$number" &
        done
        [ $running -gt 0 ] || break
        read -r ended found <&3
        free="$ended $free" running=$((running - 1))
        ! grep -q ^none "$found" || count=$((count - 1))
    done
    exec 4<&-
    cat "$work/found/$name".* 2>/dev/null | tell "$1"
}

[ "$(apart sh -c "$enclose"'; echo yes' 2>/dev/null)" = yes ] || leave 69 "no namespaces here to confine mutants in"
mkdir -p "$work/times" && rm -rf "$work/found" "$work"/log.* "$work"/slot.* && mkdir "$work/found" || exit 74
${CC:-cc} -std=c11 -D_GNU_SOURCE -O1 -I. -o "$work/mutate" test/mutate/mutate.c || exit 70
copy_tree
cd "$work/tree" || exit 74
echo "mutate: building and measuring without a mutant" >&2
build_or_leave build/liblockstep.a
tests=$(for a in $at; do files_of "$a"; done | while read -r f; do guards_of "$f"; done | tr ' ' '\n' | sort -u)
[ -n "$tests" ] || leave 64 "AT=\"$at\": nothing here is compiled and has tests named in test/mutate/guards"
build_or_leave $(for t in $tests; do target "$t"; done | sort -u)
for t in $tests; do measure "$t"; done
mkfifo "$work/pipe.$$" && exec 3<>"$work/pipe.$$" && rm "$work/pipe.$$" || exit 74
free='' running=0
for slot in $(seq "$jobs"); do cp -a "$work/tree" "$work/slot.$slot" && free="$free$slot "; done
echo "                         mutants killed  score   test  crash assert   time (no build, no change)"
for a in $at; do place "$a"; done
cat "$work"/found/* | tell "all"
echo "survivors:"
sed -n 's/\t$//p' "$work"/found/* | sort -t : -k 1,1 -k 2,2n
rm -rf "$work"/slot.*
