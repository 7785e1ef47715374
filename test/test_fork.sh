#!/bin/sh
# test/test_fork.sh: runs that diverge, and runs that begin with another one's checkpoint. A run with lr = 1000 stops by
# itself, and what it advises is followed to the letter. A fork with the same settings has the bits that the other run
# has; what can't be forked is refused, and leaves nothing.
. test/support/lib.sh
. "$top/test/support/small.sh"

small_run <<'END'
[run]
steps = 20
[device]
ranks = 1
[optimizer]
lr = 0.01
[schedule]
type = constant
warmup = -1
[checkpoint]
every = 5
keep = 10
[eval]
every = 5
batches = 2
[log]
every = 1
watch = no
END

train() { timeout 100 "$bin" base.ini "$1.ini"; }
hashes() { "$bin" hash "$1" 2>&1 | sed 's/  [^ ]*$//'; }
absent() { for each; do [ ! -e "$each" ] || fail "$each is there"; done; }
files() { ls -A runs 2>/dev/null | sort | tr '\n' ' '; }

# event RUN KIND TEXT...: the last event of this kind has each text.
event() {
    grep "\"kind\":\"$2\"" "runs/$1/events.jsonl" 2>/dev/null | tail -n 1 >"$out"
    [ -s "$out" ] || fail "no event $2 in runs/$1/events.jsonl"
    shift 2
    says "$@"
}

# The steps in the log without what a clock says.
steps_of() {
    grep '^{"t":"step"' "runs/$1/log.jsonl" | sed -e 's/,"ms":.*"loss_scale"/,"loss_scale"/' -e 's/,"time":.*//'
}

settings good
"$bin" base.ini good.ini >"$out" 2>&1 || { cat "$out"; echo "0 passed, 1 failed"; exit 1; }

# follow: runs the command after "Next: " in what was said, as it is written; `-o SECTION.KEY=VALUE` as the INI that it
# stands for.
follow() {
    command=$(sed -n 's/^lockstep: .*\. Next: lockstep //p' "$out")
    [ -n "$command" ] || fail "it does not say what to do next"
    : >advice.ini
    words=
    for word in $command; do
        case $word in
        -o) ;;
        run.name=* | optimizer.lr=*) printf '[%s]\n%s\n' "${word%%.*}" "${word#*.}" >>advice.ini ;;
        *) words="$words $word" ;;
        esac
    done
    expect 0 timeout 100 "$bin" $words advice.ini
}

# --- a run that diverges ----------------------------------------------------------------------------------------------

