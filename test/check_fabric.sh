#!/bin/sh
# test/check_fabric.sh: nodes that reach each other through libfabric, over two of its providers. The programs that test
# collectives over TCP hold over it as they are, and runs have the hashes of one rank. Skipped where it is missing.
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"
steps=200
. "$top/test/support/healing.sh"
# ranks are killed here, no nodes: a busy machine is not to take a slow one for dead
elastic=$(echo "$elastic" | sed 's/dead_s=0.6/dead_s=10/')

# Two nodes ask for a provider that does not exist: libfabric, if it is here, says which ones it has.
needs_fabric() {
    if [ ! -e asked ]; then
        near 1 1
        together asked reduce.transport=fabric reduce.fabric_provider=none device.threads=1
        boot asked
        ended 69
        cp node0/out asked
    fi
    cp asked "$out"
    ! grep -q 'fabric: libfabric.so.1 not found\|built without the headers' asked || skip "no libfabric here"
    says "has no provider none" "It has: "
}

# holds PROGRAM PROVIDER: a test of transports, over this one.
holds() {
    program=$(built "$1")
    [ -n "$program" ] || skip "build/test/$1 is not built: make tests"
    expect 0 env LOCKSTEP_TEST_FABRIC="$2" "$program"
}
collectives() { needs_fabric && holds test_comm tcp; }
failures() { needs_fabric && holds test_comm_fail "tcp registered"; }
channels() { needs_fabric && holds test_channels shm; }

# run NAME SETTING...: on the nodes that were made, like one rank.
run() {
    run=$1
    shift
    together "$run" reduce.transport=fabric device.threads=1 "$@"
    boot "$run"
    ended 0
    nodes_like runs/ref "$run"
}

one_hash() {
    needs_fabric
    alone ref 1
    near 1 1
    run tcp11 reduce.fabric_provider=tcp
    on 0 "libfabric " "provider tcp"
    near 2 2
    run shm22 reduce.fabric_provider=shm parallel.zero=3
    on 0 "shared memory and libfabric "
    near 3 1
    run tcp31 reduce.fabric_provider=tcp parallel.zero=2 reduce.bucket_mb=0.01
    near 2 2
    run divided reduce.fabric_provider=tcp parallel.pipeline=2 parallel.zero=1
}

# In namespaces of their own, whose only way to each other is a cable.
over_a_cable() {
    needs_fabric
    alone ref 1
    far 2 1
    run far21 reduce.fabric_provider=tcp
}

# A rank is killed: all name it, and end.
rank_lost() {
    needs_fabric
    near 2 2
    together lost run.steps=100000 reduce.transport=fabric reduce.fabric_provider="$1" device.threads=1
    boot lost
    until_step node0/runs/lost 5
    kill -9 "$(rank 1 1)"
    ended 69
    [ "$took" -lt 20000 ] || fail "it took $took ms"
    on 0 "rank 3 (127.0.0.2)"
}

# The survivors go on in a world of their own, over an endpoint of its own, to the bits of one rank.
healed() {
    needs_fabric
    near 2 2
    saves=1000 heals healed parallel.zero=2 reduce.transport=fabric reduce.fabric_provider="$1"
    after 0 30
    kill -9 "$(rank 1 0)"
    until_true 40 has_event 0 healed "world 2 of this run"
    after 0 60
    kill -9 "$(rank 0 0)"
    until_true 40 has_event 0 healed "world 3 of this run"
    ends_well 0 1
}

try collectives
try failures
try channels
try one_hash
try over_a_cable
try rank_lost_tcp rank_lost tcp
try rank_lost_shm rank_lost shm
try healed_tcp healed tcp
try healed_shm healed shm
finish
