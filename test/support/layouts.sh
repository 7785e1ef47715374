# test/support/layouts.sh: base.ini of check_layouts.sh and check_layouts_lost.sh, which have read test/support/lib.sh
# and cluster.sh. 8 lanes, and eight blocks, in steps of 8 samples. The loss is scaled up soon, so that a step in FP16
# overflows now and then.
sed -i -e 's/^layers = .*/layers = 6/' -e 's/^heads = .*/heads = 4\nvocab = 259/' -e 's/^embed = .*/embed = 16/' \
    -e 's/^context = .*/context = 16/' \
    -e 's/^global = .*/global = 8/' base.ini
ini >>base.ini <<'END'
device threads=1
precision scale_window=2
parallel slices=4
reduce bucket_mb=0.01
cluster heartbeat=0.1
END
