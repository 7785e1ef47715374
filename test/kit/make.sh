#!/bin/sh
# test/kit/make.sh BUILD OUT: puts the programs of BUILD that check a GPU into the folder OUT, with what they load and
# read: `make gpu-kit`. A system has libc and the loader; all other libraries come along. Programs are packed, since each
# has the code of every operation. It fails where the folder is larger than 66 MB.
set -eu
build=$1 out=$2 most=66000000
rm -rf "$out"
mkdir -p "$out/build/test/sim" "$out/lib" "$out/test/support" "$out/test/golden"
for program in lockstep test/test_ops test/test_cublaslt test/test_device test/sim/test_wrappers; do
    strip -o "$out/build/$program" "$build/$program"
    ldd "$build/$program" | sed -n 's/^[^=]*=> \(\/[^ ]*\) (0x.*/\1/p'
done | sort -u | grep -vE '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|util))\.so' | while read -r library; do
    cp -L "$library" "$out/lib/"
done
[ ! -e "$build/test/libnccl-sim.so" ] || strip -o "$out/build/test/libnccl-sim.so" "$build/test/libnccl-sim.so"
cp test/gpu_check.sh test/gpu_ranks.sh "$out/test/"
cp test/support/lib.sh test/support/net.sh test/support/gpu_ranks.sh test/support/logs.sh "$out/test/support/"
cp test/golden/gpt-*.safetensors test/golden/gpt-tokens.bin "$out/test/golden/"
cp test/kit/README test/kit/check.sh test/kit/peers.py "$out/"
glibc=$(cat "$out"/build/lockstep "$out"/build/test/test_* "$out"/lib/* | strings |
    sed -n 's/^GLIBC_\(2\.[0-9]*\)$/\1/p' | sort -t . -k 2n | tail -n 1)
[ -z "$glibc" ] || printf '\nBuilt for glibc %s or newer.\n' "$glibc" >>"$out/README"
gzip -9 "$out/build/lockstep" "$out"/build/test/test_* "$out"/build/test/sim/test_*
bytes=$(cat $(find "$out" -type f) | wc -c)
echo "$out: $((bytes / 1000000)) MB${glibc:+, for glibc $glibc or newer}: copy it, and there: sh check.sh"
[ "$bytes" -le $most ] || { echo "gpu-kit: $bytes bytes, expected at most $most: give fewer processors in ARCH" \
    >&2; exit 1; }