# From its first steps: no checkpoint is worth going back to.
diverges() {
    settings "lost$1" device.ranks="$1" log.watch=yes optimizer.lr=1000 optimizer.grad_clip=0 run.steps=200
    expect 75 train "lost$1"
    says "[run] bad_steps = 50: no finite loss or gradient in steps " "these weights are ruined already" "loss nan"
    ! grep -q -e '-nan' "$out" runs/lost"$1"/* 2>/dev/null || fail "a NaN with a sign"
    cp "$out" said
    grep -c '"skipped":true' "runs/lost$1/log.jsonl" >count
    [ "$(cat count)" -eq 50 ] || fail "$(cat count) steps are skipped in the log, expected 50"
    event "lost$1" diverged "no finite loss or gradient in steps "
    expect 2 "$bin" status "runs/lost$1"
    says "DEAD: stopped itself: it has diverged" "next      lockstep train runs/lost$1/config.ini"
    grep -q '"state":"diverged"' "runs/lost$1/status.json" || fail "status.json does not say it"
    cp said "$out"
    follow
    says "done    200 steps; run directory runs/lost$1-2"
    expect 0 "$bin" status "runs/lost$1-2"
}

# The name that is advised is one that no run has, wherever [run] dir is.
names_no_other_run() {
    settings again run.dir=some/where optimizer.lr=1000 optimizer.grad_clip=0 run.steps=200 run.bad_steps=5
    mkdir -p some/where/again-2
    expect 75 train again
    says "lockstep train some/where/again/config.ini -o run.name=again-3 "
    follow
    says "done    200 steps; run directory some/where/again-3"
}

# After good steps: the best checkpoint is the way back, also where later ones were saved.
goes_back() {
    settings wild optimizer.lr=1000 optimizer.grad_clip=0 run.steps=200 checkpoint.keep=2 device.ranks="$1"
    expect 0 "$bin" fork runs/good@10 "wild$1" wild.ini
    expect 75 timeout 100 "$bin" "runs/wild$1/config.ini"
    says "the best is step 10 (validation loss " ". Next: lockstep fork runs/wild$1@best wild$1-2 -o optimizer.lr=0.001"
    [ -d "runs/wild$1/ckpt/step-00000010" ] || fail "the good checkpoint had to go"
    follow
    says "forked   runs/wild$1, step 10" "optimizer.lr                     1e+03                    0.001" \
        "next     lockstep runs/wild$1-2/config.ini"
    expect 0 timeout 100 "$bin" "$(sed -n 's/^next     lockstep //p' "$out")"
    says "done    200 steps"
}

# What a shell does not read as it stands is quoted, and a shell reads it back.
quoted() {
    settings quoted run.dir="it's a \$HOME" optimizer.lr=1000 optimizer.grad_clip=0 run.steps=200 run.bad_steps=5
    expect 75 train quoted
    sed -n "s/^lockstep: .*\. Next: lockstep /printf '%s\\\\n' /p" "$out" >words.sh
    sh words.sh >words 2>&1 || fail "a shell can't read $(cat words.sh)"
    [ "$(sed -n 2p words)" = "it's a \$HOME/quoted/config.ini" ] || fail "a shell reads $(cat words)"
    [ -f "$(sed -n 2p words)" ] || fail "$(sed -n 2p words) is not there"
}

# It ends with 0, as all of its steps were made; and yet it is not fine.
diverges_at_the_end() {
    settings late optimizer.lr=1000 optimizer.grad_clip=0 run.steps=25
    expect 0 train late
    expect 1 "$bin" status runs/late
    says "ATTENTION: has all its steps, and has diverged"
    settings never optimizer.lr=1000 optimizer.grad_clip=0 run.steps=100 run.bad_steps=0
    expect 0 train never
}

# Its loss stays finite, and far above what it was: it goes on, says so once, and status does until it ends, also from
# elsewhere. The checkpoint of its last good step is not what is advised: the loss of a step is of the weights before
# it.
is_ruined() {
    settings high optimizer.lr=10 optimizer.grad_clip=0 run.steps=75 eval.every=0 checkpoint.every=1 checkpoint.keep=100
    expect 0 "$bin" fork runs/good@10 high high.ini
    expect 0 timeout 100 "$bin" runs/high/config.ini
    event high ruined "far above the lowest" "; the newest checkpoint from before is step 11 (loss " \
        ". Next: lockstep fork runs/high@best high-2 -o optimizer.lr=0.001"
    [ "$(grep -c '"kind":"ruined"' runs/high/events.jsonl)" -eq 1 ] || fail "it does not say so once"
    expect 1 "$bin" status runs/high
    says "ATTENTION: has all its steps, and its loss is far above what it was" \
        "next      lockstep fork runs/high@best high-2 -o optimizer.lr=0.001"
    here=$(pwd)
    cd /
    expect 1 "$bin" status "$here/runs/high"
    says "next      cd $here && lockstep fork runs/high@best high-2 -o optimizer.lr=0.001"
    expect 1 "$bin" status --json "$here/runs/high"
    says "cd $here && lockstep fork"
    cd "$here"
    expect 0 "$bin" fork runs/high high-3
    says "passed over runs/high/ckpt/step-00000011: no loss after it was near" "forked   runs/high, step 10"
}

# Or it recovers; or it is stopped before it does.
mends() {
    settings mends optimizer.lr=3 optimizer.grad_clip=0 run.steps=150 eval.every=0
    expect 0 "$bin" fork runs/good@10 mends mends.ini
    expect 0 timeout 100 "$bin" runs/mends/config.ini
    event mends ruined "far above the lowest" ". Next: lockstep fork runs/mends@best mends-2 -o optimizer.lr=0.001"
    event mends mended "near the lowest again"
    grep -o '"kind":"\(ruined\|mended\)"' runs/mends/events.jsonl >kinds
    [ "$(head -n 1 kinds)" = '"kind":"ruined"' ] && [ -z "$(uniq -d kinds)" ] ||
        fail "ruined and mended don't take turns: $(tr '\n' ' ' <kinds)"
    settings stops optimizer.lr=10 optimizer.grad_clip=0 run.steps=1000000 eval.every=0 run.bad_steps=0 log.watch=no
    expect 0 "$bin" fork runs/good@10 stops stops.ini
    "$bin" runs/stops/config.ini >stops.log 2>&1 &
    pid=$!
    for i in $(seq 200); do
        grep -q "^step   1[2-9]/" stops.log && break
        sleep 0.05
    done
    kill -TERM $pid
    wait $pid
    expect 1 "$bin" status runs/stops
    says "ATTENTION: stopped on request, and its loss is far above what it was" \
        "next      lockstep fork runs/stops@best stops-2"
}

# The loss of step 1 is of the first weights, and good; those that were saved after it are not.
first_step_proves_nothing() {
    settings one optimizer.lr=1000 optimizer.grad_clip=0 run.steps=200 checkpoint.every=1 eval.every=1
    expect 75 train one
    says "these weights are ruined already. Next: lockstep train runs/one/config.ini" \
        "eval  step 57  loss nan over 2 windows"
    expect 65 "$bin" fork runs/one one-3
    says "passed over runs/one/ckpt/step-00000001: no loss after it was near its own" "is sound"
}

# --- a fork -----------------------------------------------------------------------------------------------------------

# A warm-up that is not over, or a decay that is, hides the new rate.
low_rate() {
    settings slow optimizer.lr=0.02 schedule.type=linear schedule.warmup=2000 schedule.decay_steps=3000 run.steps=3000
    expect 0 "$bin" fork runs/good@10 slow slow.ini
    says "rate     0.00011 at step 11, far below [optimizer] lr = 0.02: the warm-up to step 2000 is not over"
    settings slower optimizer.lr=0.04
    sed '/name = /d' slower.ini >only.ini
    expect 0 "$bin" fork runs/slow slower only.ini
    says "rate     0.00022 at step 11, far below [optimizer] lr = 0.04: the warm-up to step 2000 is as it was"
    settings ended optimizer.lr=0.02 schedule.type=linear schedule.decay_steps=10 schedule.final_fraction=0.01
    expect 0 "$bin" fork runs/good@10 ended ended.ini
    says "rate     0.0002 at step 11, far below [optimizer] lr = 0.02: the decay to step 10 is as good as over"
}

# What is printed to go on with a finished run trains.
finished() {
    expect 0 "$bin" fork runs/good more
    says "steps    all 20 of [run] steps are done: raise it" "next     lockstep runs/more/config.ini -o run.steps=40"
    expect 0 timeout 100 "$bin" $(sed -n 's/^next     lockstep //p' "$out")
    says "done    40 steps"
}

# With the same settings, on any number of ranks, from a step, the best and the newest.
same_bits() {
    settings ten run.steps=10
    expect 0 train ten
    settings longer run.steps=20
    for ranks in 1 2; do
        settings ranks device.ranks=$ranks
        for from in good@5 good@10 ten ten@best; do
            name=of-$ranks-$(echo $from | tr '@' '-')
            expect 0 "$bin" fork "runs/$from" "$name" longer.ini ranks.ini
            expect 0 timeout 100 "$bin" "runs/$name/config.ini"
            hashes runs/good/ckpt/step-00000020 >hash.want
            hashes "runs/$name/ckpt/step-00000020" >hash.found
            same hash.want hash.found "hashes of runs/good and runs/$name"
            steps_of good >log.want
            steps_of "$name" >log.found
            same log.want log.found "steps of runs/good and runs/$name"
        done
    done
}

says_what_it_did() {
    settings other optimizer.lr=0.001 run.steps=30 data.val=
    printf '[batch]\nglobal = 16\n' >>other.ini
    expect 0 "$bin" fork runs/good@5 told other.ini
    says "forked   runs/good, step 5" "batch.global                     8                        16" \
        "optimizer.lr                     0.01                     0.001" \
        "step 6 begins with sample 81 of" "it would be sample 41 of the run, not 81: those between are left out" \
        "log      begins with that of the other run, up to step 5" \
        "next     lockstep runs/told/config.ini"
    event told forked "from runs/good, step 5, hash " "batch.global 8 -> 16" "optimizer.lr 0.01 -> 0.001"
    event good fork "step 5 begins runs/told" "optimizer.lr 0.01 -> 0.001"
    grep -q '"forked_from": {' runs/told/ckpt/step-00000005/manifest.json ||
        fail "the manifest does not say where it is from"
    expect 1 "$bin" status runs/told
    says "forked, and not started yet" "from      runs/good, step 5" "next      lockstep runs/told/config.ini"
    expect 0 timeout 100 "$bin" runs/told/config.ini
    grep -q '"forked_from": {' runs/told/ckpt/step-00000030/manifest.json ||
        fail "later manifests do not say where it is from"
    grep -c '"t":"step"' runs/told/log.jsonl >count
    [ "$(cat count)" -eq 30 ] || fail "$(cat count) steps in the log, expected 30"
    expect 0 "$bin" status runs/told
    says "from      runs/good, step 5"
    expect 0 "$bin" compare runs/good runs/told
    expect 0 "$bin" report runs/told
    grep -q 'forked from</th><td class="v">runs/good, step 5, hash' runs/told/report.html ||
        fail "the report does not say where it is from"
}

# Another seed, another precision: what belongs to them begins anew.
other_numbers() {
    settings half precision.compute=fp16 run.seed=7 run.steps=25
    expect 0 "$bin" fork runs/good@20 half half.ini
    says "their order is another"
    grep -q '"loss_scale": 32768.0' runs/half/ckpt/step-00000020/manifest.json || fail "the loss scale is that of fp32"
    expect 0 "$bin" hash runs/half/ckpt/step-00000020
    expect 0 timeout 100 "$bin" runs/half/config.ini
    says "done    25 steps"
    # a scale that is given, or is no longer given, with the precision as it was
    settings given precision.loss_scale=1024 run.steps=30
    expect 0 "$bin" fork runs/half@20 given given.ini
    begins_with given 1024.0
    expect 0 timeout 100 "$bin" runs/given/config.ini
    grep -q '"step":30,.*"loss_scale":1024[,.}]' runs/given/log.jsonl ||
        fail "it did not train with the scale that was given"
    settings open precision.loss_scale=dynamic run.steps=35
    expect 0 "$bin" fork runs/given@20 open open.ini
    begins_with open 32768.0
    # the same scale, but given: the good steps so far are none with it
    grep -q '"good_steps": 0,' runs/half/ckpt/step-00000025/manifest.json && fail "runs/half has no good steps"
    settings alike precision.loss_scale=32768 run.steps=30
    expect 0 "$bin" fork runs/half@25 alike alike.ini
    begins_with alike 32768.0
}

# begins_with NAME SCALE: this fork has this loss scale, no good steps with it yet, and the hash that its state has.
begins_with() {
    at=$(echo runs/$1/ckpt/step-*)
    grep -q "\"loss_scale\": $2" $at/manifest.json && grep -q '"good_steps": 0,' $at/manifest.json ||
        fail "expected the scale $2, and 0 good steps: $(grep 'loss_scale\|good_steps' $at/manifest.json)"
    expect 0 "$bin" hash $at
}

# Of other data the loss is another one, and so is the lowest: what was reached before says nothing of the fork.
other_data() {
    text 60000 | tr a-z b-za >other.txt
    printf '[pack]\ninput = other.txt\noutput = data/other\n' >pack.ini
    expect 0 "$bin" pack base.ini pack.ini
    settings plain data.train='data/other-train-*.bin' run.steps=30
    expect 0 "$bin" fork runs/good@20 strange plain.ini
    says "the dataset is another"
    for key in loss least_loss; do
        grep -q "\"$key\": null" runs/strange/ckpt/step-00000020/manifest.json ||
            fail "the fork has the other data's $key"
        ! grep -q "\"$key\": null" runs/good/ckpt/step-00000020/manifest.json || fail "runs/good has no $key"
    done
    expect 0 "$bin" fork runs/good@20 known
    for key in loss least_loss; do
        grep "\"$key\":" runs/good/ckpt/step-00000020/manifest.json >key.want
        grep "\"$key\":" runs/known/ckpt/step-00000020/manifest.json >key.found
        same key.want key.found "$key of runs/good and of its fork"
    done
}

of_a_fork() {
    settings more run.steps=15
    expect 0 "$bin" fork runs/good@5 child more.ini
    expect 0 timeout 100 "$bin" runs/child/config.ini
    expect 0 "$bin" fork runs/child@best grandchild more.ini
    event grandchild forked "from runs/child, step "
}

# elsewhere and by other names: a link, a trailing slash, a [run] dir of its own
elsewhere() {
    settings away run.dir=away
    expect 0 "$bin" fork runs/good/ there away.ini
    [ -d away/there/ckpt ] || fail "away/there is not there"
    expect 0 "$bin" fork runs/good/. beside
    [ -d runs/beside/ckpt ] || fail "runs/beside is not there"
    mkdir elsewhere
    cp -RP runs/good elsewhere  # a run that was moved: its config.ini still says where it was
    expect 0 "$bin" fork elsewhere/good moved
    # what stands after the last @ is a step only if there is no such directory
    mkdir elsewhere/me@home
    cp -RP runs/good elsewhere/me@home/run@5
    expect 0 "$bin" fork elsewhere/me@home/run@5 newest
    says "forked   elsewhere/me@home/run@5, step 20"
    expect 0 "$bin" fork elsewhere/me@home/run@5@10 tenth
    says "forked   elsewhere/me@home/run@5, step 10"
    expect 0 "$bin" fork elsewhere/me@home/run@5@best best
    [ -d elsewhere/me@home/newest/ckpt ] && [ -d elsewhere/me@home/tenth/ckpt ] ||
        fail "the forks are not beside the run"
    [ -d elsewhere/moved/ckpt ] || fail "elsewhere/moved is not there"
    absent runs/moved
}

# Weights alone: of a run, its best or another checkpoint, or a file of one; by any number of ranks, whoever wrote it. A
# rate of almost nothing shows them after a step.
weights_alone() {
    settings parts device.ranks=2 parallel.slices=2
    printf 'tensor = 2\n' >>parts.ini
    expect 0 train parts
    [ -f runs/parts/ckpt/step-00000020/model-00001-of-00002.safetensors ] || fail "the weights are in one file"
    for from in good good/best good/ckpt/step-00000020/model.safetensors parts parts/ckpt/step-00000020; do
        for ranks in 1 2; do
            rm -rf runs/begun
            settings begun model.init_from="runs/$from" device.ranks=$ranks optimizer.lr=1e-30 run.steps=1
            case $from in parts*) printf '[parallel]\nslices = 2\n' >>begun.ini ;; esac
            expect 0 train begun
            hashes "runs/${from%%/*}/ckpt/step-00000020" | sed 's/ *state_hash.*//' >hash.want
            hashes runs/begun/ckpt/step-00000001 | sed 's/ *state_hash.*//' >hash.found
            same hash.want hash.found "the weights of runs/$from and of what began with them on $ranks ranks:"
        done
    done
    rm -rf runs/begun
    flip runs/parts/ckpt/step-00000020/model-00001-of-00002.safetensors 2000
    expect 65 train begun
    says "[model] init_from" "model-00001-of-00002.safetensors" "damaged"
    settings begun model.init_from=runs/good model.layers=2
    expect 78 train begun
    says "[model] init_from" "another model"
}

