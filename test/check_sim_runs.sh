#!/bin/sh
# test/check_sim_runs.sh: whole runs of ./lockstep on the simulated GPU: a perceptron, steps that are queued ahead,
# checkpoints that carry plans, reads that fail, what a device says when something is wrong, its sensors, and the page of
# `make gpu-check`. `make sim` builds what it runs. Layouts of several ranks are in check_sim_layouts.sh.
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/gpu_ranks.sh"
. "$top/test/support/logs.sh"
. "$top/test/support/images.sh"
sim=$top/build/sim bin=$sim/lockstep
[ -x "$bin" ] || { echo "skipped: $bin is not built: make sim, which needs the CUDA toolkit's headers"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }

# A rank of a machine with two GPUs is killed, and the other one goes on in its process, with new communicators of NCCL.
heals() {
    export SIM_SEED=12 SIM_DEVICES=2
    gpu_runs "[reduce]" "transport = nccl" "nccl_library = $sim/test/libnccl-sim.so"
    settings one
    expect 0 timeout 300 "$bin" base.ini one.ini
    for zero in 0 2; do
        settings healed$zero device.ranks=2 parallel.zero=$zero cluster.elastic=yes snapshot.every=2 "run.faults=unit@14:1"
        expect 0 timeout 300 "$bin" base.ini healed$zero.ini
        event healed$zero healed "rank 1 (localhost) was killed by signal 9 (Killed); world 2 of this run began"
        [ $zero = 0 ] || event healed$zero healed "from the snapshot in memory"
        told runs/one >told.want
        told runs/healed$zero >told.found
        same told.want told.found "what an undisturbed run and one that healed log of their steps"
    done
}

# The same with two machines: a rank of one is killed, then all of the other one. Those that are left meet anew over NCCL.
heals_over_nodes() {
    export SIM_SEED=15 SIM_DEVICES=2
    gpu_runs "[reduce]" "transport = nccl" "nccl_library = $sim/test/libnccl-sim.so"
    sed -i 's/^steps = .*/steps = 24/' base.ini
    settings one
    expect 0 timeout 300 "$bin" base.ini one.ini
    near 2 1
    settings over cluster.nodes="$list" cluster.port="$port" cluster.elastic=yes cluster.heartbeat=0.2 cluster.dead_s=2 \
        parallel.zero=2 snapshot.every=2 run.faults=unit@20:1
    boot over
    events=node0/runs/over/events.jsonl
    until_true 60 grep -sq 'rank 1 (127.0.0.1) was killed by signal 9.*world 2 of this run began' $events
    until_true 60 grep -sq '"step":14,' node0/runs/over/log.jsonl
    kill -9 $(supervisor 1) $(children "$(supervisor 1)")
    ended 0 137
    grep -q 'world 3 of this run began' $events || fail "the loss of a machine is not in $events"
    told runs/one >told.want
    told node0/runs/over >told.found
    same told.want told.found "what one rank and a run that lost a rank and a machine log of their steps"
}

# A bit flips in one GPU's memory: with nothing in memory to go back to, it is the newest checkpoint. A norm that is far
# above the mean, and one that is no number, are skipped by all.
lies() {
    export SIM_SEED=13 SIM_DEVICES=3
    gpu_runs "[reduce]" "transport = nccl" "nccl_library = $sim/test/libnccl-sim.so"
    sed -i -e '/^\[checkpoint\]/,/^\[/s/^every = .*/every = 5/' -e 's/^steps = .*/steps = 22/' base.ini
    printf '[optimizer]\nskip_norm = 0.9\n' >>base.ini
    settings one run.faults=nan@7
    expect 0 timeout 300 "$bin" base.ini one.ini
    grep -q '"why":"outlier"' runs/one/log.jsonl || fail "no step was an outlier"
    for zero in 0 1; do
        settings lies$zero device.ranks=3 parallel.zero=$zero cluster.elastic=yes \
            "run.faults=nan@7:1, lie@20:2"
        expect 0 timeout 300 "$bin" base.ini lies$zero.ini
        event lies$zero lie "rank 2 (localhost) holds other values than those that should hold the same after step 20"
        event lies$zero back "from step 20 back to step 15, to the newest checkpoint"
        told runs/one >told.want
        told runs/lies$zero >told.found
        same told.want told.found "what an undisturbed run and one that lied log of their steps"
    done
}

# as_the_cpu WHAT MOST STEPS SETTING... <LAYOUTS: runs base.ini on the CPU, and on simulated GPUs in each layout, a
# line NAME RANKS SETTING... each, the first named one. All layouts must log the same: so many steps, evaluations and
# hashes, and say the same of each image. The losses of the steps must be the CPU's but for the share MOST. begins:
# what the first line of a run matches.
as_the_cpu() {
    what=$1 most=$2 count=$3 runs=
    shift 3
    settings cpu device.backend=cpu reduce.transport=auto "$@"
    rm -rf runs
    expect 0 timeout 100 "$bin" base.ini cpu.ini
    logged cpu >cpu.logged
    while read -r run ranks more; do
        runs="$runs $run"
        settings "$run" device.backend=cuda device.ranks=$ranks "$@" $more
        SIM_DEVICES=$ranks expect 0 timeout 200 "$bin" base.ini "$run.ini"
        grep -qE "$begins" "$out" || fail "$run: expected a first line like $begins"
        logged "$run" >"$run.logged"
    done
    evals=$(grep -c '"t":"eval"' runs/one/log.jsonl)
    [ "$evals" -ge 1 ] && [ "$(wc -l <one.logged)" -eq $((count + evals + 1)) ] && grep -q '^hash [0-9a-f]' one.logged ||
        fail "expected $count steps, evaluations and the hashes: $(cat one.logged)"
    for run in $runs; do
        same one.logged $run.logged "$what: what one rank and $run logged"
        same runs/one/answers.json runs/$run/answers.json "$what: what one rank and $run say of the images"
    done
    paste -d ' ' cpu.logged one.logged >both
    awk -v most="$most" -v count="$count" \
        'NF == 12 { n++; if (!($2 > 0 && ($2 - $8) ^ 2 <= (most * $2) ^ 2)) exit 1 } END { if (n != count) exit 1 }' both ||
        fail "$what: the losses of the CPU and of the device are apart: $(cat both)"
}

