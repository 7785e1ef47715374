#!/bin/sh
# test/chaos_nodes.sh: a part of `make chaos [SEED=n] [KILLS=200]`: so many kills in one run of two nodes, and in one of
# three. The losses and hashes of all steps are those of one rank to which nothing happened. What it draws depends on
# SEED alone, when it happens also on the machine.
#
# test/check_nodes.sh ends with the same, with fewer kills.
. test/support/lib.sh
. "$top/test/support/net.sh"
. "$top/test/support/cluster.sh"
. "$top/test/support/healing.sh"
. "$top/test/support/chaos_nodes.sh"
most=${KILLS:-200}
echo "SEED=$seed KILLS=$most"

# Ranks of several MB, so that 2 % of their memory are more than the few pages by which a heap comes to its shape. Of
# three nodes the worlds have one to three ranks, which hold more the fewer they are: there small ones say more.
two() {
    small=$(echo "$small" | sed 's/embed=16/embed=64/; s/layers=1/layers=2/')
    chaos_of 1 2 1
}

try chaos_of_two two
try chaos_of_three chaos_of 0 1 1 1
finish
