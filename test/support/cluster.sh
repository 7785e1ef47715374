# test/support/cluster.sh: runs of many ranks and nodes, from the outside, for scripts that have read
# test/support/lib.sh and test/support/net.sh: a small model and its data, runs on one machine or on nodes, and how to
# compare what they leave.

ini >base.ini <<'END'
run dir=runs steps=20
model layers=2 heads=2 embed=40 context=24 dropout=0.1
data train=data/plain-train-*.bin val=data/plain-val-*.bin
pack input=text.txt output=data/plain
batch global=16 micro=1 lanes=8
schedule warmup=5
checkpoint every=0 keep_best=no
eval every=10 batches=8
sample tokens=0
log every=1 hash_every=1
END
text 80000 >text.txt
head -c 32 /dev/urandom >secret
chmod 600 secret
"$bin" pack base.ini >"$out" 2>&1 || { cat "$out"; echo "0 passed, 1 failed"; exit 1; }

# --- looking at runs --------------------------------------------------------------------------------------------------

train() { timeout -k 10 100 "$bin" base.ini "$1.ini"; }

# facts DIR: the log without what a clock said and without what only several ranks have to say.
facts() {
    sed -e 's/,"ms":[^,}]*//' -e 's/,"[a-z]*_per_s":[^,}]*//' -e 's/,"waiting":[^,}]*//' \
        -e 's/,"[a-z]*_wait_ms":[^,}]*//g' \
        -e 's/,"comm_[a-z]*":[^,}]*//g' \
        -e 's/,"slowest_rank":[^,}]*//' -e 's/,"[a-z]*_compute_ms":[^,}]*//g' \
        -e 's/,"\(mfu\|time\|resident\|device_bytes\)":[^,}]*//g' \
        -e '/^{"t":"ranks"/d' "$1/log.jsonl"
}

newest() { ls -d "$1"/ckpt/step-* 2>/dev/null | tail -n 1; }
newest_name() { basename "$(newest "$1")"; }
hashes() { "$bin" hash "$(newest "$1")" 2>&1 | sed "s/  [^ ]*$//"; }
last_step() { sed -n 's/^{"t":"step","step":\([0-9]*\),.*/\1/p' "$1/log.jsonl" 2>/dev/null | tail -n 1; }
has_logged() { [ "$(last_step "$1")" -ge "$2" ] 2>/dev/null; }

# until_step RUN STEP: until it has logged that step; node0/runs/RUN is one of the nodes' runs.
until_step() {
    until=$(($(now) + 40000))
    until has_logged "$1" "$2"; do
        case $1 in node*) cp node0/out "$out"; who=$(supervisor 0) ;; *) cp "$out.started" "$out" \
            2>/dev/null; who=$pid ;; esac
        [ "$(now)" -lt $until ] || fail "waited too long for step $2"
        grep -q ') [^Z]' "/proc/$who/stat" 2>/dev/null || has_logged "$1" "$2" || fail "it ended before step $2"
        sleep 0.01
    done
}

# same_end A B: the newest checkpoints of these run directories are of the same step and have the same hashes, every
# digest verified.
same_end() {
    [ "$(newest_name "$1")" = "$(newest_name "$2")" ] ||
        fail "the newest checkpoint is $(newest "$2"), expected that of $(newest "$1")"
    hashes "$1" >hash.want
    hashes "$2" >hash.found
    grep -q '^hash [0-9a-f]*  state_hash [0-9a-f]*$' hash.want || fail "$1: no hash: $(cat hash.want)"
    same hash.want hash.found "the hashes of the newest checkpoints of $1 and $2"
}

# like A B: run directory B reads as if it were A: every record, the newest checkpoint, nothing left lying about.
like() {
    facts "$1" >log.want
    facts "$2" >log.found
    same log.want log.found "the logs of $1 and $2"
    same_end "$1" "$2"
    find "$2" -name '*.tmp*' -o -name '.old*' -o -name '.tmp-*' >litter
    [ ! -s litter ] || fail "$2: temporary files are left: $(head -n 3 litter)"
}

# alone RUN RANKS SETTING...: on this machine alone, with so many ranks; a run that is there already is not made again.
alone() {
    run=$1 ranks=$2
    shift 2
    [ ! -d "runs/$run" ] || return 0
    settings "$run" device.ranks="$ranks" "$@"
    expect 0 train "$run"
}

# together RUN SETTING...: the settings of a run on the nodes that were made.
together() {
    run=$1
    shift
    settings "$run" cluster.nodes="$list" cluster.port="$port" "$@"
}

# union RUN: what the nodes have of its newest checkpoint goes to union/RUN. Each file lies on two nodes, its own and
# the next, the manifest on all; what has the same name is the same.
union() {
    step=$(newest_name "node0/runs/$1")
    all=union/$1/ckpt/$step
    rm -rf "union/$1"
    mkdir -p "$all"
    for k in $(seq 0 $((nodes - 1))); do
        [ "$(newest_name "node$k/runs/$1")" = "$step" ] || fail "node $k: $step is not its newest checkpoint"
        find "node$k/runs/$1" -name '*.tmp*' -o -name '.old*' -o -name '.tmp-*' >litter
        [ ! -s litter ] || fail "temporary files are left: $(head -n 3 litter)"
        for file in "node$k/runs/$1/ckpt/$step"/*; do
            [ ! -e "$all/${file##*/}" ] || cmp -s "$file" "$all/${file##*/}" ||
                fail "$file is not what another node has under this name"
            cp "$file" "$all"
        done
    done
    copies=$((nodes > 1 ? 2 : 1))
    for file in "$all"/*; do
        want=$copies
        [ "${file##*/}" != manifest.json ] || want=$nodes
        found=$(ls node?/runs/"$1"/ckpt/"$step"/"${file##*/}" | wc -l)
        [ "$found" -eq $want ] || fail "${file##*/} lies on $found nodes, expected $want"
    done
}

