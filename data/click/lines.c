// data/click/lines.c: see data/click/lines.h. An error says which column was wrong; the caller knows the line.
#include "data/click/lines.h"

#include "base/fmath.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

typedef struct column {
    const char *at;
    int n;
} column;

enum { SHOWN = 24 };  // bytes of a column that a message shows

static err_t wrong(int c, const column *x, const char *expected) {
    return err_set(ERR_DATA, "column %d: `%.*s`, expected %s", c + 1, x->n < SHOWN ? x->n : SHOWN, x->at, expected);
}

// What stands between columns.
typedef struct between {
    const char *text, *name;
} between;

static const between tabs = {"\t", "tabs"}, colons = {"::", "`::`"}, commas = {",", "commas"};

static const char *find(const char *at, const char *end, const between *b) {
    return memmem(at, (size_t)(end - at), b->text, strlen(b->text));
}

// Cuts a line into exactly `count` columns.
static err_t cut(column *x, int count, const uint8_t *line, int64_t n, const between *b) {
    const char *at = (const char *)line, *end = at + n;
    int c = 0;
    for (;; c++) {
        const char *mark = find(at, end, b), *stop = mark ? mark : end;
        if (c < count) x[c] = (column){at, (int)(stop - at)};
        if (!mark) break;
        at = mark + strlen(b->text);
    }
    if (c + 1 == count) return ERR_OK;
    return err_set(ERR_DATA, "%d columns with %s between, expected %d", c + 1, b->name, count);
}

// At most 15 digits, which a double has exactly.
static bool number(const column *x, bool negative, int64_t *out) {
    bool minus = negative && x->n > 0 && x->at[0] == '-';
    int64_t v = 0;
    if (x->n - minus < 1 || x->n - minus > 15) return false;
    for (int i = minus; i < x->n; i++) {
        if (x->at[i] < '0' || x->at[i] > '9') return false;
        v = 10 * v + x->at[i] - '0';
    }
    *out = minus ? -v : v;
    return true;
}

static int digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static bool hexadecimal(const column *x, uint64_t *out) {
    uint64_t v = 0;
    if (x->n > 8) return false;
    for (int i = 0; i < x->n; i++) {
        if (digit(x->at[i]) < 0) return false;
        v = v << 4 | (uint64_t)digit(x->at[i]);
    }
    *out = x->n ? v + 1 : 0;
    return true;
}

err_t criteo_line(click *out, const uint8_t *line, int64_t n) {
    column x[1 + CRITEO_DENSE + CRITEO_TABLES], *numbers = x + 1, *ids = numbers + CRITEO_DENSE;
    TRY(cut(x, 1 + CRITEO_DENSE + CRITEO_TABLES, line, n, &tabs));
    if (x->n != 1 || (*x->at != '0' && *x->at != '1')) return wrong(0, x, "a label, 0 or 1");
    out->label = (float)(*x->at - '0');
    for (int k = 0; k < CRITEO_DENSE; k++) {
        int64_t v = 0;
        if (numbers[k].n && !number(&numbers[k], true, &v))
            return wrong(1 + k, &numbers[k], "nothing, or a whole number of at most 15 digits");
        out->dense[k] = (float)fm_log(v > 0 ? (double)v + 1 : 1);
    }
    for (int k = 0; k < CRITEO_TABLES; k++)
        if (!hexadecimal(&ids[k], &out->id[k]))
            return wrong(1 + CRITEO_DENSE + k, &ids[k], "nothing, or at most 8 hexadecimal digits");
    return ERR_OK;
}

// A whole number or one with a half, of 0.5 to 5: "4", "3.5", "4.0".
static bool stars(const column *x, float *out) {
    if (x->n != 1 && x->n != 3) return false;
    const char *at = x->at;
    if (*at < '0' || *at > '5') return false;
    if (x->n == 3 && (at[1] != '.' || (at[2] != '0' && at[2] != '5'))) return false;
    *out = (float)(*at - '0') + (x->n == 3 && at[2] == '5' ? 0.5f : 0);
    return *out >= 0.5f && *out <= 5;
}

bool movielens_header(const uint8_t *line, int64_t n) {
    static const char header[] = "userId,movieId,rating,timestamp";
    return n == sizeof header - 1 && memcmp(line, header, sizeof header - 1) == 0;
}

static const between *between_of(const uint8_t *line, int64_t n) {
    const char *at = (const char *)line, *end = at + n;
    return find(at, end, &tabs) ? &tabs : find(at, end, &colons) ? &colons : find(at, end, &commas) ? &commas : &tabs;
}

err_t movielens_line(click *out, const uint8_t *line, int64_t n, int64_t threshold) {
    static const double year = 365.25 * 86400;
    static const int64_t begin = 883612800;  // 1998
    column x[4];
    int64_t user, item, seconds;
    float rating;
    TRY(cut(x, 4, line, n, between_of(line, n)));
    if (!number(&x[0], false, &user) || user < 1) return wrong(0, &x[0], "a user, a number from 1 on");
    if (!number(&x[1], false, &item) || item < 1) return wrong(1, &x[1], "an item, a number from 1 on");
    if (!stars(&x[2], &rating)) return wrong(2, &x[2], "a rating, 0.5 to 5 in halves");
    if (!number(&x[3], false, &seconds)) return wrong(3, &x[3], "seconds since 1970");
    out->label = threshold ? (float)(rating >= (float)threshold) : rating;
    out->dense[0] = (float)((double)(seconds - begin) / year);
    out->id[0] = (uint64_t)user, out->id[1] = (uint64_t)item;
    return ERR_OK;
}
