#!/bin/sh
# test/test_search.sh: `plan --search` from the outside, with a sheet and with what `bench --save` has measured here; and
# `failures`.
. test/support/lib.sh
printf '[model]\nlayers = 4\nheads = 4\nembed = 32\ncontext = 16\nvocab = 131\n[batch]\nglobal = 16\nmicro = 1\nlanes = 8\n[device]\nthreads = 1\nranks = 2\n[cluster]\ntimeout = 20\n' >base.ini

# The INI lines of the n-th layout, as they are printed.
pasted() { awk -v n="$1" '$1 == n && /tensor/ { on = 1; next } on && /^       / { print substr($0, 8); next } on && /^$/ { exit }' "$out"; }

sheets_predict() {
    expect 0 "$bin" plan --search --costs h100 --cluster 2x4 base.ini
    says "search  8 ranks on 2 nodes: " "this INI" "from    the sheet h100: all figures are published ones, none was measured here" \
        "layers stay whole" "before the next: " " ms +- "
    pasted 1 >pasted.ini
    grep -q '^zero = ' pasted.ini || fail "expected lines to paste"
    expect 0 "$bin" plan --cluster 2x4 base.ini pasted.ini
    says "ranks   8 on 2 nodes"
    expect 0 "$bin" plan --search --costs h100 --cluster 2x4 --free slices,micro base.ini
    expect 0 "$bin" plan --search --costs a100 --cluster 2x4 --json base.ini
    says '"costs":"a100","sheet":true,"fits":true,"found":[' '"given":true'
}

# One rank's own operations are all in its table; of three ranks, what two and all of them say to each other is, too.
tables_predict() {
    expect 0 "$bin" bench step base.ini -o device.ranks=1 --steps 2 --save here.costs
    says "shapes of operations are in here.costs"
    head -2 here.costs | grep -q '^device cpu' || fail "expected the device"
    # of two steps some mean is known to no more than a percent
    awk '$1 == "op" && $8 > 0.01 { n++ } END { exit !n }' here.costs || fail "no time has a spread"
    # two steps of 16 micro-batches, of 4 layers each, the steps before them left out
    awk '$2 == "attention_forward" && $4 == "1x16x32x4" { n += $(NF - 1) == 128 } $2 == "embedding_forward" { n += $(NF - 1) == 32 }
         $2 == "step_decide" { n += $(NF - 1) == 2 } $1 == "peak" || $1 == "copy" { n += $NF == "spread" && $(NF - 1) == 0.05 }
         END { exit n != 7 }' here.costs || fail "expected the calls of two steps, three peaks and the memory's rate"
    # the same run finds all of its own operations there, by shape and options
    expect 0 "$bin" plan --costs here.costs -o device.ranks=1 base.ini
    says " operations looked up, 100 % are in the table, 0 % are scaled from near shapes, 0 % are a roofline's"
    grep -v '^end ' here.costs >before.costs
    expect 0 "$bin" plan --search --costs here.costs -o device.ranks=1 -o parallel.recompute=block base.ini
    says "from    here.costs: measured on "
    expect 0 "$bin" bench comm base.ini -o device.ranks=3 --save here.costs
    says "times of messages are in here.costs" "beside          a second of all_gather costs a rank "
    for each in 'op matmul' 'comm all_to_all node 2' 'comm all_to_all node 3' 'comm merge node 2' 'comm message node 2'; do
        grep -q "^$each " here.costs || fail "expected $each in the table of both"
    done
    grep -Ev '^(comm|beside|end) ' here.costs | cmp -s - before.costs || fail "the operations are as they were"
    # of a buffer a sum of two ranks sends all, a message too, and all others half: 1 kB, and four times as much each time
    awk '$1 == "comm" && $4 == 2 { b = ($2 == "all_reduce" || $2 == "message" ? 1024 : 512) * 4 ^ n[$2]++; bad += $5 != b || $3 != "node" }
         END { for (k in n) kinds++; exit bad || kinds != 6 }' here.costs || fail "expected each size of each call once: $(grep '^comm' here.costs)"
    grep '^comm ' here.costs >comm.costs
    expect 0 "$bin" bench step base.ini -o device.ranks=1 --steps 1 --save here.costs
    grep '^comm ' here.costs | cmp -s - comm.costs || fail "the times of messages are as they were"
    awk 'NR == FNR { was[$1 == "op" ? $2 " " $3 " " $4 " " $5 : NR]; next } $1 == "op" { now++; bad += !($2 " " $3 " " $4 " " $5 in was) }
         $2 == "step_decide" { bad += $(NF - 1) != 1 } END { exit bad || !now }' before.costs here.costs || fail "each operation has the line of the newest bench alone"
    [ "$(grep -c '^op ' here.costs)" = "$(grep -c '^op ' before.costs)" ] || fail "lines are replaced, not added"
    expect 0 "$bin" plan --search --costs here.costs base.ini
    says "search  2 ranks on 1 node"
    head -c 700 here.costs >part.costs
    expect 65 "$bin" plan --search --costs part.costs base.ini
    sed 's/^device .*/device other/' here.costs >other.costs
    expect 78 "$bin" bench step base.ini -o device.ranks=1 --steps 1 --save other.costs
    says "save into a file of its own"
}

