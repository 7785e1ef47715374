// test/test_tail.c: what `lockstep tail` prints of a log, to the letter, and the commands that are printed for a person
// who stands elsewhere. (How it follows a run that lives is in test/test_status.sh.)
#include "test/support/run.h"

#include "trainer/watch/command.h"
#include "trainer/watch/tail.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

// --- a run that ends while it is looked at ---------------------------------------------------------------------------

static int looks = -1;            // at the lock, so far; -1: nobody holds it
static char last_words[IO_PATH];  // the log, which is written once more between two looks

// The run lives at the first look. Before the second one it writes its last line, and is over.
int flock(int fd, int how) {
    (void)fd, (void)how;
    if (looks < 0) return 0;
    if (looks++ == 0) return errno = EWOULDBLOCK, -1;
    FILE *f = looks == 2 ? fopen(last_words, "a") : NULL;
    if (f) fputs("{\"t\":\"checkpoint\",\"step\":9,\"hash\":\"last\",\"ms\":0}\n", f), fclose(f);
    return 0;
}

// --- tail ------------------------------------------------------------------------------------------------------------

// What it prints of a run that nobody runs, with these arguments after the directory. The caller frees it.
static char *tailed(char *dir, char *option, char *value) {
    char path[600], *argv[] = {dir, option, value}, *text;
    size_t n;
    snprintf(path, sizeof path, "%s/printed", dir);
    fflush(stdout);
    int was = dup(STDOUT_FILENO), to = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(was >= 0 && to >= 0 && dup2(to, STDOUT_FILENO) >= 0);
    err_t rc = verb_tail(option ? 3 : 1, argv);
    fflush(stdout);
    assert_true(dup2(was, STDOUT_FILENO) >= 0 && close(was) == 0 && close(to) == 0);
    OK(rc);
    OK(io_read_file(path, 1 << 20, &text, &n));
    return text;
}

// The run's log and events; what is printed of them, before the last line, which says that nobody runs it.
static void prints(const char *log, const char *events, char *lines, const char *want) {
    char *dir = make_dir(), all[4096];
    write_text(dir, "config.ini", "[run]\nsteps = 100\n");
    write_text(dir, "log.jsonl", log);
    if (*events) write_text(dir, "events.jsonl", events);
    char *text = tailed(dir, lines ? "--lines" : NULL, lines),
         *end = strstr(text, "over    the run does not go on after step ");
    if (!end) end = strstr(text, "done    the run has all its ");
    snprintf(all, sizeof all, "%.*s", (int)(end ? end - text : 0), text);
    if (!end || strcmp(all, want) != 0) fail_msg("it prints\n%sexpected\n%s", text, want);
    free(text);
    drop_dir(dir);
}

#define STEP(n, more) \
    "{\"t\":\"step\",\"step\":" #n ",\"loss\":2.5,\"grad_norm\":1.25,\"lr\":0.001,\"ms\":100,\"data_wait_ms\":5," more \
    "}\n"
#define TOKENS "\"tokens\":9,\"tokens_per_s\":2000"
#define SAMPLES "\"samples\":9,\"samples_per_s\":20"
#define LINE(at, rate, data, eta) \
    "step   " at "%  loss 2.5000  norm 1.25  lr 1.0e-03  " rate "  data " data "  eta " eta "\n"

