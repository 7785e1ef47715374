# test/support/healing.sh: runs of several nodes that heal, for scripts that have read test/support/lib.sh, net.sh and
# cluster.sh. Every run has the steps, the losses and the hashes of the one that nobody disturbed.
steps=${steps:-600}
small="device.threads=1 log.watch=no model.embed=16 model.layers=1 eval.every=0 snapshot.every=6 log.hash_every=20"
elastic="cluster.elastic=yes cluster.heartbeat=0.2 cluster.timeout=20 cluster.dead_s=0.6"

whole=whole  # the undisturbed run, of `steps` steps

# heals RUN SETTING...: the nodes that were made begin the run.
heals() {
    name=$1 more=${more:-run.steps=$steps}
    shift
    alone $whole 1 $small checkpoint.every=60 run.steps=$steps
    together "$name" $small $elastic checkpoint.every="${saves:-60}" $more "$@"
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
        $what runs/$whole >want
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
        [ "$(newest_name "node$k/runs/$run")" = "$(newest_name runs/$whole)" ] ||
            fail "node $k: no checkpoint of the last step"
    done
    nothing_left
}

# --- nodes that come and go ------------------------------------------------------------------------------------------

delegate() { pgrep -P "$(supervisor "$1")" -x lockstep/nodes; }

# all_of K: supervisor, council and ranks of node K.
all_of() { echo "$(supervisor "$1") $(pgrep -P "$(supervisor "$1")")"; }

# again K: node K, whose supervisor has ended, is started once more.
again() {
    started=$pids pids=
    boot "$run" "$1"
    pids=$(echo "$started" | awk -v k=$(($1 + 1)) -v pid="$pids" '{ $k = pid; print }')
}

# slowly LIMIT COMMAND...: until it is true, while a rank of node ${slow:-0} stands still most of the time, so that few
# steps are finished.
slowly() {
    until=$(($(now) + $1 * 1000))
    shift
    until "$@"; do
        [ "$(now)" -lt $until ] || fail "waited too long for: $*"
        who=$(rank "${slow:-0}" 0)
        [ -z "$who" ] || { kill -STOP "$who"; sleep 0.2; kill -CONT "$who"; } 2>/dev/null
        sleep 0.01
    done
}

# part_of_steps K: what node K has logged are steps of the undisturbed run, each once and in order; some may be missing.
part_of_steps() {
    for what in steps_of hashes_of; do
        $what runs/$whole | sort >want
        $what "node$1/runs/$run" >found
        awk '$1 <= last { exit 1 } { last = $1 }' found || fail "node $1: $what: a step comes again"
        sort found | comm -13 want - >differs
        [ ! -s differs ] || fail "node $1: $what: not of the undisturbed run: $(head -n 1 differs)"
    done
}

# figures K: how long the worlds of node K were without a step, on the output.
figures() {
    sed -n 's/.*"kind":"healed".* began \([0-9.]*\) s later, of which leaving took \([0-9.]*\) s.*/\1 \2/p' \
        "node$1/runs/$run/events.jsonl" | sort -n | awk -v name="$run" '
        { at[NR] = $1; left += $2 }
        END { if (NR) printf "    %-10s %d worlds: %.3f s half, %.3f s 95 %%, %.3f s longest; leaving %.3f s\n", name,
              NR, at[int((NR + 1) / 2)], at[int(0.95 * NR + 0.5)], at[NR], left / NR }'
}
