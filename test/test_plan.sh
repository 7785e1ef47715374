#!/bin/sh
# test/test_plan.sh: what `lockstep plan` prints, from the outside: the size of the model and of a step, whether a run
# fits this machine, and which ZeRO stage takes least memory. That its figures are those of runs is shown by
# test/test_pipe_plan.c and others.
. test/support/lib.sh
printf '[model]\nlayers = 6\nheads = 4\nembed = 64\ncontext = 32\n[batch]\nglobal = 16\nmicro = 1\nlanes = 4\n[run]\nsteps = 50\n[reduce]\nbucket_mb = 0.02\n' >base.ini

# planned SETTING...: the plan of base.ini with these.
planned() {
    settings plan "$@"
    expect 0 "$bin" plan base.ini plan.ini
}

# most: the row "all" of the last plan.
most() { awk '$1 == "all" { print $2; exit }' "$out"; }

# stages: the rows of ZeRO stages of the last plan.
stages() { awk '/^zero / { on = 1; next } /^[^ ]/ { on = 0 } on' "$out"; }

says_how_large() {
    planned
    says "model   gpt, 0.32 M parameters (318464)" "batch   16 samples = 4 lanes x 4 micro-batches of 1 x 32 tokens" \
        "data    512 tokens a step, 25600 in 50 steps"
    says "time    is not planned: \`lockstep bench\` measures"
    [ -z "$(stages)" ] || fail "one rank has everything at any stage"
    # bytes as people read them are the bytes before them
    awk '/^memory/ { on = 1; next } /^  beside/ { exit }
         on { n = $NF == "kB" ? 1e3 : $NF == "MB" ? 1e6 : 0; x = substr($0, 21) + 0; if (!n || sprintf("%.1f", x / n) != $(NF - 1)) exit 1; rows++ }
         END { if (rows < 5) exit 1 }' "$out" || fail "expected each row to end with its bytes in kB or MB"
}

# Lanes go to ranks, or to groups of ranks that share a model: three of these work as long as six lanes would take,
# whatever number of ranks is in each.
lanes_are_dealt() {
    while read -r deal more; do
        planned $more
        says "lanes   4 on $(echo "$deal" | tr _ ' ') of the time idle"
    done <<'DEALS'
4_ranks,_at_most_1_each:_0.0_% device.ranks=4
3_ranks,_at_most_2_each:_33.3_% device.ranks=3
3_models,_at_most_2_each:_33.3_% device.ranks=6 parallel.tensor=2 parallel.slices=2
3_models,_at_most_2_each:_33.3_% device.ranks=6 parallel.context=2 parallel.slices=2 parallel.token_slices=2 parallel.zero=2
3_pipelines,_at_most_2_each:_33.3_% device.ranks=6 parallel.pipeline=2
1_model,_at_most_4_each:_0.0_% device.ranks=2 parallel.tensor=2 parallel.slices=2
DEALS
}

# What is known of a row without the plan: AdamW keeps two numbers for each master, SGD one with momentum and none
# without; weights of two bytes take half of what masters take. The rows add up to "all", and little is left to "rest".
rows_are_what_they_say() {
    while read -r moments weights more; do
        planned $more
        awk -v moments=$moments -v weights=$weights '
            /^memory/ { on = 1; next } /^  beside/ { on = 0 }
            on { n = $1 == "masters" ? $3 : substr($0, 21) + 0; is[$1] = n; if ($1 != "all") sum += n }
            END { exit !(is["masters"] > 0 && is["moments"] == moments * is["masters"] && is["weights"] == weights * is["masters"] &&
                         sum == is["all"] && is["rest"] < 4096) }' "$out" || fail "${more:-plain}: expected moments of $moments and weights of $weights times the masters, and a small rest"
    done <<'ROWS'
2 0
2 0 device.ranks=4 parallel.zero=0
2 0.5 precision.compute=bf16
0 0 optimizer.type=sgd
1 0 optimizer.type=sgd optimizer.momentum=0.9
1 0.5 optimizer.type=sgd optimizer.momentum=0.9 precision.compute=bf16
1 0 optimizer.type=lars optimizer.momentum=0.9
ROWS
}

