#!/bin/sh
# test/test_served.sh: [server] mode = bounded, async and hybrid from the outside. Where order leaves no choice they have
# the bits of sync; a record of it gives the same bits again, in every mode, after a kill too; a slow worker does less;
# what the log counts is what the record says; and what can't go on says why. What servers decide is in test_serving.c,
# what is refused in test_config.c.
# MATRIX=every: a machine that comes again, too (test/check_served.sh).
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"
. "$top/test/support/images.sh"
printf '[device]\nthreads = 1\n' >>base.ini
sed -i '/^dropout/d' base.ini
small="model.embed=16 model.layers=1 model.vocab=259 run.steps=20 eval.every=10 eval.batches=2 log.watch=no
    log.hash_every=5 parallel.zero=1 server.count=1 server.every=5 checkpoint.every=10"
long="$small run.steps=1000000 eval.every=0"

# once SETTING...: of those that are given twice the last one.
once() {
    printf '%s\n' "$@" |
        awk -F= '!($1 in at) { key[++n] = $1 } { at[$1] = $0 } END { for (i = 1; i <= n; i++) print at[key[i]] }'
}
set_up() {
    run=$1
    shift
    settings "$run" $(once "$@")
}

# served RUN SETTING...: trains it.
served() {
    run=$1
    shift
    set_up "$run" $small "$@"
    expect 0 train "$run"
}

# repeats RUN SETTING...: it is recorded, and a run that repeats the record is like it.
repeats() {
    what=$1
    shift
    served "$what" server.record=yes "$@"
    served "$what-again" server.replay="runs/$what" "$@"
    like "runs/$what" "runs/$what-again"
}

# updates RUN: how many were made before its newest checkpoint.
updates() { sed -n 's/.*"adam_t": *\([0-9]*\).*/\1/p' "$(newest runs/"$1")/manifest.json"; }

# --- the same bits ----------------------------------------------------------------------------------------------------

# One worker, whose share is all of a step, in one lane: nothing comes between.
one_worker_is_sync() {
    alone="device.ranks=2 batch.lanes=1 batch.global=4 batch.micro=2 model.dropout=0.1"
    for mode in sync async bounded hybrid; do served "one-$mode" $alone optimizer.grad_clip=0.5 server.mode=$mode; done
    for mode in async bounded hybrid; do
        same_end runs/one-sync runs/one-$mode
        [ "$(grep -c '"stale":0,"late":0,"waiting":0[,}]' runs/one-$mode/log.jsonl)" -eq 20 ] ||
            fail "$mode: alone a worker misses nothing"
        sed 's/,"stale":.*"waiting":[^,}]*//' runs/one-$mode/log.jsonl >runs/one-$mode/sync.jsonl
        mv runs/one-$mode/sync.jsonl runs/one-$mode/log.jsonl
        like runs/one-sync runs/one-$mode
    done
    # some norms are a bit above where they are clipped, and some below
    for mode in sync async hybrid; do served "near-$mode" $alone optimizer.grad_clip=1.3 server.mode=$mode; done
    sed -n 's/.*"grad_norm":\([^,]*\),.*/\1/p' runs/near-sync/log.jsonl |
        awk '{ above += $1 > 1.3; far += $1 > 2.6 } END { exit !(above > 5 && above < 15 && !far) }' ||
        fail "norms: $(sed -n 's/.*"grad_norm":\([^,]*\),.*/\1/p' runs/near-sync/log.jsonl | tr '\n' ' ')"
    for mode in async hybrid; do same_end runs/near-sync runs/near-$mode; done
}

# Two lanes, a mean that no clipping changes, and no tied rows, whose uses are added before lanes are. A slow worker is
# waited for.
hybrid_that_waits_is_sync() {
    two="model.type=llama device.ranks=4 server.count=2 batch.lanes=2 batch.global=8 optimizer.grad_clip=0"
    served two-sync $two
    served two-hybrid $two server.mode=hybrid server.timeout=80 run.faults=drag@1x1000000:1
    same_end runs/two-sync runs/two-hybrid
    # each is clipped by itself, if it is too large
    served two-clipped $two optimizer.grad_clip=1000 server.mode=hybrid server.timeout=80
    same_end runs/two-sync runs/two-clipped
}

# Of staleness 0, every worker has every update.
no_staleness_is_sync() {
    served stale-sync device.ranks=4 server.count=2
    served stale-0 device.ranks=4 server.count=2 server.mode=bounded server.staleness=0
    like runs/stale-sync runs/stale-0
}

