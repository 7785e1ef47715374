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
elastic=$(echo "$elastic" | sed 's/dead_s=0.6/dead_s=3/')  # a council that was killed is heard again before
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
    settings "$run" $small cluster.elastic=yes cluster.heartbeat=0.2 cluster.timeout=20 device.ranks=3 parallel.zero="${zero:-1}" \
        run.steps=$steps checkpoint.every=20 "run.faults=$faults" "$@"
    expect 0 train "$run"
    ${compare:-like} runs/calm "runs/$run"
    for each in $victims; do was_lost "$each" localhost "runs/$run"; done
    worlds=$(grep -c '"kind":"healed"' "runs/$run/events.jsonl")
    [ -z "$victims" ] || [ "$worlds" -ge 1 ] || fail "$faults: no world followed"
}

# was_lost VICTIM HOST DIR...: this rank was, as some event says: of a world that is lost before it has begun, only the
# ranks that lived before it say so.
was_lost() {
    lost="rank $1 ($2) \(was killed by signal 9\|is lost\)"
    shift 2
    for each_dir; do cat "$each_dir/events.jsonl"; done | grep '"kind":"\(healed\|lost\)"' | grep -q "$lost" ||
        fail "$faults: no event says: $lost"
}

# --- three nodes ------------------------------------------------------------------------------------------------------

# nodes_with FAULTS: begins a run on them.
nodes_with() {
    faults=$1 many=$((${many:-0} + 1)) whole=calm-nodes codes=
    alone $whole 1 $small checkpoint.every=60 run.steps=$steps
    near 1 1 1
    together "$name-nodes-$many" $small $elastic checkpoint.every=60 run.steps=$steps parallel.zero=1 "run.faults=$faults"
    boot "$run"
}

# were_killed VICTIM...: each of these ranks was, as some node says.
were_killed() {
    for each; do was_lost "$each" "127.0.0.[123]" node?/runs/"$run"; done
}

# nodes FAULTS VICTIM...: ranks of nodes are killed.
nodes() {
    nodes_with "$1"
    shift
    ends_well 0 1 2
    were_killed "$@"
}

