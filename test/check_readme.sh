#!/bin/sh
# test/check_readme.sh: runs every command of README.md, in order, in a copy of the tree: the lines that begin with "$ " in its console blocks.
# Its ini block becomes mine.ini. `make run` trains fewer steps here than there; `make test` is run before `make check`, which runs this.
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cp -a README.md LICENSE Makefile main.c config.ini base comm data gpu model test trainer build lockstep "$dir/" || exit 1
cd "$dir" || exit 1
sed -i 's/^steps = .*/steps = 110/' config.ini
awk '/^```ini/ { on = 1; next } /^```/ { on = 0 } on' README.md >mine.ini
awk '/^```console/ { on = 1; next } /^```/ { on = 0 } on && /^\$ / { print substr($0, 3) }' README.md >commands

# The lines that the README shows below a command.
expected() {
    awk -v command="$1" '/^```/ { on = 0 } on && /^\$ / { on = 0 } on { print } $0 == "$ " command { on = 1 }' README.md
}

passed=0 failed=0 skipped=0
while IFS= read -r command; do
    if [ "$command" = "make test" ]; then
        echo "skipped: make test (it runs before make check)"
        skipped=$((skipped + 1))
        continue
    fi
    printf "\$ %s\n" "$command"
    sh -c "$command" </dev/null >out 2>&1
    rc=$?
    expected "$command" >wanted
    # What the page shows below a command is what the command prints, line for line.
    if [ $rc -eq 0 ] && { [ ! -s wanted ] || cmp -s wanted out; }; then passed=$((passed + 1)); else
        echo "failed with $rc:"
        tail -n 20 out
        [ ! -s wanted ] || { echo "the README says:"; cat wanted; }
        failed=$((failed + 1))
    fi
done <commands
! grep -n '@@' README.md || failed=$((failed + 1))
[ "$passed" -gt 5 ] || failed=$((failed + 1))  # the README has more commands than that
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
