#!/bin/sh
# test/check_faults.sh: every point of [run] faults: what fails there, or is killed there, costs no step and no bit. The
# list of points is the binary's own: one that has no case here fails the test.
#
# test/test_faults.sh is the same with a few of them.
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"
. "$top/test/support/healing.sh"
steps=240
small="$(echo "$small" | sed "s,eval.every=0,eval.every=30,") checkpoint.keep=2 checkpoint.keep_best=yes"

# --- one machine ------------------------------------------------------------------------------------------------------

# one FAULTS VICTIM... [-- SETTING...]: three ranks of one machine; each VICTIM, a rank, was killed at some time.
one() {
    alone calm 1 $small run.steps=$steps checkpoint.every=20
    faults=$1 victims=
    shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do victims="$victims $1"; shift; done
    [ $# -eq 0 ] || shift
    many=$((${many:-0} + 1)) run=$name-$many
    settings "$run" $small cluster.elastic=yes cluster.heartbeat=0.2 cluster.timeout=20 device.ranks=3 parallel.zero=${zero:-1} \
        run.steps=$steps checkpoint.every=20 "$@"
    printf '[run]\nfaults = %s\n' "$faults" >>"$run.ini"
    expect 0 train "$run"
    like runs/calm "runs/$run"
    for each in $victims; do
        grep '"kind":"healed"' "runs/$run/events.jsonl" | grep -q "rank $each (localhost) was killed by signal 9" ||
            fail "$faults: rank $each was not killed"
    done
    worlds=$(grep -c '"kind":"healed"' "runs/$run/events.jsonl")
    [ -z "$victims" ] || [ "$worlds" -ge 1 ] || fail "$faults: no world followed"
}

# --- three nodes ------------------------------------------------------------------------------------------------------

# nodes_with FAULTS [SETTING...]: begins a run on them.
nodes_with() {
    whole=calm-nodes
    near 1 1 1
    faults=$1
    shift
    heals "$name-nodes" parallel.zero=1 "$@"
    reap_nodes
    printf '[run]\nfaults = %s\n' "$faults" >>"$run.ini"
    boot "$run"
}
reap_nodes() {
    for each in $pids; do kill -9 "$each"; wait "$each"; done 2>/dev/null
    until ! busy "$port"; do sleep 0.02; done
    rm -rf node?/runs
}

# were_killed VICTIM...: each of these ranks was, as some node says.
were_killed() {
    for each; do
        cat node?/runs/"$run"/events.jsonl | grep '"kind":"healed"' |
            grep -q "rank $each (127.0.0.[123]) was killed by signal 9" || fail "$faults: rank $each was not killed"
    done
}

# nodes FAULTS VICTIM...: ranks of nodes are killed.
nodes() {
    nodes_with "$1"
    shift
    ends_well 0 1 2
    were_killed "$@"
}

# council K FAULTS: the council of node K is killed, and another process has its seat.
council() {
    nodes_with "$2"
    until_true 20 has_delegate "$1"
    first=$(delegate "$1")
    until_true 30 has_another "$1"
    ends_well 0 1 2
}
has_delegate() { [ -n "$(delegate "$1")" ]; }
has_another() { now_is=$(delegate "$1") && [ -n "$now_is" ] && [ "$now_is" != "$first" ]; }

# supervised K FAULTS: the supervisor of node K is killed, and its ranks with it.
supervised() {
    nodes_with "$2"
    all=
    for k in 0 1 2; do [ "$k" -eq "$1" ] && codes="${codes:-} 137" || codes="${codes:-} 0" all="$all $k"; done
    ends_well $all
}

# drains VICTIM FAULTS: node 2 leaves, and rank VICTIM is killed when the others turn.
drains() {
    more="run.steps=$steps" nodes_with "$2" "run.faults=drag@200x100000:0"
    after 0 20
    kill -TERM "$(supervisor 2)"
    codes="0 0 75" ends_well 0 1
    were_killed "$1"
}

# --- each point -------------------------------------------------------------------------------------------------------

walk() {
    case $1 in
    read) one read@40:1 && one read@40x2:0 ;;
    slow) one slow@40x2:1 ;;
    drag) one drag@40x5:1 ;;
    twice) one twice@40x50:1 ;;
    write) one write@9:0 && one write@9:1 ;;
    sync) one sync@5:0 && one sync@5:1 ;;
    rename) one rename@2:0 ;;
    flip) one flip@9:1 ;;
    lie) one lie@62:2 -- log.hash_every=10 ;;
    nan) skipped_bits ;;
    unit) one unit@300:1 1 && one unit@300:0,update@300:2 0 2 && nodes unit@300:1 1 ;;
    update) one update@100:1 1 && one update@101:0,unit@900:2 0 2 && nodes update@101:0 0 ;;
    save) for pass in 5 6 7 8; do one save@$pass:0 0; one save@$pass:1 1; done ;;
    best) one best@2:0 0 && one best@2:2 2 ;;
    prune) one prune@4:0 0 && one prune@4:1 1 ;;
    snapshot) one snapshot@9:1 1 && one snapshot@9:0,update@300:2 0 2 && nodes snapshot@5:1 1 ;;
    mirror) nodes mirror@9:1 1 && nodes mirror@10:0 0 && nodes mirror@10:2,update@200:0 2 0 ;;
    leave) one unit@300:1,leave@1:0 0 1 && one unit@300:1,leave@2:2 1 2 && nodes unit@300:1,leave@1:2 1 2 ;;
    keep) zero=0; one unit@300:1,keep@1:0 0 1 && one unit@300:2,keep@1:1 1 2 ;;
    left) one unit@300:1,left@1:0 0 1 && nodes unit@300:1,left@2:2 1 2 ;;
    meet) one unit@300:1,meet@2:1 1 && one unit@300:1,meet@2:0 0 1 && nodes unit@300:1,meet@2:2 1 2 ;;
    met) one unit@300:1,met@2:1 1 && one unit@300:1,met@2:0 0 1 && nodes unit@300:1,met@2:1 1 ;;
    recall) one unit@300:1,recall@1:1 1 && one unit@300:1,recall@1:0 0 1 ;;
    gather) nodes unit@300:1,gather@3:1 1 && nodes unit@300:1,gather@4:0 0 1 ;;
    begin) for pass in 3 4; do one unit@300:1,begin@$pass:0 0 1; nodes unit@300:1,begin@$pass:1 1; done ;;
    turn) drains 1 turn@1:1 && drains 0 turn@1:0 ;;
    tick) council 1 tick@10:1 && council 0 tick@9:0 ;;
    vote) council 1 unit@300:0,vote@2:1 && council 0 unit@300:0,vote@3:0 ;;
    voted) council 1 unit@300:0,voted@2:1 && council 0 unit@300:0,voted@3:0 ;;
    rule) council 1 unit@300:0,rule@2:1 && council 0 unit@300:0,rule@2:0 ;;
    follow) supervised 2 unit@300:0,follow@1:2 ;;
    give) supervised 2 unit@300:0,give@2:2 ;;
    *) fail "this point of [run] faults has no case here" ;;
    esac
}
# A step with a NaN changes no weight, so its bits are others than the calm run's.
skipped_bits() {
    skip "test_lies.sh has it"
}

points=$("$bin" check base.ini -o run.faults=none@1 2>&1 | sed -n 's/.*points: //p')
[ "$(echo "$points" | wc -w)" -ge 11 ] || { echo "no list of points: $points"; echo "0 passed, 1 failed"; exit 1; }
for point in ${only:-$points}; do try "$point" walk "$point"; done
finish
