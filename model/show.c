// model/show.c: see model/show.h. A form has a table of its values, and then its lists, each step in two columns:
//
//    1  layer norm      ln_1* (N,C), ln_1.mean* (N), ln_1.rstd* (N) <- x (N,C)      what it does, what it writes and reads
//       ln_1            uses ln_1.weight (C), ln_1.bias (C)                         whose work it is
#include "model/show.h"

#include "model/lower.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

enum { LETTERS = 12, WORDS = 64, TEXT = 160 };

// A form on its way to the page.
typedef struct showing {
    const model *m;
    const block_graph *k;
    const lists *x;
    frame f;                    // of a whole micro-batch
    unsigned in[LOWER_VALUES];  // lists that a value occurs in, a bit each
    FILE *out;
    int letters;
    struct {
        char text[8];
        int64_t number;
    } letter[LETTERS];
    // The step under way.
    int wide;             // of the left column
    char left[2][TEXT];   // of its lines
    char line[2 * TEXT];  // the one under way
    int lines;            // before it
} showing;

// --- blocks --------------------------------------------------------------------------------------------------------------------

int show_form(const model *m, int block) { return m->net->g.block[block].form; }

bool show_has(const model *m, int form) { return m->net->form[WITHOUT_DROPOUT][form].v != NULL; }

bool show_means(const model *m, int block, const char *which) {
    char number[16];
    snprintf(number, sizeof number, "%d", block);
    return strcmp(which, m->block[block].name) == 0 || strcmp(which, number) == 0;
}

// "blocks 1-4, 6"
static size_t put_numbers(const model *m, int form, char *dst, size_t room) {
    int count = 0;
    size_t n = 0;
    for (int b = 0; b < m->blocks; b++) count += show_form(m, b) == form;
    n += (size_t)snprintf(dst, room, count > 1 ? "blocks" : "block");
    for (int b = form, last; b < m->blocks && n < room; b = last + 1) {
        last = b;
        if (show_form(m, b) != form) continue;
        while (last + 1 < m->blocks && show_form(m, last + 1) == form) last++;
        n += (size_t)snprintf(dst + n, room - n, b == form ? " %d" : ", %d", b);
        if (last > b && n < room) n += (size_t)snprintf(dst + n, room - n, "-%d", last);
    }
    return n;
}

void show_blocks(const model *m, char *dst, size_t room) {
    size_t n = 0;
    *dst = 0;
    for (int b = 0; b < m->blocks && n < room; b++) {
        if (show_form(m, b) != b) continue;
        n += (size_t)snprintf(dst + n, room - n, "%s%s (", b ? ", " : "", m->block[b].name);
        if (n < room) n += put_numbers(m, b, dst + n, room - n);
        if (n < room) n += (size_t)snprintf(dst + n, room - n, ")");
    }
}

// --- letters -------------------------------------------------------------------------------------------------------------------

static void add_letter(showing *s, const char *text, int64_t number) {
    for (int i = 0; i < s->letters; i++)
        if (strcmp(s->letter[i].text, text) == 0) return;
    if (s->letters == LETTERS) return;
    snprintf(s->letter[s->letters].text, sizeof s->letter->text, "%s", text);
    s->letter[s->letters++].number = number;
}

// Do these letters mean one width in this block?
static bool is_clear(const showing *s, const char *letters, int64_t width) {
    for (value v = 1; v < s->x->values; v++)
        if (strcmp(s->x->v[v].letters, letters) == 0 && s->x->v[v].width != width) return false;
    return true;
}

static bool occurs(const showing *s, const char *letter) {
    for (value v = 1; v < s->x->values; v++)
        if (s->in[v] && strstr(s->x->v[v].letters, letter)) return true;
    return false;
}

static int64_t classes_of(const showing *s) {
    for (int i = 0; i < s->k->ops; i++)
        if (s->k->op[i].classes) return s->k->op[i].classes;
    return s->k->out ? 0 : s->m->net->g.head.classes;
}

