#!/bin/sh
# test/check_systemd.sh: trainer/node/lockstep.service under a live systemd. A bare Debian with systemd is booted in a
# container by systemd-nspawn, the binary and the unit are installed in it as `make install` does it, and what its
# service manager says of them is read from outside. What trained under it, through kills and stops, has the weights of
# a run to which nothing happened.
. test/support/lib.sh
. "$top/test/support/root.sh"
box=    # the process that has the container in it
leader= # the container's first process, as this machine numbers it
cgroups=

ini >base.ini <<'END'
run name=box dir=runs steps=1000000
model layers=1 heads=2 embed=48 context=32 dropout=0.1
data train=/srv/plain-train-*.bin val=""
pack input=text.txt output=plain val_fraction=0
batch global=16 micro=4 lanes=4
schedule type=constant warmup=5
device threads=1
checkpoint every=20 keep_best=no
eval every=0
sample tokens=0
END

# --- the container ----------------------------------------------------------------------------------------------------

# All of the container is gone: its processes with the first one, its mounts with them; then its control groups are
# empty.
shut_down() {
    [ -z "$box" ] || { kill -9 "$box"; wait "$box"; } 2>/dev/null
    box=
    for each in $cgroups; do
        for again in 1 2 3 4 5 6 7 8 9 10; do
            find "$each" -depth -type d -exec rmdir {} \; 2>/dev/null
            [ -d "$each" ] || break
            sleep 0.1
        done
    done
    cgroups=
}
trap 'shut_down; leave' EXIT

prepare() {
    command -v systemd-nspawn >/dev/null || skip "there is no systemd-nspawn"
    command -v nsenter >/dev/null || skip "there is no nsenter"
    suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    case $suite in bookworm | trixie) ;; *) suite=bookworm ;; esac
    root_of "$suite" systemd,systemd-sysv
    # DESTDIR alone decides where it goes; the binary is the one that is tested, whatever it was built from
    expect 0 make -s -C "$top" -o "$bin" BIN="$bin" DESTDIR="$root" install
    chroot "$root" /usr/local/bin/lockstep --version >"$out" 2>&1 || skip "this binary does not start in $suite"
    text 60000 >text.txt
    expect 0 "$bin" pack base.ini
    cp plain-train-*.bin "$root/srv"
    chmod 644 "$root"/srv/*
    mkdir -p "$root/etc/lockstep"
}

# A control group of its own, where they can be made: systemd-nspawn would use one of a fixed name.
own_cgroup() {
    for each in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do
        [ -e "$each/cgroup.procs" ] || continue
        mkdir "$each/lockstep-test-$$" 2>/dev/null && cgroups="$cgroups $each/lockstep-test-$$"
    done
}

boot_box() {
    own_cgroup
    unshare --mount --pid --fork --kill-child --mount-proc sh -c '
        for each in $2; do echo $$ >"$each/cgroup.procs"; done
        mkdir -p /run/systemd && mount -t tmpfs tmpfs /run/systemd
        exec timeout -s KILL 600 systemd-nspawn --quiet --register=no --keep-unit --private-network --console=pipe \
            --machine=lockstep --directory="$1" --boot' sh "$work/root" "$cgroups" >boot.log 2>&1 </dev/null &
    box=$!
}

# parent PID: of it
parent() { sed -n 's/^PPid:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null; }

# The container's first process: its parent is systemd-nspawn, below timeout, below unshare.
find_leader() {
    for each in $(grep -l '^NSpid:.*[[:space:]]1$' /proc/[0-9]*/status 2>/dev/null); do
        each=${each#/proc/} each=${each%/status}
        up=$(parent "$each")
        [ -n "$up" ] && up=$(parent "$up") && [ -n "$up" ] && [ "$(parent "$up")" = "$box" ] && leader=$each && return 0
    done
    return 1
}

inside() { nsenter --target "$leader" --all timeout 60 "$@"; }
ctl() { inside systemctl --no-pager "$@"; }
show() { ctl show -p "$1" --value "lockstep@$2"; }
is_up() { case $(ctl is-system-running 2>/dev/null) in running | degraded) ;; *) return 1 ;; esac }