# A run whose state is in a file measures the disk, too, and then a search looks at that for all.
the_disk_is_measured() {
    expect 0 "$bin" bench step base.ini -o device.ranks=1 -o parallel.offload=nvme --steps 2 --save disk.costs
    says "ceilings: triad" ", disk "
    grep -q '^disk [0-9.e+]* bytes$' disk.costs && grep -q '^disk_copy [0-9.e+]* bytes/s [0-9.]* spread$' disk.costs ||
        fail "expected the disk's room and rate in the table"
    free=$(df -P -B1 . | awk 'NR == 2 { print $4 }')
    awk -v free="$free" '$1 == "disk" { exit !($2 > 0.5 * free && $2 < 2 * free) }' disk.costs ||
        fail "the disk has $free free bytes, and the table says $(grep '^disk ' disk.costs)"
    expect 0 "$bin" plan --costs disk.costs -o device.ranks=1 -o parallel.offload=nvme base.ini
    says "offload nvme   this INI" "     of the disk: "
    expect 0 "$bin" plan --search --json --costs disk.costs -o device.ranks=1 base.ini
    says '"offload":"none"' '"offload":"nvme"' '"disk":0,'
    ! grep -q '"offload":"host"' "$out" || fail "nothing is known of the host"
}

# The fastest layout's step, drawn: its pipeline's ranks, as long as the table says.
steps_are_drawn() {
    search="plan --search --costs h100 --cluster 4x8 base.ini"
    for file in step.json step.svg; do expect 0 "$bin" $search --trace $file; done
    ms=$(sed -n 's/^ *\([0-9.]*\) ms +- .*/\1/p' "$out" | head -n 1)
    grep -q "a step of $ms ms, simulated" step.json && grep -q "a step of $ms ms, simulated</text>" step.svg ||
        fail "the search says $ms ms, the drawings $(grep -ho 'a step of [0-9.]* ms' step.json step.svg)"
    [ "$(tail -n 1 step.json)" = "]}" ] && [ "$(tail -n 1 step.svg)" = "</svg>" ] || fail "a drawing has no end"
    awk -F '[:,}]' -v ms="$ms" '/"ph":"X"/ { for (i = 1; i < NF; i++) { if ($i == "\"ts\"") at = $(i + 1)
            if ($i == "\"dur\"") end = at + $(i + 1) } if (end > last) last = end }
        END { exit !(last > 990 * ms && last < 1010 * ms) }' step.json || fail "the last event is not at $ms ms"
    expect 64 "$bin" $search --trace step.png
    says "ends in .json" "or in .svg"
    expect 74 "$bin" $search --trace no/such/place.svg
    expect 64 "$bin" plan base.ini --trace step.svg
    says "go with --search"
}

