// main.c: verbs and exit codes. Only this file prints errors and decides how the process ends.
#include "base/version.h"
#include "data/tokenizer/stream.h"
#include "gpu/revision.h"
#include "trainer/bench.h"
#include "trainer/calls.h"
#include "trainer/checkpoint/vault.h"
#include "trainer/command.h"
#include "trainer/config/config.h"
#include "trainer/data_files.h"
#include "trainer/epochs.h"
#include "trainer/costs/failures.h"
#include "trainer/flight.h"
#include "trainer/fork.h"
#include "trainer/node/supervisor.h"
#include "trainer/plan/plan.h"
#include "trainer/report/report.h"
#include "trainer/plan/search.h"
#include "trainer/session/session.h"
#include "trainer/train.h"
#include "trainer/verbs.h"
#include "trainer/watch/pages.h"
#include "trainer/watch/status.h"
#include "trainer/watch/tail.h"
#include "trainer/watch/watcher.h"
#include "trainer/wires.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct arguments {
    command words;
    bool parts, links, comm;  // bench step, bench links, bench comm
} arguments;

static void print_error(err_t rc) {
    const err_record *e = err_last();
    if (!*e->text) return;  // it was printed before, or by another process of this run
    fprintf(stderr, "lockstep: %s\n", e->text);
    if (rc == ERR_USAGE) fputs("`lockstep --help` shows what there is.\n", stderr);
    if (rc != ERR_INTERNAL) return;  // the trail helps only with internal errors
    for (int i = 0; i < e->depth; i++)
        fprintf(stderr, "  %s:%d %s\n", e->trail[i].file, e->trail[i].line, e->trail[i].func);
}

static const char *given(const arguments *a, const char *option) { return command_value(&a->words, option); }

static err_t parse_steps(const char *text, int64_t *steps) {
    char *end;
    *steps = 20;
    if (!text) return ERR_OK;
    long n = strtol(text, &end, 10);
    if (*text == 0 || *end || n < 1 || n > 1000000)
        return err_set(ERR_USAGE, "--steps %s: expected a number from 1 to 1000000", text);
    *steps = n;
    return ERR_OK;
}

// --- verbs -----------------------------------------------------------------------------------------------------------

// Returns in every rank, and in the process that started them.
static err_t do_train(const config *c, const arguments *a) {
    (void)a;
    int rank, world;
    const supervised of = {.fits = session_fits,
                           .rank = train_rank,
                           .watch = c->log.watch ? watch_run : NULL,
                           .records = true,
                           .heals = c->cluster.elastic,
                           .keep = c->snapshot.every ? vault_make : NULL};
    TRY(pages_check(c));
    err_t rc = supervise(c, &of, &rank, &world);
    bool said = rc == ERR_INTERRUPTED && rank > 0;  // rank 0 has reported it: all stopped together
    return said ? err_set(rc, "%s", "") : rc;
}

static err_t do_config(const config *c, const arguments *a) {
    if (a->words.count || a->words.override_count) config_print(c, stdout);
    else config_print_defaults(stdout);
    return ERR_OK;
}

static err_t do_check(const config *c, const arguments *a) {
    (void)a;
    return verb_check(c, stdout);
}
static err_t do_plan(const config *c, const arguments *a) {
    const char *block = given(a, "--graph");
    search_asked asked = {.cluster = given(a, "--cluster"),
                          .costs = given(a, "--costs"),
                          .free = given(a, "--free"),
                          .trace = given(a, "--trace"),
                          .json = given(a, "--json") != NULL};
    asked.own = !given(a, "--search");
    if (asked.costs && asked.own && asked.free)
        return err_set(ERR_USAGE, "--free goes with --search, which is not here");
    if (!asked.own || asked.costs) return verb_search(c, &asked, stdout);
    if (asked.free || asked.trace || asked.json)
        return err_set(ERR_USAGE, "--free, --trace and --json go with --search or --costs, which are not here");
    if (block && given(a, "--draw"))
        return err_set(ERR_USAGE,
                       "--graph prints a model's blocks, --draw a pipeline's schedule: expected one of them");
    return block ? verb_graph(c, block, stdout) : verb_plan(c, given(a, "--draw"), given(a, "--cluster"), stdout);
}
static err_t do_pack(const config *c, const arguments *a) {
    (void)a;
    return verb_pack(c, stdout);
}
static err_t do_tune(const config *c, const arguments *a) {
    (void)a;
    return verb_tune(c, stdout);
}
static err_t do_sample(const config *c, const arguments *a) {
    return verb_sample(c, given(a, "--ckpt"), given(a, "--prompt"), given(a, "--prompts"), stdout);
}

static err_t set_path(char to[CONFIG_TEXT], const char *option, const char *path) {
    if (path && strlen(path) >= CONFIG_TEXT)
        return err_set(ERR_USAGE, "%s: a path of at most %d bytes, found %zu", option, CONFIG_TEXT - 1, strlen(path));
    strcpy(to, path ? path : "");
    return ERR_OK;
}

