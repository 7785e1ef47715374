#!/bin/sh
# test/check_sim_layouts.sh: a run of ./lockstep on the simulated GPU logs what one rank logs, however it is dealt to
# several. `make sim` builds what it runs.
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/gpu_ranks.sh"
sim=$top/build/sim bin=$sim/lockstep
[ -x "$bin" ] || { echo "skipped: $bin is not built: make sim, which needs the CUDA toolkit's headers"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }

# Of three steps the last one is after the warm-up and has moments of two; an evaluation follows. Ranks meet through the
# stand-in for NCCL that knows streams.
three_steps() {
    gpu_runs "[reduce]" "transport = nccl" "nccl_library = $sim/test/libnccl-sim.so"
    sed -i 's/^steps = 5/steps = 3/; s/^every = 5/every = 3/' base.ini
    steps=3
}

# Several ranks.
ranks() {
    export SIM_SEED=2
    three_steps
    dealt two 2 parallel.zero=1
    dealt three 3 parallel.zero=2 precision.compute=bf16 precision.rounding=stochastic
    dealt four 4 parallel.zero=3 precision.compute=fp16
    lars="optimizer.type=lars optimizer.lr=0.5 optimizer.trust=0.02 optimizer.momentum=0.9"
    dealt lars-2 2 parallel.zero=2 $lars
    dealt lars-3 3 parallel.zero=1 parallel.offload=nvme $lars
    dealt lars-pipes 4 parallel.pipeline=2 parallel.zero=3 $lars
    muon="optimizer.type=muon optimizer.lr=0.004"
    dealt muon-2 2 parallel.zero=2 precision.compute=bf16 precision.rounding=stochastic $muon
    dealt muon-3 3 parallel.zero=1 parallel.offload=host $muon
    dealt mean-2 2 parallel.zero=3 optimizer.ema=0.9 eval.weights=ema eval.every=2 precision.compute=bf16
}

# Lanes dealt by hand, and anew between two steps: what was recorded of the old deal is recorded again.
deals() {
    export SIM_SEED=3
    three_steps
    dealt ranges 3 parallel.zero=1 parallel.deal=1,0,3
    dealt turns 3 parallel.zero=3 parallel.deal=0,1,3 precision.compute=bf16
    dealt pipes 4 parallel.pipeline=2 parallel.deal=3,1
    dealt server 3 parallel.zero=1 server.count=1 precision.compute=bf16
    dealt servers 4 parallel.zero=3 server.count=2
    steps=45
    sed -i 's/^steps = 3/steps = 45/; s/^every = 3/every = 0/' base.ini
    dealt speed 2 batch.global=8 batch.lanes=8 parallel.balance=auto "run.faults=drag@1x100000,twice@1x100000:1"
    grep -q '"kind":"balance"' node0/runs/speed/events.jsonl || fail "the lanes did not move"
}

# Pipelines: the schedules, alone and beside each other. A GPU queues steps ahead, and its links are streams.
pipelines() {
    export SIM_SEED=6
    three_steps
    dealt gpipe 3 parallel.pipeline=3 parallel.schedule=gpipe
    dealt 1f1b 2 parallel.pipeline=2
    dealt interleaved 2 parallel.pipeline=2 parallel.schedule=interleaved parallel.chunks=2
    dealt zb-h1 4 parallel.pipeline=4 parallel.schedule=zb-h1
    dealt zb-v 2 parallel.pipeline=2 parallel.schedule=zb-v parallel.chunks=2 parallel.recompute=block
    dealt 1f1b-2 4 parallel.pipeline=2 parallel.zero=2
    dealt zb-h1-3 4 parallel.pipeline=2 parallel.schedule=zb-h1 parallel.zero=3
    dealt gpipe-1 6 parallel.pipeline=2 parallel.schedule=gpipe parallel.zero=1
    dealt bf16 4 parallel.pipeline=2 parallel.schedule=zb-v parallel.chunks=2 parallel.zero=3 precision.compute=bf16 \
        precision.rounding=stochastic
    dealt bf16-h1 3 parallel.pipeline=3 parallel.schedule=zb-h1 precision.compute=bf16 precision.rounding=stochastic
    dealt fp16 4 parallel.pipeline=2 parallel.zero=1 precision.compute=fp16
    dealt offload 2 parallel.pipeline=2 parallel.schedule=interleaved parallel.chunks=2 parallel.offload=nvme \
        precision.compute=fp16
}

