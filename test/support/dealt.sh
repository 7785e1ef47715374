# test/support/dealt.sh: layouts of a model of tables, for scripts that have read test/support/trained.sh. `figure` is one
# of its evaluations, LAYOUTS=every: in every layout.

some() {
    cat <<'DEALS'
3.1 3 parallel.zero=1 reduce.bucket_mb=0.001
p2z3 4 parallel.pipeline=2 parallel.zero=3 parallel.recompute=block
zb-h1 2 parallel.pipeline=2 parallel.schedule=zb-h1
DEALS
}

every() {
    some
    cat <<'DEALS'
portable 1 device.simd=portable device.threads=2
avx2 1 device.simd=avx2 parallel.recompute=selective
2.0 2 parallel.zero=0
2.2 2 parallel.zero=2 reduce.bucket_mb=0.001
4.3 4 parallel.zero=3 reduce.bucket_mb=0.001
gpipe 3 parallel.pipeline=3 parallel.schedule=gpipe
offload 2 parallel.offload=host parallel.zero=1
1-server 3 parallel.zero=1 server.count=1
2-servers 4 parallel.zero=3 server.count=2
4-servers 6 parallel.zero=2 server.count=4 server.weight=0.5
DEALS
}

some_rows() {
    cat <<'DEALS'
3.1 3 parallel.zero=1 reduce.bucket_mb=0.001 'parallel.deal=1 2 1'
1-server 3 parallel.zero=1 server.count=1
DEALS
    [ -z "${cold:-}" ] || cat <<'DEALS'
cold 1 model.demand_mb=0.001 log.prom_file=on-cold.prom
4-cold 4 model.demand_mb=0.0008 parallel.zero=3 log.prom_file=on-4-cold.prom
DEALS
}

every_rows() {
    some_rows
    cat <<'DEALS'
portable 1 device.simd=portable device.threads=2
2.0 2 parallel.zero=0 parallel.recompute=block
2.2 2 parallel.zero=2 reduce.bucket_mb=0.001
4.3 4 parallel.zero=3
idle 3 'parallel.deal=1 0 3'
as-dealt 3 parallel.zero=1
turns 3 parallel.zero=2 'parallel.deal=3 1 0'
2-servers 4 parallel.zero=3 server.count=2
4-servers 6 parallel.zero=2 server.count=4 server.weight=0.5
DEALS
    [ -z "${cold:-}" ] || cat <<'DEALS'
servers-cold 4 model.demand_mb=0.002 parallel.zero=1 server.count=2 server.weight=0.1
server-cold 3 model.demand_mb=0.002 parallel.zero=2 server.count=1
2-cold 2 model.demand_mb=0.004 parallel.zero=1
idle-cold 3 model.demand_mb=0.002 'parallel.deal=1 0 3'
turns-cold 3 model.demand_mb=0.01 parallel.zero=2 'parallel.deal=3 1 0'
DEALS
}

# figures RUN: what its evaluations say.
figures() { sed -n 's/^{"t":"eval",\("step".*\),"ms":.*/\1/p' "runs/$1/log.jsonl"; }

# any_layout SETTING...: hashes and evaluations of a run on one rank and on several. rows=_rows: with rows on demand;
# cold=yes: of which most are in files.
any_layout() {
    trained one "$@"
    figures one >one.figures
    grep -q "\"$figure\":[0-9]" one.figures || fail "no $figure: $(cat one.figures)"
    ${LAYOUTS:-some}${rows:-} >deals
    while IFS= read -r line; do
        deal=${line%% *} line=${line#* }
        more=${line#* } ranks=${line%% *}
        eval "trained \"on-\$deal\" \"\$@\" device.ranks=\$ranks $more"
        same one.hashes "on-$deal.hashes" "the hashes of one rank and of $ranks ($more)"
        figures "on-$deal" >figures
        same one.figures figures "what one rank and $ranks evaluate ($more)"
    done <deals
}
