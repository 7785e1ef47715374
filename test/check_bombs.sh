#!/bin/sh
# test/check_bombs.sh: small compressed files that unpack to a gigabyte: one line, one word, very many lines.
# ./lockstep, or the binary that LOCKSTEP_BIN names, refuses each by file and line before it takes more memory than
# any honest file may need.
. test/support/lib.sh
. "$top/test/support/small.sh"

small_run <<'INI'
[run]
name = base
steps = 1
[device]
ranks = 1
[batch]
global = 2
micro = 2
lanes = 1
[sample]
tokens = 2
INI
"$bin" train base.ini >"$out" 2>&1 || { cat "$out"; echo "0 passed, 1 failed"; exit 1; }

# bomb NAME HEAD: HEAD, and then 64 gzip members of 16 MiB of the character on standard input.
bomb() {
    head -c 16777216 /dev/zero | tr '\0' "$3" | gzip -1 >member.gz
    printf %s "$2" | gzip >"$1"
    i=0
    while [ $i -lt 64 ]; do cat member.gz && i=$((i + 1)); done >>"$1"
}
bomb line.gz '' a
bomb text.jsonl.gz '{"text": "' a
bomb values.gz '{"query": "", "choices": [' ,
bomb lines.gz '' '\n'
printf '[pack]\ninput = text.jsonl.gz\noutput = data/x\ntokenizer = %s/test/golden/tokenizer/gpt2.json\n' "$top" \
    >json.ini
printf '[pack]\ninput = line.gz\noutput = data/x\ntokenizer = train:1000\n' >words.ini

# refused CODE BYTES TEXT COMMAND...: with so many addresses at most.
refused() {
    code=$1 most=$2 what=$3
    shift 3
    (ulimit -v $((most / 1024)) && exec "$bin" "$@") >"$out" 2>&1 </dev/null
    got=$?
    [ $got -eq "$code" ] || fail "expected $code, got $got, of: $*"
    says "$what"
}

packed() {
    refused 65 1000000000 "text.jsonl.gz: line 1 is longer than 64 MiB" pack base.ini json.ini
    refused 65 1000000000 "line.gz: a line is longer than 256 MiB" pack base.ini words.ini
}

asked() {
    refused 65 1000000000 "line.gz: line 1 is longer than 64 MiB" eval base.ini --choices line.gz
    refused 65 1000000000 "values.gz: line 1 is longer than 64 MiB" eval base.ini --choices values.gz
    refused 65 2000000000 "line.gz: more than 134217728 tokens" eval base.ini --text line.gz
    head -c 3000000 /dev/zero | tr '\0' , >many.jsonl
    refused 65 500000000 "many.jsonl: line 1: more than 1048576 values" eval base.ini --choices many.jsonl
}

prompted() {
    refused 65 1000000000 "line.gz: line 1 is longer than 64 MiB" sample base.ini --prompts line.gz
    refused 65 1000000000 "text.jsonl.gz: line 1 is longer than 64 MiB" sample base.ini --prompts text.jsonl.gz
    refused 65 1000000000 "prompt 1048577: a file may have 1048576 prompts" sample base.ini --prompts lines.gz
}

# From standard input, whose size is not known.
streamed() {
    gzip -dc line.gz 2>/dev/null | (ulimit -v 1000000 && exec "$bin" tokenize --train 1000 gpt2) >"$out" 2>&1
    says "standard input: a line is longer than 256 MiB"
    gzip -dc line.gz 2>/dev/null | (ulimit -v 3000000 &&
        exec "$bin" tokenize "$top/test/golden/tokenizer/gpt2.json") >"$out" 2>&1
    says "standard input: 64 MiB without a place where tokens certainly end"
}

# The longest line that is taken, in the memory that the page on data says.
longest() {
    (printf '{"text": "'; head -c $((64 * 1048576 - 100)) /dev/zero | tr '\0' 'a' | fold -w 60 | tr '\n' ' ' |
        head -c $((64 * 1048576 - 100)); printf '"}\n') >long.jsonl
    printf '[pack]\ninput = long.jsonl\noutput = data/x\n' >long.ini
    (ulimit -v 1000000 && exec "$bin" pack base.ini json.ini long.ini) >"$out" 2>&1 ||
        fail "the longest line is refused"
    says "1 documents, 67108764 bytes"
}

for case in packed asked prompted streamed longest; do try $case; done
finish
