# test/support/net.sh: several nodes on one machine, for scripts that have read test/support/lib.sh. A node is a
# directory node0, node1, ... in which the same command is started with the same base.ini and RUN.ini and with an
# own.ini of its own: no file is shared but the training data.
#
#   near 2 2        two nodes of two ranks, on 127.0.0.1 and 127.0.0.2; LOCKSTEP_NODE says which one is which: needs no
#                   privilege
#                   (and NCCL_HOSTID, so that NCCL takes ranks on one GPU for ranks of several hosts)
#   far 2 2         each in a network namespace of its own, with a cable to one switch; they find themselves by their
#                   addresses
#   lossy 20 1 2 2  the same, but the switch is a bad one: 20 ms late, and one frame in a hundred is lost; $mbit: and
#                   no node sends more megabits a second
#
# The namespaces are named after this shell's pid, hold everything that is made for them, and go with the case, as
# processes do.
unset LOCKSTEP_NODE CREDENTIALS_DIRECTORY
mark=lockstep-test-$$
nodes=0    # how many there are
list=      # of them, as [cluster] nodes has it
kind=none  # near or far
pids=      # of what was started on them, in their order
cable=     # pid of test/support/lossy.c
crowd=     # pid of test/support/crowd.c
verb=      # what boot starts; empty: training

# A case's processes and namespaces end with it, a script's when it is interrupted.
reap() {
    for each in $pids $pid $cable $crowd; do { kill -9 "$each"; wait "$each"; } 2>/dev/null; done
    pids='' pid='' cable='' crowd=''
    net_down
}

net_down() {
    for each in /run/netns/"$mark"-*; do [ ! -e "$each" ] || ip netns del "${each##*/}"; done 2>/dev/null
}
trap 'net_down; leave' EXIT

# built NAME: where a program that belongs to the tests was built; empty: nowhere.
built() {
    for each in "${bin%/*}/test/$1" "$top/build/test/$1" "$top/build/asan/test/$1"; do
        [ ! -e "$each" ] || { echo "$each"; return; }
    done
}

# --- nodes ------------------------------------------------------------------------------------------------------------

host() { if [ $kind = near ]; then echo "127.0.0.$(($1 + 1))"; else echo "10.77.0.$(($1 + 1))"; fi; }

# Ports on which no process listens. A lock keeps other scripts of this checkout from choosing the same ones; it is held
# as long as the case has processes.
take_ports() {
    port=$((20000 + $$ % 350 * 20))
    until lock_port && ! busy $port; do port=$((port + 20)); done
}
lock_port() {
    mkdir -p "$top/build/ports" 2>/dev/null && command -v flock >/dev/null || return 0
    exec 7>"$top/build/ports/$port" && flock -n 7
}

# busy PORT: somebody of this namespace listens on it, or on one of the 19 above.
busy() {
    for at in $(listening /proc/net); do [ "$at" -ge "$1" ] && [ "$at" -lt $(($1 + 20)) ] && return 0; done
    return 1
}