async_repeats() {
    repeats async device.ranks=6 server.count=2 server.mode=async
    repeats many device.ranks=5 server.count=3 server.mode=async batch.micro=2 # more servers than workers
    served beside device.ranks=6 server.count=2 server.mode=async server.replay=runs/async checkpoint.async=yes
    same_end runs/async runs/beside
    expect 0 train beside # all is done, and the record has no period after it
    says "done    20 steps"
}
bounded_repeats() {
    repeats bounded device.ranks=5 model.dropout=0.1 server.mode=bounded server.staleness=1 precision.compute=bf16 \
        optimizer.type=sgd run.faults=drag@1x1000000:1
    says "; bounded: a worker waits for the one that is 2 steps behind"
    bound_holds runs/bounded/served-0.log 4 1 || fail "a worker pulled too early: $(cat early)"
    counts_are_those_of_its_record bounded 4
}
hybrid_repeats() {
    repeats hybrid device.ranks=6 server.count=2 server.mode=hybrid server.timeout=0.02 run.faults=drag@1x1000000:1
    says "; hybrid: a step waits 0.02 s after its first gradient"
    grep -q '^drop 1 ' runs/hybrid/served-0.log || fail "nothing of worker 1 came too late"
    [ "$(late hybrid)" -eq "$(grep -c '^drop ' runs/hybrid/served-0.log)" ] ||
        fail "the log has $(late hybrid) late gradients, the record $(grep -c '^drop ' runs/hybrid/served-0.log)"
    # the record says when a step is closed, and no clock does
    served hybrid-hasty device.ranks=6 server.count=2 server.mode=hybrid server.timeout=0.0001 server.replay=runs/hybrid \
        run.faults=drag@1x1000000:1
    like runs/hybrid runs/hybrid-hasty
    # all take 40 ms, worker 1 twice as long, so it is a step late
    repeats decays device.ranks=5 server.mode=hybrid server.timeout=0.01 server.late=decay \
        "run.faults=drag@1x1000000,twice@1x1000000:1"
    grep -q '^push 1 ' runs/decays/served-0.log || fail "nothing of worker 1 counts"
    counts_are_those_of_its_record decays 4
    served drops device.ranks=5 server.mode=hybrid server.timeout=0.01 server.record=yes \
        "run.faults=drag@1x1000000,twice@1x1000000:1"
    awk '$1 == "drop" { late = 1 } $1 == "end" { late = 0 } $1 == "close" && late { found = 1 } END { exit !found }' \
        runs/drops/served-0.log || fail "nothing came too late but after a period's last step"
    counts_are_those_of_its_record drops 4
}

# What the log says of communication is of one step: all of a period's was not longer than the period, in which there is
# little else to do.
times_are_those_of_a_step() {
    served times device.ranks=5 server.count=4 server.mode=async server.every=20 log.hash_every=0 eval.every=0 \
        checkpoint.every=0 batch.global=2 batch.lanes=1 batch.micro=1 model.embed=256 model.context=4
    sed -n 's/^{"t":"step",.*"ms":\([0-9.]*\),"tok.*"comm_ms":\([0-9.]*\),.*/\1 \2/p' runs/times/log.jsonl |
        awk '{ all += $1; busy += $2; n++ } END { exit !(n == 20 && busy > 0 && busy < 3 * all) }' ||
        fail "20 steps, and of these communication: $(sed 's/.*"ms"/ms/; s/,"comm_hidden.*//' runs/times/log.jsonl)"
}

# A step's time is from the end of the one before, so all of them together are no longer than the run. Each takes 40 ms
# or more, as each of its shares does.
steps_take_their_own_time() {
    began=$(date +%s%N)
    served taken device.ranks=3 server.mode=async server.every=20 log.hash_every=0 eval.every=0 checkpoint.every=0 \
        run.faults=drag@1x1000000
    took=$((($(date +%s%N) - began) / 1000000))
    sed -n 's/^{"t":"step",.*"ms":\([0-9.]*\),"tok.*/\1/p' runs/taken/log.jsonl |
        awk -v took=$took '{ all += $1; n++ } END { exit !(n == 20 && all > 600 && all < took) }' ||
        fail "the steps of a run of $took ms take $(sed -n 's/^{"t":"step",.*"ms":\([0-9.]*\),"tok.*/\1/p' runs/taken/log.jsonl | tr '\n' ' ')"
    # and was finished so long after the one before, though all are said when the period is over
    sed -n 's/^{"t":"step",.*"ms":\([0-9.]*\),"tok.*"time":\([0-9.]*\),.*/\1 \2/p' runs/taken/log.jsonl >times
    awk 'NR > 1 { off = 1000 * ($2 - last) - $1; n += off ^ 2 < 4 } { last = $2 } END { exit n < 19 }' times ||
        fail "milliseconds, and when the steps were finished: $(tr '\n' ';' <times)"
}

