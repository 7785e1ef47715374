// model/show.c: see model/show.h. A form has a table of its values, and then its lists, each step in two columns:
//
//    1  layer norm      ln_1* (N,C), ln_1.mean* (N), ln_1.rstd* (N) <- x (N,C)      what it does, what it writes and
//       reads
//       ln_1            uses ln_1.weight (C), ln_1.bias (C)                         whose work it is
#include "model/show.h"

#include "model/lower.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

enum { LETTERS = 12, TEXT = 512 };

// A piece of a line, by value.
typedef struct text {
    char s[TEXT];
} text;

static __attribute__((format(printf, 1, 2))) text say(const char *format, ...) {
    text t;
    va_list ap;
    va_start(ap, format);
    vsnprintf(t.s, sizeof t.s, format, ap);
    va_end(ap);
    return t;
}

static int longer(int n, const char *text) { return (int)strlen(text) > n ? (int)strlen(text) : n; }

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
        const char *text;
        int64_t number;
    } letter[LETTERS];
    // The step under way.
    int wide;             // of the left column
    text left[2];         // of its lines
    char line[2 * TEXT];  // the one under way
    int lines;            // before it
} showing;

// --- blocks ----------------------------------------------------------------------------------------------------------

int show_form(const model *m, int block) { return m->net->g.block[block].form; }

bool show_has(const model *m, int form) { return m->net->form[WITHOUT_DROPOUT][form].v != NULL; }

bool show_means(const model *m, int block, const char *which) {
    return strcmp(which, m->block[block].name) == 0 || strcmp(which, say("%d", block).s) == 0;
}

// "blocks 1-4, 6"
static text numbers_of(const model *m, int form) {
    int count = 0;
    for (int b = 0; b < m->blocks; b++) count += show_form(m, b) == form;
    text t = say("%s", count > 1 ? "blocks" : "block");
    for (int b = form, last; b < m->blocks; b = last + 1) {
        last = b;
        if (show_form(m, b) != form) continue;
        while (last + 1 < m->blocks && show_form(m, last + 1) == form) last++;
        t = say("%s%s %d", t.s, b == form ? "" : ",", b);
        if (last > b) t = say("%s-%d", t.s, last);
    }
    return t;
}

void show_blocks(const model *m, char *dst, size_t room) {
    *dst = 0;
    for (int b = 0; b < m->blocks; b++) {
        size_t n = strlen(dst);
        if (show_form(m, b) == b)
            snprintf(dst + n, room - n, "%s%s (%s)", b ? ", " : "", m->block[b].name, numbers_of(m, b).s);
    }
}

// --- letters ---------------------------------------------------------------------------------------------------------

static void add_letter(showing *s, const char *text, int64_t number) {
    for (int i = 0; i < s->letters; i++)
        if (strcmp(s->letter[i].text, text) == 0) return;
    if (s->letters < LETTERS) s->letter[s->letters].text = text, s->letter[s->letters++].number = number;
}

// Do these letters mean one width in this block?
static bool is_clear(const showing *s, const char *letters, int64_t width) {
    for (value v = 1; v < s->x->values; v++)
        if (strcmp(s->x->v[v].letters, letters) == 0 && s->x->v[v].width != width) return false;
    return true;
}

static void add_occurring(showing *s, const char *letter, int64_t number) {
    bool occurs = false;
    for (value v = 1; v < s->x->values; v++) occurs |= s->in[v] && strstr(s->x->v[v].letters, letter);
    if (occurs) add_letter(s, letter, number);
}

static void find_letters(showing *s) {
    int64_t classes = s->k->out ? 0 : s->m->net->g.head.classes;
    for (value v = 1; v < s->x->values; v++) {
        const graph_value *x = &s->x->v[v];
        if (s->in[v] && isupper((unsigned char)x->letters[0]) && !x->letters[1] && is_clear(s, x->letters, x->width))
            add_letter(s, x->letters, x->width);
    }
    for (int i = 0; i < s->k->ops; i++) {
        const operation *o = &s->k->op[i];
        if (o->classes) classes = o->classes;
        if (!o->head_size) continue;
        add_occurring(s, "H", o->heads), add_occurring(s, "KV", o->kv_heads), add_occurring(s, "D", o->head_size);
    }
    if (classes) add_letter(s, "V", classes);
    add_occurring(s, "S", s->m->slices.count);
}

