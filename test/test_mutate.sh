#!/bin/sh
# test/test_mutate.sh: `make mutate` itself, on a project of one small file: which changes it knows, that a seed decides
# which are drawn, and that what no test notices, and what never ends, is found. And that test/mutate/guards names every
# test and every file.
. test/support/lib.sh

mkdir -p toy/room toy/test/mutate toy/base
cp "$top/test/mutate/mutate.c" toy/test/mutate/
cp "$top/base/philox.h" toy/base/
cat >toy/room/toy.c <<'END'
#include <stdlib.h>
#define TWICE(x) (2 * (x))  // a directive
int printf(const char *, ...);
static const int table[] = {1, 2};
int last(int a, int b);  /* if (a < b) */
int count(int n) {
    int room[32], *p = room, left = 0;
    while (n > 0) {
        n -= 1;
        left++;
    }
    printf("%d + %d\n", n + 1, 2);
    room[0] = left;
    free(NULL);
    return *p;
}
int last(int a, int b) {
    switch (a) {
    case 7: return a == b ? 1 : abs(b);
    default: break;
    }
    for (int i = 0; i < 1; i++)
        if (a && div(a, b).quot != 3 && calloc(a, b)) continue;
    return TWICE(a);
}
END
cat >toy/room/small.c <<'END'
int small(int n) {
    int left = 5;
    while (n > 0) n -= 1, left++;
    return left;
}
int unseen(int a) { return a == 3; }
END
cat >toy/test/test_toy.c <<'END'
int small(int n);
int main(void) { return small(5) != 10; }
END
cat >toy/Makefile <<'END'
CC ?= cc
build/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -c -o $@ $<
build/liblockstep.a: build/room/toy.o build/room/small.o
	ar rcs $@ $^
build/test/test_toy: build/test/test_toy.o build/liblockstep.a
	$(CC) -o $@ $^
END
echo 'room/* test_toy' >toy/test/mutate/guards
cat >want <<'END'
room/toy.c:7:37: constant: 0 -> (0 + 1)
room/toy.c:7:37: constant: 0 -> (0 - 1)
room/toy.c:8:12: condition: n > 0 -> !(n > 0)
room/toy.c:8:14: operator: > -> <=
room/toy.c:8:14: operator: > -> >=
room/toy.c:8:16: constant: 0 -> (0 + 1)
room/toy.c:8:16: constant: 0 -> (0 - 1)
room/toy.c:9:9: statement: n -= 1; -> ;
room/toy.c:9:11: operator: -= -> +=
room/toy.c:9:14: constant: 1 -> (1 + 1)
room/toy.c:9:14: constant: 1 -> (1 - 1)
room/toy.c:10:9: statement: left++; -> ;
room/toy.c:10:13: operator: ++ -> --
room/toy.c:12:5: statement: printf("%d + %d\n", n + 1, 2); -> ;
room/toy.c:13:5: statement: room[0] = left; -> ;
room/toy.c:13:10: constant: 0 -> (0 + 1)
room/toy.c:13:10: constant: 0 -> (0 - 1)
room/toy.c:19:10: constant: 7 -> (7 + 1)
room/toy.c:19:10: constant: 7 -> (7 - 1)
room/toy.c:19:22: operator: == -> !=
room/toy.c:19:29: constant: 1 -> (1 + 1)
room/toy.c:19:29: constant: 1 -> (1 - 1)
room/toy.c:20:14: jump: break -> continue
room/toy.c:22:18: constant: 0 -> (0 + 1)
room/toy.c:22:18: constant: 0 -> (0 - 1)
room/toy.c:22:21: condition: i < 1 -> !(i < 1)
room/toy.c:22:23: operator: < -> <=
room/toy.c:22:23: operator: < -> >=
room/toy.c:22:25: constant: 1 -> (1 + 1)
room/toy.c:22:25: constant: 1 -> (1 - 1)
room/toy.c:22:29: operator: ++ -> --
room/toy.c:23:13: condition: a && div(a, b).quot != 3 && calloc(a, b) -> !(a && div(a, b).quot != 3 && calloc(a, b))
room/toy.c:23:15: operator: && -> ||
room/toy.c:23:22: argument: a, b -> b, a
room/toy.c:23:33: operator: != -> ==
room/toy.c:23:36: constant: 3 -> (3 + 1)
room/toy.c:23:36: constant: 3 -> (3 - 1)
room/toy.c:23:38: operator: && -> ||
room/toy.c:23:55: jump: continue -> break
END