# A record that says what no clock has to: in the last step of a period a gradient comes too late before the step is
# closed, and two more after it.
late_in_the_last_step() {
    mkdir -p runs/lasts
    {
        printf 'lockstep served 1\nserver 0 of 1, workers 4, mode hybrid\nperiod 1 2\n'
        for w in 0 1 2 3; do printf 'next %d %d\npull %d %d\n' $w $w $w $w; done
        printf 'push 0 0\nclose 1 0\nnext 0 4\npull 0 4\ndrop 1 1\npush 0 4\nclose 2 0\ndrop 2 2\ndrop 3 3\nend 1 2\n'
    } >runs/lasts/served-0.log
    # where none is written, samples may be due at any step
    served last device.ranks=5 server.mode=hybrid server.every=2 run.steps=2 schedule.warmup=0 eval.every=0 \
        sample.every=3 checkpoint.every=0 log.hash_every=0 server.record=yes server.replay=runs/lasts
    counts_are_those_of_its_record last 4
    grep -q '"step":2,.*"late":3,' runs/last/log.jsonl || fail "not three gradients came too late: $(cat runs/last/log.jsonl)"
    says "2 gradients applied, 3 too late"
}

# bound_holds RECORD WORKERS STALENESS: each pull for a step comes after all pushes of the steps before step - staleness.
bound_holds() {
    awk -v n="$2" -v s="$3" '
        $1 == "push" { done[int($3 / n) + 1]++ }
        $1 == "pull" { pulls++; for (k = 1; k < int($3 / n) + 1 - s; k++) if (done[k] < n) { print NR ": " $0; bad = 1; exit } }
        END { exit bad || !pulls }' "$1" >early
}

# counts_are_those_of_its_record RUN WORKERS: what the log says of each step, and the event of the whole run, follows from
# the record's lines.
counts_are_those_of_its_record() {
    awk -v n="$2" '
        function counts(w, k, missed) {
            missed = updates - version[w]
            sum += missed
            for (k = 0; missed >= 2 ^ k; k++);
            class[k]++
            pushes++
        }
        function ends() { steps++; stale[steps] = sum / (pushes - before); sum = 0; before = pushes }
        $1 == "period" { updates = 0 }
        $1 == "pull" { version[$2] = updates }
        $1 == "push" && !hybrid { counts($2); updates++; if (pushes % n == 0) ends() }
        $1 == "push" && hybrid { held[$2] = 1 }
        $1 == "drop" { late[steps + 1]++ }
        $1 == "close" { for (w in held) counts(w); split("", held); updates++; ends() }
        $1 == "end" { late[steps] += late[steps + 1]; late[steps + 1] = 0 }
        /mode hybrid$/ { hybrid = 1 }
        END {
            for (k = 1; k <= steps; k++) { printf "%d %.3f %d\n", k, stale[k], late[k]; all += late[k] }
            print pushes " applied, " all + 0 " too late"
            for (k = 0; k < 16; k++)
                if (class[k]) printf "%s in %.1f %%\n", k < 2 ? k : 2 ^ (k - 1) " to " 2 ^ k - 1, 100 * class[k] / pushes
        }' "runs/$1/served-0.log" >want
    sed -n 's/.*"step":\([0-9]*\),.*"stale":\([^,]*\),"late":\([0-9]*\),.*/\1 \2 \3/p' "runs/$1/log.jsonl" |
        awk '{ printf "%d %.3f %d\n", $1, $2, $3 }' >found
    sed -n 's/.*"kind":"served".*"\([0-9]* gradients.*\); updates since.*/\1/p' "runs/$1/events.jsonl" |
        awk '{ print $1 " applied, " $4 + 0 " too late" }' >>found
    sed -n 's/.*"kind":"served".*weights were read: \([^"]*\)".*/\1/p' "runs/$1/events.jsonl" | sed 's/, /\n/g' >>found
    same want found "runs/$1/log.jsonl and events.jsonl, and what its record says,"
}

# BatchNorm: running statistics are rows of servers. Muon: whole matrices are.
other_models_repeat() {
    repeats muon device.ranks=4 server.count=2 server.mode=async optimizer.type=muon "optimizer.groups=wpe*:lr=0.5"
    image_run
    images data/all 0 700
    sed -i -e 's/^type = mlp/type = resnet20/' -e '/^inputs = /d' -e 's/^hidden = .*/units = 1 1/' \
        -e 's/^classes = 5/classes = 12\nwidth = 6\nimage = 16/' -e 's/^holdout = .*/holdout = 11/' \
        -e 's/^global = .*/global = 8/' -e 's/^micro = .*/micro = 2/' \
        -e "s,^train = .*,train = $top/test/golden/resnet-basic-images.idx $top/test/golden/resnet-basic-labels.idx," base.ini
    short="server.count=1 parallel.zero=1 server.mode=async server.every=2 run.steps=6 schedule.decay_steps=6
        checkpoint.every=0 eval.every=2 log.hash_every=2 device.ranks=3"
    settings convolutions $short server.record=yes
    expect 0 train convolutions
    settings again $short server.replay=runs/convolutions
    expect 0 train again
    same_end runs/convolutions runs/again
}

