// data/text/grammar.c: see data/text/grammar.h. The table is taken apart once, into rules, alternatives and items. Then
// one walk over all that can be derived finds the averages and proves that texts have one derivation, and another one
// writes.
#include "data/text/grammar.h"

#include "base/fmath.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LETTERS = 26, FIELDS = 5, DEEPEST = 12, NOTHING = -1 };

typedef enum item_kind { LITERAL, EXPAND, DRAW, RECALL } item_kind;

// A piece of an alternative: text as it stands, or what a pair of brackets says.
typedef struct item {
    item_kind kind;
    const char *text;  // LITERAL
    int n;
    int rule;         // EXPAND, DRAW
    int letter;       // DRAW: NOTHING: it is not remembered; RECALL
    const char *dot;  // RECALL: name of the field, NULL: the word
    int dot_n;
    uint32_t unlike;  // DRAW: a bit for each letter
    bool article, capital;
} item;

typedef struct branch {
    const char *text;
    int n;
    int first, items;  // of words: the word and its fields, each a LITERAL
} branch;

typedef struct rule {
    const grammar_rule *from;
    bool words;
    int first, branches;
} rule;

struct grammar {
    rule *rule;
    int rules;
    struct {
        branch *at;
        int64_t n, room;
    } branch;
    struct {
        item *at;
        int64_t n, room;
    } item;
    grammar_amount average;
};

// ASCII, whatever the locale.
static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }
static char upper(char c) { return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c; }
static bool is_capital(char c) { return c != lower(c); }

static err_t wrong(const rule *r, const char *what, const char *at, int n) {
    return err_set(ERR_INTERNAL, "grammar: rule %s: %s: \"%.*s\"", r->from->name, what, n > 60 ? 60 : n, at);
}

// --- the table, taken apart ------------------------------------------------------------------------------------------

static int find_rule(const grammar *g, const char *name, int n) {
    for (int i = 0; i < g->rules; i++)
        if (strncmp(g->rule[i].from->name, name, (size_t)n) == 0 && g->rule[i].from->name[n] == 0) return i;
    return NOTHING;
}

static bool is_letter(const char *at, const char *end) {
    return at < end && is_capital(*at) && (at + 1 == end || upper(at[1]) == lower(at[1]));
}

// " not Y Z", up to the end.
static err_t read_unlike(const rule *r, const char *at, const char *end, item *x) {
    if (at == end) return ERR_OK;
    if (end - at < 6 || strncmp(at, " not ", 5) != 0)
        return wrong(r, "expected \" not \" and letters", at, (int)(end - at));
    for (at += 4; at < end; at += 2) {
        if (*at != ' ' || !is_letter(at + 1, end))
            return wrong(r, "expected letters after \"not\", one space before each", at, (int)(end - at));
        x->unlike |= 1u << (at[1] - 'A');
    }
    return ERR_OK;
}

// What is between brackets.
static err_t read_brackets(const grammar *g, const rule *r, const char *at, const char *end, item *x) {
    const char *from = at;
    *x = (item){.letter = NOTHING};
    x->capital = at < end && *at == '^';
    at += x->capital;
    x->article = end - at > 2 && at[0] == 'a' && at[1] == ' ';
    at += x->article ? 2 : 0;
    if (is_letter(at, end)) {
        x->kind = RECALL, x->letter = *at++ - 'A';
        if (at < end && *at == '.') x->dot = at + 1, x->dot_n = (int)(end - at) - 1, at = end;
        return at == end ? ERR_OK : wrong(r, "expected a field or nothing after the letter", from, (int)(end - from));
    }
    const char *name = at;
    while (at < end && *at != upper(*at)) at++;
    x->rule = find_rule(g, name, (int)(at - name));
    if (x->rule == NOTHING) return wrong(r, "no such rule", from, (int)(end - from));
    x->kind = g->rule[x->rule].words ? DRAW : EXPAND;
    if (at < end && *at == '=') {
        if (!is_letter(++at, end)) return wrong(r, "expected a capital letter after =", from, (int)(end - from));
        x->letter = *at++ - 'A';
    }
    TRY(read_unlike(r, at, end, x));
    if (x->kind == EXPAND && (x->letter != NOTHING || x->unlike || x->article))
        return wrong(r, "only words can be remembered or have an article", from, (int)(end - from));
    return ERR_OK;
}

static err_t add_item(grammar *g, item x) {
    ROOM_FOR(&g->item, g->item.n + 1);
    g->item.at[g->item.n++] = x;
    return ERR_OK;
}

