// main.c: verbs and exit codes. Only this file prints errors and decides how the process ends.
#include "base/version.h"
#include "data/text/tools.h"
#include "data/tokenizer/stream.h"
#include "trainer/config/config.h"
#include "trainer/node/supervisor.h"
#include "trainer/plan.h"
#include "trainer/report/report.h"
#include "trainer/train.h"
#include "trainer/watch/pages.h"
#include "trainer/watch/status.h"
#include "trainer/watch/tail.h"
#include "trainer/watch/watcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "lockstep: trains neural networks from one INI file, the same bits every time\n"
    "\n"
    "  lockstep train CONFIG.ini...      train, or continue, the run that the files describe; `train` may be left out\n"
    "  lockstep check CONFIG.ini...      check settings, device and every checksum of the data; train nothing\n"
    "  lockstep plan CONFIG.ini...       memory of each rank and traffic of a step, to the byte; nothing is sent  [--draw]\n"
    "  lockstep config [CONFIG.ini...]   print every setting, its value and where it came from\n"
    "  lockstep pack CONFIG.ini...       turn text into sharded datasets, as [pack] says\n"
    "  lockstep tokenize TOKENIZER       ids of standard input  [--special], or back  [--decode]; --train SIZE KIND: make one\n"
    "  lockstep data info|verify FILES   what files of tokens are; check them; convert [--to FORMAT] FILES OUT\n"
    "  lockstep eval CONFIG.ini...       what the model knows  [--ckpt DIR] [--text FILE] [--choices FILE] [--protocol llmc]\n"
    "  lockstep sample CONFIG.ini...     let the model write              [--ckpt DIR] [--prompt TEXT | --prompts FILE]\n"
    "  lockstep status|tail RUN_DIR      does a run live, and what to do  [--json]; its progress, from elsewhere  [--lines N]\n"
    "  lockstep hash CKPT_DIR...         fingerprints of weights and of the whole state, after checking every digest\n"
    "  lockstep export RUN DIR           weights for others to load  [--dtype bf16] [--tokenizer PATH] [--shard-mb N]\n"
    "  lockstep inspect WEIGHTS          what is in weights of others, as a [model] section\n"
    "  lockstep bench [step] CONFIG.ini  time training steps on made-up data; step: operation by operation  [--steps N]\n"
    "  lockstep tune CONFIG.ini...       measure how a GPU multiplies the run's matrices best; [device] plans uses it\n"
    "  lockstep report|compare RUN_DIR.. what runs did: as one page, report.html  [--out FILE]; in the terminal\n"
    "\n"
    "--ckpt is the run's best checkpoint, or its newest, when not given. SIGTERM or Ctrl-C: finish the step, save, exit\n"
    "75; the same command continues. A second one: leave at once; the newest checkpoint stands.\n"
    "With [cluster] nodes the same command, with the same files, is started on each of them.\n"
    "Exit codes: 0 done, 64 usage, 65 bad data, 69 unavailable, 70 internal, 74 I/O, 75 interrupted, 77 not\n"
    "authorised, 78 settings. Of status: 0 fine, 1 attention, 2 dead. `lockstep version` names the build.\n";

// --- command line ------------------------------------------------------------------------------------------------------------

typedef struct arguments {
    const char *files[CONFIG_FILES_MAX];
    int count;
    const char *ckpt, *prompt, *prompts, *text, *choices, *protocol;
    bool draw;
    int64_t steps;
    bool parts;  // bench step
} arguments;

static err_t parse_steps(const char *text, int64_t *steps) {
    char *end;
    long n = strtol(text, &end, 10);
    if (*text == 0 || *end || n < 1 || n > 1000000) return err_set(ERR_USAGE, "--steps %s: expected a number from 1 to 1000000", text);
    *steps = n;
    return ERR_OK;
}

// `allowed` names the options of the verb, each followed by a space.
static err_t parse(int argc, char **argv, const char *allowed, arguments *a) {
    *a = (arguments){.steps = 20};
    for (int i = 0; i < argc; i++) {
        char word[32];
        snprintf(word, sizeof word, "%s ", argv[i]);
        if (strncmp(argv[i], "--", 2) != 0) {
            if (a->count == CONFIG_FILES_MAX) return err_set(ERR_USAGE, "more than %d files", CONFIG_FILES_MAX);
            a->files[a->count++] = argv[i];
            continue;
        }
        if (!strstr(allowed, word)) return err_set(ERR_USAGE, "%s: no such option here; `lockstep --help` lists them", argv[i]);
        if (strcmp(word, "--draw ") == 0) {
            a->draw = true;
            continue;
        }
        if (i + 1 == argc) return err_set(ERR_USAGE, "%s: expected a value after it", argv[i]);
        const char *value = argv[++i];
        if (strcmp(word, "--ckpt ") == 0) a->ckpt = value;
        else if (strcmp(word, "--prompt ") == 0) a->prompt = value;
        else if (strcmp(word, "--prompts ") == 0) a->prompts = value;
        else if (strcmp(word, "--text ") == 0) a->text = value;
        else if (strcmp(word, "--choices ") == 0) a->choices = value;
        else if (strcmp(word, "--protocol ") == 0) a->protocol = value;
        else TRY(parse_steps(value, &a->steps));
    }
    return ERR_OK;
}