# Embeddings of clicks.
clicks_repeat() {
    mkdir clicks && cd clicks || fail "no directory"
    ini >base.ini <<END
run steps=6 dir=runs
device backend=cpu threads=1
model type=dlrm rows=5 embed=4 bottom=6 top=8
data train=data/c-train-*.bin val=data/c-val-*.bin
pack clicks=criteo input=$top/test/golden/dlrm.tsv output=data/c val_fraction=0.2
batch global=12 micro=3 lanes=4
checkpoint every=0
eval every=2
log every=1 hash_every=2
END
    expect 0 "$bin" pack base.ini
    clicks="device.ranks=4 server.count=2 parallel.zero=1 server.mode=async server.every=2"
    settings clicks $clicks server.record=yes
    expect 0 train clicks
    settings clicks-again $clicks server.replay=runs/clicks
    expect 0 train clicks-again
    like runs/clicks runs/clicks-again
}

# --- what differs from sync -------------------------------------------------------------------------------------------

# tickets RECORD WORKER: how many shares it ran.
tickets() { grep -c "^push $2 " "$1"; }

# In async it runs fewer shares. `bounded` lets others be ahead of it by so much only.
a_slow_worker_does_less() {
    slow="device.ranks=5 batch.lanes=4 run.faults=drag@1x1000000,quarter@1x1000000:1 server.record=yes"
    served drags $slow server.mode=async
    says "80 gradients applied"
    [ $((2 * $(tickets runs/drags/served-0.log 1))) -lt "$(tickets runs/drags/served-0.log 0)" ] ||
        fail "worker 1 ran $(tickets runs/drags/served-0.log 1) shares, worker 0 $(tickets runs/drags/served-0.log 0)"
    grep -q '"kind":"served".*80 gradients applied; updates since their weights were read: ' runs/drags/events.jsonl ||
        fail "no event says how stale gradients were"
    counts_are_those_of_its_record drags 4
    [ "$(grep -c '"stale":[0-9.]*,"late":0,"waiting":[0-9.]*[,}]' runs/drags/log.jsonl)" -eq 20 ] ||
        fail "not each step says how stale its gradients were"
}

# The timeout of hybrid counts from a step's first gradient, not from its begin. Worker 0 takes 160 ms and worker 1
# twice as long: that is within 240 ms of the first gradient, and not within 240 ms of the begin. Each step is a period,
# so both begin it together.
timeouts_count_from_the_first() {
    served counted device.ranks=3 batch.global=32 batch.lanes=2 run.steps=6 eval.every=0 checkpoint.every=0 \
        server.mode=hybrid server.every=1 server.timeout=0.24 server.record=yes \
        "run.faults=drag@1x1000000,twice@1x1000000:1"
    grep -q '^push 1 ' runs/counted/served-0.log ||
        fail "worker 1 came too late in $(grep -c '^drop 1 ' runs/counted/served-0.log) of 6 steps"
}

# Two servers have a part of a gradient each, and its norm is that of both parts: alone, a worker has that of sync.
norms_are_of_all_servers() {
    alone="device.ranks=3 server.count=2 batch.lanes=1 optimizer.grad_clip=0.5"
    for mode in sync async; do
        served "norm-$mode" $alone server.mode=$mode
        sed -n 's/.*"t":"step".*"grad_norm":\([^,]*\),.*/\1/p' "runs/norm-$mode/log.jsonl" >"$mode.norm"
    done
    paste sync.norm async.norm |
        awk '{ off = $1 / $2 - 1; n += $1 > 0.5 && off ^ 2 < 1e-8 } END { exit n != 20 }' ||
        fail "norms of 20 steps, of sync and of async: $(paste sync.norm async.norm | tr '\t\n' '/ ')"
}

# Of a text of one letter all shares of a step have the same gradient, and with a rate of 0 in all steps: so the mean of
# their norms is the norm of their mean, in every mode.
norms_are_means_of_shares() {
    head -c 20000 /dev/zero | tr '\0' a >letters.txt
    settings pack pack.input=letters.txt pack.output=data/letters
    expect 0 "$bin" pack base.ini pack.ini
    still="device.ranks=5 batch.lanes=4 optimizer.lr=0 eval.every=0 checkpoint.every=0 data.train=data/letters-train-*.bin"
    for mode in sync async hybrid; do
        served "letters-$mode" $still server.mode=$mode server.timeout=60
        sed -n 's/.*"t":"step".*"loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*/\1 \2/p' "runs/letters-$mode/log.jsonl"
    done | awk '{ n++; loss = NR == 1 ? $1 : loss; norm = NR == 1 ? $2 : norm }
                ($1 / loss - 1) ^ 2 > 1e-10 || ($2 / norm - 1) ^ 2 > 1e-10 || $2 < 0.1 { print NR ": " $0; bad = 1 }
                END { exit bad || n != 60 }' >found || fail "not all of 60 losses and norms are as the first one: $(cat found)"
    # each is clipped by itself before they are added: here that is the mean, clipped
    for mode in sync hybrid; do
        served "clipped-$mode" $still server.mode=$mode server.timeout=60 optimizer.type=sgd optimizer.lr=0.025 \
            optimizer.grad_clip=2
        sed -n 's/.*"t":"step".*"loss":\([^,]*\),.*/\1/p' "runs/clipped-$mode/log.jsonl" >"$mode.loss"
    done
    paste sync.loss hybrid.loss | awk '{ n += ($1 / $2 - 1) ^ 2 < 1e-8 } NR == 1 { first = $1 } { last = $1 }
        END { exit !(n == 20 && last < 0.9 * first) }' ||
        fail "losses of sync and of hybrid, clipped: $(paste sync.loss hybrid.loss | tr '\t\n' '/ ')"
}