static err_t add_sentence(grammar *g, const rule *r, const char *at, const char *end) {
    while (at < end) {
        item x = {.kind = LITERAL, .text = at, .letter = NOTHING};
        const char *close = *at == '[' ? memchr(at, ']', (size_t)(end - at)) : NULL;
        if (*at == '[' && !close) return wrong(r, "a bracket that is not closed", at, (int)(end - at));
        if (close) TRY(read_brackets(g, r, at + 1, close, &x));
        else
            while (at + x.n < end && at[x.n] != '[') x.n++;
        TRY(add_item(g, x));
        at = close ? close + 1 : at + x.n;
    }
    return ERR_OK;
}

static int count_fields(const grammar_rule *r) {
    int n = r->fields[0] != 0;
    for (const char *at = r->fields; *at; at++) n += *at == ' ';
    return n;
}

// A word and its fields.
static err_t add_word(grammar *g, const rule *r, const char *at, const char *end) {
    const char *from = at;
    int n = 0;
    for (;; at++, n++) {
        const char *stop = memchr(at, '/', (size_t)(end - at));
        if (!stop) stop = end;
        if (stop == at) return wrong(r, "an empty word or field", from, (int)(end - from));
        TRY(add_item(g, (item){.kind = LITERAL, .text = at, .n = (int)(stop - at), .letter = NOTHING}));
        if ((at = stop) == end) break;
    }
    return n == count_fields(r->from) && n < FIELDS
               ? ERR_OK
               : wrong(r, "a word with another number of fields than the rule", from, (int)(end - from));
}

static err_t add_rule(grammar *g, rule *r) {
    const char *at = r->from->text, *all = at + strlen(at);
    r->first = (int)g->branch.n;
    for (;; at++) {
        const char *end = memchr(at, '|', (size_t)(all - at));
        if (!end) end = all;
        int first = (int)g->item.n;
        TRY(r->words ? add_word(g, r, at, end) : add_sentence(g, r, at, end));
        ROOM_FOR(&g->branch, g->branch.n + 1);
        g->branch.at[g->branch.n++] = (branch){at, (int)(end - at), first, (int)g->item.n - first};
        r->branches++;
        if ((at = end) == all) return ERR_OK;
    }
}

static err_t take_apart(grammar *g, const grammar_rule *rules, int count) {
    g->rule = calloc((size_t)count, sizeof *g->rule);
    if (!g->rule) return err_set(ERR_INTERNAL, "no memory for a grammar of %d rules", count);
    for (g->rules = 0; g->rules < count; g->rules++)
        g->rule[g->rules] = (rule){.from = &rules[g->rules], .words = !strchr(rules[g->rules].text, '[')};
    for (int i = 0; i < count; i++) TRY(add_rule(g, &g->rule[i]));
    return ERR_OK;
}

static const branch *branch_of(const grammar *g, int rule, int i) { return &g->branch.at[g->rule[rule].first + i]; }
static const item *item_of(const grammar *g, const branch *b, int i) { return &g->item.at[b->first + i]; }

// 0: the word itself; NOTHING: the rule has no such field.
static int find_field(const grammar *g, int rule, const item *x) {
    const char *at = g->rule[rule].from->fields;
    if (!x->dot) return 0;
    for (int i = 1; *at; i++) {
        int n = (int)strcspn(at, " ");
        if (n == x->dot_n && strncmp(at, x->dot, (size_t)n) == 0) return i;
        at += n + (at[n] == ' ');
    }
    return NOTHING;
}

// --- what is known along a derivation --------------------------------------------------------------------------------

// What each letter stands for, whatever was chosen: words of a rule, or NOTHING; and which others certainly stand for
// another word.
typedef struct known {
    int rule[LETTERS];
    uint32_t unlike[LETTERS];
} known;

static void forget(known *k, int letter) {
    k->rule[letter] = NOTHING;
    k->unlike[letter] = 0;
    for (int i = 0; i < LETTERS; i++) k->unlike[i] &= ~(1u << letter);
}

static void remember(known *k, const item *x) {
    if (x->letter == NOTHING) return;
    uint32_t others = x->unlike & ~(1u << x->letter);
    forget(k, x->letter);
    k->rule[x->letter] = x->rule;
    k->unlike[x->letter] = others;
    for (int i = 0; i < LETTERS; i++)
        if (others >> i & 1) k->unlike[i] |= 1u << x->letter;
}

