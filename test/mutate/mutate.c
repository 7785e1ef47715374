// test/mutate/mutate.c: small changes of a C file, each of which a test should notice. The file is cut into tokens
// and no more: what is an operator, a call or a statement is seen by its neighbours, which suffices for code that
// is laid out as this project's is (an operator of two operands stands between spaces). What does not compile in
// the end was no mutant; test/mutate/run.sh draws another.
//
//   mutate draw SEED FILE...     every change of the files, "FILE NUMBER" on a line, in an order that the seed decides
//   mutate make FILE NUMBER OUT  writes the file with this change, and prints "FILE:LINE:COLUMN: kind: before -> after"
//
// Only bodies of functions are changed. Left alone are what only makes text or checks (err_set, assert, printf),
// preprocessor lines, lengths of arrays, and statements that only release something: what sees leaks is
// AddressSanitizer.
#include "base/philox.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind { END, NAME, NUMBER, TEXT, PUNCT } kind;

typedef struct token {
    kind kind;
    int at, len, line;
    int mate;          // of a bracket: the other one
    int in;            // the bracket around it, or -1
    bool body, quiet;  // inside a function; inside what is left alone
} token;

typedef struct change {
    int at, len, line;
    const char *kind;
    char *after;
} change;

typedef struct source {
    const char *path;
    char *text;
    int size, tokens, changes;
    token *t;  // t[0] and t[tokens + 1] are of kind END
    change *c;
} source;

static void *must(void *p) {
    if (!p) fputs("mutate: no memory\n", stderr), exit(70);
    return p;
}

// --- tokens ------------------------------------------------------------------------------------------------------

static const char *const puncts[] = {"<<=", ">>=", "...", "->", "++", "--", "<<", ">>", "<=", ">=", "==",
                                     "!=",  "&&",  "||",  "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^="};

static int punct_length(const char *s) {
    for (size_t i = 0; i < sizeof puncts / sizeof *puncts; i++)
        if (strncmp(s, puncts[i], strlen(puncts[i])) == 0) return (int)strlen(puncts[i]);
    return 1;
}

// A directive with its continued lines, a comment, or space: how many characters, 0 for a token.
static int skipped(const char *s, bool line_start) {
    int n = 0;
    if (*s == '#' && line_start) {
        while (s[n] && (s[n] != '\n' || s[n - 1] == '\\')) n++;
    } else if (s[0] == '/' && s[1] == '/') {
        while (s[n] && s[n] != '\n') n++;
    } else if (s[0] == '/' && s[1] == '*') {
        const char *end = strstr(s + 2, "*/");
        n = end ? (int)(end - s) + 2 : (int)strlen(s);
    } else {
        n = isspace((unsigned char)*s) ? 1 : 0;
    }
    return n;
}

static int token_length(const char *s, kind *k) {
    int n = 1;
    if (isalpha((unsigned char)*s) || *s == '_') {
        *k = NAME;
        while (isalnum((unsigned char)s[n]) || s[n] == '_') n++;
    } else if (isdigit((unsigned char)*s)) {
        bool hex = s[1] == 'x' || s[1] == 'X';
        *k = NUMBER;
        while (isalnum((unsigned char)s[n]) || s[n] == '.' ||
               ((s[n] == '+' || s[n] == '-') && strchr(hex ? "pP" : "eE", s[n - 1])))
            n++;
    } else if (*s == '"' || *s == '\'') {
        *k = TEXT;
        while (s[n] && s[n] != *s) n += s[n] == '\\' && s[n + 1] ? 2 : 1;
        n += s[n] != 0;
    } else {
        *k = PUNCT;
        n = punct_length(s);
    }
    return n;
}

