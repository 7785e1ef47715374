// trainer/checkpoint/vault_choose.c: see trainer/checkpoint/vault_choose.h.
#include "trainer/checkpoint/vault_choose.h"

#include <stdbool.h>
#include <stdlib.h>

int vault_overwrites(const int64_t of[GENERATIONS], int64_t step) {
    if (of[0] >= step) return 0;
    return of[1] < step && of[1] > of[0] ? 0 : 1;
}

static int compare(const void *a, const void *b) {
    const vault_piece *x = a, *y = b;
    if (x->step != y->step) return x->step > y->step ? -1 : 1;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    if (x->tensor != y->tensor) return x->tensor < y->tensor ? -1 : 1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->owner != y->owner ? (x->owner < y->owner ? -1 : 1) : (x->area > y->area) - (x->area < y->area);
}

void vault_sort(vault_list *has) {
    if (has->n > 0) qsort(has->at, (size_t)has->n, sizeof *has->at, compare);
}

const vault_piece *vault_holder(const vault_list *has, const vault_piece *need, int64_t step, int64_t first, int node) {
    vault_piece key = {.step = step, .group = need->group, .tensor = need->tensor, .first = INT64_MIN};
    const vault_piece *found = NULL;
    int low = 0, high = has->n;
    while (low < high) {
        int mid = low + (high - low) / 2;
        if (compare(&has->at[mid], &key) < 0) low = mid + 1;
        else high = mid;
    }
    for (const vault_piece *p = has->at + low; p < has->at + has->n; p++) {
        if (p->step != step || p->group != key.group || p->tensor != key.tensor || p->first > first) break;
        if (first >= p->first + p->count) continue;
        if (!found || (found->owner != node && (p->owner == node || p->owner < found->owner))) found = p;
    }
    return found;
}

static bool is_whole(const vault_list *has, const vault_list *needs, int64_t step) {
    for (const vault_piece *n = needs->at; n < needs->at + needs->n; n++)
        for (int64_t at = n->first; at < n->first + n->count;) {
            const vault_piece *p = vault_holder(has, n, step, at, -1);
            if (!p) return false;
            at = p->first + p->count;
        }
    return true;
}

// Live state of which a part was cut from a range that another rank held otherwise: some rank holds what is wrong.
static const vault_piece *torn_at(const vault_list *has, int64_t step) {
    for (const vault_piece *p = has->at, *end = p + has->n; p < end; p++)
        for (const vault_piece *q = p + 1; p->step == step && p->live && q < end; q++) {
            if (q->step != step || q->group != p->group || q->tensor != p->tensor) break;
            if (q->live && q->of == p->of && q->sum != p->sum) return p;
        }
    return NULL;
}

vault_chosen vault_choose(const vault_list *has, const vault_list *needs) {
    vault_chosen best = {.step = -1};
    for (int i = 0; i < has->n; i++) {
        int64_t step = has->at[i].step;
        if ((i > 0 && step == has->at[i - 1].step) || !is_whole(has, needs, step)) continue;
        const vault_piece *torn = torn_at(has, step);
        if (!torn) {
            best.step = step;
            break;
        }
        best.torn = torn;
    }
    return best;
}
