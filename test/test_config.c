// test/test_config.c: the configuration is right or refused. Each way to get an INI wrong is one row: the text, and what the one
// message must say. Then what good files mean: layers, defaults, canonical values, classes, and text that comes back the same.
#include "base/io.h"
#include "trainer/config/config.h"
#include "trainer/config/ini.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

typedef struct fixture {
    char dir[256];
    char path[320];  // DIR/c.ini
    config c;
} fixture;

static void write_bytes(const char *path, const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void write_text(const char *path, const char *text) { write_bytes(path, text, strlen(text)); }

static err_t load(fixture *x, const char *path) { return config_load(&x->c, &path, 1); }

static err_t load_text(fixture *x, const char *text) {
    write_text(x->path, text);
    return load(x, x->path);
}

// The last failure: ERR_CONFIG, one line, and a text that starts with "PATH" and the first part and holds the others.
static void assert_says(const char *path, const char *start, const char *part1, const char *part2) {
    const err_record *e = err_last();
    if (strncmp(e->text, path, strlen(path)) != 0 || strncmp(e->text + strlen(path), start, strlen(start)) != 0)
        fail_msg("expected \"%s%s\" at the start of\n%s", path, start, e->text);
    if (part1 && !strstr(e->text, part1)) fail_msg("expected \"%s\" in\n%s", part1, e->text);
    if (part2 && !strstr(e->text, part2)) fail_msg("expected \"%s\" in\n%s", part2, e->text);
    assert_null(strchr(e->text, '\n'));
    assert_int_equal(e->code, ERR_CONFIG);
}

static int set_up(void **state) {
    fixture *x = calloc(1, sizeof *x);
    const char *tmp = getenv("TMPDIR");
    snprintf(x->dir, sizeof x->dir, "%s/lockstep-config-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(x->dir)) return -1;
    snprintf(x->path, sizeof x->path, "%s/c.ini", x->dir);
    *state = x;
    return 0;
}

static int tear_down(void **state) {
    fixture *x = *state;
    io_remove_tree(x->dir);
    free(x);
    return 0;
}

// ---- what is refused

typedef struct bad {
    const char *text, *start, *part1, *part2;
} bad;

static const bad bad_files[] = {
    // the shape of a file
    {"[run]\nsteps 5\n", ":2: no = in this line, expected key = value: `steps 5`", NULL, NULL},
    {"[run]\nsteps ; = 5\n", ":2: no = in this line", "`steps`", NULL},
    {"[run]\n\n  junk\n", ":3: no = in this line", "`junk`", NULL},
    {"[run]\n= 5\n", ":2: before = stands a key", NULL, NULL},
    {"[run]\nst eps = 5\n", ":2: before = stands a key, which is letters, digits and _: `st eps`", NULL, NULL},
    {"seed = 1\n[run]\n", ":1: key outside any section, put its [section] above it: `seed`", NULL, NULL},
    {"; comment\n[run\nseed = 1\n", ":2: section header without its closing ], expected [name]: `[run`", NULL, NULL},
    {"[run ; comment\n", ":1: section header without its closing ]", NULL, NULL},
    {"[]\n", ":1: a section's name is letters, digits and _: ``", NULL, NULL},
    {"[r:un]\n", ":1: a section's name is letters, digits and _: `r:un`", NULL, NULL},
    {"[run] seed = 1\n", ":1: text after a section header: `seed = 1`", NULL, NULL},
    {"[run]]\n", ":1: text after a section header: `]`", NULL, NULL},
    {"[run]\nseed = 1\nsteps = 2\nseed = 1\n", ":4: [run] seed: given twice, first in line 2. Keep one of the two.", NULL, NULL},
    {"[run]\nseed = 1\n[log]\n[run]\nSeed = 1\n", ":5: [run] Seed: given twice, first in line 2", NULL, NULL},
    {"[data]\ntrain = a \\\n b\n", ":2: [data] train: a line can't be continued with \\", "`a \\`", NULL},
    {"[data]\ntrain = \"a \\\n b\"\n", ":2: [data] train: a line can't be continued with \\", NULL, NULL},
    {"[data]\ntrain = \"a\" \\\n", ":2: [data] train: a line can't be continued with \\", NULL, NULL},
    {"[data]\ntrain = \"abc\n", ":2: [data] train: quoted value without its closing quote: `\"abc`", NULL, NULL},
    {"[data]\ntrain = \"abc\\\"\n", ":2: [data] train: quoted value without its closing quote", NULL, NULL},
    {"[data]\ntrain = 'abc\n", ":2: [data] train: quoted value without its closing quote: `'abc`", NULL, NULL},
    {"[data]\ntrain = \"a\" b\n", ":2: [data] train: text after the closing quote: `b`", NULL, NULL},
    {"[data]\ntrain = 'a'b'\n", ":2: [data] train: text after the closing quote: `b'`", NULL, NULL},
    {"[data]\ntrain = \"a\\qb\"\n", ":2: [data] train: unknown escape, expected one of \\n \\t \\\\ \\\": `\\q`", NULL, NULL},
    {"[data]\ntrain = a\"b\"\n", ":2: [data] train: \" or \\ in a value without quotes", "`a\"b\"`", NULL},
    {"[data]\ntrain = a\\b\n", ":2: [data] train: \" or \\ in a value without quotes", "`a\\b`", NULL},
    {"[run]\nseed = 1\rsteps = 5\n", ":2: carriage return inside a line", NULL, NULL},
    {"[run]\n\x1bseed = 1\n", ":2: control character 0x1b", NULL, NULL},
    {"[run]\nname = a\x7f\n", ":2: control character 0x7f", NULL, NULL},

    // names
    {"[optimizer]\nlearning_rte = 3e-4\n",
     ":2: [optimizer] learning_rte: no such key. Did you mean `lr`? (keys: type lr beta1 beta2 ",
     "`3e-4`", NULL},
    {"[optimizer]\nbeta3 = 0.9\n", ":2: [optimizer] beta3: no such key. Did you mean `beta1`?", NULL, NULL},
    {"[optimizer]\nweigth_decay = 0.9\n", ":2: [optimizer] weigth_decay: no such key. Did you mean `weight_decay`?", NULL, NULL},
    {"[optimizer]\nLR = 0.9\n", ":2: [optimizer] LR: no such key. Did you mean `lr`?", NULL, NULL},
    {"[optimizer]\nrl = 0.9\n", ":2: [optimizer] rl: no such key. Did you mean `lr`?", NULL, NULL},
    {"[model]\nn_layer = 4\n", ":2: [model] n_layer: no such key. Did you mean `layers`?", NULL, NULL},
    {"[run]\nlr = 1\n", ":2: [run] lr: no such key. `lr` is a key of [optimizer].",
     "(keys: name dir seed steps resume faults;", NULL},
    {"[run]\nevery = 1\n", ":2: [run] every: no such key. `every` is a key of [checkpoint] [eval] [sample] [log].", NULL, NULL},
    {"[run]\nlearning_rates = 1\n", ":2: [run] learning_rates: no such key. Did you mean `lr` of [optimizer]?", NULL, NULL},
    {"[log]\nxyzzy_plugh_plover = 7\n", ":2: [log] xyzzy_plugh_plover: no such key. The nearest is `",
     "(keys: every hash_every jsonl power_every;", NULL},
    {"\n[optimiser]\nlr = 1\n", ":2: [optimiser]: no such section. Did you mean [optimizer]? (sections: run device model data ",
     NULL, NULL},
    {"[Run]\n", ":1: [Run]: no such section. Did you mean [run]?", NULL, NULL},

    // whole numbers
    {"[run]\nsteps = ten\n", ":2: [run] steps: expected a whole number in decimal, from 1 to 1000000000000, found `ten`", NULL,
     NULL},
    {"[run]\nsteps =\n", ":2: [run] steps: expected a whole number", "found ``", NULL},
    {"[run]\nsteps = \"\"\n", ":2: [run] steps: expected a whole number", "found ``", NULL},
    {"[run]\nsteps = 5 apples\n", ":2: [run] steps: expected a whole number", "found `5 apples`", NULL},
    {"[run]\nsteps = 1e3\n", ":2: [run] steps: expected a whole number", "found `1e3`", NULL},
    {"[run]\nsteps = 5.0\n", ":2: [run] steps: expected a whole number", "found `5.0`", NULL},
    {"[run]\nsteps = 0x10\n", ":2: [run] steps: expected a whole number", "found `0x10`", NULL},
    {"[run]\nsteps = 010\n", ":2: [run] steps: expected a whole number", "found `010`", NULL},
    {"[run]\nsteps = +5\n", ":2: [run] steps: expected a whole number", "found `+5`", NULL},
    {"[run]\nsteps = -\n", ":2: [run] steps: expected a whole number", "found `-`", NULL},
    {"[run]\nsteps = \" 5\"\n", ":2: [run] steps: expected a whole number", "found ` 5`", NULL},
    {"[run]\nsteps = 0\n", ":2: [run] steps: expected a whole number from 1 to 1000000000000, found `0`", NULL, NULL},
    {"[run]\nsteps = 1000000000001\n", ":2: [run] steps: expected a whole number from 1 to", "found `1000000000001`", NULL},
    {"[run]\nseed = -1\n", ":2: [run] seed: expected a whole number from 0 to 9007199254740991, found `-1`", NULL, NULL},
    {"[run]\nseed = 9007199254740992\n", ":2: [run] seed: expected", "found `9007199254740992`", NULL},
    {"[run]\nseed = 9223372036854775808\n", ":2: [run] seed: expected", "found `9223372036854775808`", NULL},
    {"[run]\nseed = 18446744073709551617\n", ":2: [run] seed: expected", "found `18446744073709551617`", NULL},
    {"[device]\nthreads = 1025\n", ":2: [device] threads: expected a whole number from 0 to 1024, found `1025`", NULL, NULL},
    {"[data]\nprefetch = 1\n", ":2: [data] prefetch: expected a whole number from 2 to 1024, found `1`", NULL, NULL},
    {"[data]\nretry = 101\n", ":2: [data] retry: expected a whole number from 0 to 100, found `101`", NULL, NULL},

    // reals
    {"[optimizer]\nlr = fast\n", ":2: [optimizer] lr: expected a number from 0 to 1000, found `fast`", NULL, NULL},
    {"[optimizer]\nlr = nan\n", ":2: [optimizer] lr: expected a number", "found `nan`", NULL},
    {"[optimizer]\nlr = inf\n", ":2: [optimizer] lr: expected a number", "found `inf`", NULL},
    {"[optimizer]\nlr = 0x1p-3\n", ":2: [optimizer] lr: expected a number", "found `0x1p-3`", NULL},
    {"[optimizer]\nlr = 1e-3x\n", ":2: [optimizer] lr: expected a number", "found `1e-3x`", NULL},
    {"[optimizer]\nlr = 1e\n", ":2: [optimizer] lr: expected a number", "found `1e`", NULL},
    {"[optimizer]\nlr = .\n", ":2: [optimizer] lr: expected a number", "found `.`", NULL},
    {"[optimizer]\nlr = -.e5\n", ":2: [optimizer] lr: expected a number", "found `-.e5`", NULL},
    {"[optimizer]\nlr = 0,001\n", ":2: [optimizer] lr: expected a number", "found `0,001`", NULL},
    {"[optimizer]\nlr =\n", ":2: [optimizer] lr: expected a number", "found ``", NULL},
    {"[optimizer]\nlr = 1e999\n", ":2: [optimizer] lr: expected a number", "found `1e999`", NULL},
    {"[optimizer]\nlr = 1e-999\n", ":2: [optimizer] lr: expected a number", "found `1e-999`", NULL},
    {"[optimizer]\nlr = -1e-9\n", ":2: [optimizer] lr: expected a number from 0 to 1000, found `-1e-9`", NULL, NULL},
    {"[optimizer]\nbeta1 = 1\n", ":2: [optimizer] beta1: expected a number from 0 to 0.999999, found `1`", NULL, NULL},
    {"[precision]\nloss_scale = 0\n",
     ":2: [precision] loss_scale: expected dynamic or a number from 1 to 1.67772e+07, found `0`", NULL, NULL},
    {"[precision]\nloss_scale = static\n", ":2: [precision] loss_scale: expected dynamic or a number", "found `static`", NULL},

    // words, names and text
    {"[precision]\ncompute = bf61\n",
     ":2: [precision] compute: no such value `bf61`. Did you mean `bf16`? (values: fp32 bf16 fp16)", NULL, NULL},
    {"[precision]\ncompute =\n", ":2: [precision] compute: no such value ``.", "(values: fp32 bf16 fp16)", NULL},
    {"[run]\nresume = Must\n", ":2: [run] resume: no such value `Must`. Did you mean `must`? (values: auto never must)", NULL,
     NULL},
    {"[log]\njsonl = true\n", ":2: [log] jsonl: no such value `true`.", "(values: no yes)", NULL},
    {"[run]\nname = a/b\n", ":2: [run] name: expected 1 to 63 letters", "found `a/b`", NULL},
    {"[run]\nname = .hidden\n", ":2: [run] name: expected 1 to 63 letters", "found `.hidden`", NULL},
    {"[run]\nname = ..\n", ":2: [run] name: expected 1 to 63 letters", "found `..`", NULL},
    {"[run]\nname =\n", ":2: [run] name: expected 1 to 63 letters", "found ``", NULL},
    {"[run]\nname = a23456789012345678901234567890123456789012345678901234567890abcd\n",
     ":2: [run] name: expected 1 to 63 letters", NULL, NULL},
    {"[run]\ndir = \"\"\n", ":2: [run] dir: expected some text, found ``", NULL, NULL},
    {"[run]\nfaults = wirte@3\n", ":2: [run] faults: ", "wirte@3", "points: read write sync rename flip"},

    // rules between keys
    {"[model]\nembed = 130\n", ":2: [model] embed: embed = 130 is not a multiple of heads = 4.",
     "heads = 2 or 5, or embed = 128 or 132.", NULL},
    {"[model]\nembed = 96\nheads = 5\n", ":3: [model] heads: embed = 96 is not a multiple of heads = 5.", "heads = 4 or 6,",
     "embed = 95 or 100."},
    {"[model]\nembed = 2\n", ":2: [model] embed: embed = 2 is not a multiple of heads = 4.", "heads = 2, or embed = 4.", NULL},
    {"[precision]\nrounding = stochastic\n", ":2: [precision] rounding: with compute = fp32 the weights in use are the masters themselves",
     "rounding = nearest, or compute = bf16.", NULL},
    {"[precision]\nrounding = stochastic\ncompute = fp32\n", ":3: [precision] compute: with compute = fp32", NULL, NULL},
    {"[precision]\ncompute = fp16\nrounding = random\n", ":3: [precision] rounding: no such value `random`.", "(values: nearest stochastic)", NULL},
    {"[optimizer]\ntype = sgd\nnesterov = yes\n", ":3: [optimizer] nesterov: nesterov = yes looks ahead along the momentum, and with momentum = 0",
     "nesterov = no, or momentum = 0.9.", NULL},
    {"[optimizer]\nnesterov = yes\nmomentum = 0\n", ":3: [optimizer] momentum: nesterov = yes looks ahead", NULL, NULL},
    {"[optimizer]\nmomentum = 1\n", ":2: [optimizer] momentum: expected", "found", NULL},
    {"[batch]\nlanes = 6\n", ":2: [batch] lanes: lanes = 6 is not a power of two. Nearest that work: 4 or 8, or 0", NULL, NULL},
    {"[batch]\nmicro = 5\n", ":2: [batch] micro: global = 16 is not a multiple of micro = 5.",
     "micro = 4 or 8, or global = 15 or 20.", NULL},
    {"[batch]\nmicro = 32\n", ":2: [batch] micro: global = 16 is not a multiple of micro = 32.", "micro = 16, or global = 32.",
     NULL},
    {"[batch]\nlanes = 2\nmicro = 4\nglobal = 12\n",
     ":4: [batch] global: global = 12 is not lanes = 2 * micro = 4 * a whole number.", "lanes = 1, or global = 8 or 16.", NULL},
    {"[batch]\nlanes = 4\n", ":2: [batch] lanes: global = 16 is not lanes = 4 * micro = 8", "lanes = 2, or global = 32.", NULL},
    {"[schedule]\nwarmup = 2000\n", ":2: [schedule] warmup: the warm-up of 2000 steps ends after the decay",
     "step 600 (run.steps)",
     "warmup = 600, or steps = 2000."},
    {"[schedule]\nwarmup = 100\n[run]\nsteps = 50\n", ":4: [run] steps: the warm-up of 100 steps ends after the decay", "warmup = 50, or steps = 100.",
     NULL},
    {"[schedule]\nwarmup = 20\ndecay_steps = 10\n", ":3: [schedule] decay_steps: the warm-up of 20 steps",
     "step 10 (decay_steps)",
     "warmup = 10, or decay_steps = 20."},

    // ranks
    {"[device]\nranks = 3\n", ":2: [device] ranks: 3 ranks ([device] ranks) are more than the lanes = 2", "a rank without a lane would be idle",
     "Nearest that work: 2 ranks, or lanes = 4 with global = 32 or micro = 4."},
    {"[device]\nranks = 64\n", ":2: [device] ranks: 64 ranks", "Nearest that work: 2 ranks, or lanes = 64 with global = 512.", NULL},
    {"[batch]\nmicro = 2\nlanes = 2\n[device]\nranks = 8\n", ":5: [device] ranks: 8 ranks", "2 ranks, or lanes = 8.", NULL},
    {"[device]\nranks = 8\n[batch]\nlanes = 2\n", ":4: [batch] lanes: 8 ranks ([device] ranks)", NULL, NULL},
    {"[cluster]\nnodes = a:2, b:2\n", ":2: [cluster] nodes: 4 ranks ([cluster] nodes) are more than the lanes = 2", NULL, NULL},
    {"[cluster]\nnodes = a:1, b:0\n", ":2: [cluster] nodes: entry 2, `b:0`", "ranks from 1 to 1024", "Expected host:ranks"},
    {"[cluster]\nnodes = gpu[2-1]\n", ":2: [cluster] nodes: entry 1, `gpu[2-1]`: the range ends before it begins", NULL, NULL},
    {"[cluster]\nnodes = a,b\nport = 65535\n", ":3: [cluster] port: port = 65535 and one more for each rank of a node, 1, go beyond", "port = 65534", NULL},
    {"[cluster]\ntimeout = 5\nheartbeat = 3\n", ":3: [cluster] heartbeat: with heartbeat = 3", "timeout = 6, or heartbeat = 2.5", NULL},
    {"[device]\nranks = 2\n[parallel]\ndata = 1\n", ":4: [parallel] data: [parallel] data = 1, but the run has 2 ranks", "data = 0", "or 1 rank."},
    {"[reduce]\ntransport = nccl\n[device]\nbackend = cpu\n", ":4: [device] backend: transport = nccl", "transport = auto", NULL},
};

static void test_bad_files(void **state) {
    fixture *x = *state;
    for (size_t i = 0; i < COUNT(bad_files); i++) {
        const bad *b = &bad_files[i];
        if (load_text(x, b->text) != ERR_CONFIG) fail_msg("expected ERR_CONFIG for:\n%s", b->text);
        assert_says(x->path, b->start, b->part1, b->part2);
    }
}

static void test_nul(void **state) {
    fixture *x = *state;
    static const char inside[] = "[run]\nseed = 1\0" "23\n", utf16[] = "\xff\xfe[\0r\0u\0n\0]\0\n\0";
    write_bytes(x->path, inside, sizeof inside - 1);
    assert_int_equal(load(x, x->path), ERR_CONFIG);
    assert_says(x->path, ":2: NUL byte", NULL, NULL);
    write_bytes(x->path, utf16, sizeof utf16 - 1);
    assert_int_equal(load(x, x->path), ERR_CONFIG);
    assert_says(x->path, ":1: NUL byte", "UTF-8", NULL);
}

static void test_long_lines(void **state) {
    fixture *x = *state;
    size_t n = 10 << 20;
    char *big = malloc(n);
    assert_non_null(big);
    memset(big, 'x', n);
    memcpy(big, "[run]\nname = ", 13);
    write_bytes(x->path, big, n);
    assert_int_equal(load(x, x->path), ERR_CONFIG);
    assert_says(x->path, ":2: line is longer than 1000 bytes", NULL, NULL);
    assert_true(strlen(err_last()->text) < 512);

    memset(big, '\n', n);  // no long line, but no INI either
    write_bytes(x->path, big, n);
    assert_int_equal(load(x, x->path), ERR_CONFIG);
    assert_says(x->path, ": larger than 1048576 bytes", NULL, NULL);
    write_bytes(x->path, big, INI_FILE);
    assert_int_equal(load(x, x->path), ERR_OK);
    write_bytes(x->path, big, INI_FILE + 1);
    assert_int_equal(load(x, x->path), ERR_CONFIG);

    // 1000 bytes are one line, with or without its end, and 1001 are not
    memset(big, 'x', 2000);
    memcpy(big, "[log]\n;", 7);
    big[6 + 1000] = '\n';
    write_bytes(x->path, big, 6 + 1000 + 1);
    assert_int_equal(load(x, x->path), ERR_OK);
    write_bytes(x->path, big, 6 + 1000);
    assert_int_equal(load(x, x->path), ERR_OK);
    big[6 + 1000] = 'x';
    write_bytes(x->path, big, 6 + 1001);
    assert_int_equal(load(x, x->path), ERR_CONFIG);
    assert_says(x->path, ":2: line is longer", NULL, NULL);

    // the longest text, and one byte more
    char text[INI_LINE + 64];
    snprintf(text, sizeof text, "[sample]\nprompt = \"%.900s\"\n", big + 100);
    assert_int_equal(load_text(x, text), ERR_OK);
    assert_int_equal(strlen(x->c.sample.prompt), 900);
    snprintf(text, sizeof text, "[sample]\nprompt = \"%.901s\"\n", big + 100);
    assert_int_equal(load_text(x, text), ERR_CONFIG);
    assert_says(x->path, ":2: [sample] prompt: expected at most 900 characters", NULL, NULL);

    // names have a limit too, and a file has so many of them
    snprintf(text, sizeof text, "[run]\n%.64s = 1\n", big + 100);
    assert_int_equal(load_text(x, text), ERR_CONFIG);
    assert_says(x->path, ":2: before = stands a key", "xxxxxxxx", NULL);
    size_t used = 0;
    for (int i = 0; i < 600; i++) used += (size_t)sprintf(big + used, "[log]\n");
    write_bytes(x->path, big, used);
    assert_int_equal(load(x, x->path), ERR_CONFIG);
    assert_says(x->path, ":513: more sections and keys", NULL, NULL);
    free(big);
}

// What can't be opened or read is named, with the reason.
static void test_unreadable(void **state) {
    fixture *x = *state;
    char path[400];
    snprintf(path, sizeof path, "%s/none.ini", x->dir);
    assert_int_equal(load(x, path), ERR_CONFIG);
    assert_says(path, ": can't read the configuration: No such file or directory", NULL, NULL);
    assert_int_equal(load(x, ""), ERR_CONFIG);
    assert_says("\"\"", ": can't read the configuration: No such file or directory", NULL, NULL);
    assert_int_equal(load(x, x->dir), ERR_CONFIG);
    assert_says(x->dir, ": can't read the configuration: it is a directory", NULL, NULL);
    assert_int_equal(load(x, "/dev/null"), ERR_CONFIG);
    assert_says("/dev/null", ": can't read the configuration: it is not a regular file", NULL, NULL);
    assert_int_equal(load(x, "/proc/self/mem"), ERR_CONFIG);  // opens, is regular, and fails in read()
    assert_says("/proc/self/mem", ": can't read the configuration: Input/output error", NULL, NULL);

    snprintf(path, sizeof path, "%s/fifo", x->dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(load(x, path), ERR_CONFIG);  // and does not wait for a writer
    assert_says(path, ": can't read the configuration: it is not a regular file", NULL, NULL);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("loop", (snprintf(path, sizeof path, "%s/loop", x->dir), path)), 0);
    assert_int_equal(load(x, path), ERR_CONFIG);
    assert_says(path, ": can't read the configuration: Too many levels of symbolic links", NULL, NULL);
    assert_int_equal(unlink(path), 0);

    if (geteuid() == 0) return;  // nothing is closed to root
    write_bytes(x->path, "", 0);
    assert_int_equal(chmod(x->path, 0), 0);
    assert_int_equal(load(x, x->path), ERR_CONFIG);
    assert_says(x->path, ": can't read the configuration: Permission denied", NULL, NULL);
}

static void test_file_names(void **state) {
    fixture *x = *state;
    const char *many[CONFIG_FILES_MAX + 1];
    write_bytes(x->path, "", 0);
    for (size_t i = 0; i < COUNT(many); i++) many[i] = x->path;
    assert_int_equal(config_load(&x->c, many, CONFIG_FILES_MAX), ERR_OK);
    assert_int_equal(config_load(&x->c, many, CONFIG_FILES_MAX + 1), ERR_CONFIG);
    assert_says(x->path, ": more than 16 files", NULL, NULL);

    char deep[3000];  // a name that no message could hold
    memset(deep, 'd', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    assert_int_equal(load(x, deep), ERR_CONFIG);
    assert_says("...ddd", "ddd", "the file's name is too long", NULL);
    deep[900] = '\n';
    deep[901] = 0;
    assert_int_equal(load(x, deep), ERR_CONFIG);
    assert_says("...ddd", "ddd", "d?: can't read the configuration: File name too long", NULL);
}

// ---- what is accepted

static void test_spellings(void **state) {
    fixture *x = *state;
    static const char crlf[] = "\xef\xbb\xbf[run]\r\nseed = 7\r\n\r\n; crlf\r\nname = 'a-b_c.D9'\r\n\tsteps\t=\t200 # comment\r";
    assert_int_equal(load_text(x, crlf), ERR_OK);
    assert_int_equal(x->c.run.seed, 7);
    assert_int_equal(x->c.run.steps, 200);
    assert_string_equal(x->c.run.name, "a-b_c.D9");

    assert_int_equal(load_text(x, "; continued? \\\n# no \\\n [ run ] ; yes\nseed=1;x\nsteps=\"300\"#x\n"
                        "[log]\n[run]\nname=b ; \\\nresume=never"),
                     ERR_OK);
    assert_int_equal(x->c.run.seed, 1);
    assert_int_equal(x->c.run.steps, 300);
    assert_string_equal(x->c.run.name, "b");
    assert_int_equal(x->c.run.resume, RESUME_NEVER);

    static const struct { const char *written, *read; } texts[] = {
        {"\"To be or; not # to = be \"", "To be or; not # to = be "},
        {"\"a\\nb\\tc\\\\n\\\"d\\\"\" ; \"e\"", "a\nb\tc\\n\"d\""},
        {"'say \"hi\" \\n ;#' # it's", "say \"hi\" \\n ;#"},
        {"it's = plain text", "it's = plain text"},
        {"\"\\\\\"", "\\"}, {"\"'\"", "'"}, {"''", ""}, {"\"\"", ""}, {"", ""}, {"; none", ""}, {"\" \"", " "},
        {"=", "="}, {"[x]", "[x]"}, {"\xc3\xa9\xff", "\xc3\xa9\xff"}, {"\"a\tb\"", "a\tb"}, {"\"%s%n\"", "%s%n"},
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        char text[256];
        snprintf(text, sizeof text, "[sample]\nprompt = %s\n", texts[i].written);
        assert_int_equal(load_text(x, text), ERR_OK);
        assert_string_equal(x->c.sample.prompt, texts[i].read);
    }

    static const struct { const char *written; double read; } reals[] = {
        {"3e-4", 3e-4}, {".5", .5}, {"5.", 5}, {"0.1", 0.1}, {"1E+2", 100}, {"007", 7}, {"1000", 1000}, {"0", 0}, {"-0", 0},
    };
    for (size_t i = 0; i < COUNT(reals); i++) {
        char text[256];
        snprintf(text, sizeof text, "[optimizer]\nlr = %s\n", reals[i].written);
        assert_int_equal(load_text(x, text), ERR_OK);
        assert_memory_equal(&x->c.optimizer.lr, &reals[i].read, sizeof(double));
    }
    assert_int_equal(load_text(x, "[run]\nseed = 9007199254740991\n"), ERR_OK);
    assert_true(x->c.run.seed == 9007199254740991);
    assert_int_equal(load_text(x, "[precision]\nloss_scale = 1024\n"), ERR_OK);
    assert_true(x->c.precision.loss_scale == 1024);
    assert_int_equal(load_text(x, "[precision]\nloss_scale = dynamic\n"), ERR_OK);
    assert_true(x->c.precision.loss_scale == 0);
}

// Every word of every list is taken, and is stored as its own number.
static void test_words(void **state) {
    fixture *x = *state;
    const config *c = &x->c;
    const struct { const char *section, *key, *words[7]; const int *at; } lists[] = {
        {"run", "resume", {"auto", "never", "must"}, &c->run.resume},
        {"device", "backend", {"auto", "cpu", "cuda"}, &c->device.backend},
        {"device", "simd", {"auto", "avx512", "avx2", "neon", "portable"}, &c->device.simd},
        {"model", "type", {"gpt", "mlp"}, &c->model.type},
        {"data", "format", {"auto", "lockstep", "llmc", "raw16", "raw32", "idx"}, &c->data.format},
        {"pack", "tokenizer", {"bytes"}, &c->pack.tokenizer},
        {"precision", "compute", {"fp32", "bf16", "fp16"}, &c->precision.compute},
        {"optimizer", "type", {"adamw", "sgd"}, &c->optimizer.type},
        {"schedule", "type", {"cosine", "linear", "constant", "wsd"}, &c->schedule.type},
    };
    assert_int_equal(RESUME_MUST, 2);
    assert_int_equal(DEVICE_CUDA, 2);
    assert_int_equal(WIDTH_PORTABLE, 4);
    assert_int_equal(FORMAT_IDX, 5);
    assert_int_equal(FP16, 2);
    assert_int_equal(SCHEDULE_WSD, 3);
    for (size_t i = 0; i < COUNT(lists); i++)
        for (int w = 0; lists[i].words[w]; w++) {
            char text[128];
            snprintf(text, sizeof text, "[%s]\n%s = %s\n", lists[i].section, lists[i].key, lists[i].words[w]);
            assert_int_equal(load_text(x, text), ERR_OK);
            assert_int_equal(*lists[i].at, w);
        }
    assert_int_equal(load_text(x, "[precision]\ncompute = bf16\n"), ERR_OK);
    assert_int_equal(c->precision.rounding, ROUNDING_NEAREST);
    assert_int_equal(load_text(x, "[precision]\nrounding = stochastic\ncompute = bf16\n"), ERR_OK);
    assert_int_equal(c->precision.rounding, ROUNDING_STOCHASTIC);
    static const struct { const char *word; bool value; } bools[] = {{"yes", true}, {"no", false}};
    for (size_t i = 0; i < COUNT(bools); i++) {
        char text[128];
        snprintf(text, sizeof text, "[data]\nshuffle = %s\n[pack]\ncompress = %s\n", bools[i].word, bools[i].word);
        assert_int_equal(load_text(x, text), ERR_OK);
        assert_int_equal(c->data.shuffle, bools[i].value);
        assert_int_equal(c->pack.compress, bools[i].value);
    }
}

static void test_resolve(void **state) {
    fixture *x = *state;
    static const struct { int global, micro, lanes; } auto_lanes[] = {
        {16, 8, 2}, {12, 12, 1}, {12, 3, 4}, {256, 1, 8}, {24, 4, 2}, {7, 1, 1}, {40, 1, 8}, {1, 1, 1},
    };
    for (size_t i = 0; i < COUNT(auto_lanes); i++) {
        char text[128];
        snprintf(text, sizeof text, "[batch]\nglobal = %d\nmicro = %d\n", auto_lanes[i].global, auto_lanes[i].micro);
        assert_int_equal(load_text(x, text), ERR_OK);
        assert_int_equal(x->c.batch.lanes, auto_lanes[i].lanes);
    }
    assert_int_equal(load_text(x, "[batch]\nglobal = 16\nmicro = 1\nlanes = 16\n"), ERR_OK);
    assert_int_equal(x->c.batch.lanes, 16);
    assert_int_equal(load_text(x, "[run]\nsteps = 777\n"), ERR_OK);
    assert_int_equal(x->c.schedule.decay_steps, 777);
    assert_int_equal(load_text(x, "[run]\nsteps = 777\n[schedule]\ndecay_steps = 100\n"), ERR_OK);
    assert_int_equal(x->c.schedule.decay_steps, 100);
    static const struct { int micro, context, vocab, chunks; } auto_chunks[] = {
        {8, 128, 256, 1}, {4, 256, 50257, 3}, {4, 1024, 50257, 11}, {1, 1280, 16384, 1}, {1, 1281, 16384, 2}, {3, 1000, 131072, 24},
        {3, 1000, 131073, 24}, {1, 7, 16777216, 7}, {1048576, 1048576, 2, 6710887},
    };
    for (size_t i = 0; i < COUNT(auto_chunks); i++) {
        char text[128];
        snprintf(text, sizeof text, "[batch]\nglobal = %d\nmicro = %d\n[model]\ncontext = %d\nvocab = %d\n", auto_chunks[i].micro, auto_chunks[i].micro,
                 auto_chunks[i].context, auto_chunks[i].vocab);
        assert_int_equal(load_text(x, text), ERR_OK);
        assert_int_equal(x->c.model.of.gpt.head_chunks, auto_chunks[i].chunks);
    }
    assert_int_equal(load_text(x, "[batch]\nmicro = 4\n[model]\nvocab = 50257\nhead_chunks = 1\n"), ERR_OK);
    assert_int_equal(x->c.model.of.gpt.head_chunks, 1);
    // a constant rate does not decay, so its bits do not depend on run.steps
    assert_int_equal(load_text(x, "[run]\nsteps = 50\n[schedule]\ntype = constant\n"), ERR_OK);
    assert_int_equal(x->c.schedule.decay_steps, 0);
    assert_int_equal(x->c.schedule.warmup, 100);
}

// A warm-up that is not named is a tenth of the schedule, and no rule can refuse it.
static void test_open_warmup(void **state) {
    fixture *x = *state;
    static const struct { const char *text; int64_t warmup; } rows[] = {
        {"[run]\nsteps = 1\n", 1},          {"[run]\nsteps = 19\n", 1},
        {"[run]\nsteps = 20\n", 2},         {"[run]\nsteps = 999\n", 99},
        {"[run]\nsteps = 1500\n", 100},     {"[run]\nsteps = 1500\n[schedule]\ndecay_steps = 400\n", 40},
        {"[schedule]\nwarmup = -1\n", -1},  {"[schedule]\nwarmup = 0\ndecay_steps = 50\n", 5},
        {"[schedule]\ntype = constant\ndecay_steps = 50\n", 5},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(load_text(x, rows[i].text), ERR_OK);
        assert_int_equal(x->c.schedule.warmup, rows[i].warmup);
    }
}

// ---- layers and printing

typedef struct listing {
    int count;
    size_t used;
    char text[1 << 16];
} listing;

static err_t list_key(void *ctx, const char *key, const char *value) {
    listing *l = ctx;
    l->count++;
    l->used += (size_t)snprintf(l->text + l->used, sizeof l->text - l->used, "%s=%s\n", key, value);
    assert_true(l->used < sizeof l->text);
    return ERR_OK;
}

static void list_class(const config *c, key_class class, listing *l) {
    *l = (listing){0};
    assert_int_equal(config_each(c, class, list_key, l), ERR_OK);
}

static void list_all(const config *c, listing *l) {
    *l = (listing){0};
    for (int class = CLASS_BITS; class <= CLASS_LOCAL; class++)
        assert_int_equal(config_each(c, (key_class)class, list_key, l), ERR_OK);
}

// What is printed of c, or for NULL the defaults file. Freed by the caller.
static void print(const config *c, char **text) {
    size_t n;
    FILE *f = open_memstream(text, &n);
    assert_non_null(f);
    if (c) config_print(c, f);
    else config_print_defaults(f);
    assert_int_equal(fclose(f), 0);
}

// The line of config_print for this key, after its indentation. Freed by the caller.
static char *printed_line(const config *c, const char *section, const char *key) {
    char *text = NULL, start[80];
    print(c, &text);
    snprintf(start, sizeof start, "[%s]\n", section);
    char *at = strstr(text, start);
    assert_non_null(at);
    snprintf(start, sizeof start, "\n%s = ", key);
    at = strstr(at, start);
    assert_non_null(at);
    at[1 + strcspn(at + 1, "\n")] = 0;
    char *line = strdup(at + 1);
    free(text);
    return line;
}

static void assert_line(const config *c, const char *section, const char *key, const char *value, const char *origin) {
    char *line = printed_line(c, section, key), expected[1024];
    snprintf(expected, sizeof expected, "%s = %s ", key, value);
    if (strncmp(line, expected, strlen(expected)) != 0) fail_msg("expected %s at the start of\n%s", expected, line);
    size_t n = strlen(line), m = strlen(origin);
    if (n < m || strcmp(line + n - m, origin) != 0) fail_msg("expected %s at the end of\n%s", origin, line);
    free(line);
}

static void test_layers(void **state) {
    fixture *x = *state;
    char over[320], origin[400];
    snprintf(over, sizeof over, "%s/over.ini", x->dir);
    write_text(x->path, "[run]\nseed = 1\nsteps = 200\n[optimizer]\nlr = 1e-2\n");
    write_text(over, "; above\n[optimizer]\nlr = 3e-4\n[run]\nsteps = 300\n");
    const char *files[] = {x->path, over};
    assert_int_equal(config_load(&x->c, files, 2), ERR_OK);
    assert_int_equal(x->c.run.seed, 1);
    assert_int_equal(x->c.run.steps, 300);
    assert_true(x->c.optimizer.lr == 3e-4);

    config copy = x->c;  // origins survive a copy
    memset(&x->c, 0, sizeof x->c);
    snprintf(origin, sizeof origin, "; bits   %s:2", x->path);
    assert_line(&copy, "run", "seed", "1", origin);
    snprintf(origin, sizeof origin, "; layout %s:5", over);
    assert_line(&copy, "run", "steps", "300", origin);
    snprintf(origin, sizeof origin, "; bits   %s:3", over);
    assert_line(&copy, "optimizer", "lr", "0.0003", origin);
    assert_line(&copy, "optimizer", "beta1", "0.9", "; bits   default");
    assert_line(&copy, "batch", "lanes", "2", "; bits   default, chosen");
    assert_line(&copy, "model", "head_chunks", "1", "; bits   default, chosen");
    assert_line(&copy, "run", "dir", "\"runs\"", "; local  default");

    // the other way round the first file wins, and a mistake is reported in the file that holds it
    const char *swapped[] = {over, x->path};
    assert_int_equal(config_load(&x->c, swapped, 2), ERR_OK);
    assert_int_equal(x->c.run.steps, 200);
    write_text(over, "[run]\nseed = x\n");
    assert_int_equal(config_load(&x->c, files, 2), ERR_CONFIG);
    assert_says(over, ":2: [run] seed: expected", NULL, NULL);
    write_text(over, "[schedule]\nwarmup = 201\n");  // a rule between two files: the later one is to blame
    assert_int_equal(config_load(&x->c, files, 2), ERR_CONFIG);
    assert_says(over, ":2: [schedule] warmup: the warm-up of 201 steps", "steps = 201.", NULL);
    assert_int_equal(config_load(&x->c, swapped, 2), ERR_CONFIG);
    assert_says(x->path, ":3: [run] steps: the warm-up of 201 steps", NULL, NULL);
    unlink(over);
}

static void test_defaults(void **state) {
    fixture *x = *state;
    assert_int_equal(config_load(&x->c, NULL, 0), ERR_OK);
    const config *c = &x->c;
    assert_string_equal(c->run.name, "default");
    assert_string_equal(c->run.dir, "runs");
    assert_int_equal(c->model.of.gpt.embed % c->model.of.gpt.heads, 0);
    assert_string_equal(c->sample.prompt, "static err_t ");
    assert_int_equal(c->batch.global % (c->batch.lanes * c->batch.micro), 0);
    assert_int_equal(c->schedule.decay_steps, c->run.steps);
    assert_int_equal(c->file_count, 0);

    // an empty file changes nothing
    listing *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    list_all(c, a);
    assert_int_equal(load_text(x, ""), ERR_OK);
    list_all(c, b);
    assert_string_equal(a->text, b->text);
    assert_int_equal(load_text(x, "\n ; nothing\n\n[run]"), ERR_OK);
    list_all(c, b);
    assert_string_equal(a->text, b->text);
    free(a);
    free(b);
}

static const char classes_of[] =
    "run.seed model.type model.layers model.heads model.embed model.vocab model.context model.dropout model.head_chunks data.shuffle data.holdout batch.global "
    "batch.micro batch.lanes precision.compute precision.rounding precision.loss_scale precision.scale_window optimizer.type optimizer.lr "
    "optimizer.beta1 optimizer.beta2 optimizer.eps optimizer.weight_decay optimizer.grad_clip "
    "optimizer.momentum optimizer.nesterov schedule.type schedule.warmup schedule.decay_steps schedule.final_fraction reduce.order | "
    "run.name run.steps run.resume device.match model.init_from parallel.data parallel.zero parallel.recompute parallel.offload reduce.bucket_mb reduce.transport "
    "reduce.nccl_ib reduce.nccl_algorithm cluster.nodes cluster.port cluster.timeout cluster.heartbeat checkpoint.every checkpoint.keep_best eval.every eval.batches "
    "sample.every sample.tokens sample.prompt sample.temperature sample.top_k log.hash_every log.power_every | "
    "run.dir run.faults device.backend device.ranks device.threads device.simd device.graph device.check data.train data.val data.format "
    "data.prefetch data.retry pack.input pack.output pack.tokenizer pack.shard_tokens pack.val_fraction "
    "pack.compress reduce.nccl_library reduce.nccl_interface cluster.secret_file checkpoint.keep log.every log.jsonl ";

static err_t list_name(void *ctx, const char *key, const char *value) {
    (void)value;
    strcat(strcat(ctx, key), " ");
    return ERR_OK;
}

static err_t stop_at_third(void *ctx, const char *key, const char *value) {
    (void)key, (void)value;
    return ++*(int *)ctx == 3 ? err_set(ERR_DATA, "enough") : ERR_OK;
}

static void test_each(void **state) {
    fixture *x = *state;
    char names[8192] = "";
    assert_int_equal(config_load(&x->c, NULL, 0), ERR_OK);
    assert_int_equal(config_each(&x->c, CLASS_BITS, list_name, names), ERR_OK);
    strcat(names, "| ");
    assert_int_equal(config_each(&x->c, CLASS_LAYOUT, list_name, names), ERR_OK);
    strcat(names, "| ");
    assert_int_equal(config_each(&x->c, CLASS_LOCAL, list_name, names), ERR_OK);
    assert_string_equal(names, classes_of);
    int seen = 0;
    assert_int_equal(config_each(&x->c, CLASS_BITS, stop_at_third, &seen), ERR_DATA);
    assert_int_equal(seen, 3);
}

static void test_canonical(void **state) {
    fixture *x = *state;
    static const char text[] = "[optimizer]\nlr = 00.00100e0\nbeta1 = 0.95000\neps = 1e-10\ngrad_clip = 1e2\n"
                               "weight_decay = 0.1000000000000000055\n[model]\ndropout = 0.333333333333333333333\n"
                               "[precision]\nloss_scale = 65536.0\n[sample]\nprompt = 'a\"b\\'\n";
    listing *l = malloc(sizeof *l);
    assert_int_equal(load_text(x, text), ERR_OK);
    list_class(&x->c, CLASS_BITS, l);
    assert_non_null(strstr(l->text, "\noptimizer.lr=0.001\n"));
    assert_non_null(strstr(l->text, "\noptimizer.beta1=0.95\n"));
    assert_non_null(strstr(l->text, "\noptimizer.eps=1e-10\n"));
    assert_non_null(strstr(l->text, "\noptimizer.grad_clip=1e+02\n"));
    assert_non_null(strstr(l->text, "\noptimizer.weight_decay=0.1\n"));
    assert_non_null(strstr(l->text, "\nmodel.dropout=0.3333333333333333\n"));
    assert_non_null(strstr(l->text, "\nprecision.loss_scale=65536\n"));
    assert_non_null(strstr(l->text, "\nmodel.type=gpt\n"));
    assert_non_null(strstr(l->text, "\ndata.shuffle=yes\n"));
    assert_non_null(strstr(l->text, "\nbatch.lanes=2\n"));
    assert_non_null(strstr(l->text, "\nschedule.decay_steps=600\n"));
    list_class(&x->c, CLASS_LAYOUT, l);
    assert_non_null(strstr(l->text, "\nsample.prompt=a\\\"b\\\\\n"));
    assert_int_equal(load_text(x, ""), ERR_OK);
    list_class(&x->c, CLASS_BITS, l);
    assert_non_null(strstr(l->text, "\nprecision.loss_scale=dynamic\n"));
    free(l);
}

static void test_hash(void **state) {
    fixture *x = *state;
    char base[17], other[17];
    assert_int_equal(config_load(&x->c, NULL, 0), ERR_OK);
    config_hash(&x->c, base);
    assert_int_equal(strlen(base), 16);
    assert_int_equal(strspn(base, "0123456789abcdef"), 16);
    static const struct { const char *text; bool same; } rows[] = {
        {"", true},
        {"[run]\nseed = 1337\n[optimizer]\nlr = 0.0010\n[batch]\nlanes = 2\n[schedule]\nwarmup = 60\ndecay_steps = 600\n", true},
          // in other words
        {"[device]\nthreads = 1\nsimd = portable\n[run]\ndir = elsewhere\n[log]\nevery = 1\n", true},               // local
        {"[run]\nseed = 1338\n", false},
        {"[optimizer]\nlr = 0.0010000000000000002\n", false},
        {"[run]\nsteps = 601\n[schedule]\ndecay_steps = 600\n", false},  // layout
        {"[batch]\nlanes = 1\n", false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(load_text(x, rows[i].text), ERR_OK);
        config_hash(&x->c, other);
        if ((strcmp(base, other) == 0) == rows[i].same) continue;
        fail_msg("hash is %s for\n%s", rows[i].same ? "another" : "the same", rows[i].text);
    }
}

// What is printed is an INI that means the same, whatever was set.
static void test_print_and_load(void **state) {
    fixture *x = *state;
    char longest[1100], prompt[901], roundabout[800];  // a path as long as the place in a comment can be
    size_t used = (size_t)snprintf(roundabout, sizeof roundabout, "%s", x->dir);
    while (used < 500) used += (size_t)sprintf(roundabout + used, "/.");
    strcpy(roundabout + used, "/c.ini");
    memset(prompt, '\'', 900);
    prompt[900] = 0;
    snprintf(longest, sizeof longest, "[sample]\nprompt = \"%s\"\n", prompt);
    const char *texts[] = {
        "",
        "[run]\nname = x.y-z\nfaults = write@3, read@5x2\nsteps = 100000\nresume = must\n"
        "[model]\ndropout = 0.1\ninit_from = ' a;b '\n",
        "[optimizer]\nlr = 6.0221e-4\nbeta2 = 0.95\neps = 1e-30\n[precision]\ncompute = fp16\nloss_scale = 3.3\n"
        "[batch]\nglobal = 480\nmicro = 12\n",
        "[sample]\nprompt = \"\\n\\t\\\"\\\\ ; # ' = \xc3\xa9 \"\ntemperature = 0\n"
        "[data]\ntrain = \"a b\\\"\" # x\nval =\nshuffle = no\n",
        "[schedule]\ntype = constant\nwarmup = 99999\n[checkpoint]\nkeep_best = no\n"
        "[pack]\ncompress = yes\n[device]\nsimd = avx2\n",
        longest,
    };
    listing *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    for (size_t i = 0; i < COUNT(texts); i++) {
        write_text(x->path, texts[i]);
        assert_int_equal(load(x, roundabout), ERR_OK);
        list_all(&x->c, a);
        char *printed = NULL;
        print(&x->c, &printed);
        if (load_text(x, printed) != ERR_OK) fail_msg("%s\nof\n%s", err_last()->text, printed);
        list_all(&x->c, b);
        assert_string_equal(a->text, b->text);
        free(printed);
    }
    free(a);
    free(b);
}

// In a country of decimal commas a point is still what is read and written.
static void test_locale(void **state) {
    fixture *x = *state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE", "fr_FR"};
    for (size_t i = 0; i < COUNT(names) && !setlocale(LC_ALL, names[i]); i++) {}
    err_t rc = load_text(x, "[optimizer]\nlr = 0.25\n");
    char *line = rc == ERR_OK ? printed_line(&x->c, "optimizer", "lr") : NULL;
    setlocale(LC_ALL, "C");
    assert_int_equal(rc, ERR_OK);
    assert_true(x->c.optimizer.lr == 0.25);
    assert_int_equal(strncmp(line, "lr = 0.25 ", 10), 0);
    free(line);
}

// config.ini is what the table says, and is the defaults.
static void test_config_ini(void **state) {
    fixture *x = *state;
    char path[1100], *text = NULL;
    print(NULL, &text);
    const char *source = getenv("LOCKSTEP_SOURCE");
    snprintf(path, sizeof path, "%s/config.ini", source ? source : ".");
    size_t n = strlen(text);
    char *found = calloc(1, n + 2);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s: not found; run this at the top of the source, or set LOCKSTEP_SOURCE", path);
    size_t got = fread(found, 1, n + 1, f);
    fclose(f);
    size_t same = 0;
    while (same < n && same < got && text[same] == found[same]) same++;
    if (same < n || got != n)
        fail_msg("%s: differs from the table of keys at byte %zu; expected there:\n%.200s", path, same, text + same);

    listing *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    assert_int_equal(config_load(&x->c, NULL, 0), ERR_OK);
    list_all(&x->c, a);
    if (load(x, path) != ERR_OK) fail_msg("%s", err_last()->text);
    list_all(&x->c, b);
    assert_string_equal(a->text, b->text);
    int named = 0;
    for (int i = 0; i < CONFIG_KEYS_MAX; i++) named += x->c.origin[i].file == 1;
    assert_int_equal(named, a->count);  // every key is in it

    int lines = 0;  // each key under one line of comment
    for (char *p = text, *before = NULL; p && *p; before = p, p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
        size_t length = strcspn(p, "\n");
        assert_true(length <= 130);
        if (*p >= 'a' && *p <= 'z') {
            lines++;
            assert_true(before[0] == ';' && before[1] == ' ' && before[2] != '-' && before[2] != '\n');
        }
    }
    assert_int_equal(lines, a->count);
    free(a);
    free(b);
    free(found);
    free(text);
}

// ---- anything at all

// Bytes of config.ini changed at random: an answer, never a crash, and a failure always names the file.
static void test_mutations(void **state) {
    fixture *x = *state;
    char *text = NULL;
    print(NULL, &text);
    size_t n = strlen(text), whole = 0;
    static const char likely[] = "\"'\\;#=[]\n\r\t \0\x01.e-09az\xff";
    uint64_t seed = 88172645463325252u;
    for (int round = 0; round < 600; round++) {
        char *copy = malloc(n);
        memcpy(copy, text, n);
        for (int i = 0; i < 1 + round % 4; i++) {
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            copy[seed % n] = round % 2 ? likely[(seed >> 40) % sizeof likely] : (char)(seed >> 48);
        }
        write_bytes(x->path, copy, n - (round % 8 ? 0 : seed % n));
        err_t rc = load(x, x->path);
        if (rc == ERR_OK) whole++;
        else assert_says(x->path, ":", NULL, NULL);
        free(copy);
    }
    assert_in_range(whole, 50, 550);  // the changes hit comments and values, and both happened
    free(text);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_bad_files), TEST(test_nul), TEST(test_long_lines), TEST(test_unreadable), TEST(test_file_names),
        TEST(test_spellings), TEST(test_words), TEST(test_resolve), TEST(test_open_warmup), TEST(test_layers), TEST(test_defaults), TEST(test_each),
        TEST(test_canonical), TEST(test_hash), TEST(test_print_and_load), TEST(test_locale), TEST(test_config_ini),
        TEST(test_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
