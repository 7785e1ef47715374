#!/bin/sh
# test/check_bench.sh: the page of `make bench-cpu` (test/bench/cpu.sh), at sizes whose figures say nothing: every part prints what it should, with
# a PyTorch, without one, and beside one that is too slow to be fair. A script stands in for PyTorch.
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
rows() { [ "$(grep -cE -e "$2" "$out")" -eq "$1" ] || fail "expected $1 lines like $2, found: $(grep -E -e "$2" "$out")"; }

a_page() {
    page "$work/fast"
    says "torch made up, its matrix product at 1000000 GFLOP/s" "no figures to be quoted"
    rows 9 '^## '
    rows 1 '^[0-9]+ threads? +triad [0-9.]+ GB/s, FMA [0-9.]+ GFLOP/s$'
    # its median is 20 s, of 32 tokens
    rows 4 '^[G6].* [0-9.]+ +1\.6 +[0-9.]+ +1\.[0-9]+ +[0-9.]+ +20000\.00 +[0-9.]+ +([0-9]+ %|-)$'
    awk '/ 20000.00 / { n = /%$/ ? NF - 1 : NF; d = 20000 / $(n - 5) - $(n - 3); if (d < -0.006 || d > 0.006) exit 1 }' "$out" ||
        fail "a ratio is not that of the times beside it"
    [ "$(nproc)" = 1 ] || rows 2 '^[G6].* [0-9.]+ +[0-9.]+ +[0-9]+\.[0-9]{2}$'
    rows 4 '^[G6].* [0-9.]+ +[0-9.]+ +[0-9]+\.[0-9]{3} +[0-9.]+ +[0-9.]+$'
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

try a_page
try without_pytorch
try beside_a_slow_pytorch
try errors
finish