// Of [eval] sets.
static err_t find_set(config *c, const char *name) {
    eval_sets s;
    char names[SETS_NAMES];
    TRY(sets_parse(&s, c->eval.sets));
    c->eval_set = name;
    if (sets_find(&s, name) >= 0) return ERR_OK;
    return err_set(ERR_USAGE, "--set %s: %s%s", name, s.count ? "expected " : "[eval] sets names none",
                   sets_names(&s, names));
}

// --set, --text and --choices ask for themselves only, in place of what the INI says.
static err_t ask(config *c, const arguments *a) {
    const char *protocol = given(a, "--protocol"), *set = given(a, "--set"), *text = given(a, "--text"),
               *choices = given(a, "--choices");
    c->eval_ckpt = given(a, "--ckpt");
    c->eval_answers = given(a, "--answers");
    c->sample.batch = 1;  // nothing is written
    if (protocol && strcmp(protocol, "llmc") != 0 && strcmp(protocol, "lm-eval") != 0)
        return err_set(ERR_USAGE, "--protocol %s: expected lm-eval or llmc", protocol);
    if (protocol) c->eval.protocol = strcmp(protocol, "llmc") == 0 ? PROTOCOL_LLMC : PROTOCOL_LM_EVAL;
    if (!text && !choices && !set) return ERR_OK;
    if (c->eval_answers)
        return err_set(ERR_USAGE,
                       "--answers is about the validation data, which --set, --text and --choices leave out");
    c->data.val[0] = 0;
    c->data.holdout = 0;
    if (set) TRY(find_set(c, set));
    else c->eval.sets[0] = 0;
    TRY(set_path(c->eval.text, "--text", text));
    return set_path(c->eval.choices, "--choices", choices);
}

// One rank needs no supervisor: Ctrl-C ends it at once.
static err_t do_eval(const config *c, const arguments *a) {
    config asked = *c;
    int rank, world;
    bool alone =
        !*c->cluster.nodes && (c->device.ranks == 1 || (c->device.ranks == 0 && c->resolved.kind == DEVICE_CPU));
    TRY(ask(&asked, a));
    return alone ? verb_eval(&asked, stdout)
                 : supervise(&asked, &(supervised){.fits = session_fits, .rank = eval_rank}, &rank, &world);
}

static err_t do_bench(const config *c, const arguments *a) {
    config timed = *c;
    int rank, world;
    TRY(parse_steps(given(a, "--steps"), &timed.run.steps));
    timed.save = given(a, "--save");
    if (timed.save && !a->parts && !a->comm)
        return err_set(ERR_USAGE, "--save %s: bench step saves times of operations, bench comm those of messages",
                       timed.save);
    return supervise(&timed,
                     &(supervised){.fits = session_fits,
                                   .rank = a->links   ? wires_rank
                                           : a->comm  ? calls_rank
                                           : a->parts ? bench_step_rank
                                                      : bench_rank},
                     &rank, &world);
}

// All of them, whatever is wrong with some; the exit code is that of the first failure.
static err_t do_hash(int argc, char **argv, FILE *out) {
    if (argc == 0)
        return err_set(ERR_USAGE, "lockstep hash: expected a checkpoint directory, or a run's, e.g. runs/default");
    err_t first = ERR_OK;
    for (int i = 0; i < argc; i++) {
        err_t rc = verb_hash(argv[i], out);
        if (rc == ERR_OK) continue;
        fflush(out);  // what was printed before it
        print_error(rc);
        if (first == ERR_OK) first = rc;
    }
    return first == ERR_OK ? ERR_OK : err_set(first, "%s", "");
}

static err_t do_tail(int argc, char **argv, FILE *out) {
    (void)out;
    return verb_tail(argc, argv);
}

// One of the four: of a verb with INI files, of one that reads settings itself, of one that takes its arguments
// itself, and of one that says how the process exits.
typedef struct verb {
    err_t (*run)(const config *c, const arguments *a);
    err_t (*reads)(const command *words, FILE *out);
    err_t (*words)(int argc, char **argv, FILE *out);
    err_t (*verdict)(int argc, char **argv, FILE *out, int *verdict);
    bool computes;  // on a device, so that it must be known which
    bool trains;    // so that it must be known for how many steps
} verb;

static const verb verbs[VERB_COUNT] = {
    [VERB_train] = {.run = do_train, .computes = true, .trains = true},
    [VERB_check] = {.run = do_check, .computes = true, .trains = true},
    [VERB_plan] = {.run = do_plan, .computes = true, .trains = true},
    [VERB_config] = {.run = do_config},
    [VERB_pack] = {.run = do_pack},
    [VERB_tokenize] = {.words = verb_tokenize},
    [VERB_data] = {.words = verb_data},
    [VERB_eval] = {.run = do_eval, .computes = true},
    [VERB_sample] = {.run = do_sample, .computes = true},
    [VERB_status] = {.verdict = verb_status},
    [VERB_tail] = {.words = do_tail},
    [VERB_flight] = {.words = verb_flight},
    [VERB_fork] = {.reads = verb_fork},
    [VERB_hash] = {.words = do_hash},
    [VERB_export] = {.words = verb_export},
    [VERB_inspect] = {.words = verb_inspect},
    [VERB_bench] = {.run = do_bench, .computes = true},
    [VERB_tune] = {.run = do_tune, .computes = true},
    [VERB_report] = {.words = verb_report},
    [VERB_compare] = {.words = verb_compare},
    [VERB_failures] = {.reads = verb_failures},
};