static void tokenise(source *s) {
    int line = 1;
    bool line_start = true;
    s->t = must(calloc((size_t)s->size + 2, sizeof *s->t));
    for (int at = 0; at < s->size;) {
        kind k = END;
        int n = skipped(s->text + at, line_start);
        if (n == 0) {
            n = token_length(s->text + at, &k);
            s->t[++s->tokens] = (token){.kind = k, .at = at, .len = n, .line = line};
            line_start = false;
        }
        for (int i = 0; i < n; i++) {
            if (s->text[at + i] != '\n') continue;
            line++;
            line_start = true;
        }
        at += n;
    }
}

static bool is(const source *s, int i, const char *text) {
    return (size_t)s->t[i].len == strlen(text) && strncmp(s->text + s->t[i].at, text, strlen(text)) == 0;
}

static bool one_of(const source *s, int i, const char *const *words) {
    for (; *words; words++)
        if (is(s, i, *words)) return true;
    return false;
}

// --- places ------------------------------------------------------------------------------------------------------

static const char *const makes_text[] = {
    "err_set",       "err_prefix", "assert",  "static_assert", "_Static_assert",
    "__attribute__", "printf",     "fprintf", "snprintf",      "vsnprintf",
    "alignas",       "_Alignas",   NULL,
};
static const char *const releases[] = {
    "free",
    "close",
    "fclose",
    "closedir",
    "munmap",
    "sodium_memzero",
    "freeaddrinfo",
    "json_decref",
    "va_end",
    "assert",
    "static_assert",
    "_Static_assert",
    "__builtin_prefetch",
    "err_prefix",
    "fflush",
    "pthread_mutex_destroy",
    "pthread_cond_destroy",
    "pthread_attr_destroy",
    NULL,
};
static const char *const symmetric[] = {
    // in their first two arguments; of a comparison only the sign changes
    "calloc", "vf_add", "vf_mul", "vf_fma", "memcmp", "strcmp", "strncmp", NULL,
};
static const char *const borders[] = {"{", "}", ";", ":", NULL};
static const char *const control[] = {"if", "for", "while", "switch", NULL};
static const char *const keywords[] = {
    "if",    "for",      "while", "switch", "return", "sizeof",  "else",    "do",       "goto",     "case", "default",
    "break", "continue", "const", "static", "struct", "enum",    "union",   "unsigned", "signed",   "int",  "char",
    "void",  "long",     "short", "float",  "double", "_Atomic", "typedef", "extern",   "_Alignof", NULL,
};

static void match_brackets(source *s) {
    int open = -1;
    for (int i = 1; i <= s->tokens; i++) {
        token *t = &s->t[i];
        bool bracket = t->kind == PUNCT && t->len == 1;
        char c = bracket ? s->text[t->at] : 0;
        if (c && strchr(")]}", c) && open >= 0) {
            t->mate = open;
            s->t[open].mate = i;
            open = s->t[open].in;
        }
        t->in = open;
        t->body = open >= 0 && s->t[open].body;
        t->quiet = open >= 0 && s->t[open].quiet;
        if (!c || !strchr("([{", c)) continue;
        if (c == '{' && open < 0 && is(s, i - 1, ")")) t->body = true;
        if (c == '(' && one_of(s, i - 1, makes_text)) t->quiet = true;
        open = i;
    }
}

static int at_end(const token *t) { return t->at + t->len; }

// The token after this one, or after the whole bracket that it opens.
static int step_over(const source *s, int i) { return (s->t[i].mate > i ? s->t[i].mate : i) + 1; }

// Is this the first token of a statement, or of a block? (A label's colon and that of `?` differ by what is before
// them.)
static bool statement_begins(const source *s, int i) {
    int in = s->t[i].in, before = i - 1;
    if (in < 0 || !is(s, in, "{")) return false;
    if (is(s, before, ")")) return one_of(s, s->t[before].mate - 1, control);
    if (is(s, before, ":")) return is(s, i - 2, "default") || is(s, i - 3, "case") || one_of(s, i - 3, borders);
    return one_of(s, before, borders) || is(s, before, "else") || is(s, before, "do");
}

static bool is_name(const source *s, int i) { return s->t[i].kind == NAME && !one_of(s, i, keywords); }

