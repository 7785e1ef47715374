#!/bin/sh
# test/test_spilled.sh: [parallel] offload = nvme from the outside: runs that are killed, stopped and continued with
# masters and moments in files or in memory are one run; what a disk does is said; and no file is left.
. test/support/runs.sh
small="device.threads=1 log.watch=no checkpoint.keep_best=no batch.micro=1 model.embed=64"
nvme="parallel.offload=nvme" files="$nvme parallel.offload_dir=disk"

nothing_is_left() { [ -z "$(ls disk)" ] || fail "it left $(ls disk)"; }

# Killed in the middle of an update, after some chunks of it; then in memory; then in files, of other ranks.
killed_and_moved() {
    settings one $small run.steps=16
    expect 0 train one
    settings moved $small $files run.steps=16 run.faults=update@201
    train moved >"$out" 2>&1 && fail "nothing killed it"
    says "was killed by signal 9"
    nothing_is_left
    [ "$(ls runs/moved/ckpt)" ] || fail "there is no checkpoint to go on from"
    while read -r more; do
        settings moved $small $more
        expect 0 train moved
        nothing_is_left
    done <<MORE
run.steps=10 parallel.offload=none
run.steps=12 $files device.ranks=3 parallel.zero=3
run.steps=13 parallel.offload=yes device.ranks=2
run.steps=16 $files device.ranks=2 parallel.zero=1
MORE
    same_steps one moved
    same_state one moved
}

# Ranks that divide layers, and give each other what they don't divide: GPT's positions, gains and biases.
moved_within_layers() {
    settings layers $small run.steps=16 parallel.slices=2
    expect 0 train layers
    settings divided $small $files run.steps=9 parallel.slices=2 device.ranks=2 parallel.tensor=2
    expect 0 train divided
    settings divided $small $files run.steps=16 parallel.slices=2 device.ranks=2 parallel.tensor=2
    expect 0 train divided
    same_steps layers divided
    same_state layers divided
}

# A fork whose matrices are cut into other slices: what a file of the checkpoint has in one place goes to many.
other_slices() {
    settings cut $small run.steps=10 parallel.slices=2
    expect 0 train cut
    for run in whole pieces; do
        settings $run $small run.steps=14 parallel.slices=1
        expect 0 "$bin" fork runs/cut $run $run.ini
    done
    expect 0 train whole
    settings pieces $small $files run.steps=14 parallel.slices=1
    expect 0 train pieces
    same_steps whole pieces
    same_state whole pieces
    # of a row that is cut into slices a rank has several pieces
    settings sliced $small $files run.steps=6 parallel.slices=2 device.ranks=2 parallel.zero=1
    expect 0 train sliced
    settings sliced $small run.steps=10 parallel.slices=2
    expect 0 train sliced
    same_steps cut sliced
    same_state cut sliced
}

# They share a directory, and it is made for them.
two_at_once() {
    settings a $small $nvme parallel.offload_dir=disk/of/both run.steps=16
    settings b $small $nvme parallel.offload_dir=disk/of/both run.steps=16 run.seed=3
    start "$bin" base.ini b.ini
    expect 0 train a
    await 0
    same_state one a
    ! cmp -s runs/a/ckpt/*16/model.safetensors runs/b/ckpt/*16/model.safetensors || fail "they have the same weights"
    [ -z "$(ls disk/of/both)" ] || fail "files are left"
    rm -r disk/of
}

# A bit of the file changes while the run goes on, as often as it takes to find one between its write and its read.
a_bit_changes() {
    settings bit $small $files run.steps=100000 run.faults=drag@1x1000000 checkpoint.every=1
    start "$bin" base.ini bit.ini
    until_true 20 test -e runs/bit/ckpt/step-00000002
    until_true 60 changed
    await 65
    says "optimizer-state-of-rank-0" "tensor " "elements " "the disk did not return what was written last"
    last=$(ls runs/bit/ckpt | tail -n 1)
    settings bit $small $files run.steps=$((1${last#step-} - 100000000 + 2))
    expect 0 train bit
}
# A zero, where one is in few places.
changed() {
    for of in $(pgrep -P "$pid"); do
        for each in /proc/"$of"/fd/*; do
            case $(readlink "$each") in *optimizer-state*) printf '\0' | dd of="$each" bs=1 seek=2 conv=notrunc ;; esac
        done
    done 2>/dev/null
    ! kill -0 "$pid" 2>/dev/null
}

a_full_disk() {
    settings full $small $files run.steps=16
    unshare --map-root-user --mount sh -c 'mount -t tmpfs -o size=2m tmpfs disk' 2>/dev/null ||
        skip "no tmpfs may be mounted here"
    expect 74 unshare --map-root-user --mount sh -c 'mount -t tmpfs -o size=2m tmpfs disk && exec "$0" "$@"' \
        "$bin" base.ini full.ini
    says "offload = nvme" "No space left on device: it needs " " bytes and 2097152 are free in disk" "use another directory"
    [ ! -e runs/full/ckpt ] || [ -z "$(ls runs/full/ckpt)" ] || fail "there is a checkpoint"
}

# refused WORDS SETTING...: in words, with settings that work.
refused() {
    words=$1
    shift
    settings refused $small $files "$@"
    expect 78 "$bin" check base.ini refused.ini
    says "$words" "Nearest that work: "
}
what_wants_memory_is_refused() {
    refused "from a copy of the state in memory" checkpoint.async=yes
    refused "snapshot.every = 50 keeps copies of the state in memory" cluster.elastic=yes device.ranks=2 parallel.zero=1
    refused "each of 3 ranks has masters" device.ranks=3
}

mkdir disk
for case in killed_and_moved moved_within_layers other_slices two_at_once a_bit_changes a_full_disk what_wants_memory_is_refused; do try $case; done
finish