static void find_letters(showing *s) {
    for (value v = 1; v < s->x->values; v++) {
        const graph_value *x = &s->x->v[v];
        if (s->in[v] && isupper((unsigned char)x->letters[0]) && !x->letters[1] && is_clear(s, x->letters, x->width))
            add_letter(s, x->letters, x->width);
    }
    for (int i = 0; i < s->k->ops; i++) {
        const operation *o = &s->k->op[i];
        if (!o->head_size) continue;
        if (occurs(s, "H")) add_letter(s, "H", o->heads);
        if (occurs(s, "KV")) add_letter(s, "KV", o->kv_heads);
        if (occurs(s, "D")) add_letter(s, "D", o->head_size);
    }
    if (classes_of(s)) add_letter(s, "V", classes_of(s));
    if (occurs(s, "S")) add_letter(s, "S", s->m->slices.count);
}

// --- shapes --------------------------------------------------------------------------------------------------------------------

static void width_text(const showing *s, value v, char dst[WORDS]) {
    const graph_value *x = &s->x->v[v];
    if (is_clear(s, x->letters, x->width)) snprintf(dst, WORDS, "%s", x->letters);
    else snprintf(dst, WORDS, "%" PRId64, x->width);
}

static void rows_text(const model *m, row_span r, char dst[WORDS]) {
    int parts = r == ROWS_ALL ? 1 : r == ROWS_OWN && m->slices.rows ? m->slices.of / m->slices.count : model_row_places(m);
    snprintf(dst, WORDS, parts > 1 ? "N/%d" : "N", parts);
}

// "(N,3C)", or, where the width is cut into slices, "(2,N,3C/4)": two of four are here.
static void shape_text(const showing *s, value v, char dst[TEXT]) {
    const graph_value *x = &s->x->v[v];
    const model *m = s->m;
    char rows[WORDS], width[WORDS], part[16] = "", here[16] = "";
    bool cut = m->slices.of > 1 && x->at.width != WIDTH_WHOLE, heads = x->shape == SHAPE_PER_HEAD;
    int slices = x->at.width == WIDTH_SLICES ? m->slices.count : model_head_slices(m);
    rows_text(m, x->at.rows, rows);
    width_text(s, v, width);
    if (cut && is_clear(s, x->letters, x->width)) snprintf(part, sizeof part, "/%d", m->slices.of);
    else if (cut) snprintf(width, sizeof width, "%" PRId64, x->width / m->slices.of);
    if (cut && (!heads || slices > 1)) snprintf(here, sizeof here, heads ? "%d" : "%d,", slices);
    if (x->shape == SHAPE_PLAIN) snprintf(dst, TEXT, "(%s)", width);
    else if (x->shape == SHAPE_PER_ROW) snprintf(dst, TEXT, "(%s)", rows);
    else if (heads) snprintf(dst, TEXT, "(%sB,%s%s,T)", here, width, part);
    else snprintf(dst, TEXT, "(%s%s,%s%s)", here, rows, width, part);
}

static void numbers_text(const tensor *t, char dst[TEXT]) {
    int n = 0;
    for (int d = 0; d < t->dims; d++) n += snprintf(dst + n, (size_t)(TEXT - n), "%s%" PRId64, d ? "," : "(", t->size[d]);
    snprintf(dst + n, (size_t)(TEXT - n), ")");
}

// Dimension d of a parameter: what the operation that has it writes is as wide as it has rows, and what it reads as its
// columns. Tables have a row for each class, or position.
static void dimension_text(const showing *s, const operation *o, int row, int d, char dst[WORDS]) {
    const param *p = &s->m->param[row];
    value near = d == 0 || !o->in[0] ? o->out[0] : o->in[0];
    if (d == 0 && (o->classes || !o->out[0])) snprintf(dst, WORDS, "%s", o->classes && row == o->at.b ? "T" : "V");
    else if (s->x->v[near].width == p->size[d]) width_text(s, near, dst);
    else {
        snprintf(dst, WORDS, "%" PRId64, p->size[d]);
        for (int i = 0; i < s->letters; i++)
            if (s->letter[i].number == p->size[d]) snprintf(dst, WORDS, "%s", s->letter[i].text);
    }
}