# What a node's ranks need together, beside what there is here.
fits_or_not() {
    planned device.ranks=4
    grep -qE '^machine 4 ranks: needs [0-9.]+ MB, has [0-9.]+ [MGT]B available here: fits$' "$out" ||
        fail "expected that it fits"
    planned model.layers=4 model.heads=128 model.embed=65536 device.ranks=4
    grep -qE '^machine 4 ranks: needs [0-9.]+ TB, has [0-9.]+ [MGT]B available here: does not fit$' "$out" ||
        fail "expected that it does not fit"
    grep -qE "^model   gpt, [0-9]{3}\.[0-9]{2} B parameters \([0-9]{12}\)$" "$out" ||
        fail "expected its size in billions"
    planned 'cluster.nodes=10.0.0.1:1, 10.0.0.2:3' cluster.secret_file=none
    says "machine 3 ranks of node 1: needs "
    awk '$1 == "all" && !most { most = $2; least = $NF == "MB" && $8 ~ /^[0-9]+$/ ? $8 : most }
         $1 == "machine" { exit !($8 >= 3 * least / 1e6 - 0.1 && $8 <= 3 * most / 1e6 + 0.1) }' "$out" || fail "expected three times what a rank has"
}

# The ranks of a pipeline hold different amounts, and so do its nodes: a node needs what its own ranks hold, and the
# plan names the one that needs most.
nodes_need_what_their_ranks_do() {
    while read -r first second stages; do
        planned "cluster.nodes=10.0.0.1:$first, 10.0.0.2:$second" cluster.secret_file=none \
            "parallel.pipeline=$((first + second))" "parallel.stages=$stages"
        awk -v first=$first '
            /^  stage rank/ { for (i = 1; i < NF; i++) if ($(i + 1) == "bytes") node[$3 >= first] += $i }
            /^machine/ { most = node[1] > node[0]; want = sprintf("%.1f", node[most] / 1e6); found = $5 == "node" && $6 == most ":" && $8 == want && $9 == "MB," }
            END { exit !found }' "$out" || fail "nodes of $first and $second ranks, blocks $stages: expected the bytes of the larger one"
    done <<'NODES'
1 1 1 7
1 1 7 1
1 3 5 1 1 1
1 3 1 2 2 3
2 2 1 1 3 3
3 1 1 1 1 5
NODES
}

# Each row is the plan of that stage, and the least of them is marked; of equals, as stages 0 and 1 are where there
# are no moments, the first.
cheapest_stage() {
    for more in "" "batch.lanes=16" "optimizer.type=sgd optimizer.momentum=0" "parallel.pipeline=2" \
        "parallel.tensor=2 parallel.slices=2" \
        "parallel.context=2 parallel.slices=2 parallel.token_slices=2"; do
        case $more in *context*) first=2 ;; *) first=0 ;; esac
        planned device.ranks=4 $more parallel.zero=$first
        stages >rows
        [ "$(wc -l <rows)" -eq $((4 - first)) ] || fail "${more:-plain}: expected stages $first to 3"
        [ "$(grep -c 'this run$' rows)" -eq 1 ] || fail "${more:-plain}: expected one row to be this run"
        for z in 0 1 2 3; do
            [ $z -ge $first ] || continue
            planned device.ranks=4 $more parallel.zero=$z
            bytes=$(awk -v z=$z '$1 == z { print $2 }' rows)
            [ "$bytes" = "$(most)" ] || fail "${more:-plain}: stage $z has $bytes bytes in the table, its own plan says $(most)"
            sent=$(awk -v z=$z '$1 == z { print $5, $6 }' rows)
            awk -v want="$sent" '/^traffic/ { on = 1 } on && $1 == "by" { exit $(NF - 1) " " $NF != want }' "$out" ||
                fail "${more:-plain}: stage $z doesn't send $sent"
        done
        least=$(sort -k2n -s rows | head -n 1 | cut -c 3)
        grep -q "^  $least .*takes least" rows && [ "$(grep -c 'takes least' rows)" -eq 1 ] ||
            fail "${more:-plain}: stage $least takes least"
    done
}

# With three pipelines that share four lanes, stages 0 and 1 deal one of them a single lane, whose micro-batches are too
# few for this schedule; stages 2 and 3 deal turns.
some_stages_only() {
    more="device.ranks=6 batch.global=4 parallel.pipeline=2 parallel.schedule=interleaved parallel.chunks=2"
    settings plan $more
    expect 78 "$bin" plan base.ini plan.ini
    planned $more parallel.zero=2
    [ "$(stages | cut -c 3 | tr -d '\n')" = 23 ] || fail "expected stages 2 and 3: $(stages)"
}

