// model/t5/spans.c: see model/t5/t5.h.
#include "model/t5/t5.h"

// Half to even.
static int64_t rounded(double x) {
    int64_t n = (int64_t)x;
    double rest = x - (double)n;
    return n + (rest > 0.5 || (rest == 0.5 && n % 2));
}

static t5_spans spans_of(int64_t window, double noise, double span) {
    t5_spans s = {.window = window, .noise = rounded((double)window * noise)};
    if (s.noise < 1) s.noise = 1;
    if (s.noise > window - 1) s.noise = window - 1;
    s.spans = rounded((double)s.noise / span);
    if (s.spans < 1) s.spans = 1;
    if (s.spans > window - s.noise) s.spans = window - s.noise;
    s.inputs = window - s.noise + s.spans + 1, s.targets = s.noise + s.spans + 1;
    return s;
}

t5_spans t5_spans_for(int64_t context, double noise, double span) {
    t5_spans s = spans_of(2, noise, span), next;
    for (int64_t window = 3; (next = spans_of(window, noise, span)).inputs <= context; window++) s = next;
    return s;
}
