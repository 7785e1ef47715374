#!/bin/sh
# test/check_kit.sh: the kit of `make gpu-kit` in a root file system that has libc, a shell and the few tools that its README names, and nothing else:
# over the simulator the whole page comes out; the kit for a real GPU says of each program that there is none. Needs root or user namespaces.
. test/support/lib.sh
root=$work/root
tools="sh cat date mktemp rm mkdir sed grep awk head tail tr cut uname nproc timeout env sort uniq seq dirname basename expr cmp diff wc sleep cp mv ls kill
    printf touch chmod od ln paste tee true false stat id hostname setsid yes"

# bare: the root, of this machine's own files.
bare() {
    rm -rf "$root"
    mkdir -p "$root/tmp" "$root/proc" "$root/dev" "$root/bin" "$root/etc"
    for tool in $tools; do
        from=$(command -v "$tool") && [ -x "$from" ] || continue
        cp -L "$from" "$root/bin/$tool"
        ldd "$from" 2>/dev/null | sed -n 's/^[^/]*\(\/[^ ]*\) (0x.*/\1/p'
    done | sort -u >libraries
    for each in libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1; do ldconfig -p | sed -n "s/^[[:space:]]*$each .*=> //p" | head -n 1; done >>libraries
    while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp -L "$library" "$root$library"
    done <libraries
    echo '127.0.0.1 localhost' >"$root/etc/hosts"
}

# inside COMMAND...: in it, with a process tree of its own and no network but loopback.
inside() {
    enter="mount -t proc proc '$root/proc' && mount --rbind /dev '$root/dev' && { ip link set lo up 2>/dev/null || :; } && exec chroot '$root' /bin/env -i PATH=/bin HOME=/tmp \"\$@\""
    timeout 300 unshare --map-root-user --mount --pid --net --fork sh -c "$enter" sh "$@" >"$out" 2>errors </dev/null
    got=$?
    cat errors >>"$out"
}

# kit FOLDER: bare, with this kit in it.
kit() {
    for tool in unshare chroot mount ldd strip strings; do command -v $tool >/dev/null || skip "there is no $tool"; done
    unshare --map-root-user --mount --pid --net --fork true 2>/dev/null || skip "no namespaces may be made here"
    [ -d "$1" ] || skip "$1 was not made: it needs the CUDA toolkit"
    bare
    cp -r "$1" "$root/kit"
}

made() { # KIT FOLDER
    [ ! -d "$2" ] || rm -rf "$2"
    (cd "$top" && make KIT="$1" ARCH=90 gpu-kit) >"$out" 2>&1 || fail "make gpu-kit"
    says "MB"
    lines=$(wc -l <"$2/README")
    [ "$lines" -le 14 ] || fail "the README has $lines lines"
}

over_the_simulator() {
    [ -x "$top/build/sim/lockstep" ] || skip "build/sim is not built: make sim"
    made sim "$top/build/gpu-kit-sim"
    kit "$top/build/gpu-kit-sim"
    inside GPU_CHECK=short SIM_SEED=1 NCCL_LIBRARY=/kit/build/test/libnccl-sim.so /bin/sh /kit/check.sh
    [ $got -eq 0 ] || fail "check.sh ended with $got"
    says "# simulator, " "## Operations" "## Whole training steps" "## Matrix products, measured" "| operations | [  PASSED  ]" \
        "| trainer against the CPU's and PyTorch's | [  PASSED  ]" "1 passed, 0 failed, 0 skipped; nccl 2" "0 failed, 0 left out for want of time, 3 for want of a tool"
    [ -z "$(ls -A "$root/tmp")" ] || fail "it left something in /tmp: $(ls -A "$root/tmp")"
}

without_a_gpu() {
    nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
    [ -x "$nvcc" ] || skip "there is no nvcc: nothing is built for a real GPU"
    made cuda "$top/build/gpu-kit"
    kit "$top/build/gpu-kit"
    inside /bin/sh /kit/check.sh
    [ $got -eq 69 ] || fail "check.sh ended with $got, expected 69"
    says "gpu-check: no GPU was found: cuda: there is no NVIDIA driver"
    printf '[device]\nbackend = cuda\n' >"$root/tmp/gpu.ini"
    for program in "lockstep bench /tmp/gpu.ini" "test/test_ops --about --device cuda" test/test_cublaslt test/test_device test/sim/test_wrappers; do
        inside LD_LIBRARY_PATH=/kit/lib LOCKSTEP_NEED_GPU=1 /bin/sh -c "exec /kit/build/$program"
        [ $got -eq 69 ] || fail "$program ended with $got, expected 69"
        grep -qE 'no NVIDIA driver|no GPU was found' "$out" || fail "$program does not say that there is no GPU"
    done
    inside LD_LIBRARY_PATH=/kit/lib /kit/build/lockstep version
    [ $got -eq 0 ] || fail "lockstep version ended with $got"
}

try over_the_simulator
try without_a_gpu
finish
