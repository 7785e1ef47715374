#!/bin/sh
# test/gpu_check.sh BUILD BIN: what a machine with a GPU has to show, as one Markdown page on standard output, in under
# 8 minutes: the instructions against the models that CI uses, figures, every operation, the trainer against the CPU's,
# NCCL ranks, compute-sanitizer. Figures come before what takes long. It needs nothing from a network. `make gpu-check`
# builds what it runs, `make gpu-kit` puts it into a folder for a machine that can't build. Ends with 69 where there is
# no GPU, and with 1 where something failed or had no time.
#
#   CUDA_VISIBLE_DEVICES=2   which GPU; the first otherwise
#   NCCL_LIBRARY=FILE        libnccl.so.2, where it is not found by itself
#   GPU_CHECK_S=460          seconds for all of it, of which each part has a share: what comes too late is left out, and
#                            the page names it
#   GPU_CHECK=short          a little of everything: how test/check_sim_runs.sh tests this script, over the simulator
set -u
export LC_ALL=C CUDA_DEVICE_ORDER=PCI_BUS_ID
build=$1 bin=$2 top=$PWD
case $build in /*) ;; *) build=$top/$build ;; esac
case $bin in /*) ;; *) bin=$top/$bin ;; esac
ops=$build/test/test_ops
[ -x "$ops" ] && [ -x "$bin" ] || { echo "gpu-check: $ops and $bin are not both there: make gpu-check builds them" \
    >&2; exit 1; }
about=$("$ops" --about --device cuda 2>&1) || { echo "gpu-check: no GPU was found: ${about#test_ops: }" >&2; exit 69; }
work=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-gpu.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 143' HUP INT TERM
failed=0 late=0 absent=0
whole=${GPU_CHECK_S:-460}
until=$(($(date +%s) + whole))

# --- what all of it is about ------------------------------------------------------------------------------------------

named() { echo "$about" | sed -n "s/^$1: //p"; }
name=$(named device | sed 's/^cuda:[0-9]* //')
gpu=${CUDA_VISIBLE_DEVICES:-0}
case $name in simulator*) real= ;; *) real=yes ;; esac
smi() {  # FIELD: what nvidia-smi says of this GPU, in a word
    said=$([ -z "$real" ] || nvidia-smi -i "${gpu%%,*}" --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -n 1)
    echo "${said:-unknown}"
}
cat <<END
# $name, $(date -u +%Y-%m-%d)

| | |
|---|---|
| lockstep | $("$bin" version | sed -n "1s/^lockstep //p") |
| device | $(named about) |
| driver | $(smi driver_version) |
| toolkit | CUDA $("${NVCC:-nvcc}" --version 2>/dev/null | sed -n 's/.*release \([^,]*\),.*/\1/p') |
| products | $(named library) |
| clocks | at most $(smi clocks.max.sm) (SM), $(smi clocks.max.mem) (memory); power limit $(smi power.limit) |
| host | $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, Linux $(uname -r) |
END
[ -n "$real" ] || printf '\nThe device is a simulator: no figure here says anything.\n'

# --- how things are run -----------------------------------------------------------------------------------------------

# within SHARE: $left are the seconds of so many hundredths of the whole time, as far as they are left. The shares add
# up to 100. It fails when there are too few to begin.
within() {
    left=$((until - $(date +%s)))
    [ $left -ge 5 ] || return 1
    share=$((whole * $1 / 100))
    [ $left -lt $share ] || left=$share
    [ $left -ge 10 ] || left=10
}

# run COMMAND...: into $work/out, for at most $left seconds; $rc says how it ended.
run() {
    timeout -k 5 "$left" "$@" >"$work/out" 2>&1 </dev/null
    rc=$?
    [ $rc -ne 124 ] || echo "(stopped after $left s)" >>"$work/out"
}

# went_wrong TITLE: its end is kept for the page's.
went_wrong() {
    failed=$((failed + 1))
    {
        printf '\n### %s\n\n```\n' "$1"
        { grep -E 'ERROR|FAILED|failed' "$work/out" | head -n 20; echo ...; tail -n 20 "$work/out"; } | cut -c 1-300
        echo '```'
    } >>"$work/failures"
}

# check TITLE SHARE COMMAND...: a row with its closing line. What skips something has not shown it.
check() {
    title=$1
    within "$2" || { late=$((late + 1)); echo "| $title | left out: no time | |"; return; }
    shift 2
    start=$(date +%s)
    run "$@"
    verdict=$(grep -E '^\[  (PASSED|FAILED)|^[0-9]+ passed|(ERROR|RACECHECK) SUMMARY' "$work/out" | tail -n 1 |
        sed 's/^=* *//')
    with=$(sed -n 's/^with: /; /p' "$work/out" | tail -n 1)
    if [ $rc -ne 0 ] || [ -z "$verdict" ] || grep -qE '^skipped: |: skipped, |^\[  SKIPPED' "$work/out"; then
        went_wrong "$title"
        verdict="FAILED ($rc): $(grep -hE '^skipped: |: skipped, ' "$work/out" | head -n 1)$verdict"
    fi
    printf '| %s | %s | %s s |\n' "$title" "$(echo "$verdict$with" | tr '|' '/')" "$(($(date +%s) - start))"
}

# sanitize TITLE TOOL ROWS: these operations under compute-sanitizer, which executes them many times slower. Our kernels
# only: those of cuBLASLt are not ours to mend.
sanitize() {
    [ -n "$sanitizer" ] || { absent=$((absent + 1)); echo "| $1 | left out: $why | |"; return; }
    check "$1" 3 "$sanitizer" --tool "$2" $ours --error-exitcode 9 "$ops" --device cuda --once "$3"
}

