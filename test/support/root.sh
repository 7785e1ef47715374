# test/support/root.sh: bare Debian root file systems, for scripts that have read test/support/lib.sh. debootstrap makes
# one once, from where this machine takes its packages; it is kept as an archive in build/roots (or LOCKSTEP_ROOTS), and
# every case unpacks a copy for itself.
#
#   root_of bookworm make,git     $root is a new copy of Debian's smallest system with these packages in it
#   within 60 COMMAND...          in it, with processes, mounts and a network of its own, for at most 60 s
roots=${LOCKSTEP_ROOTS:-$top/build/roots}
case $roots in /*) ;; *) roots=$top/$roots ;; esac
root=   # the copy of this case
cuda=   # `headers` or `nvcc`: what of this machine's CUDA toolkit it sees
cuda_home=${CUDA_HOME:-/usr/local/cuda}
online= # `yes`: with this machine's network instead of an empty one
user=   # who runs the commands in it; empty: root
cpus=   # those which it may use, as taskset(1) has them; empty: all

# Where this machine takes Debian from; nothing where it doesn't say, or isn't Debian.
mirror() {
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
        awk '$1 == "deb" || $1 == "URIs:" {
            for (i = 2; i <= NF; i++) if ($i ~ /^https?:.*\/debian(\/|$)/) { print $i; exit }
        }'
}

# How this machine reaches it: proxies, and what it does not check.
apt_settings() { apt-config dump 2>/dev/null | grep -E '^Acquire::(https?::|Check-|Retries)'; }

# make_root ARCHIVE SUITE PACKAGES
make_root() {
    [ "$(id -u)" -eq 0 ] || skip "needs root, for debootstrap"
    for tool in debootstrap unshare chroot tar; do command -v $tool >/dev/null || skip "there is no $tool"; done
    unshare --mount --pid --fork true 2>/dev/null || skip "no namespaces may be made here"
    [ ! -e "$1" ] || return 0
    from=$(mirror)
    case $from in https:*) set -- "$1" "$2" "$3,ca-certificates" ;; esac
    proxy=$(apt_settings | sed -n 's/^Acquire::http::Proxy "\([^"]*\)";$/\1/p')
    [ -z "$proxy" ] || export http_proxy="$proxy"
    start timeout 900 debootstrap --variant=minbase --include="$3" "$2" "$work/new" $from
    wait "$pid" || { tail -n 3 "$out.started"; skip "debootstrap can't make $2: no network?"; }
    pid=
    apt_settings >"$work/new/etc/apt/apt.conf.d/99host"
    rm -f "$work"/new/var/cache/apt/archives/*.deb
    mkdir -p "$roots"
    tar -C "$work/new" -cf "$1.$$.tmp" . && mv "$1.$$.tmp" "$1" || fail "the root file system can't be kept in $roots"
    rm -rf --one-file-system "$work/new"
}

# root_of SUITE PACKAGES
root_of() {
    root=$work/root
    archive=$roots/$1-$(echo "$2" | tr , -).tar
    make_root "$archive" "$1" "$2"
    mkdir "$root" && tar -C "$root" -xpf "$archive" --numeric-owner || fail "$archive can't be unpacked"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    # debootstrap leaves this to the installer
    [ -e "$root/etc/hosts" ] || printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts"
    debs=$roots/$1-debs
    mkdir -p "$debs" "$root/var/cache/apt/archives"
}

# What is done inside the namespaces, before there is another root: $1 is it, $2 where packages that were downloaded are
# kept, $3 cuda and $4 its home, $5 online, $6 user, $7 cpus, $8 the limit in seconds.
enter='
    set -e
    root=$1 debs=$2 cuda=$3 home=$4 online=$5 user=$6 cpus=$7 limit=$8
    shift 8
    mount -t proc proc "$root/proc"
    mount -t sysfs -o ro sysfs "$root/sys"
    mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$root/dev/pts"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    mount --bind "$debs" "$root/var/cache/apt/archives"
    case $cuda in headers) part=/include ;; *) part= ;; esac
    if [ -n "$cuda" ]; then
        mkdir -p "$root$home$part"
        mount --bind -o ro "$home$part" "$root$home$part"
    fi
    [ -n "$online" ] || ip link set lo up
    [ -z "$cpus" ] || taskset -cp "$cpus" $$ >/dev/null
    who=${user:-root} at=/root
    [ -z "$user" ] || at=/home/$user
    exec timeout -s KILL "$limit" chroot --userspec="$who" "$root" env -i HOME="$at" USER="$who" LANG=C.UTF-8 \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin sh -c "cd && exec \"\$@\"" sh "$@"'

# within SECONDS COMMAND...: its exit status; what it printed is in $out. All its processes end with it, or with this
# script.
within() {
    limit=$1
    shift
    net=--net
    [ -z "$online" ] && command -v ip >/dev/null || { net='' online=yes; }
    start unshare --mount --pid $net --fork --kill-child \
        sh -c "$enter" sh "$root" "$debs" "$cuda" "$cuda_home" "$online" "$user" "$cpus" "$limit" "$@"
    wait "$pid"
    code=$? pid=
    mv "$out.started" "$out"
    return $code
}
