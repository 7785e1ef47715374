# test/support/small.sh: a run that is small and does not end by itself, for scripts that have read lib.sh and watch
# one.
#
#   small_run   reads more settings from standard input, an INI, and writes base.ini and its data. Two ranks, if they
#               don't say otherwise; no
#               checkpoints, evaluations and samples. A key that they have is not in base.ini.
small_run() {
    cat >own.ini
    ini >small.ini <<'END'
run dir=runs steps=1000000
model layers=1 heads=2 embed=16 context=24
data train=data/plain-train-*.bin val=data/plain-val-*.bin
pack input=text.txt output=data/plain
batch global=8 micro=1 lanes=8
device ranks=2 threads=1
schedule type=constant
checkpoint every=0
eval every=0
sample tokens=0
END
    awk '/^\[/ { section = $0; if (FILENAME == "small.ini") print; next }
         FILENAME == "own.ini" { own[section $1] = 1; more = more section "\n" $0 "\n"; next }
         !((section $1) in own) { print }
         END { printf "%s", more }' own.ini small.ini >base.ini
    text 40000 >text.txt
    "$bin" pack base.ini >"$out" 2>&1 || { cat "$out"; echo "0 passed, 1 failed"; exit 1; }
}