# With a rate of 0 the weights stay, so each share of a step has the same loss on every worker.
losses_are_of_the_shares() {
    still="device.ranks=5 batch.lanes=4 optimizer.lr=0"
    served still-sync $still
    served still $still server.mode=async server.record=yes run.faults=drag@1x1000000,quarter@1x1000000:1
    awk '$1 == "push" && $3 % 4 != $2 { moved++ } END { exit moved < 10 }' runs/still/served-0.log ||
        fail "hardly a worker ran another share than its own"
    for run in still-sync still; do
        sed -n 's/.*"t":"step".*"loss":\([0-9.]*\),.*/\1/p' runs/$run/log.jsonl |
            awk '{ n++; sum += $1 } END { printf "%d %.4f\n", n, sum / n }' >$run.loss
    done
    same still-sync.loss still.loss "the mean losses of runs/still-sync and runs/still"
}

# A gradient that comes when others are a step ahead counts at the rate of its own step. Here the second step's is 0, so
# the weights after it are those that the first step's gradients alone make.
rates_are_of_the_tickets() {
    first="device.ranks=5 batch.lanes=4 server.mode=async log.hash_every=0 eval.every=0 checkpoint.every=0 optimizer.type=sgd
        optimizer.momentum=0 schedule.type=linear schedule.warmup=0 schedule.decay_steps=2 schedule.final_fraction=0"
    served rates $first server.every=2 run.steps=2 server.record=yes run.faults=drag@1x1000000:1
    awk '$1 == "push" && $3 < 4 && ahead { found = 1 } $1 == "push" && $3 >= 4 { ahead = 1 } END { exit !found }' \
        runs/rates/served-0.log || fail "no gradient of the first step came after one of the second"
    mkdir -p runs/first
    awk '$1 == "period" || $1 == "end" { $3 = 1 } /^(next|pull|push)/ && $3 >= 4 { next } { print }' \
        runs/rates/served-0.log >runs/first/served-0.log
    served first-alone $first server.every=1 run.steps=1 server.replay=runs/first
    hashes runs/rates | cut -d ' ' -f 1,2 >rates.hash
    hashes runs/first-alone | cut -d ' ' -f 1,2 >first.hash
    same first.hash rates.hash "the weights after the first step and after both"
}

# A rank whose reads are slow waits for most of each period, and not longer than it takes. Each of its steps has its
# part of that.
waits_are_of_the_period() {
    served waits device.ranks=3 server.mode=async run.steps=10 run.faults=slow@1x1000000:0
    sed -n 's/.*"t":"step".*"ms":\([0-9.]*\),.*"data_wait_ms":\([0-9.]*\),.*/\1 \2/p' runs/waits/log.jsonl >waits
    awk '{ n++; all += $1; waited += $2 } END { exit !(n == 10 && waited > 0.4 * all && waited < 1.2 * all) }' waits ||
        fail "milliseconds, and those that rank 0 waited for data: $(tr '\n' ',' <waits)"
}

# Energy is that of the steps since the last reading, so it is read where ranks meet, and said of no other steps: of
# every 4 steps, in periods of 10, after each of these, and of every 15 after the second. Counters that stand still say 0.
energy_is_of_whole_periods() {
    [ "$(id -u)" -eq 0 ] || skip "needs root, to put counters into /sys/class/powercap"
    unshare -m true 2>/dev/null && unshare -m mount -t tmpfs tmpfs /sys/class 2>/dev/null ||
        skip "can't mount over /sys/class here"
    cat >counted.sh <<'END'
mount -t tmpfs tmpfs /sys/class || exit 1
mkdir -p /sys/class/powercap/intel-rapl:0 && cd /sys/class/powercap/intel-rapl:0 || exit 1
echo package-0 >name
echo 65532610987 >max_energy_range_uj
echo 12345678 >energy_uj
cd "$1" && exec "$2" base.ini "$3"
END
    for every in 4 15; do
        set_up energy-$every $small device.ranks=3 server.mode=async server.every=10 log.hash_every=0 eval.every=0 \
            checkpoint.every=0 log.power_every=$every
        expect 0 timeout 120 unshare -m sh counted.sh "$PWD" "$bin" energy-$every.ini
        sed -n 's/^{"t":"power","step":\([0-9]*\),"watts":\([^,]*\),.*/\1 \2/p' runs/energy-$every/log.jsonl
    done >found
    [ "$(tr '\n' ';' <found)" = "10 0;20 0;20 0;" ] || fail "steps with a reading, and watts: $(tr '\n' ';' <found)"
}