built() { ${CC:-cc} -std=c11 -D_GNU_SOURCE -I. -o mutate test/mutate/mutate.c || fail "mutate.c does not compile"; }

confinable() {
    as=$([ "$(id -u)" -eq 0 ] || echo --map-root-user)
    unshare $as --mount --pid --net --ipc --fork --mount-proc mount --bind . . 2>/dev/null || skip "no namespaces here"
}

# Each is there once, at its line, and nothing outside of functions, in text or in a directive.
every_kind() {
    cd toy && built
    ./mutate draw 1 room/toy.c >drawn
    while read -r file number; do
        ./mutate make "$file" "$number" "changed.$number" || fail "$number was not made"
    done <drawn | sort -t : -k 2,2n -k 3,3n -k 4 >found
    same "$work/want" found "changes of room/toy.c"
    for f in changed.*; do
        [ "$(wc -l <"$f")" -eq 25 ] || fail "$f has lost lines"
        [ "$(diff room/toy.c "$f" | grep -c '^>')" -eq 1 ] || fail "$f is not one line's change"
    done
    expect 64 ./mutate make room/toy.c 999 out
}

seeds() {
    cd toy && built
    for seed in 1 2; do
        ./mutate draw $seed room/toy.c >drawn.$seed
        ./mutate draw $seed room/toy.c test/test_toy.c | grep room/toy.c >again.$seed
        same drawn.$seed again.$seed "the drawn with seed $seed"
    done
    ! cmp -s drawn.1 drawn.2 || fail "seeds 1 and 2 draw the same"
    sort drawn.2 | uniq -d | grep -q . && fail "a change is drawn twice"
    return 0
}

# All mutants of a file: what it does with n is tested, and goes on for ever where n stays what it is; `unseen` is not.
survivors_are_found() {
    confinable
    cd toy
    AT=room/small.c N=99 SEED=3 JOBS=2 MUTATE_SLACK=1 expect 0 sh "$top/test/mutate/run.sh"
    says "room/small.c:6:30: operator: == -> !="
    sed -n '/^survivors:/,$p' "$out" >survivors
    ! grep -qE 'small.c:[2-4]:' survivors || fail "a mutant of lines 2 to 4 survived"
    set -- $(grep '^room/small.c ' "$out")
    [ "$2" -gt 10 ] && [ "$2" -eq $(($3 + 3)) ] && [ "$8" -ge 1 ] || fail "the table's line is wrong: $*"
    [ "$(grep -c small.c survivors)" -eq 3 ] || fail "not all survivors are listed"
    same room/small.c build/mutate/tree/room/small.c "the file before and after"
}

# A test that fails by itself says nothing of mutants.
tests_must_pass() {
    confinable
    cd toy
    sed -i 's/!= 10/!= 11/' test/test_toy.c
    AT=room/small.c expect 1 sh "$top/test/mutate/run.sh"
    says "test_toy ends with 1 without a mutant"
}

everything_is_guarded() {
    cd "$top"
    for t in test/test_*.c test/test_*.sh; do
        t=${t#test/}
        tr ' ' '\n' <test/mutate/guards | grep -qxE "${t%.c}(:.*)?" || fail "test/mutate/guards does not name ${t%.c}"
    done
    for t in $(sed 's/#.*//; s/^[^ ]*//' test/mutate/guards); do
        [ -e "test/$t" ] || [ -e "test/${t%%:*}.c" ] || fail "test/mutate/guards names $t, and there is no such test"
    done
    for f in base/*.c data/*.c model/*.c comm/*.c comm/*/*.c trainer/*.c trainer/*/*.c gpu/*.c gpu/cpu/*.c \
        gpu/cpu/kernel/*.c; do
        sed 's/#.*//' test/mutate/guards | (
            while read -r pattern tests; do case $f in $pattern) exit 0 ;; esac; done
            exit 1) || fail "test/mutate/guards has no test for $f"
    done
}

try every_kind
try seeds
try survivors_are_found
try tests_must_pass
try everything_is_guarded
finish