# The perceptron: one result on one rank and several, in every stage, from recordings or not; and the CPU's losses, but
# for rounding. In slices, ranks may share layers.
perceptron() {
    export SIM_SEED=5
    rm -rf gpu && mkdir -p gpu/data && cd gpu || fail "no directory"
    image_run "[reduce]" "transport = nccl" "nccl_library = $sim/test/libnccl-sim.so"
    images data/all 0 120
    for kind in "fp32 relu 1e-5 4" "fp32 gelu 1e-5 1" "bf16 relu 0.02 1" "bf16 gelu 0.02 4"; do
        set -- $kind
        cat >layouts <<'RUNS'
one 1 parallel.zero=0
plain 1 device.graph=no
two 2 parallel.zero=0
two-2 2 parallel.zero=2
two-3 2 parallel.zero=3
pipe 3 parallel.pipeline=3 parallel.schedule=zb-h1
pipes 4 parallel.pipeline=2 parallel.schedule=zb-h1 parallel.zero=2
tensor 2 parallel.tensor=2 parallel.offload=nvme
tensor-4 8 parallel.tensor=4 parallel.zero=2
tensor-pipe 4 parallel.tensor=2 parallel.pipeline=2 parallel.schedule=zb-h1
RUNS
        [ "$4" -ne 1 ] || sed -i '/parallel.tensor/d' layouts
        begins="^lockstep .*  cuda:0 .*  mlp 42-24-17-5 $2 .*  $1\$"
        as_the_cpu "in $1 with $2" "$3" 12 precision.compute=$1 model.activation=$2 parallel.slices=$4 run.steps=12 \
            schedule.decay_steps=12 batch.global=8 batch.micro=1 eval.every=6 data.holdout=11 <layouts
        [ "$evals" -eq 2 ] || fail "$evals evaluations, expected 2"
    done
    SIM_DEVICES=1 expect 0 "$bin" eval base.ini one.ini
    says "step 12  loss" "accuracy" "11 images"
}

# Residual networks: any ranks and stages have one hash, and the losses are near the CPU's. Smoothed targets, the five
# best of twelve classes, and an evaluation by running statistics with them.
residual_network() {
    export SIM_SEED=6
    rm -rf gpu && mkdir -p gpu && cd gpu || fail "no directory"
    image_run "[reduce]" "transport = nccl" "nccl_library = $sim/test/libnccl-sim.so"
    sed -i -e 's/^type = mlp/type = resnet20/' -e '/^inputs = /d' -e 's/^hidden = .*/units = 1 1/' \
        -e 's/^classes = 5/classes = 12\nwidth = 6\nimage = 16\nsmoothing = 0.1/' \
        -e "s,^train = .*,train = $top/test/golden/resnet-basic-images.idx $top/test/golden/resnet-basic-labels.idx," base.ini
    for kind in "fp32 1e-5 sgd" "bf16 0.02 sgd" "fp32 1e-5 lars"; do
        set -- $kind
        begins="^lockstep .*  cuda:0 .*  resnet 20 layers, 16 x 16 x 3 images, 12 classes .*  $1\$"
        as_the_cpu "in $1 by $3" "$2" 4 precision.compute=$1 optimizer.type=$3 optimizer.weight_decay=1e-3 run.steps=4 \
            schedule.warmup=2 schedule.decay_steps=4 batch.global=8 batch.micro=2 batch.lanes=4 eval.every=4 \
            data.holdout=11 <<'RUNS'
one 1 parallel.zero=0
two-3 2 parallel.zero=3
pipe 2 parallel.pipeline=2 parallel.recompute=selective
RUNS
        [ "$evals" -eq 1 ] || fail "$evals evaluations, expected 1"
        as_the_cpu "spans in $1" "$2" 4 precision.compute=$1 optimizer.type=sgd optimizer.weight_decay=1e-3 \
            run.steps=4 schedule.warmup=2 schedule.decay_steps=4 batch.global=8 batch.micro=1 batch.lanes=8 \
            batch.bn_span=4 eval.every=4 data.holdout=11 <<'RUNS'
one 1 parallel.zero=0
spread 2 parallel.context=2 parallel.zero=2
RUNS
    done
}

# Texts and questions, of rows shorter than the context: one answer on any number of devices, and in FP32 the CPU's to
# the digits shown.
likelihoods() {
    export SIM_SEED=7
    golden=$top/test/golden
    rm -rf asks && mkdir -p asks && cd asks || fail "no directory"
    for family in gpt2 llama3; do
        expect 0 "$bin" inspect "$golden/likelihood/$family"
        cp "$out" model.ini
        settings asks device.backend=cuda data.val= batch.global=12 batch.micro=3 reduce.transport=nccl \
            "reduce.nccl_library=$sim/test/libnccl-sim.so" \
            "sample.tokenizer=$golden/tokenizer/$family.json" "eval.text=$golden/likelihood/texts.jsonl" \
            "eval.choices=$golden/likelihood/hellaswag.jsonl"
        settings cpu device.backend=cpu device.ranks=1 reduce.transport=auto
        expect 0 "$bin" eval model.ini asks.ini cpu.ini
        sed -n 's/.* loss \([0-9.]*\) .*/\1/p; s/.* \(acc .*\) 40 .*/\1/p' "$out" >cpu.said
        for type in fp32 bf16; do
            settings deal precision.compute=$type device.ranks=1
            SIM_DEVICES=1 expect 0 timeout 100 "$bin" eval model.ini asks.ini deal.ini
            cp "$out" $type.said
            for ranks in 2 3; do
                settings deal precision.compute=$type device.ranks=$ranks parallel.zero=$ranks
                SIM_DEVICES=$ranks expect 0 timeout 100 "$bin" eval model.ini asks.ini deal.ini
                same $type.said "$out" "$family in $type: answers of one device and of $ranks"
            done
        done
        sed -n 's/.* loss \([0-9.]*\) .*/\1/p; s/.* \(acc .*\) 40 .*/\1/p' fp32.said >cuda.said
        same cpu.said cuda.said "$family: answers of the CPU and of a device"
    done
}