// By how its first tokens look: "type name", "type *name", or a keyword.
static bool is_declaration(const source *s, int i) {
    if (s->t[i].kind != NAME) return false;
    bool pointer = is(s, i + 1, "*") && at_end(&s->t[i + 1]) == s->t[i + 2].at;
    return one_of(s, i, keywords) || s->t[i + 1].kind == NAME || pointer;
}

// The `;` of a statement that begins here, or 0.
static int statement_end(const source *s, int i) {
    while (i <= s->tokens && !is(s, i, ";")) {
        if (s->t[i].kind == PUNCT && s->t[i].len == 1 && strchr(")]}", s->text[s->t[i].at])) return 0;
        i = step_over(s, i);
    }
    return i <= s->tokens ? i : 0;
}

// --- changes -----------------------------------------------------------------------------------------------------

// Replaces what lies from token `from` to token `to`.
static void add(source *s, const char *what, int from, int to, char *after) {
    if ((s->changes & (s->changes - 1)) == 0)
        s->c = must(realloc(s->c, (size_t)(s->changes ? 2 * s->changes : 1) * sizeof *s->c));
    int at = s->t[from].at;
    s->c[s->changes++] = (change){at, at_end(&s->t[to]) - at, s->t[from].line, what, must(after)};
}

static char *text_of(const source *s, int from, int to) {
    return must(strndup(s->text + s->t[from].at, (size_t)(at_end(&s->t[to]) - s->t[from].at)));
}

static char *around(const source *s, const char *before, int from, int to, const char *after) {
    char *old = text_of(s, from, to), *text = NULL;
    if (asprintf(&text, "%s%s%s", before, old, after) < 0) text = NULL;
    free(old);
    return must(text);
}

static void change_operator(source *s, int i) {
    static const char *const swaps[][3] = {
        {"+", "-"},        {"-", "+"},       {"*", "/"},   {"/", "*"},   {"%", "/"},        {"<<", ">>"},
        {">>", "<<"},      {"&", "|"},       {"|", "&"},   {"^", "|"},   {"<", "<=", ">="}, {"<=", "<", ">"},
        {">", ">=", "<="}, {">=", ">", "<"}, {"==", "!="}, {"!=", "=="}, {"&&", "||"},      {"||", "&&"},
        {"+=", "-="},      {"-=", "+="},     {"*=", "/="}, {"/=", "*="}, {"<<=", ">>="},    {">>=", "<<="},
        {"&=", "|="},      {"|=", "&="},     {"++", "--"}, {"--", "++"},
    };
    const token *t = &s->t[i];
    bool step = is(s, i, "++") || is(s, i, "--");
    bool apart = isspace((unsigned char)s->text[t->at - 1]) && isspace((unsigned char)s->text[at_end(t)]);
    if (!step && !apart) return;
    for (size_t k = 0; k < sizeof swaps / sizeof *swaps; k++) {
        if (!is(s, i, swaps[k][0])) continue;
        for (int to = 1; to < 3 && swaps[k][to]; to++) add(s, "operator", i, i, strdup(swaps[k][to]));
    }
}

// [32] in a declaration: room, whose exact size hardly ever means something.
static bool is_length(const source *s, int i) {
    if (!is(s, i - 1, "[") || !is(s, i + 1, "]")) return false;
    int first = i;
    while (first > 1 && !statement_begins(s, first)) first--;
    return is_declaration(s, first) && s->t[first].in == s->t[i - 1].in && strchr(";,=[", s->text[s->t[i + 2].at]);
}

static void change_number(source *s, int i) {
    char *text = text_of(s, i, i);
    bool hex = strncmp(text, "0x", 2) == 0, real = strpbrk(text, hex ? ".pP" : ".eE");
    if (real && strtod(text, NULL) != 0) {
        add(s, "constant", i, i, around(s, "(2 * ", i, i, ")"));
    } else if (!is_length(s, i)) {
        add(s, "constant", i, i, around(s, "(", i, i, " + 1)"));
        add(s, "constant", i, i, around(s, "(", i, i, " - 1)"));
    }
    free(text);
}