failures_are_told() {
    printf '[cluster]\nnodes = 2048\n[failures]\ngpu_mtbf_h = 79000\nsave_s = 5\n' >cluster.ini
    expect 0 "$bin" failures cluster.ini
    says "cluster 2048 nodes of 8 devices, 0 spare: a failure every 4.82 h" "waiting for a spare" "best "
    expect 0 "$bin" failures cluster.ini --trace days.svg
    expect 0 "$bin" failures cluster.ini --trace days.json
    grep -q '2048 nodes of 8 devices, 0 spare, saves every 600 s: 54 days, simulated</text>' days.svg &&
        [ "$(tail -n 1 days.svg)" = "</svg>" ] && [ "$(tail -n 1 days.json)" = "]}" ] || fail "a drawing is not whole"
    expect 64 "$bin" failures cluster.ini --trace days.png
    says "ends in .json"
    expect 74 "$bin" failures cluster.ini --trace no/such/days.svg
    expect 78 "$bin" failures base.ini
    says "no such key"
    expect 64 "$bin" failures
}

# One command: the step, what is left of its pace when parts fail, and how often to save. What `failures` says of the
# same rules is the same.
clusters_are_simulated() {
    printf '[cluster]\nnodes = 16\ndevices = 8\nracks = 4\nspares = 2\ncard_devices = 2\n[links]\nrack_gb_s = 50\n[stragglers]\nshare = 0.05\nslower = 2\n' >calm.ini
    { cat calm.ini; printf '[failures]\ngpu_mtbf_h = 5000\nsave_gb_s = 0.001\nseed = 3\n'; } >cluster.ini
    own="base.ini -o parallel.pipeline=4 -o parallel.slices=4 -o parallel.tensor=4 -o device.ranks=16"
    expect 0 "$bin" plan --costs h100 --cluster ./cluster.ini $own
    says "layout  this INI's own, 128 ranks on 16 nodes" "6 of 128 devices compute 2 times as long: " "between racks" \
        "the layout runs on a cluster whose parts fail:" "cluster 16 nodes of 8 devices, 2 spare: a failure every 39.06 h" \
        "waiting for a spare" "best " "state in " "in all  " "links and slow devices: ./cluster.ini"
    cp "$out" told
    every=$(sed -n 's/^saves   every \([^ ]*\) s;.*/\1/p' told) save=$(sed -n 's/.*of state in \([^ ]*\) s:.*/\1/p' told)
    { cat cluster.ini; printf 'every_s = %s\nsave_s = %s\n' "$every" "$save"; } >same.ini
    expect 0 "$bin" failures same.ini
    a=$(sed -n 's/^  useful *\([0-9.]*\) %/\1/p' told) b=$(sed -n 's/^  useful *\([0-9.]*\) %/\1/p' "$out")
    awk "BEGIN { d = $a - $b; exit !(d < 0.1 && d > -0.1) }" || fail "useful: $a % with the plan, $b % without"
    awk -v u="$a" '/ ms \+-/ { ms = $1 } /^in all/ { n = $3; all = $16 }
        END { exit !(100 * n / all > u - 0.1 && 100 * n / all < u + 0.1 && all * (ms - 0.01) < 86400e3 && all * (ms + 0.01) > 86400e3) }' told ||
        fail "steps a day do not follow from the step and the useful share"
    expect 0 "$bin" plan --search --costs h100 --cluster ./cluster.ini --json base.ini -o parallel.slices=4
    says '"failures":{"interruptions":' '"slow_devices":6' '"best_s":'
    expect 0 "$bin" plan --search --costs h100 --cluster ./calm.ini base.ini -o parallel.slices=4
    ! grep -q 'parts fail' "$out" || fail "nothing fails there"
    expect 0 "$bin" plan --cluster ./calm.ini $own
    says "ranks   128 on 16 nodes in 4 racks"
    expect 0 "$bin" plan --costs h100 --cluster ./calm.ini $own --trace step.svg
    grep -q 'simulated</text>' step.svg || fail "the step is not drawn"
}

