#!/bin/sh
# test/test_eval.sh: texts and questions from the outside, with ./lockstep or the binary that LOCKSTEP_BIN names: one
# answer however the ranks are dealt, during training and after it, from a checkpoint and from weights of others; and
# what is refused, before anything is computed.
. test/support/lib.sh
. "$top/test/support/logs.sh"
golden=$top/test/golden

ini >base.ini <<INI
run dir=runs steps=6
device threads=1
model layers=2 heads=2 embed=32 context=32
data train=data/t-train-*.bin val=data/t-val-*.bin
pack input=text.txt output=data/t
batch global=8 micro=2 lanes=4
schedule warmup=2 decay_steps=6
optimizer lr=0.01
eval every=3
sample tokens=0
log every=1
INI
text 40000 >text.txt
text 50000 | tail -c 3001 >part.txt
cat >questions.jsonl <<'JSONL'
{"query": "the a one", "choices": ["two step", "xqz", "zzzz zzz zz"], "gold": 0}
{"ctx": "lane tree ", "endings": ["sum bit", "SUM", "qqqqqqqqqqqqqqqqqqqqqqqqq"], "label": "1"}
{"query": "node word state", "choices": ["~", "file"], "gold": 1}
JSONL
"$bin" pack base.ini >"$out" 2>&1 || { cat "$out"; echo "0 passed, 1 failed"; exit 1; }

# deal RANKS STAGE [DEEP]: deal.ini, for any run; in pipelines of so many ranks.
deal() { printf '[device]\nranks = %s\n[parallel]\nzero = %s\npipeline = %s\n' "$1" "$2" "${3:-1}" >deal.ini; }

# asked WHAT RUN: what the log says of it, "step value".
asked() { sed -n 's/^{"t":"eval","step":\([0-9]*\),.*"'"$1"'":\([^,]*\),.*/\1 \2/p' "runs/$2/log.jsonl"; }

# --- during training and after it -------------------------------------------------------------------------------------

settings ref eval.text=part.txt eval.choices=questions.jsonl
trained() {
    expect 0 train ref
    says "bits_per_byte " "acc " "acc_norm "
    for each in bits_per_byte acc acc_norm; do
        [ "$(asked $each ref | awk '{ print $1 }' | tr '\n' ' ')" = "3 6 " ] ||
            fail "$each is not logged after steps 3 and 6"
    done
    expect 0 "$bin" eval base.ini ref.ini
    [ "$(wc -l <"$out")" -eq 3 ] || fail "expected three lines"
    says "step 6  loss " "  perplexity " "step 6  text part.txt  loss " \
        "3000 tokens, 3000 bytes, without the first token" "step 6  choices questions.jsonl  acc " \
        "3 questions, protocol lm-eval"
    asked bits_per_byte ref | tail -n 1 | cut -d ' ' -f 2 >want
    sed -n 's/.*text.*bits per byte \([0-9.]*\) .*/\1/p' "$out" | paste -d ' ' - want |
        awk '{ d = $1 - $2; exit !(d < 1e-6 && d > -1e-6) }' ||
        fail "the log says $(cat want)"
    for each in acc acc_norm; do
        asked $each ref | tail -n 1 | cut -d ' ' -f 2 >want
        sed -n "s/.*choices.* $each \([0-9.]*\) .*/\1/p" "$out" | paste -d ' ' - want |
            awk '{ d = $1 - $2; exit !(d < 1e-6 && d > -1e-6) }' ||
            fail "$each in the log: $(cat want)"
    done
    awk '/ text / { for (i = 1; i < NF; i++) { if ($i == "loss") l = $(i + 1); if ($i == "byte") b = $(i + 1); if ($i == "perplexity") p = $(i + 1) }
          d = l / log(2) - b; e = exp(l) / p - 1; exit !(d * d < 1e-10 && e * e < 1e-8) }' "$out" || fail "loss, perplexity and bits per byte do not fit together"
}

# Only what is asked for on the command line; a text of others is not there.
asked_for() {
    expect 0 "$bin" eval base.ini ref.ini --text part.txt
    one_line
    cp "$out" plain
    gzip -c part.txt >part.gz
    expect 0 "$bin" eval base.ini ref.ini --text part.gz
    one_line
    sed 's/part.gz/part.txt/' "$out" >packed
    same plain packed "a text and the same compressed"
    mv data away
    expect 0 "$bin" eval base.ini ref.ini --text part.txt --choices questions.jsonl --protocol llmc
    mv away data
    [ "$(wc -l <"$out")" -eq 2 ] || fail "expected two lines"
    says "protocol llmc"
    settings none data.val=
    expect 0 "$bin" eval base.ini ref.ini none.ini --text part.txt --ckpt runs/ref/ckpt/step-00000003
    says "step 3  text part.txt"
}

