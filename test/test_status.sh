#!/bin/sh
# test/test_status.sh: `lockstep status` and `lockstep tail` on runs of every fate: finished, stopped on request,
# killed, failed, never begun, and one that goes on; and on a log that is cut back under who follows it.
. test/support/runs.sh

# status CODE RUN
status() { expect "$1" "$bin" status "runs/$2"; }

# json RUN KEY: its value in what `status --json` says.
json() { "$bin" status "runs/$1" --json | sed -n "s/.*\"$2\":\"\{0,1\}\([^\",}]*\).*/\1/p"; }

# The lines of steps and evaluations, without what a clock said.
untimed_lines() { grep '^step\|^eval\|^saved' | sed 's/  [0-9.]*[kM]\{0,1\} tok.*//; s/  [0-9.]* s$//'; }

finished() {
    settings finished run.steps=40 log.every=10
    expect 0 train finished
    status 0 finished
    says "FINE: has all its steps: step 40/40" "saved     step 40, " "lockstep eval runs/finished/config.ini"
    [ "$(wc -l <"$out")" -le 15 ] || fail "more than 15 lines"
    [ "$(json finished life) $(json finished code) $(json finished step)" = "done 0 40" ] ||
        fail "$("$bin" status runs/finished --json)"
    expect 0 "$bin" tail runs/finished
    says "step   40/40 100%  loss" "eval  step 40" "saved step 40  hash" "done    the run has all its 40 steps"
    expect 0 "$bin" tail runs/finished --lines 2
    [ "$(grep -c '^step' "$out")" -le 2 ] || fail "more than was asked for"
    expect 0 "$bin" tail runs/finished --lines 1
    says "done    the run has all its 40 steps"
    expect 0 "$bin" tail runs/finished --lines 1000
    untimed_lines <"$out" >tailed
    rm -rf runs/finished
    train finished | untimed_lines >printed
    same printed tailed "what the run prints and what tail makes of its log"
}

a_bar() {
    command -v script >/dev/null || skip "no script(1), which has terminals"
    [ -d runs/finished ] || skip "no finished run"
    script -qec "$bin tail runs/finished" /dev/null >"$out" 2>&1 </dev/null
    says "step   40/40" "  [####" "done    the run"
}

running() {
    settings running run.steps=1000000 log.every=1 checkpoint.every=20 checkpoint.keep_best=no eval.every=0
    start "$bin" base.ini running.ini
    until_true 20 has_saved running 20
    status 0 running
    says "FINE: " "/1000000, " " s ago" "lockstep tail runs/running"
    "$bin" tail runs/running >tailed 2>&1 &
    follower=$!
    was=$(last_step running)
    until_true 20 has_logged running $((was + 50))
    until_true 5 grep -q "^step *$((was + 40))/" tailed
    kill -INT $follower
    wait $follower || fail "Ctrl-C ends tail with $?"
    "$bin" tail runs/running >tailed 2>&1 &
    follower=$!
    kill "$pid"
    await 75
    until_true 5 grep -q '^over    the run does not go on after step [0-9]*; lockstep status runs/running says why' \
        tailed
    wait $follower || fail "tail ends with $? when the run does"
    grep -q '^stop: asked to stop' tailed || fail "tail does not show the event: $(tail -n 3 tailed)"
    status 1 running
    says "ATTENTION: stopped on request" "asked to stop; saved step" "next      lockstep runs/running/config.ini"
}

killed() {
    settings killed run.steps=1000000 log.every=1 checkpoint.every=50 checkpoint.keep_best=no eval.every=0
    start "$bin" base.ini killed.ini
    until_true 20 has_saved killed 50
    until_true 20 has_logged killed 60
    kill -9 "$pid"
    wait "$pid" 2>/dev/null
    pid=
    until_true 5 is_free killed
    status 2 killed
    says "DEAD: died: step" "it ended without a word" "next      lockstep runs/killed/config.ini"
    [ "$(json killed life)" = died ] || fail "$("$bin" status runs/killed --json)"
    # The command that it names goes on.
    start "$bin" runs/killed/config.ini
    until_true 20 has_event killed resume
    until_true 20 has_logged killed 70
    kill "$pid"
    await 75
    status 1 killed
    says "restarts  1 in 24 h" "resume: continuing after step"
}