boots() {
    for again in $(seq 600); do
        kill -0 "$box" 2>/dev/null || { tail -n 1 boot.log; skip "systemd-nspawn can't boot here"; }
        find_leader && is_up && return 0
        sleep 0.1
    done
    skip "it did not boot within a minute"
}

# soon COMMAND...: tries it until it succeeds, for a minute at most.
soon() {
    until=$(($(date +%s) + 60))
    until "$@"; do
        if [ "$(date +%s)" -ge $until ]; then
            inside journalctl -o short-monotonic -n 8 >"$out"
            fail "waited too long for: $*"
        fi
        sleep 0.05
    done
}

# --- looking at units -------------------------------------------------------------------------------------------------

# unit NAME SETTING...: its INI, and of its own what `systemctl edit` would write. It is enabled: the manager forgets
# how others ended.
unit() {
    cp base.ini "$root/etc/lockstep/$1.ini"
    instance=$1
    edit=$root/etc/systemd/system/lockstep@$1.service.d
    shift
    mkdir -p "$edit"
    { echo '[Service]'; for each; do echo "$each"; done; } >"$edit/override.conf"
    expect 0 ctl enable "lockstep@$instance"
}

state() { echo "$root/var/lib/private/lockstep/$1/runs/box"; }
is() { [ "$(show "$1" "$2")" = "$3" ]; }
are() {
    is "$1" "$2" "$3" && return
    ctl status "lockstep@$2" >"$out" 2>&1
    fail "$2: $1 is $(show "$1" "$2"), expected $3"
}
step() { show StatusText "$1" | sed -n 's/^step \([0-9]*\)\/1000000 loss [0-9].*/\1/p'; }
beyond() { [ "$(step "$1")" -gt "$2" ] 2>/dev/null; }
restarted() { [ "$(show NRestarts "$1")" -ge 1 ] && is ActiveState "$1" active; }
signal() { inside sh -c 'kill -$1 $2' sh "$1" "$2" || fail "SIG$1 can't be sent to process \"$2\""; }
newest() { ls -d "$1"/ckpt/step-* 2>/dev/null | tail -n 1; }
saved() { [ -n "$(newest "$(state "$1")")" ]; }
main() { show MainPID "$1"; }
resumes() { grep -c '"kind":"resume"' "$(state "$1")/events.jsonl"; }

# as_undisturbed CHECKPOINT: a run of as many steps, on this machine, by one rank, has its hashes.
as_undisturbed() {
    steps=$(basename "$1" | sed 's/step-0*//')
    rm -rf runs
    settings box run.steps="$steps" checkpoint.every=0 data.train="$work/plain-train-*.bin"
    expect 0 timeout 300 "$bin" base.ini box.ini
    "$bin" hash "$(newest runs/box)" | sed 's/  [^ ]*$//' >hash.want
    "$bin" hash "$1" 2>&1 | sed 's/  [^ ]*$//' >hash.found
    grep -q '^hash [0-9a-f]*  state_hash [0-9a-f]*$' hash.want || fail "no hash of an undisturbed run"
    same hash.want hash.found "the hashes after step $steps"
}

# stopped NAME: it was asked to, and that was a good end.
stopped() {
    are ActiveState "$1" inactive
    are Result "$1" success
    are ExecMainStatus "$1" 75
}

# --- cases ------------------------------------------------------------------------------------------------------------

starts_and_reports() {
    unit one
    expect 0 ctl start lockstep@one
    are ActiveState one active
    are NRestarts one 0
    soon beyond one 0
    are WatchdogUSec one 10min
    uid=$(inside awk '$1 == "Uid:" { print $2 }' "/proc/$(main one)/status")
    [ "$uid" -ge 61184 ] && [ "$uid" -le 65519 ] || fail "it runs as user $uid, expected one of its own"
}

# What the unit shuts off is shut off in the process that trains, and still it trains.
confined() {
    of=$(main one)
    [ "$(inside awk '/^Max core file size/ { print $5, $6 }' "/proc/$of/limits")" = "0 0" ] ||
        fail "it may leave a core file"
    [ "$(inside awk '{ n += $3 } END { print n < 65536 }' "/proc/$of/uid_map")" = 1 ] || fail "it sees all users"
    are SystemCallErrorNumber one 1
    expect 0 inside systemd-analyze security --no-pager --threshold=25 lockstep@one.service
}

