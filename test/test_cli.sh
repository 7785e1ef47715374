#!/bin/sh
# test/test_cli.sh: the command line of ./lockstep, or of the binary that LOCKSTEP_BIN names: every verb, and what each
# says when it can't do what was asked: one line with the file and the key or the offset, an exit status that says whose
# business it is, and nothing touched.
. test/support/lib.sh

ini >base.ini <<'END'
run dir=runs name=base steps=6
device threads=2
model layers=2 heads=2 embed=32 context=32
data train=data/text-train-*.bin val=data/text-val-*.bin
pack input=text.txt output=data/text
batch global=8 micro=2
schedule warmup=2
checkpoint every=3
sample tokens=20
prompt = "the "
log every=1
END
text 20000 >text.txt
printf '[run]\nseed = 5\n' >seed.ini
touch before after  # listings of the directory, also of themselves

# --- without a run ----------------------------------------------------------------------------------------------------

help_fits_a_screen() {
    for ask in --help -h help; do
        expect 0 "$bin" $ask
        cp "$out" help.$ask
    done
    same help.--help help.-h "the helps"
    same help.--help help.help "the helps"
    [ "$(wc -l <"$out")" -le 24 ] || fail "the help has $(wc -l <"$out") lines, expected at most 24"
    awk 'length > 120 { exit 1 }' "$out" || fail "a line of the help is longer than 120 columns"
    for verb in train check config pack tokenize eval sample hash bench version; do says "lockstep $verb"; done
    for code in 0 64 65 69 70 74 75 78; do
        grep -q "[ :]$code " "$out" || fail "the help does not mention exit code $code"
    done
}

# The verbs, as trainer/command.h lists them.
verbs() { sed -n '/^#define VERBS/,/^$/s/X(\([a-z]*\))/\n=\1\n/gp' "$top/trainer/command.h" | sed -n 's/^=//p'; }

# options VERB: what its help lists, one a line.
options() { "$bin" "$1" --help | sed -n 's/^  \(-[-a-z]*\) .*/\1/p'; }

help_of_each_verb() {
    [ "$(verbs | wc -l)" -ge 18 ] || fail "only $(verbs | wc -l) verbs were found"
    "$bin" --help >overview
    for verb in $(verbs); do
        grep -qE "lockstep ([a-z]*\|)*$verb( |\|)" overview || fail "lockstep --help does not name $verb"
        expect 0 "$bin" $verb --help
        cp "$out" $verb.help
        [ "$(head -n 1 "$out" | cut -d ' ' -f 1-3)" = "usage: lockstep $verb" ] || fail "expected its usage first"
        awk 'length > 120 { exit 1 }' "$out" || fail "a line is longer than 120 columns"
        lines=$(sed -n '3,/^$/p' "$out" | grep -c .)
        [ "$lines" -ge 2 ] && [ "$lines" -le 6 ] || fail "$lines lines say what it does"
        says "Example:" "  lockstep $verb "
        expect 0 "$bin" $verb -h
        same $verb.help "$out" "what --help and -h say"
        expect 0 "$bin" $verb base.ini --help  # also after other words: nothing is done
        same $verb.help "$out" "its help, whatever stands before"
        expect 64 "$bin" $verb --nonsense
        says "--nonsense: no such option" "lockstep $verb --help"
    done
    expect 0 "$bin" base.ini --help
    same train.help "$out" "the help of train, whose word may be left out"
    expect 65 "$bin" hash ./--help  # a name that looks like an option
    for word in --help -h; do  # and a value that does
        expect 65 "$bin" report runs/nothing --out $word
        says "runs/nothing"
        expect 64 "$bin" tail runs/nothing --lines $word
        ! grep -q "^usage: " "$out" || fail "it prints its help"
        expect 78 "$bin" check base.ini -o $word
        says "-o \`$word\`: expected section.key=value"
    done
    [ ! -e runs ] || fail "a run directory was made"
}

