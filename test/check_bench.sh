#!/bin/sh
# test/check_bench.sh: the page of `make bench-cpu` (test/bench/cpu.sh), at sizes whose figures say nothing: every part
# prints what it should, with a PyTorch, without one, and beside one that is too slow to be fair; a script stands in for
# PyTorch. And those of other programs in test/bench.
. test/support/lib.sh
build=$(cd "$(dirname "$bin")" && pwd)
[ "$build" != "$top" ] || build=$top/build

# torch NAME GFLOPS: a python that says it has PyTorch, with matrix products that fast and steps of 20 s.
torch() {
    cat >"$1" <<END
#!/bin/sh
case "\$*" in
*--about*) printf 'about torch made up\nsgemm_gflops $2\n' ;;
*) printf 'ms 30000 10000 20000\npeak_mb 123.4\n' ;;
esac
END
    chmod +x "$1"
}
torch fast 1000000
torch slow 0.001

# page PYTHON PART...: also that it ended well.
page() {
    export PYTHON=$1
    shift
    cd "$top" || exit 1
    expect 0 sh test/bench/cpu.sh "$build" "$bin" quick "$@"
    grep -q '^(ended with' "$out" && fail "a part of the page failed"
}

# rows COUNT PATTERN: so many lines of the page match.
rows() {
    [ "$(grep -cE -e "$2" "$out")" -eq "$1" ] || fail "expected $1 lines like $2, found: $(grep -E -e "$2" "$out")"
}

a_page() {
    page "$work/fast"
    says "torch made up, its matrix product at 1000000 GFLOP/s" "no figures to be quoted"
    rows 10 '^## '
    rows 1 '^[0-9]+ threads? +triad [0-9.]+ GB/s, FMA [0-9.]+ GFLOP/s$'
    # its median is 20 s, of 32 tokens
    rows 4 '^[G6].* [0-9.]+ +1\.6 +[0-9.]+ +1\.[0-9]+ +[0-9.]+ +20000\.00 +[0-9.]+ +([0-9]+ %|-)$'
    awk '/^[G6].* 20000.00 / { n = /%$/ ? NF - 1 : NF; d = 20000 / $(n - 5) - $(n - 3); if (d < -0.006 || d > 0.006) exit 1 }' "$out" ||
        fail "a ratio is not that of the times beside it"
    [ "$(nproc)" = 1 ] || rows 2 '^[G6].* [0-9.]+ +[0-9.]+ +[0-9]+\.[0-9]{2}$'
    rows 4 '^[G6].* [0-9.]+ +[0-9.]+ +[0-9]+\.[0-9]{3} +[0-9.]+ +[0-9.]+$'
    rows 4 '^in pairs: [G6].*( +[0-9.]+){4} +20000\.00 +[0-9.]+ +1\.25$'
    rows 3 '^lockstep, recompute (none|selective|block) +[0-9.]+ +[0-9.]+ +[0-9.]+$'
    rows 2 '^PyTorch, .* 123\.4 +20000\.00$'
    says "a step: matrix products and attention by its whole time" "adamw " "layer_norm_backward "
    rows 16 '^(fp32|bf16) +(portable|avx2|avx512|neon) +threads [12] +([0-9a-f]{16}|\(not on this processor\))$'
    says "the same bits in every row of a type"
    for program in bench_gemm test/test_ops; do # which not every build makes
        [ -x "$build/$program" ] || says "($build/$program is not built)"
    done
    [ ! -x "$build/bench_gemm" ] || rows 2 '^dW fcproj [0-9]+x[0-9]+x[0-9]+( +[0-9.]+%?)+$'
    [ ! -x "$build/test/test_ops" ] || says "attention_forward " "cast 262144"
    rows 0 '^matmul .*: '
}

without_pytorch() {
    page false memory
    rows 1 '^\(no PyTorch here: nothing to compare with\)$'
    rows 3 '^lockstep, recompute '
    rows 0 '^PyTorch'
}

beside_a_slow_pytorch() {
    [ "$(uname -m)" = x86_64 ] || skip "the peak of this processor is not known"
    page "$work/slow" steps
    says "no fair PyTorch here: its matrix product runs at 0.001 GFLOP/s" "libopenblas0-openmp"
    rows 4 '^[G6].* [0-9.]+ +- +- +1\.[0-9]+ +[0-9.]+ +- +[0-9.]+ +([0-9]+ %|-)$'
}

errors() {
    export PYTHON=false
    expect 64 sh "$top/test/bench/cpu.sh" "$build" "$bin" quick nothing
    says "cpu.sh: nothing: no such part"
    expect 1 sh "$top/test/bench/cpu.sh" "$build" false quick threads memory
    says "## Threads" "## Memory" "(ended with 1)"
}

