#!/bin/sh
# test/check_served.sh: test/test_served.sh, with more kills, and a machine of servers that is lost and comes again.
MATRIX=every KILLS="${KILLS:-30}" exec sh test/test_served.sh
