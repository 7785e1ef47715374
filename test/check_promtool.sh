#!/bin/sh
# test/check_promtool.sh: what Prometheus itself thinks of us. Its checker reads the metrics and every expression of the
# dashboard; a Prometheus, where there is one, scrapes the page that test/support/watching.c shows, with the settings of
# trainer/watch/README.md, and is asked what it has.
. test/support/lib.sh
watching=$top/build/test/watching
PATH=$PATH:$top/build/prometheus/usr/bin  # of make check-deps
[ -x "$watching" ] || { echo "$watching: not there; build it first: make tests"; echo "0 passed, 1 failed"; exit 1; }

wanted() { command -v "$1" >/dev/null || skip "no $1 (Debian: prometheus)"; }

# The checker says nothing at all of what is right.
metrics_are_clean() {
    wanted promtool
    "$watching" metrics >metrics || fail "no metrics"
    expect 0 sh -c 'promtool check metrics <metrics'
    [ ! -s "$out" ] || fail "promtool has something to say"
    sed 's/_bytes_total/_bytes/' metrics >worse
    expect 3 sh -c 'promtool check metrics <worse'
    says 'counter metrics should have "_total" suffix'
}

# The expressions as recording rules, with what Grafana puts into them.
expressions_parse() {
    wanted promtool
    echo 'groups: [{name: dashboard, rules: [' >rules.yml
    sed -n 's/^ *"expr": \("\(\\.\|[^"\\]\)*"\).*/\1/p; s/.*[{ ]"expr": \("\(\\.\|[^"\\]\)*"\).*/\1/p' \
        "$top/trainer/watch/grafana.json" | sort -u |
        sed 's/\$__rate_interval\|\$__range/5m/g; s/\$instance/.*/g' |
        awk '{ print "{record: \"r" NR "\", expr: " $0 "}," }' >>rules.yml
    echo ']}]' >>rules.yml
    expect 0 promtool check rules rules.yml
    found=$(sed -n 's/.*SUCCESS: \([0-9]*\) rules found.*/\1/p' "$out")
    [ "${found:-0}" -ge 40 ] || fail "only ${found:-0} expressions were found"
    sed 's/sum by/sum at/' rules.yml >wrong.yml
    expect 1 promtool check rules wrong.yml
}

# Those of the README.
alerts_parse() {
    wanted promtool
    blocks_of yml >alerts.yml
    expect 0 promtool check rules alerts.yml
    says "4 rules found"
}

# blocks_of KIND: what stands in such blocks of the README.
blocks_of() {
    cat "$top/trainer/watch/README.md" |
        awk -v kind="$1" '$0 == "```" kind { on = 1; next } /^```/ { on = 0 } on'
}

# watch ADDRESS [TOKEN_FILE]: shows the pages; $url is where.
watch() {
    start "$watching" serve "$1" 60 ${2:-}
    until_true 5 grep -q http "$out.started"
    url=$(head -n 1 "$out.started")
}

# The scrape settings of the README, with the address and the directory of this test.
scrape_settings() {
    blocks_of yaml | sed "s|node1:28080, node2:28080|$1|; s|/etc/prometheus/|$work/|; s|scrape_interval: .*|scrape_interval: 1s|" >prometheus.yml
    [ -s prometheus.yml ] || fail "the README has no settings for Prometheus"
}

# A Prometheus of our own, on a free port and for a minute at most.
it_scrapes() {
    wanted promtool
    wanted prometheus
    (umask 077; echo a-token-of-24-characters >lockstep.token)
    watch 127.0.0.1:0 lockstep.token
    at=${url#http://}
    scrape_settings "${at%/}"
    expect 0 promtool check config prometheus.yml
    port=$((20000 + $$ % 10000))
    timeout 60 prometheus --config.file=prometheus.yml --storage.tsdb.path=data --web.listen-address=127.0.0.1:$port \
        >prometheus.log 2>&1 &
    scraper=$!
    trap 'kill -9 $scraper 2>/dev/null; reap' EXIT
    until_true 30 answers $port 'up{job="lockstep"}' '=> 1 @'
    for each in 'lockstep_step => 120' 'lockstep_train_loss => 2.5' 'lockstep_alarms{kind="hang"} => 0' \
        'histogram_quantile(0.5, lockstep_step_duration_seconds_bucket) => 0.37' 'lockstep_healthy => 1'; do
        answers $port "${each% =>*}" "=> ${each##*=> }" || { cp answer "$out"; fail "asked for ${each% =>*}"; }
    done
    kill $scraper
    wait $scraper 2>/dev/null
    return 0
}

answers() {
    promtool query instant "http://127.0.0.1:$1" "$2" >answer 2>&1 && grep -qF -e "$3" answer
}

try metrics_are_clean
try expressions_parse
try alerts_parse
try it_scrapes
finish