# listening DIR [INODE...]: the TCP ports on which somebody listens, as /proc/net or /proc/PID/net says; of these
# sockets only, where some are named.
listening() {
    dir=$1
    shift
    for hex in $(cat "$dir"/tcp "$dir"/tcp6 2>/dev/null | awk -v only=" $* " '
        $4 == "0A" && (only == "  " || index(only, " " $10 " ")) { print substr($2, length($2) - 3) }'); do
        echo $((0x$hex))
    done
}

# lay KIND RANKS...: the nodes' directories and their list.
lay() {
    kind=$1 nodes=0 list=
    shift
    for ranks; do
        rm -rf node$nodes
        mkdir node$nodes
        ln -s ../data node$nodes/data
        cp secret node$nodes/secret
        chmod 600 node$nodes/secret
        printf '[run]\ndir = runs\n[cluster]\nsecret_file = secret\n' >node$nodes/own.ini
        list="$list${list:+, }$(host $nodes):$ranks"
        nodes=$((nodes + 1))
    done
}

near() {
    lay near "$@"
    take_ports
}

can_net() {
    [ "$(id -u)" -eq 0 ] || skip "needs root, for network namespaces"
    command -v ip >/dev/null || skip "needs ip, for network namespaces"
    ip netns add "$mark-sw" 2>/dev/null || skip "no network namespaces here"
}

# plug K: the device node$K of the switch's namespace becomes eth0 of node K.
plug() {
    ip netns add "$mark-$1" && ip -n "$mark-sw" link set "node$1" netns "$mark-$1" || return
    set -- "$mark-$1" "$(host "$1")/24" "node$1"
    ip -n "$1" link set "$3" name eth0 && ip -n "$1" address add "$2" dev eth0 && ip -n "$1" link set eth0 up &&
        ip -n "$1" link set lo up
}

far() {
    lay far "$@"
    can_net
    port=20100
    ip -n "$mark-sw" link add switch type bridge 2>"$out" || skip "no bridges here: $(cat "$out")"
    ip -n "$mark-sw" link set switch up
    for k in $(seq 0 $((nodes - 1))); do
        ip -n "$mark-sw" link add "plug$k" type veth peer name "node$k" 2>"$out" ||
            skip "no veth pairs here: $(cat "$out")"
        ip -n "$mark-sw" link set "plug$k" master switch up && plug "$k" >"$out" 2>&1 ||
            fail "node $k can't be plugged in"
    done
}

lossy() {
    delay=$1 loss=$2
    shift 2
    switch=$(built lossy)
    [ -n "$switch" ] || skip "test/support/lossy.c is not built: make tests"
    lay far "$@"
    can_net
    [ -w /dev/net/tun ] || skip "needs /dev/net/tun"
    port=20100
    rm -f cable
    mkfifo cable
    set --
    for k in $(seq 0 $((nodes - 1))); do set -- "$@" "node$k"; done
    ip netns exec "$mark-sw" "$switch" "$delay" "$loss" "${mbit:-0}" 7 "$@" <cable >"$out" 2>&1 &
    cable=$!
    exec 8>cable
    until_true 5 ended_or_ready
    grep -q '^ready' "$out" || skip "no tap devices here: $(cat "$out")"
    for k in $(seq 0 $((nodes - 1))); do plug "$k" >>"$out" 2>&1 || fail "node $k can't be plugged in"; done
}
ended_or_ready() { grep -q '^ready' "$out" || ! kill -0 "$cable" 2>/dev/null; }

# --- what runs on them ------------------------------------------------------------------------------------------------

# boot RUN [K]: starts the run on all nodes, or on node K too; $verb: something else than training. What it prints is in
# node$K/out. The shells that are forked become the program: what is killed must be the thing itself.
boot() {
    if [ $# -eq 2 ]; then turns=$2; else turns=$(seq 0 $((nodes - 1))) pids=; fi
    for k in $turns; do
        if [ $kind = near ]; then
            set -- "$1" env LOCKSTEP_NODE="$k" NCCL_HOSTID="$mark-$k"
        else
            set -- "$1" ip netns exec "$mark-$k"
        fi
        (run=$1; shift; cd "node$k" && exec "$@" "$bin" $verb ../base.ini "../$run.ini" own.ini) >"node$k/out" 2>&1 \
            </dev/null 8>&- &
        pids="$pids${pids:+ }$!"
    done
}

# supervisor K: pid of what was started on node K.
supervisor() { echo "$pids" | cut -d ' ' -f $(($1 + 1)); }

# standstill: what is known of nodes that do not end, for who reads the failure: their last words and events, and which
# of their processes live, in which state and call, and how far each thread has come in CPU time.
standstill() {
    for k in $(seq 0 $((nodes - 1))); do
        echo "node $k:"
        tail -n 3 "node$k/out"
        tail -q -n 3 "node$k"/runs/*/events.jsonl | cut -c 1-300
        tail -q -n 1 "node$k"/runs/*/log.jsonl | cut -c 1-80
        for each in $(supervisor "$k") $(pgrep -P "$(supervisor "$k")"); do
            for task in /proc/"$each"/task/*; do
                echo "  $(cat "$task/comm") $(sed 's/.*) //' "$task/stat" | cut -d ' ' -f 1,12,13) $(cat "$task/wchan")"
            done
        done
    done 2>/dev/null
}

# until_over PID...: waits until they have ended. Runs that log no step for a minute are a failure with a name; on a slow
# machine they may take longer than that.
until_over() {
    until=$(($(now) + 60000)) logged=$(log_sizes)
    for each; do
        while sed 's/.*) //' "/proc/$each/stat" 2>/dev/null | grep -q '^[^Z]'; do
            [ "$(now)" -lt $until ] || goes_on_logging || fail "it does not end"
            sleep 0.02
        done
    done
}
log_sizes() { stat -c %s runs/*/log.jsonl node?/runs/*/log.jsonl 2>/dev/null; }
goes_on_logging() {
    earlier=$logged logged=$(log_sizes)
    until=$(($(now) + 60000))
    [ "$logged" = "$earlier" ] || return 0
    [ $kind = none ] || standstill >"$out"
    shown=80
    return 1
}

# comes_to CODE: await, but not for ever.
comes_to() {
    until_over "$pid"
    await "$1"
}

# ended CODE...: the nodes' exit statuses, one for each, or one for all. Waits for them; $took says for how many
# milliseconds.
ended() {
    from=$(now)
    k=0 wrong='' wrong_node=''
    until_over $pids
    for each in $pids; do
        wait "$each" 2>/dev/null
        got=$?
        [ $got -eq "$1" ] || [ -n "$wrong" ] || wrong="node $k: expected exit status $1, got $got" wrong_node=$k
        [ $# -eq 1 ] || shift
        k=$((k + 1))
    done
    took=$(($(now) - from))
    pids=
    [ -z "$wrong" ] || { cat "node$wrong_node/out" >"$out"; fail "$wrong"; }
}

# on K TEXT...: node K printed each of these.
on() {
    cp "node$1/out" "$out"
    shift
    says "$@"
}

# on_matching K PATTERN: the same, for an extended regular expression.
on_matching() {
    cp "node$1/out" "$out"
    grep -qE -e "$2" "$out" || fail "node $1: expected a line that matches $2"
}

now() { echo $(($(date +%s%N) / 1000000)); }

# children PID...: their children's pids, in the order in which they were started: that is the order of the ranks of a
# node. Watchers are left out. Of those that were started within one tick the pids decide, and one below its parent's is
# later than all above it: pids had begun anew.
children() {
    for parent; do
        cat /proc/[0-9]*/stat 2>/dev/null | grep -vE '\(lockstep/(watch|nodes)\)' | sed 's/(.*)/x/' |
            awk -v p="$parent" '$4 == p { print $22, $1 < p, $1 }' | sort -n -k 1,1 -k 2,2 -k 3,3 | sed 's/.* //'
    done
}

# rank K I: pid of the I-th rank of node K.
rank() { children "$(supervisor "$1")" | sed -n "$(($2 + 1))p"; }

# ports_of PID...: on which these processes listen.
ports_of() {
    for each; do
        listening "/proc/$each/net" none $(ls -l "/proc/$each/fd" 2>/dev/null |
            sed -n 's/.*socket:\[\([0-9]*\)\].*/\1/p')
    done | sort -nu
}

# nothing_left: no process works in a node's directory or lives in its namespace, and nobody listens.
nothing_left() {
    left=$(ls -l /proc/[0-9]*/cwd 2>/dev/null | grep -c -F " $work/node")
    [ "$left" -eq 0 ] || fail "$left processes are left: $(ps -ef 2>/dev/null | grep -F "$bin" | grep -v grep | head -n 3)"
    if [ $kind = near ]; then
        ! busy "$port" || fail "somebody still listens on one of the ports from $port: $(listening /proc/net | tr '\n' ' ')"
        return
    fi
    for k in $(seq 0 $((nodes - 1))); do
        [ -z "$(ip netns pids "$mark-$k")" ] || fail "node $k: processes are left in its namespace"
        ports=$(ip netns exec "$mark-$k" cat /proc/net/tcp | awk '$4 == "0A"')
        [ -z "$ports" ] || fail "node $k: somebody still listens: $ports"
    done
}
