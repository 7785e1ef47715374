#!/bin/sh
# test/check_arm64.sh: the bits of aarch64 are those of this machine. ./lockstep is compiled for aarch64 with Debian's
# cross compiler and runs under QEMU's emulation of the processor, which is about a hundred times slower: the smallest
# runs that say something. Libraries come from Debian's arm64 packages, which are unpacked under build/arm64/root unless
# they are installed; nothing of this machine changes.
#
# It is compiled at -O1, which takes a fifth off the time of all this: that it compiles, starts and has the bits of x86
# shows there, too, as no flag lets a level change bits. What only -O3 does on aarch64 is left to `make test` on such a
# machine. At -O1 gcc 12 sees a table of no bytes where there is one (stringop-overread).
. test/support/lib.sh

at=build/arm64
built=$top/$at
root=$built/root
target=aarch64-linux-gnu
arm=$built/lockstep
packages="libiniparser-dev libjansson-dev libsodium-dev libjpeg62-turbo-dev libpng-dev zlib1g-dev libzstd-dev libcmocka-dev libcmocka0"

# --- what it takes --------------------------------------------------------------------------------------------------

# An apt of its own, which knows of arm64 and of no installed package, with the sources and keys of this machine's.
apt_arm64() {
    mkdir -p "$root/apt/lists/partial" "$root/apt/archives/partial"
    : >"$root/apt/status"
    apt-get -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State="$root/apt" \
        -o Dir::State::status="$root/apt/status" -o Dir::Cache="$root/apt" -o APT::Sandbox::User= "$@"
}

unpack() {
    (cd "$root" && apt_arm64 -q update && apt_arm64 -q download $packages) >"$work/apt" 2>&1 || return 1
    for deb in "$root"/*.deb; do dpkg-deb -x "$deb" "$root" || return 1; done
    rm -rf "$root/apt" "$root"/*.deb
}

has_libraries() {
    for lib in iniparser jansson sodium jpeg png16 z zstd; do [ -e "$1/lib$lib.a" ] || return 1; done
}

# missing WHAT: why nothing can be done here, for every case.
missing=
find_tools() {
    [ "$(uname -m)" != aarch64 ] || { missing="this machine is aarch64: make test says it"; return; }
    for tool in $target-gcc $target-ar qemu-aarch64-static; do
        command -v $tool >/dev/null || missing="${missing:+$missing, }$tool"
    done
    [ -z "$missing" ] || { missing="there is no $missing"; return; }
    flags=
    ! has_libraries /usr/lib/$target || return
    flags="-isystem $root/usr/include -isystem $root/usr/include/$target -L$root/usr/lib/$target"
    if ! has_libraries "$root/usr/lib/$target"; then
        command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
            { missing="libraries for arm64 come from apt-get"; return; }
        mkdir -p "$root" && unpack || missing="arm64 packages cannot be had: $(tail -n 1 "$work/apt")"
    fi
}
find_tools
QEMU_LD_PREFIX=/usr/$target
export QEMU_LD_PREFIX

# on_arm64 PROGRAM...: with its libraries.
on_arm64() { qemu-aarch64-static -E LD_LIBRARY_PATH="$root/usr/lib/$target" "$@"; }

# --- cases ----------------------------------------------------------------------------------------------------------

it_compiles() {
    [ -z "$missing" ] || skip "$missing"
    (cd "$top" && ${MAKE:-make} --no-print-directory -j2 CUDA=none CC="$target-gcc $flags" AR=$target-ar SAN= \
        CFLAGS="-O1 -Wno-stringop-overread" BUILD=$at CBUILD=$at BIN=$at/lockstep \
        $at/lockstep $at/test/test_vec $at/test/test_matmul $at/test/test_conv) >"$out" 2>&1 ||
        fail "the build failed"
}

# Emulated, only what compares bodies, and whole ranges of halves; precision is that of x86, for the bits are.
vectors_agree() {
    [ -x "$built/test/test_vec" ] || skip "${missing:-test_vec was not built}"
    for each in test_widths_agree test_sum_is_the_tree test_tails_touch_nothing_else test_every_half test_philox \
        test_a_step_is_exact; do
        on_arm64 "$built/test/test_vec" $each >"$out" 2>&1 || fail "$each failed"
        says "[       OK ] $each"
    done
}

# Where NEON flushes before it rounds, a tile is computed again: numbers around 2^-126 have the specified bits in both
# bodies.
products_flush_as_x86() {
    [ -x "$built/test/test_matmul" ] || skip "${missing:-test_matmul was not built}"
    on_arm64 "$built/test/test_matmul" edges >"$out" 2>&1 || fail "edges failed"
    [ "$(grep -c '\[       OK \] edges' "$out")" -eq 2 ] || fail "expected edges in both arithmetics"
    [ -x "$built/test/test_conv" ] || fail "test_conv was not built"
    on_arm64 "$built/test/test_conv" edges >"$out" 2>&1 || fail "edges of convolutions failed"
    says "[       OK ] edges"
}

ini >base.ini <<'END'
run dir=runs steps=2
device threads=1
model layers=1 heads=2 embed=32 context=24
data train=data/plain-train-*.bin val=data/plain-val-*.bin
pack input=text.txt output=data/plain
batch global=2 micro=1 lanes=2
schedule warmup=1 decay_steps=2
checkpoint every=2
eval every=2 batches=1
sample tokens=0
log every=1 hash_every=1
END
text 20000 >text.txt

steps() {
    sed -n 's/^{"t":"step","step":\([0-9]*\),"loss":\([^,]*\),.*"hash":"\([0-9a-f]*\)".*/\1 \2 \3/p' \
        "runs/$1/log.jsonl"
}

