// test/test_page_answers.c: what a page says of answers.json (trainer/report/answers.c): its table, its pictures, and
// that nothing in the file can become more than text, numbers and pictures.
#include "test/support/page.h"

#define DOT "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="

#define SAMPLE(n, label, answer, sure, png) \
    "{\"sample\":" #n ",\"label\":" #label ",\"answer\":" #answer ",\"sure\":" #sure ",\"png\":" png "}"

// Of 3 cats 2, of 4 dogs all, of 3 owls none are known: two are dogs, one is a cat.
static const char three[] =
    "{\"step\":1400,\"samples\":10,\"right\":6,\"of_classes\":4,\n\"classes\":["
    "{\"label\":0,\"name\":\"cat\",\"of\":3,\"right\":2,\"said\":3},"
    "{\"label\":1,\"name\":\"dog\",\"of\":4,\"right\":4,\"said\":7},"
    "{\"label\":3,\"name\":null,\"of\":3,\"right\":0,\"said\":0}],\n\"pairs\":["
    "{\"label\":3,\"answer\":1,\"count\":2},{\"label\":0,\"answer\":1,\"count\":1},{\"label\":3,\"answer\":0,\"count\":1}],\n"
    "\"examples\":[" SAMPLE(0, 0, 0, 0.75, "\"" DOT "\"") "," SAMPLE(
        5, 3, 1, 0.9999999, "\"" DOT "\"") "],\n"
                                           "\"mistakes\":[" SAMPLE(5, 3, 1, null, "null") "]}\n";

static void put_run(const char *dir, const char *answers) {
    put(dir, "log.jsonl", "{\"t\":\"step\",\"step\":1400,\"loss\":2,\"samples\":8,\"ms\":1}\n");
    if (answers) put(dir, "answers.json", answers);
}

static char *page_of(const char *dir) {
    size_t n;
    return render(&dir, 1, &n);
}

static void is_row(const char *page, const char *head, int n, const char *const *want) {
    char cell[CELLS][64], begins[64];
    snprintf(begins, sizeof begins, "<tr><th scope=\"row\">%s</th>", head);
    const char *row = strstr(page, begins);
    if (!row) fail_msg("no row of %s", head);
    assert_int_equal(cells(row, cell), n + 1);
    for (int i = 0; i < n; i++) assert_string_equal(cell[i + 1], want[i]);
}

static void table(void **state) {
    (void)state;
    put_run("run", three);
    char *page = page_of("run");
    is_row(page, "cat", 4, (const char *const[]){"2", "1", "", "66.7\u00a0%"});
    is_row(page, "dog", 4, (const char *const[]){"", "4", "", "100.0\u00a0%"});
    is_row(page, "3", 4, (const char *const[]){"1", "2", "", "0.0\u00a0%"});
    is_row(page, "precision", 4, (const char *const[]){"66.7\u00a0%", "57.1\u00a0%", "–", ""});
    assert_non_null(strstr(page, "<td style=\"background:rgba(0,114,178,0.45)\">4</td>"));
    assert_non_null(strstr(page, "<td style=\"background:rgba(213,94,0,0.30)\">1</td>"));
    assert_non_null(strstr(page, "After step 1,400 it knew 6 of 10 samples of the validation data, 60.0\u00a0%."));
    free(page);
}

static void pictures(void **state) {
    (void)state;
    put_run("run", three);
    char *page = page_of("run");
    assert_int_equal(count(page, "<img "), 2);
    assert_int_equal(count(page, "src=\"data:image/png;base64," DOT "\""), 2);
    assert_non_null(strstr(page, "<img width=\"96\" height=\"96\" alt=\"sample 0, cat\""));
    assert_non_null(strstr(page, "<b>cat</b><small>says cat, 75.0\u00a0%</small>"));
    assert_non_null(strstr(page, "<b>3</b><small>says dog, &gt;\u00a099.9\u00a0%</small>"));
    assert_non_null(strstr(page, "<b>3</b><small>says dog, –</small>"));
    assert_int_equal(count(page, "<figure class=\"u\">"), 2);
    assert_non_null(strstr(page, "style-src 'unsafe-inline'; img-src data:\""));
    free(page);
}

// A class and what of it was known, for so many classes, each larger than the one before; of the last ones less.
static void put_many(const char *dir, int classes) {
    char line[256];
    put_run(dir, NULL);
    put(dir, "answers.json", "{\"step\":1,\"samples\":1,\"right\":0,\"classes\":[");
    for (int c = 0; c < classes; c++) {
        snprintf(line, sizeof line, "%s{\"label\":%d,\"name\":\"n%d\",\"of\":%d,\"right\":%d,\"said\":50}",
                 c ? "," : "", c, c, 100 + c, 99 - c);
        put(dir, "answers.json", line);
    }
    put(dir, "answers.json", "],\"pairs\":[");
    for (int c = 0; c + 1 < classes; c++) {
        snprintf(line, sizeof line, "%s{\"label\":%d,\"answer\":%d,\"count\":%d}", c ? "," : "", c, c + 1, 99 - c);
        put(dir, "answers.json", line);
    }
    put(dir, "answers.json", "],\"examples\":[],\"mistakes\":[]}");
}

