// trainer/config/propose.c: the nearest settings that pass all rules, where some do not. A rule that does not hold
// names its keys; each of them is changed to numbers that have to do with the others (multiples, divisors, powers of
// two, the default), and the rules are asked again. What is refused again names the keys that are changed next. Those
// changes come first that change least, so the first that pass are the nearest:
//
//     global 13, micro 2, lanes 4    refused: global, micro
//       global 12                    refused: global, micro, lanes
//         micro 3                    passes: two keys, the third
//       global 16                    passes: the nearest
//       global 8                     passes: the nearest below
//       micro 1                      refused: global, micro, lanes
//
// A change costs how many times larger or smaller it is, in powers of two, and each key that is changed costs as much
// as a factor of 4: the fewer the better. Where several rules are broken that have nothing to do with each other, there
// are too many such changes. Then a second search takes first what more rules hold for; it is short, and what it finds
// works too, but something nearer may have been passed by.
//
// What was asked for, on the command line or in the last file, is wanted rather than what it was nearest to. Where
// every proposal gives it up, one more search leaves those keys as they are: 16 ranks at default settings may be 2, or
// have 16 lanes with a larger batch.
#include "trainer/config/judge.h"

#include <stdlib.h>
#include <string.h>

enum {
    CHANGES = 8,      // keys of one proposal, at most
    NEAR = 4,         // ... of one that is found in order of cost
    CANDIDATES = 16,  // values of a key that are tried, the nearest ones
    TRIALS = 8192,    // that wait
    ASKED = 300,      // how often the rules are asked in a search
    LONGER = 2000,    // ... in that which keeps what was asked for
    MORE = 100,       // ... when there is a proposal already
    SHOWN = 3,        // proposals
    KEEPING = 2,      // ... of the search that keeps what was asked for, at most
    VALUES = 256,     // of a key that are thought of
    MOST = 1 << 30,   // larger numbers have nothing to do with each other
};

typedef struct change {
    int row;
    double to;
} change;

typedef struct trial {
    change at[CHANGES];
    int n, number;      // number: of equals the one that was thought of first
    double cost, rank;  // rank: those with the lowest are tried first
} trial;

typedef struct search {
    config *base, *tried;  // as set, what was chosen being open again; that with a trial's changes
    judge j;               // what it refused
    trial *heap;
    int waiting, thought;
    trial found[SHOWN + KEEPING];
    int count, first;   // first: of this search
    bool hasty;         // what holds for more rules goes first
    bool keeps;         // what was asked for is not changed
    const config *set;  // as set
    int most;           // ranks: the machine has no more; 0: that is not known
    int asked;          // the keys that were set in this file of it, or after it; 0: none, or all
} search;

// --- values ----------------------------------------------------------------------------------------------------------

static bool is_number(const setting *k) { return k->type == KEY_INT || k->type == KEY_REAL; }

static double value_at(const void *at, int row) {
    switch (config_key(row)->type) {
    case KEY_INT: return (double)*(const int64_t *)at;
    case KEY_REAL: return *(const double *)at;
    case KEY_BOOL: return *(const bool *)at;
    case KEY_WORD: return *(const int *)at;
    default: return 0;
    }
}

// As it was read.
static double value_of(config *c, int row) { return value_at(config_at(c, row), row); }

// A text can only be emptied.
static void set_value(config *c, int row, double to) {
    void *at = config_at(c, row);
    switch (config_key(row)->type) {
    case KEY_INT: *(int64_t *)at = *(int64_t *)config_in_force(c, row) = (int64_t)to; break;
    case KEY_REAL: *(double *)at = to; break;
    case KEY_BOOL: *(bool *)at = to != 0; break;
    case KEY_WORD: *(int *)at = (int)to; break;
    case KEY_TEXT:
    case KEY_NAME: *(char *)at = 0; break;
    }
}

// Texts that may be emptied. Another architecture, or another list of nodes, is nothing to propose.
static bool may_change(const config *c, int row) {
    bool empties = row == ROW(parallel, stages) || (row == ROW(data, val) && c->data.holdout) ||
                   (row == ROW(parallel, deal) && c->outer.islands > 1) || row == ROW(eval, best_of);
    return is_number(config_key(row)) || config_key(row)->type == KEY_BOOL ||
           (config_key(row)->type == KEY_WORD && row != ROW(model, type)) || empties;
}

// The default, -1: it is not a number, or not this one's business.
static double default_of(const setting *k) {
    char word[CONFIG_WORD];
    if (is_number(k)) return strtod(k->fallback, NULL);
    for (int i = 0; k->words && config_word(k->words, i, word); i++)
        if (strcmp(word, k->fallback) == 0) return i;
    return -1;
}