# No verb refuses what its help lists, and none knows an option that no help lists.
help_lists_the_options() {
    for verb in $(verbs); do
        for option in $(options $verb); do
            case $verb in data) first=convert ;; *) first= ;; esac
            "$bin" $verb $first $option >"$out" 2>&1 </dev/null && fail "lockstep $verb $option ended with 0"
            ! grep -q "no such option" "$out" || fail "lockstep $verb refuses $option, which its help lists"
        done
    done
    (cd "$top" && grep -ohE '"--[a-z-]+"' main.c trainer/*.c trainer/*/*.c data/text/*.c data/tokenizer/*.c) |
        tr -d '"' | sort -u >known
    [ "$(wc -l <known)" -ge 15 ] || fail "only $(wc -l <known) options were found in the source"
    for option in $(grep -vxE -e '--(help|version)' known); do
        cat ./*.help | grep -qE "^  $option " || fail "$option is in the source and in no help"
    done
}

# What -o sets stands above all files, and is spoken of as the command line.
overrides() {
    expect 0 "$bin" config base.ini -o run.steps=7 seed.ini -o batch.micro=4 -o run.steps=9
    grep -qE '^steps = 9 +; layout command line$' "$out" || fail "the last -o does not count"
    grep -qE '^micro = 4 +; bits   command line$' "$out" || fail "no -o in front of a file's value"
    grep -qE '^seed = 5 +; bits   seed.ini:2$' "$out" || fail "a file's own value is gone"
    cp "$out" effective.ini
    expect 0 "$bin" config effective.ini
    sed 's/ *;.*//' effective.ini >once
    sed 's/ *;.*//' "$out" >twice
    same once twice "settings with overrides and what was read back of them"
    expect 0 "$bin" config -o 'sample.prompt=a ; "b" # c '
    grep -qF 'prompt = "a ; \"b\" # c "' "$out" || fail "a value is not taken as it stands"
    expect 0 "$bin" config -o model.norm_eps=1e-6 -o model.type=llama
    for verb in train check plan config pack eval sample bench tune; do
        expect 64 "$bin" $verb base.ini -o
        says "-o" "SECTION.KEY=VALUE"
        for wrong in run.steps runsteps=5 .steps=5 run.=5 "run.steps =5" "" =; do
            expect 78 "$bin" $verb base.ini -o "$wrong"
            says "command line: -o \`$wrong\`: expected section.key=value"
            one_line
        done
        expect 78 "$bin" $verb base.ini -o run.steps=x
        says 'command line: [run] steps: expected a whole number' '`x`'
        expect 78 "$bin" $verb base.ini -o optimizer.learning_rte=1
        says 'command line: [optimizer] learning_rte: no such key. Did you mean `lr`?'
        expect 78 "$bin" $verb base.ini -o optimzer.lr=1
        says 'command line: [optimzer]: no such section. Did you mean [optimizer]?'
        expect 78 "$bin" $verb base.ini -o model.qk_norm=yes  # the model of the files decides which keys there are
        says 'command line: [model] qk_norm: no such key'
        expect 78 "$bin" $verb base.ini -o batch.global=7
        says 'command line: [batch] global: global = 7'
    done
    expect 78 "$bin" config -o run.name="$(printf 'a\007')"
    says 'command line: [run] name: expected'
    [ ! -e runs ] || fail "a run directory was made"
}

# A run keeps the values that -o gave it.
train_with_overrides() {
    expect 0 "$bin" -o run.name=over base.ini -o run.steps=2 -o log.report=no
    grep -qE '^steps = 2 +; layout command line' runs/over/config.ini ||
        fail "runs/over/config.ini does not have the steps of the command line"
    says "done    2 steps"
    expect 0 "$bin" check base.ini -o parallel.zero=2
    expect 0 "$bin" -o run.name=over base.ini -o run.steps=4
    says "resume: continuing after step 2 of 4"
    expect 0 "$bin" -o run.name=over base.ini -o run.steps=4
    says "resume: after step 4 of 4: all are done"
    expect 0 "$bin" -o run.name=over base.ini -o run.steps=3
    says "resume: all 3 steps are done; the newest checkpoint is of step 4"
    rm -rf runs/over
}

version() {
    for ask in version --version; do
        expect 0 "$bin" $ask
        [ "$(wc -l <"$out")" -eq 3 ] || fail "expected three lines"
        sed -n 1p "$out" | grep -qE '^lockstep [0-9]+\.[0-9]+' || fail "expected lockstep and a number"
        sed -n 2p "$out" | grep -qE '^sources   [0-9a-f]{16}$' || fail "expected a digest of the sources"
        sed -n 3p "$out" | grep -qE '^revision  cpu fp32 [0-9]+, bf16 [0-9]+, fp16 [0-9]+, bf16-pairs [0-9]+; cuda fp32 [0-9]+' ||
            fail "expected revisions"
    done
}