# Stages 2 and 3 can send a bucket of gradients as soon as it is there, if a lane has one micro-batch. Else the plan
# says why they are whole, and what would help does.
whole_gradients() {
    planned device.ranks=4 parallel.zero=2
    says "gradients are whole: a lane adds up its 4 micro-batches before it is sent; a new run with lanes = 16 has one in each"
    whole=$(awk '$1 == "gradients" { print $2; exit }' "$out")
    planned device.ranks=4 parallel.zero=2 batch.lanes=16
    ! grep -q "are whole" "$out" || fail "they need not be"
    part=$(awk '$1 == "gradients" { print $2; exit }' "$out")
    [ $((2 * part)) -lt "$whole" ] || fail "with 16 lanes gradients take $part bytes, with 4 $whole"
    planned device.ranks=4 parallel.zero=1
    ! grep -q "are whole" "$out" || fail "stage 1 keeps them whole in any case"
    planned device.ranks=4 parallel.zero=2 parallel.pipeline=2 batch.lanes=16
    says "gradients are whole: in a pipeline"
    planned device.ranks=2 parallel.zero=3 parallel.slices=4 parallel.token_slices=4 batch.lanes=16
    says "gradients are whole: a rank that has several token slices"
    planned device.ranks=4 parallel.zero=2 batch.global=12
    says "a lane adds up its 3 micro-batches before it is sent"
    ! grep -q "new run with lanes" "$out" || fail "lanes are a power of two, and 12 is none"
    planned device.ranks=4 parallel.zero=2 batch.global=2048
    says "a lane adds up its 512 micro-batches before it is sent"
    ! grep -q "new run with lanes = 2048" "$out" || fail "there can't be so many lanes"
}

# Of bytes as of messages: the groups' rows add up to what all ranks send, and where the ranks are says what is between
# nodes: all that the named group sends ("all": any group), part of what goes to all ranks, and nothing of the others.
traffic_is_between_nodes_or_not() {
    while read -r far more; do
        planned cluster.secret_file=none $more
        awk -v far="$far" '
            function adds_up() { return (rows ? sum == total : total > 0) && least * world <= total && total <= most * world }
            /^ranks/ { world = $2 }
            /^traffic|^messages/ { bad += tables && !adds_up(); tables++; rows = sum = 0 }
            /sent by a rank/ { most = $5; least = $NF ~ /B$/ ? $(NF - 2) : $NF }
            /of these [0-9]+ between nodes/ {
                i = $2 ~ /^[0-9]/ ? 2 : 3
                sent = $i; apart = $(i + 3)
                if ($1 == "by") total = sent
                else { sum += sent; rows++ }
                if (far == "all" || far == $1) bad += apart != sent
                else if (far != "none" && ($1 == "by" || $1 == "all")) bad += apart == 0 || apart > sent
                else bad += apart != 0
            }
            END { exit bad || tables != 2 || !adds_up() }' "$out" ||
            fail "$more: expected $far to be between nodes, and groups that add up to what all ranks send"
    done <<'PLACES'
none device.ranks=4
none device.ranks=4 parallel.pipeline=2
all cluster.nodes=10.0.0.1:1,10.0.0.2:1
all cluster.nodes=10.0.0.1:1,10.0.0.2:1 parallel.tensor=2 parallel.slices=2
all cluster.nodes=10.0.0.1:1,10.0.0.2:1,10.0.0.3:1,10.0.0.4:1 parallel.pipeline=2
stages cluster.nodes=10.0.0.1:2,10.0.0.2:2 parallel.pipeline=2
stages cluster.nodes=10.0.0.1:2,10.0.0.2:2 parallel.pipeline=2 parallel.tensor=2 parallel.slices=2
data cluster.nodes=10.0.0.1:2,10.0.0.2:2 parallel.tensor=2 parallel.slices=2 parallel.zero=2
PLACES
}

# levels WHAT: of bytes, what all send within nodes, between nodes, and between racks.
levels() { awk -v row="$1" '/^traffic/ { on = 1 } /^messages/ { on = 0 } on && $1 " " $2 == row { print $3 }' "$out"; }

