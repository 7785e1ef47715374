// data/text/case.h: lower and title case of a character. The tables are made by case.py. A character whose other case
// is several characters, such as the title case of U+00DF, stays as it is.
#ifndef DATA_TEXT_CASE_H
#define DATA_TEXT_CASE_H

#include <stdint.h>

typedef struct case_range {
    uint32_t first, last;  // first, first + every, first + 2 * every ... last
    int every, distance;   // are replaced by what is at this distance
} case_range;

extern const case_range case_lower_ranges[], case_title_ranges[];
extern const int case_lower_ranges_count, case_title_ranges_count;

uint32_t case_lower(uint32_t point);
uint32_t case_title(uint32_t point);

#endif
