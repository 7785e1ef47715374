// trainer/step/outer.h: islands of ranks take steps of their own and mix what they have learned every so many steps:
// local SGD (McMahan et al. 2017; Stich 2019), and with a Nesterov step on the means DiLoCo (Douillard et al. 2023,
// algorithm 1). Between two boundaries nothing of the weights' size leaves an island.
//
// At a boundary each master, and each element of what the optimizer keeps, becomes the mean over the islands, added
// along the tree of lanes, whose upper part the islands are. So the state is the same on all islands, and a checkpoint
// of a boundary is that of one island. With `nesterov` the masters' mean is not taken as it is: how far it is from the
// masters of the boundary before, the anchor, is the gradient of one more step of SGD with Nesterov's momentum.
//
// With [outer] compress the masters are not sent: islands send how far they have gone from the anchor, in codes of 8 or
// 16 bits, and keep an anchor with `average`, too. What a code leaves out stays with the island, as the residual of a
// chunk, and is added to the next delta. The island that adds a chunk up codes the sum once more, whose residual it
// has, and all islands, it too, use what those codes say. Residuals belong to (island, chunk) and to a chunk, so the
// bits are the same in every layout, and a checkpoint has them.
//
// The optimizer's moments are no deltas. A code would leave a share of each out for good, or take anchors and residuals
// of their own, 8 bytes or more for each of them. So they travel in FP32, or, with [outer] moments = own, not at all:
// each island keeps its own, as DiLoCo does, and a checkpoint has all of them.
//
//     step           1  2  ...  H | H+1  ...  2H |
//     island 0       o--o--...--o-+--o---...--o--+       own lanes, own gradients
//     island 1       o--o--...--o-+--o---...--o--+
//                               mean           mean
//
// With [outer] fragments tensors are mixed at steps of their own (trainer/config/fragments.h), each as above, and with
// `overlap` what left after step s is mixed in after step s + overlap, and travels beside the steps between (Streaming
// DiLoCo: Douillard et al. 2025, arXiv 2501.18512):
//
//     step                 s              s + overlap
//     island         o--o--o---o---o---o---o--o--       goes on with its own weights
//     fragment              \__ delta, mean __/          anchor: its outer step; weights: keep w + (1 - keep) anchor
//
// Then islands never all hold the same. Deltas are sent, also in FP32; the anchor is what islands agree on. A
// checkpoint may be made after any step: it has each island's masters and moments, the anchor, and the means that have
// not been mixed in. What it has as the run's weights, what is evaluated, sampled from and exported, is the mean over
// the islands.
#ifndef TRAINER_STEP_OUTER_H
#define TRAINER_STEP_OUTER_H

#include "trainer/step/state.h"

// After a step: mixes what is due of the pieces that this rank owns with those of the ranks at the same place in the
// other islands (state_options.islands), and rounds the weights in use from the result. Collective. Of K islands each
// adds a share of what is mixed: an all_to_all brings it the others' values, and an all_gather gives all the means. So
// a rank sends 8 (K - 1) / K bytes of each element that it owns of the masters and of each array of the optimizer, and
// a quarter of that of masters in INT8. With overlap what leaves only begins to travel.
err_t outer_mix(train_state *t, int64_t step);

// Is anything to do for that after this step?
bool outer_is_due(const train_state *t, int64_t step);

// Steps after which everything is due as before, or as many of them as may be looked at. Of these the one after which
// most leaves: the same on all ranks.
int64_t outer_cycle(const train_state *t);
int64_t outer_busiest(const train_state *t);

// What this rank sends to the other islands after a step, and what inside its own.
comm_cost outer_cost(const train_state *t, int64_t step);
comm_cost outer_cost_inside(train_state *t, int64_t step);

// Of islands that are apart; of others nothing is to do. Nothing is on its way after outer_wait. outer_collect: a
// checkpoint may be made: the mean over the islands is where it looks for weights, and what travels has arrived. A pass
// between outer_show and outer_hide reads that mean. Collective; no other collective is under way.
err_t outer_wait(train_state *t);
err_t outer_collect(train_state *t);
err_t outer_show(train_state *t);
err_t outer_hide(train_state *t);

#endif