# Of four nodes each sends the other three what they own of its sums, and what it owns itself: two thirds of that would
# go to another rack of two nodes. With racks that is halved: a third. The figures by level add up to all.
racks_send_less() {
    four=cluster.nodes=10.0.0.1:2,10.0.0.2:2,10.0.0.3:2,10.0.0.4:2
    for zero in 0 1; do
        planned cluster.secret_file=none batch.lanes=8 batch.global=16 $four parallel.zero=$zero
        [ -z "$(levels "between racks")" ] || fail "there are no racks"
        flat=$(levels "between nodes") all=$(awk '/^traffic/ { on = 1 } on && $1 == "by" && $2 == "all" { print $3; exit }' "$out")
        [ $((flat + $(levels "within nodes"))) -eq "$all" ] || fail "the levels don't add up to $all"
        planned cluster.secret_file=none batch.lanes=8 batch.global=16 $four parallel.zero=$zero cluster.racks=2
        says "ranks   8 on 4 nodes in 2 racks, zero $zero"
        racks=$(levels "between racks") near=$(levels "between nodes")
        awk -v flat="$flat" -v racks="$racks" -v near="$near" \
            'BEGIN { exit !(racks > 0.99 * flat / 3 && racks < 1.05 * flat / 3 && near + racks == flat) }' ||
            fail "zero $zero: $racks between racks and $near between nodes, of $flat before: expected a third"
        all=$(awk '/^traffic/ { on = 1 } on && $1 == "by" && $2 == "all" { print $3; exit }' "$out")
        [ $((racks + near + $(levels "within nodes"))) -eq "$all" ] || fail "the levels don't add up to $all"
        awk '/^messages/ { on = 1 } on && / racks / { exit !($3 > 0 && $9 <= $3 && 8 * $9 >= $3) }' "$out" ||
            fail "expected messages between racks, and those of the rank with most"
    done
    planned device.ranks=4
    [ -z "$(levels "within nodes")$(levels "between nodes")" ] || fail "one node has no levels"
    settings plan cluster.secret_file=none $four cluster.racks=3
    expect 78 "$bin" plan base.ini plan.ini
    says "3 racks of as many nodes each, and nodes has 4" "such as 0-2,3"
    settings plan device.ranks=4 cluster.racks=2
    expect 78 "$bin" plan base.ini plan.ini
    says "racks = 2, and nodes is empty"
}

# Two pairs of joined ranks send each other half of what four ranks by themselves would: of their sums one part, not two.
joined_send_less() {
    for zero in 0 1; do
        planned device.ranks=4 batch.lanes=4 batch.global=8 parallel.zero=$zero
        all=$(awk '/^traffic/ { on = 1 } on && $1 == "by" && $2 == "all" { print $3; exit }' "$out")
        planned device.ranks=4 batch.lanes=4 batch.global=8 parallel.zero=$zero cluster.joined=2
        says "ranks   4 on 1 node, joined by 2, zero $zero"
        near=$(levels "joined ranks") far=$(levels "within nodes")
        [ $((near + far)) -eq "$all" ] || fail "zero $zero: $near and $far don't add up to $all"
        # of sums 2 of 3 parts stay inside the pairs; of what is gathered 1 of 3
        awk -v near="$near" -v all="$all" 'BEGIN { exit !(near > 0.49 * all && near < 0.52 * all) }' ||
            fail "zero $zero: $near of $all bytes between joined ranks, expected half"
    done
    settings plan device.ranks=4 cluster.joined=3
    expect 78 "$bin" plan base.ini plan.ini
    says "joined = 3, and this machine has 4 ranks" "joined = 2"
}

# Beyond 64 ranks a plan is one plan, not four.
many_ranks() {
    planned device.ranks=64 batch.lanes=64 batch.global=64 batch.micro=1
    says "zero    memory of a rank at each ZeRO stage"
    planned device.ranks=128 batch.lanes=128 batch.global=128 batch.micro=1
    says "zero    with more than 64 ranks, stages are compared by a plan of each: -o parallel.zero=2"
}
# Where codes pay follows from what is said before: the bytes that they save, in the time that they take longer. Times
# are rounded to 0.1 ms, so their difference is off by as much. Where codes are no slower nothing is said.
codes_pay_over_thin_wires() {
    planned model.embed=512 device.ranks=4 reduce.compress=int8 reduce.compress_back=int8
    says "ranks of one machine send through memory: leave compress = none"
    awk '/^codes/ { gigabit = 8e-9 * ($16 - $10) * 1e6; units = $11 $17 }
         / they take a rank / { longer = ($5 - $13) / 1e3 }
         / they pay where / { said = $10 }
         END { least = 0.99 * gigabit / (longer + 1.1e-4); near = longer > 1.1e-4
               most = near ? 1.01 * gigabit / (longer - 1.1e-4) : said
               exit !(units == "MBMB" && (longer < -1e-4 ? !said : !near || (said >= least && said <= most))) }' \
        "$out" || fail "expected the bits saved, by the time that codes take longer"
}

