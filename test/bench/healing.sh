#!/bin/sh
# test/bench/healing.sh BIN [LOSSES]: for how long a run that heals does not come further after a loss, on this machine, as
# Markdown: a rank of one machine, a rank and a whole machine of two (nodes on 127.0.0.1 and 127.0.0.2), beside killing
# all and starting the same command again. Seconds, half and 95 of 100 losses: detect is from the kill, by this script's
# clock; the rest is what the event caught_up says. Run it on a quiet machine.
LOCKSTEP_BIN=${1:-./lockstep} losses=${2:-20}
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"
. "$top/test/support/healing.sh"
. "$top/test/support/phases.sh"
columns="detect unwind enter move replay"
more="run.steps=1000000 schedule.type=constant"
common="device.threads=1 log.watch=no eval.every=0 log.hash_every=0 model.embed=64 batch.micro=2 snapshot.every=10 checkpoint.every=10"

caught_up() { grep -c '"kind":"caught_up"' "$1/events.jsonl" 2>/dev/null; }
one_more() { [ "$(caught_up "$1")" -gt "${had:-0}" ]; }

# note DIR: adds a line to `figures`, of what was struck at $struck: then, when the first new step was logged, how long
# that took, and the phases.
note() {
    until_true 60 one_more "$1"
    grep '"kind":"caught_up"' "$1/events.jsonl" | tail -n 1 >last
    step=$(sed 's/.*"step":\([0-9]*\).*/\1/' last)
    until_true 30 goes_on "$1" "$step"
    ms=$(sed -n "s/^{\"t\":\"step\",\"step\":$((step + 1)),.*\"ms\":\([0-9.]*\).*/\1/p" "$1/log.jsonl")
    echo "$struck $logged_at $ms $(for each in $columns; do figure $each; done | tr '\n' ' ')" >>figures
}

# table NAME: of `figures`.
table() {
    awk '{ rest = $5 + $6 + $7 + $8; d = $2 - $1 - $3 / 1000 - rest; if (d < 0) d = 0
           print d, $5, $6, $7, $8, d + rest }' figures >rows
    line="| $1, $(wc -l <rows) times |"
    for i in 1 2 3 4 5 6; do
        line="$line $(cut -d ' ' -f $i rows | sort -g | awk '{ x[NR] = $1 }
            END { printf "%.3f / %.3f", x[int((NR + 1) / 2)], x[int(0.95 * NR + 0.5)] }') |"
    done
    echo "$line"
    : >figures
}

# moves_on DIR: it has logged some steps more, at no fixed distance from the last snapshot.
moves_on() {
    goal=$(($(last_step "$1") + 15 + $(date +%N | sed 's/^0*//; s/....$//') % 11))
    until_true 60 has_logged "$1" $goal
    had=$(caught_up "$1")
}

ranks_lost() {
    : >figures
    settings one $common $more cluster.elastic=yes device.ranks=4
    start "$bin" base.ini one.ini
    until_true 30 has_logged runs/one 20
    for loss in $(seq "$losses"); do
        moves_on runs/one
        who=$(children "$pid" | sed -n "$((1 + loss % 4))p") struck=$(wall)
        kill -9 "$who"
        note runs/one
    done
    table "a rank of one machine"
    kill -9 "$pid"
}
nodes_of_two() {
    : >figures
    near 2 2
    together two $common $more cluster.elastic=yes
    boot two
    until_true 60 has_logged node0/runs/two 20
    for loss in $(seq "$losses"); do
        moves_on node0/runs/two
        who=$(rank $((loss % 2)) 1) struck=$(wall)
        kill -9 "$who"
        note node0/runs/two
    done
    table "a rank of two machines"
}
node_lost() {
    : >figures
    for loss in $(seq $(((losses + 3) / 4))); do
        near 2 2
        together "lost$loss" $common $more cluster.elastic=yes
        boot "$run"
        until_true 60 has_logged "node0/runs/$run" 20
        moves_on "node0/runs/$run"
        struck=$(wall)
        kill -9 "$(supervisor 1)"
        note "node0/runs/$run"
        kill -9 "$(supervisor 0)"
        until_over $pids
    done
    table "one of two machines"
}

# The same command again, until a step is finished that is new.
cold() {
    settings cold $common $more cluster.elastic=yes device.ranks=4
    for loss in $(seq $(((losses + 1) / 2))); do
        start "$bin" base.ini cold.ini
        until_true 30 has_logged runs/cold $((loss * 60))
        moves_on runs/cold
        all="$pid $(children "$pid")" struck=$(wall)
        kill -9 $all
        high=$(last_step runs/cold)
        start "$bin" base.ini cold.ini
        until_true 60 has_logged runs/cold $((high + 1))
        goes_on runs/cold "$high"
        echo "$struck $logged_at" | awk '{ print $2 - $1 }' >>cold.all
        all="$pid $(children "$pid")"
        kill -9 $all
        until_over $all
    done
    sort -g cold.all | awk '{ x[NR] = $1 }
        END { printf "| all killed, the same command again, %d times | | | | | | %.3f / %.3f |\n", NR, x[int((NR + 1) / 2)], x[int(0.95 * NR + 0.5)] }'
}

echo "| lost | detect | unwind | enter | move | replay | in all |"
echo "|---|---|---|---|---|---|---|"
try ranks_lost >told 2>&1; grep '^|' told || cat told
try nodes_of_two >told 2>&1; grep '^|' told || cat told
try node_lost >told 2>&1; grep '^|' told || cat told
try cold >told 2>&1; grep '^|' told || cat told
