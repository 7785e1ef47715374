#!/bin/sh
# test/check_release.sh: the binary of `make release`. That it was made says that every kernel compiles for every GPU
# without spilling a register (the Makefile refuses one that does); that it starts here says that it needs neither a GPU
# nor a library of CUDA's.
. test/support/lib.sh
. "$top/test/support/kit.sh"
release=$top/build/release/lockstep
cuda=${CUDA_HOME:-/usr/local/cuda}

released() {
    [ -x "$cuda/bin/nvcc" ] || command -v nvcc >/dev/null || skip "there is no nvcc"
    (cd "$top" && ${MAKE:-make} --no-print-directory release) >"$out" 2>&1 || fail "make release failed"
    grep -E '^build/release/lockstep: [0-9]+ MB, GPUs 80 86 89 90 and later$' "$out" ||
        fail "no line says how large it is"
}

holds_code_for_all() {
    [ -x "$release" ] || skip "there is no $release"
    [ -x "$cuda/bin/cuobjdump" ] || skip "there is no cuobjdump"
    "$cuda/bin/cuobjdump" --list-elf "$release" >"$out" 2>&1 || fail "cuobjdump can't read it"
    for arch in 80 86 89 90; do grep -q "sm_$arch\\." "$out" || fail "no code for sm_$arch"; done
    "$cuda/bin/cuobjdump" --list-ptx "$release" >"$out" 2>&1 || fail "cuobjdump can't read it"
    grep -q "sm_80\\.ptx" "$out" || fail "no PTX for later GPUs"
}

starts_anywhere() {
    [ -x "$release" ] || skip "there is no $release"
    expect 0 "$release" version
    ! ldd "$release" | grep -iE 'cuda|cublas|nccl|nvidia' || fail "it needs a library of CUDA's to start"
    [ ! -e /dev/nvidiactl ] || skip "there is a GPU here"
    text 20000 >text.txt
    settings any pack.input=text.txt pack.output=data/text "data.train=data/text-train-*.bin" data.val= \
        device.backend=cuda
    expect 0 "$release" pack any.ini
    expect 69 "$release" check any.ini
    says "cuda" "backend = cpu"
}

# The kit for the same GPUs is made of the same objects. Of each program it says that there is no GPU.
kit_without_a_gpu() {
    nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
    [ -x "$nvcc" ] || skip "there is no nvcc: nothing is built for a real GPU"
    made cuda "$top/build/gpu-kit" "80 86 89 90"
    kit "$top/build/gpu-kit"
    inside /bin/sh /kit/check.sh
    [ $got -eq 69 ] || fail "check.sh ended with $got, expected 69"
    says "gpu-check: no GPU was found: cuda: there is no NVIDIA driver"
    [ -z "$(ls "$root/tmp")" ] || fail "check.sh left something in TMPDIR: $(ls "$root/tmp")"
    printf '[device]\nbackend = cuda\n' >"$root/tmp/gpu.ini"
    for program in "lockstep bench /tmp/gpu.ini" "test/test_ops --about --device cuda" test/test_cublaslt \
        test/test_device test/sim/test_wrappers; do
        unpack="gzip -dc /kit/build/${program%% *}.gz >/tmp/it && chmod +x /tmp/it"
        inside LD_LIBRARY_PATH=/kit/lib LOCKSTEP_NEED_GPU=1 /bin/sh -c \
            "$unpack && set -- $program && shift && exec /tmp/it \"\$@\""
        [ $got -eq 69 ] || fail "$program ended with $got, expected 69"
        grep -qE 'no NVIDIA driver|no GPU was found' "$out" || fail "$program does not say that there is no GPU"
    done
    inside LD_LIBRARY_PATH=/kit/lib /bin/sh -c "gzip -dc /kit/build/lockstep.gz >/tmp/it && exec /tmp/it version"
    [ $got -eq 0 ] || fail "lockstep version ended with $got"
}

try released
try holds_code_for_all
try starts_anywhere
try kit_without_a_gpu
finish
