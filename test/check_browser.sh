#!/bin/sh
# test/check_browser.sh: pages in a browser (test/interop/browser.py): narrow and wide, light and dark, without scripts,
# printed: nothing on the console, no request, no overflow, contrast, names for screen readers. Of a real run, of one
# with everything, of several, of nearly nothing.
. test/support/lib.sh
. "$top/test/support/logs.sh"
. "$top/test/support/images.sh"
. "$top/test/support/long_log.sh"
. "$top/test/support/net.sh"

# look PAGE...: with nothing wrong.
look() {
    command -v python3 >/dev/null || skip "there is no python3"
    python3 "$top/test/interop/browser.py" "$@" >"$out" 2>&1
    rc=$?
    [ $rc -ne 77 ] || skip "$(cat "$out")"
    [ $rc -eq 0 ] || { tail -n 40 "$out"; fail "a page is not as it should be"; }
    [ "$(grep -c ', well$' "$out")" -eq $# ] || fail "not all of $# pages were seen"
}

# train NAME STEPS SECTION.KEY=VALUE...
train() {
    name_=$1 steps_=$2
    [ -s text.bin ] || text 20000 >text.bin
    settings "$name_" run.steps="$steps_" data.train=text.bin data.val=text.bin data.format=raw16 model.vocab=65536 \
        model.layers=1 model.heads=2 model.embed=8 \
        model.context=16 schedule.type=constant batch.global=4 batch.micro=2 eval.every=4 eval.batches=2 \
        sample.tokens=200 log.every=1 log.hash_every=1 checkpoint.every=4
    shift 2
    for each; do printf '[%s]\n%s\n' "${each%%.*}" "${each#*.}"; done >"$name_-more.ini"
    "$bin" "$name_.ini" "$name_-more.ini" >"$out" 2>&1 </dev/null || fail "$name_: a run that ended with $?"
}

# classify: a run that says of images what they are, of five classes.
classify() {
    [ -e seen-images ] || images seen 0 700
    image_run
    settings seen "data.train=seen-*"
    "$bin" base.ini seen.ini >"$out" 2>&1 </dev/null || fail "seen: a run that ended with $?"
}

# With many classes there is a list of the worst.
many_classes() {
    mkdir -p many
    echo '{"t":"eval","step":1,"loss":2.5,"accuracy":0.5,"best":2,"best_step":1}' >many/log.jsonl
    awk 'BEGIN {
        printf "{\"step\":1,\"samples\":3000,\"right\":2565,\"classes\":["
        for (c = 0; c < 30; c++) printf "%s{\"label\":%d,\"name\":\"a long name of class %d\",\"of\":100,\"right\":%d,\"said\":100}", c ? "," : "", c, c, 100 - c
        printf "],\"pairs\":["
        for (c = 0; c < 30; c++) printf "%s{\"label\":%d,\"answer\":%d,\"count\":%d}", c ? "," : "", c, (c + 1) % 30, 30 - c
        print "],\"examples\":[],\"mistakes\":[]}"
    }' >many/answers.json
}

pages_are_well() {
    train real 40
    train real 60
    train other 60 optimizer.lr=0.01 "sample.prompt=<b>&lt;"
    train tiny 1
    long long 30000 24
    mkdir -p empty && printf '[run]\nsteps = 3\n' >empty/config.ini
    classify
    many_classes
    for run in runs/real runs/tiny runs/seen long empty many; do expect 0 "$bin" report $run; done
    expect 0 "$bin" report runs/real runs/other long runs/tiny runs/real --out several.html
    look runs/real/report.html runs/tiny/report.html runs/seen/report.html long/report.html empty/report.html \
        many/report.html several.html
    sed 's/^/  /' "$out"
}

# The page that a run shows while it goes on, in which a browser also obeys the policy that the server sends.
a_live_page_is_well() {
    [ -s text.bin ] || text 20000 >text.bin
    at=127.0.0.1:$((20000 + $$ % 10000))
    settings live run.steps=1000000 data.train=text.bin data.val=text.bin data.format=raw16 model.vocab=65536 \
        model.layers=1 model.heads=2 model.embed=8 \
        model.context=16 schedule.type=constant batch.global=4 batch.micro=2 eval.every=40 eval.batches=2 \
        sample.tokens=20 log.every=1 checkpoint.every=100
    printf '[log]\nhttp = %s\nmachine_every = 1\n' "$at" >live-more.ini
    start "$bin" live.ini live-more.ini
    until_true 20 grep -qs '"t":"checkpoint"' runs/live/log.jsonl
    look "http://$at/"
    sed 's/^/  /' "$out"
    kill -TERM "$pid"
    comes_to 75
}

# The looking itself: what is wrong is found.
faults_are_found() {
    train real 8
    expect 0 "$bin" report runs/real
    page=runs/real/report.html
    look "$page"
    sed 's/--dim:#5a5a5a/--dim:#9a9a9a/' "$page" >pale.html
    sed 's|<main>|<main><p style="width:700px">wide</p>|' "$page" >wide.html
    sed 's|<main>|<main><script>console.log(1)</script>|' "$page" >script.html
    sed "s|default-src 'none'; ||; s|<main>|<main><img src=\"https://example.org/a.png\">|" "$page" >asks.html
    sed 's|aria-labelledby="t0 d0"||' "$page" >unnamed.html
    classify
    expect 0 "$bin" report runs/seen
    look runs/seen/report.html
    sed 's/background:rgba(0,114,178,[0-9.]*)/background:rgb(60,60,60)/' runs/seen/report.html >cell.html
    sed 's/image.png;base64,[^"]*"/image\/png;base64,AAAA"/' runs/seen/report.html >broken.html
    sed 's/ alt="[^"]*"/ alt=""/' runs/seen/report.html >nameless.html
    for bad in pale wide script asks unnamed cell broken nameless; do
        cmp -s "$bad.html" "$page" && fail "$bad.html is no other page"
        cmp -s "$bad.html" runs/seen/report.html && fail "$bad.html is no other page"
        python3 "$top/test/interop/browser.py" "$bad.html" >"$out" 2>&1 && fail "$bad.html is found well"
        case $bad in
        pale) says "contrast 2." ;;
        wide) says "the page is " ;;
        script) says "a script, or something that loads" ;;
        asks) says "a request for https://example.org/a.png" ;;
        unnamed) says "a picture without a name" ;;
        cell) says "contrast 1." ;;
        broken | nameless) says "a picture that has no name or is not shown" ;;
        esac
    done
}

try pages_are_well
try a_live_page_is_well
try faults_are_found
finish