// --- shapes ----------------------------------------------------------------------------------------------------------

static text width_of(const showing *s, value v) {
    const graph_value *x = &s->x->v[v];
    if (x->C) return say("%" PRId64 ",%" PRId64 ",%" PRId64, x->H, x->W, x->C);
    return is_clear(s, x->letters, x->width) ? say("%s", x->letters) : say("%" PRId64, x->width);
}

static text rows_of(const model *m, row_span r) {
    int parts = r == ROWS_ALL                     ? 1
                : r == ROWS_OWN && m->slices.rows ? m->slices.of / m->slices.count
                                                  : model_row_ranks(m);
    return parts > 1 ? say("N/%d", parts) : say("N");
}

// "(N,3C)", or, where the width is cut into slices, "(2,N,3C/4)": two of four are here.
static text shape_of(const showing *s, value v) {
    const graph_value *x = &s->x->v[v];
    const model *m = s->m;
    text rows = rows_of(m, x->at.rows), width = width_of(s, v), here = say("%s", "");
    bool cut = m->slices.of > 1 && x->at.width != WIDTH_WHOLE, heads = x->shape == SHAPE_PER_HEAD;
    int slices = x->at.width == WIDTH_SLICES ? m->slices.count : model_head_slices(m);
    if (x->shape == SHAPE_PLAIN) return say("(%s)", width.s);
    if (x->shape == SHAPE_PER_ROW) return say("(%s)", rows.s);
    if (cut)
        width = is_clear(s, x->letters, x->width) ? say("%s/%d", width.s, m->slices.of)
                                                  : say("%" PRId64, x->width / m->slices.of);
    if (cut && (!heads || slices > 1)) here = say(heads ? "%d" : "%d,", slices);
    return heads ? say("(%sB,%s,T)", here.s, width.s) : say("(%s%s,%s)", here.s, rows.s, width.s);
}

// Dimension d of a parameter, by name: its rows are the width of what its operation writes, its columns that of what it
// reads. Tables have a row for each class or position.
static text dimension_of(const showing *s, const operation *o, int row, int d) {
    int64_t size = s->m->param[row].size[d];
    value near = d == 0 || !o->in[0] ? o->out[0] : o->in[0];
    const head *pairs = &s->m->net->g.pairs;
    if (d == 0 && pairs->classes && (row == pairs->at.w || row == pairs->at.b)) return say("%" PRId64, size);
    if (d == 0 && (o->classes || !o->out[0])) return say("%s", o->classes && row == o->at.b ? "T" : "V");
    if (s->x->v[near].width == size) return width_of(s, near);
    for (int i = s->letters - 1; i >= 0; i--)
        if (s->letter[i].number == size) return say("%s", s->letter[i].text);
    return say("%" PRId64, size);
}

// A share of a dimension: of a letter "C/4", of a number that number.
static text share_of(text t, int64_t whole, int by) {
    if (isdigit((unsigned char)t.s[0]) && whole % by == 0 && !t.s[strspn(t.s, "0123456789")])
        return say("%" PRId64, whole / by);
    return by > 1 ? say("%s/%d", t.s, by) : t;
}

// The part of a parameter that is here.
static text param_shape(const showing *s, const operation *o, int row) {
    const param *p = &s->m->param[row];
    const model_slices *x = &s->m->slices;
    text rows = dimension_of(s, o, row, 0);
    bool cut = param_slices(p) > 1;
    if (cut && p->axis == 0) rows = share_of(rows, p->size[0], x->of / x->count);
    if (p->dims == 1) return say("(%s)", rows.s);
    if (p->dims == 4) return say("(%s,%d,%d,%" PRId64 ")", rows.s, (int)p->size[1], (int)p->size[2], p->size[3]);
    text columns = dimension_of(s, o, row, 1);
    if (cut && p->axis == 1) return say("(%d,%s,%s)", x->count, rows.s, share_of(columns, p->size[1], x->of).s);
    return say("(%s,%s)", rows.s, columns.s);
}

