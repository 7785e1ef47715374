#!/bin/sh
# test/check_fresh.sh: as much of test/fresh.sh as `make check` has time for: two bare machines install, build and train 20 steps to one hash.
FRESH_DO=build exec sh test/fresh.sh trixie:none:user bookworm:none:root:1core
