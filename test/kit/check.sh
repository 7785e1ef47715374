#!/bin/sh
# check.sh: test/gpu_check.sh of the kit, from wherever the kit is. Standard output is the page. Programs are unpacked
# into a folder of TMPDIR, which is removed.
cd "$(dirname "$0")" || exit 1
at=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-kit.XXXXXX") || exit 1
trap 'rm -rf "$at"' EXIT
trap 'exit 143' HUP INT TERM
mkdir -p "$at/test/sim"
for program in lockstep test/test_ops test/test_cublaslt test/test_device test/sim/test_wrappers; do
    gzip -dc "build/$program.gz" >"$at/$program" && chmod +x "$at/$program" || exit 1
done
[ -x "$at/lockstep" ] || { echo "check.sh: no program may run in $at: set TMPDIR to a folder where one may" >&2; exit 1; }
LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} LOCKSTEP_NEED_GPU=1
export LD_LIBRARY_PATH LOCKSTEP_NEED_GPU
sh test/gpu_check.sh "$at" "$at/lockstep"
