#!/bin/sh
# test/test_format.sh: every C file is laid out as .clang-format says; `clang-format -i FILE` does it. Another version
# lays out otherwise, so only 14 is asked. Comments that fill a line are wrapped by hand, at 120 columns.
. test/support/lib.sh

sources() {
    (cd "$top" && find main.c base gpu data model comm trainer test -name '*.[ch]' -o -name '*.cu' -o -name '*.cpp')
}

laid_out() {
    program=$(command -v clang-format-14 || command -v clang-format) || skip "there is no clang-format"
    "$program" --version | grep -q 'version 14\.' || skip "there is no clang-format 14"
    (cd "$top" && sources | xargs -P 2 -n 40 "$program" --dry-run -Werror) >"$out" 2>&1 ||
        fail "$(grep -c 'error:' "$out") lines are laid out otherwise"
}

wrapped() {
    (cd "$top" && sources | xargs awk 'length > 120 && /^ *\/\// { print FILENAME ":" FNR ": a comment of " length " columns" }') >"$out"
    [ ! -s "$out" ] || fail "$(cat "$out")"
}

# The pow() of a program that reads PNG makes zero of numbers below zero, and is called for pow(x, 2) without -O.
squares() {
    (cd "$top" && find test -name '*.[ch]' | xargs grep -nE '\<pow\(.*, 2(\.0?)?\)') >"$out"
    [ ! -s "$out" ] || fail "square(x) of test/support/square.h is meant"
}

try laid_out
try wrapped
try squares
finish
