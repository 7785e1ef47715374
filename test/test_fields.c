// test/test_fields.c: files of texts and what is said of them, as fields (data/text/fields.h): which member or column
// is which, in lines of JSON and in tables, and what counts as a line. And how two texts are cut to what there is room
// for.
#include "data/text/fields.h"
#include "test/support/expect.h"
#include "test/support/place.h"

// --- files -----------------------------------------------------------------------------------------------------------

// Of each sample TEXT+TEXT_B=LABEL and a space; a field that it has not is a dash.
typedef struct found {
    char text[512];
    int samples;
} found;

static err_t keep(void *ctx, const field *x) {
    found *f = ctx;
    if (x[FIELD_TEXT].at && x[FIELD_TEXT].n == 6 && memcmp(x[FIELD_TEXT].at, "refuse", 6) == 0)
        return err_set(ERR_DATA, "it is refused");
    for (int k = 0; k < FIELDS && f->samples < 8; k++) {
        size_t n = strlen(f->text);
        snprintf(f->text + n, sizeof f->text - n, "%.*s%c", x[k].at ? (int)x[k].n : 1, x[k].at ? x[k].at : "-",
                 "+= "[k]);
    }
    f->samples++;
    return ERR_OK;
}

static err_t read_file(place *p, const char *name, const char *text, bool answers, field_numbers numbers, found *f) {
    fields_reader r = {.answers = answers, .numbers = numbers, .put = keep, .ctx = f};
    *f = (found){.samples = 0};
    assert_ok(io_write_file(at(p, name), text, strlen(text), NULL));
    return fields_read(&r, p->path);
}

typedef struct reading {
    const char *name, *text;
    bool answers;
    field_numbers numbers;
    const char *want;  // or what is wrong with it
    int wrong;         // its line; 0: nothing
} reading;

static void expect_all(place *p, const reading *all, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const reading *r = &all[i];
        char says[128];
        found f;
        err_t rc = read_file(p, r->name, r->text, r->answers, r->numbers, &f);
        snprintf(says, sizeof says, "%s: line %d: %s", r->name, r->wrong, r->want);
        if (r->wrong && (rc != ERR_DATA || !strstr(err_last()->text, says)))
            fail_msg("%s: %s, expected \"%s\"", r->text, rc ? err_last()->text : "read", says);
        if (!r->wrong && (rc != ERR_OK || strcmp(f.text, r->want) != 0))
            fail_msg("%s: \"%s\", expected \"%s\"", r->text, rc ? err_last()->text : f.text, r->want);
    }
}

