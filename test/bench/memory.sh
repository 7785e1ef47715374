#!/bin/sh
# test/bench/memory.sh [LOCKSTEP]: what a rank of GPT-2 774M holds in some layouts, by `lockstep plan`, beside what is
# published of PyTorch FSDP and Megatron-LM. Markdown on standard output; nothing is allocated. The rank with most of
# each is shown. Formulas are in awk below.
set -eu
bin=${1:-./lockstep} dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# planned RANKS RECOMPUTE INI-LINES: bytes of the rank with most, and of gradients
planned() {
    printf '[device]\nbackend = cpu\nranks = %s\n[batch]\nglobal = 32\nmicro = 4\nlanes = 8\n[precision]\ncompute = bf16\n[parallel]\nrecompute = %s\n%b' \
        "$1" "$2" "$3" >"$dir/layout.ini"
    "$bin" plan model/gpt/774m.ini "$dir/layout.ini" | awk '$1 == "gradients" { g = $2 } $1 == "all" { print $2, g; exit }'
}

# published N STAGES ZERO TENSOR SEQUENCE: "FSDP none, block | Megatron none, block" in GB, - where it has no such
# layout.
published() {
    awk -v n="$1" -v p="$2" -v zero="$3" -v t="$4" -v rows="$5" 'BEGIN {
        L = 36; h = 1280; a = 20; v = 50304; s = 1024; b = 4; d = n / p / t
        layer = 12 * h * h + 13 * h; ends = (v + s) * h + 2 * h; P = L * layer + ends
        kept = s * b * h * ((rows == "yes" ? 10 / t : 10) + 24 / t + 5 * a * s / h / t); input = 2 * s * b * h; head = 4 * s * b * h * (1 + v / h / t)
        stage = p == 1 ? P : L / p * layer + (v + s) * h         # the first stage, which holds p micro-batches of L / p layers
        if (rows == "yes") input /= t
        state = (zero == 0 ? 18 : 6 + 12 / d) / t  # all but vectors is divided
        if (p == 1 && zero == 3) printf "%.2f | %.2f | ", f(n, kept * L), f(n, input * L + kept)
        else printf "- | - | "
        if (zero <= 1) printf "%.2f | %.2f\n", (state * stage + kept * L + (p == 1) * head) / 1e9, (state * stage + input * L + kept + (p == 1) * head) / 1e9
        else print "- | -"
    }
    function f(n, activations) { return (16 * P / n + 2 * 2 * (v + s) * h + activations + head) / 1e9 }'
}

# row NAME RANKS STAGES ZERO MORE [TENSOR SEQUENCE]
row() {
    more="[parallel]\npipeline = $3\nzero = $4\n$5"
    [ $# -lt 6 ] || more="${more}slices = 4\ntensor = $6\nsequence = $7\n"
    none=$(planned "$2" none "$more") block=$(planned "$2" block "$more")
    printf '| %s ' "$1"
    echo "$none $block" | awk '{ printf "| %.2f | %.2f | %.2f ", $1 / 1e9, $2 / 1e9, $3 / 1e9 }'
    case $1 in
    *zb-v) echo "| - | - | - | - |" ;;
    *) echo "| $(published "$2" "$3" "$4" "${6:-1}" "${7:-no}") |" ;;
    esac
}

echo "GB of a rank ($("$bin" version | head -n 1)), micro-batches of 4 x 1024 tokens, 8 lanes of one, BF16"
for n in 2 4 8; do
    printf '\n| %s ranks | lockstep | of it gradients | recompute block | FSDP full shard | checkpointed | Megatron | recompute full |\n|---|---|---|---|---|---|---|---|\n' "$n"
    for zero in 0 1 2 3; do row "data $n, zero $zero" "$n" 1 "$zero" ''; done
    row "pipeline $n, 1f1b" "$n" "$n" 0 ''
    case $n in
    2) row "pipeline 2, zb-v" 2 2 0 'schedule = zb-v\n' ;;
    *) row "pipeline $((n / 2)) x data 2, zero 1" "$n" $((n / 2)) 1 '' ;;
    esac
    case $n in
    2) rest="" by=2 ;;
    4) rest="" by=4 ;;
    8) rest=" x data 2" by=4 ;;
    esac
    for rows in no yes; do
        row "tensor $by$rest, zero 1$([ $rows = no ] || echo ', sequence')" "$n" 1 1 '' $by $rows
    done
    [ $n -eq 2 ] || row "tensor 2 x pipeline $((n / 2)), sequence" "$n" $((n / 2)) 0 '' 2 yes
done
