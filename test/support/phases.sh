# test/support/phases.sh: how long a run that heals did not come further, as its event `caught_up` says. For scripts that
# have read test/support/lib.sh.
#
#   struck=$(wall)              just before something is killed or stopped
#   phases DIR [DETECT]         the last such event of this run directory: five phases, none negative, which together
#                               are the time until the run came to a step that is new; detecting the loss took at
#                               least DETECT seconds of it
wall() { date +%s.%N; }
figure() { sed "s/.*\"$1_s\":\([0-9.e+-]*\)[,}].*/\1/" last; }

has_caught_up() { grep -qs '"kind":"caught_up"' "$1/events.jsonl"; }
# When the step was logged that is new. Those before it may be logged no more.
at_step() {
    sed -n "s/^{\"t\":\"step\",\"step\":$2,.*\"time\":\([0-9.]*\).*/\1/p" "$1/log.jsonl"
}
goes_on() { logged_at=$(at_step "$1" $(($2 + 1))) && [ -n "$logged_at" ]; }
# A machine may be busy between a kill and the moment in which the kernel says so to the parent: for 1 s at most. The
# last sign of life of who stands still was up to a heartbeat before: 0.2 s.
phases() {
    grep '"kind":"caught_up"' "$1/events.jsonl" | tail -n 1 >last
    step=$(sed 's/.*"step":\([0-9]*\).*/\1/' last)
    until_true 20 goes_on "$1" "$step"
    echo "$(figure detect) $(figure unwind) $(figure enter) $(figure move) $(figure replay)" >figures
    grep -qE '^[0-9.e+-]+( [0-9.e+-]+){4}$' figures || fail "not five figures: $(cat last)"
    awk -v took="$(sed 's/.* after \([0-9.]*\) s:.*/\1/' last)" -v struck="$struck" -v at="$logged_at" \
        -v least="${2:-0}" '
        { for (i = 1; i <= 5; i++) { sum += $i; if ($i < 0) exit 1 } }
        sum < took - 0.001 || sum > took + 0.001 { exit 2 }
        sum > at - struck + (least > 0 ? 0.25 : 0.01) || sum < at - struck - 1 { exit 3 }
        $1 < least { exit 4 }' figures
    case $? in
    0) ;;
    1) fail "a phase is negative: $(cat last)" ;;
    2) fail "the phases do not add up: $(cat last)" ;;
    3) fail "from $struck until step $((step + 1)) was logged at $logged_at, and it says: $(cat last)" ;;
    4) fail "detecting it took $2 s at least: $(cat last)" ;;
    esac
}
