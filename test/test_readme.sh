#!/bin/sh
# test/test_readme.sh: what README.md files say of the tree is so: every room has one, the top one is short, and the
# links, files, targets and programs that they name exist. What their console and ini blocks contain is run by
# test/check_readme.sh; the lines of other blocks are only looked up here.
. test/support/lib.sh
rooms="base comm data gpu model test trainer"
pages=$(cd "$top" && echo README.md && find $rooms -name README.md | sort)
(cd "$top" && find Makefile LICENSE config.ini main.c README.md $rooms -type f) >files

top_is_short() {
    lines=$(wc -l <"$top/README.md")
    [ "$lines" -le 200 ] || fail "README.md has $lines lines, expected at most 200"
    ! (cd "$top" && grep -n '@@' $pages) >"$out" || fail "a place is marked @@"
}

every_room_has_one() {
    for room in $rooms $(cd "$top" && find trainer -mindepth 1 -type d); do
        [ -f "$top/$room/README.md" ] || fail "$room/README.md is not there"
    done
}

# text PAGE: without blocks.
text_of() { awk '/^ *```/ { code = !code; next } !code' "$top/$1"; }

# anchors PAGE: of its headings, as a reader's link has them.
anchors() { text_of "$1" | sed -n 's/^##* //p' | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9_\n-'; }

links_lead_somewhere() {
    for page in $pages; do
        text_of "$page" | awk -v page="$page" '{
            while (match($0, /\]\([^)]*\)/)) { print page, substr($0, RSTART + 2, RLENGTH - 3); $0 = substr($0, RSTART + RLENGTH) } }'
    done | grep -v ' https*://' >links
    [ -s links ] || fail "no link was found"
    while read -r page link; do
        to=$(dirname "$page")/${link%%#*}
        case $link in '#'*) to=$page ;; esac
        [ -e "$top/$to" ] || fail "$page links to $link, which is not there"
        case $link in *'#'*) anchors "$to" | grep -qxF -e "${link#*#}" ||
            fail "$page links to $link, and $to has no such heading" ;; esac
    done <links
}

# A page may name its own room's files without the way there.
files_exist() {
    for page in $pages; do
        text_of "$page" | grep -o '`[A-Za-z0-9_./-]*[A-Za-z0-9_]\.\(c\|h\|cu\|sh\|service\|md\)`' | tr -d '`' |
            grep -v NAME | sed "s|^|$page |"
    done | sort -u >named
    [ -s named ] || fail "no file was found"
    while read -r page file; do
        grep -qxF -e "$file" files && continue
        awk -v room="${page%%/*}/" -v file="/$file" 'index($0, room) == 1 && substr($0, length($0) - length(file) + 1) == file { found = 1 }
                                                            END { exit !found }' files || fail "$page names $file, which is not there"
    done <named
}

# The lines of blocks that are not run and begin like a command of ours.
commands_not_run() {
    for page in $pages; do
        awk -v page="$page" '/^ *```/ { inside = !inside; plain = inside && /^ *```$/; next }
            plain && /^(make|sh|lockstep|\.\/lockstep|build\/[a-z\/_]*) / { sub(/  +#.*/, ""); print page, $0 }' "$top/$page"
    done
}

commands_exist() {
    commands_not_run >lines
    [ -s lines ] || fail "no command was found"
    while read -r page program rest; do
        for word in $rest; do
            case $program:$word in
            make:*=* | make:'>'*) ;;
            make:[a-z]*) grep -hEq "^([a-z-]+ )*$word( [a-z-]+)*:" "$top/Makefile" "$top/test/test.mk" \
                "$top/test/kit/kit.mk" || fail "$page: make has no goal $word" ;;
            *:build/test/*) [ -f "$top/test/${word#build/test/}.c" ] || fail "$page: nothing is built as $word" ;;
            *:*.ini | *:*.sh) case $word in */*) grep -qxF -e "$word" files ||
                fail "$page: $word is not there" ;; esac ;;
            esac
        done
        case $program in build/*) [ -f "$top/test/${program##*/test/}.c" ] ||
            [ -f "$top/test/bench/${program##*/}.c" ] || fail "$page: nothing is built as $program" ;; esac
    done <lines
}

try top_is_short
try every_room_has_one
try links_lead_somewhere
try files_exist
try commands_exist
finish
