#!/bin/sh
# test/test_watch.sh: the process that watches a run, from the outside: what it writes, that the run never depends on
# it, and that it never outlives the run.
. test/support/lib.sh
. "$top/test/support/small.sh"
. "$top/test/support/net.sh"
. "$top/test/support/logs.sh"

small_run <<'END'
[run]
steps = 60
[schedule]
type = cosine
[checkpoint]
every = 20
[eval]
every = 20
batches = 2
[log]
every = 1
hash_every = 10
ranks_every = 20
machine_every = 1
END
endless="run.steps=1000000 schedule.type=constant eval.every=0 log.hash_every=0 checkpoint.every=0"

# field NAME RUN: of its status.
field() { sed -n 's/.*"'"$1"'":\("[^"]*"\|[^,}]*\).*/\1/p' "runs/$2/status.json" | head -n 1; }
is() { [ "$(field "$1" "$2")" = "$3" ] || fail "status.json says \"$1\":$(field "$1" "$2"), expected $3"; }
step_is_known() { [ -s "runs/$1/status.json" ] && [ "$(field step "$1")" -ge 5 ] 2>/dev/null; }

# watcher PID: the child of that process that watches.
watcher() { cat /proc/[0-9]*/stat 2>/dev/null | sed -n 's/^\([0-9]*\) (lockstep\/watch) [^Z] '"$1"' .*/\1/p'; }
has_watcher() { [ -n "$(watcher "$1")" ]; }
is_gone() { [ ! -e "/proc/$1" ] || grep -q ') [ZX]' "/proc/$1/stat" 2>/dev/null; }

# closed FILE: its brackets are.
closed() {
    awk '{ gsub(/\\./, ""); gsub(/"[^"]*"/, "x"); n += gsub(/[{\[]/, ""); n -= gsub(/[}\]]/, ""); if (n < 0) exit 1 } END { exit n != 0 }' "$1" ||
        fail "$1 is not whole: $(head -c 300 "$1")"
}

begin() {
    settings "$@"
    start "$bin" base.ini "$1.ini"
    until_true 20 step_is_known "$1"
}

what_a_run_leaves() {
    settings plain
    expect 0 "$bin" base.ini plain.ini
    closed runs/plain/status.json
    is state plain '"done"'
    for each in step:60 steps:60 world:2 node:0 nodes:1 eval_step:60 checkpoint_step:60 skipped:0 'run:"plain"' \
        'unit:"token"' 'host:"localhost"'; do
        is "${each%%:*}" plain "${each#*:}"
    done
    for key in mfu loss p50_ms p99_ms tokens_per_s grad_norm step_time began; do
        case $(field $key plain) in [0-9]*) ;; *) fail "status.json says \"$key\":$(field $key plain)" ;; esac
    done
    saved plain
    [ "\"$("$bin" hash "$newest_dir" | sed 's/^hash \([0-9a-f]*\) .*/\1/')\"" = "$(field checkpoint_hash plain)" ] ||
        fail "the hash is $(field checkpoint_hash plain)"
    [ "$(grep -c '^  {"rank":[01],"host":"localhost","local":[01],.*"phase":"ended"' runs/plain/status.json)" -eq 2 ] \
        || fail "two ranks have ended"
    grep -q '^{"t":"step","step":60,.*"mfu":[0-9.e-]*,.*"time":[0-9]*\.[0-9]*,"resident":[0-9]*,"device_bytes":null,"hash":"[0-9a-f]*"}$' runs/plain/log.jsonl ||
        fail "the last step is $(grep '"step":60,' runs/plain/log.jsonl | head -n 1)"
    [ "$(sed -n 's/^{"t":"ranks","step":\([0-9]*\),"steps":[0-9]*,"compute_ms":\[[0-9.e-]*,[0-9.e-]*\],"data_ms":.*"tensor_ms":\[0,0\]}$/\1/p' \
        runs/plain/log.jsonl | tr '\n' ' ')" = "20 40 60 " ] || fail "ranks: $(grep '"t":"ranks"' runs/plain/log.jsonl)"
}

nobody_watches() {
    [ -d runs/plain ] || skip "there is no run to compare with"
    settings alone log.watch=no device.ranks=1
    expect 0 "$bin" base.ini alone.ini
    [ ! -e runs/alone/status.json ] && [ ! -e runs/alone/machine.jsonl ] || fail "somebody watched"
    grep -v '"t":"ranks"' runs/plain/log.jsonl | sed 's/,"comm_ms".*"loss_scale"/,"loss_scale"/' >runs/plain/log.one \
        && mv runs/plain/log.jsonl runs/plain/log.two &&
        mv runs/plain/log.one runs/plain/log.jsonl
    like plain alone
}

lines_of_machine() { grep -q '^{"t":"machine","time":[0-9.]*,"node":0,"host":"localhost","step":[0-9]*,"disk_free":[0-9]*,.*,"cpu":[0-9.e-]*,"ranks":\[{"rank":0,.*{"rank":1,.*}\]}$' \
    "runs/$1/machine.jsonl"; }

# It is killed in the middle, and nothing of the run shows it. (However busy the machine is: a run that has an end may
# be at it before we look.)
its_death_is_no_matter() {
    begin killed $endless
    has_watcher "$pid" || fail "there is no watcher"
    kill -9 "$(watcher "$pid")"
    until_true 20 has_logged killed $(($(last_step killed) + 100))
    kill -TERM "$pid"
    await 75
    says "asked to stop"
    [ "$(field step killed)" -ge 5 ] || fail "the last status was of step $(field step killed)"
    closed runs/killed/status.json
}

it_dies_with_the_supervisor() {
    begin orphan $endless
    who=$(watcher "$pid")
    [ -n "$who" ] || fail "there is no watcher"
    kill -9 "$pid"
    until_true 10 is_gone "$who"
    wait "$pid" 2>/dev/null
    pid=
    is state orphan '"training"'  # what `lockstep status` makes of it, and of a process that is gone
}

stopped_and_failed() {
    begin stopped $endless
    until_true 20 lines_of_machine stopped
    kill -TERM "$pid"
    await 75
    is state stopped '"stopped"'
    begin lost $endless
    kill -9 "$(children "$pid" | head -n 1)"
    await 69
    is state lost '"failed"'
    [ "$(grep -c '"process":"X"' runs/lost/status.json)" -eq 2 ] ||
        fail "both ranks are gone: $(grep '"rank":' runs/lost/status.json)"
}

# The second one finds the directory taken, and leaves what is there.
a_second_start() {
    begin twice $endless
    was=$(field pid twice)
    expect 69 "$bin" base.ini twice.ini
    sleep 0.1
    is pid twice "$was"
    is state twice '"training"'
    kill -TERM "$pid"
    await 75
}

try what_a_run_leaves
try nobody_watches
try its_death_is_no_matter
try it_dies_with_the_supervisor
try stopped_and_failed
try a_second_start
finish