static void members_of_a_line_are_fields(void **state) {
    static const reading all[] = {
        {"a.jsonl", "{\"text\": \"a\", \"text_b\": \"b\", \"label\": \"c\"}", false, FIELD_STRING, "a+b=c ", 0},
        {"a.jsonl", "{\"label\": \"c\", \"text\": \"a\"}\n\n \t\r\n{\"text\": \"d\"}\r\n{\"label\": \"\"}\n", false,
         FIELD_STRING, "a+-=c d+-=- -+-= ", 0},
        {"a.ndjson", "{\"text\": null, \"text_b\": null, \"label\": null, \"more\": [1]}\n", false, FIELD_STRING,
         "-+-=- ", 0},
        // a prompt goes before a text, and has no second one
        {"a.jsonl", "{\"prompt\": \"p\", \"response\": \"r\", \"text\": \"a\", \"text_b\": \"b\", \"label\": \"c\"}\n",
         true, FIELD_STRING, "p+-=r ", 0},
        {"a.jsonl", "{\"prompt\": \"p\", \"response\": \"r\", \"text\": \"a\", \"text_b\": \"b\", \"label\": \"c\"}\n",
         false, FIELD_STRING, "a+b=c ", 0},
        {"a.jsonl", "{\"prompt\": null, \"response\": \"r\", \"text\": \"a\", \"label\": \"c\"}\n", true, FIELD_STRING,
         "a+-=c ", 0},
        {"a.jsonl", "{\"prompt\": \"p\", \"label\": \"c\"}\n{\"response\": \"r\", \"text\": \"a\"}\n", true,
         FIELD_STRING, "p+-=- a+-=- ", 0},
        // numbers
        {"a.jsonl", "{\"text\": \"a\", \"label\": -12}\n", false, FIELD_WHOLE, "a+-=-12 ", 0},
        {"a.jsonl", "{\"text\": \"a\", \"label\": 0.5}\n{\"text\": \"a\", \"label\": 7}\n", false, FIELD_NUMBER,
         "a+-=0.5 a+-=7 ", 0},
        {"a.jsonl", "{\"text\": \"a\", \"label\": 1e300}\n", false, FIELD_NUMBER, "a+-=1.0000000000000001e+300 ", 0},
        {"a.jsonl", "\n{\"text\": \"a\", \"label\": 1}\n", false, FIELD_STRING, "its label is not a string", 2},
        {"a.jsonl", "{\"text\": \"a\", \"label\": 0.5}\n", false, FIELD_WHOLE,
         "its label is not a string or a whole number", 1},
        {"a.jsonl", "{\"text\": \"a\", \"label\": []}\n", false, FIELD_NUMBER, "its label is not a string or a number",
         1},
        {"a.jsonl", "{\"text\": 1, \"label\": 1}\n", false, FIELD_NUMBER, "its text is not a string", 1},
        {"a.jsonl", "{\"text\": \"a\", \"text_b\": 1}\n", false, FIELD_NUMBER, "its text_b is not a string", 1},
        {"a.jsonl", "{\"prompt\": \"a\", \"response\": 1}\n", true, FIELD_NUMBER, "its response is not a string", 1},
        {"a.jsonl", "{\"prompt\": 1, \"response\": \"a\"}\n", true, FIELD_NUMBER, "its prompt is not a string", 1},
        {"a.jsonl", "{\"text\": \"a\"}\n\n\n{\"text\": \"refuse\"}\n", false, FIELD_STRING, "it is refused", 4},
        {"a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"", false, FIELD_STRING, "", 2},
    };
    expect_all(*state, all, sizeof all / sizeof *all);
}

static void columns_of_a_table_are_fields(void **state) {
    static const reading all[] = {
        {"a.tsv", "text\tlabel\na\tb\n", false, FIELD_STRING, "a+-=b ", 0},
        {"a.tsv", "\n \nid\tlabel\tsentence2\tmore\tsentence1\n1\tc\tb\tx\ta\n\n2\tf\te\ty\td\tz\r\n3\ti", false,
         FIELD_STRING, "a+b=c d+e=f -+-=i ", 0},
        {"a.tsv", "sentence\tlabel\r\n\tb\na\t\n", false, FIELD_STRING, "+-=b a+-= ", 0},
        {"a.tsv", "text_b\ttext\tlabel\nb\ta\t1.5\n", false, FIELD_STRING, "a+b=1.5 ", 0},
        {"a.tsv", "response\tprompt\nr\tp\n", true, FIELD_STRING, "p+-=r ", 0},
        {"a.tsv", "response\ttext\tprompt\tlabel\nr\ta\tp\tc\n", false, FIELD_STRING, "a+-=c ", 0},
        // names are whole, and as they are written
        {"a.tsv", "text1\tlabel\na\tb\n", false, FIELD_STRING, "its header names no column text", 1},
        {"a.tsv", "Text\tlabel\na\tb\n", false, FIELD_STRING, "its header names no column text", 1},
        {"a.tsv", "tex\tlabel\na\tb\n", false, FIELD_STRING, "its header names no column text", 1},
        {"a.tsv", "\n\ntext\tlabels\na\tb\n", false, FIELD_STRING, "its header names no column label", 3},
        {"a.tsv", "prompt\tresponse\na\tb\n", false, FIELD_STRING, "its header names no column text", 1},
        {"a.tsv", "text\tlabel\na\tb\n\nrefuse\tb\n", false, FIELD_STRING, "it is refused", 4},
    };
    expect_all(*state, all, sizeof all / sizeof *all);
    found f;
    assert_error(read_file(*state, "a.csv", "text,label\n", false, FIELD_STRING, &f), ERR_DATA,
                 "a.csv: texts with labels are lines of JSON or of a table");
    assert_error(read_file(*state, "atsv", "text\tlabel\n", true, FIELD_STRING, &f), ERR_DATA,
                 "atsv: texts and what is said of them are lines");
    assert_error(read_file(*state, ".tsv.gz", "x", true, FIELD_STRING, &f), ERR_DATA, ".tsv.gz");
}

typedef struct reports {
    int64_t done[8];
    int n;
} reports;
static void report(void *ctx, int64_t done) {
    reports *r = ctx;
    assert_true(r->n < 8);
    r->done[r->n++] = done;
}

// Every 256 lines it is said how much of the input was read, of all files together.
static void progress_is_of_all_files(void **state) {
    enum { LINES = 600 };
    place *p = *state;
    static const char line[] = "{\"text\": \"a\"}\n";
    int64_t size = LINES * (int64_t)strlen(line);
    char *text = calloc(LINES, sizeof line);
    found f = {.samples = 0};
    reports said = {.n = 0};
    fields_reader r = {.put = keep, .progress = report, .ctx = &f, .progress_ctx = &said};
    for (int i = 0; i < LINES; i++) memcpy(text + (size_t)i * strlen(line), line, strlen(line));
    assert_ok(io_write_file(at(p, "a.jsonl"), text, (size_t)size, NULL));
    free(text);
    for (int i = 0; i < 2; i++) assert_ok(fields_read(&r, p->path));
    assert_int_equal(f.samples, 2 * LINES), assert_int_equal(said.n, 4), assert_int_equal(r.before, 2 * size);
    for (int i = 0; i < 4; i++) assert_true(said.done[i] > i / 2 * size && said.done[i] <= (i / 2 + 1) * size);
}

// --- two texts -------------------------------------------------------------------------------------------------------

// As `tokenizers` has it: the longer one loses its end until both are equal, and of what both lose an odd token is the
// first one's.
static void two_texts_are_cut_to_what_there_is_room_for(void **state) {
    (void)state;
    static const struct {
        int64_t a, b, room, left_a, left_b;
    } rows[] = {
        {5, 5, 10, 5, 5}, {5, 5, 11, 5, 5}, {5, 5, 9, 4, 5},  {5, 5, 8, 4, 4},  {5, 5, 7, 3, 4},  {5, 5, 1, 0, 1},
        {5, 5, 0, 0, 0},  {9, 3, 12, 9, 3}, {9, 3, 11, 8, 3}, {9, 3, 6, 3, 3},  {9, 3, 5, 3, 2},  {9, 3, 4, 2, 2},
        {3, 9, 11, 3, 8}, {3, 9, 6, 3, 3},  {3, 9, 5, 2, 3},  {3, 9, 4, 2, 2},  {9, 0, 9, 9, 0},  {9, 0, 8, 8, 0},
        {0, 9, 9, 0, 9},  {0, 9, 8, 0, 8},  {0, 0, 0, 0, 0},  {6, 5, 10, 5, 5}, {5, 6, 10, 5, 5}, {6, 5, 9, 5, 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        id_list a = {.n = rows[i].a}, b = {.n = rows[i].b};
        bool cut = fields_cut(&a, &b, rows[i].room);
        if (a.n != rows[i].left_a || b.n != rows[i].left_b || cut != (rows[i].a + rows[i].b > rows[i].room))
            fail_msg("%d and %d tokens with room for %d: %d and %d%s, expected %d and %d", (int)rows[i].a,
                     (int)rows[i].b, (int)rows[i].room, (int)a.n, (int)b.n, cut ? ", cut" : "", (int)rows[i].left_a,
                     (int)rows[i].left_b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(members_of_a_line_are_fields, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(columns_of_a_table_are_fields, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(progress_is_of_all_files, place_enter, place_leave),
        cmocka_unit_test(two_texts_are_cut_to_what_there_is_room_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