// --- verbs -------------------------------------------------------------------------------------------------------------------

// Returns in every rank, and in the process that started them.
static err_t do_train(const config *c, const arguments *a) {
    (void)a;
    int rank, world;
    const supervised of = {session_fits, train_rank, c->log.watch ? watch_run : NULL};
    TRY(pages_check(c));
    err_t rc = supervise(c, &of, &rank, &world);
    bool said = rc == ERR_INTERRUPTED && rank > 0;  // rank 0 has reported it: all stopped together
    return said ? err_set(rc, "%s", "") : rc;
}

static err_t do_config(const config *c, const arguments *a) {
    if (a->count) config_print(c, stdout);
    else config_print_defaults(stdout);
    return ERR_OK;
}

static err_t do_check(const config *c, const arguments *a) {
    (void)a;
    return verb_check(c, stdout);
}
static err_t do_plan(const config *c, const arguments *a) { return verb_plan(c, a->draw, stdout); }
static err_t do_pack(const config *c, const arguments *a) {
    (void)a;
    return verb_pack(c, stdout);
}
static err_t do_tune(const config *c, const arguments *a) {
    (void)a;
    return verb_tune(c, stdout);
}
static err_t do_sample(const config *c, const arguments *a) { return verb_sample(c, a->ckpt, a->prompt, a->prompts, stdout); }

static err_t set_path(char to[CONFIG_TEXT], const char *option, const char *path) {
    if (path && strlen(path) >= CONFIG_TEXT)
        return err_set(ERR_USAGE, "%s: a path of at most %d bytes, found %zu", option, CONFIG_TEXT - 1, strlen(path));
    strcpy(to, path ? path : "");
    return ERR_OK;
}

// --text and --choices ask for themselves only, in place of what the INI says.
static err_t ask(config *c, const arguments *a) {
    c->eval.ckpt = a->ckpt;
    c->sample.batch = 1;  // nothing is written
    if (a->protocol && strcmp(a->protocol, "llmc") != 0 && strcmp(a->protocol, "lm-eval") != 0)
        return err_set(ERR_USAGE, "--protocol %s: expected lm-eval or llmc", a->protocol);
    if (a->protocol) c->eval.protocol = strcmp(a->protocol, "llmc") == 0 ? PROTOCOL_LLMC : PROTOCOL_LM_EVAL;
    if (!a->text && !a->choices) return ERR_OK;
    c->data.val[0] = 0;
    c->data.holdout = 0;
    TRY(set_path(c->eval.text, "--text", a->text));
    return set_path(c->eval.choices, "--choices", a->choices);
}

// One rank needs no supervisor: Ctrl-C ends it at once.
static err_t do_eval(const config *c, const arguments *a) {
    config asked = *c;
    int rank, world;
    bool alone = !*c->cluster.nodes && (c->device.ranks == 1 || (c->device.ranks == 0 && c->device.kind == DEVICE_CPU));
    TRY(ask(&asked, a));
    return alone ? verb_eval(&asked, stdout) : supervise(&asked, &(supervised){session_fits, eval_rank, NULL}, &rank, &world);
}

static err_t do_bench(const config *c, const arguments *a) {
    config timed = *c;
    int rank, world;
    timed.run.steps = a->steps;
    return supervise(&timed, &(supervised){session_fits, a->parts ? bench_step_rank : bench_rank, NULL}, &rank, &world);
}

typedef struct verb {
    const char *name, *options;
    int least_files;
    bool computes;  // on a device, so that it must be known which
    err_t (*run)(const config *c, const arguments *a);
} verb;

static const verb verbs[] = {
    {"train", "", 1, true, do_train},
    {"check", "", 1, true, do_check},
    {"plan", "--draw ", 1, true, do_plan},
    {"config", "", 0, false, do_config},
    {"pack", "", 1, false, do_pack},
    {"eval", "--ckpt --text --choices --protocol ", 1, true, do_eval},
    {"sample", "--ckpt --prompt --prompts ", 1, true, do_sample},
    {"bench", "--steps ", 1, true, do_bench},
    {"tune", "", 1, true, do_tune},
};

