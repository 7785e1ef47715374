// data/mix.h: several sources as one, of which a run draws samples in the proportion of weights.
#ifndef DATA_MIX_H
#define DATA_MIX_H

#include "data/source.h"
#include "data/weights.h"

// A source with a part for each of w's, in their order: part k is what `open` makes of the files w->part[k].files with
// the other options of *o. Its samples are numbered part after part. ERR_CONFIG and ERR_DATA name the part.
err_t mix_open(source **out, const source_options *o, const weights *w,
               err_t (*open)(source **out, const source_options *o));

#endif