// --- the table of values ---------------------------------------------------------------------------------------------

// Kept: one list writes it, another reads it. While it is not in use, other values lie in its memory.
static const char *mark_of(const showing *s, value v) {
    region in = s->x->place[v].in;
    unsigned before = s->in[v] & 1U << LIST_FORWARD, second = s->in[v] & 1U << LIST_WEIGHTS,
             again = s->in[v] & 1U << LIST_AGAIN;
    unsigned first = s->in[v] & (1U << LIST_AGAIN | 1U << LIST_BACKWARD);
    if (in == REGION_KEPT) return (before && (first || second)) || (first && second) ? "*" : "";
    return in == REGION_HELD && again ? "+" : "";
}

static text name_of(const showing *s, value v) { return say("%s%s", s->x->v[v].name, mark_of(s, v)); }

static text size_of(const showing *s, value v) {
    tensor x = s->x->v[v].C ? at_images(&s->f, v) : at(&s->f, v);
    text t = say("(");
    for (int d = 0; d < x.dims; d++) t = say("%s%s%" PRId64, t.s, d ? "," : "", x.size[d]);
    return say("%s)", t.s);
}

static text place_of(const place *p) {
    static const char *const names[REGIONS] = {
        [REGION_KEPT] = "kept",       [REGION_HELD] = "held",         [REGION_SCRATCH] = "scratch",
        [REGION_X] = "input",         [REGION_Y] = "output",          [REGION_DY] = "output's grad",
        [REGION_DX] = "input's grad", [REGION_ALL] = "gathered rows", [REGION_INPUT] = "model's input"};
    return p->in <= REGION_SCRATCH || p->at ? say("%s + %" PRId64, names[p->in], p->at) : say("%s", names[p->in]);
}

static text layout_of(const graph_value *x) {
    static const char *const rows[] = {[ROWS_OWN] = "own", [ROWS_MATRIX] = "matrix", [ROWS_ALL] = "all"};
    static const char *const widths[] = {[WIDTH_WHOLE] = "whole", [WIDTH_SLICES] = "slices", [WIDTH_HEADS] = "heads"};
    bool plain = x->shape == SHAPE_PLAIN;
    return say("%-6s  %-6s  ", plain ? "" : rows[x->at.rows],
               plain || x->shape == SHAPE_PER_ROW ? "" : widths[x->at.width]);
}

static void print_values(const showing *s) {
    int wide = 6, shape = 5;
    bool cut = s->m->slices.of > 1;
    for (value v = 1; v < s->x->values; v++)
        if (s->in[v]) wide = longer(wide, name_of(s, v).s), shape = longer(shape, size_of(s, v).s);
    fprintf(s->out, "  %-*s  %-*s  %-5s  %10s  %slies in\n", wide, "values", shape, "shape", "type", "bytes",
            cut ? "rows    width   " : "");
    for (value v = 1; v < s->x->values; v++) {
        if (!s->in[v]) continue;
        tensor t = at(&s->f, v);
        fprintf(s->out, "  %-*s  %-*s  %-5s  %10zu  %s%s\n", wide, name_of(s, v).s, shape, size_of(s, v).s,
                dtype_name(t.type), tensor_bytes(&t), cut ? layout_of(&s->x->v[v]).s : "", place_of(&s->x->place[v]).s);
    }
}

// --- steps -----------------------------------------------------------------------------------------------------------

static const operation *op_of(const showing *s, int op) { return op < 0 ? NULL : &s->k->op[op]; }

// If several operations have one name, the name of the result is used.
static const char *op_name(const showing *s, int op) {
    const operation *o = op_of(s, op);
    return !o ? "" : o->out[0] ? s->x->v[o->out[0]].name : o->name;
}

