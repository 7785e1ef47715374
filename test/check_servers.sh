#!/bin/sh
# test/check_servers.sh: test/test_servers.sh in every layout, in 16 bits, with other optimizers, and when most servers are
# lost.
MATRIX=every exec sh test/test_servers.sh
