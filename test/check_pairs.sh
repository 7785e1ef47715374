#!/bin/sh
# test/check_pairs.sh: products = bf16-pairs in more shapes and layouts than test_pairs.sh has: more than one block of
# k, tile of attention and chunk of a digest, odd sizes, windows, chunks of the head, many ranks and threads; each with
# every vector width. A row is a model; one hash for each type.
. test/support/pairs.sh

sed -i '/^\[model\]/,/^\[data\]/{/^\[data\]/!d};/^\[parallel\]/,/^\[log\]/{/^\[log\]/!d}' base.ini

# row NAME SETTING...: deals.NAME, if it is there, says in which layouts it runs besides.
row() {
    deals=deals.$1
    shift
    for compute in precision.compute=fp32 "precision.compute=bf16 precision.rounding=stochastic"; do
        trained one "$@" $compute
        for threads in 3 8; do same_widths "$@" $compute; done
        [ -e "$deals" ] || continue
        while read -r deal ranks more; do
            trained "$deal" "$@" $compute device.ranks="$ranks" reduce.bucket_mb=0.02 $more
            as_one "$deal"
        done <"$deals"
    done
}

# Sums of k that are longer than a block of 384, in blocks, halves of blocks and odd rests; more positions than a tile
# of attention.
cat >deals.large <<'DEALS'
two 2 parallel.zero=2
three 3 parallel.zero=3
offloaded 3 parallel.zero=1 parallel.offload=yes
stages 3 parallel.pipeline=3 parallel.schedule=zb-h1
DEALS
large="model.embed=136 model.context=70 model.vocab=259 model.heads=4 run.steps=2 batch.global=8 batch.micro=2 batch.lanes=4"
large() { row large $large model.layers=1 model.dropout=0.1; }

cat >deals.slices <<'DEALS'
shares 4 parallel.tensor=4
rows 4 parallel.tensor=2 parallel.sequence=yes parallel.zero=3 parallel.recompute=block
cube 8 parallel.tensor=2 parallel.pipeline=2 parallel.schedule=1f1b parallel.recompute=selective
v 4 parallel.tensor=2 parallel.pipeline=2 parallel.schedule=zb-v
DEALS
slices() { row slices $large model.layers=2 model.dropout=0.1 parallel.slices=4; }

cat >deals.positions <<'DEALS'
one-more 2 parallel.zero=3
contexts 2 parallel.context=2 parallel.zero=2
both 4 parallel.context=2 parallel.tensor=2 parallel.zero=3
DEALS
positions() {
    row positions model.type=llama model.heads=8 model.kv_heads=4 model.layers=1 model.embed=48 model.context=40 \
        model.vocab=259 parallel.slices=4 parallel.token_slices=4 run.steps=2
}

# An odd element is left of every sum.
odd() {
    row odd model.heads=3 model.embed=21 model.context=17 model.vocab=257 model.layers=1 batch.global=12 batch.micro=3 \
        batch.lanes=4
}
chunks() {
    row chunks model.head_chunks=3 model.heads=1 model.embed=33 model.context=19 model.vocab=259 model.layers=1 \
        batch.micro=3 batch.lanes=2 model.dropout=0.1
}
long() {
    row long model.heads=1 model.layers=1 model.embed=24 model.context=300 model.vocab=259 batch.global=4 \
        batch.micro=1 run.steps=2 model.dropout=0.1
}
gemma() {
    row gemma model.type=gemma model.kv_heads=4 model.heads=8 model.layers=3 model.embed=40 model.head_dim=6 \
        model.pattern=2 model.window=7 model.vocab=259 model.context=24 run.steps=2
}
adds() {
    row adds model.heads=2 model.layers=1 model.embed=32 model.context=24 model.vocab=259 batch.global=24 \
        batch.micro=1 batch.lanes=2 reduce.order=any parallel.recompute=block
}

for case in large slices positions odd chunks long gemma adds; do try $case; done
finish
