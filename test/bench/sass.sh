#!/bin/sh
# test/bench/sass.sh [--plain] OBJECT...: what the machine code of attention's kernels has in its hot loop, for BF16 and
# heads of up to 64, as a Markdown table. Counted, not measured. Objects come from `make CUDA=yes ARCH="80 90"`:
# build/gpu/cuda/attention_forward.cu.o and _backward.cu.o.
#
# The hot loop of a kernel is the smallest loop with all of its HMMA. A pass of it is one tile of 64 keys, or 64
# queries, for the 16 rows of each warp. All instructions between its first and its last are counted, also those that
# most passes skip: the mask of tiles on the diagonal, and how the last tile is loaded. The last column is the shortest
# way through the loop that loads a tile: that of most tiles. Blocks an SM: 128 threads, by registers (65,536 in units
# of 256 a warp) and shared memory.
#
#   --plain   lines for test/bench/predict.c: KERNEL SM REGISTERS SHARED BLOCKS HMMA ALL
set -eu
plain=
[ "${1:-}" != --plain ] || { plain=yes; shift; }
[ $# -gt 0 ] || { echo "sass.sh: expected: sass.sh [--plain] OBJECT..." >&2; exit 64; }
tool=$(command -v cuobjdump || echo "${CUDA_HOME:-/usr/local/cuda}/bin/cuobjdump")
[ -x "$tool" ] || { echo "sass.sh: no cuobjdump on PATH or in CUDA_HOME: install the CUDA toolkit" >&2; exit 69; }
[ -n "$plain" ] || cat <<'END'
| kernel | sm | registers | shared | blocks an SM | stack | HMMA | LDSM | LDGSTS | conversions | MUFU | FP32 | integer, address | branch, predicate | barrier, wait | all | on the way of a whole tile |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
END
for object; do
    {
        "$tool" -res-usage "$object" 2>&1
        "$tool" -sass "$object"
    } | awk -v plain="$plain" '
        # Which kernel a mangled name is: "" for those that are not asked about.
        function kernel_of(name) {
            if (name !~ /13__nv_bfloat16/ || name !~ /Li64E/) return ""
            if (name ~ /attention_forward_kernel/) return name ~ VARIANT ? "forward" : ""
            if (name ~ /attention_backward_kernel/) return name !~ VARIANT ? "" : name ~ /Lb1E/ ? "keys" : "queries"
            return ""
        }
        # The variant without dropout whose rows are whole chunks, where there are variants.
        BEGIN { VARIANT = "L11att_variant0E" }
        function shared_of(kernel) { return kernel == "forward" ? FORWARD : BACKWARD }
        function least(a, b) { return a < b ? a : b }
        function class_of(op) {
            if (op ~ /^HMMA/) return "hmma"
            if (op ~ /^LDSM/) return "ldsm"
            if (op ~ /^LDGSTS/) return "ldgsts"
            if (op ~ /^(F2F|F2FP|I2F|F2I)/) return "conversion"
            if (op ~ /^MUFU/) return "mufu"
            if (op ~ /^(FFMA|FADD|FMUL|FMNMX|FSEL|FSETP|FCHK)/) return "fp32"
            if (op ~ /^(BRA|BSSY|BSYNC|EXIT|ISETP|PLOP3|P2R|R2P|WARPSYNC|VOTE|CALL|RET|BREAK)/) return "branch"
            if (op ~ /^(BAR|DEPBAR|LDGDEPBAR|NOP|SHFL|MEMBAR)/) return "wait"
            return "integer"
        }
        # The fewest instructions from first to last, of the ways that load and multiply the most: conditional jumps forward may be taken or not.
        function shortest(first, last,   i, g, most, step, to, n, key) {
            split("", dist); dist[first, 0] = 1; most = 0
            for (i = first; i < last; i++)
                for (g = 0; g <= 256; g++) {
                    if (!((i, g) in dist)) continue
                    n = g + (op[i] ~ /^(LDGSTS|HMMA)/)
                    if (n > most) most = n
                    if (op[i] ~ /^BRA/ && target[i] in line_at && line_at[target[i]] > i && line_at[target[i]] <= last) reach(line_at[target[i]], n, dist[i, g] + 1)
                    if (op[i] !~ /^BRA/ || guarded[i]) reach(i + 1, n, dist[i, g] + 1)
                }
            for (g = 256; g >= 0; g--) if ((last, g) in dist) return dist[last, g]
            return 0
        }
        function reach(i, g, n) { if (!((i, g) in dist) || n < dist[i, g]) dist[i, g] = n }
        function report(   i, first, last, hmma, span, best, c, n, blocks, smem, most) {
            if (kernel == "" || !lines) return
            hmma = 0
            for (i = 1; i <= lines; i++) hmma += class_of(op[i]) == "hmma"
            best = -1
            for (i = 1; i <= lines; i++) {
                if (op[i] !~ /^BRA/ || target[i] == "" || !(target[i] in line_at) || line_at[target[i]] >= i) continue
                n = 0
                for (c = line_at[target[i]]; c <= i; c++) n += class_of(op[c]) == "hmma"
                span = i - line_at[target[i]]
                if (n > most || (n == most && (best < 0 || span < best))) { most = n; best = span; first = line_at[target[i]]; last = i }
            }
            if (best < 0) return
            split("", count)
            for (i = first; i <= last; i++) count[class_of(op[i])]++
            way = shortest(first, last)
            smem = (sm < 90 ? 163 : 227) * 1024
            blocks = least(int(65536 / (int((regs[name] + 7) / 8) * 8 * 128)), int(smem / (shared[name] + dynamic[kernel] + 1024)))
            if (plain) { printf "%s %d %d %d %d %d %d\n", kernel, sm, regs[name], dynamic[kernel], blocks, count["hmma"], way; return }
            printf "| %s | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d |\n", kernel, sm, regs[name], dynamic[kernel], blocks, stack[name], count["hmma"],
                count["ldsm"], count["ldgsts"], count["conversion"], count["mufu"], count["fp32"], count["integer"], count["branch"], count["wait"], last - first + 1, way
        }
        BEGIN { dynamic["forward"] = 42240; dynamic["keys"] = 33920; dynamic["queries"] = 50432 }
        /arch = sm_/ { if (!dumping) arch = $0; sub(/.*sm_/, "", arch); sm = arch + 0 }
        /Function .*:$/ && !/\.text/ { resource = $2; sub(/:$/, "", resource) }
        / REG:/ { line = $0; match(line, /REG:[0-9]+/); regs[resource] = substr(line, RSTART + 4, RLENGTH - 4) + 0
                  match(line, /STACK:[0-9]+/); stack[resource] = substr(line, RSTART + 6, RLENGTH - 6) + 0
                  match(line, /SHARED:[0-9]+/); shared[resource] = substr(line, RSTART + 7, RLENGTH - 7) + 0 }
        /Function : / { report(); dumping = 1; name = $3; kernel = kernel_of(name); lines = 0; split("", line_at); split("", op); split("", target); split("", guarded) }
        kernel != "" && /^ *\/\*[0-9a-f][0-9a-f][0-9a-f][0-9a-f]+\*\// {
            at = $1; gsub(/[\/*]/, "", at); sub(/^0+/, "", at)
            lines++; line_at[at] = lines
            word = $2; rest = $0
            guarded[lines] = word ~ /^@/
            if (word ~ /^@/) word = $3
            gsub(/;/, "", word); op[lines] = word
            if (match(rest, /BRA[^;]*0x[0-9a-f]+/)) { t = substr(rest, RSTART, RLENGTH); sub(/.*0x0*/, "", t); target[lines] = t }
        }
        END { report() }'
done