# 10,000 devices take a moment, and no more memory than a few numbers for each.
ten_thousand_devices() {
    printf '[cluster]\nnodes = 1250\nracks = 25\nspares = 8\n[stragglers]\nshare = 0.001\nslower = 1.2\n[failures]\ngpu_mtbf_h = 79000\n' >large.ini
    (ulimit -t 10 && ulimit -v 400000 && exec "$bin" plan --search --costs h100 --cluster ./large.ini base.ini -o batch.global=1024 \
        -o batch.lanes=1024 -o model.heads=8 -o model.layers=8 -o parallel.slices=8) >"$out" 2>&1 || fail "not within 10 s of CPU and 400 MB"
    says "search  10000 ranks on 1250 nodes" "10 of 10000 devices compute 1.2 times as long" "1250 nodes of 8 devices"
}

# found RANKS SETTING...: layouts of a run with these settings are simulated, and its own is.
found() {
    ranks=$1
    shift
    for each; do set -- "$@" -o "$each" && shift; done
    set -- base.ini -o device.backend=cpu -o batch.lanes=16 -o device.ranks="$ranks" "$@"
    expect 0 "$bin" plan --search --costs h100 "$@"
    grep -Eq '^search  .* [1-9][0-9]* simulated$' "$out" || fail "with $*: $(grep '^search' "$out")"
    expect 0 "$bin" plan --costs h100 "$@"
}

# What settings say of how ranks meet is nothing that a block has to know.
all_settings_are_searched() {
    islands="outer.islands=2 outer.every=10"
    found 4 $islands outer.type=nesterov
    found 4 $islands outer.compress=int8 outer.moments=own
    found 4 $islands outer.fragments=h.*:5 outer.overlap=2 outer.moments=own
    found 4 reduce.compress=int8 reduce.compress_back=int8 reduce.compress_span=2
    found 4 reduce.compress=topk reduce.density_warmup=10 optimizer.type=sgd optimizer.grad_clip=0
    found 4 server.count=1 server.weight=0.5 parallel.zero=1
    for mode in async bounded hybrid; do found 5 server.count=1 parallel.zero=1 server.mode=$mode; done
    found 4 optimizer.type=muon
    found 4 optimizer.type=muon parallel.offload=host parallel.zero=1
    printf '[batch]\nglobal = 16\nmicro = 1\nlanes = 8\nbn_span = 2\n[model]\ntype = resnet20\nclasses = 10\n' >images.ini
    expect 0 "$bin" plan --search --costs h100 images.ini -o device.backend=cpu -o device.ranks=4
}

mistakes_are_said() {
    printf '[cluster]\nnodes = 10\nracks = 3\n' >racks.ini
    printf '[links]\nrack_gbs = 50\n' >key.ini
    for verb in "failures" "plan base.ini --cluster" "plan base.ini --costs h100 --cluster" "plan base.ini --search --costs h100 --cluster"; do
        expect 78 "$bin" $verb ./racks.ini
        says "./racks.ini: [cluster] racks = 3, and there are 10 nodes: expected a number that divides them"
        expect 78 "$bin" $verb ./key.ini
        says "./key.ini:2: [links] rack_gbs: no such key; a cluster's file has [cluster] nodes, devices, racks"
    done
    expect 78 "$bin" plan --costs h100 --cluster ./nowhere.ini base.ini
    expect 78 "$bin" plan --costs h100 --cluster 2x4 base.ini -o parallel.tensor=3
    says "[parallel]"
    expect 64 "$bin" plan --costs h100 --free micro base.ini
    expect 64 "$bin" plan --search base.ini
    says "bench step CONFIG.ini --save FILE" "h100, h200, a100"
    expect 78 "$bin" plan --search --costs b200 base.ini
    says "no such file, and no sheet of that name"
    expect 64 "$bin" plan --search --costs h100 --free zero base.ini
    expect 64 "$bin" plan --search --costs h100 --cluster 8 base.ini
    expect 64 "$bin" plan --json base.ini
    says "go with --search or --costs"
    expect 64 "$bin" bench base.ini --save x.costs
    expect 78 "$bin" bench comm base.ini -o device.ranks=1
    says "nobody to talk to"
}

try sheets_predict
try tables_predict
try the_disk_is_measured
try steps_are_drawn
try failures_are_told
try clusters_are_simulated
try ten_thousand_devices
try all_settings_are_searched
try mistakes_are_said
finish
