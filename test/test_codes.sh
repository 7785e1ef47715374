#!/bin/sh
# test/test_codes.sh: [reduce] compress from the outside: lanes that travel in few bits. Whatever the layout, a run has
# the bits of one rank; it is killed, stopped and continued elsewhere; and what it can't do it says.
. test/support/runs.sh
. "$top/test/support/chaos.sh"
codes="reduce.compress=int8 reduce.compress_back=int8"
small="device.threads=1 log.watch=no checkpoint.keep_best=no batch.micro=1 batch.lanes=4
    model.type=llama model.tied=no model.kv_heads=2 model.hidden=80 model.vocab=259 model.embed=64 parallel.slices=2"
few="$small $codes run.steps=16 checkpoint.every=0"

# Layouts that no world of test_ranks has. The vocabulary's tensors have two chunks.
layouts() {
    settings one $few
    expect 0 train one
    while read -r run more; do
        settings "$run" $few $more
        expect 0 train "$run"
        same_steps one "$run"
        same_state one "$run"
    done <<'RUNS'
tensor device.ranks=4 parallel.tensor=2 parallel.zero=2
tensor0 device.ranks=4 parallel.tensor=2 parallel.sequence=yes
pipe device.ranks=4 parallel.pipeline=2 parallel.schedule=zb-h1 parallel.zero=1
pipes device.ranks=4 parallel.pipeline=2 parallel.tensor=2 parallel.recompute=block
whole device.ranks=2 parallel.zero=3 parallel.recompute=selective parallel.offload=yes
RUNS
}

# Losses are those of a run without codes but for what is under way, which is most at the beginning.
near_the_plain_run() {
    settings plain $small run.steps=16 checkpoint.every=0
    expect 0 train plain
    for run in one plain; do sed -n 's/^{"t":"step",.*"loss":\([0-9.]*\),.*/\1/p' "runs/$run/log.jsonl" >"$run.loss"; done
    paste one.loss plain.loss >both
    awk '{ if (($1 - $2) ^ 2 > (0.02 * $2) ^ 2) wrong = 1; if ($1 != $2) other = 1 }
        END { exit NR != 16 || wrong || !other }' both || fail "losses with codes, and without: $(cat both)"
}

# The run goes on from snapshots in memory, which hold the residual of each lane. Live state does not, so it is not used.
killed() {
    long="$small $codes run.steps=400 checkpoint.every=100 eval.every=200 snapshot.every=4"
    settings whole $long
    expect 0 train whole
    for zero in 0 3; do
        settings killed$zero $long device.ranks=4 parallel.zero=$zero snapshot.live=yes cluster.elastic=yes cluster.heartbeat=0.2
        chaos killed$zero 6
        same_steps whole killed$zero
        same_state whole killed$zero
        event killed$zero lost "is lost"
    done
}
continued() {
    settings stopped $small $codes run.steps=16 checkpoint.every=7 device.ranks=4 run.faults=unit@40:1
    expect 69 train stopped
    settings stopped $small $codes run.steps=16 checkpoint.every=7 device.ranks=2 parallel.zero=1 run.resume=must \
        checkpoint.async=yes checkpoint.compress=zstd
    expect 0 train stopped
    same_steps one stopped
    same_state one stopped
}

# Rows that ranks of a layer don't divide, as GPT's positions, are read by the first of them, which gives to the others
# what was left out, and with topk its momentum.
undivided() {
    some="device.threads=1 log.watch=no checkpoint.keep_best=no batch.micro=1 batch.lanes=4 parallel.slices=2
        run.steps=16 checkpoint.every=7"
    while read -r kind with; do
        settings alone-$kind $some $with
        expect 0 train alone-$kind
        settings shared-$kind $some $with device.ranks=2 parallel.tensor=2 run.faults=unit@160:1
        expect 69 train shared-$kind
        settings shared-$kind $some $with device.ranks=2 parallel.tensor=2 run.resume=must
        expect 0 train shared-$kind
        same_steps alone-$kind shared-$kind
        same_state alone-$kind shared-$kind
    done <<KINDS
codes $codes
topk reduce.compress=topk optimizer.type=sgd optimizer.lr=0.02 optimizer.momentum=0.9 optimizer.grad_clip=0
KINDS
}

