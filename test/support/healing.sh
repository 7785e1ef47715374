# test/support/healing.sh: runs of several nodes that heal, for scripts that have read test/support/lib.sh, net.sh and
# cluster.sh. Every run has the steps, the losses and the hashes of the one that nobody disturbed.
steps=${steps:-600}
small="device.threads=1 log.watch=no model.embed=16 model.layers=1 eval.every=0 checkpoint.every=60
    snapshot.every=6 log.hash_every=20"
elastic="cluster.elastic=yes cluster.heartbeat=0.2 cluster.timeout=20 cluster.dead_s=0.6"

# heals RUN SETTING...: the nodes that were made begin the run.
heals() {
    name=$1 more=${more:-run.steps=$steps}
    shift
    alone whole 1 $small run.steps=$steps
    together "$name" $small $elastic $more "$@"
    boot "$run"
}

event_of() { grep "\"kind\":\"$2\"" "node$1/runs/$run/events.jsonl" 2>/dev/null | tail -n 1; }
has_event() { event_of "$1" "$2" | grep -qF -e "$3"; }
# told K KIND TEXT...: node K's last event of that kind has these texts.
told() {
    event_of "$1" "$2" >"$out"
    shift 2
    says "$@"
}
# after K STEP: node K has logged that step.
after() { until_true 40 has_logged "node$1/runs/$run" "$2"; }

# The steps that a node has logged, with their losses and hashes: each once, in order, as in the run of one rank.
steps_of() { sed -n 's/^{"t":"step","step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1/log.jsonl"; }
hashes_of() { sed -n 's/^{"t":"step","step":\([0-9]*\),.*"hash":"\([0-9a-f]*\)".*/\1 \2/p' "$1/log.jsonl"; }
same_steps() {
    for what in steps_of hashes_of; do
        $what runs/whole >want
        [ -s want ] || fail "$what: the undisturbed run has none"
        $what "node$1/runs/$run" >found
        same want found "$what node $1"
    done
}
# ends_well K...: all that live end with 0; these nodes have the whole log and the last checkpoint.
ends_well() {
    ended ${codes:-0}
    for k; do
        same_steps "$k"
        [ "$(newest_name "node$k/runs/$run")" = "$(newest_name runs/whole)" ] || fail "node $k: no checkpoint of the last step"
    done
    nothing_left
}