// Which device `auto` is. A GPU that is there and can't be used is never passed over in silence.
static err_t decide(config *c) {
    device_found found;
    if (c->device.backend != DEVICE_AUTO) return ERR_OK;
    TRY(device_find(&found));
    if (found.kind == DEVICE_CPU && found.gpu[0])
        fprintf(
            stderr,
            "lockstep: this machine has a GPU (%s), and this run is on the CPU: %s\n"
            "lockstep: [device] backend = cuda insists on the GPU, and says what it lacks; backend = cpu says that the CPU is meant\n",
            found.gpu, found.why);
    return config_decide(c, found.kind, found.why);
}

static err_t run_with(const verb *v, const arguments *a, config *c) {
    const command *w = &a->words;
    const char *name = w->page->name;
    if (w->count < w->page->files)
        return err_set(ERR_USAGE, "lockstep %s: expected an INI file, e.g. lockstep %s config.ini", name, name);
    if (w->count > CONFIG_FILES_MAX) return err_set(ERR_USAGE, "more than %d files", CONFIG_FILES_MAX);
    TRY(config_load_with(c, w->words, w->count, w->overrides, w->override_count));
    if (v->trains) TRY(epochs_settle(c));
    if (v->computes) TRY(decide(c));
    return v->run(c, a);
}

static err_t run_config_verb(const verb *v, const command *words) {
    arguments a = {.words = *words};
    bool part = v->run == do_bench && words->count > 0;
    a.parts = part && strcmp(words->words[0], "step") == 0;
    a.links = part && strcmp(words->words[0], "links") == 0;
    a.comm = part && strcmp(words->words[0], "comm") == 0;
    if (a.parts || a.links || a.comm) a.words.words++, a.words.count--;
    config *c = calloc(1, sizeof *c);
    if (!c) return err_set(ERR_INTERNAL, "no memory for the settings");
    err_t rc = run_with(v, &a, c);
    free(c);
    return rc;
}

static err_t run_verb(int number, int argc, char **argv, int *verdict) {
    const verb *v = &verbs[number];
    command words;
    if (command_asks_help(&verb_pages[number], argc, argv))
        return command_print_help(&verb_pages[number], stdout), ERR_OK;
    TRY(command_parse(&words, &verb_pages[number], argc, argv));
    err_t rc = v->run     ? run_config_verb(v, &words)
               : v->reads ? v->reads(&words, stdout)
               : v->words ? v->words(argc, argv, stdout)
                          : v->verdict(argc, argv, stdout, verdict);
    command_free(&words);
    return rc;
}

// A directory, too: what is said of one is what to do.
static bool is_config(const char *word) {
    size_t n = strlen(word);
    struct stat st;
    if (stat(word, &st) == 0 && S_ISDIR(st.st_mode)) return true;
    return strchr(word, '/') || (n > 4 && strcmp(word + n - 4, ".ini") == 0) || strcmp(word, "-o") == 0;
}

// *verdict: with ERR_OK, the exit status.
static err_t dispatch(int argc, char **argv, int *verdict) {
    if (argc < 2) return err_set(ERR_USAGE, "expected a verb or an INI file");
    int number = command_verb(argv[1]);
    if (number >= 0) return run_verb(number, argc - 2, argv + 2, verdict);
    if (is_config(argv[1])) return run_verb(VERB_train, argc - 1, argv + 1, verdict);
    const char *nearest = command_nearest(argv[1]);
    if (nearest)
        return err_set(ERR_USAGE, "%s: no such verb, and not an .ini file. Did you mean `%s`?", argv[1], nearest);
    return err_set(ERR_USAGE, "%s: no such verb, and not an .ini file", argv[1]);
}

int main(int argc, char **argv) {
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)) {
        fputs(command_overview, stdout);
        return 0;
    }
    if (argc == 2 && (strcmp(argv[1], "version") == 0 || strcmp(argv[1], "--version") == 0)) {
        char revisions[REVISIONS_TEXT];
        printf("lockstep %s\nsources   %s\nrevision  %s\n", version_text(), version_sources(),
               arithmetic_revisions(revisions));
        return 0;
    }
    int verdict = 0;
    err_t rc = dispatch(argc, argv, &verdict);
    if (fflush(stdout) != 0 && rc == ERR_OK) rc = err_set(ERR_IO, "standard output: could not be written");
    if (rc != ERR_OK) print_error(rc);
    return rc != ERR_OK ? (int)rc : verdict;
}