static void steps_that_are_printed(void **state) {
    (void)state;
    prints(STEP(10, TOKENS ",\"skipped\":false,\"time\":1000"), "", NULL,
           LINE("10/100  10", "2.0k tok/s", "5.0%", "-"));
    prints(STEP(10, SAMPLES ",\"skipped\":true"), "", NULL, LINE("10/100  10", "20 samples/s", "5.0%  skipped", "-"));
    // The time that is left is that of the steps since the first that is shown: by the clock, or as they add up.
    prints(STEP(10, TOKENS ",\"time\":1000") STEP(20, TOKENS ",\"time\":1002") STEP(40, TOKENS ",\"time\":1030"), "",
           NULL,
           LINE("10/100  10", "2.0k tok/s", "5.0%", "-") LINE("20/100  20", "2.0k tok/s", "5.0%", "16s")
               LINE("40/100  40", "2.0k tok/s", "5.0%", "1m00s"));
    prints(STEP(10, TOKENS) STEP(20, TOKENS) STEP(40, TOKENS), "", NULL,
           LINE("10/100  10", "2.0k tok/s", "5.0%", "-") LINE("20/100  20", "2.0k tok/s", "5.0%", "8s")
               LINE("40/100  40", "2.0k tok/s", "5.0%", "6s"));
    prints(STEP(10, TOKENS ",\"time\":1000") STEP(20, TOKENS ",\"time\":2000"), "", NULL,
           LINE("10/100  10", "2.0k tok/s", "5.0%", "-") LINE("20/100  20", "2.0k tok/s", "5.0%", "2h13m"));
    // it went back
    prints(STEP(50, TOKENS ",\"time\":1000") STEP(30, TOKENS ",\"time\":1100") STEP(40, TOKENS ",\"time\":1120"), "",
           NULL,
           LINE("50/100  50", "2.0k tok/s", "5.0%", "-") LINE("30/100  30", "2.0k tok/s", "5.0%", "-")
               LINE("40/100  40", "2.0k tok/s", "5.0%", "2m00s"));
}

static void records_that_are_printed(void **state) {
    (void)state;
    prints(
        "{\"t\":\"eval\",\"step\":20,\"loss\":3,\"accuracy\":0.5,\"acc_norm\":0.25,\"best\":2.75,\"possible\":2.5,\"best_step\":10,\"windows\":8,\"ms\":1500}\n"
        "{\"t\":\"eval\",\"step\":30,\"loss\":2,\"best\":2,\"best_step\":30,\"samples\":5,\"ms\":100}\n"
        "{\"t\":\"eval\",\"step\":40,\"loss\":null,\"best\":2,\"best_step\":30,\"samples\":5,\"ms\":100}\n"
        "{\"t\":\"eval\",\"step\":50,\"loss\":null,\"acc\":0.75,\"best\":null,\"best_step\":0,\"samples\":0,\"ms\":100}\n",
        "", NULL,
        "eval  step 20  loss 3.0000, best possible 2.5000 (20.0 % above)  accuracy 0.5000  acc_norm 0.2500 over 8 windows  best 2.7500 at step "
        "10  1.5 s\n"
        "eval  step 30  loss 2.0000 over 5 samples  best 2.0000 at step 30  0.1 s\n"
        "eval  step 40  loss nan over 5 samples  0.1 s\n"
        "eval  step 50  acc 0.7500  0.1 s\n");
    prints(
        "{\"t\":\"eval\",\"step\":20,\"loss\":null,\"Law-1.loss\":3,\"law\\u001b.loss\":2,\"best\":2.5,\"best_step\":10,"
        "\"best_of\":\"Law-1\",\"ms\":0}\n",
        "", NULL, "eval  step 20  Law-1.loss 3.0000  best Law-1 2.5000 at step 10  0.0 s\n");
    char line[1024] = "{\"t\":\"eval\",\"step\":20", said[1024] = "eval  step 20";
    for (int i = 0; i < 42; i++) snprintf(line + strlen(line), 32, ",\"a%d\":1", i);
    for (int i = 0; i < 40; i++) snprintf(said + strlen(said), 32, "  a%d 1.0000", i);
    prints(strcat(line, ",\"ms\":0}\n"), "", NULL, strcat(said, "  0.0 s\n"));
    prints(
        "{\"t\":\"checkpoint\",\"step\":20,\"hash\":\"0a0b\",\"ms\":1250}\n{\"t\":\"ranks\",\"step\":20}\nnonsense\n{}\n"
        "{\"t\":\"sample\",\"step\":20,\"prompt\":\"once \",\"text\":\"upon\\u001b\"}\n",
        "", NULL, "saved step 20  hash 0a0b  1.25 s\nsample at step 20\nonce upon?\n");
    prints(
        STEP(10, TOKENS),  // three events at most, and no more than lines
        "{\"kind\":\"a\",\"step\":1,\"text\":\"1\"}\n{\"kind\":\"b\",\"step\":2,\"text\":\"2\"}\n{\"kind\":\"c\",\"step\":3,\"text\":\"3\"}\n"
        "{\"kind\":\"d\",\"step\":4,\"text\":\"4\\u0007\"}\n",
        NULL, LINE("10/100  10", "2.0k tok/s", "5.0%", "-") "b: 2\nc: 3\nd: 4?\n");
    prints(STEP(10, TOKENS), "{\"kind\":\"a\",\"step\":1,\"text\":\"1\"}\n{\"kind\":\"b\",\"step\":2,\"text\":\"2\"}\n",
           "1", LINE("10/100  10", "2.0k tok/s", "5.0%", "-") "b: 2\n");
    prints(STEP(10, TOKENS), "{\"kind\":\"a\",\"step\":1,\"text\":\"1\"}\n", "0", "");
}

