// model/dropout.h: dropout at a site of a block. Its mask depends on seed, step, sample, block and site only.
#ifndef MODEL_DROPOUT_H
#define MODEL_DROPOUT_H

#include "model/model.h"

// The key of site `which` (0..7) of a block, in *key; NULL where nothing is dropped.
const dropout_key *dropout_at(const pass *p, int block, int which, dropout_key *key);

// y = dropout(x), or nothing where nothing is dropped, of the rows (n,C) that are here of p->B samples of T rows each.
// y may be x. C is a multiple of 4 where rows are divided.
err_t dropout_rows(const model *m, const pass *p, int block, int which, const tensor *y, const tensor *x);

// The same of what adapter `which` (0..63) of a block reads: x as it is, or each slice's part of the columns by itself.
err_t dropout_adapted(const model *m, const pass *p, int block, int which, const tensor *y, const tensor *x);

// The same of a matrix of which a rank may have some slices, (slices here, N, columns of a slice), of a model without
// adapters: with the model's own chance.
err_t dropout_slices(const model *m, const pass *p, int block, int which, const tensor *y, const tensor *x);

#endif
