#!/bin/sh
# test/check_fresh.sh: as much of test/fresh.sh as `make check` has time for: a bare machine with another compiler, on
# which a user who is not root installs, builds and trains 20 steps.
FRESH_DO=build exec sh test/fresh.sh trixie:none:user
