#!/bin/sh
# test/test_images.sh: pictures from the outside, with ./lockstep or the binary that LOCKSTEP_BIN names: packed, looked
# at, trained on and evaluated; one result however many threads, ranks and restarts; and what is damaged or misplaced.
. test/support/lib.sh
. "$top/test/support/logs.sh"
. "$top/test/support/images.sh"
image_run
mkdir data
images data/all 0 700

# as_one ONE RUN: RUN logged what ONE did.
as_one() {
    logged "$1" >logged.want
    logged "$2" >logged.found
    [ "$(wc -l <logged.want)" -gt 10 ] || fail "$1: expected more than $(wc -l <logged.want) lines"
    same logged.want logged.found "what $1 and $2 logged"
}

# cifar NAME COUNT: records of CIFAR-10 of three classes: noise, and a channel that is brighter for each class.
cifar() {
    printf "$(awk -v count="$2" 'BEGIN {
        x = 71
        for (n = 0; n < count; n++) {
            printf "\\%03o", n * 7 % 3
            for (i = 0; i < 3072; i++) { x = (x * 4093 + 1021) % 65521; printf "\\%03o", x % 130 + (int(i / 1024) == n * 7 % 3 ? 100 : 0) }
        }
    }')" >"$1"
}

# --- from IDX files ---------------------------------------------------------------------------------------------------

# The same weights from shards as from the files that they were made of.
shards_are_like_their_files() {
    settings ref
    expect 0 train ref
    for shard in 1000 64; do
        settings pack pack.images=idx "pack.input=data/all-*" pack.output=data/idx pack.val_fraction=0 \
            pack.shard_images=$shard
        expect 0 "$bin" pack base.ini pack.ini
        says "packed  700 images of 5 classes (0 left out, 0 other files skipped)" "train 700, val 0"
        rm -rf runs/shards
        settings shards "data.train=data/idx-train-*.bin"
        expect 0 train shards
        says "620 images in"
        as_one ref shards
    done
    expect 0 "$bin" data info data/idx-train-00000.bin
    says "images, 64 of 7 x 6 pixels, 1 channel" "5 classes: 0 1 2 3 4"
    expect 0 "$bin" data verify data/idx-train-00010.bin
    says "right, 60 images, 5 classes"
}

# --- 32 x 32 x 3 ------------------------------------------------------------------------------------------------------

seen="data.train=data/ten-train-*.bin data.val=data/ten-val-*.bin data.holdout=0 model.inputs=3072 model.classes=10
    data.crop=32 data.shift=4 data.flip=alternating optimizer.lr=0.002"

# without KEY=...: the settings of `seen` but for these keys, and then these.
without() {
    for each in $seen; do
        case " $* " in *" ${each%%=*}="*) ;; *) printf '%s ' "$each" ;; esac
    done
    echo "$*"
}

learns_from_pictures() {
    cifar ten.bin 90
    settings pack pack.images=cifar10 pack.input=ten.bin pack.output=data/ten pack.val_fraction=0.2
    expect 0 "$bin" pack base.ini pack.ini
    says "packed  90 images of 10 classes" "train 72, val 18"
    settings ten $seen
    expect 0 train ten
    says "72 images in 1 file, val 18"
    expect 0 "$bin" data info data/ten-train-00000.bin
    says "10 classes: 0 1 2 3 4 5 6 7 8 9; training images have mean"
    expect 0 "$bin" eval base.ini ten.ini
    awk '/^step 40 / && $6 > 0.9 { good = 1 } END { exit !good }' "$out" || fail "expected an accuracy above 0.9"
    expect 0 "$bin" check base.ini ten.ini
}

# Threads that read, ranks, and where the run was interrupted.
one_result() {
    while read -r ranks workers stop; do
        rm -rf runs/dealt
        [ "$stop" = 0 ] || {
            settings dealt $seen run.steps=$stop device.ranks=1 data.workers=1
            expect 0 train dealt
        }
        settings dealt $seen device.ranks=$ranks data.workers=$workers
        expect 0 train dealt
        as_one ten dealt
    done <<'DEALS'
1 5 0
2 2 0
4 1 20
DEALS
}

# Or the comparisons above compare nothing.
other_views_give_other_bits() {
    hashes ten >ends
    for change in data.flip=no data.flip=random data.shift=3 data.area=0.5 data.crop=0,data.shift=0; do
        settings other $(without $(echo "$change" | tr , ' '))
        rm -rf runs/other
        expect 0 train other
        hashes other >>ends
    done
    [ "$(wc -l <ends)" -eq 6 ] && [ "$(sort -u ends | wc -l)" -eq 6 ] || fail "expected six hashes: $(cat ends)"
}