// log2, with straight lines between the powers.
static double powers(double ratio) {
    double n = 0;
    for (; ratio >= 2; ratio /= 2) n++;
    return n + ratio - 1;
}

static double cost_of(const setting *k, double from, double to) {
    double key = 2 + (k->class == CLASS_BITS ? 0.5 : 0) + (strcmp(k->section, "model") == 0);
    if (!is_number(k)) return key + (to == default_of(k) ? 1 : 1.5);
    if (to <= 0) return key + 1;  // left open, or none
    return key + (from > 0 ? powers(from > to ? from / to : to / from) : 1 + powers(to) / 2);
}

// --- candidates ------------------------------------------------------------------------------------------------------

typedef struct candidates {
    const setting *k;
    double from, to[VALUES];
    int n;
} candidates;

static void add(candidates *x, double to) {
    bool whole = x->k->type != KEY_INT || (double)(int64_t)to == to;
    if (!whole || to < x->k->min || to > x->k->max || to == x->from || x->n == VALUES) return;
    for (int i = 0; i < x->n; i++)
        if (x->to[i] == to) return;
    x->to[x->n++] = to;
}

// The whole numbers at both sides of it.
static void add_around(candidates *x, double to) {
    double below = (double)(int64_t)to;
    add(x, below);
    if (below < to) add(x, below + 1);
}

// Divisors of n nearest to x, below and above, as far as it costs nothing to look.
static void add_divisors(candidates *c, int64_t n, int64_t x) {
    enum { FAR = 4096 };
    int64_t below = x > n ? n : x - 1, above = x + 1;
    while (below >= 1 && x - below < FAR && n % below) below--;
    while (above <= n && above - x < FAR && n % above) above++;
    if (below >= 1 && n % below == 0) add(c, (double)below);
    if (above <= n && n % above == 0) add(c, (double)above);
}

// Values that have to do with the number w.
static void add_related(candidates *c, double w) {
    int64_t n = (int64_t)w, from = (int64_t)c->from;
    if (c->k->type == KEY_REAL) {
        add(c, w), add(c, 2 * w), add(c, w / 2);
        return;
    }
    if (w < 0 || w > MOST) return;
    add_around(c, w), add_around(c, 2 * w), add_around(c, w / 2);
    if (n < 2 || (double)n != w || from < 0 || c->from > MOST) return;
    add(c, (double)(from / n * n)), add(c, (double)((from / n + 1) * n));
    add_divisors(c, n, from);
}

static void add_numbers(candidates *x, const search *s, int row) {
    double below = 1;
    // Open ranks would be as many as the machine has devices: no proposal, unless the nodes' list says how many.
    bool open = row != ROW(device, ranks) || s->base->cluster.nodes[0];
    if (open) add(x, default_of(x->k));
    for (int i = 0; i < s->j.numbers; i++)
        if (x->k->type == KEY_REAL) add(x, s->j.number[i]);
        else add_related(x, s->j.number[i]);
    for (int i = 0; i < s->j.keys; i++) {
        int other = s->j.key[i];
        if (other != row && is_number(config_key(other)))
            add_related(x, value_at(config_in_force(s->tried, other), other));
    }
    if (x->k->type != KEY_INT) return;
    while (below * 2 <= x->from) below *= 2;
    add(x, below / 2), add(x, below), add(x, below * 2), add(x, below * 4);
    add(x, x->from - 1), add(x, x->from + 1), add(x, 1);
    for (int i = 0; i < x->n && !open; i++)
        if (x->to[i] == 0) x->to[i] = x->to[--x->n];
}

// --- what waits: a heap, the least cost on top -----------------------------------------------------------------------

static bool before(const trial *a, const trial *b) {
    return a->rank < b->rank || (a->rank == b->rank && a->number < b->number);
}

