# test/support/gpu_ranks.sh: runs of several ranks on a GPU, or on the simulated one, for scripts that have read lib.sh
# and net.sh. Every rank is a node of its own with its own NCCL_HOSTID: that is how NCCL lets them share a device.
# However a run is dealt to ranks, its log says what that of one rank says.
#
#   gpu_runs [INI line...]   prepares a directory: data, base.ini with these lines at its end
#   dealt NAME RANKS [SETTING...]   trains with so many ranks, and compares with one rank under the same settings, but
#                                   for those of [parallel], [server] and [run]; of `steps` steps, 5 if it is not set

gpu_runs() {
    rm -rf gpu && mkdir gpu && cd gpu || fail "no directory"
    text 30000 >text.txt
    head -c 32 /dev/urandom >secret
    chmod 600 secret
    ini >base.ini <<'INI'
run dir=runs steps=5
device backend=cuda
model layers=2 heads=2 embed=32 context=16 vocab=259 dropout=0.1
data train=data/plain-train-*.bin val=data/plain-val-*.bin
pack input=text.txt output=data/plain
batch global=8 micro=1 lanes=4
schedule warmup=2
checkpoint every=0 keep_best=no
eval every=5 batches=2
sample tokens=0
log every=1 hash_every=1
INI
    for line; do echo "$line" >>base.ini; done
    expect 0 "$bin" pack base.ini
}

# What a run's log says of its steps: loss, norm and hash, to the last digit.
told() {
    sed -n 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*"hash":"\([0-9a-f]*\)".*/\1 \2 \3 \4/p' \
        "$1/log.jsonl"
}

dealt() {
    run=$1 ranks=$2
    shift 2
    same=$(echo "$*" | tr ' ' '\n' | grep -v '^parallel\.\|^server\.\|^run\.faults')
    one=$(echo one $same | sed 's/[a-z]*\.//g' | tr -c 'a-z0-9\n' '-')
    if [ ! -d "runs/$one" ]; then
        settings "$one" $same
        expect 0 timeout 300 "$bin" base.ini "$one.ini"
    fi
    rm -rf node?
    near $(yes 1 | head -n "$ranks")
    settings "$run" cluster.nodes="$list" cluster.port="$port" "$@"
    boot "$run"
    ended 0
    told "runs/$one" >told.want
    told "node0/runs/$run" >told.found
    [ "$(wc -l <told.want)" -eq "${steps:-5}" ] ||
        fail "the run of one rank has $(wc -l <told.want) steps, expected ${steps:-5}"
    same told.want told.found "what one rank and $ranks ranks log of their steps"
}