# One answer, whichever ranks give it, while they train too. In a pipeline the rank of the head, which is tied, has the
# embedding from another rank: also where weights are loaded and no step follows.
any_ranks() {
    expect 0 "$bin" eval base.ini ref.ini
    cp "$out" alone
    while read -r ranks zero deep; do
        deal $ranks $zero $deep
        expect 0 "$bin" eval base.ini ref.ini deal.ini
        same alone "$out" "evaluations on one rank and on $ranks, ZeRO $zero, in pipelines of $deep,"
        settings dealt eval.text=part.txt eval.choices=questions.jsonl device.ranks=$ranks parallel.zero=$zero \
            parallel.pipeline=$deep
        rm -rf runs/dealt
        expect 0 train dealt
        for each in loss bits_per_byte acc acc_norm; do
            [ "$(asked $each dealt)" = "$(asked $each ref)" ] ||
                fail "$ranks ranks, ZeRO $zero, in pipelines of $deep: $each $(asked $each dealt), expected $(asked $each ref)"
        done
    done <<'DEALS'
2 0 1
3 0 1
3 1 1
2 2 1
3 3 1
4 3 1
2 0 2
4 1 2
4 3 2
DEALS
    deal 3 0
    expect 0 "$bin" eval base.ini ref.ini deal.ini --ckpt runs/ref/ckpt/step-00000003
    says "step 3  loss"
}

# The answers are not the weights' business: a run that is asked trains as one that is not.
changes_nothing() {
    settings silent
    expect 0 train silent
    grep '"t":"step"' runs/ref/log.jsonl | sed 's/,"ms".*//' >want
    grep '"t":"step"' runs/silent/log.jsonl | sed 's/,"ms".*//' >found
    same want found "steps with and without questions"
    expect 0 "$bin" hash runs/ref/ckpt/step-00000006
    sed 's/  runs.*//' "$out" >want
    expect 0 "$bin" hash runs/silent/ckpt/step-00000006
    sed 's/  runs.*//' "$out" >found
    same want found "hashes with and without questions"
}

without_validation_data() {
    settings blind data.val= eval.choices=questions.jsonl checkpoint.keep_best=yes
    expect 0 train blind
    ! grep -q "eval .*loss" "$out" || fail "there is no loss of data that is not there"
    says "eval  step 3  acc "
    grep -q '"t":"eval","step":6,"loss":null,"acc":' runs/blind/log.jsonl ||
        fail "expected a record without a loss: $(grep eval runs/blind/log.jsonl)"
    [ ! -e runs/blind/best ] || fail "best of what?"
    expect 0 "$bin" eval base.ini blind.ini
    one_line
    says "choices questions.jsonl"
}

# --- weights of others ------------------------------------------------------------------------------------------------

weights_of_others() {
    for family in gpt2 llama3; do
        expect 0 "$bin" inspect "$golden/likelihood/$family"
        cp "$out" model.ini
        printf '[run]\nname = %s\n[data]\nval =\n[sample]\ntokens = 5\ntokenizer = %s\n' "$family" \
            "$golden/tokenizer/$family.json" >words.ini
        for protocol in lm-eval llmc; do
            for file in hellaswag general; do
                scores=$(sed -n "s/^$family $protocol $file.jsonl \(acc [0-9.]*\) \(acc_norm [0-9.]*\)$/\1  \2/p" \
                    "$golden/likelihood/likelihood.txt")
                for ranks in 1 3; do
                    deal $ranks $ranks
                    expect 0 "$bin" eval base.ini model.ini words.ini deal.ini --choices \
                        "$golden/likelihood/$file.jsonl" --protocol $protocol
                    says "weights of $golden/likelihood/$family: the run has no checkpoint yet" \
                        "  $scores  40 questions, protocol $protocol"
                done
            done
        done
        expect 0 "$bin" eval base.ini model.ini words.ini --text "$golden/likelihood/texts.jsonl"
        says " bytes in 4 documents"
        expect 0 "$bin" sample base.ini model.ini words.ini --prompt "the"
        says "weights of $golden/likelihood/$family: the run has no checkpoint yet" "the"
    done
    [ ! -e runs/gpt2 ] || fail "to look at weights of others made a run directory"
    # Once there is a checkpoint, it counts.
    printf '[run]\nname = tuned\n[model]\ninit_from = runs/ref/ckpt/step-00000006/model.safetensors\n' >tuned.ini
    expect 0 "$bin" eval base.ini tuned.ini
    says "weights of runs/ref" "step 0  loss"
    sed -n 's/.*loss \([0-9.]*\) .*/\1/p' "$out" >found
    expect 0 "$bin" eval base.ini ref.ini
    sed -n 's/^step 6  loss \([0-9.]*\)  perplexity.*/\1/p' "$out" >want
    same want found "the losses of a checkpoint and of its weights"
    expect 0 "$bin" base.ini tuned.ini
    expect 0 "$bin" eval base.ini tuned.ini
    says "step 6  loss"
    ! grep -q "no checkpoint yet" "$out" || fail "there is a checkpoint"
}

