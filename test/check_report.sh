#!/bin/sh
# test/check_report.sh: logs of a million steps: their pages are at most 1 MB, and every spike is in them. How long it
# takes is printed, and is no verdict.
. test/support/lib.sh
. "$top/test/support/long_log.sh"

# seconds COMMAND...: what it took of a processor.
seconds() {
    (TIMEFORMAT= ; times >before; "$@" >"$out" 2>&1; rc=$?; times >after; exit $rc) || fail "it ended with $?: $*"
    awk 'NR % 2 == 0 { split($1, u, /[ms]/); split($2, s, /[ms]/); t[FILENAME] = 60 * (u[1] + s[1]) + u[2] + s[2] } END { printf "%.2f s", t["after"] - t["before"] }' before after
}

a_million_steps() {
    long long 1000000 64
    took=$(seconds "$bin" report long)
    echo "  a log of $(($(size long/log.jsonl) / 1000000)) MB: a page of $(($(size long/report.html) / 1000)) KB in $took of a processor"
    [ "$(size long/report.html)" -le 1000000 ] || fail "$(size long/report.html) bytes"
    # The axis reaches to the spikes of 40, and the description names the last one.
    grep -q '>40</text>' long/report.html || fail "no spike"
    grep -q 'kind_4999' long/report.html || fail "the last event is not in the page"
    grep -qE '"-?nan|nan%|inf%|>-?nan|>inf' long/report.html && fail "a number that is none"
    return 0
}

several_of_them() {
    [ -s long/log.jsonl ] || long long 1000000 64
    cp -r long other
    sed -i '600000s/"hash":"......../"hash":"ffffffff/' other/log.jsonl
    at=$(sed -n '600000s/.*"step":\([0-9]*\),.*"hash":"ffffffff.*/\1/p' other/log.jsonl)
    [ -n "$at" ] || skip "line 600000 has no hash"
    took=$(seconds "$bin" report long other long other --out four.html)
    echo "  four logs: a page of $(($(size four.html) / 1000)) KB in $took of a processor"
    [ "$(size four.html)" -le 1000000 ] || fail "$(size four.html) bytes"
    grep -q "the same weights at step $((at - 1)), others at step $at" four.html || fail "they part at step $at"
    took=$(seconds "$bin" compare long other)
    echo "  compared in $took of a processor"
    says "the same weights at step $((at - 1)), others at step $at"
}

# What the reader keeps is of one size, however long the log.
memory_is_bounded() {
    [ -s long/log.jsonl ] || long long 1000000 64
    mkdir -p short
    head -n 1000 long/log.jsonl >short/log.jsonl
    cp long/config.ini short/
    for run in short long; do
        (ulimit -v 200000; "$bin" report $run) >"$out" 2>&1 ||
            fail "200 MB of addresses do not suffice for the $run log"
    done
}

try a_million_steps
try several_of_them
try memory_is_bounded
finish
