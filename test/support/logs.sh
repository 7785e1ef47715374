# test/support/logs.sh: looking at what runs leave in runs/. After lib.sh.

train() { timeout -k 10 120 "$bin" base.ini "$1.ini"; }

# steps RUN: "step loss hash", a line for each record of a step, as they stand in the log.
steps() {
    sed -n 's/^{"t":"step","step":\([0-9]*\),"loss":\([^,]*\),.*"hash":"\([0-9a-f]*\)".*/\1 \2 \3/p' "runs/$1/log.jsonl"
}

# untimed RUN: the log without what a clock said.
untimed() {
    sed -e 's/,"ms":[^,}]*//' -e 's/,"\(tokens\|samples\)_per_s":[^,}]*//' -e 's/,"data_wait_ms":[^,}]*//' \
        -e 's/,"comm_wait_ms":[^,}]*//' \
        -e 's/,"\(mfu\|time\|resident\|device_bytes\)":[^,}]*//g' -e '/^{"t":"ranks"/d' "runs/$1/log.jsonl"
}

# saved RUN: newest becomes the step of its newest checkpoint, 0 without one; newest_dir where it is. Starts no process:
# kills wait on it.
saved() {
    newest=0 newest_dir=none
    for each in runs/"$1"/ckpt/step-*; do
        [ -d "$each" ] || continue
        newest_dir=$each
        newest=$((1${each##*step-} - 100000000))
    done
}

last_step() { sed -n 's/^{"t":"step","step":\([0-9]*\),.*/\1/p' "runs/$1/log.jsonl" | tail -n 1; }
has_saved() { saved "$1"; [ "$newest" -ge "$2" ]; }
has_logged() { [ "$(last_step "$1" 2>/dev/null)" -ge "$2" ] 2>/dev/null; }
has_event() { grep -q "\"kind\":\"$2\"" "runs/$1/events.jsonl"; }

# event RUN KIND TEXT...: events.jsonl has such an event, one record with all of these texts.
event() {
    grep "\"kind\":\"$2\"" "runs/$1/events.jsonl" >found || fail "$1: no event \"$2\" in events.jsonl"
    run=$1 kind=$2
    shift 2
    for each; do
        grep -F -e "$each" found >found.more || fail "$run: the event \"$kind\" does not name \"$each\": $(head -n 1 found)"
        mv found.more found
    done
}

# hashes RUN: hash and state_hash of its newest checkpoint, every digest verified.
hashes() {
    saved "$1"
    "$bin" hash "$newest_dir" 2>&1 | sed 's/  runs.*//'
}

# like A B: run B must read as if it were run A: every record but for times, the newest state, the best one, and nothing
# left lying about.
like() {
    untimed "$1" >log.want
    untimed "$2" >log.found
    same log.want log.found "the logs of $1 and $2"
    same_state "$1" "$2"
    [ "$(readlink "runs/$1/best")" = "$(readlink "runs/$2/best")" ] ||
        fail "best is $(readlink "runs/$2/best"), expected $(readlink "runs/$1/best")"
}

same_state() {
    hashes "$1" >hash.want
    hashes "$2" >hash.found
    grep -q 'hash [0-9a-f]*  state_hash [0-9a-f]' hash.want || fail "$1: no hash: $(cat hash.want)"
    same hash.want hash.found "the hashes of the last checkpoints of $1 and $2"
    find "runs/$2" -name '*.tmp*' -o -name '.old*' -o -name '.best' >litter
    [ ! -s litter ] || fail "$2: temporary files are left: $(head -n 3 litter)"
}

same_steps() {
    steps "$1" >steps.want
    steps "$2" >steps.found
    same steps.want steps.found "the steps of $1 and $2"
}