# nodes_like WANT RUN: the run on nodes reads like the one in WANT: node 0 has the log, all of them the checkpoint.
nodes_like() {
    union "$2"
    cp "node0/runs/$2/log.jsonl" "union/$2"
    like "$1" "union/$2"
}

# as_one RUN SETTING...: the nodes that were made train a run that ends like one rank's.
as_one() {
    alone ref 1
    together "$@"
    boot "$1"
    ended 0
    on 0 "on $nodes nodes"
    nodes_like runs/ref "$1"
    nothing_left
}

# --- stopped, and lost ------------------------------------------------------------------------------------------------

long="run.steps=400 eval.every=0 model.embed=16 model.layers=1 batch.global=8"

# stop_nodes RUN STEP K...: SIGTERM to the supervisors of these nodes after that step; all stop.
stop_nodes() {
    run=$1
    until_step "node0/runs/$run" "$2"
    shift 2
    for k; do kill -TERM "$(supervisor "$k")"; done
    ended 75
    on 0 "stopped after step"
}

# moves RUN SIGNAL STEPS SETTING...: the run is stopped by TERM or KILL after so many steps, in one layout after the
# other, and goes on in the next; in the last one it comes to the end that the run `unmoved` of one rank has. Layouts are
# lines of standard input: RANKS SETTING..., and after a "/" the blocks of each stage. Leaves in $stops how often it was
# stopped, and in $before after which step at last.
moves() {
    moving=$1 signal=$2 by=$3 before=0 stops=0 first=yes
    shift 3
    alone unmoved 1 "$@"
    while read -r ranks layout; do
        [ $first = yes ] || stops_moving
        first=no
        settings "$moving" "$@" device.ranks="$ranks" ${layout%%/*}
        case $layout in */*) printf '[parallel]\nstages = %s\n' "${layout#*/}" >>"$moving.ini" ;; esac
    done
    expect 0 train "$moving"
    like runs/unmoved "runs/$moving"
    [ "$(grep -c '"kind":"resume"' "runs/$moving/events.jsonl")" -eq $stops ] ||
        fail "$stops stops, and as many resumes are not in events.jsonl"
}

# KILL takes the supervisor, and its ranks end too. A run that is asked to stop saves its last step.
stops_moving() {
    start "$bin" base.ini "$moving.ini"
    until_step "runs/$moving" $((before + by))
    all=$(children "$pid")
    kill -"$signal" "$pid"
    until_over $all
    comes_to $([ "$signal" = TERM ] && echo 75 || echo 137)
    before=$(last_step "runs/$moving")
    stops=$((stops + 1))
    [ "$signal" = TERM ] || return 0
    says "stopped after step"
    saved=$(newest_name "runs/$moving")
    [ "$saved" = "$(printf 'step-%08d' "$before")" ] || fail "step $before was the last one, saved is $saved"
}

forever="run.steps=1000000 schedule.type=constant eval.every=0 log.hash_every=0"
endless="$forever model.embed=16 model.layers=1"

# all_lose RANK HOST CODES K...: the nodes end with these codes within 5 s, and nodes K say which rank was lost, of
# which node, and what it was doing.
all_lose() {
    rank=$1 host=$2
    ended $3
    [ $took -le 5000 ] || fail "it took $took ms until all had ended, expected 5 s at most"
    shift 3
    for k; do on_matching "$k" "rank $rank \\($host\\) is lost: .*, in [a-z].* of step [0-9]+"; done
    nothing_left
}

# Signs of life say what a rank is doing; some must have come.
begin_endless() {
    together "$1" $endless cluster.timeout="${2:-20}" cluster.heartbeat=0.1
    boot "$1"
    until_step "node0/runs/$1" 5
    sleep 0.5
}

# A rank of a node with several, then one that is a node's only one, then rank 0, to which all others are connected.
rank_killed() {
    "$@" 2 2 1
    begin_endless killed
    kill -9 "$(rank 1 1)"
    all_lose 3 "$(host 1)" 69 0 1 2
    on 1 "rank 3 ($(host 1)) was killed by signal 9"
    begin_endless killed-alone
    kill -9 "$(rank 2 0)"
    all_lose 4 "$(host 2)" 69 0 1
    on 2 "rank 4 ($(host 2)) was killed by signal 9"
    begin_endless killed-first
    kill -9 "$(rank 0 0)"
    all_lose 0 "$(host 0)" 69 0 1 2
    on 0 "rank 0 ($(host 0)) was killed by signal 9"
}

# --- who may take part ------------------------------------------------------------------------------------------------

untouched() {
    for k in $(seq 0 $((nodes - 1))); do [ ! -e "node$k/runs" ] || fail "node $k: something was written"; done
}
is_listening() { listening /proc/net | grep -qx "$1"; }

# both_say WHAT: both nodes name the same two values.
both_say() {
    for k in 0 1; do
        on $k "$1"
        sed -n "s/.*rank 1 (127.0.0.2) runs $1 \([^,]*\), rank 0 (127.0.0.1) runs \([^:]*\):.*/\1 \2/p" node$k/out |
            head -n 1 >said$k
    done
    same said0 said1 "what both say of the $1"
    awk '$1 == $2 { exit 1 }' said0 || fail "the same $1 twice: $(cat said0)"
}
