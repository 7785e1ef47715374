// data/text/questions.c: see data/text/questions.h. What is said there of other programs was read in their sources:
// lm_eval/tasks/hellaswag/utils.py and TemplateLM._encode_pair of lm-evaluation-harness 0.4.13, dev/data/hellaswag.py
// of llm.c.
#include "data/text/questions.h"

#include "data/text/case.h"
#include "data/text/document.h"
#include "data/text/strip.h"
#include "data/tokenizer/unicode.h"

#include <inttypes.h>
#include <string.h>

typedef struct question {
    int64_t row;  // its first
    int choices, gold;
} question;

typedef struct question_list {
    question *at;
    int64_t n, room;
} question_list;

typedef struct norm_list {
    double *at;
    int64_t n, room;
} norm_list;

struct questions {
    rows *rows;
    source *from;
    question_list list;
    norm_list norm;  // of each row: what its sum is divided by
    int64_t cut;
};

typedef struct maker {
    const rows_from *o;
    question_protocol protocol;
    int64_t line;
    questions *q;
    encoder *e;
    bytes query, choice, rest;  // as text: of the question, the choice, and what is encoded
    id_list ids;
} maker;

static err_t bad(const maker *m, const char *what) {
    return err_set(ERR_DATA, "%s: line %" PRId64 ": %s", m->o->path, m->line, what);
}

// --- text ------------------------------------------------------------------------------------------------------------

static err_t put(bytes *to, const void *text, int64_t n) {
    ROOM_FOR(to, to->n + n + 1);
    if (n) memcpy(to->at + to->n, text, (size_t)n);
    to->n += n;
    return ERR_OK;
}

static err_t put_string(bytes *to, const json_t *s) {
    return put(to, json_string_value(s), (int64_t)json_string_length(s));
}

// Every `from` becomes `to`, which is not longer; what is written is not looked at again.
static void replace(bytes *x, const char *from, const char *to) {
    int64_t n = (int64_t)strlen(from), m = (int64_t)strlen(to), end = 0;
    for (int64_t i = 0; i < x->n;) {
        bool here = i + n <= x->n && memcmp(x->at + i, from, (size_t)n) == 0;
        if (here) memcpy(x->at + end, to, (size_t)m), end += m, i += n;
        else x->at[end++] = x->at[i++];
    }
    x->n = end;
}

// Takes out each [ with what follows it up to the next ] of the same line.
static void take_out_brackets(bytes *x) {
    int64_t end = 0, unclosed = 0;  // no [ before it has a ]
    for (int64_t i = 0; i < x->n;) {
        int64_t k = i;
        bool opens = x->at[i] == '[' && i >= unclosed;
        while (opens && k < x->n && x->at[k] != ']' && x->at[k] != '\n') k++;
        if (opens && k < x->n && x->at[k] == ']') {
            i = k + 1;
            continue;
        }
        if (opens) unclosed = k;
        x->at[end++] = x->at[i++];
    }
    x->n = end;
}

// " [title]" and brackets are what is left of the markup of the pages that HellaSwag's texts were taken from.
static void clean(bytes *x) {
    strip_both(x);
    replace(x, " [title]", ". ");
    take_out_brackets(x);
    replace(x, "  ", " ");
}

static bool is_cased(uint32_t c) { return case_lower(c) != c || case_title(c) != c; }

// The first character in title case, all others in lower case, as Python's str.capitalize. A sigma that ends a word has
// a form of its own.
static err_t put_capitalized(bytes *to, const json_t *s) {
    enum { CAPITAL_SIGMA = 0x3A3, FINAL_SIGMA = 0x3C2 };
    const uint8_t *at = (const uint8_t *)json_string_value(s);
    int64_t n = (int64_t)json_string_length(s);
    bool word = false;
    for (int64_t i = 0; i < n;) {
        uint32_t c, after = 0, other;
        uint8_t out[4];
        int64_t from = i;
        i += utf8_next(at + i, n - i, &c);  // jansson lets only UTF-8 pass
        if (i < n) utf8_next(at + i, n - i, &after);
        other = from == 0 ? case_title(c) : case_lower(c);
        if (c == CAPITAL_SIGMA && word && !is_cased(after)) other = FINAL_SIGMA;
        TRY(put(to, out, utf8_put(out, other)));
        word = is_cased(c);
    }
    return ERR_OK;
}

static int64_t characters(const bytes *x) {
    int64_t n = 0;
    for (int64_t i = 0; i < x->n; i++) n += (x->at[i] & 0xC0) != 0x80;
    return n;
}

// --- rows ------------------------------------------------------------------------------------------------------------