# A gradient that is not finite is left out by all servers, also by those whose part is finite.
what_is_not_finite_is_left_out() {
    for mode in async hybrid; do
        [ $mode = async ] && all=40 || all=20
        served nan-$mode device.ranks=4 server.count=2 server.mode=$mode server.timeout=20 run.faults=nan@3:3
        [ "$(updates nan-$mode)" -eq $((all - 1)) ] || fail "$mode: $(updates nan-$mode) updates"
        [ "$(grep -c '"skipped":true' runs/nan-$mode/log.jsonl)" -eq 1 ] || fail "$mode: not one step lacks a gradient"
        grep '"step":20,' runs/nan-$mode/log.jsonl | grep -q '"loss":[0-9]' || fail "$mode: no loss in the end"
    done
}

# A server sends all that it keeps to each worker, and plan counts it.
plan_counts_it() {
    set_up planned $small device.ranks=5 server.mode=async
    expect 0 "$bin" plan base.ini planned.ini
    awk '$1 == "masters" { most = $3 }
        /^traffic/ { on = 1 } on && $1 == "sent" { sent = $5; on = 0 } END { exit sent != 4 * most }' "$out" ||
        fail "a server with 4 workers does not send its weights to each"
    # two of three servers are on the other machine, and so is about two thirds of what the worker sends and reads
    set_up planned $small model.embed=128 model.layers=4 device.ranks=0 cluster.nodes=10.0.0.1:2,10.0.0.2:2 \
        server.count=3 server.mode=async
    expect 0 "$bin" plan base.ini planned.ini
    awk '/^traffic/ { on = 1 } on && /by all/ { part = $6 / $3; exit } END { exit !(part > 0.6 && part < 0.7) }' "$out" ||
        fail "not two thirds of what a worker sends and reads are between nodes: $(grep 'by all' "$out")"
}

# Weights travel as they are computed with: in 16 bits a server sends half as much, and less than a worker sends gradients.
pulls_are_planned() {
    for type in fp32 bf16; do
        set_up pulls $small device.ranks=3 server.mode=async model.embed=64 precision.compute=$type
        expect 0 "$bin" plan base.ini pulls.ini
        awk '/sent by a rank/ { print $5; exit }' "$out"
    done >sent
    [ "$(wc -l <sent)" -eq 2 ] || fail "expected two plans: $(cat sent)"
    awk 'NR == 1 { all = $1 } END { exit !($1 < 0.8 * all) }' sent ||
        fail "the busiest rank sends $(tr '\n' ' ' <sent)bytes in FP32 and in BF16"
}

# Who evaluates, writes or times such a run is one rank, or ranks that wait for all.
others_need_no_servers() {
    served beside-none device.ranks=4 server.count=2 server.mode=async
    last=$(sed -n 's/.*"t":"eval","step":20,"loss":\([^,]*\),.*/\1/p' runs/beside-none/log.jsonl)
    for ranks in 4 1; do
        set_up beside-none $small server.mode=async server.count=$((ranks / 2)) device.ranks=$ranks
        [ $ranks -eq 4 ] || set_up beside-none $small server.count=0 device.ranks=1
        expect 0 "$bin" eval base.ini beside-none.ini
        awk -v want="$last" '$1 == "step" { n += ($4 - want) ^ 2 < 1e-8 } END { exit n != 1 }' "$out" ||
            fail "the run's loss was $last"
        expect 0 "$bin" sample base.ini beside-none.ini --prompt a -o sample.tokens=4
        expect 0 "$bin" bench base.ini beside-none.ini --steps 2
    done
}

# --- stopped, and lost ------------------------------------------------------------------------------------------------

# The server is killed in the middle of a period; the same command goes on from the period before, and so does the record.
killed_and_repeated() {
    set_up killed $small device.ranks=5 server.mode=async server.record=yes run.steps=40 run.faults=update@1200:4
    expect 69 train killed
    grep -q '^period 11 15' runs/killed/served-0.log || fail "it was killed too early"
    [ ! -d runs/killed/ckpt/step-00000020 ] || fail "it was killed too late"
    doing='in (ask for a share|share|pull weights|reduce gradients) [0-9]+ of step 1[0-9]'
    grep -Eq "$doing: rank 4 \(localhost, server\) is lost" runs/killed/events.jsonl ||
        fail "what a worker did meanwhile: $(grep lost runs/killed/events.jsonl)"
    sed -i '/^faults/d' killed.ini
    expect 0 train killed
    for each in 1 6 11 16 21; do
        [ "$(grep -c "^period $each " runs/killed/served-0.log)" -eq 1 ] || fail "period $each is not there once"
    done
    # so does a run that repeats the record
    set_up killed-again $small device.ranks=5 server.mode=async run.steps=40 server.replay=runs/killed run.faults=update@1200:4
    expect 69 train killed-again
    [ -d runs/killed-again/ckpt/step-00000010 ] || fail "the one that repeats was killed too early"
    sed -i '/^faults/d' killed-again.ini
    expect 0 train killed-again
    like runs/killed runs/killed-again
}