// Ten lines, or as many as were asked for; half a line is none.
static void as_many_as_were_asked_for(void **state) {
    (void)state;
    static const struct {
        char *lines;
        int of, shown;
        bool half;
    } cases[] = {{NULL, 5, 5, false}, {NULL, 10, 10, false},  {NULL, 11, 10, false},
                 {"1", 4, 1, false},  {"3", 3, 3, false},     {"3", 4, 3, true},
                 {"0", 4, 0, false},  {"100000", 4, 4, true}, {"12", 30, 12, false}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *dir = make_dir(), log[4096] = "", *to = log, *text;
        for (int k = 1; k <= cases[i].of; k++)
            to += sprintf(to, "{\"t\":\"checkpoint\",\"step\":%d,\"hash\":\"x\",\"ms\":0}\n", k);
        if (cases[i].half) sprintf(to, "{\"t\":\"checkpoint\",\"st");
        write_text(dir, "log.jsonl", log);
        text = tailed(dir, cases[i].lines ? "--lines" : NULL, cases[i].lines);
        int shown = 0, step;
        for (const char *at = text; sscanf(at, "saved step %d", &step) == 1; at = strchr(at, '\n') + 1, shown++)
            if (step != cases[i].of - cases[i].shown + shown + 1)
                fail_msg("case %zu: step %d is line %d", i, step, shown);
        assert_int_equal(shown, cases[i].shown);
        free(text);
        drop_dir(dir);
    }
}

// What a run wrote before it ended is shown, whenever that was.
static void the_last_words(void **state) {
    (void)state;
    char *dir = make_dir();
    OK(io_path(last_words, "%s/log.jsonl", dir));
    write_text(dir, "log.jsonl", "{\"t\":\"checkpoint\",\"step\":8,\"hash\":\"x\",\"ms\":0}\n");
    looks = 0;
    char *text = tailed(dir, NULL, NULL);
    looks = -1;
    assert_true(strncmp(text, "saved step 8  hash x  0.00 s\nsaved step 9  hash last  0.00 s\nover    ", 68) == 0);
    free(text);
    drop_dir(dir);
}

static void how_a_run_ended(void **state) {
    (void)state;
    for (int last = 99; last <= 101; last++) {
        char *dir = make_dir(), line[256], want[800];
        write_text(dir, "config.ini", "[run]\nsteps = 100\n");
        snprintf(
            line, sizeof line,
            "{\"t\":\"step\",\"step\":3,\"loss\":1}\n{\"t\":\"step\",\"step\":%d,\"loss\":1}\n{\"t\":\"eval\",\"step\":500}\n",
            last);
        write_text(dir, "log.jsonl", line);
        char *text = tailed(dir, "--lines", "0");
        snprintf(want, sizeof want,
                 last < 100 ? "over    the run does not go on after step %d; lockstep status %s says why\n"
                            : "done    the run has all its %d steps\n",
                 last, dir);
        assert_string_equal(text, want);
        free(text);
        drop_dir(dir);
    }
}