// Appends the ids of a text.
static err_t put_ids(maker *m, const bytes *text, int how) {
    const int32_t *ids;
    int64_t n;
    TRY(encoder_encode(m->e, text->at, text->n, how, &ids, &n));
    ROOM_FOR(&m->ids, m->ids.n + n);
    if (n) memcpy(m->ids.at + m->ids.n, ids, (size_t)n * sizeof *ids);
    m->ids.n += n;
    return ERR_OK;
}

// Something has to be before what is asked.
static err_t put_prefix(maker *m) {
    int32_t prefix = rows_prefix(m->o->words);
    if (prefix >= 0) return ids_add(&m->ids, prefix);
    return bad(
        m,
        "the query is empty, and the tokenizer has no token that begins a text: there is nothing before the choices");
}

static err_t encode_llmc(maker *m, int64_t *before) {
    m->ids.n = m->rest.n = 0;
    TRY(put_ids(m, &m->query, ENCODE_TEXT));
    if (m->ids.n == 0) TRY(put_prefix(m));
    *before = m->ids.n;
    TRY(put(&m->rest, " ", 1));
    TRY(put(&m->rest, m->choice.at, m->choice.n));
    return put_ids(m, &m->rest, ENCODE_TEXT);
}

// The query, without the white space at its end, is encoded to know how many tokens it has, and then the whole. What is
// asked are the others of the whole, even if the tokens at the seam are not the query's own.
static err_t encode_lm_eval(maker *m, int64_t *before) {
    bytes query = m->query;
    query.n = strip_end(&query);
    m->ids.n = m->rest.n = 0;
    if (query.n) TRY(put_ids(m, &query, ENCODE_TEXT | ENCODE_BEGIN));
    else TRY(put_prefix(m));
    *before = m->ids.n;
    if (query.n) m->ids.n = 0;
    TRY(put(&m->rest, m->query.at, m->query.n));
    TRY(put(&m->rest, " ", 1));
    TRY(put(&m->rest, m->choice.at, m->choice.n));
    return put_ids(m, &m->rest, query.n ? ENCODE_TEXT | ENCODE_BEGIN : ENCODE_TEXT);
}

static err_t add_choice(maker *m, int number) {
    questions *q = m->q;
    int64_t before = 0;
    bool cut;
    TRY(m->protocol == PROTOCOL_LLMC ? encode_llmc(m, &before) : encode_lm_eval(m, &before));
    int64_t asked = m->ids.n - before;
    if (rows_add(q->rows, m->ids.at, m->ids.n, asked, &cut) != ERR_OK)
        return err_prefix("%s: line %" PRId64 ": choice %d, counted from 0", m->o->path, m->line, number);
    q->cut += cut;
    ROOM_FOR(&q->norm, q->norm.n + 1);
    q->norm.at[q->norm.n++] = (double)(m->protocol == PROTOCOL_LLMC ? asked : characters(&m->choice));
    return ERR_OK;
}

// --- a line ----------------------------------------------------------------------------------------------------------

static err_t no_form(const maker *m, const char *what) {
    char text[256];
    snprintf(
        text, sizeof text,
        "%s; expected {\"query\": \"...\", \"choices\": [\"...\"], \"gold\": 0} or {\"ctx\": \"...\", \"endings\": [\"...\"], \"label\": 0}",
        what);
    return bad(m, text);
}

// A whole number, or a string of one.
static err_t read_gold(const maker *m, const json_t *value, int choices, int *gold) {
    char what[160];
    const char *text = json_string_value(value);
    char *end = NULL;
    json_int_t n = json_is_integer(value)                 ? json_integer_value(value)
                   : text && *text >= '0' && *text <= '9' ? strtoll(text, &end, 10)
                                                          : -1;
    if (n >= 0 && n < choices && (!end || *end == 0)) return *gold = (int)n, ERR_OK;
    if (text && !*text) return bad(m, "the label is empty: this file does not say which choice is right");
    if (!value) return no_form(m, "it does not say which choice is right");
    snprintf(what, sizeof what, "which choice is right is no whole number from 0 to %d", choices - 1);
    return bad(m, what);
}

// The query of HellaSwag's parts, where they are there.
static err_t read_query(maker *m, const json_t *line, const json_t *query, bool *cleans) {
    const json_t *label = json_object_get(line, "activity_label"), *a = json_object_get(line, "ctx_a"),
                 *b = json_object_get(line, "ctx_b");
    *cleans = m->protocol == PROTOCOL_LM_EVAL && json_is_string(label) && json_is_string(a) && json_is_string(b);
    if (!*cleans) return put_string(&m->query, query);
    TRY(put_string(&m->query, label));
    TRY(put(&m->query, ": ", 2));
    TRY(put_string(&m->query, a));
    TRY(put(&m->query, " ", 1));
    TRY(put_capitalized(&m->query, b));
    clean(&m->query);
    return ERR_OK;
}