// Which device `auto` is. A GPU that is there and can't be used is never passed over in silence.
static err_t decide(config *c) {
    device_found found;
    if (c->device.backend != DEVICE_AUTO) return ERR_OK;
    TRY(device_find(&found));
    if (found.kind == DEVICE_CPU && found.gpu[0])
        fprintf(stderr,
                "lockstep: this machine has a GPU (%s), and this run is on the CPU: %s\n"
                "lockstep: [device] backend = cuda insists on the GPU, and says what it lacks; backend = cpu says that the CPU is meant\n",
                found.gpu, found.why);
    return config_decide(c, found.kind, found.why);
}

static err_t run_verb(const verb *v, int argc, char **argv) {
    arguments a;
    bool parts = v->run == do_bench && argc > 0 && strcmp(argv[0], "step") == 0;
    TRY(parse(argc - parts, argv + parts, v->options, &a));
    a.parts = parts;
    if (a.count < v->least_files) return err_set(ERR_USAGE, "lockstep %s: expected an INI file, e.g. lockstep %s config.ini", v->name, v->name);
    config *c = calloc(1, sizeof *c);
    if (!c) return err_set(ERR_INTERNAL, "no memory for the settings");
    err_t rc = config_load(c, a.files, a.count);
    if (rc == ERR_OK && v->computes) rc = decide(c);
    if (rc == ERR_OK) rc = v->run(c, &a);
    free(c);
    return rc;
}

static err_t hash_all(int argc, char **argv) {
    if (argc == 0) return err_set(ERR_USAGE, "lockstep hash: expected a checkpoint directory, e.g. runs/default/best");
    for (int i = 0; i < argc; i++) TRY(verb_hash(argv[i], stdout));
    return ERR_OK;
}

static bool is_config(const char *word) {
    size_t n = strlen(word);
    return strchr(word, '/') || (n > 4 && strcmp(word + n - 4, ".ini") == 0);
}

// *verdict: with ERR_OK, the exit status.
static err_t dispatch(int argc, char **argv, int *verdict) {
    if (argc < 2) return err_set(ERR_USAGE, "expected a verb or an INI file");
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(argv[1], verbs[i].name) == 0) return run_verb(&verbs[i], argc - 2, argv + 2);
    if (strcmp(argv[1], "hash") == 0) return hash_all(argc - 2, argv + 2);
    if (strcmp(argv[1], "data") == 0) return verb_data(argc - 2, argv + 2, stdout);
    if (strcmp(argv[1], "export") == 0) return verb_export(argc - 2, argv + 2, stdout);
    if (strcmp(argv[1], "inspect") == 0) return verb_inspect(argc - 2, argv + 2, stdout);
    if (strcmp(argv[1], "report") == 0) return verb_report(argc - 2, argv + 2, stdout);
    if (strcmp(argv[1], "compare") == 0) return verb_compare(argc - 2, argv + 2, stdout);
    if (strcmp(argv[1], "tokenize") == 0) return verb_tokenize(argc - 2, argv + 2, stdout);
    if (strcmp(argv[1], "status") == 0) return verb_status(argc - 2, argv + 2, stdout, verdict);
    if (strcmp(argv[1], "tail") == 0) return verb_tail(argc - 2, argv + 2);
    if (is_config(argv[1])) return run_verb(&verbs[0], argc - 1, argv + 1);
    return err_set(ERR_USAGE, "%s: no such verb, and not an .ini file", argv[1]);
}

static void print_error(err_t rc) {
    const err_record *e = err_last();
    if (!*e->text) return;  // another process of this run has printed it
    fprintf(stderr, "lockstep: %s\n", e->text);
    if (rc == ERR_USAGE) fputs("`lockstep --help` shows what there is.\n", stderr);
    if (rc != ERR_INTERNAL) return;  // the trail helps only with internal errors
    for (int i = 0; i < e->depth; i++) fprintf(stderr, "  %s:%d %s\n", e->trail[i].file, e->trail[i].line, e->trail[i].func);
}

int main(int argc, char **argv) {
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)) {
        fputs(help, stdout);
        return 0;
    }
    if (argc == 2 && (strcmp(argv[1], "version") == 0 || strcmp(argv[1], "--version") == 0)) {
        printf("lockstep %s\n", version_text());
        return 0;
    }
    int verdict = 0;
    err_t rc = dispatch(argc, argv, &verdict);
    if (fflush(stdout) != 0 && rc == ERR_OK) rc = err_set(ERR_IO, "standard output: could not be written");
    if (rc != ERR_OK) print_error(rc);
    return rc != ERR_OK ? (int)rc : verdict;
}