// Lines that are damaged are passed over, wherever they stand, also by what it says at the end.
static void damaged_lines(void **state) {
    (void)state;
    static const char bad[] =
        "\n{\"t\":\"step\",\"step\":70,\"lo\nnull\n[]\n{\"t\":\"step\",\"step\":70,\"loss\":\"\xFF\"}\n\0\0\0\n{\"t\":\"\0\"}\n";
    static const char *const lines[] = {"{\"t\":\"checkpoint\",\"step\":5,\"hash\":\"a\",\"ms\":0}\n", STEP(10, TOKENS),
                                        STEP(20, TOKENS),
                                        "{\"t\":\"checkpoint\",\"step\":20,\"hash\":\"b\",\"ms\":0}\n"};
    static const char *const events[] = {"{\"kind\":\"a\",\"step\":1,\"text\":\"1\"}\n",
                                         "{\"kind\":\"b\",\"step\":2,\"text\":\"2\"}\n"};
    char *first = NULL;
    for (int at = 0; at <= 4; at++) {
        char *dir = make_dir(), path[600];
        write_text(dir, "config.ini", "[run]\nsteps = 20\n");
        for (int file = 0; file < 2; file++) {  // of the events only the last three lines are asked for
            snprintf(path, sizeof path, "%s/%s", dir, file ? "events.jsonl" : "log.jsonl");
            FILE *f = fopen(path, "w");
            assert_non_null(f);
            for (int i = 0; i <= (file ? 2 : 4); i++) {
                if (i == (file ? 0 : at)) fwrite(bad, 1, sizeof bad - 1, f);
                if (i < (file ? 2 : 4)) fputs(file ? events[i] : lines[i], f);
            }
            fclose(f);
        }
        char *text = tailed(dir, "--lines", "100");
        assert_non_null(strstr(text, "done    the run has all its 20 steps\n"));
        assert_true(strstr(text, "hash a ") && strstr(text, "hash b ") && strstr(text, "step   10/20") &&
                    strstr(text, "step   20/20"));
        if (first) assert_string_equal(strstr(text, "saved"), strstr(first, "saved"));
        if (first) free(text);
        else first = text;
        drop_dir(dir);
    }
    free(first);
}

static void what_it_refuses(void **state) {
    (void)state;
    char *dir = make_dir();
    char *const wrong[][3] = {{"--lines", "-1", dir}, {"--lines", "x", dir},      {"--lines", "", dir},
                              {"--lines", "1x", dir}, {"--lines", "100001", dir}, {dir, dir, NULL},
                              {dir, "--lines", NULL}, {dir, "-n", NULL},          {"--lines", "3", NULL}};
    write_text(dir, "log.jsonl", "");
    for (size_t i = 0; i < COUNT(wrong); i++) {
        char *argv[3] = {wrong[i][0], wrong[i][1], wrong[i][2]};
        assert_int_equal(verb_tail(argv[2] ? 3 : 2, argv), ERR_USAGE);
    }
    assert_int_equal(verb_tail(0, NULL), ERR_USAGE);
    drop_dir(dir);
}

// --- commands --------------------------------------------------------------------------------------------------------