// "mlp.c_fc + gelu": whose work it is.
static text ops_of(const showing *s, const step *t) {
    text ops = say("%s", op_name(s, t->op));
    for (int i = 0; i < STEP_OPS; i++)
        if (t->other[i] >= 0) ops = say("%s + %s", ops.s, op_name(s, t->other[i]));
    return ops;
}

static void end_line(showing *s) {
    size_t n = strlen(s->line);
    while (n && s->line[n - 1] == ' ') n--;
    fprintf(s->out, "%.*s\n", (int)n, s->line);
    s->lines++;
}

// The left column of the next line.
static void begin_line(showing *s) {
    snprintf(s->line, sizeof s->line, "%-*s  ", s->wide, s->lines < 2 ? s->left[s->lines].s : "");
}

// Text that does not fit on the line begins the next one.
static void put(showing *s, const char *text) {
    size_t n = strlen(s->line);
    if (n + strlen(text) > SHOW_COLUMNS) end_line(s), begin_line(s), n = strlen(s->line);
    snprintf(s->line + n, sizeof s->line - n, "%s ", text);
}

// What a step names: values that it writes, or only reads; parameters that it uses, or to whose gradients it adds.
typedef enum { WRITES, READS, USES, ADDS } item_kind;

static bool is_item(const step *t, int k, item_kind kind) {
    return kind <= READS ? t->v[k] && (t->how[k] == 'r') == (kind == READS) : (t->row_how[k] == 'a') == (kind == ADDS);
}