// A share of a dimension: of a letter "C/4", of a number that number.
static void divide_text(char dst[WORDS], int64_t whole, int by) {
    size_t n = strlen(dst);
    if (isdigit((unsigned char)dst[0]) && whole % by == 0 && !dst[strspn(dst, "0123456789")]) snprintf(dst, WORDS, "%" PRId64, whole / by);
    else if (by > 1) snprintf(dst + n, WORDS - n, "/%d", by);
}

// The part of a parameter that is here.
static void param_shape(const showing *s, const operation *o, int row, char dst[TEXT]) {
    const param *p = &s->m->param[row];
    const model_slices *x = &s->m->slices;
    char rows[WORDS], columns[WORDS] = "", here[16] = "";
    bool cut = param_slices(p) > 1;
    dimension_text(s, o, row, 0, rows);
    if (p->dims > 1) dimension_text(s, o, row, 1, columns);
    if (cut && p->axis == 0) divide_text(rows, p->size[0], x->of / x->count);
    if (cut && p->axis == 1) divide_text(columns, p->size[1], x->of), snprintf(here, sizeof here, "%d,", x->count);
    snprintf(dst, TEXT, "(%s%s%s%s)", here, rows, *columns ? "," : "", columns);
}

// --- the table of values -------------------------------------------------------------------------------------------------------

// Kept: one list leaves it to another. In what is kept lie other values, too, while it is not in use.
static char mark_of(const showing *s, value v) {
    region in = s->x->place[v].in;
    unsigned before = s->in[v] & 1U << LIST_FORWARD, second = s->in[v] & 1U << LIST_WEIGHTS, again = s->in[v] & 1U << LIST_AGAIN;
    unsigned first = s->in[v] & (1U << LIST_AGAIN | 1U << LIST_BACKWARD);
    if (in == REGION_KEPT) return (before && (first || second)) || (first && second) ? '*' : 0;
    return in == REGION_HELD && again ? '+' : 0;
}

static void name_text(const showing *s, value v, char dst[TEXT]) {
    char mark[] = {mark_of(s, v), 0};
    snprintf(dst, TEXT, "%s%s", s->x->v[v].name, mark);
}

static void place_text(const place *p, char dst[WORDS]) {
    static const char *const names[REGIONS] = {[REGION_KEPT] = "kept",       [REGION_HELD] = "held",         [REGION_SCRATCH] = "scratch",
                                               [REGION_X] = "input",         [REGION_Y] = "output",          [REGION_DY] = "output's grad",
                                               [REGION_DX] = "input's grad", [REGION_ALL] = "gathered rows", [REGION_INPUT] = "model's input"};
    bool placed = p->in <= REGION_SCRATCH || p->at;
    if (placed) snprintf(dst, WORDS, "%s + %" PRId64, names[p->in], p->at);
    else snprintf(dst, WORDS, "%s", names[p->in]);
}

static void layout_text(const graph_value *x, char dst[WORDS]) {
    static const char *const rows[] = {[ROWS_OWN] = "own", [ROWS_MATRIX] = "matrix", [ROWS_ALL] = "all"};
    static const char *const widths[] = {[WIDTH_WHOLE] = "whole", [WIDTH_SLICES] = "slices", [WIDTH_HEADS] = "heads"};
    bool plain = x->shape == SHAPE_PLAIN;
    snprintf(dst, WORDS, "%-6s  %-6s  ", plain ? "" : rows[x->at.rows], plain || x->shape == SHAPE_PER_ROW ? "" : widths[x->at.width]);
}

