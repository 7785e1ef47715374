# test/support/lost.sh: runs that lose one rank after the other, for scripts that have read test/support/lib.sh, net.sh
# and cluster.sh.

# A number below $1, from a seed that is always the same; in $rolled.
seed=16
roll() {
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    rolled=$((seed / 65536 % $1))
}

# pipes SCHEDULE PIPELINE: the settings of such a pipeline.
pipes() {
    set -- "$@" "parallel.schedule=$1 parallel.pipeline=$2"
    case $1 in interleaved | zb-v) echo "$3 parallel.chunks=2" ;; *) echo "$3" ;; esac
}

# called RANK RANKS SETTING...: its name in every message, with its place in a layout of so many ranks.
called() {
    member=$1 data=$2 tensor=1 context=1 stages=1 place=
    shift 2
    for each; do
        case $each in
        parallel.pipeline=*) stages=${each#*=} ;;
        parallel.tensor=*) tensor=${each#*=} ;;
        parallel.context=*) context=${each#*=} ;;
        esac
    done
    data=$((data / tensor / context / stages))
    [ $stages -eq 1 ] || place=", stage $((member / tensor / context / data))"
    [ $data -eq 1 ] || place="$place, data $((member / tensor / context % data))"
    [ $context -eq 1 ] || place="$place, context $((member / tensor % context))"
    [ $tensor -eq 1 ] || place="$place, tensor $((member % tensor))"
    echo "rank $member (localhost$place)"
}

keep_phases() {
    sed -n 's/^lockstep: rank [0-9]* (localhost[a-z0-9, ]*): in \([a-z ]*\)[0-9]* of step [0-9]*: rank .*/\1/p' "$out" >>phases
}

# loses_at FAULT NAME RANKS SETTING...: the same of one rank, which is killed at this point.
loses_at() {
    fault=$1 run=$2 ranks=$3
    shift 3
    settings "$run" device.ranks="$ranks" "$@" run.faults="$fault"
    expect 69 train "$run"
    says "$(called "${fault##*:}" "$ranks" "$@") was killed by signal 9"
    keep_phases
    settings "$run" device.ranks="$ranks" "$@"
    expect 0 train "$run"
    like "runs/$whole" "runs/$run"
}

# loses NAME RANKS SETTING...: rank after rank is killed, at any moment after a step or two, within $pause ms; all end
# with 69 and name it; the same command goes on, and ends like the run $whole, to which nothing happened. `phases`
# collects what the others were doing.
loses() {
    run=$1 ranks=$2 before=0
    shift 2
    settings "$run" device.ranks="$ranks" "$@"
    for victim in $(seq 0 $((ranks - 1))); do
        start "$bin" base.ini "$run.ini"
        until_step "runs/$run" $((before + 1))
        roll "$pause"
        sleep "$(printf '0.%03d' $rolled)"
        kill -9 "$(children "$pid" | sed -n "$((victim + 1))p")"
        from=$(now)
        comes_to 69
        [ $(($(now) - from)) -le 5000 ] || fail "it took $(($(now) - from)) ms until all had ended, expected 5 s at most"
        says "$(called $victim $ranks "$@") was killed by signal 9" "$(called $victim $ranks "$@") is lost: "
        keep_phases
        before=$(last_step "runs/$run")
    done
    expect 0 train "$run"
    like "runs/$whole" "runs/$run"
    rm -rf "runs/$run"
}

# seen PHASE...: some rank was doing this when it lost another.
seen() {
    for each; do
        grep -q "^$each" phases || fail "nobody was lost in \"$each\", only in: $(sort -u phases | tr '\n' ',')"
    done
}