# Servers and workers are killed again and again. What a period had done by then is done once more, from what all held
# before it: each share counts once.
heals() {
    set_up healed $long device.ranks=6 server.count=2 server.mode=$1 log.hash_every=0 snapshot.every=5 \
        cluster.elastic=yes cluster.heartbeat=0.2
    sed -i 's/^steps = .*/steps = 1000000/' healed.ini
    start "$bin" base.ini healed.ini
    for k in $(seq "$2"); do
        until_step runs/healed $((20 * k))
        victim=$(pgrep -P "$pid" lockstep | sed -n "$((k * 5 % 6 + 1))p")
        [ -n "$victim" ] && kill -9 "$victim"
        until_true 30 world_is $((k + 1))
    done
    kill -TERM "$pid"
    comes_to 75
    at=$(newest_name runs/healed | sed 's/^step-0*//')
    [ "$(updates healed)" -eq $((4 * at)) ] || fail "after step $at there were $(updates healed) updates"
    rm -rf runs/healed
}
world_is() { [ "$(grep -c '"kind":"healed"' runs/healed/events.jsonl)" -ge $(($1 - 1)) ]; }
killed_ranks_count_once() { heals async "${KILLS:-6}"; }
killed_ranks_wait_for_none() { heals bounded 3; }

# A run that was asked to stop goes on with other servers.
stopped_and_moved() {
    set_up moved $long device.ranks=5 server.mode=bounded log.hash_every=0 log.watch=yes
    start "$bin" base.ini moved.ini
    until_step runs/moved 20
    until_true 20 grep -qs '"stale":[0-9][0-9.]*,"late":0,"waiting":' runs/moved/status.json
    kill -TERM "$pid"
    comes_to 75
    says "asked to stop; saved step" "gradients applied"
    at=$(newest_name runs/moved)
    at=$(echo "$at" | sed 's/^step-0*//')
    [ $((at % 5)) -eq 0 ] || fail "step $at is in the middle of a period"
    set_up moved $long device.ranks=4 server.count=2 server.mode=bounded log.hash_every=0 \
        run.steps=$((at + 10))
    expect 0 train moved
}

# A fork may begin in the middle of a period, whose first one is shorter then: all meet after the same steps as ever.
forked_between_meetings() {
    set_up odd $small device.ranks=4 server.mode=sync server.count=0 run.steps=7 eval.every=0 log.hash_every=0
    expect 0 train odd
    set_up even $small device.ranks=5 server.mode=async server.record=yes
    expect 0 "$bin" fork runs/odd@7 even base.ini even.ini
    expect 0 train even
    [ "$(grep '^period' runs/even/served-0.log | tr '\n' ';')" = "period 8 10;period 11 15;period 16 20;" ] ||
        fail "periods: $(grep '^period' runs/even/served-0.log | tr '\n' ';')"
    [ "$(newest_name runs/even)" = step-00000020 ] || fail "the last step is not saved"
}

# late RUN: how many gradients came too late, by its log.
late() { sed -n 's/.*"late":\([0-9]*\),.*/\1/p' "runs/$1/log.jsonl" | awk '{ n += $1 } END { print n + 0 }'; }

damaged_data_ends_it() {
    settings pack pack.shard_tokens=2000 pack.output=data/many
    expect 0 "$bin" pack base.ini pack.ini
    cp data/many-train-00007.bin good
    flip data/many-train-00007.bin $(($(size good) - 100))
    set_up shard $long device.ranks=3 server.mode=async data.train="data/many-train-*.bin" checkpoint.every=5 \
        run.steps=40 server.record=yes log.hash_every=0
    expect 65 train shard
    says "data/many-train-00007.bin" "offset"
    tail -n 1 runs/shard/served-0.log | grep -qv '^end' || fail "the record ends a period that did not end"
    cp good data/many-train-00007.bin
    expect 0 train shard
    # the gradients of others that a step waits with are of no use then
    set_up unread $long device.ranks=4 server.count=2 batch.lanes=2 server.mode=hybrid server.timeout=60 run.steps=20 \
        data.retry=0 checkpoint.every=5 run.faults=drag@1x1000000:1,read@9x1000:1
    expect 74 train unread
    says "Input/output error"
    # nor are the weights of a period that did not end: nothing is saved of it
    set_up unsaved $long device.ranks=3 server.mode=async server.every=1 checkpoint.every=0 run.steps=20 \
        log.hash_every=0 data.retry=0 run.faults=read@40x1000:1
    expect 74 train unsaved
    says "Input/output error"
    [ "$(last_step runs/unsaved)" -ge 1 ] || fail "the first period did not end"
    [ ! -e "$(newest runs/unsaved)/manifest.json" ] || fail "$(newest runs/unsaved) is of a period that did not end"
}

