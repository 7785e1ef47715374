#!/bin/sh
# test/bench/context.sh BIN [TURNS]: what it costs that ranks share positions, on this machine, as Markdown: token
# slices on one rank, context ranks beside as many data ranks, what goes on the wire, and memory for long texts. Runs
# that are compared take turns; medians. Run it on a quiet machine.
. "$(dirname "$0")/turns.sh"

settings gpt2 '[model]\nlayers=12\nheads=12\nembed=768\ncontext=1024\nvocab=50257\n[batch]\nglobal=1\nmicro=1\nlanes=1\n[device]\nthreads=2\n'
settings small '[model]\nlayers=6\nheads=8\nembed=384\ncontext=1024\n[batch]\nglobal=4\nmicro=1\nlanes=4\n[device]\nthreads=1\n'
settings long '[model]\ntype=llama\nlayers=16\nheads=32\nkv_heads=8\nembed=2048\nhidden=8192\nvocab=128256\ncontext=32768\n[batch]\nglobal=1\nmicro=1\nlanes=1\n[precision]\ncompute=bf16\n'

# planned SHAPE TEXT: a plan.
planned() {
    settings more "$2"
    "$bin" plan "$dir/$1.ini" "$dir/more.ini"
}

echo "## Token slices on one rank, GPT-2 124M, 1 x 1024 tokens, FP32, 2 threads"
echo
in_turn gpt2 4 one='[parallel]\nslices=4\n' two='[parallel]\nslices=4\ntoken_slices=2\n' \
    four='[parallel]\nslices=4\ntoken_slices=4\n'
echo "| token slices | ms of a step | / one | bytes planned |"
echo "|---|---|---|---|"
for each in 1:one 2:two 4:four; do
    bytes=$(planned gpt2 "[parallel]\nslices=4\ntoken_slices=${each%:*}\n" | awk '$1 == "all" { print $2 }')
    echo "| ${each%:*} | $(cat "$dir/${each#*:}") | $(ratio "${each#*:}" one) | $bytes |"
done

echo
echo "## Ranks that share positions: 6 layers, 384 channels, 4 x 1024 tokens in 4 lanes, one thread a rank, $(nproc) cores"
echo
echo "| ranks | type | context, ms | as many data ranks (zero = 2), ms | context / data | one rank, ms | bytes to context groups, a rank |"
echo "|---|---|---|---|---|---|---|"
for n in 2 4; do
    for type in fp32 bf16; do
        all="[parallel]\nslices=4\ntoken_slices=4\nzero=2\n[precision]\ncompute=$type\n[device]\n"
        in_turn small 4 context="${all}ranks=$n\n[parallel]\ncontext=$n\n" data="${all}ranks=$n\n" one="${all}ranks=1\n"
        sent=$(planned small "${all}ranks=$n\n[parallel]\ncontext=$n\n" |
            awk -v n=$n '/context groups/ && !sent { sent = $3 / n } END { print sent }')
        echo "| $n | $type | $(cat "$dir/context") | $(cat "$dir/data") | $(ratio context data) | $(cat "$dir/one") | $sent |"
    done
done

echo
echo "## Memory of a rank with most, by \`lockstep plan\`: a Llama of 1.5 G parameters, one text of 32,768 tokens, BF16, zero = 3"
echo
echo "| ranks | recompute | all, GB | activations, GB |"
echo "|---|---|---|---|"
for n in 1 2 4 8; do
    for again in none block; do
        planned long "[parallel]\nslices=8\ntoken_slices=8\ncontext=$n\nzero=3\nrecompute=$again\n[device]\nranks=$n\n" |
            awk -v n=$n -v again=$again '$1 == "activations" { some = $2 } $1 == "all" && !all { all = $2 } END { printf "| %d | %s | %.2f | %.2f |\n", n, again, all / 1e9, some / 1e9 }'
    done
done