// Keeps what is known in both.
static void meet(known *k, const known *other) {
    for (int i = 0; i < LETTERS; i++)
        if (k->rule[i] != NOTHING && k->rule[i] != other->rule[i]) forget(k, i);
    for (int i = 0; i < LETTERS; i++) k->unlike[i] &= other->unlike[i];
}

// How many words a draw leaves out. The letters that it names stand for words of the same rule, each for another one.
static err_t count_unlike(const grammar *g, const rule *r, const known *k, const item *x, int *n) {
    *n = 0;
    for (int i = 0; i < LETTERS; i++) {
        if (!(x->unlike >> i & 1)) continue;
        uint32_t others = x->unlike & ~(1u << i);
        if (k->rule[i] != x->rule)
            return wrong(r, "what it must not be is no word of that rule here", (const char[]){(char)('A' + i)}, 1);
        if (others & ~k->unlike[i])
            return wrong(r, "two that it must not be may be the same", (const char[]){(char)('A' + i)}, 1);
        ++*n;
    }
    if (*n < g->rule[x->rule].branches) return ERR_OK;
    return wrong(r, "no word is left to choose", g->rule[x->rule].from->name, (int)strlen(g->rule[x->rule].from->name));
}

// --- no text has two derivations -------------------------------------------------------------------------------------

typedef struct byte_set {
    bool has[256];
} byte_set;

static void add_byte(byte_set *s, const item *x, char first) {
    if (x->article) first = 'a';
    s->has[(uint8_t)(x->capital ? upper(first) : first)] = true;
}

// The bytes that what an item makes may begin with. A letter that is not known may stand for anything.
static void first_of(const grammar *g, const known *k, const item *x, int depth, byte_set *s) {
    int from = x->kind == RECALL ? k->rule[x->letter] : x->rule, field = 0;
    if (x->kind == LITERAL) {
        add_byte(s, x, x->text[0]);
        return;
    }
    if (from != NOTHING && x->kind == RECALL) field = find_field(g, from, x);
    if (from == NOTHING || field == NOTHING || depth > DEEPEST) {
        memset(s->has, true, sizeof s->has);
        return;
    }
    for (int i = 0; i < g->rule[from].branches; i++) {
        byte_set inside = {0};
        first_of(g, k, item_of(g, branch_of(g, from, i), field), depth + 1, &inside);
        for (int c = 0; c < 256; c++)
            if (inside.has[c]) add_byte(s, x, (char)c);
    }
}

static bool same_item(const item *x, const item *y) {
    return x->kind != LITERAL && x->kind == y->kind && x->rule == y->rule && x->letter == y->letter &&
           x->unlike == y->unlike && x->article == y->article && x->capital == y->capital && x->dot_n == y->dot_n &&
           (!x->dot || strncmp(x->dot, y->dot, (size_t)x->dot_n) == 0);
}

// What an item makes is one of a list of texts: itself, or words of a rule, or a field of them. n = how many, 0: it is
// no such list.
typedef struct text_list {
    const grammar *g;
    const item *only;
    int rule, field, n;
} text_list;

static text_list list_of(const grammar *g, const known *k, const item *x) {
    text_list l = {.g = g, .only = x, .rule = x->kind == RECALL ? k->rule[x->letter] : x->rule, .n = 1};
    if (x->kind == LITERAL) return l;
    if (x->kind == RECALL && l.rule != NOTHING) l.field = find_field(g, l.rule, x);
    l.only = NULL;
    l.n = x->kind == EXPAND || l.rule == NOTHING || l.field == NOTHING ? 0 : g->rule[l.rule].branches;
    return l;
}

static const item *list_at(const text_list *l, int i) {
    return l->only ? l->only : item_of(l->g, branch_of(l->g, l->rule, i), l->field);
}

// Neither is the beginning of the other. A capital letter and a small one are taken for the same.
static bool words_differ(const item *x, const item *y) {
    return strncasecmp(x->text, y->text, (size_t)(x->n < y->n ? x->n : y->n)) != 0;
}

static bool lists_differ(const text_list *a, const text_list *b) {
    for (int i = 0; i < a->n; i++)
        for (int j = 0; j < b->n; j++)
            if (!words_differ(list_at(a, i), list_at(b, j))) return false;
    return a->n > 0 && b->n > 0;
}

