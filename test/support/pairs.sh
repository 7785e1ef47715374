# test/support/pairs.sh: what test_pairs.sh and check_pairs.sh share: settings of a small run whose products are of BF16
# pairs, its data, and comparing runs.
. test/support/lib.sh
. "$top/test/support/logs.sh"

text 30000 >text.txt
ini >base.ini <<'INI'
run steps=3
device backend=cpu threads=1
model layers=2 heads=4 embed=40 vocab=259 context=24
data train=data/a-train-*.bin val=
pack input=text.txt output=data/a
batch global=12 micro=1 lanes=4
precision products=bf16-pairs
checkpoint every=0
sample tokens=0
parallel slices=4
log every=1 hash_every=1 watch=no report=no
INI
expect 0 "$bin" pack base.ini

case $(uname -m) in
aarch64) widths="neon portable" ;;
*) widths="avx512bf16 avx512 avx2 portable" ;;
esac
has_native() { grep -qw avx512_bf16 /proc/cpuinfo; }

# trained RUN SETTING...: each step's hash and that of the state are in RUN.hashes.
trained() {
    run=$1
    rm -rf "runs/$run"
    settings "$@"
    expect 0 train "$run"
    told "$run"
}

told() {
    steps "$1" >"$1.hashes"
    hashes "$1" >>"$1.hashes"
    grep -q 'hash [0-9a-f]*  state_hash [0-9a-f]' "$1.hashes" || fail "$1 has no hash: $(tail -n 1 "$1.hashes")"
}

as_one() { same one.hashes "$1.hashes" "the hashes of one rank and of $1"; }

# same_widths SETTING...: with any vector width and 2 threads, or $threads, the hashes are those of run one. A width
# that this processor lacks is said by name, and ends with 69.
same_widths() {
    lacks=
    for width in $widths; do
        rm -rf "runs/$width"
        settings "$width" "$@" device.simd="$width" device.threads=${threads:-2}
        train "$width" >"$out" 2>&1
        got=$?
        if [ $got -eq 69 ]; then
            says "this processor lacks the vector width that [device] simd asks for; set simd = auto (same bits)"
            lacks="$lacks $width"
            continue
        fi
        [ $got -eq 0 ] || fail "$width ended with $got"
        says "cpu $width x${threads:-2} threads"
        told "$width"
        as_one "$width"
    done
    case $lacks in *portable*) fail "no processor lacks portable" ;; esac
    [ -z "$lacks" ] || echo "skipped: $name: this processor has no$lacks"
}
