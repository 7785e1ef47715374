#!/bin/sh
# test/test_identity.sh: what tells one build from another. The tables of bits (test/golden/same_bits*.txt) do not
# change under a revision of the arithmetic (gpu/revision.c): test/golden/revisions.txt has a line for each row of
# each table, with the revision under which it was made and a digest of it. And the digest of the sources is the same
# where bits are, and another where they may be others.
. test/support/same_bits.sh

# --- revisions --------------------------------------------------------------------------------------------------------

file_of() { if [ "$1" = cpu ]; then echo same_bits.txt; else echo "same_bits_$1.txt"; fi; }

# revisions KIND, revision KIND TYPE: what this build says.
revisions() { "$bin" version | sed -n 's/^revision *//p' | tr ';' '\n' | sed -n "s/^ *$1 //p"; }
revision() { revisions "$1" | tr ',' '\n' | sed -n "s/^ *$2 //p"; }

# table_lines TABLE FILE: "TABLE TYPE REVISION ROW DIGEST" for each of its rows.
table_lines() {
    rm -rf rows && mkdir rows
    for type in fp32 bf16 fp16 bf16-pairs; do echo "$type $(revision "$(kind_of "$1")" $type)"; done >of
    "rows_$1" | awk -F'|' 'NF { type = "fp32"; if (match($0, /precision.compute=[a-z0-9]*/)) type = substr($0, RSTART + 18, RLENGTH - 18)
        if ($0 ~ /precision.products=bf16-pairs/) type = "bf16-pairs"
        sub(/ *$/, "", $1); print $1, type }' >types
    awk '!/^#/ { file = "rows/" $1; print >file; if (file != last && last) close(last); last = file }' "$2"
    (cd rows && sha256sum -- *) | awk -v table="$1" 'FILENAME == "of" { revision[$1] = $2; next } FILENAME == "types" { type[$1] = $2; next }
        { print table, type[$2], revision[type[$2]], $2, substr($1, 1, 16) }' of types -
}

# held KEPT TABLE FILE: the table's rows are those that the file KEPT has of this build's revisions. Else the reason
# is printed.
held() {
    table_lines "$2" "$3" >now
    awk -v table="$2" 'FILENAME == "now" { digest[$1 " " $2 " " $3 " " $4] = $5; current[$1 " " $2 " " $3]; next }
        /^#/ || $1 != table || !(($1 " " $2 " " $3) in current) { next }
        { key = $1 " " $2 " " $3 " " $4; seen[key] }
        !(key in digest) { print "row " $4 " of table " $1 " is gone, or of another type than " $2; next }
        digest[key] != $5 { print "row " $4 " of table " $1 " has other lines than revision " $3 " of " $2 " had: if bits changed on purpose, raise it in gpu/revision.c" }
        END { for (key in digest) if (!(key in seen)) print "a row without a line. If bits changed, raise the revision; if it is new, add:\n" key, digest[key] }
    ' now "$1" >"$out"
    [ ! -s "$out" ]
}

tables_are_held() {
    for table in cpu since sim; do
        held "$top/test/golden/revisions.txt" $table "$top/test/golden/$(file_of $table)" ||
            fail "$(file_of $table) and gpu/revision.c do not fit"
        kind=$(kind_of $table)
        grep -q "^# Revisions: $kind $(revisions "$kind") " "$top/test/golden/$(file_of $table)" ||
            fail "$(file_of $table) does not say of which revisions it is"
    done
}

# A table that was made anew with other bits, a row less, a row more.
changes_are_seen() {
    kept=$top/test/golden/revisions.txt table=$top/test/golden/same_bits.txt
    sed 's/^\(bf16 3 .*\)[0-9a-f]$/\1x/' "$table" >other
    ! held "$kept" cpu other || fail "a hash of another run was taken"
    says "row bf16 of table cpu has other lines than revision 2 of bf16 had"
    [ "$(wc -l <"$out")" -eq 1 ] || fail "more than that row"
    sed '/^fp32-dropout /d' "$table" >other
    ! held "$kept" cpu other || fail "a row less was taken"
    says "row fp32-dropout of table cpu is gone"
    sed '/^cpu fp16 2 fp16-dropout /d' "$kept" >less
    ! held less cpu "$table" || fail "a row that has no line was taken"
    says "a row without a line" "cpu fp16 2 fp16-dropout "
    sed 's/^cpu bf16 2 /cpu bf16 1 /' "$kept" >less
    ! held less cpu "$table" || fail "lines of an earlier revision were taken for this one's"
    says "cpu bf16 2 bf16-dropout "
}

# --- the digest of the sources ----------------------------------------------------------------------------------------

# digest DIR [VARIABLE...]: what a build there would say of itself; nothing is built.
digest() {
    dir=$1
    shift
    (cd "$dir" && env -u MAKEFLAGS -u MAKELEVEL make -n -B -j1 "$@" build/base/version.o 2>/dev/null) |
        sed -n "s/.*-DSOURCES='\"\\([0-9a-f]*\\)\"'.*/\\1/p" | head -n 1
}

# A copy of what is built, outside git.
copy_sources() {
    mkdir "$1"
    (cd "$top" && tar -c --exclude=./build --exclude=./.git --exclude=./test --exclude=./lockstep --exclude=./runs \
        --exclude=./datasets --exclude='*.md' .) |
        tar -x -C "$1"
    mkdir -p "$1/test/kit" && cp "$top/test/test.mk" "$1/test" && cp "$top/test/kit/kit.mk" "$1/test/kit"
}

sources_are_told_apart() {
    command -v make >/dev/null || skip "there is no make"
    copy_sources a
    copy_sources b
    ours=$("$bin" version | sed -n 's/^sources *//p') a=$(digest a)
    echo "$a" | grep -qE '^[0-9a-f]{16}$' || fail "no digest: $a"
    [ "$a" = "$ours" ] || fail "this binary says $ours, and its sources are $a (or it was not built from them)"
    [ "$(digest b)" = "$a" ] || fail "a copy outside git has another digest"
    for same in CUDA=none CC=clang CFLAGS="-O1 -g -Wall" SAN=-fsanitize=address CBUILD=other; do
        [ "$(digest b "$same" CBUILD=build)" = "$a" ] || fail "$same changes no bit, and the digest"
    done
    echo "# more" >>b/test/test.mk
    [ "$(digest b)" = "$a" ] || fail "test/test.mk changes no bit, and the digest"
    [ "$(digest b CFLAGS="-O3 -ffast-math")" != "$a" ] || fail "-ffast-math changes bits, and not the digest"
    sed -i 's/GELU_B 0x1.6e4e26p-5f/GELU_B 0x1.6e4e28p-5f/' b/gpu/cpu/kernel/vmath.h
    ! cmp -s b/gpu/cpu/kernel/vmath.h a/gpu/cpu/kernel/vmath.h || fail "nothing was changed"
    changed=$(digest b)
    [ "$changed" != "$a" ] || fail "another constant of GELU has the same digest"
    for file in gpu/cuda/norm.cu gpu/cuda/absent.c trainer/step/step.h main.c Makefile; do
        echo "/* */" >>"b/$file"
        [ "$file" != Makefile ] || { sed -i '$d' b/Makefile && echo "# more" >>b/Makefile; }
        again=$(digest b)
        [ "$again" != "$changed" ] || fail "$file changed, and not the digest"
        changed=$again
    done
}

try tables_are_held
try changes_are_seen
try sources_are_told_apart
finish
