// data/text/case.c: see data/text/case.h. Ranges are in order; one that takes every second character may enclose
// others.
#include "data/text/case.h"

static uint32_t look_up(const case_range *table, int count, uint32_t c) {
    for (int i = 0; i < count && table[i].first <= c; i++)
        if (c <= table[i].last && (c - table[i].first) % (uint32_t)table[i].every == 0)
            return (uint32_t)((int64_t)c + table[i].distance);
    return c;
}

uint32_t case_lower(uint32_t c) {
    if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
    return look_up(case_lower_ranges, case_lower_ranges_count, c);
}

uint32_t case_title(uint32_t c) {
    if (c < 0x80) return c >= 'a' && c <= 'z' ? c - ('a' - 'A') : c;
    return look_up(case_title_ranges, case_title_ranges_count, c);
}
