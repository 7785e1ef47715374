#!/bin/sh
# test/test_rooms.sh: the arrows between rooms and files point one way. What a room may include stands in `below`;
# includes are read from the source, and who calls whom from the objects of the build, since a header does not say which
# file defines what it declares.
. test/support/lib.sh

# below ROOM: the rooms that files of this one may include, beside their own.
below() {
    case $1 in
    base) ;;
    gpu) echo base ;;
    gpu/cpu | gpu/cuda) echo gpu base ;;
    gpu/cpu/kernel) echo gpu/cpu gpu base ;;
    data) echo gpu base ;;
    data/text) echo data data/tokenizer gpu base ;;
    data/image) echo data gpu base ;;
    data/click) echo data data/text data/tokenizer gpu base ;;
    data/tokenizer) echo base ;;
    model) echo gpu base ;;
    model/op) echo model gpu base ;;
    model/*) echo model/op model gpu base ;;  # an architecture
    comm) echo comm/team gpu base ;;
    comm/team | comm/server) echo base ;;
    comm/fabric) echo comm/tcp comm/team comm gpu base ;;
    comm/tcp | comm/nccl) echo comm/team comm gpu base ;;
    trainer/config) echo comm comm/team data model gpu base ;;
    trainer/checkpoint) echo comm comm/server model gpu base ;;
    trainer/log) echo trainer/config comm comm/team gpu base ;;
    trainer/node) echo trainer/log trainer/config comm comm/team gpu base ;;
    trainer/report) echo trainer/log trainer/config comm comm/team gpu base ;;
    trainer/watch) echo trainer/report trainer/checkpoint trainer/log trainer/config comm comm/team gpu base ;;
    trainer/step) echo trainer/log trainer/checkpoint trainer/config comm comm/server data model gpu base ;;
    trainer/costs) echo trainer/config comm gpu base ;;
    trainer/session) echo data/text data/tokenizer trainer/step trainer/node trainer/log trainer/checkpoint trainer/config \
        comm comm/team data model gpu base ;;
    trainer/plan) echo trainer trainer/costs trainer/session trainer/step trainer/node trainer/config comm comm/server \
        model gpu base ;;
    trainer) echo trainer/costs trainer/session data/text data/image data/click data/tokenizer trainer/step trainer/watch \
        trainer/report trainer/log trainer/node trainer/checkpoint trainer/config comm comm/team comm/server data model gpu base ;;
    .) echo data/tokenizer trainer/plan trainer/costs trainer/session trainer trainer/step trainer/watch trainer/report trainer/log \
        trainer/node trainer/checkpoint trainer/config comm comm/team data model gpu base ;;
    *) return 1 ;;
    esac
}

sources() { (cd "$top" && find main.c base gpu data model comm trainer -name '*.[ch]' -o -name '*.cu') | sort; }

# "FILE INCLUDED", for each include of a file of ours.
includes() { (cd "$top" && sources | xargs grep -H '^#include "') | sed 's/^\([^:]*\):#include "\([^"]*\)".*/\1 \2/'; }

# Pairs "A B", A needs B: `tsort` finds no order where they run in a circle, and says which files are in it.
one_way() {
    [ -s "$1" ] || fail "no pairs were found"
    tsort "$1" >order 2>circle || { cat circle >"$out"; fail "in a circle: $(sed 's/^tsort: //' circle | grep -v 'contains a loop' | tr '\n' ' ')"; }
}

rooms_are_known() {
    sources | sed 's|/[^/]*$||; s|^main.c$|.|' | sort -u >rooms
    while read -r room; do
        below "$room" >/dev/null || fail "which rooms may $room include? It has no line in test/test_rooms.sh"
    done <rooms
}

no_arrow_runs_up() {
    includes | awk '{ a = $1; b = $2; if (!sub(/\/[^\/]*$/, "", a)) a = "."; sub(/\/[^\/]*$/, "", b); if (a != b) print a, b, $1, $2 }' >arrows
    [ -s arrows ] || fail "no include was found"
    while read -r from to file included; do
        case " $(below "$from") " in
        *" $to "*) ;;
        *) fail "$file includes $included, and $from stands below $to" ;;
        esac
    done <arrows
}

# Also where the table above would let two rooms include each other.
no_rooms_in_a_circle() {
    no_arrow_runs_up
    cut -d ' ' -f 1,2 arrows | sort -u >pairs
    one_way pairs
}

# A foreign format knows nothing of the shards that are read through it.
formats_know_no_shards() {
    includes | grep '^data/text/\(megatron\|inflate\)\.[ch] data/text/shard' >"$out"
    [ ! -s "$out" ] || fail "$(cat "$out")"
}

no_headers_in_a_circle() {
    includes | awk '$1 ~ /\.h$/' >pairs
    one_way pairs
}

# X.c and X.h are one file here. These still stand in circles.
includes_each_other() {
    case $1 in
    trainer/checkpoint/* | trainer/session/session | trainer/session/restore | trainer/session/machine) ;;
    comm/team/control | comm/team/internal) ;;
    *) return 1 ;;
    esac
}

no_files_include_each_other() {
    includes | sed 's/\.\(c\|h\|cu\)\>//g' | awk '$1 != $2' | sort -u >all
    while read -r from to; do includes_each_other "$from" && includes_each_other "$to" || echo "$from $to"; done <all >pairs
    one_way pairs
}

# calls OBJECT...: "A B" where A uses what B defines. The kernels of one vector width stand for all.
calls() {
    nm -A -P "$@" 2>/dev/null | sed 's/: / /' | awk '
        { file = $1; sub(/\.o$/, "", file) }
        $3 ~ /^[TDRBVWC]$/ { home[$2] = file }
        $3 == "U" { wanted[file " " $2] }
        END { for (w in wanted) { split(w, x, " "); if (x[2] in home && home[x[2]] != x[1]) print x[1], home[x[2]] } }'
}

no_files_in_a_circle() {
    cd "$top/build" 2>/dev/null || skip "no build"
    calls $(sources | sed -n 's/\.c$/.o/p' | while read -r o; do
        [ ! -e "$o" ] || echo "$o"
        [ ! -e "${o%.o}.portable.o" ] || echo "${o%.o}.portable.o"
    done) >"$work/pairs"
    cd "$work" || exit 1
    one_way pairs
    [ "$(wc -l <pairs)" -gt 200 ] || fail "only $(wc -l <pairs) pairs of files were found"
}

no_cuda_files_in_a_circle() {
    cd "$top/build/sim" 2>/dev/null || skip "no simulated GPU was built"
    [ -d gpu/cuda ] || skip "no simulated GPU was built"
    calls $(find gpu/cuda -name '*.o') >"$work/pairs"
    cd "$work" || exit 1
    one_way pairs
}

try rooms_are_known
try no_arrow_runs_up
try no_rooms_in_a_circle
try formats_know_no_shards
try no_headers_in_a_circle
try no_files_include_each_other
try no_files_in_a_circle
try no_cuda_files_in_a_circle
finish
