#!/bin/sh
# test/check_t5.sh: test/test_t5.sh in every layout, and in 16 bits.
LAYOUTS=every exec sh test/test_t5.sh
