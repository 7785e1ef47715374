#!/bin/sh
# test/check_dlrm.sh: test/test_dlrm.sh in every layout, and in 16 bits; and a run that learns what can be learnt.
LAYOUTS=every exec sh test/test_dlrm.sh
