#!/bin/sh
# test/bench/cpu.sh BUILD BIN [quick] [part...]: how near a training step comes to what this machine's processor can do,
# and how it compares with PyTorch, as Markdown. Parts: machine steps threads bf16 pairs memory breakdown gemm
# operations hash (all of them). Runs that are compared take turns, $TURNS of them (5), each a process of its own; what
# is compared is the median of their medians. $PYTHON is the one that has PyTorch. `quick` is for tests: tiny shapes,
# one turn, no figures to be quoted. Run it on a quiet machine.
set -eu
export LC_ALL=C
build=${1:-build} bin=${2:-./lockstep}
[ $# -lt 2 ] || shift 2
quick=
if [ "${1:-}" = quick ]; then quick=yes && shift; fi
parts=${*:-machine steps threads bf16 pairs memory breakdown gemm operations hash}
turns=${TURNS:-$([ -n "$quick" ] && echo 1 || echo 5)}
python=${PYTHON:-/usr/bin/python3}
case $bin in /*) ;; *) bin=$PWD/$bin ;; esac
here=$(dirname "$0")
cores=$(nproc)
counts=$([ "$cores" = 1 ] || [ -n "$quick" ] || echo 1) # of threads, where all are not enough
counts="$counts $cores"
count=$([ "$turns" = 1 ] && echo "one turn" || echo "medians of $turns turns")
failed=0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 143' HUP INT TERM

median() { sort -g | awk '{ x[NR] = $1 } END { print (NR % 2) ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }

# --- what is run ------------------------------------------------------------------------------------------------------

shapes="124m-4x64 124m-4x256 124m-1x1024 small-12x256"

# Sizes of a shape, the steps of one turn, and how many times as fast as PyTorch it is to be.
shape() {
    case $1 in
    124m-4x64) set -- "GPT-2 124M, 4 x 64" 12 12 768 50257 64 4 8 1.25 ;;
    124m-4x256) set -- "GPT-2 124M, 4 x 256" 12 12 768 50257 256 4 4 1.15 ;;
    124m-1x1024) set -- "GPT-2 124M, 1 x 1024" 12 12 768 50257 1024 1 4 1.35 ;;
    small-12x256) set -- "6 layers 384 ch, 12 x 256" 6 6 384 256 256 12 10 1.30 ;;
    esac
    [ -z "$quick" ] || set -- "$1" 2 2 32 300 16 2 2 "$9"
    name=$1 layers=$2 heads=$3 embed=$4 vocab=$5 context=$6 batch=$7 steps=$8 wanted=$9
}

# A pause before every process, in which the machine comes to rest.
rest() { [ -n "$quick" ] || sleep 1; }

settings() { # shape, threads, more INI lines: writes run.ini
    shape "$1"
    cat >"$dir/run.ini" <<END
[device]
backend = cpu
ranks = 1
threads = $2
[model]
layers = $layers
heads = $heads
embed = $embed
vocab = $vocab
context = $context
[batch]
global = $batch
micro = $batch
END
    printf '%b' "${3:-}" >>"$dir/run.ini"
}

# ours SHAPE THREADS [INI lines]: the line of `lockstep bench` goes to the file `line`. A part of the page that can't
# have it ends.
ours() {
    settings "$@"
    rest
    "$bin" bench "$dir/run.ini" --steps "$steps" >"$dir/line" 2>&1 || { cat "$dir/line" >&2; exit 1; }
}
ms() { sed -n 's/.*steps: median \([0-9.]*\) ms.*/\1/p' "$dir/line"; }
gflops() { sed -n 's/.* \([0-9.]*\) GFLOP.s .*/\1/p' "$dir/line"; }
resident() { sed -n 's/.* resident at most \([0-9.]*\) MB$/\1/p' "$dir/line"; }

planned() { # name of what `lockstep plan` counts, in MB; of run.ini
    "$bin" plan "$dir/run.ini" | sed -n "s/^  $1  *\([0-9][0-9]*\)\( .*\)\{0,1\}$/\1/p" |
        awk '{ printf "%.1f", $1 / 1e6 }'
}

# profile THREADS: `lockstep bench step` of GPT-2 124M, 4 x 256, run once.
profile() {
    if [ ! -e "$dir/profile-$1" ]; then
        settings 124m-4x256 "$1"
        rest
        "$bin" bench step "$dir/run.ini" --steps "$steps" >"$dir/line" 2>&1 || { cat "$dir/line" >&2; exit 1; }
        mv "$dir/line" "$dir/profile-$1"
    fi
    cat "$dir/profile-$1"
}
fma() { profile "$1" | sed -n 's/^ceilings: .*FMA \([0-9.]*\) GFLOP.*/\1/p'; }
triad() { profile "$1" | sed -n 's/^ceilings: triad \([0-9.]*\) GB.*/\1/p'; }

# --- PyTorch ----------------------------------------------------------------------------------------------------------

# What PyTorch needs to show what it can do; set for it alone. Debian's, above all, is several times slower without.
at_its_best() {
    export OMP_NUM_THREADS="$cores"
    # It calls whatever libblas.so.3 there is. This OpenBLAS runs in PyTorch's own threads; another's threads would be
    # in their way.
    for each in /usr/lib/*/openblas-openmp; do
        [ ! -d "$each" ] || export LD_LIBRARY_PATH="$each${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    done
    if grep -q avx512f /proc/cpuinfo; then
        export OPENBLAS_CORETYPE=SkylakeX # OpenBLAS takes a processor newer than itself for an older one
        export ATEN_CPU_CAPABILITY=avx512 # PyTorch's own kernels are AVX2's unless it is told
    fi
}

# Else glibc gives a large tensor back to the kernel when it is freed, and the next one's pages are all cleared again.
keep_freed_memory() { export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=20000000000 MALLOC_TOP_PAD_=268435456; }

peer() { (at_its_best; keep_freed_memory; exec "$python" "$here/gpt.py" --threads "$cores" "$@") </dev/null; }
lean_peer() { (at_its_best; exec "$python" "$here/gpt.py" --threads "$cores" "$@") </dev/null; }

# has_peer: is there a PyTorch to compare with? The file `about` says which, or why not. A BLAS that is not for this
# processor, such as the one that Debian's PyTorch falls back to without libopenblas0-openmp, is known by its speed: it
# reaches a fifth or a twentieth of the peak.
has_peer() {
    if [ ! -e "$dir/about" ]; then
        peer --about >"$dir/said" 2>"$dir/why" || : >"$dir/said"
        sgemm=$(sed -n 's/^sgemm_gflops //p' "$dir/said")
        if [ -z "$sgemm" ]; then
            echo "(no PyTorch here: nothing to compare with)"
        elif echo "$sgemm $(fma "$cores")" | awk '{ exit !($1 < $2 / 3) }'; then
            echo "(no fair PyTorch here: its matrix product runs at $sgemm GFLOP/s, where FMA reach $(fma "$cores"); install libopenblas0-openmp)"
        else
            : >"$dir/fair"
            echo "$(sed -n 's/^about //p' "$dir/said"), its matrix product at $sgemm GFLOP/s"
        fi >"$dir/about"
    fi
    [ -e "$dir/fair" ]
}

# theirs [lean_peer|peer [OPTION...]]: what gpt.py says of the present shape goes to the file `theirs`, which is empty
# when it failed: the page goes on.
theirs() {
    rest
    run=${1:-peer}
    [ $# -eq 0 ] || shift
    "$run" --layers "$layers" --heads "$heads" --embed "$embed" --vocab "$vocab" --context "$context" --batch "$batch" \
        --steps "$steps" "$@" \
        >"$dir/theirs" 2>"$dir/why" || { : >"$dir/theirs"; echo "(PyTorch failed: $(tail -n 1 "$dir/why"))"; }
}
their_ms() { sed -n 's/^ms //p' "$dir/theirs" | tr ' ' '\n' | median; }
their_peak() { sed -n 's/^peak_mb //p' "$dir/theirs"; }

# --- parts ------------------------------------------------------------------------------------------------------------

machine() {
    sed -n 's/^model name[^:]*: /processor   /p' /proc/cpuinfo | head -n 1
    echo "cores       $cores"
    echo "lockstep    $("$bin" version | head -n 1)"
    echo "load before $(cut -d' ' -f1-3 /proc/loadavg)"
    echo "compiler    $(${CC:-gcc} --version | head -n 1)"
    for n in $counts; do profile "$n" >/dev/null; done
    for n in $counts; do echo "$n $(triad "$n") $(fma "$n")"; done |
        awk '{ printf "%-11s triad %.1f GB/s, FMA %.1f GFLOP/s\n", $1 ($1 == 1 ? " thread" : " threads"), $2, $3 }'
    has_peer || :
    echo "peer        $(cat "$dir/about")"
    [ -z "$quick" ] || echo "quick: tiny shapes whatever their names say, $count: no figures to be quoted"
}

steps() {
    has_peer || cat "$dir/about"
    profile "$cores" >/dev/null
    echo "# FP32, threads: $cores; $count; wanted is the ratio to reach. GFLOP/s and their share of what FMA reach: matrix products and the causal"
    echo "# half of attention, by the time of the whole step"
    echo "# shape                      tok/s  PyTorch   ratio  wanted        ms   PyTorch  GFLOP/s  of peak"
    for each in $shapes; do
        for file in ms gflops their; do : >"$dir/$file"; done
        for turn in $(seq "$turns"); do
            ours "$each" "$cores"
            ms >>"$dir/ms"
            gflops >>"$dir/gflops"
            has_peer || continue
            theirs
            [ ! -s "$dir/theirs" ] || their_ms >>"$dir/their"
        done
        their=$([ ! -s "$dir/their" ] || median <"$dir/their")
        echo "$name|$((batch * context))|$(median <"$dir/ms")|${their:-0}|$wanted|$(median <"$dir/gflops")|$(fma "$cores")" | awk -F'|' '{
            ratio = $4 > 0 ? sprintf("%.2f", $4 / $3) : "-"
            rate = $4 > 0 ? sprintf("%.1f", 1000 * $2 / $4) : "-"
            time = $4 > 0 ? sprintf("%.2f", $4) : "-"
            share = $7 > 0 ? sprintf("%.0f %%", 100 * $6 / $7) : "-"
            printf "%-25s %8.1f %8s %7s %7s %9.2f %9s %8.1f %8s\n", $1, 1000 * $2 / $3, rate, ratio, $5, $3, time, $6, share }'
    done
}

threads() {
    [ "$cores" != 1 ] || { echo "(one core)"; return 0; }
    echo "# FP32, ms of a step; $count"
    echo "# shape                     1 thread  $cores threads  speed-up"
    for each in 124m-4x256 small-12x256; do
        : >"$dir/one" && : >"$dir/all"
        for turn in $(seq "$turns"); do
            ours "$each" 1
            ms >>"$dir/one"
            ours "$each" "$cores"
            ms >>"$dir/all"
        done
        echo "$name|$(median <"$dir/one")|$(median <"$dir/all")" |
            awk -F'|' '{ printf "%-25s %10.2f %10.2f %9.2f\n", $1, $2, $3, $2 / $3 }'
    done
}

bf16() {
    echo "# threads: $cores; ms of a step; $count; activations as planned, MB"
    echo "# shape                       fp32     bf16  bf16/fp32  activations: fp32     bf16"
    for each in $shapes; do
        for type in fp32 bf16; do
            settings "$each" "$cores" "[precision]\ncompute = $type\n"
            planned activations >"$dir/planned-$type"
            : >"$dir/$type"
        done
        for turn in $(seq "$turns"); do
            for type in fp32 bf16; do
                ours "$each" "$cores" "[precision]\ncompute = $type\n"
                ms >>"$dir/$type"
            done
        done
        echo "$name|$(median <"$dir/fp32")|$(median <"$dir/bf16")|$(cat "$dir/planned-fp32")|$(cat "$dir/planned-bf16")" |
            awk -F'|' '{ printf "%-25s %8.2f %8.2f %10.3f %18.1f %8.1f\n", $1, $2, $3, $3 / $2, $4, $5 }'
    done
}

# A row of the table of pairs: lines of INI, or nothing for PyTorch.
ways="fp32 bf16 pairs-bf16 pairs-fp32"
way() {
    case $1 in
    pairs-*) printf '[precision]\\ncompute = %s\\nproducts = bf16-pairs\\n' "${1#pairs-}" ;;
    *) printf '[precision]\\ncompute = %s\\n' "$1" ;;
    esac
}

pairs() {
    has_peer || cat "$dir/about"
    grep -q avx512_bf16 /proc/cpuinfo || echo "(this processor has no AVX512_BF16: pairs are multiplied by FMA)"
    echo "# threads: $cores; ms of a step; $count; PyTorch: BF16 autocast, compiled; ratio: its time over that of pairs with BF16 storage"
    echo "# shape                                 fp32     bf16  pairs, bf16  pairs, fp32   PyTorch   ratio  wanted"
    for each in $shapes; do
        for file in $ways their; do : >"$dir/$file"; done
        for turn in $(seq "$turns"); do
            for one in $ways; do
                ours "$each" "$cores" "$(way "$one")"
                ms >>"$dir/$one"
            done
            has_peer || continue
            theirs peer --bf16 --compile
            [ ! -s "$dir/theirs" ] || their_ms >>"$dir/their"
        done
        their=$([ ! -s "$dir/their" ] || median <"$dir/their")
        for one in $ways; do median <"$dir/$one"; done | tr '\n' ' ' | awk -v name="$name" -v their="${their:-0}" '{
            time = their > 0 ? sprintf("%.2f", their) : "-"
            ratio = their > 0 ? sprintf("%.2f", their / $3) : "-"
            printf "in pairs: %-25s %9.2f %8.2f %12.2f %12.2f %9s %7s %7s\n", name, $1, $2, $3, $4, time, ratio, "1.25" }'
    done
}

memory() {
    has_peer || cat "$dir/about"
    shape 124m-4x256
    echo "# $name tokens, FP32, threads: $cores; memory in MB: the most that was resident at once, and what was planned of it"
    echo "# program                        resident  planned   ms a step"
    row='%-32s %8.1f %8s %11.2f\n'
    for what in none selective block; do
        ours 124m-4x256 "$cores" "[parallel]\nrecompute = $what\n"
        printf "$row" "lockstep, recompute $what" "$(resident)" "$(planned all)" "$(ms)"
    done
    has_peer || return 0
    theirs
    [ ! -s "$dir/theirs" ] || printf "$row" "PyTorch, as it was timed" "$(their_peak)" "" "$(their_ms)"
    theirs lean_peer
    [ ! -s "$dir/theirs" ] || printf "$row" "PyTorch, malloc left to itself" "$(their_peak)" "" "$(their_ms)"
}

breakdown() { profile "$cores"; }

# One that the makefile's targets make, but not all of them.
built() { [ -x "$build/$1" ] || { echo "($build/$1 is not built)"; return 1; }; }

gemm() {
    built bench_gemm || return 0
    if grep -q avx512f /proc/cpuinfo; then export OPENBLAS_CORETYPE=SkylakeX; fi # as above
    for n in $counts; do "$build/bench_gemm" "$n" ${quick:+tiny} || exit 1; done
}

# What memory bounds, and attention; products are above.
operations() {
    built test/test_ops || return 0
    "$build/test/test_ops" --device cpu --bench ${quick:+--scale 64} >"$dir/operations" ||
        { cat "$dir/operations"; exit 1; }
    grep -v '^matmul ' "$dir/operations"
}

hash_settings() {
    cat <<END
[run]
dir = $dir/runs
steps = 3
[device]
backend = cpu
ranks = 1
[model]
layers = 2
heads = 2
embed = 36
context = 13
[data]
train = $dir/t-train-*.bin
val = ""
[pack]
input = $dir/text
output = $dir/t
[batch]
global = 4
micro = 2
lanes = 2
[schedule]
warmup = 2
[eval]
every = 0
[checkpoint]
every = 3
keep_best = no
[sample]
tokens = 0
END
}

# hash_of TYPE WIDTH THREADS: of the weights after those steps; nothing where the processor lacks the width.
hash_of() {
    printf '[run]\nname = %s-%s-%s\n[precision]\ncompute = %s\n[device]\nsimd = %s\nthreads = %s\n' "$1" "$2" "$3" \
        "$1" "$2" "$3" >"$dir/of.ini"
    code=0
    "$bin" "$dir/hash.ini" "$dir/of.ini" >"$dir/line" 2>&1 || code=$?
    [ $code -ne 69 ] || return 0
    [ $code -eq 0 ] && "$bin" hash "$dir/runs/$1-$2-$3/ckpt/step-00000003" | cut -d' ' -f2
}

hash() {
    hash_settings >"$dir/hash.ini"
    seq 2000 >"$dir/text" # a text that is the same everywhere
    "$bin" pack "$dir/hash.ini" >/dev/null || exit 1
    echo "# a small GPT after 3 steps"
    for type in fp32 bf16; do
        for width in portable avx2 avx512 neon; do
            for n in 1 2; do
                found=$(hash_of $type $width $n) || { cat "$dir/line"; exit 1; }
                echo "$type $width $n ${found:-(not on this processor)}"
            done
        done
    done >"$dir/hashes"
    awk '{ type = $1; width = $2; n = $3; sub(/^[^ ]* [^ ]* [^ ]* /, "")
           printf "%-5s %-9s threads %-3d %s\n", type, width, n, $0
           if ($0 ~ /^[0-9a-f]+$/) { if (!(type in first)) first[type] = $0; if ($0 != first[type]) other = 1 } }
         END { print other ? "THE BITS DIFFER" : "the same bits in every row of a type"; exit other }' "$dir/hashes"
}

# A part has a shell of its own: one that ends early takes nothing else with it.
section() {
    printf '\n## %s\n\n```\n' "$1"
    shift
    ("$@") 2>&1 || { echo "(ended with $?)"; failed=1; }
    echo '```'
}
echo "# The training step on a CPU, $(date -u +%Y-%m-%d)"
for part in $parts; do
    case $part in
    machine) section "Machine" machine ;;
    steps) section "Whole steps, beside PyTorch" steps ;;
    threads) section "Threads" threads ;;
    bf16) section "FP32 and BF16 storage" bf16 ;;
    pairs) section "Products of BF16 pairs, beside PyTorch in BF16" pairs ;;
    memory) section "Memory" memory ;;
    breakdown) section "Where the time of a step goes: GPT-2 124M, 4 x 256" breakdown ;;
    gemm) section "Matrix products" gemm ;;
    operations) section "Operations: attention, and what memory bounds" operations ;;
    hash) section "Hashes, whatever the threads and the vector width" hash ;;
    *) echo "cpu.sh: $part: no such part" >&2 && exit 64 ;;
    esac
done
exit $failed
