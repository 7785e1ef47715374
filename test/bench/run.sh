#!/bin/sh
# test/bench/run.sh: what this machine does, as Markdown on standard output: GEMM beside oneDNN and OpenBLAS (where they
# are installed), every operation against measured peaks, whole steps. Run it on a quiet machine: make bench
# >test/bench/results/NAME.md
set -eu
build=${1:-build}
# OpenBLAS uses an old processor's kernels on one that it does not know: it is told which to use, whatever the
# environment says
if grep -q avx512f /proc/cpuinfo; then export OPENBLAS_CORETYPE=SkylakeX; fi
bin=${2:-./lockstep}
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
echo "# $cpu, $(nproc) cores, $(date -u +%Y-%m-%d)"
echo
echo "lockstep: $($bin version | head -n 1); load before: $(cut -d' ' -f1-3 /proc/loadavg); $(${CC:-gcc} --version | head -n 1)"

section() {
    printf '\n## %s\n\n```\n' "$1"
    shift
    "$@" || echo "(ended with $?)"
    echo '```'
}

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
step() { # name, INI lines
    printf '%b' "$2" >"$dir/$1.ini"
    printf '%-28s ' "$1"
    "$bin" bench "$dir/$1.ini" --steps "$3"
}
first_step() { # process start to the first finished step of the default run, milliseconds
    printf '[run]\ndir=%s/runs\nsteps=200\n[log]\nevery=1\n[data]\ntrain=%s/t-train-*.bin\nval=%s/t-val-*.bin\n[pack]\noutput=%s/t\n' "$dir" "$dir" "$dir" "$dir" >"$dir/first.ini"
    "$bin" pack config.ini "$dir/first.ini" >/dev/null
    start=$(date +%s%N)
    "$bin" config.ini "$dir/first.ini" | while read -r word rest; do
        [ "$word" != step ] || { echo "$((($(date +%s%N) - start) / 1000000)) ms"; break; }
    done
}
steps() {
    step gpt-baby-fp32 '[model]\nlayers=4\nheads=4\nembed=128\ncontext=64\n[batch]\nglobal=12\nmicro=12\n' 100
    step gpt-baby-bf16 '[model]\nlayers=4\nheads=4\nembed=128\ncontext=64\n[batch]\nglobal=12\nmicro=12\n[precision]\ncompute=bf16\n' 100
    step default '' 50
    step gpt-6x384-12x256 '[model]\nlayers=6\nheads=6\nembed=384\ncontext=256\n[batch]\nglobal=12\nmicro=12\n' 6
    step gpt2-124m-4x64 '[model]\nlayers=12\nheads=12\nembed=768\nvocab=50257\ncontext=64\n[batch]\nglobal=4\nmicro=4\n' 6
    step gpt2-124m-4x256 '[model]\nlayers=12\nheads=12\nembed=768\nvocab=50257\ncontext=256\n[batch]\nglobal=4\nmicro=4\n' 4
}
section "GEMM, one thread" "$build/bench_gemm" 1
section "GEMM, two threads" "$build/bench_gemm" 2
section "Operations" "$build/test/test_ops" --bench
section "Rows on demand: 26 tables of a million rows, Zipf ids, one thread" "$build/bench_rows"
section "Process start to first finished step of the default run (limit 1000 ms)" first_step
section "Whole training steps (FP32 unless named)" steps
