#!/bin/sh
# test/test_servers.sh: [server] from the outside: ranks that keep the optimizer's state and run no lanes. What such a
# run logs is what one rank logs, with any number of servers, on nodes too, and after it was stopped or has lost
# some. MATRIX=all: in every layout (test/check_servers.sh). What is refused is in test_config.c, memory, traffic and
# other optimizers in test_ranks.c.
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"
. "$top/test/support/images.sh"
printf '[device]\nthreads = 1\n' >>base.ini
shape="model.embed=16 model.layers=1 model.vocab=259"
small="$shape run.steps=8 eval.every=4 eval.batches=3 log.watch=no"

# --- the same bits ----------------------------------------------------------------------------------------------------

some() {
    cat <<'ROWS'
2 server.count=1 parallel.zero=1
4 server.count=2 parallel.zero=3 parallel.deal=3,5
5 server.count=1 server.weight=0.25 parallel.zero=2 checkpoint.async=yes
6 server.count=1 parallel.zero=1 parallel.tensor=2
ROWS
}

every() {
    for servers in 1 2 4; do
        for workers in 1 2 4; do
            for zero in 1 2 3; do echo "$((servers + workers)) server.count=$servers parallel.zero=$zero"; done
        done
    done
    cat <<'ROWS'
8 server.count=2 parallel.zero=3 parallel.tensor=2
6 server.count=1 parallel.zero=2 parallel.context=2
8 server.count=2 parallel.zero=3 parallel.context=2
3 server.count=1 parallel.zero=2 parallel.offload=nvme
4 server.count=3 parallel.zero=1 parallel.offload=host
4 server.count=2 parallel.zero=3 parallel.recompute=block
5 server.count=2 server.weight=1 parallel.zero=1 parallel.deal=0,8,0
ROWS
}

# in_all WHAT SETTING...: every layout logs what one rank does.
in_all() {
    what=$1
    shift
    alone "$what" 1 "$@"
    ${MATRIX:-some} >rows
    while read -r ranks more; do
        settings layout device.ranks="$ranks" "$@" $more
        expect 0 train layout
        like "runs/$what" runs/layout
        rm -rf runs/layout
    done <rows
}

# Samples with ZeRO 3 are written by all ranks, of which servers have one forward pass.
as_one_rank() {
    in_all plain $small parallel.slices=2 parallel.token_slices=2 sample.tokens=8 sample.every=4
    rows=$(grep -c '"t":"sample"' runs/plain/log.jsonl)
    [ "$rows" -eq 2 ] || fail "$rows samples"
}
with_codes() { MATRIX=coded in_all codes $small reduce.compress=int8; }
coded() {
    cat <<'ROWS'
3 server.count=1 parallel.zero=1
4 server.count=2 parallel.zero=3
ROWS
}

other_models() {
    sliced="$small parallel.slices=2 parallel.token_slices=2"
    in_all bf16 $sliced precision.compute=bf16 precision.rounding=stochastic optimizer.grad_clip=0.1
    MATRIX=few in_all fp16 $sliced precision.compute=fp16
    MATRIX=few in_all muon $sliced optimizer.type=muon "optimizer.groups=wpe*:lr=0.5"
}
few() {
    some
    echo 6 server.count=4 parallel.zero=1 parallel.offload=host
    echo 6 server.count=1 parallel.zero=2 parallel.context=2
}

# on_servers NAME SETTING...: what one rank comes to.
on_servers() {
    what=$1
    shift
    alone "$what" 1 "$@"
    while read -r ranks more; do
        settings layout device.ranks="$ranks" "$@" $more
        expect 0 train layout
        same_end "runs/$what" runs/layout
        rm -rf runs/layout
    done
}

# Perceptrons, and convolutions whose batch norms take moments over lanes of several ranks.
images_too() {
    image_run
    images data/all 0 700
    short="run.steps=6 schedule.decay_steps=6 checkpoint.every=0"
    on_servers mlp $short <<'ROWS'
3 server.count=1 parallel.zero=1
6 server.count=2 parallel.zero=3
ROWS
    sed -i -e 's/^type = mlp/type = resnet20/' -e '/^inputs = /d' -e 's/^hidden = .*/units = 1 1/' \
        -e 's/^classes = 5/classes = 12\nwidth = 6\nimage = 16/' -e 's/^holdout = .*/holdout = 11/' \
        -e 's/^global = .*/global = 8/' -e 's/^micro = .*/bn_span = 2\nmicro = 2/' \
        -e "s,^train = .*,train = $top/test/golden/resnet-basic-images.idx $top/test/golden/resnet-basic-labels.idx," base.ini
    on_servers resnet $short <<'ROWS'
3 server.count=1 parallel.zero=1
6 server.count=2 parallel.zero=2 parallel.context=2
ROWS
}

# Of the moments each of two workers keeps so much as the weight says, of what a server keeps; without one nothing.
others_keep_by_weight() {
    for weight in 0 0.25 0.5 1; do
        settings weighs device.ranks=3 model.embed=512 model.layers=4 server.count=1 parallel.zero=1 server.weight=$weight
        expect 0 "$bin" plan base.ini weighs.ini
        awk -v w=$weight '$1 == "moments" { print w, $2, $8 + 0 }' "$out" >>weights
    done
    awk 'NR == 1 { all = $2; n += $3 == 0 }
        NR > 1 { n += ($3 / $2 / $1 - 1) ^ 2 < 0.05 ^ 2 && ($2 * (1 + 2 * $1) / all - 1) ^ 2 < 0.05 ^ 2 }
        END { exit n != 4 }' weights || fail "by weights, a server and a worker keep: $(tr '\n' ';' <weights)"
}