// What they make certainly differs before either ends: by the first byte, or as lists of texts do, or as words that
// were drawn to be different.
static bool items_differ(const grammar *g, const known *k, const item *x, const item *y) {
    byte_set a = {0}, b = {0};
    text_list s = list_of(g, k, x), t = list_of(g, k, y);
    bool alike = x->article == y->article && x->capital == y->capital, common = false;
    if (alike && x->kind == RECALL && y->kind == RECALL && !x->dot && !y->dot &&
        (k->unlike[x->letter] >> y->letter & 1))
        return true;
    if (!x->article && !y->article && lists_differ(&s, &t)) return true;
    first_of(g, k, x, 0, &a);
    first_of(g, k, y, 0, &b);
    for (int c = 0; c < 256; c++) common = common || (a.has[c] && b.has[c]);
    return !common;
}

// The item at a place, of a literal only what is left of it.
static item rest_of(const grammar *g, const branch *b, int i, int at) {
    item x = *item_of(g, b, i);
    if (x.kind == LITERAL) x.text += at, x.n -= at;
    return x;
}

// Two alternatives differ before either ends, whatever is chosen on the way: both are followed as long as they make the
// same text for certain.
static bool branches_differ(const grammar *g, known k, const branch *a, const branch *b) {
    for (int i = 0, j = 0, in_a = 0, in_b = 0; i < a->items && j < b->items;) {
        item x = rest_of(g, a, i, in_a), y = rest_of(g, b, j, in_b);
        if (x.kind == LITERAL && y.kind == LITERAL) {
            int n = x.n < y.n ? x.n : y.n;
            if (memcmp(x.text, y.text, (size_t)n) != 0) return true;
            in_a += n, in_b += n;
            if (n == x.n) i++, in_a = 0;
            if (n == y.n) j++, in_b = 0;
            continue;
        }
        if (!same_item(&x, &y)) return items_differ(g, &k, &x, &y);
        if (x.kind == DRAW) remember(&k, &x);
        for (int l = 0; x.kind == EXPAND && l < LETTERS; l++) forget(&k, l);
        i++, j++;
    }
    return false;
}

static err_t check_apart(const grammar *g, const rule *r, const known *k) {
    for (int i = 0; i < r->branches; i++)
        for (int j = 0; j < i; j++) {
            const branch *a = &g->branch.at[r->first + i], *b = &g->branch.at[r->first + j];
            const item *x = item_of(g, a, 0);
            if (r->words ? words_differ(x, item_of(g, b, 0)) : branches_differ(g, *k, a, b)) continue;
            char what[80];
            snprintf(what, sizeof what, "a text does not tell alternatives %d and %d apart", j + 1, i + 1);
            return wrong(r, what, a->text, a->n);
        }
    return ERR_OK;
}

// --- averages --------------------------------------------------------------------------------------------------------

static bool takes_an(const item *word) { return strchr("aeiou", lower(word->text[0])) != NULL; }

static double mean_bytes(const grammar *g, int rule, int field, bool article) {
    int64_t sum = 0;
    for (int i = 0; i < g->rule[rule].branches; i++) {
        const item *word = item_of(g, branch_of(g, rule, i), field);
        sum += word->n + (article ? 2 + takes_an(word) : 0);
    }
    return (double)sum / g->rule[rule].branches;
}

static err_t measure_rule(const grammar *g, int rule, known *k, int depth, grammar_amount *sum);

static err_t measure_item(const grammar *g, const rule *r, const item *x, known *k, int depth, grammar_amount *sum) {
    int out = 0, field = 0;
    switch (x->kind) {
    case LITERAL: sum->bytes += x->n; return ERR_OK;
    case EXPAND: return measure_rule(g, x->rule, k, depth + 1, sum);
    case DRAW:
        TRY(count_unlike(g, r, k, x, &out));
        sum->nats += fm_log(g->rule[x->rule].branches - out);
        sum->bytes += mean_bytes(g, x->rule, 0, x->article);
        remember(k, x);
        return ERR_OK;
    case RECALL: break;
    }
    const char letter = (char)('A' + x->letter);
    if (k->rule[x->letter] == NOTHING) return wrong(r, "a letter that may stand for nothing", &letter, 1);
    field = find_field(g, k->rule[x->letter], x);
    if (field == NOTHING) return wrong(r, "these words have no such field", x->dot, x->dot_n);
    sum->bytes += mean_bytes(g, k->rule[x->letter], field, x->article);
    return ERR_OK;
}