# --- refused, and killed ----------------------------------------------------------------------------------------------

refusals() {
    before=$(files)
    settings layers model.layers=2
    settings sgd optimizer.type=sgd
    settings odd run.steps=-3
    settings type model.type=llama
    for ini in layers sgd type; do
        expect 78 "$bin" fork runs/good new $ini.ini
        says "in the fork" "[model] init_from = runs/good/ckpt/step-00000020"
    done
    grep -q "model.type is gpt" "$out" || fail "it does not name the key"
    expect 78 "$bin" fork runs/good new odd.ini
    expect 65 "$bin" fork runs/good@7 new
    says "20, 15, 10, 5"
    expect 64 "$bin" fork runs/good@last new
    expect 64 "$bin" fork runs/nothing new
    expect 64 "$bin" fork runs/good
    expect 64 "$bin" fork runs/good new --all
    expect 78 "$bin" fork runs/good ../new
    expect 64 "$bin" fork runs/good good
    says "runs/good is there already"
    [ "$before" = "$(files)" ] || fail "runs has $(files), and had $before"
    # what the optimizer keeps is there with a momentum, and not without
    for momentum in 0 0.9; do
        settings plain optimizer.type=sgd optimizer.momentum=$momentum run.steps=5
        settings moved optimizer.momentum=$(echo 0.9 0 | tr ' ' '\n' | grep -vx $momentum)
        rm -rf runs/plain
        expect 0 train plain
        expect 78 "$bin" fork runs/plain new moved.ini
        says "optimizer.momentum is $momentum in" "what the optimizer keeps of each weight would not fit"
    done
    settings moved optimizer.momentum=0.8
    expect 0 "$bin" fork runs/plain new moved.ini
    rm -rf runs/plain runs/new
}

