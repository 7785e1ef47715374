#!/bin/sh
# test/test_watched.sh: what is made of a run afterwards, from the outside: `lockstep report` and `lockstep compare` on
# runs of a few steps, one of which was stopped and went on.
. test/support/lib.sh

# train NAME SECTION.KEY=VALUE...: a run of a tiny model.
train() {
    name_=$1
    [ -s text.bin ] || text 20000 >text.bin
    settings "$name_" data.train=text.bin data.val=text.bin data.format=raw16 model.vocab=65536 model.layers=1 \
        model.heads=2 model.embed=8 model.context=16 \
        schedule.type=constant batch.global=4 batch.micro=2 eval.every=4 eval.batches=2 sample.tokens=8 log.every=1 \
        log.hash_every=1 checkpoint.every=4 run.steps=8
    shift
    for each; do printf '[%s]\n%s\n' "${each%%.*}" "${each#*.}"; done >"$name_-more.ini"
    "$bin" "$name_.ini" "$name_-more.ini" >"$out" 2>&1 </dev/null || fail "$name_: a run that ended with $?"
}

one_page() {
    train first
    cp runs/first/log.jsonl before
    expect 0 "$bin" report runs/first
    says "runs/first/report.html: "
    one_line
    page=runs/first/report.html
    for part in "<!DOCTYPE html>" ">Loss</b>" ">Gradient norm</b>" "per second</b>" "What the model wrote" \
        "Hardware and build" "data.train" "</html>"; do
        grep -qF "$part" "$page" || fail "the page has no $part"
    done
    ! grep -qE '<script|https?:|<img|<link|url\(' "$page" || fail "the page asks for something"
    hash=$(sed -n 's/.*"t":"checkpoint","step":8,"hash":"\([0-9a-f]*\)".*/\1/p' runs/first/log.jsonl)
    [ -n "$hash" ] && grep -q "$hash" "$page" || fail "the page lacks the hash $hash"
    same before runs/first/log.jsonl "the log before and after its report"
    expect 0 "$bin" report runs/first --out elsewhere.html
    cmp -s elsewhere.html "$page" || fail "the same run, another page"
}

several() {
    train a
    train b
    train c optimizer.lr=0.01
    expect 0 "$bin" report runs/a runs/b runs/c --out three.html
    for part in "3 runs" "Where they part" "the same weights up to step 8" \
        "other weights from the first hash on, at step 1" "optimizer.lr"; do
        grep -qF "$part" three.html || fail "the page has no $part"
    done
    expect 0 "$bin" compare runs/a runs/b runs/c
    says "A  a " "B  b " "C  c " "training loss" "the same weights up to step 8" "hash at step 8: " \
        "optimizer.lr                A 0.001  B 0.001  C 0.01"
    grep -q "$(printf '\033')" "$out" && fail "colours, and no terminal"
    [ "$(awk '{ if (length > n) n = length } END { print n }' "$out")" -le 80 ] || fail "lines of more than 80 columns"
    LC_ALL=C.UTF-8 expect 0 "$bin" compare runs/a
    LC_ALL=C.UTF-8 locale charmap 2>/dev/null | grep -q UTF-8 || skip "no UTF-8 locale"
    says "⠉"
}

# A run that went on with other settings parts where it went on, and its event is a mark.
went_on() {
    train whole run.steps=16
    train cut run.steps=8
    train cut run.steps=16 eval.batches=1
    expect 0 "$bin" compare runs/whole runs/cut
    says "the same weights up to step 16"
    says "eval.batches"
    expect 0 "$bin" report runs/cut
    grep -q '<title>step 8: resume' runs/cut/report.html || fail "no mark where it went on"
    grep -qF 'class="x">resume</td>' runs/cut/report.html || fail "no event in the table"
}

refused() {
    mkdir empty
    expect 64 "$bin" report
    says "expected a run's directory"
    expect 64 "$bin" compare
    expect 64 "$bin" report empty --in
    expect 65 "$bin" report empty
    says "empty: no run's directory"
    expect 65 "$bin" compare missing
    train d
    expect 74 "$bin" report runs/d --out no/such/place.html
    one_line
    "$bin" --help | grep -q 'lockstep report|compare RUN_DIR' || fail "the help lacks them"
}

try one_page
try several
try went_on
try refused
finish