is_free() { flock -n "runs/$1/lock" true; }

failed() {
    settings failed run.steps=40 run.faults=read@60x1000000 data.retry=0
    expect 74 train failed
    status 2 failed
    says "DEAD: failed: step" "Input/output error" "when that is mended: lockstep runs/failed/config.ini"
}

# The command that it names works where the reader stands, wherever the run was started.
from_elsewhere() {
    mkdir -p path "$work/it's here/deep" && ln -sf "$bin" path/lockstep
    PATH=$work/path:$PATH
    cd "$work/it's here" && ln -s ../data data
    sed 's/^\(decay_\)*steps = .*/\1steps = 20/' ../base.ini >base.ini
    printf '[run]\nname = away\n' >away.ini
    expect 0 "$bin" base.ini away.ini
    for from in . runs runs/away deep / "$work"; do
        at=$(cd "$from" && pwd)
        case $at in
        */away) dir=. ;;
        */runs) dir=away ;;
        *deep) dir=../runs/away ;;
        */"it's here") dir=runs/away/ ;;
        *) dir="$work/it's here/runs/away" ;;
        esac
        cd "$from" && expect 0 "$bin" status "$dir"
        case $from in
        .) says "next      nothing; lockstep eval runs/away//config.ini" ;;
        *) says "next      nothing; cd '$work/it'\\''s here' && lockstep eval runs/away/config.ini" ;;
        esac
        cp "$out" "$work/next.out"
        sed -n 's/^next *nothing; //p' "$out" >"$work/next"
        expect 0 sh -c "$(cat "$work/next")"
        says "step 20  loss"
        cd "$work/it's here"
    done
    # moved: where its relative paths begin is not known
    mv runs/away gone
    cd / && expect 0 "$bin" status "$work/it's here/gone"
    says "nothing; where it was started: lockstep eval '$work/it'\\''s here/gone/config.ini'"
    # without relative paths it runs anywhere
    cd "$work/it's here" && sed -i "s|^train = .*|train = $work/data/plain-train-*.bin|; s|^val = .*|val = $work/data/plain-val-*.bin|; s|^dir = .*|dir = $work/all|" base.ini
    expect 0 "$bin" base.ini away.ini
    cd / && expect 0 "$bin" status "$work/all/away"
    says "next      nothing; lockstep eval $work/all/away/config.ini"
    # but not where only the metrics' path is relative
    cd "$work/it's here" && printf '[log]\nprom_file = away.prom\n' >prom.ini
    expect 0 "$bin" base.ini away.ini prom.ini
    cd / && expect 0 "$bin" status "$work/all/away"
    says "next      nothing; where it was started: lockstep eval $work/all/away/config.ini"
}

never_begun() {
    mkdir -p runs/never
    status 64 never
    says "runs/never: no run's directory"
    : >runs/never/lock
    status 2 never
    says "DEAD: has not begun"
    expect 0 "$bin" tail runs/never
    says "over    the run does not go on"
    status 64 nowhere
    says "runs/nowhere: No such file or directory"
    expect 64 "$bin" status
    expect 64 "$bin" status runs/never runs/never
    expect 64 "$bin" status --jsn runs/never
    expect 64 "$bin" tail
    expect 64 "$bin" tail runs/never --lines
    expect 64 "$bin" tail runs/never --lines -1
    expect 64 "$bin" tail runs/nowhere
}

# line STEP: a record of it in log.jsonl.
line() {
    printf '{"t":"step","step":%d,"loss":%d.5,"tokens":1,"ms":10,"tokens_per_s":100}\n' "$1" "$1" >>runs/cut/log.jsonl
}
shown() { grep -q "^step *$1 *loss $1.5" tailed; }

