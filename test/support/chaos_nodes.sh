# test/support/chaos_nodes.sh: kills ranks, councils and supervisors of one run of several nodes that heals itself, at
# moments drawn from SEED. For scripts that have read test/support/healing.sh and what that wants.
#
#   chaos_nodes KILLS [NODE]     the run on the nodes that were made: so many kills of ranks and councils. Now and then
#                                two at once, or another one while the first is being replaced. Then that node's
#                                supervisor is killed too, and started again at once, and a quarter as many kills follow
#
# One rank of another node, the witness, is never killed: its process is the one that began, and it holds no more after
# the last kills than after the first.
. "$top/test/support/witness.sh"

train() { timeout 1800 "$bin" base.ini "$1.ini"; }  # of many steps

# victims_of PID: adds the ranks and the council of this supervisor. Starts no process: the run goes on meanwhile.
victims_of() {
    kids=
    { read -r kids <"/proc/$1/task/$1/children"; } 2>/dev/null
    for each in $kids; do
        { read -r comm <"/proc/$each/comm"; } 2>/dev/null || continue
        case $comm in lockstep/watch) ;; lockstep/nodes) councils="$councils $each" ;; *) ranks="$ranks $each" ;; esac
    done
}

# One of the ranks of all nodes, or, once in eight times, one of the councils.
kill_one() {
    ranks='' councils=''
    for supervisor in $pids; do victims_of "$supervisor"; done
    roll 8
    [ $rolled -gt 0 ] || ranks=$councils
    set --
    for each in $ranks; do [ "$each" = "$witness" ] || set -- "$@" "$each"; done
    [ $# -gt 0 ] || return 0
    roll $#
    shift $rolled
    { kill -9 "$1"; } 2>/dev/null && kills=$((kills + 1))
    return 0
}

# The highest step that a node has logged: each of them may be out for a while. Only ends of logs are read, which grow.
furthest() {
    for k in $(seq 0 $((nodes - 1))); do
        tail -n 5 "node$k/runs/$run/log.jsonl" 2>/dev/null
    done | sed -n 's/^{"t":"step","step":\([0-9]*\),.*/\1/p' | sort -n | tail -n 1
}
came_further() { [ "$(furthest)" -gt "$before" ] 2>/dev/null; }

# With a checkpoint, and of the witness's node: while that one is out, the witness holds no world.
steps_later() {
    before=$(($(furthest) + 64)) late=$(($(now) + 60000))
    until has_logged "node$home/runs/$run" "$before"; do
        [ "$(now)" -lt $late ] || return 1
        sleep 0.03
    done
}

# Who is put out again and again waits longer each time: so only the first look is at a world of all nodes.
wait_for_all() {
    before=$(furthest)
    slow=$home slowly 120 all_came_further
}
all_came_further() {
    for k in $(seq 0 $((nodes - 1))); do
        last=$(tail -n 5 "node$k/runs/$run/log.jsonl" | sed -n 's/^{"t":"step","step":\([0-9]*\),.*/\1/p' | tail -n 1)
        [ "${last:-0}" -gt "$before" ] || return 1
    done
}

# kill_until KILLS: until there were so many.
kill_until() {
    until [ $kills -ge "$1" ]; do
        until_true 60 came_further
        before=$(furthest)
        [ "$before" -lt $((steps - 20)) ] || fail "the run had ended after $kills of $1 kills"
        roll 40
        doze $rolled
        kill_one
        roll 5
        if [ $rolled -lt 2 ]; then [ $rolled -eq 0 ] || doze 10; kill_one; fi
        before=$(furthest)
    done
}

chaos_nodes() {
    kills=0 looks=0 most=$1 headless=${2:-} before=0
    home=$(((${headless:-0} + 1) % nodes))
    until_true 60 came_further
    witness=$(children "$(supervisor $home)" | tail -n 1)
    rm -f held
    for each_20 in $(seq 20 20 $((most - 1))); do
        kill_until "$each_20"
        [ "$each_20" -gt 20 ] || wait_for_all
        look
    done
    kill_until "$most"
    [ "$most" -le 20 ] || grows
    if [ -n "$headless" ]; then
        { kill -9 "$(supervisor "$headless")"; } 2>/dev/null
        until_over "$(supervisor "$headless")"
        again "$headless"
        kill_until $((kills + most / 4))
    fi
    kill -0 "$witness" 2>/dev/null || fail "the witness, a rank of node $home, is gone"
    echo "    $run: SEED=${SEED:-20}, $kills kills of ranks and councils${2:+, and the supervisor of node $2}"
}

lives() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | grep -q '^[^Z]'; }
has_finished() { for k in $(seq 0 $((nodes - 1))); do has_logged "node$k/runs/$run" "$steps" && return 0; done; false; }
are_over() { for each in $pids; do ! lives "$each" || return 1; done; }

# The members have finished the run. Who was put out, and not taken in again before, waits for them: it is ended here.
# Or it has given up: a rank that is killed for the fourth time without a new step is not started again, and while its
# node waits there is none.
end_who_waits() {
    codes=
    until_true 60 has_finished
    late=$(($(now) + 5000))
    until are_over || [ "$(now)" -gt $late ]; do sleep 0.1; done
    for k in $(seq 0 $((nodes - 1))); do
        if lives "$(supervisor "$k")"; then
            grep -q "waiting: " "node$k/out" || fail "node $k neither ends nor waits"
            kill -9 "$(supervisor "$k")"
            codes="$codes 137"
        elif grep -q "4 times in a row, and no new step" "node$k/out"; then
            [ "$(last_step "node$k/runs/$run")" -lt "$steps" ] || fail "node $k: gives up what it has finished"
            codes="$codes 69"
        elif grep -q "all members have ended the run, without this node" "node$k/out"; then
            codes="$codes 75"
        else codes="$codes 0"; fi
    done
}

# chaos_of LOST RANKS...: the supervisor of node LOST is among those that are killed.
chaos_of() {
    lost=$1 steps=$((150 * most + 1600)) whole=longer
    shift
    near "$@"
    heals "chaos-$#-nodes"
    chaos_nodes "$most" "$lost"
    end_who_waits
    all= to_the_end=
    : >every
    for k in $(seq 0 $((nodes - 1))); do
        part_of_steps "$k"
        steps_of "node$k/runs/$run" >found
        cat found >>every
        [ "$(wc -l <found)" -ne "$steps" ] || all="$all $k"
        ! has_logged "node$k/runs/$run" "$steps" || to_the_end="$to_the_end $k"
    done
    # On a busy machine each of them may have been out for a while, also the witness's, whose council may be killed.
    [ "$(sort -u every | wc -l)" -eq "$steps" ] || fail "all nodes together have not all steps"
    ends_well $all
    for k in $to_the_end; do
        [ "$(newest_name "node$k/runs/$run")" = "$(newest_name runs/$whole)" ] ||
            fail "node $k: no checkpoint of the last step"
    done
    figures "${to_the_end##* }"
}
