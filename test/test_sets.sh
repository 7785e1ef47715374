#!/bin/sh
# test/test_sets.sh: [eval] sets and best_of from the outside, with ./lockstep or the binary that LOCKSTEP_BIN names: a
# named set has the numbers of the same files as validation data, however the ranks are dealt and after a stop; one of
# them may decide what is best; it changes no step; what can't be meant is refused.
. test/support/lib.sh
. "$top/test/support/logs.sh"
. "$top/test/support/net.sh"

text 30000 >text.txt
# Letters that no training text has: the more is learned, the less likely they are.
text 5000 | tail -c 2501 | tr 'a-z' 'A-Z' >loud.txt
text 50000 | tail -c 3001 | tr 'aeiou' 'eioua' >calm.txt
ini >base.ini <<'INI'
run dir=runs steps=6
device threads=1
model layers=2 heads=2 embed=32 context=32
data train=data/t-train-*.bin val=data/t-val-*.bin
pack input=text.txt output=data/t
batch global=8 micro=2 lanes=4
schedule warmup=2 decay_steps=6
optimizer lr=0.01
parallel slices=2
eval every=2
sets = calm: data/calm-train-*.bin, loud: data/loud-train-00000.bin
sample tokens=0
log every=1 hash_every=1
INI
for each in t calm loud; do
    [ $each = t ] || printf '[pack]\ninput = %s.txt\noutput = data/%s\nval_fraction = 0\n' $each $each >pack.ini
    [ $each = t ] && : >pack.ini
    "$bin" pack base.ini pack.ini >"$out" 2>&1 || { cat "$out"; echo "0 passed, 1 failed"; exit 1; }
done

# figure KEY RUN: of each evaluation.
figure() { sed -n 's/^{"t":"eval",.*"'"$1"'":\([^,]*\),.*/\1/p' "runs/$2/log.jsonl"; }

# the log of evaluations and steps, without times.
evals() { untimed "$1" | grep -v '"t":"checkpoint"'; }

# --- what is logged ---------------------------------------------------------------------------------------------------

named() {
    settings ref log.prom_file=ref.prom
    expect 0 train ref
    says "sets    calm 3001 tokens, loud 2501 tokens" "eval  step 2  loss " "  calm.loss " "  loud.loss " " over "
    evals ref >ref.evals
    for set in calm loud; do
        settings as-$set data.val="data/$set-train-*.bin" eval.sets=
        expect 0 train as-$set
        figure loss as-$set >want
        figure $set.loss ref >found
        [ "$(wc -l <want)" -eq 3 ] || fail "expected three evaluations"
        same want found "losses on $set by name and as validation data"
    done
    cmp -s found want && [ "$(figure calm.loss ref)" != "$(figure loud.loss ref)" ] || fail "the sets are one"
    last=$(figure loud.loss ref | tail -n 1)
    grep -q "\"eval_sets\":{\"calm.loss\":[0-9.]*,\"loud.loss\":$(echo "$last" | cut -c 1-6)" runs/ref/status.json ||
        fail "status.json: $(grep eval_ runs/ref/status.json)"
    grep -q "^lockstep_eval_set{set=\"loud\",figure=\"loss\"} $(echo "$last" | cut -c 1-6)" ref.prom ||
        fail "metrics: $(grep eval_ ref.prom)"
    grep -q "<dt>Loss on loud</dt><dd>$(echo "$last" | cut -c 1-4)" runs/ref/report.html || fail "no loss of loud on the page"
    grep -q "Loss on each evaluation set" runs/ref/report.html || fail "no chart of the sets"
    expect 0 "$bin" tail runs/ref
    says "  calm.loss " "  loud.loss "
}

# Steps are those of a run that is evaluated on nothing.
changes_nothing() {
    settings silent data.val= eval.sets=
    expect 0 train silent
    steps ref >want
    steps silent >found
    same want found "steps with and without sets"
}

any_ranks() {
    while read -r ranks more; do
        settings dealt device.ranks=$ranks $more
        rm -rf runs/dealt
        expect 0 train dealt
        grep '"t":"eval"' ref.evals >want
        evals dealt | grep '"t":"eval"' >found
        same want found "evaluations on one rank and on $ranks ranks, $more"
    done <<'DEALS'
3 parallel.zero=3
2 parallel.zero=1
4 parallel.pipeline=2 parallel.zero=2
2 parallel.tensor=2
DEALS
}

resumes() {
    settings again run.steps=4
    expect 0 train again
    settings again
    expect 0 train again
    evals again >found
    same ref.evals found "the log of a run that was stopped, and of one that was not"
}

asked() {
    expect 0 "$bin" eval base.ini ref.ini
    [ "$(wc -l <"$out")" -eq 3 ] || fail "expected a line for each set"
    sed -n 's/^step 6  set loud  //p' "$out" >want
    expect 0 "$bin" eval base.ini ref.ini --set loud
    one_line
    sed 's/^step 6  set loud  //' "$out" >found
    same want found "the set among others and alone"
    expect 0 "$bin" eval base.ini as-loud.ini --ckpt runs/ref/ckpt/step-00000006
    sed 's/^step 6  //' "$out" >found
    same want found "the set by name and as validation data"
    expect 0 "$bin" eval base.ini ref.ini --set loud -o device.ranks=3 -o parallel.zero=3
    sed 's/^step 6  set loud  //' "$out" >found
    same want found "the set on one rank and on three"
    expect 64 "$bin" eval base.ini ref.ini --set cal
    says "--set cal: expected calm or loud"
    expect 64 "$bin" eval base.ini as-loud.ini --set loud
    says "--set loud: [eval] sets names none"
    expect 64 "$bin" eval base.ini ref.ini --set loud --answers runs/ref
    expect 0 "$bin" check base.ini ref.ini
    says "calm    3001 tokens" "loud    2501 tokens"
}