# Two lanes, or four, are added by the rank that runs them, and coded as one. Micro-batches of one sample: a lane of two
# adds to its buffer twice, so siblings have buffers of their own.
spans() {
    for span in 2 4; do
        wide="$(echo $small | sed "s,lanes=4,lanes=8 batch.global=16,") $codes reduce.compress_span=$span run.steps=10 checkpoint.every=0"
        settings spans$span $wide
        expect 0 train spans$span
        while read -r run most more; do
            [ $span -le "$most" ] || continue
            settings "$run-$span" $wide $more
            expect 0 train "$run-$span"
            same_steps spans$span "$run-$span"
            same_state spans$span "$run-$span"
        done <<'RUNS'
two 4 device.ranks=2
three 2 device.ranks=3 reduce.bucket_mb=0.1
four 2 device.ranks=4 parallel.zero=2
thirds 2 device.ranks=3 parallel.zero=3 parallel.offload=yes
given 4 device.ranks=2 parallel.zero=1 parallel.deal=8,0
dealt 2 device.ranks=3 parallel.deal=2,4,2
pipe 4 device.ranks=4 parallel.pipeline=2 parallel.schedule=zb-h1
loop 2 device.ranks=4 parallel.pipeline=2 parallel.schedule=interleaved parallel.chunks=2 parallel.zero=1
tensor 4 device.ranks=4 parallel.tensor=2 parallel.zero=2
served 2 device.ranks=4 server.count=1 parallel.zero=1
RUNS
    done
    ! steps spans2 | tail -1 | cut -d ' ' -f 3 | grep -qx "$(steps spans4 | tail -1 | cut -d ' ' -f 3)" ||
        fail "spans of 2 and of 4 have the same bits"
    expect 0 "$bin" plan base.ini two-4.ini
    says "codes   int8 to owners, int8 back, 4 lanes at once: a rank sends "
    settings many $wide device.ranks=3
    expect 78 "$bin" check base.ini many.ini
    says "3 ranks that share the lanes (3 ranks, [device] ranks) are more than the 2 spans of compress_span = 4 lanes"
}

# Two lanes that are coded as one are a lane of two micro-batches: (0 + a) + b has the bits of (0 + a) + (0 + b). With
# topk also their momentum, and what is clipped.
span_is_a_lane() {
    one=$(echo "$small" | sed 's/batch.lanes=4//; s/batch.micro=1/batch.micro=4/')
    sgd="optimizer.type=sgd optimizer.momentum=0.9 optimizer.lr=0.02 optimizer.grad_clip=0.5 reduce.compress=topk"
    for how in "$codes" "$sgd"; do
        rm -rf runs/joined runs/single runs/coded
        settings single $one $how batch.lanes=1 run.steps=10 checkpoint.every=0
        settings joined $one $how batch.lanes=2 reduce.compress_span=2 run.steps=10 checkpoint.every=0
        settings coded $one $how batch.lanes=2 run.steps=10 checkpoint.every=0
        for run in single joined coded; do expect 0 train $run; done
        same_steps single joined
        same_state single joined
        ! cmp -s runs/single/log.jsonl runs/coded/log.jsonl || fail "lanes that are coded by themselves are the same"
    done
}

# Lanes send their largest elements alone: 1 in 100 of a chunk, rounded up: 164 of 16,384. All lanes go to all ranks in
# stage 0, to owners in others.
topk="$small optimizer.type=sgd optimizer.momentum=0.9 optimizer.lr=0.02 optimizer.grad_clip=0 reduce.compress=topk run.steps=12"
largest() {
    settings largest $topk checkpoint.every=0
    expect 0 train largest
    while read -r run more; do
        settings "$run" $topk checkpoint.every=0 $more
        expect 0 train "$run"
        same_steps largest "$run"
        same_state largest "$run"
    done <<'RUNS'
two0 device.ranks=2
three0 device.ranks=3
four0 device.ranks=4 reduce.bucket_mb=0.1
three1 device.ranks=3 parallel.zero=1
four2 device.ranks=4 parallel.zero=2
two3 device.ranks=2 parallel.zero=3 parallel.offload=yes
tensor2 device.ranks=4 parallel.tensor=2 parallel.zero=2
pipe1 device.ranks=4 parallel.pipeline=2 parallel.schedule=zb-h1
up reduce.density=0.010009765625
RUNS
}

# What was not sent, and the momentum of each lane, move with the lanes.
largest_continued() {
    settings moved $topk checkpoint.every=5 device.ranks=4 run.faults=unit@30:1
    expect 69 train moved
    settings moved $topk checkpoint.every=5 device.ranks=2 parallel.zero=1 run.resume=must
    expect 0 train moved
    same_steps largest moved
    same_state largest moved
}