# topk takes time, too. On one machine codes don't pay, and the plan says so; of several it names the machine's wire.
what_codes_take() {
    sparse="optimizer.type=sgd optimizer.momentum=0.9 optimizer.grad_clip=0 reduce.compress=topk reduce.density=0.01"
    alone="ranks of one machine send through memory: leave compress = none"
    planned model.embed=256 device.ranks=4 $sparse parallel.zero=1
    says "codes   topk, 0.01 of each lane: a rank sends " "they take a rank " "$alone" \
        "most of it is weights on their way back: zero = 0 sends none"
    awk '/ they take a rank / { exit !($5 > 0 && $13 > 0) }' "$out" || fail "expected that coding takes time"
    # the machine's wire carries what goes to the other one, of both its ranks
    planned model.embed=256 cluster.secret_file=none cluster.nodes=10.0.0.1:2,10.0.0.2:2 reduce.compress=fp16 reduce.compress_back=fp16
    says "codes   fp16 to owners, fp16 back: a machine sends "
    ! grep -q "$alone" "$out" || fail "these are two machines"
    awk '/^traffic/ { on = 1 } /^messages/ { on = 0 } on && $1 == "between" { far = $3 }
         /^codes/ { exit !($10 " " $11 == sprintf("%.1f MB", far / 2e6)) }' "$out" ||
        fail "expected a machine to send half of what goes between both"
}

# Islands: their ranks share no gradient, and each mixes masters and moments, 12 bytes a value, with the others every so
# many steps: it sends three slices of four, and three times the mean of one; nesterov keeps an anchor and a momentum beside. Without moments it is a third.
islands_mix_now_and_then() {
    while read -r times wide more; do
        planned device.ranks=4 outer.islands=4 outer.every=10 run.steps=50 checkpoint.every=0 eval.every=0 sample.tokens=0 $more
        says "layout  pipeline 1 x data 1 x islands 4" "lanes   4 on 4 ranks, at most 1 each: 0.0 % of the time idle"
        awk -v times="$times" -v wide="$wide" '
            /^model/ { values = substr($NF, 2) + 0 }
            /^  masters/ { masters = $3 }
            /^  outer optimizer/ { outer = $3 }
            /^traffic of a step/ { step = 1 } /^traffic of a boundary/ { step = 0; boundary = 1 } /^messages/ { step = boundary = 0 }
            / data groups/ && (step || boundary) && $3 { bad = 1 }
            / islands/ && step { bad = 1 }
            / islands/ && boundary { sent = $2 }
            /^islands 4 mix their weights every 10 steps: for that a rank sends at most/ { unit = $17 == "MB" ? 1e6 : 1e3; said = $16 * unit }
            END { each = sent / 4; least = 2 * 3 / 4 * 4 * times * values
                  room = outer - wide * masters
                  exit !(!bad && each >= least && each < 1.02 * least && (said - each / 10) ^ 2 < (0.06 * unit) ^ 2 &&
                         room >= 2 * masters && room < 2.1 * masters) }' "$out" ||
            fail "$more: expected each rank to send $times times 6/4 of its masters, every ten steps"
    done <<'ISLANDS'
3 2 outer.type=nesterov
3 0 outer.type=average
1 2 outer.type=nesterov optimizer.type=sgd
ISLANDS
}