static err_t take_line(maker *m, const json_t *line) {
    if (!json_is_object(line)) return no_form(m, "not an object");
    const json_t *choices = json_object_get(line, "choices"), *endings = json_object_get(line, "endings");
    bool general = choices != NULL, cleans = false;
    const json_t *query = json_object_get(line, general ? "query" : "ctx"),
                 *gold = json_object_get(line, general ? "gold" : "label");
    question x = {.row = m->q->norm.n};
    if (!general) choices = endings;
    if (!json_is_array(choices)) return no_form(m, choices ? "its choices are no list" : "it has no choices");
    if (!json_is_string(query))
        return no_form(m, query ? "what comes before the choices is no string"
                                : "it has nothing that comes before the choices");
    x.choices = (int)json_array_size(choices);
    if (x.choices < 1) return no_form(m, "its list of choices is empty");
    TRY(read_gold(m, gold, x.choices, &x.gold));
    m->query.n = 0;
    TRY(general ? put_string(&m->query, query) : read_query(m, line, query, &cleans));
    for (int k = 0; k < x.choices; k++) {
        const json_t *choice = json_array_get(choices, (size_t)k);
        if (!json_is_string(choice)) return no_form(m, "a choice is no string");
        m->choice.n = 0;
        TRY(put_string(&m->choice, choice));
        if (cleans) clean(&m->choice);
        TRY(add_choice(m, k));
    }
    ROOM_FOR(&m->q->list, m->q->list.n + 1);
    m->q->list.at[m->q->list.n++] = x;
    return ERR_OK;
}

static bool is_blank(const uint8_t *at, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (at[i] != ' ' && at[i] != '\t' && at[i] != '\r') return false;
    return true;
}

static err_t parse_line(maker *m, const uint8_t *at, int64_t n) {
    char why[200];
    m->line++;
    if (is_blank(at, n)) return ERR_OK;
    json_t *line = document_parse(at, n, why);
    if (!line) return bad(m, why);
    err_t rc = take_line(m, line);
    json_decref(line);
    return rc;
}

// --- a file ----------------------------------------------------------------------------------------------------------

static err_t take_lines(maker *m, document_reader *d) {
    const uint8_t *line;
    int64_t n;
    for (bool more = true; more;) {
        TRY(document_line(d, &line, &n, &more));
        if (more) TRY(parse_line(m, line, n));
    }
    return m->q->list.n ? ERR_OK : err_set(ERR_DATA, "%s: there is no question in it", m->o->path);
}

static err_t take_file(maker *m) {
    document_reader *d;
    TRY(document_open(&d, m->o->path, NULL));
    err_t rc = take_lines(m, d);
    document_close(d);
    return rc;
}

err_t questions_open(questions **out, const rows_from *o, question_protocol protocol) {
    questions *q = *out = calloc(1, sizeof *q);
    maker m = {.o = o, .protocol = protocol, .q = q};
    err_t rc = q ? rows_open(&q->rows, o) : err_set(ERR_INTERNAL, "%s: no memory for questions", o->path);
    if (rc == ERR_OK) rc = encoder_open(&m.e, o->words);
    if (rc == ERR_OK) rc = take_file(&m);
    if (rc == ERR_OK) q->from = rows_done(q->rows, 1);
    if (m.e) encoder_close(m.e);
    free(m.query.at), free(m.choice.at), free(m.rest.at), free(m.ids.at);
    if (rc != ERR_OK) questions_close(q), *out = NULL;
    return rc;
}

void questions_close(questions *q) {
    if (!q) return;
    rows_close(q->rows);
    free(q->list.at), free(q->norm.at);
    free(q);
}

questions_info questions_about(const questions *q) {
    return (questions_info){.questions = q->list.n, .rows = q->norm.n, .cut = q->cut};
}

source *questions_source(questions *q) { return q->from; }

// --- marks -----------------------------------------------------------------------------------------------------------

// sums / norm, or sums where there is no norm.
static int least(const double *sums, const double *norm, int count) {
    int best = -1;
    double lowest = 0;
    for (int k = 0; k < count; k++) {
        double x = norm ? sums[k] / norm[k] : sums[k];
        if (x == x && (best < 0 || x < lowest)) best = k, lowest = x;
    }
    return best;
}

answers questions_mark(const questions *q, const double *sums) {
    answers a = {.questions = q->list.n};
    for (int64_t i = 0; i < q->list.n; i++) {
        const question *x = &q->list.at[i];
        a.right += least(sums + x->row, NULL, x->choices) == x->gold;
        a.right_norm += least(sums + x->row, q->norm.at + x->row, x->choices) == x->gold;
    }
    return a;
}
