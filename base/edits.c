// base/edits.c: see base/edits.h.
#include "base/edits.h"

#include <ctype.h>
#include <string.h>

static int fold(char c) { return tolower((unsigned char)c); }

static int least(int a, int b) { return a < b ? a : b; }

int edits_between(const char *a, const char *b) {
    int n = (int)strnlen(a, EDITS_NAME - 1), m = (int)strnlen(b, EDITS_NAME - 1);
    int rows[3][EDITS_NAME], *before = rows[0], *above = rows[1], *row = rows[2];  // rows i-2, i-1 and i of the table
    for (int j = 0; j <= m; j++) above[j] = j;
    for (int i = 1; i <= n; i++) {
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int replaced = above[j - 1] + (fold(a[i - 1]) != fold(b[j - 1]));
            row[j] = least(replaced, 1 + least(above[j], row[j - 1]));
            if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) && fold(a[i - 2]) == fold(b[j - 1]))
                row[j] = least(row[j], before[j - 2] + 1);
        }
        int *spare = before;
        before = above, above = row, row = spare;
    }
    return above[m];
}

bool edits_near(const char *found, int edits) { return edits <= 1 || edits <= (int)strlen(found) / 3; }
