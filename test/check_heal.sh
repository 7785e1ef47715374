#!/bin/sh
# test/check_heal.sh: test/chaos.sh with as many kills as a check has time for.
KILLS=${KILLS:-20}
. test/chaos.sh
