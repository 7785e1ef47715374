#!/bin/sh
# test/check_bert.sh: test/test_bert.sh in every layout, and in 16 bits.
LAYOUTS=every exec sh test/test_bert.sh
