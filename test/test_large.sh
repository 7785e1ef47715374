#!/bin/sh
# test/test_large.sh: a model that no machine holds, and one that a limit forbids: every verb that would compute says
# what is needed and what there is, before it computes, and ends with 78, which no unit tries again. Ranks of one
# machine are added up.
. test/support/lib.sh
. "$top/test/support/small.sh"

small_run <<'INI'
[run]
name = base
steps = 1
[device]
backend = cpu
ranks = 1
[batch]
global = 2
lanes = 2
INI

# needs WORDS COMMAND...
needs() {
    words=$1
    shift
    expect 78 "$bin" "$@"
    says "$words" "of memory, and " " has " "lockstep plan"
    grep -q "\.c:[0-9]" "$out" && fail "it prints a trail of functions"
    return 0
}

printf '[model]\nlayers = 24\nheads = 24\nembed = 24576\n' >huge.ini
no_machine_holds_it() {
    for verb in train check bench "bench step" eval sample; do needs "this run needs " $verb base.ini huge.ini; done
    [ ! -e runs/base/ckpt ] || fail "it left a checkpoint"
    expect 0 "$bin" plan base.ini huge.ini
}

# What all ranks of the machine need together, as plan says it of each.
ranks_are_added_up() {
    printf '[device]\nranks = 2\n' >two.ini
    expect 0 "$bin" plan base.ini huge.ini two.ini
    sum=$(awk '$1 == "all" && $2 > 1000000 { least = $2; for (i = 3; i < NF; i++) if ($i == "least") least = $(i + 1)
        print ($2 + least) / 1e9; exit }' "$out")
    needs "the 2 ranks on this machine need $(printf %.1f "$sum") GB " train base.ini huge.ini two.ini
    says "rank 0 (localhost): the 2 ranks"
}

a_limit_forbids_it() {
    printf '[model]\nlayers = 8\nembed = 1024\nheads = 8\n' >large.ini
    (ulimit -v 1000000 && exec "$bin" base.ini large.ini) >"$out" 2>&1
    [ $? -eq 78 ] || fail "expected 78"
    says "ulimit -v" "1.0 GB" "lockstep plan"
    one_line
}

for case in no_machine_holds_it ranks_are_added_up a_limit_forbids_it; do try $case; done
finish