# council K FAULTS: the council of node K is killed, and another process has its seat. Steps are slow: or the run might
# be over before.
council() {
    nodes_with "$2,drag@40x400:0"
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

# drains FAULTS CODES K...: node 2 leaves, and who stands in FAULTS is killed meanwhile, before step 30 is evaluated and
# saved: of that checkpoint nodes 1 and 2 would have what node 0 lacks. Steps are slow.
drains() {
    nodes_with "$1,drag@1x600:0"
    expected=$2
    shift 2
    after 0 8
    kill -TERM "$(supervisor 2)"
    codes=$expected ends_well "$@"
}

# A checkpoint that can't be written is an event, and the run goes on.
same_but_for_a_checkpoint() {
    for each in "$1" "$2"; do facts "$each" | grep -v '^{"t":"checkpoint"' >"log.${each##*/}"; done
    same "log.${1##*/}" "log.${2##*/}" "the logs of $1 and $2"
    same_end "$1" "$2"
    grep -q '"kind":"checkpoint_failed"' "$2/events.jsonl" || fail "$faults: every checkpoint was written"
}
fails_to_save() { compare=same_but_for_a_checkpoint one "$1"; }

# --- each point -------------------------------------------------------------------------------------------------------

# Live state is kept only where it is newer than the last snapshot, so `keep` is tried between two: a rank passes `unit`
# twelve times a step here, and every sixth step is in a snapshot.
walk() {
    case $1 in
    read) one read@40:1 && one read@40x2:0 ;;
    slow) one slow@40x2:1 ;;
    drag) one drag@40x5:1 ;;
    twice) one twice@40x50:1 ;;
    quarter) one quarter@40x20:1 ;;
    write) fails_to_save write@9:0 && fails_to_save write@9:1 ;;
    sync) fails_to_save sync@5:0 && fails_to_save sync@5:1 ;;
    rename) fails_to_save rename@2:0 ;;
    flip) fails_to_save flip@9:1 ;;
    lie) zero=0 one lie@62:2 ;;
    nan) skipped_bits ;;
    spill_read) ends_with 74 spill_read@2000:0 ;;
    spill_write) ends_with 74 spill_write@1500:0 ;;
    spill_flip) ends_with 65 spill_flip@1500:0 ;;
    unit) one unit@300:1 1 && one unit@300:0,update@300:2 0 2 && nodes unit@300:1 1 && in_files unit@300:1 1 ;;
    update) one update@100:1 1 && one update@101:0,unit@900:2 0 2 && nodes update@101:0 0 ;;
    save) for pass in 5 6 7 8; do one save@$pass:0 0; one save@$pass:1 1; done ;;
    best) one best@2:0 0 && one best@2:2 2 ;;
    prune) one prune@4:0 0 && one prune@4:1 1 ;;
    snapshot) one snapshot@200:1 1 && one snapshot@310:0,update@300:2 0 2 && nodes snapshot@220:1 1 ;;
    mirror) nodes mirror@9:1 1 && nodes mirror@10:0 0 && nodes mirror@10:2,update@200:0 2 0 ;;
    leave) one unit@300:1,leave@1:0 0 1 && one unit@300:1,leave@2:2 1 2 && nodes unit@300:1,leave@1:2 1 2 ;;
    keep) zero=0; for k in 0 1; do one unit@330:2,keep@1:$k $k 2 -- snapshot.live=yes; done ;;
    left) one unit@300:1,left@1:0 0 1 && nodes unit@300:1,left@1:2 1 2 ;;
    meet) one unit@300:1,meet@2:1 1 && one unit@300:1,meet@2:0 0 1 && nodes unit@300:1,meet@2:2 1 2 ;;
    met) one unit@300:1,met@2:1 1 && one unit@300:1,met@2:0 0 1 && nodes unit@300:1,met@2:1 1 ;;
    recall) one unit@300:1,recall@1:1 1 && one unit@300:1,recall@1:0 0 1 ;;
    gather) nodes unit@300:1,gather@3:1 1 && nodes unit@300:1,gather@4:0 0 1 ;;
    begin) for pass in 3 4; do one unit@300:1,begin@$pass:0 0 1; nodes unit@300:1,begin@$pass:1 1; done ;;
    turn) drains turn@1:1 "0 0 75" 0 1 && were_killed 1 && drains turn@1:0 "0 0 75" 0 1 && were_killed 0 ;;
    tick) council 1 tick@10:1 && council 0 tick@9:0 ;;
    vote) council 1 unit@300:0,vote@2:1 && council 0 unit@300:0,vote@3:0 ;;
    voted) council 1 unit@300:0,voted@2:1 && council 0 unit@300:0,voted@3:0 ;;
    rule) council 1 unit@300:0,rule@2:1 && council 0 unit@300:0,rule@2:0 ;;
    follow) drains follow@1:1 "0 137 75" 0 ;;
    give) supervised 2 unit@300:0,give@2:2 ;;
    *) fail "there is no such case" ;;
    esac
}
# What masters and moments are in fails after so many blocks of a rank, of which one update reads and writes 20 or so:
# the run ends, and the same command continues after its newest checkpoint.
ends_with() {
    alone calm 1 $small run.steps=$steps checkpoint.every=20
    many=$((${many:-0} + 1)) run=$name-$many
    files="$small device.ranks=3 parallel.zero=1 parallel.offload=nvme run.steps=$steps checkpoint.every=20"
    settings "$run" $files "run.faults=$2"
    expect "$1" train "$run"
    says "optimizer-state-of-rank-0" "tensor "
    newest_name "runs/$run" | grep -q step- || fail "$2: there was no checkpoint"
    settings "$run" $files
    expect 0 train "$run"
    like runs/calm "runs/$run"
}
# Without copies in memory a run in files heals from its newest checkpoint.
in_files() {
    small=$(echo "$small" | sed 's/snapshot.every=6/snapshot.every=0/')
    one "$@" -- parallel.offload=nvme
}
# A step with a NaN changes no weight, so its bits are others than the calm run's.
skipped_bits() {
    skip "test_lies.sh has it"
}

has_cases() {
    for each in $points; do
        grep -q "^    $each) [a-z]" "$top/test/check_faults.sh" || fail "the point $each of [run] faults has no case"
    done
}

points=$("$bin" check base.ini -o run.faults=none@1 2>&1 | sed -n 's/.*points: //p')
[ "$(echo "$points" | wc -w)" -ge 11 ] || { echo "no list of points: $points"; echo "0 passed, 1 failed"; exit 1; }
try has_cases
for point in ${only:-$points}; do try "$point" walk "$point"; done
finish