# A residual network, whose statistics go on, too: killed in one layout after another, it ends as if nothing had been.
net() {
    run=$1
    shift
    settings "$run" $(without optimizer.lr=0.05) optimizer.type=sgd batch.micro=1 batch.lanes=8 batch.bn_span=4 \
        run.steps=60 checkpoint.every=5 eval.every=20 "$@"
    sed -i '/^inputs=/d' "$run.ini"
}

convolutions_go_on() {
    sed -e '/^hidden = /d' -e '/^inputs = /d' -e 's/^type = mlp/type = resnet20\nunits = 1 1\nwidth = 6/' base.ini >nets.ini
    net straight
    expect 0 "$bin" nets.ini straight.ini
    while read -r ranks victim layout; do
        net killed device.ranks=$ranks "run.faults=save@7:$victim" $layout
        expect 69 "$bin" nets.ini killed.ini
        says "rank $victim (localhost" "was killed by signal 9"
    done <<'LAYOUTS'
2 1 parallel.zero=1
2 0 parallel.context=2 parallel.zero=2
4 3 parallel.context=4 parallel.zero=3
4 2 parallel.context=2 parallel.pipeline=2 parallel.zero=2
LAYOUTS
    [ "$(last_step killed)" -ge 20 ] && [ "$(last_step killed)" -lt 60 ] || fail "it was at step $(last_step killed)"
    net killed
    expect 0 "$bin" nets.ini killed.ini
    same_steps straight killed
    same_state straight killed
}

# --- pictures of any size ---------------------------------------------------------------------------------------------

trains_on_folders() {
    gzip -dc "$top/test/golden/images.tar.gz" >golden.tar
    mkdir -p pictures/left pictures/right
    (cd pictures/left && tar -xf ../../golden.tar --exclude='*.cls')
    for k in 1 3 5 7; do mv pictures/left/00?$k.jpg pictures/right; done
    echo GIF89a >pictures/left/broken.jpg
    settings pack pack.images=folders pack.input=pictures pack.output=data/mine pack.size=24 pack.val_fraction=0.1
    expect 65 "$bin" pack base.ini pack.ini
    says "pictures/left/broken.jpg: begins with 0x474946" "bad_most"
    ls data | grep mine && fail "a pack that failed left files"
    settings pack pack.images=folders pack.input=pictures pack.output=data/mine pack.size=24 pack.val_fraction=0.1 \
        pack.bad_most=1
    expect 0 "$bin" pack base.ini pack.ini
    says "left out: pictures/left/broken.jpg" "packed  142 images of 2 classes (1 left out" "train 128, val 14"
    settings mine "data.train=data/mine-train-*.bin" "data.val=data/mine-val-*.bin" data.holdout=0 data.crop=20 \
        data.area=0.3 data.flip=random model.inputs=1200 model.classes=2
    expect 0 train mine
    expect 0 "$bin" data info data/mine-val-00000.bin
    says "3 channels" "2 classes: left right"
    settings mine "data.train=data/mine-train-*.bin" "data.val=data/mine-val-*.bin" data.holdout=0 model.inputs=1200
    expect 78 train mine
    says "[data] crop = N"
}

# --- damage, and what is in the wrong place ---------------------------------------------------------------------------

damage_is_named() {
    cp data/ten-train-00000.bin data/bad-train-00000.bin
    printf 'X' | dd of=data/bad-train-00000.bin bs=1 seek=$((128 + 3072 * 5 + 9)) conv=notrunc 2>/dev/null
    expect 65 "$bin" data verify data/bad-train-00000.bin
    says "bad-train-00000.bin: image 5 at offset 15488: checksum" "1 of 72 images are damaged"
    settings bad $(without "data.train=data/bad-train-*.bin")
    expect 65 "$bin" check base.ini bad.ini
    says "image 5 at offset 15488"
    expect 65 train bad
    says "image 5 at offset 15488" "data verify"
}

misplaced() {
    settings other data.flip=random
    expect 78 train other
    says "[data] crop, area, shift and flip are for shards of images"
    expect 65 "$bin" data convert data/ten-train-00000.bin tokens.bin
    says "a shard of images"
    rm pictures/left/broken.jpg
    settings pack pack.input=pictures pack.output=data/text
    expect 78 "$bin" pack base.ini pack.ini
    says "[pack] images = folders"
}

try shards_are_like_their_files
try learns_from_pictures
try one_result
try other_views_give_other_bits
try convolutions_go_on
try trains_on_folders
try damage_is_named
try misplaced
finish