static void negate(source *s, int from, int to) {
    if (to >= from) add(s, "condition", from, to, around(s, "!(", from, to, ")"));
}

// if and while: what is in the brackets; for: what is between its semicolons.
static void change_condition(source *s, int i) {
    int from = i + 2, to = s->t[i + 1].mate - 1;
    if (is(s, i, "for")) {
        from = statement_end(s, from) + 1;
        to = from > 1 ? statement_end(s, from) - 1 : 0;
    }
    negate(s, from, to);
}

static bool is_call(const source *s, int i, int end) {
    int last = end - 1;
    if (!is_name(s, i) || !is(s, last, ")")) return false;
    for (int open = s->t[last].mate; i < open; i = step_over(s, i))
        if (s->t[i].kind != NAME && !is(s, i, "->") && !is(s, i, ".") && !is(s, i, "[")) return false;
    return i == s->t[last].mate;
}

static bool is_assignment(const source *s, int i, int end) {
    if (is_declaration(s, i)) return false;
    for (; i < end; i = step_over(s, i)) {
        const token *t = &s->t[i];
        char last = s->text[at_end(t) - 1];
        if (t->kind != PUNCT) continue;
        if (is(s, i, "++") || is(s, i, "--") || is(s, i, "=") || is(s, i, "<<=") || is(s, i, ">>=")) return true;
        if (t->len == 2 && last == '=' && !strchr("=!<>", s->text[t->at])) return true;
    }
    return false;
}

// Nothing in its place but its line breaks.
static void drop_statement(source *s, int i) {
    int end = is(s, i, "{") ? 0 : statement_end(s, i);
    if (!end || one_of(s, i, releases) || (!is_call(s, i, end) && !is_assignment(s, i, end))) return;
    char *text = text_of(s, i, end), *to = text;
    for (const char *from = text; *from; from++)
        if (*from == '\n') *to++ = '\n';
    memcpy(to, ";", 2);
    add(s, "statement", i, end, text);
}

static void exchange(source *s, int a, int a_end, int b, int b_end) {
    char *first = text_of(s, a, a_end), *second = text_of(s, b, b_end), *both = NULL;
    int gap = s->t[b].at - at_end(&s->t[a_end]) - 1;  // after the comma
    if (asprintf(&both, "%s,%.*s%s", second, gap, s->text + at_end(&s->t[a_end]) + 1, first) < 0) both = NULL;
    if (strcmp(first, second) != 0) add(s, "argument", a, b_end, both);
    else free(both);
    free(first), free(second);
}

// f(a, b, c): f(b, a, c) and f(a, c, b).
static void change_arguments(source *s, int open) {
    int close = s->t[open].mate, before = 0, begin = open + 1;
    for (int i = begin; i <= close; i = i < close ? step_over(s, i) : i + 1) {
        if (!is(s, i, ",") && i != close) continue;
        bool same = before == open + 1 && one_of(s, open - 1, symmetric);
        if (before && begin < i && !same) exchange(s, before, begin - 2, begin, i - 1);
        before = begin;
        begin = i + 1;
    }
}

static void find_changes(source *s) {
    for (int i = 1; i <= s->tokens; i++) {
        const token *t = &s->t[i];
        if (!t->body || t->quiet) continue;
        if (statement_begins(s, i) && t->kind != END) drop_statement(s, i);
        if (t->kind == PUNCT) change_operator(s, i);
        if (t->kind == NUMBER) change_number(s, i);
        if (is(s, i, "(") && is_name(s, i - 1) && !one_of(s, i - 1, makes_text)) change_arguments(s, i);
        if (is(s, i, "if") || is(s, i, "while") || is(s, i, "for")) change_condition(s, i);
        if (is(s, i, "true")) add(s, "constant", i, i, strdup("false"));
        if (is(s, i, "false")) add(s, "constant", i, i, strdup("true"));
        if (is(s, i, "break")) add(s, "jump", i, i, strdup("continue"));
        if (is(s, i, "continue")) add(s, "jump", i, i, strdup("break"));
    }
}

