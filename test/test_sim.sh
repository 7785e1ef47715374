#!/bin/sh
# test/test_sim.sh: the CUDA backend, executed by the simulator of test/sim: every operation and the whole trainer, under several orders of threads,
# warps, blocks and streams (seeds), with the race detector, and under AddressSanitizer. `make sim` builds what it runs.
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/gpu_ranks.sh"
sim=$top/build/sim race=$top/build/sim-race asan=$top/build/sim-asan

# good LOG WHAT: the program that wrote it said in the way of test/run.sh that it tested something, and that all went well.
good() {
    cp "$1" "$out"
    grep -qE '^\[  PASSED  \] [1-9]|^[1-9][0-9]* passed, 0 failed' "$1" && ! grep -qE '^\[  FAILED|^simulator: [1-9][0-9]* finding' "$1" || fail "$2"
    ! grep -q '^skipped: ' "$1" || fail "$2 skipped: $(grep -m 1 '^skipped: ' "$1")"
}

# runs "SEED PROGRAM [ARGUMENT...]"...: all of them end with 0, from the top directory, two at a time: CI has two cores.
runs() {
    rm -f job-*
    n=0
    for job; do
        program=${job#* }
        [ -x "${program%% *}" ] || skip "${program%% *} is not built: make sim, which needs the CUDA toolkit's headers"
        n=$((n + 1))
        echo "$job" >"job-$n"
    done
    seq $n | xargs -P 2 -I{} sh -c 'set -- {} $(cat job-{}); here=$PWD; n=$1; export SIM_SEED="$2"; shift 2
        cd "$0" && "$@" >"$here/job-$n.log" 2>&1 </dev/null; echo $? >"$here/job-$n.end"' "$top"
    for k in $(seq $n); do
        good "job-$k.log" "$(cat "job-$k")"
        [ "$(cat "job-$k.end")" -eq 0 ] || fail "$(cat "job-$k"): ended with $(cat "job-$k.end")"
    done
}

# --- the simulator finds what was planted --------------------------------------------------------------------------------------------

bugs_in_kernels() { runs "0 $sim/test/sim/test_simt" "0 $race/test/sim/test_simt" "0 $asan/test/sim/test_simt 3"; }
bugs_on_the_host() { runs "0 $sim/test/test_cudart" "0 $race/test/test_cudart"; }

# What CI proves rests on the models being the instructions: `make gpu-check` runs the same program on a GPU.
models_of_instructions() { runs "1 $sim/test/sim/test_wrappers" "2 $race/test/sim/test_wrappers" "3 $asan/test/sim/test_wrappers"; }

# --- operations ----------------------------------------------------------------------------------------------------------------------

operations() {
    o="test/test_ops --device cuda"
    runs "2 $asan/$o --once" "1 $race/$o --once" "2 $race/$o --once" "3 $race/$o --once" "0 $sim/$o" "1 $sim/$o" "2 $sim/$o" "3 $sim/$o" "4 $sim/$o"
}

# --- the trainer ---------------------------------------------------------------------------------------------------------------------

trainer() {
    t=test/test_device
    runs "2 $race/$t" "0 $sim/$t" "3 $sim/$t"
}

# Matrix products: which plan is taken, kept, stored, refused.
products() {
    t=test/test_cublaslt
    runs "0 $sim/$t" "2 $sim/$t" "2 $asan/$t"
}

# Several ranks, through the stand-in for NCCL that knows streams.
ranks() {
    bin=$sim/lockstep
    [ -x "$bin" ] || skip "$bin is not built: make sim, which needs the CUDA toolkit's headers"
    export SIM_SEED=2
    gpu_runs "[reduce]" "transport = nccl" "nccl_library = $sim/test/libnccl-sim.so"
    dealt two 2 parallel.zero=1
    dealt three 3 parallel.zero=2 precision.compute=bf16 precision.rounding=stochastic
    dealt four 4 parallel.zero=3 precision.compute=fp16 device.graph=no
}

# Steps that are queued before the one ahead of them is told say the same, end in the same weights, and stop together.
ahead() {
    bin=$sim/lockstep
    [ -x "$bin" ] || skip "$bin is not built: make sim, which needs the CUDA toolkit's headers"
    export SIM_SEED=3
    gpu_runs "[reduce]" "transport = nccl" "nccl_library = $sim/test/libnccl-sim.so"
    for ranks in 1 2; do
        settings "told-$ranks" device.ranks=$ranks run.steps=9
        settings "late-$ranks" device.ranks=$ranks run.steps=9 log.hash_every=9 eval.every=9
        for run in told late; do
            SIM_DEVICES=$ranks expect 0 timeout 100 "$bin" base.ini "$run-$ranks.ini"
            sed -n 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*/\1 \2 \3/p' "runs/$run-$ranks/log.jsonl" >"$run.said"
            "$bin" hash "runs/$run-$ranks/ckpt/step-00000009" | sed 's/  [^ ]*$//' >>"$run.said"
        done
        [ "$(wc -l <told.said)" -eq 10 ] || fail "$(wc -l <told.said) lines, expected 9 steps and the hashes"
        same told.said late.said "what $ranks ranks say of their steps at once and one step late"
    done
    settings stopped run.steps=1000000 log.hash_every=0 eval.every=0
    start "$bin" base.ini stopped.ini
    until_true 60 grep -sq '"step":20,' runs/stopped/log.jsonl
    kill -TERM "$pid"
    comes_to 75
    last=$(sed -n 's/^{"t":"step","step":\([0-9]*\),.*/\1/p' runs/stopped/log.jsonl | tail -n 1)
    [ -d "$(printf 'runs/stopped/ckpt/step-%08d' "$last")" ] || fail "the last step told is $last; saved: $(ls runs/stopped/ckpt)"
}

# A run goes on with the plans of its checkpoint, whatever the heuristic has come to think since, or not at all.
plans() {
    bin=$sim/lockstep
    [ -x "$bin" ] || skip "$bin is not built: make sim, which needs the CUDA toolkit's headers"
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
    grep -q '"device".*bits are others from here on' runs/differs/events.jsonl || fail "no event says that the bits are others"
    ! cmp -s whole.ends differs.ends && [ -d runs/differs/ckpt/step-00000006 ] || fail "the stand-in's minds give the same bits: nothing was shown"
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

# Ranks that would compute other bits than the others are refused, by name. The second node is another kind of machine.
strangers() {
    bin=$sim/lockstep
    [ -x "$bin" ] || skip "$bin is not built: make sim, which needs the CUDA toolkit's headers"
    export SIM_SEED=2
    gpu_runs "[reduce]" "transport = nccl" "nccl_library = $sim/test/libnccl-sim.so"
    ours=$bin bin=$PWD/second
    stranger blas SIM_BLAS=1
    on 0 "rank 1 (127.0.0.2): its plans are not those of rank 0 (127.0.0.1)" "cuda: matmul (" "custom 0" "the device has chosen algo 7" "custom 1"
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
    same told.want told.found "what one rank tells of its steps, and two that continue with a stored plan each,"
    stranger sms SIM_SMS=5
    for k in 0 1; do
        on $k "rank 0 (127.0.0.1) computes on \"cuda sm_90 4 SMs cuBLASLt 1" "rank 1 (127.0.0.2) on \"cuda sm_90 5 SMs cuBLASLt 1"
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

# What the device says when something is wrong, for the person who has to mend it: the kernel by name, file and line.
failures() {
    bin=$sim/lockstep
    [ -x "$bin" ] || skip "$bin is not built: make sim, which needs the CUDA toolkit's headers"
    gpu_runs
    settings bad device.check=yes
    SIM_FAIL=norm_backward@3 expect 70 timeout 100 "$bin" base.ini bad.ini
    says norm_backward "gpu/cuda/norm.cu:" "failed on the device" cudaErrorIllegalAddress
    settings late device.check=no
    SIM_FAIL=norm_backward@3 expect 70 timeout 100 "$bin" base.ini late.ini
    says "the device failed" cudaErrorIllegalAddress "[device] check = yes" "gpu/cuda/"
    SIM_DRIVER=12000 expect 69 timeout 100 "$bin" base.ini late.ini
    says "the driver is for CUDA 12.0" "update it"
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
    bin=$sim/lockstep nvml=$top/build/test/nvml
    [ -x "$bin" ] || skip "$bin is not built: make sim, which needs the CUDA toolkit's headers"
    [ -e "$nvml/libnvidia-ml.so.1" ] || skip "the stand-in for NVML is not built: make sim"
    export SIM_SEED=2 SIM_DEVICES=2
    gpu_runs "[reduce]" "transport = nccl" "nccl_library = $sim/test/libnccl-sim.so"
    settings pair device.ranks=2 run.steps=6 log.power_every=2 log.hash_every=0 eval.every=0
    settings alone device.ranks=2 run.steps=6 log.power_every=2 log.hash_every=0 eval.every=0
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
    sed -n 's/.*"kind":"\([a-z]*throttled\)","step":\([0-9]*\),"text":"\(.*\)"}/\1 \2 \3/p' runs/pair/events.jsonl >found
    cat >wanted <<'EVENTS'
throttled 2 rank 1 (localhost), device 1, is held back by heat: 1200 MHz, 85 C, 200 W; see to its cooling
unthrottled 6 rank 1 (localhost), device 1, is no longer held back by heat: 1980 MHz, 85 C, 200 W
EVENTS
    same wanted found "events of clocks"
    LOCKSTEP_NVML_INIT=9 LD_LIBRARY_PATH=$nvml expect 0 timeout 100 "$bin" base.ini alone.ini
    says "power: nvml: nvmlInit_v2: Driver Not Loaded (9)"
    [ "$(grep -c '"kind":"power"' runs/alone/events.jsonl)" -eq 1 ] || fail "one event says why nothing is known"
    ! grep -q '"t":"power"' runs/alone/log.jsonl || fail "nothing is known, and it is told"
    for run in pair alone; do "$bin" hash "runs/$run/ckpt/step-00000006" | sed 's/  [^ ]*$//' >"$run.hash"; done
    same pair.hash alone.hash "weights with sensors and without"
}

holders() {
    bin=$sim/lockstep nvml=$top/build/test/nvml
    [ -x "$bin" ] || skip "$bin is not built: make sim, which needs the CUDA toolkit's headers"
    [ -e "$nvml/libnvidia-ml.so.1" ] || skip "the stand-in for NVML is not built: make sim"
    gpu_runs
    export LD_LIBRARY_PATH="$nvml" LOCKSTEP_NVML_41="power=1" LOCKSTEP_NVML_PROCESSES="4194305:3221225472,$$:75269931008"
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

try bugs_in_kernels
try bugs_on_the_host
try models_of_instructions
try operations
try products
try trainer
try ranks
try ahead
try plans
try strangers
try failures
try power
try holders
finish
