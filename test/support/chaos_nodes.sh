# test/support/chaos_nodes.sh: kills ranks, councils and supervisors of one run of several nodes that heals itself, at
# moments drawn from SEED. For scripts that have read test/support/healing.sh and what that wants.
#
#   chaos_nodes KILLS [NODE]     the run on the nodes that were made: so many kills of ranks and councils. Now and then two
#                                at once, or another one while the first is being replaced. In the middle that node's
#                                supervisor is killed too, and started again at once.
seed=${SEED:-20}
roll() {
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    rolled=$((seed / 65536 % $1))
}
doze() { sleep "$(printf '0.%03d' "$1")"; }

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
    set -- $ranks
    [ $# -gt 0 ] || return 0
    roll $#
    shift $rolled
    { kill -9 "$1"; } 2>/dev/null && kills=$((kills + 1))
    return 0
}

# As the first node logs whose supervisor is not killed.
came_further() { [ "$(last_step "node$lead/runs/$run")" -gt "$before" ] 2>/dev/null || ! kill -0 "$(supervisor "$lead")" 2>/dev/null; }

chaos_nodes() {
    kills=0 most=$1 headless=${2:-} before=0 lead=0
    [ "$headless" != 0 ] || lead=1
    until [ $kills -ge "$most" ]; do
        until_true 60 came_further
        before=$(last_step "node$lead/runs/$run")
        [ "$before" -lt $((steps - 20)) ] || fail "the run had ended after $kills of $most kills"
        roll 40
        doze $rolled
        kill_one
        roll 5
        if [ $rolled -lt 2 ]; then [ $rolled -eq 0 ] || doze 10; kill_one; fi
        before=$(last_step "node$lead/runs/$run")
        [ -n "$headless" ] && [ $kills -ge $((most / 2)) ] || continue
        kill -9 "$(supervisor "$headless")"
        until_over "$(supervisor "$headless")"
        again "$headless"
        headless=
    done
    echo "    $run: SEED=${SEED:-20}, $kills kills of ranks and councils${2:+, and the supervisor of node $2}"
}

# chaos_of LOST RANKS...: the supervisor of node LOST is among those that are killed. Where it has not been taken in
# again before the end it is asked to leave then.
chaos_of() {
    lost=$1 steps=$((40 * most + 1600)) whole=long codes=
    shift
    near "$@"
    heals "chaos-$#-nodes"
    chaos_nodes "$most" "$lost"
    ends=
    for k in $(seq 0 $((nodes - 1))); do [ "$k" -eq "$lost" ] || ends="$ends $k"; done
    for k in $ends; do until_over "$(supervisor "$k")"; done
    for k in $(seq 0 $((nodes - 1))); do
        codes="$codes $({ [ "$k" -eq "$lost" ] && kill -TERM "$(supervisor "$k")"; } 2>/dev/null && echo 75 || echo 0)"
    done
    ends_well $ends
    part_of_steps "$lost"
    figures "${ends##* }"
}