# A damaged file, or one that is on another node.
damage() {
    before=$(files)
    cp -RP runs/good runs/bad
    new=runs/bad/ckpt/step-00000020
    flip $new/optimizer.safetensors $(($(size $new/optimizer.safetensors) - 5))
    expect 65 "$bin" fork runs/bad new
    says "optimizer.safetensors" "damaged"
    rm $new/model.safetensors
    expect 65 "$bin" fork runs/bad new
    says "model.safetensors: is missing"
    flip $new/manifest.json 100
    expect 0 "$bin" fork runs/bad new  # the one before it
    says "passed over $new" "forked   runs/bad, step 15"
    rm -rf runs/new
    settings pair device.ranks=2
    expect 0 train pair
    rm runs/pair/ckpt/step-00000020/model-00001-of-00002.safetensors
    expect 65 "$bin" fork runs/pair@20 new
    says "model-00001-of-00002.safetensors: is missing; rank 1 wrote it" \
        "Copy them into this directory from the nodes that have them"
    rm -rf runs/bad runs/pair
    [ "$before" = "$(files)" ] || fail "runs has $(files), and had $before"
}

# Whatever the moment: the run is there, whole, or it is not there; and the next fork finds nothing in its way.
killed() {
    before=$(files)
    whole=0
    for ms in 1 2 3 4 5 6 7 8 9 10 12 14 16 18 20 25 30 40 60 90; do
        for signal in KILL TERM; do
            [ $signal = KILL ] || rm -rf runs/.cut.fork
            timeout --foreground -s $signal "0.0$(printf %02d $ms)" "$bin" fork runs/good@10 cut >"$out" 2>&1
            [ -d runs/cut ] || { [ $signal = KILL ] || [ "$before" = "$(files)" ] ||
                fail "runs has $(files), and had $before"; continue; }
            whole=$((whole + 1))
            [ "$(hashes runs/cut/ckpt/step-00000010)" = "$(hashes runs/good/ckpt/step-00000010)" ] ||
                fail "half a run after $ms ms"
            rm -rf runs/cut
        done
    done
    expect 0 "$bin" fork runs/good@10 cut
    [ "$before" = "$(rm -rf runs/cut; files)" ] || fail "runs has $(files), and had $before"
    echo "info: $whole of 40 were whole before they were killed"
}