usage_errors() {
    expect 64 "$bin"
    expect 64 "$bin" tarin base.ini
    says "tarin" "no such verb" "Did you mean \`train\`?" "lockstep --help"
    expect 64 "$bin" frobnicate base.ini
    ! grep -q "Did you mean" "$out" || fail "frobnicate is near nothing"
    expect 64 "$bin" sample base.ini --promt x
    says "--promt: no such option here (did you mean \`--prompt\`?); \`lockstep sample --help\`"
    mkdir -p mine && printf '[run]\n' >mine/config.ini
    for dir in mine mine/ ./mine; do
        expect 78 "$bin" $dir
        says "it is a directory, expected an INI file: that of the run is ${dir%/}/config.ini"
    done
    rm -r mine
    for verb in train check pack eval sample bench; do
        expect 64 "$bin" $verb
        says "lockstep $verb" "INI file"
    done
    expect 64 "$bin" hash
    says "checkpoint directory"
    expect 64 "$bin" train --ckpt x base.ini
    says "--ckpt" "no such option"
    expect 64 "$bin" eval --prompt x base.ini
    expect 64 "$bin" sample base.ini --prompt
    says "--prompt" "value"
    expect 64 "$bin" base.ini --verbose
    says "--verbose"
    for n in 0 -1 1x 1e3 99999999999999999999 ""; do
        expect 64 "$bin" bench base.ini --steps "$n"
        says "--steps $n"
    done
    set --
    while [ $# -lt 17 ]; do set -- "$@" base.ini; done
    expect 64 "$bin" train "$@"
    says "16 files"
    [ ! -e runs ] || fail "a run directory was made"
}

# refused TEXT...: what is in broken.ini is refused by every verb with one line that says this, before anything is
# touched.
refused() {
    for verb in train check config pack eval sample bench; do
        ls -R >before
        expect 78 "$bin" $verb base.ini broken.ini
        one_line
        says "lockstep: " "$@"
        ls -R >after
        same before after "the directory before and after $verb:"
    done
    expect 78 "$bin" base.ini broken.ini
}

tokenize() {
    json=$top/test/golden/tokenizer/llama3.json
    text 3000000 >long.txt
    printf 'an end\377<|end_of_text|>' >>long.txt
    for kind in bytes "$json"; do
        "$bin" tokenize "$kind" <long.txt >ids || fail "$kind: exit status $?"
        "$bin" tokenize --decode "$kind" <ids >again || fail "--decode $kind: exit status $?"
        same long.txt again "a text and what its ids decode to"
    done
    printf '<|eot_id|>' | "$bin" tokenize --special "$json" >"$out" || fail "--special: exit status $?"
    [ "$(tr '\n' ' ' <"$out")" = "602 606 " ] || fail "expected the first token of a text, and one that is special"
    echo 12 607 | "$bin" tokenize --decode "$json" >"$out" 2>&1
    [ $? -eq 65 ] || fail "an id that is none was decoded"
    says "word 2: token 607"
    "$bin" tokenize --train 600 qwen2 <long.txt >own.json || fail "--train: exit status $?"
    "$bin" tokenize own.json <text.txt >ids || fail "exit status $?"
    [ "$(wc -l <ids)" -lt 9000 ] || fail "20000 bytes became $(wc -l <ids) tokens"
    "$bin" tokenize --decode own.json <ids >again
    same text.txt again "a text and what its ids decode to"
    expect 64 "$bin" tokenize --train 600
    expect 64 "$bin" tokenize --train 6x gpt2
    says "--train 6x"
    expect 64 "$bin" tokenize --train 600 gpt3
    says "gpt3" "llama3"
    expect 64 "$bin" tokenize
    says "lockstep tokenize" "tokenizer.json"
    expect 64 "$bin" tokenize bytes bytes
    expect 64 "$bin" tokenize --fast bytes
    says "--fast"
    expect 74 "$bin" tokenize none.json
    expect 65 "$bin" tokenize base.ini
    says "base.ini: line 1"
    one_line
}

broken_settings() {
    expect 78 "$bin" nowhere.ini
    one_line
    says "nowhere.ini" "No such file"
    ls -R >before
    for verb in train check config pack eval sample bench; do
        expect 78 "$bin" $verb nowhere/base.ini && says "nowhere/base.ini"
    done
    ls -R >after
    same before after "the directory before and after:"
    expect 78 "$bin" train .
    printf '[optimizer]\nlearning_rte = 1\n' >broken.ini
    refused "broken.ini:2: [optimizer] learning_rte: no such key" '`lr`'
    printf '[optimzer]\nlr = 1\n' >broken.ini
    refused "broken.ini:1: [optimzer]: no such section" "[optimizer]"
    printf '[model]\n\nlayers = many\n' >broken.ini
    refused "broken.ini:3: [model] layers" "whole number" '`many`'
    printf '[batch]\nglobal = 7\n' >broken.ini
    refused "broken.ini:2: [batch] global" "micro = 2"
    printf '[run]\nsteps = 5\nsteps = 6\n' >broken.ini
    refused "broken.ini:3: [run] steps" "line 2"
    printf '[run]\nsteps = 5\0\n' >broken.ini
    refused "broken.ini:2"
    printf '[device]\nbackend = gpu\n' >broken.ini
    refused "broken.ini:2: [device] backend" '`gpu`' "cuda"
    [ ! -e runs ] || fail "a run directory was made"
}

# What can't be a run is refused by all verbs alike, before a rank is started: with the same words, at a line, and with
# what would work.
refused_alike() {
    while read -r key says; do
        for verb in config check plan train; do
            set -- $(echo "$key" | tr , ' ')
            args=
            for set in "$@"; do args="$args -o $(echo "$set" | tr + ,)"; done
            expect 78 "$bin" $verb base.ini $args
            one_line
            says "lockstep: command line: [" "$says" " Nearest that work"
            cp "$out" said.$verb
            same said.config said.$verb "what config and $verb say"
        done
    done <<'END'
parallel.pipeline=2,device.ranks=2,parallel.stages=2 stages = 2: expected 2 numbers of blocks
parallel.pipeline=5,device.ranks=5,parallel.zero=0 pipeline = 5 ranks with 1 stage each are 5 stages, and the model has only 4 blocks
parallel.pipeline=2,device.ranks=2,parallel.chunks=2 with schedule = 1f1b each rank has 1 stage, found chunks = 2
parallel.pipeline=2,device.ranks=2,parallel.schedule=interleaved,batch.micro=8 takes micro-batches in groups of pipeline = 2, and 1 of a step pass
parallel.pipeline=2,device.ranks=2,parallel.schedule=zb-v,batch.micro=8 schedule = zb-v needs at least as many micro-batches as pipeline = 2
parallel.pipeline=2,device.ranks=3 pipeline = 2 does not divide 3 ranks
parallel.chunks=5 with pipeline = 1 there is none
parallel.stages=4 stages = 4 cuts the blocks of a pipeline, and with pipeline = 1 there is none
device.ranks=3,cluster.nodes=127.0.0.1:2+127.0.0.2:2 no entry of [cluster] nodes gives a node 3
parallel.data=5,device.ranks=2 [parallel] data = 5, but the run has 2 ranks
batch.global=13,batch.micro=2,batch.lanes=4 global = 13 is not a multiple of micro = 2
END
    # Where the ranks are the machine's, which is one on a CPU, the verbs that count them say the same.
    for verb in check plan train; do
        expect 78 "$bin" $verb base.ini -o parallel.pipeline=2 -o device.backend=cpu
        says "command line: [parallel] pipeline: 1 rank ([device] ranks)" "does not divide 1 rank:" "[device] ranks = 2"
    done
    [ ! -e runs ] || fail "a run directory was made"
}

no_such_device() {
    printf '[device]\nbackend = cuda\n' >cuda.ini
    expect 0 "$bin" pack base.ini
    "$bin" check base.ini cuda.ini >"$out" 2>&1
    got=$?
    [ $got -ne 0 ] || skip "there is a GPU here"
    [ $got -eq 69 ] || fail "exit status $got, expected 69"
    one_line
    says "cuda" "backend = cpu"
}

# What it prints is a file that says the same, and defaults are what config.ini holds.
config() {
    expect 0 "$bin" config
    cp "$out" defaults
    same "$top/config.ini" defaults "config.ini and the defaults"
    expect 0 "$bin" config base.ini seed.ini
    says "seed.ini:2" "base.ini:" "default"
    cp "$out" effective.ini
    expect 0 "$bin" config effective.ini
    sed 's/ *;.*//' effective.ini >once
    sed 's/ *;.*//' "$out" >twice
    same once twice "settings and what was read back of them"
    grep -q '^seed = 5 ' effective.ini || fail "the later file does not override the earlier one"
    expect 0 "$bin" config seed.ini base.ini
    grep -q '^seed = 5 ' "$out" || fail "a file that does not speak of a key overrides it"
    expect 0 "$bin" config defaults
    sed 's/ *;.*//' "$out" | grep -v '^lanes\|^warmup\|^decay_steps\|^head_chunks' | grep '=' >once
    sed 's/ *;.*//' defaults | grep -v '^lanes\|^warmup\|^decay_steps\|^head_chunks' | grep '=' >twice
    same twice once "defaults and what was read back of them"
}

# What a key or an option names, and is not there, is reported with the key, and where it was set, or with the option.
named_paths() {
    printf '[run]\nname = paths\n\n[sample]\ntokenizer = nope.json\n' >paths.ini
    expect 74 "$bin" base.ini paths.ini
    says "lockstep: paths.ini:5: [sample] tokenizer: nope.json: No such file"
    expect 74 "$bin" base.ini -o run.name=paths -o model.init_from=nothere
    says "lockstep: command line: [model] init_from: nothere: No such file"
    expect 74 "$bin" base.ini -o run.dir=/proc/none
    says "lockstep: command line: [run] dir: /proc/none"
    expect 74 "$bin" sample base.ini --prompts nofile
    says "lockstep: --prompts: nofile: No such file"
    expect 74 "$bin" pack base.ini -o pack.output=paths -o pack.tokenizer=nope.json
    says "lockstep: [pack] tokenizer: nope.json: No such file"
    rm -rf runs/paths
}

# --- data -------------------------------------------------------------------------------------------------------------

pack_text() {
    expect 0 "$bin" pack base.ini
    one_line
    says "1 file" "20000 bytes" "2 shards" "train 18000 tokens" "val 2000"
    cp data/text-train-00000.bin first
    expect 0 "$bin" pack base.ini
    same first data/text-train-00000.bin "the same text packed twice"
    printf '[pack]\ninput = nothing-*.txt\noutput = data/none\n' >none.ini
    expect 78 "$bin" pack base.ini none.ini
    one_line
    says "[pack] input" "nothing-*.txt"
    mkdir -p empty
    printf '[pack]\ninput = empty\noutput = data/none\n' >none.ini
    expect 78 "$bin" pack base.ini none.ini
    says "[pack] input" "empty"
    printf '\0\1\2' >empty/binary
    : >empty/nothing
    expect 78 "$bin" pack base.ini none.ini
    says "2 files skipped"
    printf '[pack]\ninput = ""\n' >none.ini
    expect 78 "$bin" pack base.ini none.ini
    ls data | grep -q none && fail "shards were made of nothing"
    printf '[pack]\noutput = data/small\nshard_tokens = 5000\ncompress = yes\n' >small.ini
    expect 0 "$bin" pack base.ini small.ini
    [ "$(ls data/small-train-*.bin | wc -l)" -eq 4 ] || fail "expected 4 training shards: $(ls data)"
    printf '[pack]\noutput = data/small\n' >small.ini
    expect 0 "$bin" pack base.ini small.ini
    [ "$(ls data/small-train-*.bin | wc -l)" -eq 1 ] || fail "old shards are left: $(ls data)"
}

no_data() {
    printf '[run]\nname = nodata\n[data]\ntrain = data/nothing-*.bin\n' >nodata.ini
    for verb in train check; do
        expect 78 "$bin" $verb base.ini nodata.ini
        one_line
        says "nodata.ini:4: [data] train: no file matches \"data/nothing-*.bin\" in $work/data. Names begin at the directory"
        expect 78 "$bin" $verb base.ini nodata.ini -o pack.output=data/nothing
        says "data/nothing-*.bin\" in $work/data. \`lockstep pack CONFIG.ini\` makes"
        expect 78 "$bin" $verb base.ini -o 'data.train=none/text-*.bin'
        says "command line: [data] train: " "there is no directory $work/none. Names"
        expect 78 "$bin" $verb base.ini -o 'data.train=/none/text-*.bin'
        says "there is no directory /none. Mend the name"
    done
    [ ! -e runs/nodata ] || fail "a run directory was made"
    printf 'short' >data/short.bin
    printf '[run]\nname = nodata\n[data]\ntrain = data/short.bin\n' >nodata.ini
    expect 65 "$bin" base.ini nodata.ini
    one_line
    says "data/short.bin"
    [ ! -e runs/nodata ] || fail "a run directory was made"
}

check_data() {
    expect 0 "$bin" check base.ini
    says "device " "model " "M parameters" "memory " "18000 tokens" "2000 tokens" "every checksum is right"
    [ ! -e runs/base ] || fail "check made a run directory"
    for shard in train val; do
        cp data/text-$shard-00000.bin good
        flip data/text-$shard-00000.bin $(($(size good) - 500))
        expect 65 "$bin" check base.ini
        says "data/text-$shard-00000.bin" "offset" "checksum" "1 fault in 1 of 1 shard:"
        cp good data/text-$shard-00000.bin
    done
    flip data/text-train-00000.bin 30
    expect 65 "$bin" check base.ini
    one_line
    says "data/text-train-00000.bin" "offset 60"
    "$bin" pack base.ini >"$out" 2>&1
    expect 0 "$bin" check base.ini
}

# --- a run ------------------------------------------------------------------------------------------------------------

# no_controls FILE: it holds lines of text and nothing that would move a cursor.
no_controls() { LC_ALL=C tr -d '\n\t -~\200-\377' <"$1" | wc -c | grep -q '^ *0$' || fail "control characters in $1"; }

train_in_plain_lines() {
    expect 0 "$bin" train base.ini
    no_controls "$out"
    grep -qE '^step +6/6 100%  loss [0-9.]+  norm [0-9.]+  lr [0-9.e-]+  [0-9.]+[kM]? tok/s  data [0-9.]+%  eta 0s$' \
        "$out" ||
        fail "expected a line for step 6"
    says "lockstep " "saved step 3" "saved step 6" "eval  step 6" "sample at step 6" "done    6 steps"
    [ "$(grep -c '^step ' "$out")" -eq 6 ] || fail "expected a line a step"
    for file in config.ini log.jsonl events.jsonl ckpt/step-00000003/manifest.json \
        ckpt/step-00000006/model.safetensors; do
        [ -f runs/base/$file ] || fail "runs/base/$file is not there"
    done
    shown=$(sed -n 's/^data .* memory \([0-9.]* MB\)$/\1/p' "$out")
    no_controls runs/base/log.jsonl
    awk '!/^\{"t":"(step|eval|sample|checkpoint|ranks)",.*\}$/ { exit 1 }' runs/base/log.jsonl ||
        fail "log.jsonl holds something else than its records"
    expect 0 "$bin" plan base.ini
    planned=$(awk '$1 == "all" { printf "%.1f MB", $2 / 1e6 }' "$out")
    [ -n "$shown" ] && [ "$shown" = "$planned" ] || fail "the run says that it takes $shown, its plan says $planned"
    # the effective configuration is a configuration, and says where it ran
    grep -q "^# machine $(uname -n)  device cpu [a-z0-9]* x[0-9]* thread" runs/base/config.ini ||
        fail "$(head -n 3 runs/base/config.ini)"
    expect 0 "$bin" config runs/base/config.ini
    # a reader that goes away does not end a run
    printf '[run]\nname = piped\n' >piped.ini
    ("$bin" base.ini piped.ini 2>/dev/null; echo $? >piped.status) | head -n 1 >/dev/null
    [ -d runs/piped/ckpt/step-00000006 ] || fail "the run ended with its reader, with $(cat piped.status)"
}

# A bar on a terminal: drawn over itself, never wider than the terminal.
train_on_a_terminal() {
    command -v script >/dev/null || skip "there is no script(1) to make a terminal"
    script -qec true /dev/null </dev/null >/dev/null 2>&1 || skip "this script(1) can't run a command"
    for wide in 80 100 40; do
        printf '[run]\nname = wide%s\nsteps = 40\n' $wide >wide.ini
        script -qec "stty cols $wide; '$bin' base.ini wide.ini; echo status \$?" /dev/null </dev/null >drawn 2>&1
        grep -q 'status 0' drawn || { cp drawn "$out"; fail "the run on a terminal of $wide columns failed"; }
        tr '\r' '\n' <drawn | sed "s/$(printf '\033')\[K//g" >lines
        grep '^step ' lines >bars || fail "no progress was drawn"
        awk -v wide=$wide 'length > wide { exit 1 }' bars ||
            fail "the bar is wider than $wide columns: $(awk 'length > m { m = length } END { print m }' bars)"
        tail -n 1 bars | grep -q '40/40 100%' || fail "the bar does not reach the end"
        tail -n 1 bars >"$out"
        [ $wide -eq 40 ] || grep -qE ' eta 0s +\[#+\]$' "$out" ||
            fail "on $wide columns: no ETA and full bar at the end"
        grep -q '^saved step 40' lines || fail "the bar was not wiped before a line"
    done
}

# A run's directory stands for its best, or else its newest; a best that is not there is no riddle.
hash_runs() {
    cp -RP runs/base hashed
    rm -f hashed/best
    expect 0 "$bin" hash hashed
    says "hashed/ckpt/step-00000006  (the run's newest; it has no best)"
    expect 65 "$bin" hash hashed/best
    says "hashed/best: No such file" "its newest is hashed/ckpt/step-00000006"
    one_line
    ln -s ckpt/step-00000003 hashed/best
    expect 0 "$bin" hash hashed
    says "hashed/best  (the run's best)"
    cut -d ' ' -f 2 "$out" >hash.best
    expect 0 "$bin" hash hashed/ckpt/step-00000003
    cut -d ' ' -f 2 "$out" >hash.step
    same hash.best hash.step "the hashes of the best"
    rm -rf hashed/best hashed/ckpt/step*
    expect 65 "$bin" hash hashed
    says "hashed/ckpt: no checkpoint yet"
    expect 65 "$bin" hash nowhere
    says "nowhere: " "a run's directory"
    expect 65 "$bin" hash nowhere runs/base hashed runs/base/ckpt/step-00000003
    says "lockstep: nowhere: " "lockstep: hashed/ckpt: no checkpoint yet"
    [ "$(grep -c '^hash ' "$out")" -eq 2 ] || fail "what can be hashed was not"
    [ "$(wc -l <"$out")" -eq 4 ] || fail "expected a line for each"
}

inspect_runs() {
    expect 0 "$bin" inspect runs/base
    says "; runs/base/best: 1 file"
    rm -rf inspected
    cp -RP runs/base inspected
    rm -f inspected/best
    expect 0 "$bin" inspect inspected
    says "; inspected/ckpt/step-00000006: 1 file"
}

hash_checkpoints() {
    expect 0 "$bin" hash runs/base/ckpt/step-00000003 runs/base/ckpt/step-00000006
    [ "$(grep -cE '^hash [0-9a-f]{16}  state_hash [0-9a-f]{16}  runs/base/ckpt/step-0000000[36]$' "$out")" -eq 2 ] ||
        fail "expected two lines with two hashes each"
    [ "$(cut -d ' ' -f 2 "$out" | sort -u | wc -l)" -eq 2 ] || fail "two steps have the same hash"
    logged=$(sed -n 's/^{"t":"checkpoint","step":6,"hash":"\([0-9a-f]*\)".*/\1/p' runs/base/log.jsonl)
    says "hash $logged  state_hash"
    expect 65 "$bin" hash runs/base/ckpt/step-00000009
    one_line
    says "step-00000009"
    cp -R runs/base/ckpt/step-00000006 damaged
    flip damaged/model.safetensors 9000
    expect 65 "$bin" hash damaged
    one_line
    says "damaged/model.safetensors" "tensor "
    expect 65 "$bin" eval base.ini --ckpt damaged
    expect 65 "$bin" sample base.ini --ckpt damaged
    says "damaged/model.safetensors" "tensor "
}

eval_checkpoints() {
    expect 0 "$bin" eval base.ini
    one_line
    cp "$out" once
    expect 0 "$bin" eval base.ini
    same once "$out" "two evaluations"
    grep -qE '^step 6  loss [0-9]+\.[0-9]+  perplexity [0-9]+\.[0-9]{4}  bits per byte [0-9]+\.[0-9]{6}  62 windows of 32 tokens$' "$out" || fail "expected step, loss, perplexity, bits per byte and windows"
    awk '{ p = exp($4) - $6; b = $4 / log(2) - $10; exit !(p * p < 1e-4 * $6 && b * b < 1e-10) }' "$out" ||
        fail "perplexity and bits per byte are not those of the loss"
    logged=$(sed -n 's/^{"t":"eval","step":6,"loss":\([0-9.]*\),.*/\1/p' runs/base/log.jsonl)
    awk -v want="$logged" '{ d = $4 - want; exit !(d < 1e-6 && d > -1e-6) }' "$out" ||
        fail "expected the loss of the log, $logged"
    expect 0 "$bin" eval base.ini --ckpt runs/base/ckpt/step-00000003
    says "step 3  loss"
    rm runs/base/best
    expect 0 "$bin" eval base.ini
    same once "$out" "the loss of the newest checkpoint and the best one (the same here)"
    expect 65 "$bin" eval base.ini --ckpt nowhere
    says "nowhere"
    printf '[run]\nname = untrained\n' >more.ini
    for verb in eval sample; do
        expect 65 "$bin" $verb base.ini more.ini
        one_line
        says "runs/untrained" "no checkpoint"
    done
    [ ! -e runs/untrained ] || fail "to look for a checkpoint made a run directory"
    printf '[data]\nval = ""\n' >more.ini
    expect 78 "$bin" eval base.ini more.ini
    says "[data] val"
    printf '[model]\nembed = 64\n' >more.ini
    expect 78 "$bin" eval base.ini more.ini
    one_line
    says "wte.weight"
}

sample_text() {
    expect 0 "$bin" sample base.ini
    cp "$out" once
    [ "$(head -c 4 once)" = "the " ] || fail "expected the prompt first"
    expect 0 "$bin" sample base.ini
    same once "$out" "two samples"
    expect 0 "$bin" sample base.ini --prompt "lane"
    [ "$(head -c 4 "$out")" = "lane" ] || fail "expected the other prompt first"
    tail -c +5 once >tail.one
    tail -c +5 "$out" >tail.other
    cmp -s tail.one tail.other && fail "another prompt, the same text"
    expect 0 "$bin" sample base.ini seed.ini
    cmp -s once "$out" && fail "another seed, the same text"
    printf '[sample]\ntemperature = 0\n' >more.ini
    expect 0 "$bin" sample base.ini more.ini
    cp "$out" once
    expect 0 "$bin" sample base.ini more.ini seed.ini
    same once "$out" "the likeliest text under two seeds"
    expect 0 "$bin" sample base.ini --prompt ""
    printf '[data]\ntrain = data/nothing\nval = data/nothing\n' >more.ini
    expect 0 "$bin" sample base.ini more.ini
}

# A line is there when its text has ended, whatever becomes of the program after that.
prompts_are_printed_as_they_end() {
    awk 'BEGIN { for (i = 0; i < 2000; i++) print "the lane " i }' >long.txt
    printf '[sample]\ntokens = 100\nbatch = 1\n' >more.ini
    "$bin" sample base.ini more.ini --prompts long.txt >half 2>/dev/null &
    half=$!
    until_true 20 test -s half
    kill -9 $half 2>/dev/null || fail "2000 texts ended before the first could be read"
    wait $half 2>/dev/null
    [ "$(tail -c 1 half | od -An -c | tr -d ' ')" = '\n' ] && [ "$(wc -l <half)" -lt 20 ] ||
        fail "expected the first lines, each of them whole, found $(wc -l <half) and at the end: $(tail -c 16 half | od -An -c)"
}

# Texts that grow together end in any order, and are printed in that of the prompts: the last one too.
ends_in_any_order() {
    printf '%s\n' the lane of a 7 Q x >prompts.txt
    for batch in 1 3 7; do
        printf '[sample]\ntokens = 60\nstop = e\nbatch = %s\n' $batch >more.ini
        expect 0 "$bin" sample base.ini more.ini --prompts prompts.txt
        [ $batch -eq 1 ] && cp "$out" lines
        same lines "$out" "the lines of seven texts, one and $batch at a time"
    done
    [ "$(wc -l <lines)" -eq 7 ] || fail "expected a line for each of 7 prompts"
    sed 's/.*"tokens":\([0-9]*\),"ended".*/\1/' lines |
        awk '$1 >= most { most = $1; at = NR } END { exit at > NR - 2 }' ||
        fail "expected two texts or more after the longest, which end before it"
}

# Each prompt of a file gives a line of JSON, in their order, with the text that it has alone as the first of its file.
sample_prompts() {
    printf 'the \r\n\nlane' >prompts.txt
    printf '[sample]\ntokens = 30\n' >more.ini
    expect 0 "$bin" sample base.ini more.ini --prompts prompts.txt
    cp "$out" lines
    [ "$(wc -l <lines)" -eq 3 ] || fail "expected a line for each of 3 prompts"
    for key in '"prompt":"the "' '"prompt":""' '"prompt":"lane"'; do says "{$key,\"text\":\""; done
    says '"prompt_tokens":4,"tokens":30,"ended":"length"}'
    printf '{"prompt":"the ","more":1}\n{"prompt":""}\n{"prompt":"lane"}\n' >prompts.jsonl
    gzip -k prompts.jsonl
    for file in prompts.jsonl prompts.jsonl.gz; do
        expect 0 "$bin" sample base.ini more.ini --prompts $file
        same lines "$out" "the lines of prompts.txt and $file"
    done
    printf '[sample]\ntokens = 30\nbatch = 1\n' >more.ini
    expect 0 "$bin" sample base.ini more.ini --prompts prompts.txt
    same lines "$out" "the lines of three prompts at a time and one"
    expect 64 "$bin" sample base.ini --prompts prompts.txt --prompt "the "
    expect 74 "$bin" sample base.ini --prompts nothing.txt && says "nothing.txt"
    : >empty.txt
    expect 65 "$bin" sample base.ini --prompts empty.txt && says "empty.txt" "no prompt"
    printf '{"text":"the "}\n' >wrong.jsonl
    expect 65 "$bin" sample base.ini --prompts wrong.jsonl && says "line 1" '"prompt"'
    printf 'the \nlane\n\000\n' >nul.txt
    expect 65 "$bin" sample base.ini --prompts nul.txt && says "prompt 3 has a NUL"
    seq 1000 1149 >many.txt # more than there is room for at first
    printf '[data]\ntrain = gone.bin\nval =\nholdout = 3\n[eval]\ntext = gone.txt\nchoices = gone.jsonl\n[sample]\ntokens = 1\n' >more.ini
    expect 0 "$bin" sample base.ini more.ini --prompts many.txt # and of the run no more than its weights is there
    sed 's/{"prompt":"\([0-9]*\)",.*/\1/' "$out" >found
    same many.txt found "the prompts of many lines"
}

# What a run will continue is looked at before its first step, and before other ranks are met; of a long prompt, only
# what the context holds.
prompts_are_checked_first() {
    cafe=$(printf 'caf\303\251')
    for ranks in 1 2; do
        settings early model.vocab=128 run.steps=20 device.ranks=$ranks "sample.prompt=\"$cafe\""
        expect 78 "$bin" base.ini early.ini
        says "prompt: byte 195 at position 3" "vocabulary of 128" "tokens = 0"
        [ ! -e runs/early ] || ! grep -q '"t":"step"' runs/early/log.jsonl || fail "it made a step"
    done
    expect 78 "$bin" check base.ini early.ini
    says "prompt: byte 195"
    settings early model.vocab=10 'sample.prompt=""'
    expect 78 "$bin" base.ini early.ini
    says "prompt: byte 10 at position 0"
    settings early model.vocab=300 "sample.tokenizer=$top/test/golden/tokenizer/gpt2.json"
    expect 78 "$bin" base.ini early.ini
    says "[sample] tokenizer" "has ids up to" "the model knows 300 tokens"
    settings early model.vocab=128 run.steps=2 "sample.prompt=\"$cafe\"" sample.tokens=0
    expect 0 "$bin" base.ini early.ini
    settings long model.vocab=128 run.steps=2 "sample.prompt=\"$cafe, and more words than the context holds\""
    expect 0 "$bin" base.ini long.ini
    says "sample at step 2"
    # The prompt of the command line is the one that counts.
    settings late model.vocab=128 "sample.prompt=\"$cafe\""
    expect 0 "$bin" sample base.ini late.ini --ckpt runs/early/best --prompt "the "
    expect 78 "$bin" sample base.ini late.ini --ckpt runs/early/best
    says "prompt: byte 195 at position 3"
    expect 78 "$bin" sample base.ini late.ini --ckpt nowhere # before weights are read
    printf 'the \nlane\n%s\n' "$cafe" >late.txt # all of a file, before the first is continued
    expect 78 "$bin" sample base.ini late.ini --ckpt runs/early/best --prompts late.txt
    says "prompt 3 of the file" "byte 195 at position 3"
    ! grep -q '"prompt":"the "' "$out" || fail "it wrote the first one"
    expect 0 "$bin" eval base.ini late.ini --ckpt runs/early/best
}

bench_steps() {
    expect 0 "$bin" bench base.ini --steps 3
    one_line
    grep -qE 'cpu .* 3 steps: median [0-9.]+ ms .* tok/s  [0-9.]+ GFLOP/s  resident at most [0-9.]+ MB$' "$out" ||
        fail "expected one line of figures"
    printf '[run]\nname = benched\n[data]\ntrain = data/nothing\n' >more.ini
    expect 0 "$bin" bench base.ini more.ini --steps 1
    [ ! -e runs/benched ] || fail "bench made a run directory"
}

# Each operation of a step has its line, and the lines add up to the step.
bench_parts() {
    # What takes under 0.1 % of a step has no line: the update of many weights after few tokens takes more.
    printf '[model]\nvocab = 30000\ncontext = 4\n' >wide.ini
    expect 0 "$bin" bench step base.ini wide.ini --steps 3
    for op in matmul adamw; do grep -qE "^$op [0-9x]+ fp32.* %" "$out" || fail "no line for $op"; done
    expect 0 "$bin" bench step base.ini --steps 3
    for op in matmul attention_backward; do grep -qE "^$op [0-9x]+ fp32.* %" "$out" || fail "no line for $op"; done
    says "ceilings: triad" "operations of a step" "between operations" "a step: matrix products"
    awk '/^(matmul|attention|layer_norm|gelu|embedding|cross|loss|dropout|add|cast|sum|step_decide|adamw|bias|copy|zero|those|between)/ {
            for (i = 1; i < NF; i++) if ($(i + 1) == "%") { sum += $i; break } }
         END { exit !(sum > 97 && sum < 103) }' "$out" || fail "the shares do not add up to a step"
    expect 64 "$bin" bench step
    expect 0 "$bin" bench step base.ini --steps 1 >/dev/null
    printf '[device]\nranks = 2\n' >two.ini
    expect 0 "$bin" bench step base.ini two.ini --steps 2
    says "waiting for other ranks"
}