# Ranks that share layers, alone, beside each other and in pipelines.
tensor() {
    export SIM_SEED=8
    three_steps
    sed -i 's/^heads = .*/heads = 4/' base.ini
    printf '[parallel]\nslices = 4\n' >>base.ini
    dealt t2 2 parallel.tensor=2
    dealt t4 4 parallel.tensor=4 parallel.sequence=yes parallel.recompute=selective
    dealt t2-pipe 4 parallel.tensor=2 parallel.pipeline=2 parallel.schedule=zb-v parallel.chunks=2 parallel.sequence=yes
    bf16="precision.compute=bf16 precision.rounding=stochastic"
    dealt t2-zero-3 4 parallel.tensor=2 parallel.zero=3 parallel.sequence=yes $bf16
    dealt t4-offload 4 parallel.tensor=4 parallel.offload=nvme $bf16
    dealt t2-cube 8 parallel.tensor=2 parallel.pipeline=2 parallel.zero=2 $bf16
    dealt t4-h1 8 parallel.tensor=4 parallel.pipeline=2 parallel.schedule=zb-h1 parallel.sequence=yes \
        parallel.recompute=block $bf16
    fp16="precision.compute=fp16 precision.scale_window=2"
    dealt t2-zero-1 6 parallel.tensor=2 parallel.zero=1 $fp16
    dealt t2-loop 4 parallel.tensor=2 parallel.pipeline=2 parallel.schedule=interleaved parallel.chunks=2 $fp16
    dealt t4-gpipe 8 parallel.tensor=4 parallel.pipeline=2 parallel.schedule=gpipe parallel.sequence=yes $fp16
    dealt t2-muon 4 parallel.tensor=2 parallel.zero=1 optimizer.type=muon optimizer.lr=0.004
}

# A Llama whose heads are in groups, and which shares 17 rows unevenly.
tensor_llama() {
    export SIM_SEED=9
    three_steps
    sed -i -e 's/^heads = .*/type = llama\nheads = 8\nkv_heads = 4\nqk_norm = yes/' -e 's/^context = .*/context = 17/' \
        -e '/^dropout/d' base.ini
    printf '[parallel]\nslices = 4\n' >>base.ini
    dealt t2 2 parallel.tensor=2 parallel.sequence=yes data.documents=yes data.document_end=32
    dealt t4-bf16 4 parallel.tensor=4 precision.compute=bf16 model.tied=yes
    dealt t2-zero-2 4 parallel.tensor=2 parallel.zero=2 parallel.sequence=yes precision.compute=bf16 model.tied=yes
    dealt t2-pipe 4 parallel.tensor=2 parallel.pipeline=2 parallel.schedule=zb-h1 parallel.sequence=yes \
        precision.compute=fp16
}

# Ranks that share positions, each with one token slice or two, alone, beside each other, in pipelines, and with layers
# shared as well. Samples are several documents.
context() {
    export SIM_SEED=10
    three_steps
    sed -i 's/^heads = .*/heads = 4/' base.ini
    printf '[parallel]\nslices = 4\ntoken_slices = 4\n[data]\ndocuments = yes\ndocument_end = 32\n' >>base.ini
    dealt k4-d2 2 parallel.zero=1
    dealt c4 4 parallel.context=4 parallel.zero=2
    dealt c2-v 4 parallel.context=2 parallel.zero=3 parallel.pipeline=2 parallel.schedule=zb-v parallel.chunks=2
    bf16="precision.compute=bf16 precision.rounding=stochastic"
    dealt c2-d2 4 parallel.context=2 parallel.zero=3 parallel.recompute=block $bf16
    dealt c2-t2 4 parallel.context=2 parallel.zero=2 parallel.tensor=2 $bf16
    fp16="precision.compute=fp16 precision.scale_window=2"
    dealt c2-offload 2 parallel.context=2 parallel.zero=2 parallel.offload=yes $fp16
    dealt c2-cube 8 parallel.context=2 parallel.zero=2 parallel.tensor=2 parallel.pipeline=2 parallel.schedule=zb-h1 \
        $fp16
}

# A Llama whose 17 positions are shared unevenly.
context_llama() {
    export SIM_SEED=11
    three_steps
    sed -i -e 's/^heads = .*/type = llama\nheads = 8\nkv_heads = 4\nqk_norm = yes/' -e 's/^context = .*/context = 17/' \
        -e '/^dropout/d' base.ini
    printf '[parallel]\nslices = 4\ntoken_slices = 2\n' >>base.ini
    dealt c2 2 parallel.context=2 parallel.zero=2
    dealt c2-d2 4 parallel.context=2 parallel.zero=3 precision.compute=bf16 model.tied=yes
    dealt c2-t2 4 parallel.context=2 parallel.zero=2 parallel.tensor=2 precision.compute=fp16
}

# A Gemma: a window in two of three layers, angles of two kinds; ranks share layers, positions and 17 rows unevenly.
tensor_gemma() {
    export SIM_SEED=12
    three_steps
    sed -i -e 's/^heads = .*/type = gemma\nheads = 8\nkv_heads = 4\npattern = 2\nwindow = 5\nrope_factor = 8/' \
        -e 's/^layers = .*/layers = 3/' \
        -e 's/^context = .*/context = 17/' -e '/^dropout/d' base.ini
    printf '[parallel]\nslices = 4\n' >>base.ini
    dealt t2 2 parallel.tensor=2 parallel.sequence=yes
    dealt t2-pipe 4 parallel.tensor=2 parallel.pipeline=2 parallel.schedule=zb-h1 precision.compute=bf16
    printf 'token_slices = 2\n' >>base.ini
    dealt c2-t2 4 parallel.context=2 parallel.zero=2 parallel.tensor=2 precision.compute=fp16
}

try ranks
try deals
try pipelines
try tensor
try tensor_llama
try context
try context_llama
try tensor_gemma
finish
