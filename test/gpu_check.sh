#!/bin/sh
# test/gpu_check.sh BUILD BIN: what a machine with a GPU has to show, in under 8 minutes, as one Markdown page on standard output: the instructions
# against the models that CI uses, every operation, the trainer against the CPU's, NCCL ranks, compute-sanitizer, figures. It needs the CUDA toolkit and
# nothing from a network. With a build over the simulator it runs too, which is how the script itself is tested; that page is worth nothing else.
set -u
build=$1 bin=$2
top=$PWD
case $build in /*) ;; *) build=$top/$build ;; esac
case $bin in /*) ;; *) bin=$top/$bin ;; esac
work=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-gpu.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 143' HUP INT TERM
failed=0

smi() { nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -n 1; }
name=$(smi name)
echo "# ${name:-no nvidia-smi here}, $(date -u +%Y-%m-%d)"
echo
echo "lockstep: $("$bin" version); driver: $(smi driver_version); CUDA: $("${NVCC:-nvcc}" --version 2>/dev/null | sed -n 's/.*release \([^,]*\),.*/\1/p'); clocks (SM, memory): $(smi clocks.max.sm), $(smi clocks.max.mem); power limit: $(smi power.limit)"

# check TITLE SECONDS COMMAND...: its closing line; and its end, where it failed.
check() {
    title=$1 limit=$2
    shift 2
    start=$(date +%s)
    timeout "$limit" "$@" >"$work/out" 2>&1
    rc=$?
    verdict=$(grep -E '^\[  (PASSED|FAILED)|^[0-9]+ passed|ERROR SUMMARY' "$work/out" | tail -n 1)
    [ $rc -eq 0 ] && [ -n "$verdict" ] && ! grep -q '^skipped: ' "$work/out" || { failed=$((failed + 1)); verdict="FAILED ($rc): $verdict"; }
    printf '| %s | %s | %s s |\n' "$title" "$verdict" "$(($(date +%s) - start))"
    case $verdict in FAILED*) { echo "--- $title"; tail -n 40 "$work/out"; } >&2 ;; esac
}

# show TITLE SECONDS COMMAND...: all that it prints.
show() {
    printf '\n## %s\n\n```\n' "$1"
    limit=$2
    shift 2
    timeout "$limit" "$@" 2>&1 || { echo "(ended with $?)"; failed=$((failed + 1)); }
    echo '```'
}

printf '\n## Checks\n\n| what | result | time |\n|---|---|---|\n'
check "instructions against their models" 60 "$build/test/sim/test_wrappers"
check "operations" 120 "$build/test/test_ops" --device cuda
check "matrix products and their plans" 60 "$build/test/test_cublaslt"
check "trainer against the CPU's and PyTorch's" 120 "$build/test/test_device"
check "1 to 4 NCCL ranks on the device" 120 env LOCKSTEP_BIN="$bin" sh test/gpu_ranks.sh
if command -v compute-sanitizer >/dev/null; then
    check "memory (compute-sanitizer memcheck)" 90 compute-sanitizer --error-exitcode 9 "$build/test/test_ops" --device cuda 'smallest'
    check "races (compute-sanitizer racecheck)" 90 compute-sanitizer --tool racecheck --error-exitcode 9 "$build/test/test_ops" --device cuda 'odd tail'
fi

step() { # name, INI lines, steps
    printf '%b' "[device]\nbackend=cuda\n$2" >"$work/$1.ini"
    printf '%-28s ' "$1"
    "$bin" bench "$work/$1.ini" --steps "$3" | tail -n 1
}
steps() {
    gpt2='[model]\nlayers=12\nheads=12\nembed=768\nvocab=50257\ncontext=1024\n[batch]\nglobal=64\nmicro=8\n'
    step gpt-baby-bf16 '[model]\nlayers=4\nheads=4\nembed=128\ncontext=64\n[batch]\nglobal=12\nmicro=12\n[precision]\ncompute=bf16\n' 100
    [ -z "${name:-}" ] || step gpt2-124m-bf16 "$gpt2[precision]\ncompute=bf16\n" 20
    [ -z "${name:-}" ] || step gpt2-124m-fp16 "$gpt2[precision]\ncompute=fp16\n" 20
    [ -z "${name:-}" ] || step gpt2-124m-bf16-no-graph "$gpt2[precision]\ncompute=bf16\n[device]\ngraph=no\n" 20
}
show "Operations" 120 "$build/test/test_ops" --bench --device cuda
show "Whole training steps" 180 steps
echo
echo "$failed failed"
[ "$failed" -eq 0 ]
