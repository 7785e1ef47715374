#!/bin/sh
# test/check_readme.sh: runs every command of every README.md in a copy of the tree, the top one first: the lines that
# begin with "$ " in console blocks. The first ini block of the top one becomes mine.ini; `lockstep config` checks all
# others. `make run` trains fewer steps here than there; `make test` is run before `make check`, which runs this. What
# other blocks contain is not run: see test/test_readme.sh.
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
rooms="base comm data gpu model trainer"
cp -a README.md LICENSE Makefile main.c config.ini $rooms test lockstep "$dir/" || exit 1
mkdir "$dir/build" # of the binary alone: programs of tests are gigabytes
(cd build && cp -a main.* objects version-* liblockstep.a $rooms "$dir/build/") || exit 1
cd "$dir" || exit 1
sed -i 's/^steps = .*/steps = 110/' config.ini model/llama/stories.ini
passed=0 failed=0 skipped=0

# The lines that a page shows below a command.
expected() {
    awk -v command="$2" '/^```/ { on = 0 } on && /^\$ / { on = 0 } on { print } $0 == "$ " command { on = 1 }' "$1"
}

# What the page shows below a command is what the command prints, line for line.
run() {
    printf "\$ %s\n" "$2"
    sh -c "$2" </dev/null >out 2>&1
    rc=$?
    expected "$1" "$2" >wanted
    if [ $rc -eq 0 ] && { [ ! -s wanted ] || cmp -s wanted out; }; then passed=$((passed + 1)); else
        echo "failed with $rc:"
        tail -n 20 out
        [ ! -s wanted ] || { echo "$1 says:"; cat wanted; }
        failed=$((failed + 1))
    fi
}

commands_of() {
    awk '/^```console/ { on = 1; next } /^```/ { on = 0 } on && /^\$ / { print substr($0, 3) }' "$1" >commands
    while IFS= read -r command; do
        if [ "$command" = "make test" ]; then
            echo "skipped: make test (it runs before make check)"
            skipped=$((skipped + 1))
        else
            run "$1" "$command"
        fi
    done <commands
}

settings_of() {
    awk '/^```ini/ { on = 1; n++; next } /^```/ { on = 0 } on { print > ("block-" n ".ini") }' "$1"
    [ "$1" != README.md ] || mv block-1.ini mine.ini
    for block in block-*.ini; do
        [ ! -e "$block" ] || run "$1" "./lockstep config $block"
    done
    rm -f block-*.ini
}

for page in README.md $(find base comm data gpu model test trainer -name README.md | LC_ALL=C sort); do
    echo "--- $page"
    settings_of "$page"
    commands_of "$page"
done
[ "$passed" -gt 30 ] || { echo "only $passed commands were found"; failed=$((failed + 1)); }
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