static int longer(int n, const char *text) { return (int)strlen(text) > n ? (int)strlen(text) : n; }

static void print_value(const showing *s, value v, int wide, int shape) {
    char name[TEXT], numbers[TEXT], lies[WORDS], layout[WORDS] = "";
    tensor t = at(&s->f, v);
    name_text(s, v, name), numbers_text(&t, numbers), place_text(&s->x->place[v], lies);
    if (s->m->slices.of > 1) layout_text(&s->x->v[v], layout);
    fprintf(s->out, "  %-*s  %-*s  %-5s  %10zu  %s%s\n", wide, name, shape, numbers, dtype_name(t.type), tensor_bytes(&t), layout, lies);
}

static void print_values(const showing *s) {
    char name[TEXT], numbers[TEXT];
    int wide = 6, shape = 5;
    for (value v = 1; v < s->x->values; v++) {
        if (!s->in[v]) continue;
        tensor t = at(&s->f, v);
        name_text(s, v, name), numbers_text(&t, numbers);
        wide = longer(wide, name), shape = longer(shape, numbers);
    }
    fprintf(s->out, "  %-*s  %-*s  %-5s  %10s  %slies in\n", wide, "values", shape, "shape", "type", "bytes",
            s->m->slices.of > 1 ? "rows    width   " : "");
    for (value v = 1; v < s->x->values; v++)
        if (s->in[v]) print_value(s, v, wide, shape);
}

// --- steps ---------------------------------------------------------------------------------------------------------------------

static const operation *op_of(const showing *s, int op) { return op < 0 ? NULL : &s->k->op[op]; }

// Of operations that have one name each result has its own.
static const char *op_name(const showing *s, int op) {
    const operation *o = op_of(s, op);
    return !o ? "" : o->out[0] ? s->x->v[o->out[0]].name : o->name;
}

// "mlp.c_fc + gelu": whose work it is.
static void ops_text(const showing *s, const step *t, char dst[TEXT]) {
    int n = snprintf(dst, TEXT, "%s", op_name(s, t->op));
    for (int i = 0; i < STEP_OPS; i++)
        if (t->other[i] >= 0) n += snprintf(dst + n, (size_t)(TEXT - n), " + %s", op_name(s, t->other[i]));
}

static void end_line(showing *s) {
    size_t n = strlen(s->line);
    while (n && s->line[n - 1] == ' ') n--;
    fprintf(s->out, "%.*s\n", (int)n, s->line);
    s->lines++;
}

// The left column of the next line.
static void begin_line(showing *s) { snprintf(s->line, sizeof s->line, "%-*s  ", s->wide, s->lines < 2 ? s->left[s->lines] : ""); }

// What is not whole on a line begins the next one.
static void put(showing *s, const char *text) {
    size_t n = strlen(s->line);
    if (n + strlen(text) > SHOW_COLUMNS) end_line(s), begin_line(s), n = strlen(s->line);
    snprintf(s->line + n, sizeof s->line - n, "%s ", text);
}

static void put_value(showing *s, const step *t, int k, const char *before, bool more) {
    char name[TEXT], shape[TEXT], text[3 * TEXT];
    name_text(s, t->v[k], name), shape_text(s, t->v[k], shape);
    snprintf(text, sizeof text, "%s%s %s%s%s", before, name, shape, t->how[k] == 'u' ? " in place" : "", more ? "," : "");
    put(s, text);
}

// The operands that it reads alone, or the others. Returns how many there are.
static int put_values(showing *s, const step *t, bool reads, const char *before) {
    int count = 0, last = -1;
    for (int k = 0; k < t->count; k++)
        if (t->v[k] && (t->how[k] == 'r') == reads) last = k;
    for (int k = 0; k <= last; k++)
        if (t->v[k] && (t->how[k] == 'r') == reads) put_value(s, t, k, count++ ? "" : before, k < last);
    return count;
}