# --- what is refused --------------------------------------------------------------------------------------------------

# Who only writes a sample does not need the files that are asked for.
samples_ask_nothing() {
    settings gone eval.text=nowhere.txt eval.choices=nowhere.jsonl run.name=ref sample.tokens=3
    sed -i '2d' gone.ini
    expect 0 "$bin" sample base.ini gone.ini
    expect 74 "$bin" eval base.ini gone.ini
}

# Before the first step, and by every verb that would ask.
refused() {
    printf '{"query": "a", "choices": ["b"], "gold": 0}\n{"query": "a", "choices": ["b"], "gold": 1}\n' >wrong.jsonl
    settings bad eval.choices=wrong.jsonl
    for verb in train check eval; do
        expect 65 "$bin" $verb base.ini bad.ini
        one_line
        says "[eval] choices: wrong.jsonl: line 2: " "from 0 to 0"
    done
    [ ! -e runs/bad ] || fail "a file that can't be asked was found after a run directory was made"
    expect 65 "$bin" eval base.ini ref.ini --choices wrong.jsonl
    one_line
    settings bad eval.text=nowhere.txt
    expect 74 "$bin" train base.ini bad.ini
    one_line
    says "[eval] text: nowhere.txt: "
    : >empty.txt
    expect 65 "$bin" eval base.ini ref.ini --text empty.txt
    says "empty.txt: 0 documents"
    printf '{"query": "a", "choices": ["01234567890123456789012345678901234567890123456789"], "gold": 0}\n' >long.jsonl
    expect 65 "$bin" eval base.ini ref.ini --choices long.jsonl
    says "long.jsonl: line 1: choice 0, counted from 0: 51 tokens are asked, and the model reads 32 at once"
    expect 78 "$bin" eval base.ini ref.ini --answers .
    says "--answers: a model of type gpt does not say to which class a sample belongs"
    [ ! -e answers.json ] || fail "answers.json of a text"
    expect 64 "$bin" eval base.ini ref.ini --choices questions.jsonl --protocol hellaswag
    says "--protocol hellaswag: expected lm-eval or llmc"
    expect 64 "$bin" eval base.ini ref.ini --text
    expect 64 "$bin" eval base.ini ref.ini --text "$(printf '%01100d' 0)"
    says "at most 1023 bytes"
    expect 64 "$bin" train base.ini ref.ini --text part.txt
    settings words sample.tokenizer="$golden/tokenizer/gpt2.json"
    expect 78 "$bin" eval base.ini ref.ini words.ini --text part.txt
    says "has ids up to " "and the model knows 256 tokens"
    settings narrow model.vocab=100
    expect 65 "$bin" eval base.ini narrow.ini --text part.txt
    says "part.txt: token " "and the model knows 100 tokens"
    printf '[model]\ntype = mlp\n' >mlp.ini
    printf '[run]\ndir = runs\n[device]\nthreads = 1\n' >bare.ini
    expect 78 "$bin" eval bare.ini mlp.ini --text part.txt
    one_line
    says "type mlp predicts no tokens"
    printf '[run]\nname = untrained\n' >more.ini
    expect 65 "$bin" eval base.ini more.ini --text part.txt
    says "runs/untrained" "no checkpoint"
}

# With several ranks too, and the first to fail says why.
refused_on_ranks() {
    deal 3 3
    settings untrained
    expect 65 "$bin" eval base.ini untrained.ini deal.ini --text part.txt
    says "runs/untrained" "no checkpoint"
    expect 65 "$bin" eval base.ini ref.ini deal.ini --choices wrong.jsonl
    expect 65 "$bin" eval base.ini ref.ini deal.ini --ckpt nowhere
    says "nowhere"
    cp -R runs/ref/ckpt/step-00000006 damaged
    flip damaged/model.safetensors 9000
    expect 65 "$bin" eval base.ini ref.ini deal.ini --ckpt damaged
    says "damaged/model.safetensors" "tensor "
    deal 5 0
    expect 78 "$bin" eval base.ini ref.ini deal.ini
    says "lanes = 4"
}

try trained
try asked_for
try any_ranks
try changes_nothing
try without_validation_data
try weights_of_others
try samples_ask_nothing
try refused
try refused_on_ranks
finish
