# test/support/kit.sh: the kit of `make gpu-kit` in a root file system that has libc, a shell and the few tools that its
# README names, and nothing else, for scripts that have read test/support/lib.sh. Needs root or user namespaces.
#
#   made KIT FOLDER ARCHS   makes it
#   kit FOLDER              a bare root, with this kit in it
#   inside COMMAND...       in there; $got is how it ended
root=$work/root
tools="sh cat date mktemp rm mkdir sed grep awk head tail tr cut uname nproc timeout env sort uniq seq dirname basename expr cmp diff wc sleep cp mv ls kill
    printf touch chmod gzip od ln paste tee true false stat id hostname setsid yes"

# bare: the root, of this machine's own files.
bare() {
    rm -rf "$root"
    mkdir -p "$root/tmp" "$root/proc" "$root/dev" "$root/bin" "$root/etc"
    for tool in $tools; do
        from=$(command -v "$tool") && [ -x "$from" ] || continue
        cp -L "$from" "$root/bin/$tool"
        ldd "$from" 2>/dev/null | sed -n 's/^[^/]*\(\/[^ ]*\) (0x.*/\1/p'
    done | sort -u >libraries
    for each in libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1; do
        ldconfig -p | sed -n "s/^[[:space:]]*$each .*=> //p" | head -n 1
    done >>libraries
    while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp -L "$library" "$root$library"
    done <libraries
    echo '127.0.0.1 localhost' >"$root/etc/hosts"
}

# inside COMMAND...: in it, with a process tree of its own and no network but loopback.
inside() {
    enter="mount -t proc proc '$root/proc' && mount --rbind /dev '$root/dev' && { ip link set lo up 2>/dev/null || :; } && exec chroot '$root' /bin/env -i PATH=/bin HOME=/tmp \"\$@\""
    timeout 300 unshare --map-root-user --mount --pid --net --fork sh -c "$enter" sh "$@" >"$out" 2>errors </dev/null
    got=$?
    cat errors >>"$out"
}

# kit FOLDER: bare, with this kit in it.
kit() {
    for tool in unshare chroot mount ldd strip strings; do command -v $tool >/dev/null || skip "there is no $tool"; done
    unshare --map-root-user --mount --pid --net --fork true 2>/dev/null || skip "no namespaces may be made here"
    [ -d "$1" ] || skip "$1 was not made: it needs the CUDA toolkit"
    bare
    cp -r "$1" "$root/kit"
}

made() {
    [ ! -d "$2" ] || rm -rf "$2"
    (cd "$top" && make KIT="$1" ARCH="$3" gpu-kit) >"$out" 2>&1 || fail "make gpu-kit"
    says "MB"
    lines=$(wc -l <"$2/README")
    [ "$lines" -le 14 ] || fail "the README has $lines lines"
}