static void source_open(source *s, const char *path) {
    *s = (source){.path = path};
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0 || (s->size = (int)ftell(f)) < 0) perror(path), exit(74);
    rewind(f);
    s->text = must(calloc(1, (size_t)s->size + 1));
    if (fread(s->text, 1, (size_t)s->size, f) != (size_t)s->size) perror(path), exit(74);
    fclose(f);
    tokenise(s);
    match_brackets(s);
    find_changes(s);
}

static void source_close(source *s) {
    for (int i = 0; i < s->changes; i++) free(s->c[i].after);
    free(s->c), free(s->t), free(s->text);
}

// --- the two verbs -----------------------------------------------------------------------------------------------

typedef struct lot {
    uint64_t key;
    const char *path;
    int number;
} lot;

static int by_key(const void *a, const void *b) {
    const lot *x = a, *y = b;
    int files = strcmp(x->path, y->path);
    return x->key != y->key ? (x->key < y->key ? -1 : 1) : files ? files : x->number - y->number;
}

// A change's place in the order depends on the seed, its file's name and its number, not on which other files are
// drawn from.
static int draw(uint64_t seed, int files, char **paths) {
    lot *lots = NULL;
    int n = 0;
    for (int f = 0; f < files; f++) {
        source s;
        uint32_t name = 2166136261u, bits[4];
        for (const char *c = paths[f]; *c; c++) name = (name ^ (unsigned char)*c) * 16777619u;
        source_open(&s, paths[f]);
        lots = must(realloc(lots, (size_t)(n + s.changes + 1) * sizeof *lots));
        for (int i = 0; i < s.changes; i++) {
            philox4x32(bits, seed, name, (uint32_t)i, 0, 0);
            lots[n++] = (lot){(uint64_t)bits[0] << 32 | bits[1], paths[f], i};
        }
        source_close(&s);
    }
    qsort(lots, (size_t)n, sizeof *lots, by_key);
    for (int i = 0; i < n; i++) printf("%s %d\n", lots[i].path, lots[i].number);
    free(lots);
    return 0;
}

// One line of it, whatever it was laid out as.
static void print_plain(const char *text, int len) {
    for (int i = 0; i < len; i++) {
        bool space = isspace((unsigned char)text[i]);
        if (!space) putchar(text[i]);
        else if (i && !isspace((unsigned char)text[i - 1])) putchar(' ');
    }
}

static int make(const char *path, int number, const char *out) {
    source s;
    source_open(&s, path);
    if (number < 0 || number >= s.changes) {
        fprintf(stderr, "%s has %d changes, and no number %d\n", path, s.changes, number);
        return 64;
    }
    const change *c = &s.c[number];
    FILE *f = fopen(out, "wb");
    if (!f) return perror(out), 74;
    fwrite(s.text, 1, (size_t)c->at, f);
    fputs(c->after, f);
    fputs(s.text + c->at + c->len, f);
    if (fclose(f) != 0) return perror(out), 74;
    int column = 1;
    while (column <= c->at && s.text[c->at - column] != '\n') column++;
    printf("%s:%d:%d: %s: ", path, c->line, column, c->kind);
    print_plain(s.text + c->at, c->len);
    fputs(" -> ", stdout);
    print_plain(c->after, (int)strlen(c->after));
    putchar('\n');
    source_close(&s);
    return 0;
}

int main(int argc, char **argv) {
    if (argc >= 4 && strcmp(argv[1], "draw") == 0) return draw(strtoull(argv[2], NULL, 10), argc - 3, argv + 3);
    if (argc == 5 && strcmp(argv[1], "make") == 0) return make(argv[2], atoi(argv[3]), argv[4]);
    fputs("mutate draw SEED FILE... | mutate make FILE NUMBER OUT\n", stderr);
    return 64;
}
