#!/bin/sh
# test/check_models.sh: the models of what nodes decide (test/models/), in small sizes. `make soak` has all of them.
. test/support/lib.sh

models() {
    command -v spin >/dev/null || skip "spin is not installed"
    sh "$top/test/models/run.sh" quick >models.txt || fail "$(cat models.txt)"
    grep -qx "6 passed, 0 failed" models.txt || fail "$(cat models.txt)"
}

try models
finish
