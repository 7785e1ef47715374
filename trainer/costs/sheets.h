// trainer/costs/sheets.h: costs of machines that need not be here, of published figures: h100, h200, a100, and the
// processors of a socket, epyc9654, xeon8480
// (trainer/costs/costs.h).
#ifndef TRAINER_COSTS_SHEETS_H
#define TRAINER_COSTS_SHEETS_H

#include "trainer/costs/costs.h"

// The text of a sheet, which names its sources; NULL: there is none of that name.
const char *sheet_text(const char *name);

// "h100, h200, a100, ..."
extern const char sheet_names[];

// The file of that name, or else the sheet. ERR_CONFIG: neither; or as costs_load.
err_t sheet_or_file(costs *out, const char *name);

#endif