# --- records that do not fit ------------------------------------------------------------------------------------------

another_run_is_refused() {
    served known device.ranks=3 server.mode=async server.record=yes
    set_up other $small device.ranks=5 server.mode=async server.replay=runs/known
    expect 65 train other
    says "runs/known/served-0.log: it is of another run: expected \`server 0 of 1, workers 4, mode async\`, found \`server 0 of 1, workers 2, mode async\`"
    set_up longer $small device.ranks=3 server.mode=async server.replay=runs/known run.steps=30
    expect 65 train longer
    says "runs/known/served-0.log: it ends after line $(wc -l <runs/known/served-0.log), and this run goes on with \`period 21 25\`"
    set_up missing $small device.ranks=3 server.mode=async server.replay=runs/nowhere
    expect 74 train missing
    says "runs/nowhere/served-0.log: No such file or directory"
    mkdir -p runs/torn
    sed 's/^pull 1 \(.*\)/pull 1 9\1/' runs/known/served-0.log >runs/torn/served-0.log
    set_up torn-run $small device.ranks=3 server.mode=async server.replay=runs/torn
    expect 65 train torn-run
    says "runs/torn/served-0.log:" "and this run comes to \`pull 1 "
}

# The server is on a node of its own.
near_a_server_of_its_own() {
    near 2 1
    together apart $small server.mode=async server.record=yes
    boot apart
    ended 0
    on 0 "servers rank 2 keeps the optimizer's state and runs no lanes"
    [ -s node1/runs/apart/served-0.log ] || fail "node 1 has no record"
    together again $small server.mode=async server.replay=runs/apart
    boot again
    ended 0
    union apart && union again
    same_end union/apart union/again
    nothing_left
}

# The node of the server alone is asked to stop: all do, after the period.
stopped_at_its_server() {
    near 2 1
    together asked $(once $long log.hash_every=0 server.mode=async)
    boot asked
    until_step node0/runs/asked 10
    kill -TERM "$(supervisor 1)"
    until_true 20 grep -q "asked to stop; saved step" node0/out
    ended 75
    nothing_left
}

# The last of three machines is the server. It is lost; the second one serves then, and the first works alone, until the
# third comes again. Of each step there are as many updates as there were workers.
a_server_machine_comes_again() {
    usual=$long
    . "$top/test/support/healing.sh"
    near 1 1 1
    together back $(once $usual log.hash_every=0 checkpoint.every=0 snapshot.every=5 server.mode=async $elastic)
    boot back
    run=back
    after 0 70
    kill -9 "$(supervisor 2)"
    until_true 20 has_event 0 healed "world 2 of this run"
    again 2
    until_true 60 has_event 0 healed "joining: node 2"
    after 0 $(($(last_step node0/runs/back) + 50))
    kill -TERM "$(supervisor 0)" "$(supervisor 1)" "$(supervisor 2)"
    ended 75
    sed -n 's/.*"kind":"healed".*continuing after step \([0-9]*\) .*/\1/p' node0/runs/back/events.jsonl >worlds
    [ "$(wc -l <worlds)" -eq 2 ] || fail "expected two losses and joins: $(cat worlds)"
    at=$(newest_name node0/runs/back | sed 's/^step-0*//')
    want=$(awk -v at="$at" 'NR == 1 { n = 2 * $1; a = $1 } NR == 2 { n += $1 - a; a = $1 } END { print n + 2 * (at - a) }' worlds)
    found=$(sed -n 's/.*"adam_t": *\([0-9]*\).*/\1/p' "$(newest node0/runs/back)/manifest.json")
    [ "$found" -eq "$want" ] || fail "after step $at there were $found updates, expected $want"
}

try one_worker_is_sync
try hybrid_that_waits_is_sync
try no_staleness_is_sync
try async_repeats
try bounded_repeats
try hybrid_repeats
try late_in_the_last_step
try a_slow_worker_does_less
try losses_are_of_the_shares
try rates_are_of_the_tickets
try timeouts_count_from_the_first
try norms_are_of_all_servers
try norms_are_means_of_shares
try times_are_those_of_a_step
try steps_take_their_own_time
try waits_are_of_the_period
try energy_is_of_whole_periods
try what_is_not_finite_is_left_out
try plan_counts_it
try pulls_are_planned
try others_need_no_servers
try clicks_repeat
try killed_and_repeated
try killed_ranks_count_once
try killed_ranks_wait_for_none
try stopped_and_moved
try forked_between_meetings
try damaged_data_ends_it
try another_run_is_refused
try near_a_server_of_its_own
try stopped_at_its_server
[ "${MATRIX:-some}" = some ] || try a_server_machine_comes_again
try other_models_repeat
finish
