# test/support/chaos.sh: kills ranks of one run that heals itself, again and again, at moments drawn from a seed. For
# scripts that have read test/support/runs.sh.
#
#   chaos NAME KILLS     the run of NAME.ini: its ranks but the last, the witness, are killed one after the other, now and
#                        then two at once, or another one while the first is being replaced. The run must then end well.
#                        kills: how often that was done; the witness's process must be the one that began
. "$top/test/support/witness.sh"

# ranks_of PID: pids of its ranks, in no order. Starts no process.
ranks_of() {
    ranks=
    { read -r kids <"/proc/$1/task/$1/children"; } 2>/dev/null
    for each in $kids; do
        { read -r comm <"/proc/$each/comm"; } 2>/dev/null || continue
        [ "$comm" = lockstep/watch ] || ranks="$ranks $each"
    done
}

kill_one() {
    ranks_of "$pid"
    set -- $ranks
    for each; do [ "$each" = "$witness" ] || echo "$each"; done >victims
    count=$(wc -l <victims)
    [ "$count" -gt 0 ] || return 0
    roll "$count"
    kill -9 "$(sed -n "$((rolled + 1))p" victims)" 2>/dev/null && kills=$((kills + 1))
    return 0
}

# The witness is the rank that was started last.
find_witness() {
    ranks_of "$pid"
    witness=${ranks##* }
}

logged() { step=$(tail -n 1 "runs/$1/log.jsonl" 2>/dev/null | sed -n 's/^{"t":"step","step":\([0-9]*\),.*/\1/p'); }
came_further() { logged "$1"; [ "${step:-0}" -gt "$before" ] || ! kill -0 "$pid" 2>/dev/null; }
steps_later() {
    logged "$of"
    before=$((${step:-$before} + 12))  # with a checkpoint
    until_true 60 came_further "$of"
}
heals() { events=$(grep -c '"kind":"healed"' "runs/$1/events.jsonl" 2>/dev/null); [ "${events:-0}" -ge "$2" ]; }

chaos() {
    kills=0 looks=0 of=$1 most=$2
    rm -f held
    start timeout -k 5 900 "$bin" base.ini "$of.ini"
    timer=$pid
    before=0
    until_true 20 came_further "$of"
    read -r pid <"/proc/$timer/task/$timer/children"
    pid=${pid%% *}
    find_witness
    until [ $kills -ge "$most" ]; do
        logged "$of"
        before=${step:-$before}
        until_true 60 came_further "$of"
        kill -0 "$timer" 2>/dev/null && kill -0 "$pid" 2>/dev/null || break
        roll 40
        doze $rolled
        kill_one
        roll 5
        if [ $rolled -lt 2 ]; then [ $rolled -eq 0 ] || doze 10; kill_one; fi
        look
    done
    [ $kills -ge "$most" ] || fail "$of: the run had ended after $kills of $most kills"
    grows
    kill -0 "$witness" 2>/dev/null || fail "$of: the witness is gone"
    pid=$timer
    await 0
}