static void push(search *s, const trial *t) {
    if (s->waiting == TRIALS) return;
    int i = s->waiting++;
    for (; i > 0 && before(t, &s->heap[(i - 1) / 2]); i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = *t;
}

static trial pop(search *s) {
    trial top = s->heap[0], last = s->heap[--s->waiting];
    int i = 0;
    for (int k; (k = 2 * i + 1) < s->waiting; i = k) {
        if (k + 1 < s->waiting && before(&s->heap[k + 1], &s->heap[k])) k++;
        if (!before(&s->heap[k], &last)) break;
        s->heap[i] = s->heap[k];
    }
    s->heap[i] = last;
    return top;
}

// The number of the file that set the key, or of the command line; 0: none did, or it left the key open.
static int set_by(const config *c, int row) {
    return c->origin[row].chosen || c->origin[row].family ? 0 : c->origin[row].file;
}

// The latest of the files, or the command line, that set keys of the rule. Where it set all of them, one has to give
// way.
static int find_asked(const judge *j) {
    int latest = 0, set = 0;
    for (int i = 0; i < j->keys; i++) {
        int file = set_by(j->c, j->key[i]);
        if (file > latest) latest = file, set = 0;
        set += file == latest;
    }
    return set < j->keys ? latest : 0;
}

static bool was_asked(const search *s, int row) { return s->asked && set_by(s->set, row) >= s->asked; }

static bool changes(const trial *t, int row) {
    for (int i = 0; i < t->n; i++)
        if (t->at[i].row == row) return true;
    return false;
}

static void push_cheapest(search *s, const trial *so_far, int row, candidates *x) {
    for (int tried = 0; tried < CANDIDATES && x->n; tried++) {
        int best = 0;
        for (int i = 1; i < x->n; i++)
            if (cost_of(x->k, x->from, x->to[i]) < cost_of(x->k, x->from, x->to[best])) best = i;
        trial t = *so_far;
        t.at[t.n++] = (change){row, x->to[best]};
        t.cost += cost_of(x->k, x->from, x->to[best]);
        t.rank = t.cost - (s->hasty ? 4.0 * s->j.passed : 0);
        t.number = s->thought++;
        push(s, &t);
        x->to[best] = x->to[--x->n];
    }
}

// Other values of the key, added to the changes so far.
static void think(search *s, const trial *so_far, int row) {
    const setting *k = config_key(row);
    candidates x = {.k = k, .from = value_of(s->base, row)};
    if (so_far->n == (s->hasty ? CHANGES : NEAR) || changes(so_far, row) || !may_change(s->base, row)) return;
    if (s->keeps && was_asked(s, row)) return;
    char word[CONFIG_WORD];
    if (is_number(k)) add_numbers(&x, s, row);
    else if (k->type == KEY_BOOL) x.to[x.n++] = !x.from;
    else if (k->type == KEY_TEXT) x.n = *(char *)config_at(s->base, row) != 0;
    else
        for (int i = 0; config_word(k->words, i, word); i++)
            if (i != (int)x.from) x.to[x.n++] = i;
    push_cheapest(s, so_far, row, &x);
}

// --- asking ----------------------------------------------------------------------------------------------------------

static int64_t shared_by(const config *c) {
    return c->outer.islands * c->parallel.tensor * c->parallel.context * c->parallel.pipeline *
           (c->parallel.data ? c->parallel.data : 1);
}

// Are the ranks those that the machine was found to have?
static bool is_counted(const judge *j) { return j->world && !j->c->device.ranks && !j->c->cluster.nodes[0]; }

// Where nothing says how many ranks there are, it is one as far as we know: a proposal with other widths has to name
// its ranks. A machine has no more GPUs than were counted.
static bool passes(search *s, const trial *t) {
    *s->tried = *s->base;
    for (int i = 0; i < t->n; i++) set_value(s->tried, t->at[i].row, t->at[i].to);
    if (judge_all(&s->j, s->tried) != ERR_OK || (s->most && s->tried->device.ranks > s->most)) return false;
    bool known = s->tried->cluster.nodes[0] || s->tried->device.ranks;
    return known || shared_by(s->tried) == shared_by(s->base) || judge_ranks(&s->j, 1) == ERR_OK;
}

// Does it do what this one does, and more?
static bool includes(const trial *t, const trial *less) {
    int same = 0;
    for (int i = 0; i < less->n; i++)
        for (int k = 0; k < t->n; k++) same += t->at[k].row == less->at[i].row && t->at[k].to == less->at[i].to;
    return same == less->n;
}

static bool same_keys(const trial *a, const trial *b) {
    int same = 0;
    for (int i = 0; i < a->n; i++) same += changes(b, a->at[i].row);
    return a->n == b->n && same == a->n;
}

// Is each of its keys enough by itself?
static bool says_too_much(const search *s, const trial *t) {
    int enough = 0;
    for (int i = 0; i < t->n; i++) {
        bool alone = false;
        for (int k = 0; k < s->count; k++) alone |= s->found[k].n == 1 && s->found[k].at[0].row == t->at[i].row;
        enough += alone;
    }
    return t->n > 1 && enough == t->n;
}

// Of several with the same keys the nearest one counts; of one key the nearest below and the nearest above.
static bool is_new(const search *s, const trial *t) {
    if (says_too_much(s, t)) return false;
    for (int i = 0; i < s->count; i++) {
        const trial *f = &s->found[i];
        if (includes(t, f)) return false;
        double from = value_of(s->base, t->at[0].row);
        bool apart = t->n == 1 && is_number(config_key(t->at[0].row)) && (t->at[0].to > from) != (f->at[0].to > from);
        if (same_keys(t, f) && !apart) return false;
    }
    return true;
}

static void think_of_all(search *s, const trial *so_far) {
    for (int i = 0; i < s->j.keys; i++) think(s, so_far, s->j.key[i]);
}

static void look(search *s, const judge *refused, int most) {
    trial t = {0};
    *s->tried = *refused->c;
    s->j = *refused;
    s->j.c = s->tried, s->j.silent = true, s->waiting = 0, s->first = s->count;
    think_of_all(s, &t);
    for (int left = s->keeps ? LONGER : ASKED; left > 0 && s->waiting && s->count - s->first < most; left--) {
        t = pop(s);
        bool simple = s->count == s->first || t.n <= s->found[s->first].n + 1;  // as the nearest one is
        if (!simple || !is_new(s, &t)) continue;
        if (!passes(s, &t)) think_of_all(s, &t);
        else if (s->found[s->count] = t, s->count++ == s->first && left > MORE) left = MORE;
    }
}

// Does a proposal leave what was asked for as it is?
static bool is_kept(const search *s) {
    for (int i = 0; i < s->count; i++) {
        bool kept = true;
        for (int k = 0; k < s->found[i].n; k++) kept &= !was_asked(s, s->found[i].at[k].row);
        if (kept) return true;
    }
    return false;
}

// What keeps what was asked for takes the places of the last ones.
static void look_for_kept(search *s, const judge *refused) {
    int nearest = s->count;
    s->keeps = true, s->hasty = false;
    look(s, refused, KEEPING);
    int kept = s->count - nearest, stay = nearest + kept > SHOWN ? SHOWN - kept : nearest;
    memmove(&s->found[stay], &s->found[nearest], (size_t)kept * sizeof *s->found);
    s->count = stay + kept;
}

static void look_everywhere(search *s, const judge *refused) {
    s->set = refused->c, s->asked = find_asked(refused);
    s->most = is_counted(refused) && refused->c->resolved.kind == DEVICE_CUDA ? refused->world : 0;
    look(s, refused, SHOWN);
    s->hasty = true;
    if (!s->count) look(s, refused, SHOWN);
    if (s->asked && !is_kept(s)) look_for_kept(s, refused);
}

// --- as text ---------------------------------------------------------------------------------------------------------

static size_t put_trial(search *s, const trial *t, char *dst, size_t room) {
    char value[CONFIG_VALUE];
    size_t n = 0;
    for (int i = 0; i < t->n && n < room; i++) {
        int row = t->at[i].row;
        set_value(s->base, row, t->at[i].to);
        config_value(s->base, row, value);
        const char *quote = config_key(row)->type == KEY_TEXT ? "\"" : "";
        n += (size_t)snprintf(dst + n, room - n, "%s[%s] %s = %s%s%s", i ? " and " : "", config_key(row)->section,
                              config_key(row)->key, quote, value, quote);
    }
    return n;
}

static void put_all(search *s, char dst[PROPOSALS]) {
    size_t n = (size_t)snprintf(dst, PROPOSALS, " Nearest that work%s: ", s->count == 1 ? "s" : "");
    for (int i = 0; i < s->count; i++) {
        char text[PROPOSALS];
        size_t m = put_trial(s, &s->found[i], text, sizeof text);
        if (n + m + 8 > PROPOSALS) break;  // all of one or nothing
        n += (size_t)snprintf(dst + n, PROPOSALS - n, "%s%s", i ? ", or " : "", text);
    }
    snprintf(dst + n, PROPOSALS - n, ".");
}

// Is there a key to change at all?
static bool has_choice(const judge *j) {
    for (int i = 0; i < j->keys; i++)
        if (may_change(j->c, j->key[i])) return true;
    return false;
}

void propose(const judge *j, char dst[PROPOSALS]) {
    search s = {
        .base = malloc(sizeof *s.base), .tried = malloc(sizeof *s.tried), .heap = malloc(TRIALS * sizeof *s.heap)};
    dst[0] = 0;
    if (s.base && s.tried && s.heap && has_choice(j)) {
        *s.base = *j->c;
        judge_reopen(s.base, false);
        if (is_counted(j)) s.base->device.ranks = j->world;  // so that it is near to them
        look_everywhere(&s, j);
        if (s.count) put_all(&s, dst);
        else snprintf(dst, PROPOSALS, " No settings near these pass all rules: leave more of them at their defaults.");
    }
    free(s.base), free(s.tried), free(s.heap);
}
