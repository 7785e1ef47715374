#!/bin/sh
# test/fresh.sh [SUITE:CUDA:USER[:1core]]...: the README's commands on a fresh machine, which is a bare Debian root file
# system with make and git and a clean clone of this checkout's HEAD. SUITE is bookworm or trixie; CUDA is none, headers
# (nothing but them) or nvcc, taken from this machine's CUDA_HOME; USER is root, or user, for whom root has installed
# what `make deps` installs; 1core leaves it one core.
#
# FRESH_DO says what is done there: `run test`, the default, is `make run` and `make test`; `build`, which is quick,
# builds the binary and trains 20 steps, to the same hash on each of the machines; other words are goals of make. Logs
# are kept in build/fresh.
LOCKSTEP_BIN=$(command -v make) # no binary of this machine is tested
export LOCKSTEP_BIN
. test/support/lib.sh
. "$top/test/support/root.sh"
logs=$top/build/fresh
mkdir -p "$logs"
commit=$(git -C "$top" rev-parse --short HEAD) || exit 1
[ -z "$(git -C "$top" status --porcelain)" ] || echo "what is not committed is not part of $commit, and is not tested"
[ $# -gt 0 ] || set -- bookworm:none:root bookworm:headers:user bookworm:nvcc:root bookworm:none:user:1core \
    trixie:none:user trixie:headers:root trixie:nvcc:user

# in_clone WHAT COMMAND: there, as the user; what it prints is kept.
in_clone() {
    began=$(date +%s) what=$1
    within "${FRESH_LIMIT:-5400}" sh -c "cd lockstep && $2"
    code=$?
    cp "$out" "$logs/$machine-$what.log"
    [ $code -eq 0 ] || fail "$what ended with $code; all of it: $logs/$machine-$what.log"
    echo "  $machine: $what, $(($(date +%s) - began)) s"
}

# What a user can't install is named; what root has installed is enough for the user.
deps_of_a_user() {
    user=user
    ! within 60 sh -c 'cd lockstep && make deps' || fail "make deps ended well where nothing is installed"
    says gcc libsodium-dev libcmocka-dev "no sudo"
    user='' online=yes
    within 600 sh -c 'cd /home/user/lockstep && make deps' || fail "make deps failed as root"
    user=user online=
    within 60 sh -c 'cd lockstep && make deps' || fail "make deps failed where all is installed"
    [ ! -s "$out" ] || fail "make deps did something where all is installed"
}

# Twenty steps of the default run, in the same bits on every machine.
twenty_steps() {
    echo 'printf "[run]\nname = quick\nsteps = 20\n" >quick.ini;' \
        './lockstep pack config.ini && ./lockstep config.ini quick.ini && ./lockstep hash runs/quick/best'
}

quick() {
    case $cuda in nvcc) insist='CUDA=yes ARCH=90' ;; *) insist= ;; esac
    in_clone build "make deps && make $insist && $(twenty_steps)"
    says "lockstep " " $commit " "done    20 steps"
    case $cuda in
    nvcc) ! grep -q "built without it" "$out" || fail "there is nvcc, and the binary is without CUDA" ;;
    *) says "cuda: this binary was built without it" ;;
    esac
    grep '^hash ' "$out" >"$work/hash.found"
    [ -e "$work/hash" ] || cp "$work/hash.found" "$work/hash"
    same "$work/hash" "$work/hash.found" "the hashes of two machines"
}

machine() {
    machine=$(echo "$1" | tr : -)
    IFS=: read -r suite cuda who cores rest <<END
$1
END
    case $cuda in
    none) cuda='' ;;
    headers) [ -e "$cuda_home/include/cuda_runtime.h" ] || skip "$cuda_home has no headers" ;;
    nvcc) [ -x "$cuda_home/bin/nvcc" ] || skip "$cuda_home has no nvcc" ;;
    *) fail "expected SUITE:CUDA:USER[:1core]" ;;
    esac
    case $who:$cores:$rest in
    root:: | user:: | root:1core: | user:1core:) ;;
    *) fail "expected SUITE:CUDA:USER[:1core]" ;;
    esac
    root_of "$suite" make,git
    [ -z "$cores" ] || cpus=$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')
    online=yes
    within 120 apt-get update -q || skip "no network: apt-get update failed"
    if [ "$who" = root ]; then
        git clone -q --no-hardlinks "$top" "$root/root/lockstep" || fail "no clone"
    else
        chroot "$root" useradd -m user || fail "no user"
        git clone -q --no-hardlinks "$top" "$root/home/user/lockstep" || fail "no clone"
        chroot "$root" chown -R user: /home/user
        online=
        deps_of_a_user
    fi
    for goal in ${FRESH_DO:-run test}; do
        case $goal in
        build) quick ;;
        run) in_clone run "make run" && says "done    " ;;
        *) in_clone "$goal" "make $goal" ;;
        esac
        online= # what was missing has been installed
    done
}

for each; do
    try "$each" machine "$each"
    rm -rf --one-file-system "$work/root"
done
finish