continues_after_kill() {
    soon saved one
    signal KILL "$(main one)"
    soon restarted one
    soon beyond one 0
    [ "$(resumes one)" -eq 1 ] || fail "events.jsonl has $(resumes one) resumes"
}

# With the weights, after all of this, of a run that was left in peace.
stops_with_a_checkpoint() {
    expect 0 ctl stop lockstep@one
    stopped one
    expect 0 ctl start lockstep@one
    at=$(sed -n 's/^{"t":"step","step":\([0-9]*\),.*/\1/p' "$(state one)/log.jsonl" | tail -n 1)
    soon beyond one "$at"
    [ "$(resumes one)" -eq 2 ] || fail "events.jsonl has $(resumes one) resumes"
    expect 0 ctl stop lockstep@one
    stopped one
    as_undisturbed "$(newest "$(state one)")"
}

# What a restart can't mend is not tried again.
settings_refused() {
    unit bad
    printf '[optimizer]\nlearning_rte = 1\n' >>"$root/etc/lockstep/bad.ini"
    ! ctl start lockstep@bad >"$out" 2>&1 || fail "it started"
    are ExecMainStatus bad 78
    are ActiveState bad failed
    are NRestarts bad 0
    ! ctl start lockstep@nobody >"$out" 2>&1 || fail "it started without settings"
    are AssertResult nobody no
    are ExecMainStatus nobody 0
}

# The supervisor lives, but no step is finished: the watchdog ends it. It does not where a rank stands still while it
# saves, which may take long; so here none does.
steps_stand_still() {
    unit still WatchdogSec=6 RestartSec=1
    sed -i 's/^every = 20$/every = 0/' "$root/etc/lockstep/still.ini"
    expect 0 ctl start lockstep@still
    soon beyond still 0
    are NRestarts still 0
    rank=$(inside sh -c 'grep -ls "^PPid:[[:space:]]$1\$" /proc/[0-9]*/status | xargs grep -L "^Name:.*lockstep/watch"' sh "$(main still)")
    rank=${rank#/proc/}
    signal STOP "${rank%/status}"
    soon restarted still
    soon beyond still 0
    inside journalctl -o cat -u lockstep@still >"$out"
    says "Watchdog timeout"
    expect 0 ctl stop lockstep@still
    stopped still
}

# A node that is killed takes the other one with it. Both come back by themselves, meet, and go on.
two_nodes() {
    (umask 077; head -c 32 /dev/urandom >"$root/etc/lockstep/secret")
    for k in 0 1; do
        unit n$k Environment=LOCKSTEP_NODE=$k
        printf '[cluster]\nnodes = 127.0.0.1:1, 127.0.0.2:1\n[parallel]\nzero = 1\n' >>"$root/etc/lockstep/n$k.ini"
    done
    expect 0 ctl start --no-block lockstep@n0
    soon is StatusText n0 "waiting for 127.0.0.2 (1 of 2 nodes are here)"
    are ActiveState n0 activating
    expect 0 ctl start lockstep@n1
    soon is ActiveState n0 active
    soon saved n0
    soon saved n1
    signal KILL "$(main n1)"
    for each in n0 n1; do
        soon restarted $each
        soon beyond $each 0
        [ "$(resumes n0)" -ge 1 ] || fail "$each did not continue"
    done
    inside journalctl -o cat -u lockstep@n0 >"$out"
    says "is lost" "status=69"
    expect 0 ctl stop lockstep@n0 lockstep@n1
    stopped n0
    stopped n1
    whole=union/$(basename "$(newest "$(state n0)")")
    mkdir -p "$whole"
    for each in n0 n1; do cp "$(newest "$(state $each)")"/* "$whole"; done
    as_undisturbed "$whole"
}

try prepare
if [ $passed -eq 1 ]; then
    root=$work/root
    boot_box
    try boots
fi
if [ $passed -eq 2 ]; then
    find_leader
    try starts_and_reports
    try confined
    try continues_after_kill
    try stops_with_a_checkpoint
    try settings_refused
    try steps_stand_still
    try two_nodes
fi
finish