// Where a command runs, and its arguments, a line each, as a shell has them that stands here.
static void run_by_a_shell(const char *command, char *dst, size_t room) {
    char script[4096];
    snprintf(script, sizeof script, "lockstep() { pwd; printf '%%s\\n' \"$@\"; }\n%s", command);
    int pipe_of[2];
    size_t n = 0;
    ssize_t got;
    assert_int_equal(pipe(pipe_of), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(pipe_of[1], STDOUT_FILENO);
        execl("/bin/sh", "sh", "-c", script, (char *)NULL);
        _exit(127);
    }
    close(pipe_of[1]);
    while ((got = read(pipe_of[0], dst + n, room - 1 - n)) > 0) n += (size_t)got;
    dst[n] = 0;
    close(pipe_of[0]);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

// Whatever its run and directories are called, a command works where its reader stands: here, or anywhere else.
static void commands_for_who_stands_elsewhere(void **state) {
    (void)state;
    static const char *const dirs[] = {"runs", "./runs", "././/runs", "deep down/runs", "-runs", "."},
                             *const names[] = {"a", "it's", "-x", "a b", "a@b$c", "\"q\""};
    char *root = make_dir(), *home = getcwd(NULL, 0), here[IO_PATH], path[IO_PATH], text[IO_PATH], got[4096],
         want[4096], command[4096];
    assert_true(home && realpath(root, here));
    for (size_t d = 0; d < COUNT(dirs); d++)
        for (size_t k = 0; k < COUNT(names); k++)
            for (int away = 0; away < 2; away++) {
                if (d > 0 && d + 1 < COUNT(dirs) && k > 2) continue;
                const char *name = names[k];
                OK(io_path(path, "%s/%s/%s", here, dirs[d], name));
                OK(io_mkdirs(path));
                snprintf(text, sizeof text, "[run]\ndir = \"%s\"\nname = \"%s\"\n", dirs[d],
                         *name == '"' ? "\\\"q\\\"" : name);
                write_text(path, "config.ini", text);
                assert_int_equal(chdir(away ? "/" : here), 0);
                char given[IO_PATH];
                OK(io_path(given, "%s/%s", dirs[d], name));
                command_of(command, sizeof command, "", "eval ", away ? path : given);
                run_by_a_shell(command, got, sizeof got);
                char *file = strrchr(got, '\n') ? strstr(strchr(got, '\n') + 1, "\n") + 1 : got,
                     *end = strchr(file, '\n');
                snprintf(want, sizeof want, "%s\neval\n", here);
                if (strncmp(got, want, strlen(want)) != 0 || !end || *file == '-') fail_msg("%s:\n%s", command, got);
                *end = 0;
                assert_int_equal(chdir(here), 0);
                if (access(file, R_OK) != 0 || !realpath(file, text)) fail_msg("%s: %s is not there", command, file);
                OK(io_path(got, "%s/config.ini", path));
                assert_true(realpath(got, want) && strcmp(text, want) == 0);
                // What the run itself said works there, too, if it is a command of lockstep; else it stays what it is.
                assert_int_equal(chdir(away ? "/" : here), 0);
                command_from(command, sizeof command, "lockstep fork a@best b", away ? path : given);
                run_by_a_shell(command, got, sizeof got);
                snprintf(want, sizeof want, "%s\nfork\na@best\nb\n", here);
                assert_string_equal(got, want);
                command_from(command, sizeof command, "lockstepper; df -h", away ? path : given);
                assert_string_equal(command, "lockstepper; df -h");
            }
    assert_int_equal(chdir(home), 0);
    command_on(command, sizeof command, "df -h", "a b");
    assert_string_equal(command, "df -h 'a b'");
    free(home);
    drop_dir(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_that_are_printed),
        cmocka_unit_test(records_that_are_printed),
        cmocka_unit_test(as_many_as_were_asked_for),
        cmocka_unit_test(how_a_run_ended),
        cmocka_unit_test(the_last_words),
        cmocka_unit_test(what_it_refuses),
        cmocka_unit_test(damaged_lines),
        cmocka_unit_test(commands_for_who_stands_elsewhere),
    };
    return cmocka_run_group_tests_name("tail", tests, NULL, NULL);
}