# A step on a GPU of paper (test/bench/predict.c): the operations are those of the real trainer, and their times add up.
a_step_on_paper() {
    [ -x "$build/predict" ] || skip "$build/predict is not built: make bench-programs"
    settings paper model.layers=2 model.heads=2 model.embed=64 model.vocab=300 model.context=96 batch.global=12 \
        batch.micro=2 batch.lanes=2 \
        precision.compute=bf16
    expect 0 "$build/predict" h100 paper.ini
    says "Predicted, not measured: a step of 1152 tokens on one h100: "
    rows 1 '^\| attention_forward 2x96x64x2 bf16 \| 12 \|'
    rows 2 '^\| add [0-9]+ fp32 \| [0-9]+ \|'
    rows 1 '^\| matmul 192x384x64 bf16 tb \| 6 \|'
    awk -F '|' '/^\| [a-z]/ && $2 !~ /operation| all / { ms += $4 } $2 == " all " { all = $4 } END { exit !(all > 0 && ms <= all + 0.05 && ms > 0.9 * all) }' "$out" ||
        fail "the times of the operations are not that of the step"
    mv "$out" h100
    expect 0 "$build/predict" --products 600 h200 paper.ini
    says "on one h200"
    printf 'forward 90 0 0 0 64 1000\nkeys 90 0 0 0 160 2000\nqueries 90 0 0 0 112 1500\nforward 80 0 0 0 64 1\n' \
        >counts
    expect 0 "$build/predict" --attention counts h100 paper.ini
    ! cmp -s "$out" h100 || fail "the counts of attention change nothing"
    sed -i 1d counts
    expect 65 "$build/predict" --attention counts h100 paper.ini
    says "expected a line each of forward, keys and queries for sm 90, found 2"
    expect 64 "$build/predict" rtx paper.ini
}

# The planner by published tables (test/bench/planner_check.c): errors only, what is skipped, what is wrong by its line.
published_tables() {
    [ -x "$build/planner_check" ] || skip "$build/planner_check is not built: make bench-programs"
    head=billions,gpus,global_batch,micro_batch,hidden,heads,layers,sequence,tensor,data,pipeline,ms
    mkdir -p tables
    printf '%s\n1.5,16,128,2,2048,16,24,1024,2,8,1,1000\n1.5,16,128,2,2048,16,24,1024,4,4,1,1500\n' $head \
        >tables/my-vtrain-multi.csv
    printf 'a,b\n' >tables/other.csv
    expect 0 "$build/planner_check" --sheet "$top/test/bench/foreign.sheet" --rows tables
    says "skipped: other.csv" "choice of 2, vtrain-multi, 1.5B on 16, batch 128: 0.00 % slower than the best"
    rows 1 '^vtrain-multi +2 +[0-9.]+ % +[0-9.]+ % +[-+][0-9.]+ %$'
    rows 2 '^vtrain-multi row [12], 1.5B on 16, batch 128: [-+][0-9.]+ %$'
    expect 74 "$build/planner_check" --sheet nowhere tables
    expect 0 "$build/planner_check" --sheet mine.sheet --fit tables
    says "constants fitted to all:"
    expect 0 "$build/planner_check" --sheet mine.sheet tables
    echo 1.5,17 >>tables/my-vtrain-multi.csv
    expect 65 "$build/planner_check" tables
    says "tables/my-vtrain-multi.csv:4: 2 fields: expected 12, as in the head"
    rm -r tables
    expect 74 "$build/planner_check" tables
    expect 64 "$build/planner_check" --rows
}

# Text, timed (test/bench/sample.py): with nobody to compare with, it says so and times lockstep.
text() {
    command -v python3 >/dev/null || skip "no python3"
    export LLAMA_CPP=
    expect 0 python3 "$top/test/bench/sample.py" --bin "$bin" --quick --only lockstep,llama,none
    says "# Writing text, GPT-2 124M in FP32" "quick: a tiny model, no figures to be quoted" \
        "## A prompt of 8 tokens, 4 new ones"
    says "(llama is left out: LLAMA_CPP names no checkout" "(none is left out: no such name)"
    rows 1 '^lockstep +[0-9.]+ +[0-9.]+ +([0-9]+ %|-) +[0-9.]+ +[0-9.]+ +[0-9]+ % +[0-9]+ %$'
    if [ -x "$build/bench_read" ]; then rows 1 '^bound +13\.3 MB of weights .* at [0-9.]+ GB/s'; fi
    [ ! -x "$build/bench_read" ] || expect 0 "$build/bench_read" 2 8 3
    [ ! -x "$build/bench_read" ] || rows 4 '^2 threads, [1248] streams each: best [0-9.]+ GB/s, median [0-9.]+ GB/s$'
    if [ -x "$build/bench_blocks" ]; then
        expect 0 "$build/bench_blocks" "$top/test/golden/gpt-weights.safetensors" 1 2
        rows 1 '^\| gpt-weights.safetensors \| zstd 2 \| [0-9.]+ \| 1\.[0-9]+ \| [0-9]+ \| [0-9]+ \| [0-9]+ \|$'
        expect 64 "$build/bench_blocks"
    fi
    printf '#!/bin/sh\necho no memory; exit 3\n' >broken
    chmod +x broken
    expect 1 python3 "$top/test/bench/sample.py" --bin ./broken --quick --only lockstep
    says "sample.py: " "broken gpt2.ini: 3: no memory"
}

