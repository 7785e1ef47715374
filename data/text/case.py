#!/usr/bin/env python3
"""Makes case_tables.c: which characters have another lower case or title case that is one character, as str.lower and str.title of Python 3.11 say
(Unicode 14).

    python3 case.py > case_tables.c
    python3 case.py | cmp - case_tables.c
"""
import unicodedata


def ranges(change):
    """[(first, last, every, distance)]: first, first + every ... last are replaced by what is at that distance."""
    out = []
    for c in range(0x110000):
        to = chr(c) if 0xD800 <= c < 0xE000 else change(chr(c))
        if len(to) != 1 or ord(to) == c:
            continue
        distance = ord(to) - c
        last = out[-1] if out else None
        if last and last[3] == distance and (c - last[1] == last[2] or (last[0] == last[1] and c - last[1] == 2)):
            last[1], last[2] = c, c - last[1]
        else:
            out.append([c, c, 1, distance])
    return out


def table(name, change):
    found = ranges(change)
    print(f"\nconst case_range {name}[] = {{")
    items = [f"{{0x{a:X}, 0x{b:X}, {every}, {distance}}}," for a, b, every, distance in found]
    line = "   "
    for item in items:
        if len(line) + 1 + len(item) > 150:
            print(line)
            line = "   "
        line += " " + item
    print(line + "\n};")
    print(f"const int {name}_count = sizeof {name} / sizeof *{name};")


print(f"// data/text/case_tables.c: made by case.py with Unicode {unicodedata.unidata_version}. Do not edit.")
print('// clang-format off\n#include "data/text/case.h"')
table("case_lower_ranges", str.lower)
table("case_title_ranges", str.title)
print("// clang-format on")