# The first steps send more: two of them a quarter of each chunk, two a sixteenth, two a 64th.
warm="$topk checkpoint.every=5 reduce.density_warmup=6"
warmed_up() {
    settings warm $warm
    expect 0 train warm
    steps warm | tail -1 | cut -d ' ' -f 3 >warm.end
    ! steps largest | tail -1 | cut -d ' ' -f 3 | cmp -s - warm.end || fail "warming up changed nothing"
    settings quarter $topk checkpoint.every=5 reduce.density=0.25
    expect 0 train quarter
    steps quarter | head -2 >quarter.steps
    steps warm | head -2 >warm.steps
    same quarter.steps warm.steps "the first two steps"
    ! steps quarter | sed -n 3p | cut -d ' ' -f 3 | grep -qx "$(steps warm | sed -n 3p | cut -d ' ' -f 3)" ||
        fail "step 3 sends a quarter, too"
    while read -r run more; do
        settings "$run" $warm $more
        expect 0 train "$run"
        same_steps warm "$run"
        same_state warm "$run"
    done <<'RUNS'
warm4 device.ranks=4
warm3 device.ranks=3 parallel.zero=2
warmp device.ranks=4 parallel.pipeline=2 parallel.schedule=zb-h1
RUNS
    settings chilled $warm device.ranks=4 run.faults=unit@30:1
    expect 69 train chilled
    settings chilled $warm device.ranks=2 parallel.zero=1 run.resume=must
    expect 0 train chilled
    same_steps warm chilled
    same_state warm chilled
    expect 0 "$bin" plan base.ini warm4.ini
    says "codes   topk, 0.01 of each lane: a rank sends " "until step 6 more, first a quarter of each lane: "
    first=$(sed -n 's/^ *until step 6 more, first a quarter of each lane: //p' "$out")
    later=$(sed -n 's/^codes .*: a rank sends \(.*\) a step, without.*/\1/p' "$out")
    expect 0 "$bin" plan base.ini warm4.ini -o reduce.density_warmup=0
    says "codes   topk, 0.01 of each lane: a rank sends $later a step"
    expect 0 "$bin" plan base.ini warm4.ini -o reduce.density=0.25 -o reduce.density_warmup=0
    says "codes   topk, 0.25 of each lane: a rank sends $first a step"
}

# Two lanes of the same samples have half of a gradient each, and clipped to c / sqrt(2) they add up to one that is
# clipped to c * sqrt(2). So does a lane that is alone, to c. All is sent, so nothing is left to gather.
clipped() {
    all="$(printf %s "$small" | sed 's/batch.lanes=4//') optimizer.type=sgd optimizer.momentum=0 optimizer.lr=0.1
        run.steps=6 checkpoint.every=0 eval.every=0 data.train=data/again-train-*.bin data.val=data/again-val-*.bin"
    two="batch.lanes=2 batch.global=2" single="batch.lanes=1 batch.global=1"
    whole="reduce.compress=topk reduce.density=1 reduce.bucket_mb=0.01"
    awk 'BEGIN { for (i = 0; i < 2000; i++) printf "clipped " }' >again.txt
    settings again pack.input=again.txt pack.output=data/again
    expect 0 "$bin" pack base.ini again.ini
    settings halves $all $two $whole optimizer.grad_clip=0.5
    settings dense $all $two optimizer.grad_clip=0.70710678118654757
    settings alone1 $all $single $whole optimizer.grad_clip=0.5
    settings dense1 $all $single optimizer.grad_clip=0.5
    settings loose $all $two optimizer.grad_clip=0
    for run in halves dense alone1 dense1 loose; do
        expect 0 train "$run"
        steps "$run" | cut -d ' ' -f 3 >"$run.hashes"
    done
    same dense.hashes halves.hashes "two lanes, clipped each"
    same dense1.hashes alone1.hashes "one lane, clipped"
    ! cmp -s dense.hashes loose.hashes || fail "nothing was clipped"
}

# Lanes are clipped alike on any ranks, while the density falls, and after a kill.
clipped_elsewhere() {
    cut=$(printf %s "$warm" | sed 's/grad_clip=0/grad_clip=0.5/')
    settings cut $cut
    expect 0 train cut
    ! steps cut | tail -1 | cut -d ' ' -f 3 | cmp -s - warm.end || fail "clipping changed nothing"
    while read -r run more; do
        settings "$run" $cut $more
        expect 0 train "$run"
        same_steps cut "$run"
        same_state cut "$run"
    done <<'RUNS'
cut4 device.ranks=4 reduce.bucket_mb=0.01
cut3 device.ranks=3 parallel.zero=1
cutz device.ranks=4 parallel.zero=2
cutw device.ranks=2 parallel.zero=3
RUNS
    settings regrown $cut device.ranks=4 parallel.zero=2 run.faults=unit@30:1
    expect 69 train regrown
    settings regrown $cut device.ranks=2 run.resume=must
    expect 0 train regrown
    same_steps cut regrown
    same_state cut regrown
}

