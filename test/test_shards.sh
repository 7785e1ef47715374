#!/bin/sh
# test/test_shards.sh: `lockstep data` from the outside, with ./lockstep or the binary that LOCKSTEP_BIN names: what files of tokens are, whether they
# are right, and the same tokens in every format.
. test/support/lib.sh
tokens=$top/test/golden/gpt-tokens.bin # 1,921 raw uint16 tokens

there_and_back() {
    for format in lockstep llmc raw32 raw16; do
        expect 0 "$bin" data convert --to $format "$tokens" $format.bin
        says "$format.bin: $format, 1921 tokens of"
        expect 0 "$bin" data convert --from $format --to raw16 $format.bin $format-back.bin
        cmp -s "$tokens" $format-back.bin || fail "$format: the tokens are others"
        expect 0 "$bin" data info --from $format $format.bin
        says "$format.bin: $format, 1921 tokens of"
        expect 0 "$bin" data verify --from $format $format.bin
        says "right, 1921 tokens, the largest is 130, hash "
    done
    expect 0 "$bin" data convert lockstep.bin llmc.bin both.bin
    expect 0 "$bin" data info both.bin
    says "both.bin: lockstep, 3842 tokens of 2 bytes"
}

damage_is_listed() {
    expect 0 "$bin" data convert "$tokens" a.bin
    cp a.bin b.bin
    flip b.bin 500
    expect 65 "$bin" data verify b.bin a.bin
    says "b.bin: block 0" "a.bin: right"
    truncate -s -1 a.bin
    expect 65 "$bin" data info a.bin
    says "a.bin"
    expect 65 "$bin" data convert b.bin c.bin
    [ ! -e c.bin ] && [ ! -e c.bin.tmp ] || fail "a file was left"
}

refused() {
    printf '\001\000\001\000' >wide.bin
    printf '[data]\n' >none.ini
    expect 64 "$bin" data
    expect 64 "$bin" data inspect "$tokens"
    says "expected info, verify or convert"
    expect 64 "$bin" data verify
    expect 64 "$bin" data convert --to zip "$tokens" x.bin
    says "expected lockstep, llmc, raw16 or raw32"
    expect 64 "$bin" data convert "$tokens"
    expect 64 "$bin" data info --to raw16 "$tokens"
    cp "$tokens" there.bin
    expect 64 "$bin" data convert "$tokens" there.bin
    says "there.bin is there already"
    # A token of llm.c's 32-bit form that 16 bits can't hold.
    { printf '\241\331\064\001\007\000\000\000\001\000\000\000'; head -c 1012 /dev/zero; printf '\000\000\001\000'; } >wide.bin
    expect 0 "$bin" data info wide.bin
    says "llmc, 1 tokens of 4 bytes"
    expect 65 "$bin" data convert --to raw16 wide.bin narrow.bin
    says "token 0 is 65536, which raw16 can't hold"
    [ ! -e narrow.bin ] && [ ! -e narrow.bin.tmp ] || fail "a file was left"
}

try there_and_back
try damage_is_listed
try refused
finish