// The operation of the step that has the parameter.
static const operation *owner_of(const showing *s, const step *t, int row) {
    for (int i = 0; i < STEP_OPS; i++) {
        const operation *o = op_of(s, t->other[i]);
        if (o && (o->at.w == row || o->at.b == row)) return o;
    }
    return op_of(s, t->op);
}

// "h.0.ln_1.weight" of the operation ln_1 is "ln_1.weight": each block of the form has its own.
static void put_param(showing *s, const step *t, int k, const char *before, bool more) {
    const operation *o = owner_of(s, t, t->row[k]);
    const param *p = &s->m->param[t->row[k]];
    const char *name = strstr(p->name, o->name);
    bool adds = t->row_how[k] == 'a', tied = !adds && p->tied >= 0;
    char shape[TEXT], text[4 * TEXT];
    param_shape(s, o, t->row[k], shape);
    snprintf(text, sizeof text, "%s%s%s%s%s %s%s", before, adds ? "d" : "", name ? name : p->name, tied ? " = " : "",
             tied ? s->m->param[p->tied].name : "", shape, more ? "," : "");
    put(s, text);
}

static void put_params(showing *s, const step *t, char how, const char *before) {
    int count = 0, last = -1;
    for (int k = 0; k < t->rows; k++)
        if (t->row_how[k] == how) last = k;
    if (last < 0) return;
    end_line(s), begin_line(s);
    for (int k = 0; k <= last; k++)
        if (t->row_how[k] == how) put_param(s, t, k, count++ ? "" : before, k < last);
}

bool show_meets(const model *m, const step *t) {
    bool slices = m->slices.count<m->slices.of, rows = model_row_places(m)> 1;
    switch (t->meets) {
    case MEET_ROWS: return true;
    case MEET_SUM: return slices;
    case MEET_SUM_OF_ROWS: return m->slices.rows;
    case MEET_SOFTMAX: return slices || rows;
    case MEET_PICK: return slices;
    default: return false;
    }
}

static void put_meeting(showing *s, const step *t) {
    static const char *const what[] = {[MEET_ROWS] = "rows that others have",
                                       [MEET_SUM] = "a sum over slices",
                                       [MEET_SUM_OF_ROWS] = "sums over slices of rows",
                                       [MEET_SOFTMAX] = "softmax over slices of the vocabulary",
                                       [MEET_PICK] = "rows of the table that others have"};
    bool meets = show_meets(s->m, t), here = t->meets == MEET_SUM || t->meets == MEET_SUM_OF_ROWS || t->meets == MEET_SOFTMAX;
    if (s->m->slices.of == 1 || (!meets && !here)) return;
    end_line(s), begin_line(s);
    bool losses = t->meets == MEET_SOFTMAX && s->m->slices.count == s->m->slices.of;  // of other rows are elsewhere
    put(s, meets ? "ranks meet:" : "all are here:");
    put(s, meets && losses ? "losses of all rows" : what[t->meets]);
}

static void print_step(showing *s, const step *t, int number) {
    snprintf(s->left[0], TEXT, "%4d  %s", number, t->name);
    int n = snprintf(s->left[1], TEXT, "%6s", "");
    ops_text(s, t, s->left[1] + n);
    s->lines = 0;
    begin_line(s);
    int writes = put_values(s, t, false, "");
    put_values(s, t, true, writes ? "<- " : "reads ");
    put_params(s, t, 'r', "uses ");
    put_params(s, t, 'a', "adds to ");
    put_meeting(s, t);
    end_line(s);
    if (s->lines == 1 && t->op >= 0) begin_line(s), end_line(s);
}

static void print_list(showing *s, list_kind k, const char *title) {
    const step_list *list = &s->x->list[k];
    if (!list->count) return;
    fprintf(s->out, "\n  %s\n", title);
    for (int i = 0; i < list->count; i++) print_step(s, &list->at[i], i + 1);
}

// --- a form --------------------------------------------------------------------------------------------------------------------

