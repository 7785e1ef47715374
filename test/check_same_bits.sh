#!/bin/sh
# test/check_same_bits.sh: not one bit moves. Every row of test/support/same_bits.sh, run with today's binary, must log
# what the tables in test/golden say that an older one logged: each loss, norm, rate and hash, as it stands in the log.
# On the simulated GPU too, where `make sim` has built it.
. test/support/same_bits.sh

# same_row TABLE NAME RANKS SETTINGS [RANKS SETTINGS]
same_row() {
    table=$1
    shift
    sed -n "/^$1 /p" "$table" >want
    [ -s want ] || fail "it is not in ${table##*/}"
    bits "$@"
    cmp -s want found || { first_difference >"$out"; fail "it is not what ${table##*/} says"; }
}

first_difference() {
    awk 'NR == FNR { want[n = NR] = $0; next } { found[m = FNR] = $0 }
         END { for (i = 1; i <= n || i <= m; i++) if (want[i] != found[i]) { print "expected: " want[i]; print "found:    " found[i]; exit } }' want found
}

# No row of a table is left out.
all_rows() {
    sed '/^#/d;s/ .*//' "$1" | uniq >want
    sed 's/ .*//' rows >found
    same want found "the rows of ${1##*/} and of same_bits.sh"
}

# same_table WHAT FILE: a case for each row.
same_table() {
    table=$top/test/golden/$2
    mkdir "$1" && cd "$1" || exit 1
    prepare "$1"
    try "rows_$1" all_rows "$table"
    each_row try_row
    cd ..
}
try_row() { try "$1" same_row "$table" "$@"; }

same_table cpu same_bits.txt
same_table since same_bits_since.txt
bin=$top/build/sim/lockstep
if [ -x "$bin" ]; then
    same_table sim same_bits_sim.txt
else
    try sim skip "$bin is not built: make sim, which needs the CUDA toolkit's headers"
fi
finish