# Rows on demand are in no arena: what they may take is a row of its own, and part of what a rank and a machine need.
rows_on_demand_have_room() {
    printf '[model]\ntype = dlrm\ndemand = yes\nembed = 8\n[batch]\nglobal = 12\nmicro = 6\n[device]\nthreads = 1\n' >clicks.ini
    for mb in 0 5; do
        expect 0 "$bin" plan clicks.ini -o device.ranks=2 -o model.demand_mb=$mb
        # a row and its sum; an id and its table; and both of these twice, there and back
        says "rows    on demand: 36 bytes each, and 25 to 51 of index" "a step names 312 at most: 96 bytes of one that"
        [ $mb = 0 ] || says "at most 83333 rows"  # a frame is of 60 bytes: a row, its sum, and 24 of what stands beside it
        awk '$3 == "demand" { rows = $4 } $1 == "all" && !all { all = $2 } $1 == "machine" { needs = $5 }
             END { print rows + 0, all, needs }' "$out"
    done >rooms
    # a row, its sum and its key, in two snapshots; and where there is a next machine, that has copies of other ranks' two
    expect 0 "$bin" plan clicks.ini -o device.ranks=2 -o cluster.elastic=yes
    says "two snapshots of a rank's take 104 bytes more for each, all of them in memory"
    expect 0 "$bin" plan clicks.ini -o "cluster.nodes=127.0.0.1:1,127.0.0.2:1" -o cluster.elastic=yes
    says "two snapshots of a rank's take 208 bytes more for each, with those that the next machine has"
    awk '{ rows[NR] = $1; all[NR] = $2; needs[NR] = $3 }
         END { exit !(rows[1] == 0 && rows[2] == 5e6 && all[2] - all[1] == 5e6 && (needs[2] - needs[1] - 10) ^ 2 < 0.02) }' rooms ||
        fail "rows, all, and what two ranks need, with 0 and 5 MB for rows: $(tr '\n' ';' <rooms)"
}

# A step reads what is in a file once, and of an optimizer that asks for the squares of masters, twice.
files_are_read_and_written() {
    for type in adamw lars; do
        planned device.ranks=2 parallel.zero=1 parallel.offload=nvme optimizer.type=$type
        says "ranks   2 on 1 node, zero 1 offload to files, order fixed"
        ! stages | grep -q '^  0' || fail "with zero = 0 there is no file of what a rank owns"
        sed -n 's/^disk .*a file of \([0-9]*\) bytes, of which a step reads \([0-9.]* [kMG]B\) and writes \([0-9.]* [kMG]B\)$/\1 \2 \3/p' "$out"
    done | awk '{ unit = $3 == "MB" ? 1e6 : 1e3; n += NF == 5 && $3 == $5 && sprintf("%.1f", NR * $1 / unit) == $2 && sprintf("%.1f", $1 / unit) == $4 }
         END { exit n != 2 }' || fail "a file is read once, or twice, and written once: $(grep '^disk' "$out")"
}

# Servers keep what zero = 0 has on each rank, so there are three stages.
servers_have_three_stages() {
    planned device.ranks=3 server.count=1 parallel.zero=1 reduce.order=fixed
    [ "$(stages | cut -c 3 | tr -d '\n')" = 123 ] || fail "expected stages 1 to 3: $(stages)"
    planned device.ranks=2 reduce.order=any
    says "ranks   2 on 1 node, zero 0, order any"
}

# Where all that islands mix leaves them at once, every ten steps, it is ten times as much as on average.
islands_may_be_apart() {
    planned device.ranks=2 outer.islands=2 outer.every=10 outer.overlap=3 outer.moments=own
    says "beside the 3 steps that follow"
    sed -n 's/^islands 2 mix tensors by fragments: for that a rank sends at most \(.*\) a step, on average, and \(.*\) after step \(.*\), the busiest$/\1 \2 \3/p' "$out" |
        awk '{ for (i = 2; i < 5; i += 2) n[i] = $(i - 1) * ($i == "MB" ? 1e6 : 1e3); ok = (n[4] - 10 * n[2]) ^ 2 < 0.06e6 ^ 2 && $5 == 10 } END { exit !ok }' ||
        fail "on average and after the busiest step: $(grep '^islands' "$out")"
}

try says_how_large
try lanes_are_dealt
try rows_are_what_they_say
try fits_or_not
try nodes_need_what_their_ranks_do
try cheapest_stage
try some_stages_only
try whole_gradients
try traffic_is_between_nodes_or_not
try racks_send_less
try joined_send_less
try codes_pay_over_thin_wires
try what_codes_take
try islands_mix_now_and_then
try islands_may_be_apart
try rows_on_demand_have_room
try files_are_read_and_written
try servers_have_three_stages
try many_ranks
finish
