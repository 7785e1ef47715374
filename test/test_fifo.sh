#!/bin/sh
# test/test_fifo.sh: a FIFO in place of each file that ./lockstep, or the binary that LOCKSTEP_BIN names, reads or
# writes: it says so at once, and never waits for the other end. A directory, a device and a socket are no files
# either.
. test/support/lib.sh
. "$top/test/support/small.sh"

small_run <<'INI'
[run]
name = base
steps = 2
[device]
ranks = 1
[batch]
global = 4
micro = 2
lanes = 2
[schedule]
type = cosine
warmup = 1
decay_steps = 8
[checkpoint]
every = 1
[eval]
every = 250
[sample]
tokens = 4
[log]
every = 1
INI
mkfifo pipe
"$bin" train base.ini >"$out" 2>&1 && "$bin" export runs/base weights >"$out" 2>&1 ||
    { cat "$out"; echo "0 passed, 1 failed"; exit 1; }

# refused CODE WHAT COMMAND...: within twenty seconds, and the message says what is there instead of a file.
refused() {
    code=$1 what=$2
    shift 2
    expect "$code" timeout -s KILL 20 "$bin" "$@"
    says "$what"
}

# with SECTION KEY VALUE: more.ini, with one setting.
with() { printf '[%s]\n%s = %s\n' "$1" "$2" "$3" >more.ini; }

settings_files() {
    mkfifo pipe.ini
    refused 78 "not a regular file" pipe.ini
    refused 78 "not a regular file" config pipe
}

data_files() {
    with data train pipe
    refused 65 "not a regular file" check base.ini more.ini
    with data val pipe
    refused 65 "not a regular file" eval base.ini more.ini
    refused 65 "not a regular file" data info pipe
    with pack input pipe
    refused 78 "no text in it" pack base.ini more.ini
}

texts() {
    for option in --text --choices; do refused 65 "pipe: a FIFO" eval base.ini $option pipe; done
    refused 65 "pipe: a FIFO" sample base.ini --prompts pipe
    refused 65 "directory, expected a regular file" sample base.ini --prompts data
    refused 65 "a device, expected a regular file" sample base.ini --prompts /dev/zero
}

tokenizers() {
    mkdir hf gpt2
    mkfifo hf/tokenizer.json gpt2/vocab.json gpt2/merges.txt
    for t in pipe hf gpt2; do
        refused 65 "a FIFO" tokenize $t
        with sample tokenizer $t
        refused 65 "a FIFO" sample base.ini more.ini
    done
}

# in_place FILE COMMAND...: refused while a FIFO stands in for FILE.
in_place() {
    file=$1
    shift
    mv "$file" kept && mkfifo "$file" || fail "can't replace $file"
    refused 65 "${file##*/}: a FIFO" "$@"
    rm "$file" && mv kept "$file"
}

weights() {
    refused 65 "pipe: a FIFO" inspect pipe
    with model init_from pipe
    printf '[run]\nname = other\n' >>more.ini
    refused 65 "pipe: a FIFO" train base.ini more.ini
    for file in weights/*.safetensors weights/config.json; do in_place "$file" inspect weights; done
    mkdir many
    mkfifo many/model.safetensors.index.json
    refused 65 "a FIFO" inspect many
}

checkpoints() {
    newest=$(echo runs/base/ckpt/step-*2)
    for file in "$newest"/*; do in_place "$file" hash "$newest"; done
}

# A damaged checkpoint is passed over; a FIFO is no more than that.
resumed() {
    cp -r runs/base runs/again
    file=$(echo runs/again/ckpt/step-*2/manifest.json)
    rm "$file" && mkfifo "$file"
    printf '[run]\nname = again\nsteps = 3\n' >more.ini
    expect 0 timeout -s KILL 60 "$bin" base.ini more.ini
    says "a FIFO" "continuing after step 1"
}

# What a run writes: its log and its events.
written() {
    for file in log.jsonl events.jsonl; do
        rm -rf runs/w
        cp -r runs/base runs/w
        rm runs/w/$file
        mkfifo runs/w/$file
        printf '[run]\nname = w\nsteps = 3\n' >more.ini
        refused 65 "$file: a FIFO" base.ini more.ini
    done
}

watched() {
    for file in log.jsonl events.jsonl machine.jsonl config.ini status.json; do
        rm -rf runs/r
        cp -r runs/base runs/r
        rm -f runs/r/$file
        mkfifo runs/r/$file
        for verb in "report --out r.html" compare status; do
            timeout -s KILL 20 "$bin" $verb runs/r >"$out" 2>&1 </dev/null
            [ $? -ne 137 ] || fail "$verb waits for $file"
        done
    done
}

secrets() {
    printf '[cluster]\nnodes = 127.0.0.1, 127.0.0.2\nsecret_file = pipe\n' >more.ini
    LOCKSTEP_NODE=0 refused 77 "not a regular file" base.ini more.ini
    printf '[log]\nhttp = 0.0.0.0:18080\nhttp_token = pipe\n' >more.ini
    LOCKSTEP_NODE=0 refused 77 "not a regular file" base.ini more.ini
}

for case in settings_files data_files texts tokenizers weights checkpoints resumed written watched secrets; do
    try $case
done
finish
