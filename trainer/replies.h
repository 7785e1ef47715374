// trainer/replies.h: how well a model that says answers (model.says) finds each of them.
#ifndef TRAINER_REPLIES_H
#define TRAINER_REPLIES_H

#include "trainer/session/session.h"

enum { REPLIES_MOST = 256 };  // with more different answers there is no F1

// The mean over the answers that occur in the validation data, of F1 = 2 right / (of + said) (macro F1), from
// x->replies, after the evaluation *e: `of` samples have this answer, of which so many are right. A sample whose answer
// is wrong counts as `said` of the one answer that has what the model says at the first wrong place, after the same
// tokens; where none or several have that, as said of none. *known = false: more than REPLIES_MOST answers occur.
// ERR_INTERNAL: x->replies is NULL.
err_t replies_f1(const session *x, const evaluation *e, double *f1, bool *known);

#endif
