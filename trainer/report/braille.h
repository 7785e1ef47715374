// trainer/report/braille.h: curves in a terminal. A braille character is a block of 2 x 4 dots, so 69 columns and 16
// rows are a picture of 138 x 64. Where the terminal has no UTF-8, a curve is drawn with its letter, one to a column.
#ifndef TRAINER_REPORT_BRAILLE_H
#define TRAINER_REPORT_BRAILLE_H

#include "trainer/report/chart.h"

#include <stdbool.h>
#include <stdio.h>

enum { BRAILLE_WIDTH = 80, BRAILLE_COLUMNS = 69, BRAILLE_ROWS = 16 };

typedef struct braille_look {
    bool utf8, colour, log_y;
    const char *x_name;
} braille_look;

// Draws n curves, named 'A', 'B' ..., over common axes, in lines of at most BRAILLE_WIDTH characters. Curves without
// points are left out; without any, nothing is printed.
void braille_draw(FILE *out, const points *curves, int n, const braille_look *look);

// How this process may write to `out`: UTF-8 where LC_ALL, LC_CTYPE or LANG say so, colour where it is a terminal, and
// neither NO_COLOR nor a TERM that is dumb speaks against it.
braille_look braille_look_of(FILE *out);

// The escape sequence that begins run i's colour, or ends it (i < 0); "" without colour.
const char *braille_colour(const braille_look *look, int i);

#endif
