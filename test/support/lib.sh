# test/support/lib.sh: what the scripts test/test_*.sh share. A case is a function; it runs in a subshell of its own and
# ends at its first `fail` or `skip`. The scripts are started from the top directory and work in a directory of their
# own, which goes with them.
set -u
export LC_ALL=C
top=$PWD
bin=${LOCKSTEP_BIN:-./lockstep}
case $bin in /*) ;; *) bin=$top/$bin ;; esac
[ -x "$bin" ] || { echo "$bin: not there; build it first: make"; echo "0 passed, 1 failed"; exit 1; }
work=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-test.XXXXXX") || exit 1
out=$work/out      # what the last command printed
mounted=$work/disk # where a case may have mounted something
pid=               # of the process in the background, if any
passed=0 failed=0 skipped=0

leave() {
    umount "$mounted" 2>/dev/null
    rm -rf "$work"
}
trap leave EXIT
trap 'exit 143' HUP INT PIPE TERM
cd "$work" || exit 1

# --- verdicts ---------------------------------------------------------------------------------------------------------

fail() {
    echo "FAILED: $name: $*"
    [ ! -s "$out" ] || { echo "  it printed:"; tail -n "${shown:-8}" "$out" | cut -c 1-400 | sed 's/^/    /'; }
    exit 1
}

skip() {
    echo "skipped: $name ($*)"
    exit 77
}

# used: sets `cpu` to the CPU seconds of all that this script has run so far. Not in $(...), which would count anew.
used() {
    times >"$work/times"
    cpu=$(awk -F '[ms ]+' 'NR == 2 { print int($1 * 60 + $2 + $3 * 60 + $4 + 0.5) }' "$work/times")
}

# try NAME [COMMAND...]: runs the command, or the function of that name, as a case.
try() {
    used
    name=$1 since=$(date +%s) before=$cpu
    [ $# -eq 1 ] || shift
    (trap 'reap' EXIT; trap 'exit 143' HUP INT TERM; : >"$out"; "$@")
    code=$?
    used
    case $code in
    0) passed=$((passed + 1)) && echo "ok: $name, $(($(date +%s) - since)) s, CPU $((cpu - before)) s" ;;
    77) skipped=$((skipped + 1)) ;;
    *) failed=$((failed + 1)) ;;
    esac
}

finish() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed -eq 0 ] && [ $((passed + skipped)) -gt 0 ]
    exit
}

# expect CODE COMMAND...: it must end with this exit status.
expect() {
    want=$1
    shift
    "$@" >"$out" 2>&1 </dev/null
    got=$?
    [ $got -eq "$want" ] || fail "expected exit status $want, got $got, of: $*"
}

# says TEXT...: the last command printed each of these.
says() {
    for text; do grep -qF -e "$text" "$out" || fail "expected it to say \"$text\""; done
}

# one_line: the last command printed one line and no more.
one_line() { [ "$(wc -l <"$out")" -eq 1 ] || fail "expected one line"; }

# same A B WHAT: two files must be equal.
same() {
    [ -s "$1" ] || fail "$3: nothing to compare in $1"
    cmp -s "$1" "$2" || { diff "$1" "$2" | head -n 6 | cut -c 1-300; fail "$3 differ (<: ${1##*/}, >: ${2##*/})"; }
}

# --- processes --------------------------------------------------------------------------------------------------------

# start PROGRAM...: in the background; its number is $pid. A program, not a function: what is killed must be the thing
# itself.
start() {
    "$@" >"$out.started" 2>&1 </dev/null &
    pid=$!
}

# await CODE: the started process must end by itself with this exit status.
await() {
    wait "$pid" 2>/dev/null
    got=$? pid=
    mv "$out.started" "$out"
    [ $got -eq "$1" ] || fail "expected exit status $1, got $got"
}

# No process of a case outlives it.
reap() {
    [ -z "$pid" ] || { kill -9 "$pid"; wait "$pid"; } 2>/dev/null
}

# until_true LIMIT COMMAND...: tries it every few milliseconds, and later every thirty, for at most about LIMIT seconds.
until_true() {
    left=$(($1 * 250)) tried=0
    shift
    until "$@"; do
        tried=$((tried + 1))
        if [ $tried -le 100 ]; then left=$((left - 1)) nap=0.003; else left=$((left - 8)) nap=0.03; fi
        [ $left -gt 0 ] || fail "waited too long for: $*"
        sleep $nap
    done
}

# --- files ------------------------------------------------------------------------------------------------------------

# ini: an INI from lines "SECTION KEY=VALUE ...", one for each section. A value with blanks has a line of its own, "KEY = VALUE", after
# its section's.
ini() {
    awk '/ = / { print; next }
         { print "[" $1 "]"; for (i = 2; i <= NF; i++) { sub(/=/, " = ", $i); sub(/ $/, "", $i); print $i } }'
}

# settings NAME SECTION.KEY=VALUE...: writes NAME.ini, the settings of run NAME.
settings() {
    ini=$1.ini
    printf '[run]\nname = %s\n' "$1" >"$ini"
    shift
    for each; do printf '[%s]\n%s\n' "${each%%.*}" "${each#*.}"; done >>"$ini"
}

# text BYTES: so much of a text in which there is something to learn, the same on every machine.
text() {
    awk -v bytes="$1" 'BEGIN {
        split("the a one two step lane tree sum bit log rank file state word node", w, " ")
        for (x = 17; n < bytes; n += length(s) + 1) {
            s = ""
            for (i = 0; i < 8; i++) { x = (x * 4093 + 1021) % 65521; s = s w[1 + x % 15] (i % 4 == 3 ? x % 97 : "") " " }
            print s
        }
    }' | head -c "$1"
}

# flip FILE OFFSET: inverts one byte.
flip() {
    byte=$(od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' ')
    printf "\\$(printf %03o $((255 - byte)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}

size() { wc -c <"$1" | tr -d ' '; }
