#!/bin/sh
# test/check_release.sh: the binary of `make release`. That it was made says that every kernel compiles for every GPU without spilling a register
# (the Makefile refuses one that does); that it starts here says that it needs neither a GPU nor a library of CUDA's.
. test/support/lib.sh
release=$top/build/release/lockstep
cuda=${CUDA_HOME:-/usr/local/cuda}

made() {
    [ -x "$cuda/bin/nvcc" ] || command -v nvcc >/dev/null || skip "there is no nvcc"
    (cd "$top" && ${MAKE:-make} --no-print-directory release) >"$out" 2>&1 || fail "make release failed"
    grep -E '^build/release/lockstep: [0-9]+ MB, GPUs 80 86 89 90 and later$' "$out" || fail "no line says how large it is"
}

holds_code_for_all() {
    [ -x "$release" ] || skip "there is no $release"
    [ -x "$cuda/bin/cuobjdump" ] || skip "there is no cuobjdump"
    "$cuda/bin/cuobjdump" --list-elf "$release" >"$out" 2>&1 || fail "cuobjdump can't read it"
    for arch in 80 86 89 90; do grep -q "sm_$arch\\." "$out" || fail "no code for sm_$arch"; done
    "$cuda/bin/cuobjdump" --list-ptx "$release" >"$out" 2>&1 || fail "cuobjdump can't read it"
    grep -q "sm_90\\.ptx" "$out" || fail "no PTX for later GPUs"
}

starts_anywhere() {
    [ -x "$release" ] || skip "there is no $release"
    expect 0 "$release" version
    ! ldd "$release" | grep -iE 'cuda|cublas|nccl|nvidia' || fail "it needs a library of CUDA's to start"
    [ ! -e /dev/nvidiactl ] || skip "there is a GPU here"
    text 20000 >text.txt
    settings any pack.input=text.txt pack.output=data/text "data.train=data/text-train-*.bin" data.val= device.backend=cuda
    expect 0 "$release" pack any.ini
    expect 69 "$release" check any.ini
    says "cuda" "backend = cpu"
}

try made
try holds_code_for_all
try starts_anywhere
finish