# --- bits -------------------------------------------------------------------------------------------------------------

# Another machine's libm may round another way: nothing here may call into it for more than moving and rounding numbers.
no_foreign_mathematics() {
    command -v nm >/dev/null || skip "there is no nm"
    nm -u "$bin" >"$out" 2>&1 || skip "nm can't read the binary"
    grep -qE ' (malloc|write|pread64|pread)(@|$)' "$out" || skip "the binary has no list of what it takes from outside"
    exponents='exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|cbrt|hypot|erf|erfc|[lt]gamma'
    angles='sin|cos|tan|sincos|asin|acos|atan|atan2|sinh|cosh|tanh|asinh|acosh|atanh'
    grep -E " ($exponents|$angles)[fl]?(@|\$)" "$out" >taken && fail "it takes from libm: $(tr -s ' \n' ' ' <taken)"
    : >"$out"
}

# --- a figure, not a verdict ------------------------------------------------------------------------------------------

first_step_of_the_default_run() {
    ini >first.ini <<'END'
run dir=runs steps=1
data train="data/text-train-*.bin" val=""
sample tokens=0
END
    from=$(date +%s%N)
    case $from in *N) skip "date(1) has no nanoseconds" ;; esac
    "$bin" "$top/config.ini" first.ini 2>"$out" | while read -r word rest; do
        [ "$word" != step ] || date +%s%N
    done >to
    [ -s to ] || fail "no step was finished"
    echo "info: first finished step of config.ini $((($(cat to) - from) / 1000000)) ms after the start"
}

try help_fits_a_screen
try help_of_each_verb
try help_lists_the_options
try overrides
try version
try usage_errors
try tokenize
try broken_settings
try refused_alike
try no_such_device
try config
try pack_text
try no_data
try named_paths
try check_data
try train_with_overrides
try train_in_plain_lines
try train_on_a_terminal
try hash_checkpoints
try hash_runs
try inspect_runs
try eval_checkpoints
try sample_text
try sample_prompts
try ends_in_any_order
try prompts_are_printed_as_they_end
try prompts_are_checked_first
try bench_steps
try bench_parts
try no_foreign_mathematics
try first_step_of_the_default_run
finish
