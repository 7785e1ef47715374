# test/support/images.sh: small images from which something can be learnt, and a run that does. After lib.sh and
# logs.sh.

# images NAME FIRST COUNT: samples FIRST and so on, of 6 x 7 pixels, as the IDX files NAME-images and NAME-labels:
# noise, and a brighter stripe at the place that is the label. The same on every machine.
images() {
    printf "$(awk -v first="$2" -v count="$3" '
        function byte(x) { return sprintf("\\%03o", x) }
        BEGIN {
            printf "%s", byte(0) byte(0) byte(8) byte(3) byte(0) byte(0) byte(int(count / 256)) byte(count % 256)
            printf "%s", byte(0) byte(0) byte(0) byte(6) byte(0) byte(0) byte(0) byte(7)
            for (n = first; n < first + count; n++) {
                x = (n * 263 + 71) % 65521
                for (i = 0; i < 42; i++) {
                    x = (x * 4093 + 1021) % 65521
                    printf "%s", byte(x % 130 + (int(i / 8) == (n * 7 + int(n / 5)) % 5 ? 100 : 0))
                }
            }
        }')" >"$1-images"
    printf "$(awk -v first="$2" -v count="$3" 'BEGIN {
        printf "\\000\\000\\010\\001\\000\\000\\%03o\\%03o", int(count / 256), count % 256
        for (n = first; n < first + count; n++) printf "\\%03o", (n * 7 + int(n / 5)) % 5
    }')" >"$1-labels"
}

# image_run [INI line...]: writes base.ini, with these lines at its end.
image_run() {
    cat >base.ini <<'INI'
[run]
dir = runs
steps = 40
[device]
threads = 1
[model]
type = mlp
inputs = 42
hidden = 24 17
classes = 5
[data]
train = data/all-*
val =
holdout = 80
[batch]
global = 24
micro = 2
lanes = 4
[optimizer]
lr = 0.02
[schedule]
warmup = 5
decay_steps = 40
[checkpoint]
every = 20
keep_best = no
[eval]
every = 10
batches = 0
[log]
every = 1
hash_every = 1
INI
    for line; do echo "$line" >>base.ini; done
}

# logged RUN: its steps and evaluations without what a clock said, and the hashes of its last checkpoint.
logged() {
    sed -n -e 's/^{"t":"step","step":\([0-9]*\),"loss":\([^,]*\),"grad_norm":\([^,]*\),"lr":\([^,]*\),"samples":\([0-9]*\),.*"hash":"\([0-9a-f]*\)".*/\1 \2 \3 \4 \5 \6/p' \
        -e 's/^{"t":"eval",\(.*\),"ms":[^,]*}$/\1/p' "runs/$1/log.jsonl"
    hashes "$1" | sed 's/  [^ ]*$//'
}