static text value_item(const showing *s, const step *t, int k) {
    return say("%s %s%s", name_of(s, t->v[k]).s, shape_of(s, t->v[k]).s, t->how[k] == 'u' ? " in place" : "");
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
static text param_item(const showing *s, const step *t, int k) {
    const operation *o = owner_of(s, t, t->row[k]);
    const param *p = &s->m->param[t->row[k]];
    const char *name = strstr(p->name, o->name);
    bool adds = t->row_how[k] == 'a', tied = !adds && p->tied >= 0;
    return say("%s%s%s%s %s", adds ? "d" : "", name ? name : p->name, tied ? " = " : "",
               tied ? s->m->param[p->tied].name : "", param_shape(s, o, t->row[k]).s);
}

// Returns how many there are. Those of parameters begin a line.
static int put_items(showing *s, const step *t, item_kind kind, const char *before) {
    int count = 0, last = -1;
    for (int k = 0; k < (kind <= READS ? t->count : t->rows); k++)
        if (is_item(t, k, kind)) last = k;
    if (kind >= USES && last >= 0) end_line(s), begin_line(s);
    for (int k = 0; k <= last; k++) {
        if (!is_item(t, k, kind)) continue;
        text item = kind <= READS ? value_item(s, t, k) : param_item(s, t, k);
        put(s, say("%s%s%s", count++ ? "" : before, item.s, k < last ? "," : "").s);
    }
    return count;
}

bool show_meets(const model *m, const step *t) {
    bool slices = m->slices.count<m->slices.of, rows = model_row_ranks(m)> 1;
    const bool meets[] = {
        [MEET_NEVER] = false,           [MEET_ROWS] = true,   [MEET_SUM] = slices, [MEET_SUM_OF_ROWS] = m->slices.rows,
        [MEET_SOFTMAX] = slices | rows, [MEET_PICK] = slices, [MEET_SPAN] = rows};
    return meets[t->meets];
}

static void put_meeting(showing *s, const step *t) {
    static const char *const what[] = {[MEET_ROWS] = "rows that others have",
                                       [MEET_SUM] = "a sum over slices",
                                       [MEET_SUM_OF_ROWS] = "sums over slices of rows",
                                       [MEET_SOFTMAX] = "softmax over slices of the vocabulary",
                                       [MEET_PICK] = "rows of the table that others have",
                                       [MEET_SPAN] = "sums over the samples of a span"};
    bool slices = s->m->slices.of > 1, meets = show_meets(s->m, t),
         here = t->meets == MEET_SUM || t->meets == MEET_SUM_OF_ROWS || t->meets == MEET_SPAN ||
                (t->meets == MEET_SOFTMAX && slices);
    if ((!slices && s->m->tokens.of == 1) || (!meets && !here)) return;
    end_line(s), begin_line(s);
    bool losses = t->meets == MEET_SOFTMAX && s->m->slices.count == s->m->slices.of;  // of other rows are elsewhere
    put(s, meets ? "ranks meet:" : "all are here:");
    put(s, meets && losses ? "losses of all rows" : what[t->meets]);
}

static void print_step(showing *s, const step *t, int number) {
    s->left[0] = say("%4d  %s", number, t->name), s->left[1] = say("%6s%s", "", ops_of(s, t).s);
    s->lines = 0;
    begin_line(s);
    int writes = put_items(s, t, WRITES, "");
    put_items(s, t, READS, writes ? "<- " : "reads ");
    put_items(s, t, USES, "uses ");
    put_items(s, t, ADDS, "adds to ");
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

// --- a form ----------------------------------------------------------------------------------------------------------

static void look_through(showing *s) {
    for (int k = 0; k < LISTS; k++)
        for (int i = 0; i < s->x->list[k].count; i++) {
            const step *t = &s->x->list[k].at[i];
            for (int j = 0; j < t->count; j++) s->in[t->v[j]] |= 1U << k;
            s->wide = longer(longer(s->wide, t->name), ops_of(s, t).s);
        }
    s->in[0] = 0;
    s->wide += 6;  // the number
}

static void print_title(const showing *s, int form) {
    const model *m = s->m;
    fprintf(s->out, "\n%s: %s\n  ", m->block[form].name, numbers_of(m, form).s);
    if (m->context)
        fprintf(s->out, "B = %" PRId64 "  T = %" PRId64 "  N = B T = %" PRId64, s->f.p->B, m->context, s->f.all);
    else fprintf(s->out, "N = B = %" PRId64, s->f.all);
    for (int i = 0; i < s->letters; i++) fprintf(s->out, "  %s = %" PRId64, s->letter[i].text, s->letter[i].number);
    fprintf(s->out, "\n\n");
}

static void print_memory(const showing *s, int form) {
    int64_t most[REGION_SCRATCH + 1] = {0};
    for (int i = 0; i < VARIANTS; i++)
        for (region in = REGION_KEPT; in <= REGION_SCRATCH; in++) {
            int64_t bytes = s->m->net->form[i][form].bytes[in];
            if (bytes > most[in]) most[in] = bytes;
        }
    fprintf(s->out,
            "\n  bytes: kept %" PRId64 " for each micro-batch; held %" PRId64 " and scratch %" PRId64
            " for all blocks\n",
            most[REGION_KEPT], most[REGION_HELD], most[REGION_SCRATCH]);
}

void show_lists(const model *m, int form, FILE *out) {
    // The second title: of the last block, and of a backward in halves.
    static const char *const titles[LISTS][2] = {
        [LIST_FORWARD] = {"forward", "forward, when nothing is trained"},
        [LIST_AGAIN] = {"computed again before backward, unless its forward was the last to run",
                        "backward, first what forward would have left"},
        [LIST_BACKWARD] = {"backward", "backward, first half: gradients of values"},
        [LIST_WEIGHTS] = {"", "backward, second half: gradients of weights"},
    };
    net *l = m->net;
    char somewhere = 0;
    pass p = {.B = l->B, .in = {{.size = {l->B, m->context ? m->context : 1, 1, 1}}}};
    showing s = {.m = m,
                 .k = &l->g.block[form],
                 .x = &l->form[graph_drops(&l->g) ? WITH_DROPOUT : WITHOUT_DROPOUT][form],
                 .out = out};
    s.f = frame_of(l, form, &p, s.x);
    for (int i = 0; i < REGIONS; i++) s.f.base[i] = &somewhere;
    look_through(&s);
    find_letters(&s);
    print_title(&s, form);
    print_values(&s);
    for (int k = 0; k < LISTS; k++)
        print_list(&s, k, titles[k][k <= LIST_AGAIN ? !s.k->out : s.x->list[LIST_WEIGHTS].count > 0]);
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
