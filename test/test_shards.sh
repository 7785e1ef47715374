#!/bin/sh
# test/test_shards.sh: `lockstep data` from the outside, with ./lockstep or the binary that LOCKSTEP_BIN names: what
# files of tokens are, whether they are right, and the same tokens in every format.
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

# number BYTES N...: each as so many bytes, little-endian.
number() {
    bytes=$1
    shift
    for each; do
        i=0
        while [ $i -lt "$bytes" ]; do
            printf "\\$(printf %03o $((each >> 8 * i & 255)))"
            i=$((i + 1))
        done
    done
}

# index TYPE LENGTH POINTER LENGTH POINTER: an index of Megatron-LM with two sequences, each a document.
index() {
    printf 'MMIDIDX\0\0'
    number 8 1
    number 1 "$1"
    number 8 2 3
    number 4 "$2" "$4"
    number 8 "$3" "$5" 0 1 2
}

megatron() {
    cp "$tokens" m.bin
    index 8 900 0 1021 1800 >m.idx
    expect 0 "$bin" data info m.bin
    says "m.bin: megatron, 1921 tokens of 2 bytes, 3842 bytes, no checksums"
    expect 0 "$bin" data info --from raw16 m.bin
    says "m.bin: raw16, 1921 tokens of 2 bytes"
    expect 0 "$bin" data verify m.bin
    cp "$out" found
    expect 0 "$bin" data verify --from raw16 m.bin
    same found "$out" "what verify says with the index and without it"
    index 8 21 3800 1000 100 >m.idx
    expect 0 "$bin" data info --from megatron m.bin
    says "m.bin: megatron, 1021 tokens of 2 bytes, 3842 bytes in 2 stretches, of which the index names 2042, no checksums"
    expect 0 "$bin" data convert --to raw16 m.bin back.bin
    { tail -c 42 "$tokens"; tail -c +101 "$tokens" | head -c 2000; } >want
    same want back.bin "the tokens in the order of the index"
    index 8 22 3800 1000 100 >m.idx
    expect 65 "$bin" data verify m.bin
    says "m.idx: sequence 0 (offsets 34 and 42) has 22 tokens of 2 bytes from byte 3800 on"
    index 7 1 0 1 0 >m.idx
    expect 65 "$bin" data info m.bin
    says "type 7 is float32"
    number 8 5 $((1 << 31)) >wide.bin
    index 5 1 0 1 8 >wide.idx
    expect 0 "$bin" data info wide.bin
    says "wide.bin: megatron, 2 tokens of 8 bytes"
    expect 65 "$bin" data convert wide.bin x.bin
    says "token 1 (at offset 8) is 2147483648"
    number 8 5 70000 >wide.bin
    expect 0 "$bin" data convert wide.bin x.bin
    says "x.bin: lockstep, 2 tokens of 4 bytes"
    expect 65 "$bin" data info m.idx
    says "the index of Megatron-LM's data (name the .bin beside it)"
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
    expect 64 "$bin" data convert --to megatron "$tokens" x.bin
    says "expected lockstep, llmc, raw16 or raw32"
    expect 64 "$bin" data convert --from zip "$tokens" x.bin
    says "expected lockstep, llmc, raw16, raw32 or megatron"
    expect 64 "$bin" data convert "$tokens"
    expect 64 "$bin" data info --to raw16 "$tokens"
    cp "$tokens" there.bin
    expect 64 "$bin" data convert "$tokens" there.bin
    says "there.bin is there already"
    # A token of llm.c's 32-bit form that 16 bits can't hold.
    { printf '\241\331\064\001\007\000\000\000\001\000\000\000'; head -c 1012 /dev/zero; printf '\000\000\001\000'; } \
        >wide.bin
    expect 0 "$bin" data info wide.bin
    says "llmc, 1 tokens of 4 bytes"
    expect 65 "$bin" data convert --to raw16 wide.bin narrow.bin
    says "token 0 is 65536, which raw16 can't hold"
    [ ! -e narrow.bin ] && [ ! -e narrow.bin.tmp ] || fail "a file was left"
}

try there_and_back
try megatron
try damage_is_listed
try refused
finish