# Of a run that goes on and removes its checkpoints: the fork is whole, or says what happened.
of_a_live_run() {
    settings live run.steps=1000000 checkpoint.every=1 checkpoint.keep=1 checkpoint.keep_best=no eval.every=0
    start "$bin" base.ini live.ini
    until_true 20 grep -q '"step":3,' runs/live/log.jsonl
    before=$(files) made=0
    for k in 1 2 3 4 5 6 7 8; do
        "$bin" fork runs/live new >"$out" 2>&1 </dev/null
        case $? in
        0)
            made=$((made + 1))
            expect 0 "$bin" hash runs/new/ckpt/step-*
            rm -rf runs/new
            ;;
        65) [ "$before" = "$(files)" ] || fail "runs has $(files), and had $before" ;;
        *) fail "it ended otherwise" ;;
        esac
    done
    kill -TERM "$pid"
    await 75
    expect 0 "$bin" fork runs/live new
    [ $made -ge 1 ] || fail "none was made"
    echo "info: $made of 8 forks of a run that saves every step were made"
}

try diverges_alone diverges 1
try diverges_on_two_ranks diverges 2
try goes_back_alone goes_back 1
try goes_back_on_two_ranks goes_back 2
try quoted
try names_no_other_run
try diverges_at_the_end
try is_ruined
try mends
try first_step_proves_nothing
try low_rate
try finished
try same_bits
try says_what_it_did
try other_numbers
try other_data
try of_a_fork
try elsewhere
try weights_alone
try refusals
try damage
try killed
try of_a_live_run
finish
