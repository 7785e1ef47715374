// trainer/checkpoint/vault_rows.h: rows on demand (comm/server/table.h) in snapshots. They have no shape that is known
// before, so a rank's are one part of its generation, which counts buckets where other parts count elements:
//
//   start  (buckets + 1) INT64   where the rows of each bucket begin, bytes after this list
//   rows   point, table UINT64, sum FP32, values (D) FP32: in order of keys
//
// After a loss each rank of the next world reads the buckets that it owns there, from the nodes that have them.
// Internal to trainer/checkpoint/.
#ifndef TRAINER_CHECKPOINT_VAULT_ROWS_H
#define TRAINER_CHECKPOINT_VAULT_ROWS_H

#include "trainer/checkpoint/vault_file.h"

enum { VAULT_ROWS = 1 << 20 };  // the part's group, of which it is tensor 0

// Has s rows on demand, and does this rank own some of them?
bool vault_rows_owns(const ckpt_state *s);
// The buckets that this rank owns, as a range. There is no data.
vault_range vault_rows_range(const ckpt_state *s);

// Bytes that this rank's rows take now, and with room for some more: a generation that grows by a few rows is not
// mapped anew.
int64_t vault_rows_bytes(const ckpt_state *s);
int64_t vault_rows_room(const ckpt_state *s);

// Writes them to `to`. The error is that of the file in which rows may be.
err_t vault_rows_write(const ckpt_state *s, char *to);

// Collective: the rows that each rank needs, and no others, are in its table. of, needs, x: as vault_gather has them.
err_t vault_rows_bring(const ckpt_state *s, const vault_set *x, const vault_list *of, const vault_list *needs,
                       int64_t step);

#endif