# Nodes that name other sets, the same in another order, or other files by the same names would log the one as the
# other.
same_on_all_nodes() {
    take_ports
    head -c 32 /dev/zero >secret && chmod 600 secret
    for node in 0 1; do
        settings node$node run.steps=2 run.dir=node$node cluster.nodes=127.0.0.1:1,127.0.0.2:1 \
            cluster.port=$port cluster.secret_file=secret cluster.timeout=20
    done
    sed -i 's/name = .*/name = both/' node0.ini node1.ini
    printf '[eval]\nsets = loud: data/loud-train-00000.bin, calm: data/calm-train-*.bin\n' >turned.ini
    # as many tokens of another text, and as many samples
    head -c 2501 calm.txt >calmer.txt
    printf '[pack]\ninput = calmer.txt\noutput = data/calmer\nval_fraction = 0\n' >pack.ini
    expect 0 "$bin" pack base.ini pack.ini
    printf '[eval]\nsets = calm: data/calm-train-*.bin, loud: data/calmer-train-00000.bin\n' >replaced.ini
    printf '[eval]\nsets = quiet: data/calm-train-*.bin, loud: data/loud-train-00000.bin\n' >renamed.ini
    for other in turned replaced renamed; do
        LOCKSTEP_NODE=1 start timeout 60 "$bin" base.ini node1.ini $other.ini
        LOCKSTEP_NODE=0 expect 78 timeout 60 "$bin" base.ini node0.ini
        says "copy the same data to all nodes"
        await 78
    done
    LOCKSTEP_NODE=1 start timeout 60 "$bin" base.ini node1.ini
    LOCKSTEP_NODE=0 expect 0 timeout 60 "$bin" base.ini node0.ini
    await 0
}

# --- what is best -----------------------------------------------------------------------------------------------------

# Validation data gets better at each evaluation, and loud worse after the second.
decides() {
    readlink runs/ref/best | grep -q 00000006 || fail "the best by validation data is $(readlink runs/ref/best)"
    settings loudest run.steps=10 eval.best_of=loud eval.patience=1 checkpoint.every=100
    expect 0 train loudest
    says "best loud $(figure loud.loss ref | sed -n 2p | cut -c 1-5)" "at step 4"
    readlink runs/loudest/best | grep -q 00000004 || fail "the best by loud is $(readlink runs/loudest/best)"
    event loudest patience "ended after step 6 by [eval] patience = 1: the loss on loud was lowest" "at step 4"
    [ "$(figure best_of loudest | sort -u)" = '"loud"' ] || fail "the log does not say of which set the best is"
    grep -q "best on loud" runs/loudest/report.html || fail "the page does not say so"
    settings unnamed data.val= run.steps=4
    expect 0 train unnamed
    says "eval  step 2  calm.loss" "best calm "
}

# A run that goes on by another set begins to look for the best anew.
another_set() {
    cp -r runs/loudest runs/other
    settings other run.steps=8 schedule.decay_steps=6
    expect 0 train other
    event other best_of "decided by the loss on [data] val from here on: the best so far, step 4, was so by that on the set loud"
    readlink runs/other/best | grep -q 00000008 || fail "the best by validation data is $(readlink runs/other/best)"
    ! grep -q '"best_of"' runs/other/ckpt/step-00000008/manifest.json || fail "the checkpoint still says loud"
}

# --- what is refused --------------------------------------------------------------------------------------------------

# refused TEXT SETTING...
refused() {
    words=$1
    shift
    settings wrong "$@"
    expect 78 train wrong
    says "$words"
}

refusals() {
    refused "[eval] sets: \`data/x.bin\`: expected a name of letters, digits, _ and -, a colon and files" eval.sets=data/x.bin
    refused "a: expected files or globs after the colon" "eval.sets=a: , b: c.bin"
    refused "there are two sets a" "eval.sets=a: x.bin, a: y.bin"
    refused "a set is missing after the last comma" "eval.sets=a: x.bin,"
    refused "there are more than 8 sets" "eval.sets=a:x, b:x, c:x, d:x, e:x, f:x, g:x, h:x, i:x"
    refused "a: an evaluation reads each sample once: write the same names without @ and weight" "eval.sets=a: x@2 y@1"
    refused "calmer is none of the sets: expected calm or loud. Nearest that works: [eval] best_of = \"\"" eval.best_of=calmer
    refused "[eval] sets: loud: " "eval.sets=loud: data/gone-*.bin"
    head -c 20 loud.txt >tiny.txt
    printf '[pack]\ninput = tiny.txt\noutput = data/tiny\nval_fraction = 0\n' >pack.ini
    expect 0 "$bin" pack base.ini pack.ini
    settings tiny "eval.sets=tiny: data/tiny-train-*.bin"
    expect 65 train tiny
    says "[eval] sets: tiny: "
}

try named
try changes_nothing
try any_ranks
try resumes
try asked
try same_on_all_nodes
try decides
try another_set
try refusals
finish