# A rank of another node keeps a copy of what a server, or a worker, has in its snapshots. So with two ranks on two nodes
# each has room for what both have.
room_for_copies() {
    copies="server.count=1 server.weight=0.25 parallel.zero=1 $shape $lost"
    settings near $copies device.ranks=2
    expect 0 "$bin" plan base.ini near.ini
    both=$(awk '$1 == "snapshots" { print $2 + $8 }' "$out")
    settings apart $copies cluster.nodes=10.0.0.1:1,10.0.0.2:1
    expect 0 "$bin" plan base.ini apart.ini
    [ "$(awk '$1 == "snapshots" { print $2, $4 }' "$out")" = "$both kB" ] || fail "a rank with $both bytes of snapshots"
}

has_roles() { "$bin" status runs/told >"$out" 2>&1; grep -q '^lanes  *4 4 0 (server) of the ranks here$' "$out"; }
is_told() {
    settings told device.ranks=3 server.count=1 parallel.zero=1 $shape run.steps=1000000 eval.every=0 \
        log.ranks_every=5
    expect 0 "$bin" plan base.ini told.ini
    says "lanes   8 on 2 ranks, at most 4 each: 0.0 % of the time idle" "    of a server" "    of another" \
        "servers 1: the last rank runs no lanes and keeps masters and optimizer state; the others keep none"
    expect 0 "$bin" plan base.ini told.ini -o device.ranks=8 -o parallel.tensor=2 -o parallel.slices=2 -o server.count=2
    says "servers 4: the last ranks run no lanes and keep masters and optimizer state; the others keep none"
    start "$bin" base.ini told.ini
    until_step runs/told 20
    until_true 20 has_roles
    grep -q '"role":"server"' runs/told/status.json || fail "status.json names no server"
    kill -TERM "$pid"
    comes_to 75
    says "servers rank 2 keeps the optimizer's state and runs no lanes" "tok/s"
    grep -q '"t":"ranks".*"lanes":\[4,4,0\]' runs/told/log.jsonl || fail "the log has no lanes of each rank"
    ! grep -q straggler runs/told/events.jsonl || fail "a server is a straggler: $(grep straggler runs/told/events.jsonl)"
}

# --- stopped, and lost ------------------------------------------------------------------------------------------------

# The disks of those that own nothing have no part of it.
goes_on_with_others() {
    moves stopped TERM 1 $shape log.watch=no run.steps=60 batch.global=8 eval.every=0 \
        "run.faults=drag@1x1000000" <<'END'
3 server.count=1 parallel.zero=1
2
5 server.count=3 parallel.zero=3
3 server.count=2 parallel.zero=2 server.weight=0.5
END
}

# heals NAME RANK RANKS SETTING...: a server is killed in the middle of an update; all go on from what others hold.
lossy="$shape run.steps=12 log.watch=no"
lost="cluster.elastic=yes cluster.heartbeat=0.2 snapshot.every=2"
heals() {
    healed=$1
    shift
    alone whole 1 $lossy
    settings "$healed" $lossy $lost "$@"
    expect 0 train "$healed"
    cp "$out" said
    same_end runs/whole "runs/$healed"
    cp said "$out"
}
a_server_is_lost() {
    heals again device.ranks=3 server.count=1 parallel.zero=1 run.faults=update@60:2
    says "healed: rank 2 (localhost, server) was killed by signal 9 (Killed); world 2 of this run"
}
# What a server keeps of the weights is what all others have of it.
a_server_lies() {
    heals lying device.ranks=4 server.count=2 parallel.zero=1 run.faults=lie@6:3
    says "lie: rank 3 (localhost, server) holds other values than those that should hold the same after step 6: weights that a server keeps"
}
# And what a worker has of it is what the other workers and that server have: of two workers the server says which is
# right.
a_worker_lies() {
    heals lied device.ranks=3 server.count=1 parallel.zero=1 run.faults=lie@6:1
    says "lie: rank 1 (localhost) holds other values than those that should hold the same after step 6: "
}
# Lanes go to the faster of those that have some, and to none of the servers.
faster_ranks_have_more_lanes() {
    quick="$shape log.watch=no run.steps=45 batch.lanes=16 log.hash_every=0"
    alone dealt 1 $quick
    settings moved $quick device.ranks=6 server.count=2 parallel.zero=1 parallel.balance=auto \
        "run.faults=drag@1x1000000,twice@1x1000000:2"
    expect 0 train moved
    same_end runs/dealt runs/moved
    grep -q '"kind":"balance".*lanes 4,4,4,4 become .*: rank 2 (localhost) takes' runs/moved/events.jsonl ||
        fail "no lanes moved: $(grep balance runs/moved/events.jsonl)"
}
# One rank must compute, so of two that are left one serves.
all_but_one_server_are_lost() {
    heals fewer device.ranks=3 server.count=2 parallel.zero=3 "run.faults=update@40x1000:2"
    says "so the run goes on without it"
}

# The second node has servers alone.
near_a_node_of_servers() {
    alone ref 1
    near 2 2 && together apart server.count=2 parallel.zero=2 $lost
    boot apart
    ended 0
    on 0 "servers ranks 2 to 3 keep the optimizer's state and run no lanes"
    nodes_like runs/ref apart
    nothing_left
}

try as_one_rank
try with_codes
[ "${MATRIX:-some}" = some ] || try other_models
try is_told
try others_keep_by_weight
try room_for_copies
try goes_on_with_others
try a_server_is_lost
try a_server_lies
try a_worker_lies
[ "${MATRIX:-some}" = some ] || try faster_ranks_have_more_lanes
[ "${MATRIX:-some}" = some ] || try all_but_one_server_are_lost
try near_a_node_of_servers
[ "${MATRIX:-some}" = some ] || try images_too
finish
