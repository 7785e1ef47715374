#!/bin/sh
# test/bench/tensor.sh BIN [TURNS]: what it costs that ranks share layers, on this machine, as Markdown: slices on one
# rank, tensor ranks that add in a fixed order beside the transport's own, and what goes on the wire. Runs that are
# compared take turns; medians. Run it on a quiet machine.
. "$(dirname "$0")/turns.sh"

settings gpt2 '[model]\nlayers=12\nheads=12\nembed=768\ncontext=256\nvocab=50257\n[batch]\nglobal=4\nmicro=4\nlanes=1\n[device]\nthreads=2\n'
settings small '[model]\nlayers=6\nheads=8\nembed=384\ncontext=256\n[batch]\nglobal=4\nmicro=1\nlanes=4\n[device]\nthreads=1\n'

echo "## Slices on one rank, GPT-2 124M, 4 x 256 tokens, FP32, 2 threads"
echo
in_turn gpt2 4 one='[parallel]\nslices=1\n' two='[parallel]\nslices=2\n' four='[parallel]\nslices=4\n'
echo "| slices | ms of a step | / slices = 1 |"
echo "|---|---|---|"
for each in 1:one 2:two 4:four; do echo "| ${each%:*} | $(cat "$dir/${each#*:}") | $(ratio "${each#*:}" one) |"; done

echo
echo "## Ranks that share layers: 6 layers, 384 channels, 4 x 256 tokens in 4 lanes, one thread a rank, $(nproc) cores"
echo
echo "| ranks | type | sequence | fixed, ms | any, ms | fixed / any | as many data ranks, ms | one rank, ms |"
echo "|---|---|---|---|---|---|---|---|"
for n in 2 4; do
    for type in fp32 bf16; do
        for rows in no yes; do
            all="[parallel]\nslices=4\n[precision]\ncompute=$type\n[device]\n"
            shared="ranks=$n\n[parallel]\ntensor=$n\nsequence=$rows\n"
            in_turn small 4 fixed="$all$shared" any="$all$shared[reduce]\norder=any\n" data="${all}ranks=$n\n" \
                one="${all}ranks=1\n"
            echo "| $n | $type | $rows | $(cat "$dir/fixed") | $(cat "$dir/any") | $(ratio fixed any) | $(cat "$dir/data") | $(cat "$dir/one") |"
        done
    done
done

# Megatron's: 4 all-reduces of (N,C) a layer, each 2 (t-1) / t of its bytes, in the type of the activations (Korthikanti
# et al. 2022, section 4.2.2: the same with sequence parallelism, as all-gathers and reduce-scatters, of which its
# backward repeats two).
echo
echo "## On the wire, bytes a rank sends its tensor group in a step, by \`lockstep plan\`"
echo
echo "| ranks | type | sequence | plan | Megatron's layers | / |"
echo "|---|---|---|---|---|---|"
for n in 2 4; do
    for type in fp32:4 bf16:2; do
        for rows in no yes; do
            settings more "[parallel]\nslices=4\ntensor=$n\nsequence=$rows\n[precision]\ncompute=${type%:*}\n[device]\nranks=$n\n"
            "$bin" plan "$dir/small.ini" "$dir/more.ini" |
                awk -v n=$n -v e="${type#*:}" -v rows=$rows -v type="${type%:*}" '
                /tensor groups/ && !sent { sent = $3 / n }
                END {
                    usual = 4 * 256 * 384 * e * 6 * (rows == "yes" ? 4 * 2 + 2 : 4 * 2) * (n - 1) / n
                    printf "| %d | %s | %s | %d | %d | %.2f |\n", n, type, rows, sent, usual, sent / usual
                }'
        done
    done
done