# A disk, and a walk over an array in a file there.
spill() {
    [ -x "$build/bench_spill" ] || skip "$build/bench_spill is not built: make bench-programs"
    expect 64 "$build/bench_spill"
    dd if=/dev/zero of=direct bs=4096 count=1 oflag=direct 2>/dev/null || skip "no O_DIRECT in $PWD"
    expect 0 "$build/bench_spill" . 10 2 3 2
    rows 2 '^round [12]: bound [0-9]+ MB/s, walk [0-9]+ MB/s$'
    rows 1 '^2 threads, 3 windows: bound [0-9]+ MB/s, walk [0-9]+ MB/s, [0-9.]+ of it$'
}

# The convolutions of a net, in products of FP32 and of pairs, the latter with both types of storage.
nets() {
    [ -x "$build/test/test_ops" ] || skip "$build/test/test_ops is not built: make tests"
    expect 0 "$build/test/test_ops" --device cpu --bench --scale 64 resnet20
    rows 1 '^resnet20, batch 1, fp32: time, and share of [0-9]+ GFLOP/s of FMA$'
    expect 0 "$build/test/test_ops" --device cpu --bench --pairs --scale 64 resnet20
    rows 1 '^resnet20, batch 1, fp32: time, and share of [0-9]+ GFLOP/s of (FMA|BF16 pairs)$'
    rows 1 '^resnet20, batch 1, bf16: time, and share of [0-9]+ GFLOP/s of (FMA|BF16 pairs)$'
    rows 2 '^convolutions( +[0-9.]+ ms +[0-9.]+ %){4}$'
    expect 64 "$build/test/test_ops" --pairs
}

# Collectives beside gloo's: a row for each call and size, with both where there is a PyTorch; a script stands in for it.
beside_gloo() {
    [ -x "$build/bench_comm" ] || skip "$build/bench_comm is not built: make bench-programs"
    cat >gloo <<'END'
#!/bin/sh
case "$1" in
-c) exit 0 ;;
*) printf 'torch made up, %s ranks\n' "$2"
   for op in all_reduce reduce_scatter all_to_all message; do
       for kb in 1 8; do printf '%s %s KB 1000000.0 us 0.001 GB/s   as ever\n' $op $kb; done
   done ;;
esac
END
    chmod +x gloo
    cd "$top" || exit 1
    for part in bandwidth links; do
        tables=$([ $part = bandwidth ] && echo 2 || echo 1)
        PYTHON=$work/gloo expect 0 sh test/bench/ranks.sh "$build" "$bin" quick $part
        rows $tables '^torch made up, [24] ranks$'
        rows $((8 * tables)) '^(all_reduce|reduce_scatter|all_to_all|message) +[18] KB +[0-9.]+ +[0-9.]+ +1000000.0 +0.001 +[0-9.]+$'
        PYTHON=false expect 0 sh test/bench/ranks.sh "$build" "$bin" quick $part
        rows $tables '^\(no PyTorch in false here: no gloo to compare with\)$'
        rows $((8 * tables)) '^(all_reduce|reduce_scatter|all_to_all|message) +[18] KB +[0-9.]+ +[0-9.]+$'
    done
}

# Where codes begin to pay (test/bench/breakeven.sh), at sizes whose figures say nothing.
break_even() {
    [ "$(id -u)" -eq 0 ] || skip "needs root, for network namespaces"
    cd "$top" || exit 1
    LOCKSTEP_BIN=$bin sh test/bench/breakeven.sh "$bin" quick fp16,none >"$out" 2>&1
    code=$?
    ! grep -q '^skipped' "$out" || skip "$(sed -n 's/^skipped: //p' "$out")"
    [ $code -eq 0 ] || fail "it ended with $code"
    rows 1 '^2 nodes, fp16 to owners, none back$'
    rows 2 '^\| [0-9]+ \| [0-9]+ \| [0-9.]+ \| [0-9.]+ \| -?[0-9.]+ \|$'
    rows 1 '^break-even: plan says .*; measured .* \(cables: (tbf|lossy)\)$'
}

try a_page
try without_pytorch
try beside_a_slow_pytorch
try errors
try a_step_on_paper
try published_tables
try text
try spill
try nets
try beside_gloo
try break_even
finish
