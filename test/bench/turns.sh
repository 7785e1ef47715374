# test/bench/turns.sh: runs that take turns on made-up data, for scripts that compare them. BIN is their first argument,
# turns the second.
set -eu
bin=${1:-./lockstep} turns=${2:-5}
case $bin in /*) ;; *) bin=$PWD/$bin ;; esac
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 143' HUP INT TERM

median() { sort -g | awk '{ x[NR] = $1 } END { print (NR % 2) ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }
ms() { sed -n 's/.*steps: median \([0-9.]*\) ms.*/\1/p'; }

# settings NAME TEXT: an INI file.
settings() { printf '%b' "$2" >"$dir/$1.ini"; }

# step SHAPE STEPS TEXT: median ms of a step.
step() {
    settings more "$3"
    "$bin" bench "$dir/$1.ini" "$dir/more.ini" --steps "$2" | ms
}

# in_turn SHAPE STEPS NAME=TEXT...: the median of each is in $dir/NAME.
in_turn() {
    shape=$1 steps=$2
    shift 2
    for each; do : >"$dir/${each%%=*}.all"; done
    for turn in $(seq "$turns"); do
        for each; do step "$shape" "$steps" "${each#*=}" >>"$dir/${each%%=*}.all"; done
    done
    for each; do median <"$dir/${each%%=*}.all" >"$dir/${each%%=*}"; done
}
ratio() { awk -v a="$(cat "$dir/$1")" -v b="$(cat "$dir/$2")" 'BEGIN { printf "%.3f", a / b }'; }
