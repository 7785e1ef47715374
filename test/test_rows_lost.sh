#!/bin/sh
# test/test_rows_lost.sh: ranks and nodes of a run with rows on demand are lost, and their rows come back from memory:
# the run ends with the steps, hashes and state of an undisturbed run.
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"
steps=300
. "$top/test/support/healing.sh"
small="device.threads=1 log.watch=no eval.every=0 snapshot.every=6 log.hash_every=20"

# Some 2,500 rows, which are made all along.
ini >base.ini <<END
run dir=runs steps=$steps
model type=dlrm task=regress dense=0 tables=2 rows=16 embed=4 bottom= top= demand=yes
pack clicks=ratings input=planted:1:40000:900:1600 output=data/ratings val_fraction=0.1
data train=data/ratings-train-*.bin val=data/ratings-val-*.bin
batch global=64 micro=8 lanes=8
optimizer lr=0.1 weight_decay=0
checkpoint keep_best=no
eval every=0
log every=1
END
"$bin" pack base.ini >"$out" 2>&1 || { cat "$out"; echo "0 passed, 1 failed"; exit 1; }

# same_state: rows, weights and what AdaGrad keeps, as in the undisturbed run's last checkpoint. Nodes 0 and 1 have a
# part each.
same_state() {
    at=$(newest_name "runs/$whole")
    rm -rf all
    cp -r "node0/runs/$run/ckpt/$at" all
    cp "node1/runs/$run/ckpt/$at"/* all
    "$bin" hash "runs/$whole/ckpt/$at" 2>&1 | sed 's/  [^ ]*$//' >want
    "$bin" hash all 2>&1 | sed 's/  [^ ]*$//' >found
    same want found "the state after the last step"
}
rows_of() { sed -n 's/^{"t":"step","step":\([0-9]*\),.*"rows":\([0-9]*\).*/\1 \2/p' "$1/log.jsonl"; }
same_rows() {
    rows_of runs/$whole >want
    [ "$(tail -n 1 want | cut -d ' ' -f 2)" -gt 2000 ] || fail "the undisturbed run has few rows: $(tail -n 1 want)"
    rows_of "node$1/runs/$run" >found
    same want found "numbers of rows"
}

# One rank after the other is lost, in three ZeRO stages. The process that replaces it gets exactly its rows.
ranks_lost() {
    for zero in 0 1 3; do
        near 3
        saves=1000 heals "ranks$zero" parallel.zero=$zero
        for at in 30 90 150; do
            after 0 $at
            kill -9 "$(rank 0 $((at / 30 % 3)))"
        done
        until_true 20 has_event 0 healed "world 4 of this run"
        told 0 healed "from the snapshot in memory"
        ends_well 0
        same_rows 0
    done
}

# Most rows are in a file of a rank's, which goes with it.
cold_rows_lost() {
    near 2
    saves=1000 heals cold model.demand_mb=0.02
    after 0 60
    kill -9 "$(rank 0 1)"
    until_true 20 has_event 0 healed "world 2 of this run"
    told 0 healed "from the snapshot in memory"
    ends_well 0
    same_rows 0
    [ "$(sed -n 's/^{"t":"step",.*"cold_rows":\([0-9]*\).*/\1/p' "node0/runs/$run/log.jsonl" | tail -n 1)" -gt 1000 ] ||
        fail "few rows are in the file"
}

# A server has all rows.
server_lost() {
    near 3
    saves=1000 heals server server.count=1 parallel.zero=1
    after 0 60
    kill -9 "$(rank 0 2)" # servers are the last ranks
    until_true 20 has_event 0 healed "world 2 of this run"
    told 0 healed "from the snapshot in memory"
    ends_well 0
    same_rows 0
}

# A node, whose rows the next one has; those that are left own more than before.
node_lost() {
    near 2 1 1
    saves=1000 heals node
    after 1 60
    kill -9 $(all_of 2)
    until_true 20 has_event 1 healed "world 2 of this run"
    told 1 healed "from the snapshot in memory"
    codes="0 0 137" ends_well 0 1
    same_rows 0
    same_state
}

# A bit of a weight flips: all ranks go back, with their rows, and stay in the run.
lied() {
    near 1 1 1
    saves=1000 heals lied run.faults=lie@62:2
    ends_well 0 1 2
    told 0 lie "rank 2 (127.0.0.3) holds other values than those that should hold the same"
    told 0 back "to the snapshot in memory"
    same_rows 0
}

try ranks_lost
try cold_rows_lost
try server_lost
try node_lost
try lied
finish