# said DIR: what a run's log says of its steps, to the last digit.
said() { sed -n 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*/\1 \2 \3/p' "$1/log.jsonl"; }

# timed DIR: its steps have times of the device, of two steps before.
timed() {
    sed -n 's/.*"step":\([0-9]*\),.*"comm_wait_ms":null,.*/\1/p' "$1/log.jsonl" | tr '\n' ' ' >untimed
    [ "$(cat untimed)" = "1 2 " ] || fail "$1: steps without times: $(cat untimed), expected 1 and 2"
}

# Steps that are queued before the one before them is collected, from recordings, log the same as those that are
# collected at once and queued call by call; they end in the same weights, and stop together. What is recorded, and how
# often, test_recordings counts.
ahead() {
    export SIM_SEED=3
    gpu_runs "[reduce]" "transport = nccl" "nccl_library = $sim/test/libnccl-sim.so"
    printf '[parallel]\nslices = 2\n' >>base.ini
    while read -r name ranks more; do
        settings "told-$name" device.ranks=$ranks run.steps=6 device.graph=no $more
        settings "late-$name" device.ranks=$ranks run.steps=6 log.hash_every=6 eval.every=6 $more
        for run in told late; do
            SIM_DEVICES=$ranks expect 0 timeout 100 "$bin" base.ini "$run-$name.ini"
            said "runs/$run-$name" >"$run.said"
            "$bin" hash "runs/$run-$name/ckpt/step-00000006" | sed 's/  [^ ]*$//' >>"$run.said"
        done
        [ "$(wc -l <told.said)" -eq 7 ] || fail "$(wc -l <told.said) lines, expected 6 steps and the hashes"
        same told.said late.said "what $ranks ranks ($name) say of their steps at once and one step late"
        timed "runs/late-$name"
        one=one$(echo "$more" | tr ' ' '\n' | grep -v '^parallel\.' | tr -dc 'a-z0-9').said
        [ -e "$one" ] || cp told.said "$one"
        same "$one" told.said "what one rank and $ranks ($name) say of their steps"
    done <<'RUNS'
one 1
two 2
pipe 2 parallel.pipeline=2
pipes 4 parallel.pipeline=2 parallel.schedule=zb-h1 parallel.zero=3
v 2 parallel.pipeline=2 parallel.schedule=zb-v parallel.chunks=2
loop 4 parallel.pipeline=2 parallel.schedule=interleaved parallel.chunks=2 parallel.zero=1
tensor 2 parallel.tensor=2
rows 4 parallel.tensor=2 parallel.sequence=yes parallel.zero=3
cube 8 parallel.tensor=2 parallel.pipeline=2 parallel.schedule=zb-h1 parallel.zero=1
again 2 parallel.pipeline=2 parallel.recompute=block
half 1 precision.compute=fp16
halves 4 parallel.pipeline=2 parallel.zero=2 parallel.recompute=selective precision.compute=fp16
all 2 parallel.pipeline=2 parallel.schedule=gpipe precision.compute=fp16
coded 1 reduce.compress=int8 reduce.compress_back=int8 precision.compute=fp16
codes 4 reduce.compress=int8 reduce.compress_back=int8 precision.compute=fp16 parallel.tensor=2 parallel.zero=1
span 1 reduce.compress=int8 reduce.compress_back=int8 reduce.compress_span=2 precision.compute=fp16
spans 2 reduce.compress=int8 reduce.compress_back=int8 reduce.compress_span=2 precision.compute=fp16 parallel.zero=1
codes3 2 reduce.compress=int8 reduce.compress_back=int8 precision.compute=fp16 parallel.zero=3 parallel.offload=nvme
codes0 2 reduce.compress=int8 reduce.compress_back=int8 precision.compute=fp16 parallel.zero=0
largest 1 optimizer.type=sgd optimizer.momentum=0.9 optimizer.grad_clip=0 reduce.compress=topk reduce.density=0.1 precision.compute=bf16
largest0 2 optimizer.type=sgd optimizer.momentum=0.9 optimizer.grad_clip=0 reduce.compress=topk reduce.density=0.1 precision.compute=bf16 parallel.zero=0
largest3 2 optimizer.type=sgd optimizer.momentum=0.9 optimizer.grad_clip=0 reduce.compress=topk reduce.density=0.1 precision.compute=bf16 parallel.zero=3
RUNS
    settings stopped run.steps=1000000 log.hash_every=0 eval.every=0
    start "$bin" base.ini stopped.ini
    until_true 60 grep -sq '"step":20,' runs/stopped/log.jsonl
    kill -TERM "$pid"
    comes_to 75
    last=$(sed -n 's/^{"t":"step","step":\([0-9]*\),.*/\1/p' runs/stopped/log.jsonl | tail -n 1)
    [ -d "$(printf 'runs/stopped/ckpt/step-%08d' "$last")" ] ||
        fail "the last step logged is $last; saved: $(ls runs/stopped/ckpt)"
}

# Islands, whose steps are queued ahead of each other between boundaries: two devices, and four in which islands share
# their weights and their moments in each way. A run goes on from a boundary with other devices, and one whose fragments
# are on their way from any step.
islands() {
    export SIM_SEED=4
    gpu_runs "[reduce]" "transport = nccl" "nccl_library = $sim/test/libnccl-sim.so"
    printf '[parallel]\nslices = 2\n[outer]\nislands = 2\nevery = 3\n' >>base.ini
    sed -i 's/^hash_every = 1/hash_every = 3/; s/^steps = 5/steps = 6/; s/^every = 5/every = 6/; s/^\(\[schedule\]\)/\1\ndecay_steps = 6/' base.ini
    apart="outer.type=nesterov outer.every=4 outer.overlap=2 outer.moments=own outer.compress=int8"
    apart="$apart outer.fragments=h.0.*:3+1 precision.compute=bf16"
    while read -r name ranks more; do
        settings "$name" device.ranks=$ranks $more
        SIM_DEVICES=$ranks expect 0 timeout 100 "$bin" base.ini "$name.ini"
        said "runs/$name" >"$name.said"
        "$bin" hash "runs/$name/ckpt/step-00000006" | sed 's/  [^ ]*$//' >>"$name.said"
        [ "$(wc -l <"$name.said")" -eq 7 ] || fail "$(wc -l <"$name.said") lines, expected 6 steps and the hashes"
        one=one$(echo "$more" | tr ' ' '\n' | grep -v '^parallel\.' | tr -dc 'a-z0-9').said
        [ -e "$one" ] || cp "$name.said" "$one"
        same "$one" "$name.said" "what islands of one device and those of $name say of their steps"
    done <<RUNS
mean 2
mean4 4 parallel.zero=1
half 2 outer.type=nesterov precision.compute=bf16
halves 4 outer.type=nesterov precision.compute=bf16 parallel.zero=3
pipes 4 outer.type=nesterov precision.compute=bf16 parallel.pipeline=2 parallel.zero=2
layers 4 outer.type=nesterov precision.compute=bf16 parallel.tensor=2
codes 2 outer.compress=int8 outer.moments=own
codes4 4 outer.compress=int8 outer.moments=own parallel.zero=2
apart 2 $apart
apart4 4 $apart parallel.zero=3
apart-layers 4 $apart parallel.tensor=2
RUNS
    settings on device.ranks=2 run.steps=3 outer.type=nesterov precision.compute=bf16
    SIM_DEVICES=2 expect 0 timeout 100 "$bin" base.ini on.ini
    settings on device.ranks=4 outer.type=nesterov precision.compute=bf16 parallel.zero=2 run.resume=must
    SIM_DEVICES=4 expect 0 timeout 100 "$bin" base.ini on.ini
    same_state half on
    settings rests device.ranks=2 run.steps=3 outer.compress=int8 outer.moments=own
    SIM_DEVICES=2 expect 0 timeout 100 "$bin" base.ini rests.ini
    settings rests device.ranks=4 outer.compress=int8 outer.moments=own parallel.tensor=2 run.resume=must
    SIM_DEVICES=4 expect 0 timeout 100 "$bin" base.ini rests.ini
    same_state codes rests
    settings drifts device.ranks=4 run.steps=5 parallel.zero=2 $apart
    SIM_DEVICES=4 expect 0 timeout 100 "$bin" base.ini drifts.ini
    settings drifts device.ranks=2 run.resume=must $apart
    SIM_DEVICES=2 expect 0 timeout 100 "$bin" base.ini drifts.ini
    same_state apart drifts
}

# The same from the inside: every part of a pipeline's unit is one submission, and is recorded in the first steps.
recorded() {
    SIM_SEED=3 expect 0 timeout 300 "$sim/test/test_recordings"
    says "[  PASSED  ] 3 test"
    # a rank of this program ends without its last word
    ! grep '^simulator: ' "$out" || fail "the simulator found something"
}

# A run goes on with the plans of its checkpoint, whatever the heuristic has come to think since, or not at all.
plans() {
    export SIM_SEED=2
    gpu_runs "[reduce]" "transport = nccl" "nccl_library = $sim/test/libnccl-sim.so"
    settings whole run.steps=6 schedule.decay_steps=6
    expect 0 timeout 100 "$bin" base.ini whole.ini
    settings half run.steps=3 schedule.decay_steps=6 sample.tokens=3 sample.every=100
    expect 0 timeout 100 "$bin" base.ini half.ini
    SIM_BLAS=1 goes_on other 0
    ends whole other "the hashes of a run whose heuristic changed its mind, and of one whose did not,"
    # Of another arithmetic: refused, or its plans are made anew. Then the heuristic's mind is all that decides.
    SIM_SMS=5 goes_on refused 78
    says "\"cuda sm_90 4 SMs cuBLASLt 1" "\"cuda sm_90 5 SMs cuBLASLt 1" "[device] match = no"
    SIM_SMS=5 goes_on anew 0 device.match=no
    ends whole anew "the hashes of a run on two devices that compute alike"
    SIM_SMS=5 SIM_BLAS=1 goes_on differs 0 device.match=no
    says "the checkpoint was computed on" "its bits are others from here on"
    grep -q '"device".*bits are others from here on' runs/differs/events.jsonl ||
        fail "no event says that the bits are others"
    ! cmp -s whole.ends differs.ends && [ -d runs/differs/ckpt/step-00000006 ] ||
        fail "the stand-in's minds give the same bits: nothing was shown"
    SIM_JIT=1 goes_on refused 78
    says "driver 13.0 (kernels compiled from PTX)"
    SIM_BLAS_LACKS=0 goes_on refused 78
    says "step-00000003" "plan 1 of" "match = no goes on" "cuda: matmul (" "custom 0" "is refused"
    SIM_BLAS=1 SIM_BLAS_LACKS=0 goes_on lacking 0 device.match=no
    says "(not all of its plans can be used)" "its bits are others from here on"
    goes_on refused 78 device.backend=cpu
    says "this run computes on \"cpu\""
    for verb in eval sample; do SIM_SMS=5 SIM_BLAS=1 expect 0 timeout 100 "$bin" $verb base.ini half.ini; done
    expect 0 "$bin" eval base.ini refused.ini
    goes_on onwards 0 device.backend=cpu device.match=no
    settings onwards run.steps=7 schedule.decay_steps=6
    expect 78 timeout 100 "$bin" base.ini onwards.ini
    says "the checkpoint was computed on \"cpu\""
}

# goes_on NAME CODE [SETTING...]: from step 3 of `half`, under another name.
goes_on() {
    run=$1 want=$2
    shift 2
    rm -rf "runs/$run"
    cp -r runs/half "runs/$run"
    settings "$run" run.steps=6 schedule.decay_steps=6 "$@"
    expect "$want" timeout 100 "$bin" base.ini "$run.ini"
    [ "$want" -ne 0 ] || "$bin" hash "runs/$run/ckpt/step-00000006" | sed 's/  [^ ]*$//' >"$run.ends"
}

# ends A B WHAT: both runs come to the same weights.
ends() {
    for run in "$1" "$2"; do "$bin" hash "runs/$run/ckpt/step-00000006" | sed 's/  [^ ]*$//' >"$run.ends"; done
    same "$1.ends" "$2.ends" "$3"
}

# Plans that were measured: a run uses them on all ranks, its checkpoint goes on with them alone, and they are for one
# kind of device.
tuned() {
    export SIM_SEED=2 SIM_BLAS_COUNT=3
    gpu_runs "[reduce]" "transport = nccl" "nccl_library = $sim/test/libnccl-sim.so"
    expect 0 timeout 100 "$bin" tune base.ini
    says "TFLOP/s" "refused" "matmul (16,96,32)" "plans: runs/default/plans (a run uses it"
    [ "$(grep -c '^matmul 2: ' runs/default/plans)" -ge 10 ] ||
        fail "expected ten plans and more: $(cat runs/default/plans)"
    [ "$(sed -n 's/^plans //p' runs/default/plans)" = "$(grep -c '^matmul 2: ' runs/default/plans)" ] ||
        fail "the file does not say how many it has"
    mv runs/default/plans measured
    settings half run.steps=3 schedule.decay_steps=6 device.plans=measured
    expect 0 timeout 100 "$bin" base.ini half.ini
    settings whole run.steps=6 schedule.decay_steps=6 device.plans=measured
    expect 0 timeout 100 "$bin" base.ini whole.ini
    goes_on refused 78
    says "device.plans"
    mkdir elsewhere && cp measured elsewhere/copy
    goes_on same 0 device.plans=elsewhere/copy
    ends whole same "the hashes of a run with measured plans, and of one that found them elsewhere,"
    SIM_DEVICES=2 dealt two 2 device.plans="$PWD/measured" parallel.zero=1
    goes_on refused 78 device.backend=cpu device.match=no device.plans=measured
    says "a CPU multiplies without plans"
    settings bad device.plans=measured
    SIM_SMS=5 expect 78 timeout 100 "$bin" base.ini bad.ini
    says "[device] plans: measured: was measured on \"cuda sm_90 4 SMs" "this device is \"cuda sm_90 5 SMs" \
        "lockstep tune"
    sed -i '$d' measured
    expect 65 timeout 100 "$bin" base.ini bad.ini
    says "[device] plans: measured: says that it has" "not whole"
    sed -i '$s/n 3/n 4/' measured
    sed -i 's/^\(matmul 2: m [0-9]* n\) \([0-9]\)/\1 9\2/' measured
    expect 65 timeout 100 "$bin" base.ini bad.ini
    says "[device] plans: measured:5: cuda: a matmul plan is damaged"
    echo "something else" >measured
    expect 65 timeout 100 "$bin" base.ini bad.ini
    says "measured:1: expected \`lockstep plans\`, found \`something else\`"
    rm measured
    expect 74 timeout 100 "$bin" base.ini bad.ini
    says "[device] plans: measured"
    settings cpu device.backend=cpu reduce.transport=auto
    expect 69 timeout 100 "$bin" tune base.ini cpu.ini
    says "lockstep tune is for GPUs"
}

# Ranks that would compute other bits than the others are refused, by name. The second node is another kind of machine.
strangers() {
    export SIM_SEED=2
    gpu_runs "[reduce]" "transport = nccl" "nccl_library = $sim/test/libnccl-sim.so"
    ours=$bin bin=$PWD/second
    stranger blas SIM_BLAS=1
    on 0 "rank 1 (127.0.0.2): its plans are not those of rank 0 (127.0.0.1)" "cuda: matmul (" "custom 0" \
        "the device has chosen algo 7" "custom 1"
    on 1 "its plans are not those of rank 0 (127.0.0.1)"
    [ ! -e node0/runs/blas/ckpt ] || fail "a step of ranks that do not compute alike was saved"
    # With plans from a checkpoint nobody chooses, and the second node's mind is as good as any.
    settings whole run.steps=6 schedule.decay_steps=6
    expect 0 timeout 100 "$ours" base.ini whole.ini
    near 1 1
    for steps in 3 6; do
        settings joint cluster.nodes="$list" cluster.port="$port" run.steps=$steps schedule.decay_steps=6
        if [ $steps -eq 3 ]; then bin=$ours; else bin=$PWD/second; fi
        boot joint
        ended 0
    done
    told runs/whole >told.want
    told node0/runs/joint >told.found
    same told.want told.found "what one rank logs of its steps, and two that continue with a stored plan each,"
    stranger sms SIM_SMS=5
    for k in 0 1; do
        on $k "rank 0 (127.0.0.1) computes on \"cuda sm_90 4 SMs cuBLASLt 1" \
            "rank 1 (127.0.0.2) on \"cuda sm_90 5 SMs cuBLASLt 1"
    done
    stranger cpu SIM_DEVICES=0 device.backend=auto reduce.transport=auto
    on 0 "rank 0 (127.0.0.1) computes on \"cuda sm_90 4 SMs cuBLASLt 1" "rank 1 (127.0.0.2) on \"cpu\""
    on 1 "rank 1 (127.0.0.2) on \"cpu\""
}

# stranger RUN VARIABLE=VALUE [SETTING...]: node 1 has this in its environment; both nodes refuse to go on.
stranger() {
    run=$1 has=$2
    shift 2
    printf '#!/bin/sh\n[ "$LOCKSTEP_NODE" != 1 ] || export %s\nexec "%s" "$@"\n' "$has" "$ours" >second
    chmod 755 second
    near 1 1
    settings "$run" cluster.nodes="$list" cluster.port="$port" cluster.timeout=60 checkpoint.every=1 "$@"
    boot "$run"
    ended 78
}

# broke DIR STEPS: the run in DIR logged and saved so many steps, as the undisturbed one has them, and says why it
# ended.
broke() {
    said "$1" >told.found
    head -n "$2" whole.said | cmp -s - told.found || fail "it logged $(wc -l <told.found) steps, expected the first $2 of the undisturbed run"
    grep -qF '"failed"' "$1/events.jsonl" && grep -qF 'plain-train-00000.bin: read of' "$1/events.jsonl" ||
        fail "$1/events.jsonl does not mention the read"
    saved=$(ls "$1/ckpt" 2>/dev/null | tail -n 1)
    [ "$2" -gt 0 ] || [ -z "$saved" ] || fail "it saved $saved of no step"
    [ "$2" -eq 0 ] || whole_as "$1" "$(printf 'step-%08d' "$2")"
}

# whole_as DIR STEP: the newest checkpoint in DIR is that one, and holds what the undisturbed run had then.
whole_as() {
    [ "$(ls "$1/ckpt" | tail -n 1)" = "$2" ] || fail "the newest checkpoint in $1 is $(ls "$1/ckpt" | tail -n 1), expected $2"
    "$bin" hash "$1/ckpt/$2" | sed 's/  [^ ]*$//' >hash.found
    "$bin" hash "runs/whole/ckpt/$2" | sed 's/  [^ ]*$//' >hash.want
    same hash.want hash.found "the undisturbed run at $2 and $1"
}

# A read that fails when steps are queued ahead: the step that has no data and the one after it are void, what was
# logged before them is saved, and the same command goes on as if nothing had been. Six reads open the files, then there
# is one a sample: 4 a step, or 2 on each of two ranks.
unread() {
    export SIM_SEED=4
    gpu_runs "[reduce]" "transport = nccl" "nccl_library = $sim/test/libnccl-sim.so"
    all="batch.global=4 precision.compute=fp16 log.hash_every=5 eval.every=0 data.retry=0"
    settings whole $all checkpoint.every=1 checkpoint.keep=9
    expect 0 timeout 100 "$bin" base.ini whole.ini
    said runs/whole >whole.said
    [ "$(wc -l <whole.said)" -eq 5 ] || fail "$(wc -l <whole.said) lines, expected 5 steps"
    for nth in 7 10 12 23 26; do
        settings "alone-$nth" $all
        cp "alone-$nth.ini" good.ini
        printf '[run]\nfaults = read@%s\n' "$nth" >>"alone-$nth.ini"
        expect 74 timeout 100 "$bin" base.ini "alone-$nth.ini"
        says "plain-train-00000.bin: read of" "given up after 1 try"
        broke "runs/alone-$nth" $(((nth - 7) / 4))
        mends "runs/alone-$nth" timeout 100 "$bin" base.ini good.ini
    done
    for two in 7:1 12:1 16:0; do unread_by_two ${two%:*} ${two#*:}; done
}

# mends DIR COMMAND...: it ends well, and the run in DIR is the undisturbed one.
mends() {
    in=$1
    shift
    expect 0 "$@"
    said "$in" >told.found
    same whole.said told.found "the undisturbed run and what was logged in all in $in"
    whole_as "$in" step-00000005
}

# unread_by_two READ RANK: the same with two ranks, of which one can't read.
unread_by_two() {
    nth=$1 who=$2
    rm -rf node?
    near 1 1
    settings two $all cluster.nodes="$list" cluster.port="$port" parallel.zero=$((1 + who))
    printf '[run]\nfaults = read@%s\n' "$nth" >>"node$who/own.ini"
    boot two
    ended 74
    on 0 "rank $who" "plain-train-00000.bin: read of" "given up after 1 try"
    broke node0/runs/two $(((nth - 7) / 2))
    sed -i '/^faults/d' "node$who/own.ini"
    boot two
    ended 0
    mends node0/runs/two true
}

# A device that is slow is named, though the host is done with queueing in no time: nothing runs before it waits (seed
# 1). Times come two steps late.
slow_device() {
    export SIM_SEED=1
    gpu_runs "[reduce]" "transport = nccl" "nccl_library = $sim/test/libnccl-sim.so"
    settings slow device.ranks=2 run.steps=26 model.layers=1 model.heads=1 model.embed=16 model.context=8 \
        batch.global=2 \
        batch.lanes=2 log.hash_every=0 eval.every=0
    SIM_SLOW=1:2000 SIM_DEVICES=2 expect 0 timeout 100 "$bin" base.ini slow.ini
    grep -q '"kind":"straggler".*"text":"rank 1 (localhost)' runs/slow/events.jsonl ||
        fail "rank 1 has a slow device and was not named: $(cat runs/slow/events.jsonl)"
    n=$(grep -c '"slowest_rank":1,' runs/slow/log.jsonl)
    [ "$n" -gt 13 ] || fail "rank 1 is the slowest in $n of 26 steps: $(tail -n 2 runs/slow/log.jsonl)"
    sed -n 's/.*"step":\([0-9]*\),.*"comm_wait_ms":null,"comm_ms":null,.*/\1/p' runs/slow/log.jsonl |
        tr '\n' ' ' >untimed
    [ "$(cat untimed)" = "1 2 " ] || fail "steps without times: $(cat untimed), expected 1 and 2"
}

# What the device says when something is wrong, for the person who has to mend it: the kernel by name, file and line.
failures() {
    gpu_runs
    settings bad device.check=yes
    SIM_FAIL=norm_backward@3 expect 70 timeout 100 "$bin" base.ini bad.ini
    says norm_backward "gpu/cuda/norm.cu:" "failed on the device" cudaErrorIllegalAddress
    settings late device.check=no
    SIM_FAIL=norm_backward@3 expect 70 timeout 100 "$bin" base.ini late.ini
    says "the device failed" cudaErrorIllegalAddress "[device] check = yes" "gpu/cuda/"
    SIM_DRIVER=12000 expect 69 timeout 100 "$bin" base.ini late.ini
    says "the driver is for CUDA 12.0" "runtime of CUDA 13" "driver 580 or later" "update it" "cuda-compat-13-0"
    SIM_DEVICES=0 expect 69 timeout 100 "$bin" base.ini late.ini
    says "nvidia-smi"
    SIM_BUSY=1 expect 69 timeout 100 "$bin" base.ini late.ini
    says "another process has the GPU to itself"
    SIM_CAPABILITY=75 expect 69 timeout 100 "$bin" base.ini late.ini
    says "compute capability 7.5, expected 8.0"
    SIM_MEMORY=40 expect 69 timeout 100 "$bin" base.ini late.ini
    says "lower [batch] micro"
    settings auto device.backend=auto
    SIM_DEVICES=0 expect 0 timeout 100 "$bin" base.ini auto.ini
    says "auto chose the CPU (cuda:"
}

# Power and clocks of two ranks, through the stand-in for NVML, and who holds a device that can't be had.
power() {
    nvml=$top/build/test/nvml
    [ -e "$nvml/libnvidia-ml.so.1" ] || skip "the stand-in for NVML is not built: make sim"
    export SIM_SEED=2 SIM_DEVICES=2
    gpu_runs "[reduce]" "transport = nccl" "nccl_library = $sim/test/libnccl-sim.so"
    settings pair device.ranks=2 run.steps=6 batch.global=12 log.power_every=2 log.hash_every=0 eval.every=0
    settings alone device.ranks=2 run.steps=6 batch.global=12 log.power_every=2 log.hash_every=0 eval.every=0
    # The first reading is before the first step; a step is 12 x 16 tokens.
    LOCKSTEP_NVML_41="power=250500 energy=5000,5384,5768,6536 heat=60 clock=1980 reasons=0" \
    LOCKSTEP_NVML_42="power=199500 energy=70000,70768,71536,72304 heat=85 clock=1980,1200,1980 reasons=0,72,0" \
    LD_LIBRARY_PATH=$nvml expect 0 timeout 100 "$bin" base.ini pair.ini
    one='{"rank":0,"watts":250.5,"celsius":60,"mhz":1980,"limited":"no"}'
    two='{"rank":1,"watts":199.5,"celsius":85,"mhz":'
    for row in '2 0.003 1200 heat' '4 0.003 1980 no' '6 0.004 1980 no'; do
        set -- $row
        echo '{"t":"power","step":'"$1"',"watts":450,"joules_per_token":'"$2"',"devices":['"$one,$two$3"',"limited":"'"$4"'"}]}'
    done >wanted
    grep '"t":"power"' runs/pair/log.jsonl >found
    same wanted found "records of power"
    sed -n 's/.*"kind":"\([a-z]*throttled\)","step":\([0-9]*\),"text":"\(.*\)"}/\1 \2 \3/p' runs/pair/events.jsonl \
        >found
    cat >wanted <<'EVENTS'
throttled 2 rank 1 (localhost), device 1, is held back by heat: 1200 MHz, 85 C, 200 W; see to its cooling
unthrottled 6 rank 1 (localhost), device 1, is no longer held back by heat: 1980 MHz, 85 C, 200 W
EVENTS
    same wanted found "events of clocks"
    LOCKSTEP_NVML_INIT=9 LD_LIBRARY_PATH=$nvml expect 0 timeout 100 "$bin" base.ini alone.ini
    says "power: nvml: nvmlInit_v2: Driver Not Loaded (9)"
    [ "$(grep -c '"kind":"power"' runs/alone/events.jsonl)" -eq 1 ] || fail "one event says why nothing is known"
    ! grep -q '"t":"power"' runs/alone/log.jsonl || fail "nothing is known, and there is a record"
    for run in pair alone; do "$bin" hash "runs/$run/ckpt/step-00000006" | sed 's/  [^ ]*$//' >"$run.hash"; done
    same pair.hash alone.hash "weights with sensors and without"
}

# Two pairs of GPUs: `check` shows them and what to set; sums then go inside the pairs first, and bits stay.
joined() {
    nvml=$top/build/test/nvml
    [ -e "$nvml/libnvidia-ml.so.1" ] || skip "the stand-in for NVML is not built: make sim"
    export SIM_SEED=8 SIM_DEVICES=4
    gpu_runs "[reduce]" "transport = nccl" "nccl_library = $sim/test/libnccl-sim.so"
    settings pairs device.ranks=4 cluster.joined=2 parallel.zero=1 run.steps=3
    LOCKSTEP_NVML_41="links=42,42" LOCKSTEP_NVML_42="links=41,41" LOCKSTEP_NVML_43="links=44" \
        LOCKSTEP_NVML_44="links=43,-" LD_LIBRARY_PATH=$nvml expect 0 timeout 100 "$bin" check base.ini
    says "nvlink  4 GPUs in 2 groups" "group 1   1 to GPU 3" "slow    GPU 3 has 1 working NVLink" "joined = 2"
    expect 0 timeout 100 "$bin" base.ini pairs.ini
    says "ranks   4 on 1 node, joined by 2  zero 1"
    settings one device.ranks=1 run.steps=3
    expect 0 timeout 100 "$bin" base.ini one.ini
    told runs/one >told.want
    told runs/pairs >told.found
    same told.want told.found "what one device and two pairs log of their steps"
}

holders() {
    nvml=$top/build/test/nvml
    [ -e "$nvml/libnvidia-ml.so.1" ] || skip "the stand-in for NVML is not built: make sim"
    gpu_runs
    export LD_LIBRARY_PATH="$nvml" LOCKSTEP_NVML_41="power=1" \
        LOCKSTEP_NVML_PROCESSES="4194305:3221225472,$$:75269931008"
    who="held by process $$ ($(cat /proc/$$/comm), 70.1 GiB), 4194305 (3.0 GiB)"
    settings busy
    SIM_BUSY=1 expect 69 timeout 100 "$bin" base.ini busy.ini
    says "cudaErrorDevicesUnavailable" "$who; another process has the GPU to itself"
    SIM_MEMORY=40 expect 69 timeout 100 "$bin" base.ini busy.ini
    says "MB are free, $who; lower [batch] micro"
    settings auto device.backend=auto
    SIM_BUSY=1 expect 0 timeout 100 "$bin" base.ini auto.ini
    says "auto chose the CPU (cuda:" "$who)"
    unset LD_LIBRARY_PATH LOCKSTEP_NVML_41
    SIM_BUSY=1 expect 69 timeout 100 "$bin" base.ini busy.ini
    ! grep -q "held by" "$out" || fail "nobody knows who holds it"
}

# check_gpu CODE: a little of everything that `make gpu-check` does, with the simulator for a GPU; the page is in $out.
# Its parts have more time than a GPU's: what the simulator needs depends on what else the machine does.
check_gpu() {
    want=$1
    (cd "$top" && GPU_CHECK=short GPU_CHECK_S=${GPU_CHECK_S:-2000} NCCL_LIBRARY=$sim/test/libnccl-sim.so exec timeout \
        500 sh test/gpu_check.sh "$sim" "$sim/lockstep") >"$out" 2>errors </dev/null
    got=$?
    [ $got -eq "$want" ] || { cat errors >>"$out"; fail "expected exit status $want, got $got, of test/gpu_check.sh"; }
}

# row TITLE PATTERN: the page's line of this check or step says so.
row() {
    grep -F "| $1 |" "$out" | grep -qE -e "$2" || grep -E "^$1  " "$out" | grep -qE -e "$2" ||
        fail "the page has no \"$2\" for $1: $(grep -F "$1" "$out" | head -n 1)"
}

# The page that a GPU is measured by: whole when all is well; and what goes wrong is on it, and in the exit status.
page() {
    steps="gpt2-124m-64-bf16 gpt2-124m-64-bf16-no-graph gpt2-124m-bf16 gpt2-124m-bf16-no-graph gpt2-124m-fp16 gpt2-124m-fp32 gpt-baby-bf16 gpt2-124m-64-bf16-tuned"
    check_gpu 0
    says "# simulator, " "The device is a simulator" "| driver | unknown |" "| products | cuBLASLt 13" \
        "| device | compute capability 9.0" "## Operations" \
        "## Whole training steps" "## Matrix products, measured" \
        "0 failed, 0 left out for want of time, 3 for want of a tool"
    row "instructions against their models" "^. .* . [1-9][0-9]* passed, 0 failed . "
    for title in "cuBLASLt and its plans" operations "trainer against the CPU's and PyTorch's"; do
        row "$title" "PASSED  . [1-9][0-9]* test"
    done
    row "1 to 4 NCCL ranks on the device" "[1-9] passed, 0 failed, 0 skipped; nccl 2[.0-9]*, /.*libnccl-sim.so, interface lo . "
    for title in "memory (compute-sanitizer memcheck)" "races (compute-sanitizer racecheck)"; do
        row "$title" "left out: "
    done
    for each in $steps; do row "$each" " tok/s "; done
    [ "$(grep -c ' us .* MB .* GB/s .*%' "$out")" -ge 50 ] ||
        fail "$(grep -c ' GB/s ' "$out") operations were timed, expected 50 and more"
    ! grep -q FAILED "$out" || fail "the page says FAILED"
    SIM_FAIL=norm@1 check_gpu 1
    row "instructions against their models" "0 failed"
    for title in operations "trainer against the CPU's and PyTorch's" "1 to 4 NCCL ranks on the device"; do
        row "$title" "FAILED \([1-9]"
    done
    for each in $steps; do row "$each" "FAILED \([1-9][0-9]*\): lockstep: "; done
    grep -q '^FAILED (1)$' "$out" || fail "the table of operations does not say FAILED"
    says "## What failed" "### operations" "### Operations" "### gpt2-124m-fp16" "13 failed, "
    GPU_CHECK_S=0 check_gpu 1
    for title in "instructions against their models" operations; do row "$title" "left out: no time"; done
    for each in $steps; do row "$each" "left out: no time"; done
    says "0 failed, 15 left out for want of time, "
    SIM_DEVICES=0 check_gpu 69
    grep -qF "gpu-check: no GPU was found: " errors && [ ! -s "$out" ] || fail "without a GPU it printed: $(cat errors)"
}

try heals
try heals_over_nodes
try lies
try perceptron
try residual_network
try likelihoods
try ahead
try islands
try recorded
try plans
try tuned
try strangers
try unread
try slow_device
try failures
try power
try joined
try holders
try page
finish
