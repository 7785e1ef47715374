#!/bin/sh
# test/test_faults.sh: test/check_faults.sh with a few of its points: of a rank that leaves, of one that reads a snapshot,
# and of a council that has voted. And each point must have a case there.
only='leave recall voted'
. test/check_faults.sh
