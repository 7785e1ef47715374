#!/bin/sh
# test/check_ratings.sh: test/test_ratings.sh in every layout.
LAYOUTS=every exec sh test/test_ratings.sh