// Of what the rule makes where these letters are known; *k = what is known after it.
static err_t measure_rule(const grammar *g, int rule_number, known *k, int depth, grammar_amount *sum) {
    const rule *r = &g->rule[rule_number];
    grammar_amount all = {0};
    known after = *k;
    if (depth > DEEPEST)
        return wrong(r, "it contains itself, or is too deep", r->from->text, (int)strlen(r->from->text));
    TRY(check_apart(g, r, k));
    for (int i = 0; i < r->branches; i++) {
        const branch *b = branch_of(g, rule_number, i);
        known mine = *k;
        for (int j = 0; j < b->items; j++) TRY(measure_item(g, r, item_of(g, b, j), &mine, depth, &all));
        if (i == 0) after = mine;
        else meet(&after, &mine);
    }
    sum->nats += fm_log(r->branches) + all.nats / r->branches;
    sum->bytes += all.bytes / r->branches;
    *k = after;
    return ERR_OK;
}

static err_t measure(grammar *g) {
    known k = {0};
    for (int l = 0; l < LETTERS; l++) k.rule[l] = NOTHING;
    for (int i = 0; i < g->rules; i++)
        if (g->rule[i].words) TRY(check_apart(g, &g->rule[i], &k));
    return measure_rule(g, 0, &k, 0, &g->average);
}

err_t grammar_open(grammar **out, const grammar_rule *rules, int count) {
    grammar *g = *out = calloc(1, sizeof *g);
    if (!g) return err_set(ERR_INTERNAL, "no memory for a grammar");
    err_t rc = take_apart(g, rules, count);
    if (rc == ERR_OK) rc = measure(g);
    if (rc != ERR_OK) grammar_close(g), *out = NULL;
    return rc;
}

void grammar_close(grammar *g) {
    if (!g) return;
    free(g->rule), free(g->branch.at), free(g->item.at);
    free(g);
}

grammar_amount grammar_average(const grammar *g) { return g->average; }

// --- a text ----------------------------------------------------------------------------------------------------------

typedef struct teller {
    const grammar *g;
    grammar_pick *pick;
    void *ctx;
    bytes *to;
    struct {
        int rule, word;
    } held[LETTERS];
} teller;

static err_t put(teller *t, const char *text, int n) {
    ROOM_FOR(t->to, t->to->n + n);
    memcpy(t->to->at + t->to->n, text, (size_t)n);
    t->to->n += n;
    return ERR_OK;
}

static err_t choose(teller *t, int n, int *choice) {
    *choice = 0;
    return n > 1 ? t->pick(t->ctx, n, choice) : ERR_OK;
}

static bool is_out(const teller *t, const item *x, int word) {
    for (int l = 0; l < LETTERS; l++)
        if ((x->unlike >> l & 1) && t->held[l].word == word) return true;
    return false;
}

static err_t draw(teller *t, const item *x, int *word) {
    const rule *r = &t->g->rule[x->rule];
    int left = r->branches;
    for (int l = 0; l < LETTERS; l++) left -= x->unlike >> l & 1;
    TRY(choose(t, left, word));
    for (int i = 0; i <= *word; i++) *word += is_out(t, x, i);
    if (x->letter != NOTHING) t->held[x->letter].rule = x->rule, t->held[x->letter].word = *word;
    return ERR_OK;
}

static err_t tell_rule(teller *t, int rule);

static err_t tell_item(teller *t, const item *x) {
    int from = x->rule, word, field = 0;
    int64_t at = t->to->n;
    if (x->kind == LITERAL) return put(t, x->text, x->n);
    if (x->kind == EXPAND) TRY(tell_rule(t, x->rule));
    if (x->kind == DRAW) TRY(draw(t, x, &word));
    if (x->kind == RECALL)
        from = t->held[x->letter].rule, word = t->held[x->letter].word, field = find_field(t->g, from, x);
    if (x->kind != EXPAND) {
        const item *say = item_of(t->g, branch_of(t->g, from, word), field);
        if (x->article) TRY(put(t, takes_an(say) ? "an " : "a ", takes_an(say) ? 3 : 2));
        TRY(put(t, say->text, say->n));
    }
    if (x->capital) t->to->at[at] = (uint8_t)upper((char)t->to->at[at]);
    return ERR_OK;
}

static err_t tell_rule(teller *t, int rule) {
    int choice;
    TRY(choose(t, t->g->rule[rule].branches, &choice));
    const branch *b = branch_of(t->g, rule, choice);
    for (int i = 0; i < b->items; i++) TRY(tell_item(t, item_of(t->g, b, i)));
    return ERR_OK;
}

err_t grammar_tell(const grammar *g, grammar_pick *pick, void *ctx, bytes *to) {
    teller t = {.g = g, .pick = pick, .ctx = ctx, .to = to};
    return tell_rule(&t, 0);
}
