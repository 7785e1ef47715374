#!/bin/sh
# test/test_live.sh: the pages of a run while it goes on, and that the run does not depend on them: what can't be served
# is refused before it starts, or is an event. (test_http.c has the server, test_metrics.c what it shows.)
. test/support/lib.sh
. "$top/test/support/small.sh"
watching=$top/build/test/watching
[ -x "$watching" ] || { echo "$watching: not there; build it first: make tests"; echo "0 passed, 1 failed"; exit 1; }
port=$((20000 + $$ % 10000))
at=127.0.0.1:$port

small_run <<END
[log]
http = $at
END

# page PATH [TOKEN_FILE]: what is shown there, into $out. shows PATH WORD...: all of these are in it.
page() { "$watching" get $at "$@" >"$out" 2>&1; }
shows() {
    page "$1"
    shift
    says "$@"
}
shown() { page "$@" && grep -q '^HTTP/1.1 200' "$out"; }
# The step that the report on the page is of.
reported() { page / && sed -n 's/.*<dt>Steps<\/dt><dd>\([0-9,]*\).*/\1/p' "$out" | tr -d ,; }
reports_after() { now_=$(reported) && [ "${now_:-0}" -gt "$1" ]; }
steps_done() { page /metrics && [ "$(sed -n 's/^lockstep_step //p' "$out")" -ge "$1" ] 2>/dev/null; }

four_pages() {
    settings four log.prom_file=four.prom
    start "$bin" base.ini four.ini
    until_true 20 shown /health
    until_true 20 steps_done 5
    shows /health "200 OK" "ok: step " " of 1000000, the last "
    shows /metrics "200 OK" "version=0.0.4" 'lockstep_rank_phase_seconds_total{rank="1",phase="step"}' \
        "lockstep_tokens_total" "lockstep_healthy 1"
    shows /status.json "200 OK" "application/json" '"run":"four"' '"state":"training"'
    shows /events.jsonl "404 Not Found"
    shows /../four/config.ini "404 Not Found"
    shows / "200 OK" "text/html" "<title>four" 'http-equiv="refresh"'
    was=$(reported)
    until_true 15 reports_after "${was:-1000000}"
    [ "$(tail -n 1 four.prom)" = 'lockstep_alarms{kind="bad_steps"} 0' ] || fail "four.prom: $(tail -n 1 four.prom)"
    kill -TERM $pid
    await 75
    ! page /health || fail "the page is there after the run"
}

# A rank that is stopped is 503 with the next look, and well again when it goes on.
a_stopped_rank() {
    settings stopped
    start "$bin" base.ini stopped.ini
    until_true 20 steps_done 1
    rank=$(page /status.json && sed -n 's/.*"rank":1,.*"pid":\([0-9]*\),.*/\1/p' "$out")
    kill -STOP "$rank" || fail "rank 1 is not known"
    until_true 10 eval '! shown /health'
    says "503 Service" "rank 1" "is stopped by a signal (process $rank)"
    kill -CONT "$rank"
    until_true 10 shown /health
    kill -TERM $pid
    await 75
}

with_a_token() {
    (umask 077; echo a-token-of-24-characters >token; echo another-one-of-24-letters >wrong)
    settings guarded log.http=0.0.0.0:$port log.http_token=token
    start "$bin" base.ini guarded.ini
    until_true 20 shown /health token
    page /health && says "401 Unauthorized" "WWW-Authenticate"
    page /health wrong && says "401 Unauthorized"
    kill -TERM $pid
    await 75
}

refused_before_it_starts() {
    settings bad log.http=0.0.0.0:$port
    expect 78 timeout 20 "$bin" base.ini bad.ini
    one_line && says "[log] http" "0.0.0.0:$port" "ssh -L"
    settings bad log.http=$port
    expect 78 timeout 20 "$bin" base.ini bad.ini
    one_line && says "[log] http" "127.0.0.1:28080"
    echo a-token-of-24-characters >open && chmod 644 open
    settings bad log.http_token=open
    expect 77 timeout 20 "$bin" base.ini bad.ini
    one_line && says "[log] http_token" "0644" "chmod 600"
    (umask 077; head -c 32 /dev/zero | tr '\0' s >secret)
    settings bad log.http_token=secret cluster.secret_file=secret
    expect 77 timeout 20 "$bin" base.ini bad.ini
    one_line && says "the cluster's secret"
    [ ! -e runs/bad ] || fail "something was left"
}

# The run does not need its page.
a_port_that_is_taken() {
    "$watching" serve $at 60 >taken &
    other=$!
    trap 'kill -9 $other 2>/dev/null; reap' EXIT
    until_true 5 grep -q http taken
    settings beside
    start "$bin" base.ini beside.ini
    until_true 20 grep -qs '"kind":"watch_failed".*another port' runs/beside/events.jsonl
    before=$(wc -l <runs/beside/log.jsonl)
    until_true 10 eval '[ "$(wc -l <runs/beside/log.jsonl)" -gt "$before" ]'
    kill -TERM $pid
    await 75
}

try four_pages
try a_stopped_rank
try with_a_token
try refused_before_it_starts
try a_port_that_is_taken
finish
