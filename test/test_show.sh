#!/bin/sh
# test/test_show.sh: `lockstep plan --graph` from the outside: its whole text in several layouts, which is in
# test/golden/graph.txt, that its bytes are those that `lockstep plan` counts, and what it says of mistakes.
#
#   sh test/test_show.sh write >test/golden/graph.txt     after a look at the difference
. test/support/lib.sh
printf '[model]\nlayers = 3\nheads = 4\nembed = 64\ncontext = 32\n[batch]\nglobal = 16\nmicro = 2\nlanes = 4\n[device]\nbackend = cpu\n' >base.ini
printf '[model]\ntype = mlp\ninputs = 20\nhidden = 16 12 16\nclasses = 6\nactivation = gelu\n[batch]\nglobal = 16\nmicro = 8\n[device]\nbackend = cpu\n' >mlp.ini
printf '[model]\ntype = llama\nlayers = 3\nheads = 4\nkv_heads = 2\nembed = 64\nhidden = 192\ncontext = 32\n[batch]\nglobal = 16\nmicro = 2\nlanes = 4\n[device]\nbackend = cpu\n' >llama.ini

sed 's/^hidden.*/hidden = 16 32 16 48 16 64 16 80 16/' mlp.ini >deep.ini

# graph BLOCK FILE SETTING...: the graph of the block, "all": of every block, in $out.
graph() {
    block=$1 file=$2
    shift 2
    settings graph "$@"
    [ "$block" != all ] || block=
    expect 0 "$bin" plan "$file" graph.ini --graph $block
}

# The block, the file and the settings of each text.
cases() {
    cat <<'CASES'
layer base.ini
layer llama.ini
all base.ini device.ranks=2 parallel.pipeline=2 parallel.schedule=zb-h1 precision.compute=bf16
1 base.ini model.dropout=0.1 parallel.recompute=selective precision.compute=fp16
layer base.ini parallel.recompute=block
layer base.ini device.ranks=2 parallel.slices=4 parallel.tensor=2 precision.compute=bf16
all llama.ini model.qk_norm=yes model.bias=all device.ranks=2 parallel.slices=2 parallel.tensor=2 parallel.sequence=yes precision.compute=bf16
layer llama.ini device.ranks=2 parallel.slices=2 parallel.token_slices=2 parallel.context=2 parallel.zero=2
layer base.ini parallel.slices=4 parallel.token_slices=2 parallel.recompute=selective
all mlp.ini parallel.slices=4
8 deep.ini
CASES
}

texts() {
    cases | while read -r block file more; do
        echo "=== $block of $file $more"
        graph "$block" "$file" $more
        cat "$out"
    done
}

if [ "${1:-}" = write ]; then
    name=write
    texts
    exit
fi

whole_text() {
    texts >found
    same "$top/test/golden/graph.txt" found "the texts, as test/golden/graph.txt has them and as they are,"
    awk 'length($0) > 100 && !/^===/ { bad = 1 } END { exit bad }' found || fail "expected at most 100 columns"
}

# activations ROW: of the plan's row: the most over the ranks, and the least.
activations() { awk '$1 == "activations" { print $2; print $8 ~ /^[0-9]+$/ ? $8 : $2; exit }' "$out"; }

# What the blocks keep for one micro-batch on one rank is, all together, what is kept; and all is what the plan has.
bytes_are_the_plans() {
    while read -r file more; do
        graph all "$file" $more
        awk '/^[a-z]+: blocks? / { blocks = 0; for (i = 3; i <= NF; i++) blocks += split($i, x, "-") == 2 ? x[2] - x[1] + 1 : 1 }
             /^  bytes: kept / { kept += blocks * $3; held = $8 > held ? $8 : held; scratch = $11 > scratch ? $11 : scratch }
             /^memory of rank / { end = 1 }
             end { is[$1] = $2 }
             END { exit !(is["kept"] == kept && is["held"] == held + 0 && is["scratch"] == scratch + 0 && is["other"] > 0 &&
                          is["activations"] == is["kept"] + is["held"] + is["scratch"] + is["other"]) }' "$out" || fail "$file $more: the bytes do not add up"
        awk '$1 == "activations" { print $2 }' "$out" >one
        expect 0 "$bin" plan "$file" graph.ini
        [ "$(cat one)" = "$(activations | head -n 1)" ] ||
            fail "$file $more: the graph has $(cat one) bytes of activations"
    done <<'PLANS'
base.ini
base.ini precision.compute=bf16 model.dropout=0.1
base.ini parallel.recompute=selective
llama.ini parallel.recompute=block
llama.ini parallel.slices=2 parallel.token_slices=2
mlp.ini
PLANS
}

# Of a pipeline each rank is shown whose blocks no rank before it has, with its own memory.
ranks_are_named() {
    graph all base.ini device.ranks=2 parallel.pipeline=2
    says "rank 0 of 2, the first one that has these blocks" "rank 1 of 2, the first one that has these blocks"
    awk '$1 == "activations" { print $2 }' "$out" | sort -n >both
    expect 0 "$bin" plan base.ini graph.ini
    activations | sort -n >planned
    same planned both "activations of the two ranks, as the plan and as the graph have them,"
    graph layer base.ini device.ranks=2 parallel.pipeline=2
    [ "$(grep -c '^rank' "$out")" -eq 1 ] || fail "expected the first rank alone"
    graph head base.ini device.ranks=2 parallel.pipeline=2
    says "rank 1 of 2, the first one that has these blocks"
}

# A name or a number is a block, wherever it stands; a file is not.
blocks_are_found() {
    expect 0 "$bin" plan base.ini --graph 2
    says "layer: blocks 1-3"
    cp "$out" two
    for words in "--graph layer base.ini" "base.ini --graph 3" "--graph 1 base.ini -o model.layers=3"; do
        expect 0 "$bin" plan $words
        same two "$out" "graphs of one block ($words)"
    done
    expect 0 "$bin" plan --graph base.ini
    [ "$(grep -c '^[a-z]*: block' "$out")" -eq 3 ] || fail "expected all three forms"
}

mistakes() {
    for block in nonsense 5 -1 01 Layer; do
        case $block in -*) continue ;; esac
        expect 64 "$bin" plan base.ini --graph $block
        says "--graph $block: no such block; this model's are embedding (block 0), layer (blocks 1-3), head (block 4)."
    done
    expect 64 "$bin" plan base.ini --graph --draw
    says "--graph prints a model's blocks, --draw a pipeline's schedule: expected one of them"
    expect 64 "$bin" plan --graph layer
    says "expected an INI file"
    expect 78 "$bin" plan base.ini --graph layer -o device.ranks=2 -o parallel.pipeline=9
    expect 0 "$bin" plan --help
    says "--graph [BLOCK]"
}

try whole_text
try bytes_are_the_plans
try ranks_are_named
try blocks_are_found
try mistakes
finish