static void many_classes(void **state) {
    (void)state;
    put_many("twenty", 20);
    put_many("more", 21);
    char *page = page_of("twenty");
    assert_int_equal(count(page, "precision</th>"), 1);
    assert_null(strstr(page, "Taken for each other"));
    free(page);
    page = page_of("more");
    char *pairs = strstr(page, "Taken for each other most often"), *worst = strstr(page, "Classes that it knows worst");
    assert_true(pairs && worst && pairs < worst);
    is_row(pairs, "n0", 3, (const char *const[]){"n1", "99", "100"});
    is_row(worst, "n20", 3, (const char *const[]){"120", "65.8\u00a0%", "158.0\u00a0%"});
    assert_int_equal(count(pairs, "<tr><th scope=\"row\">n") - count(worst, "<tr><th scope=\"row\">n"), 20);
    assert_int_equal(count(worst, "<tr><th scope=\"row\">n"), 20);
    assert_null(strstr(worst, "<th scope=\"row\">n0<"));
    free(page);
}

// Names, numbers and pictures that are none.
static void hostile(void **state) {
    static const char evil[] =
        "{\"step\":-1e9,\"samples\":\"<script>\",\"right\":9223372036854775807,\"classes\":["
        "{\"label\":0,\"name\":\"</table><script>x</script>\\u001b[31m\",\"of\":-5,\"right\":7,\"said\":-1},5,null,[1]],"
        "\"pairs\":[{\"label\":0,\"answer\":0,\"count\":\"<img>\"},7],\"examples\":["
        "{\"sample\":0,\"label\":0,\"answer\":-7,\"sure\":1e308,\"png\":\"" DOT "\\\"><script>\"},"
        "{\"sample\":0,\"label\":0,\"answer\":0,\"sure\":-2,\"png\":\"iVBORw0KGgo=\"},"
        "{\"sample\":0,\"label\":0,\"answer\":0,\"sure\":[],\"png\":\"PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pjxi\"},"
        "{\"png\":\"eHh4eHh4eHh4eHh4eHh4eAAAAAEAAAAB\"},{\"png\":\"iVBORw0KGgoAAAANSUhEUgAAAAAAAAAB\"},{\"png\":\"iVBORw0KGgoAAAANSUhEUgAAAAH/////\"},"
        "\"<script>\",{}],\"mistakes\":[{\"png\":{}}]}";
    (void)state;
    put_run("evil", evil);
    char *page = page_of("evil");
    assert_int_equal(count(page, "<script"), 0);
    assert_int_equal(count(page, "<img"), 0);
    assert_int_equal(count(page, "\x1b"), 0);
    assert_int_equal(count(page, "nan") + count(page, "inf %"), 0);
    assert_non_null(strstr(page, "&lt;/table&gt;&lt;script&gt;"));
    free(page);
}

// A file that is missing or damaged: what to do is said, and the rest of the page is there.
static void missing_or_damaged(void **state) {
    static const char *const damaged[] = {"",
                                          "{\"step\":1",
                                          "[]",
                                          "{\"classes\":[],\"pairs\":[],\"examples\":[]}",
                                          "{\"classes\":[],\"pairs\":[],\"examples\":[],\"mistakes\":{}}",
                                          "\xFF"};
    char name[16];
    (void)state;
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        snprintf(name, sizeof name, "run%zu", i);
        put_run(name, damaged[i]);
        char *page = page_of(name);
        assert_non_null(strstr(page, "<h2>What the model says</h2>\n<p class=\"d\">answers.json is damaged"));
        assert_non_null(strstr(page, "The next evaluation of the run ([eval] every) writes it, or"));
        assert_non_null(strstr(page, "Hardware and build"));
        assert_null(strstr(page, "img-src data:"));
        free(page);
    }
    put_run("none", NULL);
    char *page = page_of("none");
    assert_null(strstr(page, "What the model says"));
    free(page);
    put("none", "log.jsonl",
        "{\"t\":\"eval\",\"step\":1400,\"loss\":2.5,\"accuracy\":0.5,\"best\":2,\"best_step\":1}\n");
    page = page_of("none");
    assert_non_null(strstr(page, "answers.json is not in the run&#39;s directory. The next evaluation"));
    free(page);
}

// Beside other runs there is no room for it.
static void beside_others(void **state) {
    static const char *const dirs[] = {"one", "two"};
    size_t n;
    (void)state;
    put_run("one", three);
    put_run("two", three);
    char *page = render(dirs, 2, &n);
    assert_int_equal(count(page, "<img") + count(page, "What the model says"), 0);
    free(page);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_A_DIRECTORY(table),   IN_A_DIRECTORY(pictures),           IN_A_DIRECTORY(many_classes),
        IN_A_DIRECTORY(hostile), IN_A_DIRECTORY(missing_or_damaged), IN_A_DIRECTORY(beside_others),
    };
    return cmocka_run_group_tests_name("page_answers", tests, NULL, NULL);
}
