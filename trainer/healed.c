// trainer/healed.c: see trainer/healed.h.
#include "trainer/healed.h"

#include "base/text.h"

#define WORD_FIGURE(name, word) [name] = word "_s",
const char *const healed_figures[HEALED_PHASES] = {HEALED_WORDS(WORD_FIGURE)};
static const char *const names[HEALED_PHASES] = {HEALED_WORDS(WORD_NAME)};

void healed_begin(healed_times *h, const yard_news *n, double now) {
    *h = (healed_times){.pending = true, .high = n->high, .at[0] = n->failed_at};
    healed_end(h, HEALED_DETECT, n->lost_at);
    healed_end(h, HEALED_UNWIND, n->left_at);
    healed_end(h, HEALED_ENTER, now);
}

void healed_end(healed_times *h, healed_phase p, double now) { h->at[p + 1] = now > h->at[p] ? now : h->at[p]; }

bool healed_caught_up(healed_times *h, int64_t step, double now) {
    if (!h->pending || step < h->high) return false;
    h->pending = false;
    healed_end(h, HEALED_REPLAY, now);
    return true;
}

void healed_seconds(const healed_times *h, double value[HEALED_PHASES]) {
    for (int i = 0; i < HEALED_PHASES; i++) value[i] = h->at[i + 1] - h->at[i];
}

const char *healed_text(const healed_times *h, char dst[HEALED_TEXT]) {
    double value[HEALED_PHASES];
    text t = {.at = dst, .room = HEALED_TEXT};
    healed_seconds(h, value);
    for (int i = 0; i < HEALED_PHASES; i++) text_put(&t, "%s%s %.3f s", i ? ", " : "", names[i], value[i]);
    return dst;
}