# same_run NAME SETTING...: steps, losses and hashes of every step here and there, for both bodies.
same_run() {
    [ -x "$arm" ] || skip "${missing:-lockstep was not built}"
    run=$1
    shift
    settings "$run" "$@"
    expect 0 "$bin" base.ini "$run.ini"
    steps "$run" >"$run.steps"
    for simd in neon portable; do
        settings "$run-$simd" "$@" device.simd=$simd
        expect 0 on_arm64 "$arm" base.ini "$run-$simd.ini"
        says "cpu $simd x1 thread"
        steps "$run-$simd" >"$run-$simd.steps"
        same "$run.steps" "$run-$simd.steps" "steps of $run under $simd"
    done
}
fp32_has_the_bits_of_x86() { same_run fp32; }
bf16_dropout_two_ranks_has_the_bits_of_x86() { same_run bf16 precision.compute=bf16 model.dropout=0.1 device.ranks=2; }
fp16_stochastic_has_the_bits_of_x86() {
    same_run fp16 precision.compute=fp16 precision.rounding=stochastic run.steps=1
}
# Its widths emulate what some x86 processors have an instruction for.
pairs_have_the_bits_of_x86() {
    same_run pairs precision.products=bf16-pairs
    same_run pairs-bf16 precision.products=bf16-pairs precision.compute=bf16 model.dropout=0.1 run.steps=1
    ! cmp -s pairs.steps fp32.steps || fail "pairs change no bit"
}
refuses_other_widths() {
    [ -x "$arm" ] || skip "${missing:-lockstep was not built}"
    settings other device.simd=avx2
    expect 69 on_arm64 "$arm" base.ini other.ini
    says "lacks the vector width"
    settings native device.simd=avx512bf16 precision.products=bf16-pairs
    expect 69 on_arm64 "$arm" base.ini native.ini
    says "lacks the vector width"
}

"$bin" pack base.ini >"$out" 2>&1 || { cat "$out"; echo "0 passed, 1 failed"; exit 1; }
try it_compiles
try vectors_agree
try products_flush_as_x86
try fp32_has_the_bits_of_x86
try bf16_dropout_two_ranks_has_the_bits_of_x86
try fp16_stochastic_has_the_bits_of_x86
try pairs_have_the_bits_of_x86
try refuses_other_widths
finish