static void look_through(showing *s) {
    char ops[TEXT];
    for (int k = 0; k < LISTS; k++)
        for (int i = 0; i < s->x->list[k].count; i++) {
            const step *t = &s->x->list[k].at[i];
            for (int j = 0; j < t->count; j++) s->in[t->v[j]] |= 1U << k;
            ops_text(s, t, ops);
            s->wide = longer(longer(s->wide, t->name), ops);
        }
    s->in[0] = 0;
    s->wide += 6;  // the number
}

static void print_title(const showing *s, int form) {
    const model *m = s->m;
    char numbers[TEXT], rows[TEXT];
    put_numbers(m, form, numbers, sizeof numbers);
    if (m->context) snprintf(rows, sizeof rows, "B = %" PRId64 "  T = %" PRId64 "  N = B T = %" PRId64, s->f.p->B, m->context, s->f.all);
    else snprintf(rows, sizeof rows, "N = B = %" PRId64, s->f.all);
    fprintf(s->out, "\n%s: %s\n  %s", m->block[form].name, numbers, rows);
    for (int i = 0; i < s->letters; i++) fprintf(s->out, "  %s = %" PRId64, s->letter[i].text, s->letter[i].number);
    fprintf(s->out, "\n\n");
}

static int64_t most(const model *m, int form, region in) {
    const net *l = m->net;
    int64_t a = l->form[WITHOUT_DROPOUT][form].bytes[in], b = l->form[WITH_DROPOUT][form].bytes[in];
    return a > b ? a : b;
}

static void print_memory(const showing *s, int form) {
    fprintf(s->out, "\n  bytes: kept %" PRId64 " for each micro-batch; held %" PRId64 " and scratch %" PRId64 " for all blocks\n",
            most(s->m, form, REGION_KEPT), most(s->m, form, REGION_HELD), most(s->m, form, REGION_SCRATCH));
}

void show_lists(const model *m, int form, FILE *out) {
    net *l = m->net;
    char somewhere = 0;
    pass p = {.B = l->B, .in = {{.size = {l->B, m->context ? m->context : 1, 1, 1}}}};
    bool drops = l->g.dropout > 0, halves, is_last = !l->g.block[form].out;
    showing s = {.m = m, .k = &l->g.block[form], .x = &l->form[drops ? WITH_DROPOUT : WITHOUT_DROPOUT][form], .out = out};
    s.f = (frame){.net = l, .m = m, .p = &p, .b = form, .op = s.k->op, .x = s.x, .type = l->type};
    s.f.all = p.B * T_of(&s.f), s.f.matrix = model_matrix_rows(m, s.f.all), s.f.own = model_own_rows(m, s.f.all);
    for (int i = 0; i < REGIONS; i++) s.f.base[i] = &somewhere;
    halves = s.x->list[LIST_WEIGHTS].count > 0;
    look_through(&s);
    find_letters(&s);
    print_title(&s, form);
    print_values(&s);
    print_list(&s, LIST_FORWARD, is_last ? "forward, when nothing is trained" : "forward");
    print_list(&s, LIST_AGAIN,
               is_last ? "backward, first what forward would have left" : "computed again before backward, unless its forward was the last to run");
    print_list(&s, LIST_BACKWARD, halves ? "backward, first half: gradients of values" : "backward");
    print_list(&s, LIST_WEIGHTS, "backward, second half: gradients of weights");
    print_memory(&s, form);
}

static int64_t bytes_of(const tensor *t) { return t->dims ? (int64_t)tensor_bytes(t) : 0; }

show_bytes show_memory(const model *m) {
    const net *l = m->net;
    show_bytes x = {.sets = l->set[m->blocks]};
    for (int i = 0; i < x.sets; i++) x.kept += bytes_of(&l->kept[i]);
    x.held = bytes_of(&l->held), x.scratch = bytes_of(&l->scratch);
    return x;
}
