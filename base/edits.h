// base/edits.h: how far a misspelt name is from one that exists. Edit distance (Damerau 1964: insert, delete, replace,
// swap neighbours; each place edited once), whatever the case.
#ifndef BASE_EDITS_H
#define BASE_EDITS_H

#include <stdbool.h>

// Edits that make one name of the other; of each only the first EDITS_NAME - 1 characters count.
enum { EDITS_NAME = 64 };
int edits_between(const char *a, const char *b);

// Few enough for a typing error: one in three characters of what was found.
bool edits_near(const char *found, int edits);

#endif