# has_open PID NAME: it has a file of that name open.
has_open() { ls -l "/proc/$1/fd" 2>/dev/null | grep -q "/$2\$"; }

# A log that a run holds, cut back and grown again, before and after the follower looks; and half a line, which waits
# for its rest.
cut_back() {
    mkdir -p runs/cut
    : >runs/cut/lock
    for i in 1 2 3 4 5; do line $i; done
    sh -c 'exec 9>runs/cut/lock; flock 9; exec sleep 30' &
    pid=$!
    until_true 5 is_held cut
    "$bin" tail runs/cut >tailed 2>&1 &
    follower=$!
    "$bin" tail runs/cut --lines 0 >new 2>&1 &
    new=$!
    until_true 5 shown 5
    until_true 5 has_open $new log.jsonl
    line 6
    until_true 5 shown 6
    printf '{"t":"step","step":7,"loss":7.5,"tok' >>runs/cut/log.jsonl
    sleep 0.3
    shown 7 && fail "half a line was shown"
    printf 'ens":1,"ms":10,"tokens_per_s":100}\nnonsense\n{"t":"eval"\n' >>runs/cut/log.jsonl
    until_true 5 shown 7
    until_true 5 grep -q '^step *7 *loss' new
    grep -q '^step *6 *loss' new || fail "--lines 0 does not show all that is new"
    grep -q '^step *[1-5] ' new && fail "--lines 0 shows what was there before"
    head -n 2 runs/cut/log.jsonl >short
    cat short >runs/cut/log.jsonl
    until_true 5 grep -q 'cut back' tailed
    line 8
    until_true 5 shown 8
    [ "$(grep -c '^step *[12] *loss' tailed)" -eq 2 ] || fail "what is left of a log that was cut is shown again"
    cat short >runs/cut/log.jsonl
    for i in 11 12 13 14 15 16 17 18; do line $i; done
    until_true 5 shown 18
    mv runs/cut/log.jsonl runs/cut/old
    line 21
    until_true 5 shown 21
    printf '{"t":"event","at":"2026-11-24T12:00:00Z","kind":"hang","step":21,"text":"rank 1\\u001b[2J"}\n' \
        >runs/cut/events.jsonl
    until_true 5 grep -q '^hang: rank 1' tailed
    kill "$pid"
    wait "$pid" 2>/dev/null
    pid=
    wait $follower || fail "tail ends with $?"
    wait $new || fail "tail --lines 0 ends with $?"
    grep -q "$(printf '\033')" tailed && fail "an escape sequence got through"
    grep -q '^over' tailed || fail "no word at the end"
}

is_held() { ! is_free "$1"; }

# As many lines as were asked for, of a log that is many times as long as what is read of it at once; its lines are not
# all as long.
far_back() {
    mkdir -p runs/far
    : >runs/far/lock
    awk 'BEGIN { pad = sprintf("%100s", ""); for (i = 1; i <= 6000; i++) print "{\"t\":\"step\",\"step\":" i ",\"loss\":2.5,\"tokens\":1,\"ms\":10" substr(pad, 1, i % 97) "}" }' \
        >runs/far/log.jsonl
    [ "$(wc -c <runs/far/log.jsonl)" -gt 524288 ] || fail "the log is too short to ask anything"
    for n in 1 10 1000 1700 3500 5999 6000 7000; do
        expect 0 "$bin" tail runs/far --lines $n
        grep '^step' "$out" | awk '{ print $2 + 0 }' >shown
        seq $((n < 6000 ? 6001 - n : 1)) 6000 >wanted
        same wanted shown "the steps that tail --lines $n is to show and those that it shows"
    done
}

try finished
try a_bar
try running
try killed
try failed
try never_begun
try from_elsewhere
try cut_back
try far_back
finish