# Lanes that are dealt in turns give each of 3 ranks two micro-batches; without codes one would have too few for zb-v.
planned_alone() {
    some="$small $codes batch.global=4"
    settings uneven $some device.ranks=6 parallel.pipeline=2 \
        parallel.schedule=zb-v parallel.chunks=2 parallel.zero=1
    expect 0 "$bin" plan base.ini uneven.ini
    says "codes   int8 to owners" "without them there is no such layout"
    settings uneven $some device.ranks=4 parallel.pipeline=2 \
        parallel.schedule=zb-v parallel.chunks=2 parallel.zero=1
    expect 0 "$bin" plan base.ini uneven.ini
    says "a step, without them "
}

# Each names the keys, and what works.
refused() {
    while IFS='|' read -r more words; do
        expect 78 "$bin" base.ini one.ini $(for each in $more; do echo "-o $each"; done)
        says "$words"
    done <<'RUNS'
reduce.order=any|compress = int8 codes each lane by itself, and with order = any lanes are added before they are sent
parallel.token_slices=2|and token_slices = 2 cut a lane into parts that several ranks may have
parallel.balance=auto device.ranks=2|balance = auto would move lanes, and deal = a list of lanes does not
reduce.compress=none|compress_back codes the sums of lanes that were coded, and compress = none
reduce.compress=none reduce.compress_back=none reduce.compress_span=2|compress_span = 2 lanes are coded as one, and compress = none codes nothing
reduce.compress_span=3|compress_span = 3 is not a power of two
reduce.compress_span=8|compress_span = 8 is more than the lanes = 4 of a step
reduce.compress_span=2 device.ranks=3|3 ranks that share the lanes (3 ranks, [device] ranks) are more than the 2 spans of compress_span = 2 lanes
reduce.compress_span=2 device.ranks=2 parallel.deal=1,3|expected whole spans of compress_span = 2 lanes, which are coded as one
reduce.compress=powersgd|There are fp16, int8, int4 and topk.
reduce.compress=topk reduce.compress_back=none optimizer.type=adamw|compress = topk corrects the momentum of sgd
reduce.compress=topk optimizer.type=sgd|and compress = topk sends few elements of them
reduce.compress=topk reduce.compress_back=none optimizer.type=sgd optimizer.grad_clip=1 device.ranks=2 parallel.pipeline=2|it wants pipeline = 1 and tensor = 1, or grad_clip = 0
reduce.compress=topk reduce.compress_back=none optimizer.type=sgd optimizer.grad_clip=1 device.ranks=2 parallel.tensor=2|it wants pipeline = 1 and tensor = 1, or grad_clip = 0
reduce.compress=topk reduce.compress_back=none optimizer.type=sgd optimizer.grad_clip=1 model.tied=yes|it wants grad_clip = 0, or a head apart
reduce.compress=topk reduce.compress_back=none optimizer.type=sgd optimizer.grad_clip=0 precision.compute=fp16|and FP16 skips some
reduce.density_warmup=10|density_warmup = 10 are steps that send a quarter of a gradient and less, until compress = topk
reduce.compress=topk reduce.compress_back=none optimizer.type=sgd optimizer.grad_clip=0 reduce.density_warmup=10 reduce.density=0.3|it wants topk, and less than 0.25
model.tied=yes device.ranks=2 parallel.pipeline=2|of the embedding, which is the head too, two stages of a pipeline have a part each
RUNS
}

# A fork may not change what would not fit; with as many lanes it takes what was left out.
forked() {
    expect 78 "$bin" fork runs/one other -o reduce.compress_back=none
    says "what was left out of the lanes would not fit"
    expect 78 "$bin" fork runs/one other -o reduce.compress=none -o reduce.compress_back=none
    says "what was left out of the lanes would not fit"
    expect 0 "$bin" fork runs/one other -o optimizer.lr=1e-4 -o run.steps=18
    expect 0 "$bin" runs/other/config.ini
    says "step   18/18"
}

try layouts
try near_the_plain_run
try spans
try span_is_a_lane
try killed
try continued
try undivided
try largest
try largest_continued
try warmed_up
try clipped
try clipped_elsewhere
try planned_alone
try refused
try forked
finish