# settings INI: a run's, in $work/step.ini.
settings() { printf '%b' "[run]\ndir=$work/runs\n[device]\nbackend=cuda\nranks=1\n$1" >"$work/step.ini"; }

# step NAME STEPS INI: a line of the table of whole steps.
step() {
    printf '%-28s ' "$1"
    within 4 || { late=$((late + 1)); echo "left out: no time"; return; }
    settings "$3"
    run "$bin" bench "$work/step.ini" --steps "$2"
    if [ $rc -eq 0 ]; then tail -n 1 "$work/out"
    else echo "FAILED ($rc): $(grep '^lockstep: ' "$work/out" | head -n 1)" && went_wrong "$1"
    fi
}

# --- the page ---------------------------------------------------------------------------------------------------------

rows='' tests='' cases='' scale='' few=5 many=20
gpt2='[model]\nlayers=12\nheads=12\nembed=768\nvocab=50257\ncontext=1024\n[batch]\nglobal=64\nmicro=8\n[precision]\n'
baby='[model]\nlayers=4\nheads=4\nembed=128\ncontext=64\n[batch]\nglobal=12\nmicro=12\n[precision]\n'
if [ "${GPU_CHECK:-}" = short ]; then
    rows='--once smallest' tests='recordings*' cases=two_ranks scale='--scale 512' few=1 many=1
    gpt2='[model]\nlayers=1\nheads=1\nembed=16\nvocab=256\ncontext=8\n[batch]\nglobal=2\nmicro=1\n[precision]\n' \
        baby=$gpt2
fi
large='[model]\nlayers=12\nheads=12\nembed=768\nvocab=50257\ncontext=1024\n[batch]\nglobal=64\nmicro=64\nlanes=1\n[precision]\n'
[ "${GPU_CHECK:-}" != short ] || large=$gpt2
sanitizer='' why='it is not on PATH or with nvcc, or in CUDA_HOME'
for at in "$(command -v compute-sanitizer)" "$(dirname "${NVCC:-nvcc}")/compute-sanitizer" \
    "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer"; do
    [ -n "$sanitizer" ] || [ ! -f "$at" ] || [ ! -x "$at" ] || sanitizer=$at
done
[ -n "$real" ] || sanitizer='' why='it watches real devices'
ours='' # how this version is told which kernels are ours
if [ -n "$sanitizer" ]; then
    known=$("$sanitizer" --help 2>&1)
    case $known in
    *--kernel-regex*) ours='--kernel-regex kns=_kernel' ;;
    *--kernel-name*) ours='--kernel-name kernel_substring=_kernel' ;;
    *--filter*) ours='--filter kns=_kernel' ;;
    esac
fi

# part TITLE SHARE COMMAND...: a section of what a command prints.
part() {
    title=$1
    printf '\n## %s\n\n```\n' "$title"
    if within "$2"; then
        shift 2
        run "$@"
        cat "$work/out"
        [ $rc -eq 0 ] || { echo "FAILED ($rc)"; went_wrong "$title"; }
    else
        late=$((late + 1))
        echo "left out: no time"
    fi
    echo '```'
}

printf '\n## Checks before figures\n\n| what | result | time |\n|---|---|---|\n'
check "instructions against their models" 2 "$build/test/sim/test_wrappers"
check "cuBLASLt and its plans" 6 "$build/test/test_cublaslt"

part Operations 13 "$ops" --bench --device cuda $scale
printf '\n## Whole training steps\n\n```\n'
step gpt2-124m-64-bf16 $many "${large}compute=bf16\n"
step gpt2-124m-64-bf16-no-graph $many "${large}compute=bf16\n[device]\ngraph=no\n"
step gpt2-124m-bf16 $many "${gpt2}compute=bf16\n"
step gpt2-124m-bf16-no-graph $many "${gpt2}compute=bf16\n[device]\ngraph=no\n"
step gpt2-124m-fp16 $many "${gpt2}compute=fp16\n"
step gpt2-124m-fp32 $few "${gpt2}compute=fp32\n"
step gpt-baby-bf16 $((5 * many)) "${baby}compute=bf16\n"
echo '```'
settings "plans=$work/plans\n${large}compute=bf16\n"
part "Matrix products, measured" 10 "$bin" tune "$work/step.ini"
printf '\nWith these plans:\n\n```\n'
step gpt2-124m-64-bf16-tuned $many "plans=$work/plans\n${large}compute=bf16\n"
echo '```'
settings "${large}compute=bf16\n"
# Its ceilings are products of 8192 x 8192 x 8192: nothing for a simulator.
[ -z "$real" ] || part "Where the time of a step goes" 5 "$bin" bench step "$work/step.ini" --steps "$few"

printf '\n## Checks\n\n| what | result | time |\n|---|---|---|\n'
check "operations" 10 "$ops" --device cuda $rows
check "trainer against the CPU's and PyTorch's" 8 "$build/test/test_device" $tests
check "1 to 4 NCCL ranks on the device" 5 env LOCKSTEP_BIN="$bin" NCCL_SOCKET_IFNAME=lo sh test/gpu_ranks.sh $cases
sanitize "memory (compute-sanitizer memcheck)" memcheck smallest
sanitize "races (compute-sanitizer racecheck)" racecheck odd
sanitize "barriers (compute-sanitizer synccheck)" synccheck odd
printf '\nAfterwards: %s (SM), %s (memory), %s C, %s.\n' "$(smi clocks.sm)" "$(smi clocks.mem)" \
    "$(smi temperature.gpu)" \
    "$(smi power.draw)"
[ ! -s "$work/failures" ] || { printf '\n## What failed\n'; cat "$work/failures"; }
printf '\n%s failed, %s left out for want of time, %s for want of a tool\n' $failed $late $absent
[ $failed -eq 0 ] && [ $late -eq 0 ]
