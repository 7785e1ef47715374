// test/test_config.c: a wrong configuration is refused. Each way to get an INI wrong is one row: the text, and what the
// one message must say. (test_config_keys.c: what a good one means.)
#include "test/support/config_file.h"

// ---- what is refused

typedef struct bad {
    const char *text, *start, *part1, *part2;
} bad;

#define SERVED "[server]\ncount = 1\nmode = async\n[parallel]\n"
#define SERVERS(ranks, count) "[device]\nranks = " #ranks "\n[server]\ncount = " #count "\n[parallel]\n"
#define ISLANDS "[device]\nranks = 2\n[outer]\nislands = 2\n"

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
    {"[run]\nseed = 1\nsteps = 2\nseed = 1\n", ":4: [run] seed: given twice, first in line 2. Keep one of the two.",
     NULL, NULL},
    {"[run]\nseed = 1\n[log]\n[run]\nSeed = 1\n", ":5: [run] Seed: given twice, first in line 2", NULL, NULL},
    {"[data]\ntrain = a \\\n b\n", ":2: [data] train: a line can't be continued with \\", "`a \\`", NULL},
    {"[data]\ntrain = \"a \\\n b\"\n", ":2: [data] train: a line can't be continued with \\", NULL, NULL},
    {"[data]\ntrain = \"a\" \\\n", ":2: [data] train: a line can't be continued with \\", NULL, NULL},
    {"[data]\ntrain = \"abc\n", ":2: [data] train: quoted value without its closing quote: `\"abc`", NULL, NULL},
    {"[data]\ntrain = \"abc\\\"\n", ":2: [data] train: quoted value without its closing quote", NULL, NULL},
    {"[data]\ntrain = 'abc\n", ":2: [data] train: quoted value without its closing quote: `'abc`", NULL, NULL},
    {"[data]\ntrain = \"a\" b\n", ":2: [data] train: text after the closing quote: `b`", NULL, NULL},
    {"[data]\ntrain = 'a'b'\n", ":2: [data] train: text after the closing quote: `b'`", NULL, NULL},
    {"[data]\ntrain = \"a\\qb\"\n", ":2: [data] train: unknown escape, expected one of \\n \\t \\\\ \\\": `\\q`", NULL,
     NULL},
    {"[data]\ntrain = a\"b\"\n", ":2: [data] train: \" or \\ in a value without quotes", "`a\"b\"`", NULL},
    {"[data]\ntrain = a\\b\n", ":2: [data] train: \" or \\ in a value without quotes", "`a\\b`", NULL},
    {"[run]\nseed = 1\rsteps = 5\n", ":2: carriage return inside a line", NULL, NULL},
    {"[run]\n\x1bseed = 1\n", ":2: control character 0x1b", NULL, NULL},
    {"[run]\nname = a\x7f\n", ":2: control character 0x7f", NULL, NULL},

    // names
    {"[optimizer]\nlearning_rte = 3e-4\n",
     ":2: [optimizer] learning_rte: no such key. Did you mean `lr`? (keys: type lr beta1 beta2 ", "`3e-4`", NULL},
    {"[optimizer]\nbeta3 = 0.9\n", ":2: [optimizer] beta3: no such key. Did you mean `beta1`?", NULL, NULL},
    {"[optimizer]\nweigth_decay = 0.9\n", ":2: [optimizer] weigth_decay: no such key. Did you mean `weight_decay`?",
     NULL, NULL},
    {"[optimizer]\nLR = 0.9\n", ":2: [optimizer] LR: no such key. Did you mean `lr`?", NULL, NULL},
    {"[optimizer]\nrl = 0.9\n", ":2: [optimizer] rl: no such key. Did you mean `lr`?", NULL, NULL},
    {"[model]\nn_layer = 4\n", ":2: [model] n_layer: no such key. Did you mean `layers`?", NULL, NULL},
    {"[run]\nlr = 1\n", ":2: [run] lr: no such key. `lr` is a key of [optimizer] [outer].",
     "(keys: name dir seed steps epochs bad_steps resume faults;", NULL},
    {"[run]\nevery = 1\n",
     ":2: [run] every: no such key. `every` is a key of [outer] [server] [snapshot] [checkpoint] [eval] [sample] [log].",
     NULL, NULL},
    {"[run]\nlearning_rates = 1\n", ":2: [run] learning_rates: no such key. Did you mean `lr` of [optimizer]?", NULL,
     NULL},
    {"[log]\nxyzzy_plugh_plover = 7\n", ":2: [log] xyzzy_plugh_plover: no such key. The nearest is `",
     "(keys: every hash_every jsonl tensorboard report power_every ranks_every watch machine_every http http_token prom_file;",
     NULL},
    {"\n[optimiser]\nlr = 1\n",
     ":2: [optimiser]: no such section. Did you mean [optimizer]? (sections: run device model lora data ", NULL, NULL},
    {"[Run]\n", ":1: [Run]: no such section. Did you mean [run]?", NULL, NULL},

    // whole numbers
    {"[run]\nsteps = ten\n",
     ":2: [run] steps: expected a whole number in decimal, from 1 to 1000000000000, found `ten`", NULL, NULL},
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
    {"[run]\nsteps = 1000000000001\n", ":2: [run] steps: expected a whole number from 1 to", "found `1000000000001`",
     NULL},
    {"[run]\nseed = -1\n", ":2: [run] seed: expected a whole number from 0 to 9007199254740991, found `-1`", NULL,
     NULL},
    {"[run]\nseed = 9007199254740992\n", ":2: [run] seed: expected", "found `9007199254740992`", NULL},
    {"[run]\nseed = 9223372036854775808\n", ":2: [run] seed: expected", "found `9223372036854775808`", NULL},
    {"[run]\nseed = 18446744073709551617\n", ":2: [run] seed: expected", "found `18446744073709551617`", NULL},
    {"[device]\nthreads = 1025\n", ":2: [device] threads: expected a whole number from 0 to 1024, found `1025`", NULL,
     NULL},
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
    {"[precision]\nloss_scale = static\n", ":2: [precision] loss_scale: expected dynamic or a number", "found `static`",
     NULL},

    // words, names and text
    {"[precision]\ncompute = bf61\n",
     ":2: [precision] compute: no such value `bf61`. Did you mean `bf16`? (values: fp32 bf16 fp16)", NULL, NULL},
    {"[precision]\ncompute =\n", ":2: [precision] compute: no such value ``.", "(values: fp32 bf16 fp16)", NULL},
    {"[run]\nresume = Must\n",
     ":2: [run] resume: no such value `Must`. Did you mean `must`? (values: auto never must other-bits)", NULL, NULL},
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
     "Nearest that work: [model] embed = 132, or [model] embed = 128, or [model] heads = 5.", NULL},
    {"[model]\nembed = 96\nheads = 5\n", ":3: [model] heads: embed = 96 is not a multiple of heads = 5.",
     "[model] embed = 95, or [model] embed = 100,", "or [model] heads = 6."},
    {"[model]\nembed = 2\n", ":2: [model] embed: embed = 2 is not a multiple of heads = 4.",
     "[model] heads = 2, or [model] embed = 4.", NULL},
    {"[precision]\nrounding = stochastic\n",
     ":2: [precision] rounding: with compute = fp32 the weights in use are the masters themselves",
     "[precision] rounding = nearest, or [precision] compute = bf16.", NULL},
    {"[precision]\nrounding = stochastic\ncompute = fp32\n", ":3: [precision] compute: with compute = fp32", NULL,
     NULL},
    {"[precision]\ncompute = fp16\nrounding = random\n", ":3: [precision] rounding: no such value `random`.",
     "(values: nearest stochastic)", NULL},
    {"[precision]\nproducts = bf16-pairs\ncompute = fp16\n",
     ":3: [precision] compute: products = bf16-pairs multiplies BF16 numbers, and compute = fp16 stores FP16 ones.",
     "[precision] products = fp32, or [precision] compute = fp32.", NULL},
    {"[device]\nbackend = cuda\n[precision]\nproducts = bf16-pairs\n",
     ":4: [precision] products: products = bf16-pairs is an arithmetic of CPUs, whose bits no GPU computes, and backend = cuda is a GPU.",
     "[precision] products = fp32", "[device] backend = cpu"},
    {"[precision]\nproducts = bf16_pairs\n", ":2: [precision] products: no such value `bf16_pairs`. It is bf16-pairs.",
     "(values: fp32 bf16-pairs)", NULL},
    {"[precision]\nproducts = tf32\n",
     ":2: [precision] products: `tf32` is not supported. There are fp32 and bf16-pairs.", NULL, NULL},
    {"[precision]\nautocast = yes\n",
     ":2: [precision] autocast: no such key. Set [precision] products = bf16-pairs (on a CPU)", NULL, NULL},
    {"[optimizer]\ntype = sgd\nnesterov = yes\n",
     ":3: [optimizer] nesterov: nesterov = yes looks ahead along the momentum, and with momentum = 0",
     "[optimizer] momentum = 0.9, or [optimizer] nesterov = no.", NULL},
    {"[optimizer]\nnesterov = yes\nmomentum = 0\n", ":3: [optimizer] momentum: nesterov = yes looks ahead", NULL, NULL},
    {"[optimizer]\nmomentum = 1\n", ":2: [optimizer] momentum: expected", "found", NULL},
    {"[optimizer]\ntype = lars\nlr = 5\nnesterov = yes\n", ":4: [optimizer] nesterov: nesterov = yes looks ahead",
     "[optimizer] momentum = 0.9, or [optimizer] nesterov = no.", NULL},
    {"[optimizer]\ntype = lars\ntrust = 0\n", ":3: [optimizer] trust: expected", "found", NULL},
    {"[optimizer]\ntype = lars\neeta = 0.001\n", ":3: [optimizer] eeta: no such key.", "`trust`", NULL},
    {"[optimizer]\ntype = larc\n",
     ":2: [optimizer] type: `larc` is not supported. There are adamw, sgd, lars and muon.",
     "(values: adamw sgd lars muon)", NULL},
    {"[optimizer]\ngroups = wte.weight\n",
     ":2: [optimizer] groups: `wte.weight`: expected a name with * for any letters, a colon and rules", NULL, NULL},
    {"[optimizer]\ngroups = *: \n", ":2: [optimizer] groups: *: expected rules after the colon", NULL, NULL},
    {"[optimizer]\ngroups = a*: lr=0.1, \n", ":2: [optimizer] groups: a group is missing after the last comma", NULL,
     NULL},
    {"[optimizer]\ngroups = a*: lr=fast\n", ":2: [optimizer] groups: lr=fast: expected lr= and a number, 0 to 1000",
     NULL, NULL},
    {"[optimizer]\ngroups = a*: lr=0.5x\n", ":2: [optimizer] groups: lr=0.5x: expected lr= and a number", NULL, NULL},
    {"[optimizer]\ngroups = a*: decay=1e\n", ":2: [optimizer] groups: decay=1e: expected decay= and a number", NULL,
     NULL},
    {"[optimizer]\ngroups = a*: lr=0\n", ":2: [optimizer] groups: lr=0 trains nothing: frozen says so", NULL, NULL},
    {"[optimizer]\ngroups = a*: decay=-1\n", ":2: [optimizer] groups: decay=-1: expected decay= and a number, 0 to 100",
     NULL, NULL},
    {"[optimizer]\ngroups = a*: frozen lr=1\n", ":2: [optimizer] groups: a*: frozen parameters have no other rules",
     NULL, NULL},
    {"[optimizer]\ngroups = a*: slow\n",
     ":2: [optimizer] groups: `slow` is no rule of a group: expected lr=FACTOR, decay=NUMBER", NULL, NULL},
    {"[optimizer]\ntype = sgd\ngroups = a*: type=muon\n",
     ":3: [optimizer] groups: a*: adamw and muon may stand side by side, and type = sgd is neither", NULL, NULL},
    {"[optimizer]\ntype = lars\ngroups = a*: decay=0\n",
     ":3: [optimizer] groups: a*: lars measures all matrices with one weight_decay", NULL, NULL},
    {"[optimizer]\ntype = muon\n[parallel]\noffload = nvme\n",
     ":4: [parallel] offload: offload = nvme updates chunk by chunk", "[parallel] offload = none", NULL},
    {"[batch]\nlanes = 6\n",
     ":2: [batch] lanes: lanes = 6 is not a power of two. Nearest that work: [batch] lanes = 0,",
     "[batch] lanes = 4 and [batch] global = 32", NULL},
    {"[batch]\nmicro = 5\n", ":2: [batch] micro: global = 16 is not a multiple of micro = 5.",
     "[batch] global = 15, or [batch] global = 20, or [batch] micro = 4.", NULL},
    {"[batch]\nmicro = 32\n", ":2: [batch] micro: global = 16 is not a multiple of micro = 32.",
     "[batch] global = 32, or [batch] micro = 16.", NULL},
    {"[batch]\nlanes = 2\nmicro = 4\nglobal = 12\n",
     ":4: [batch] global: global = 12 is not lanes = 2 * micro = 4 * a whole number.",
     "[batch] global = 16, or [batch] micro = 3, or [batch] global = 8.", NULL},
    {"[batch]\nlanes = 4\n", ":2: [batch] lanes: global = 16 is not lanes = 4 * micro = 8",
     "[batch] global = 32, or [batch] micro = 4, or [batch] lanes = 0.", NULL},
    {"[schedule]\nwarmup = 2000\n", ":2: [schedule] warmup: the warm-up of 2000 steps ends after the decay",
     "step 600 (run.steps)", "[schedule] warmup = 0, or [run] steps = 2000."},
    {"[schedule]\nwarmup = 100\n[run]\nsteps = 50\n", ":4: [run] steps: the warm-up of 100 steps ends after the decay",
     "[run] steps = 100, or [schedule] warmup = 0.", NULL},
    {"[schedule]\nwarmup = 20\ndecay_steps = 10\n", ":3: [schedule] decay_steps: the warm-up of 20 steps",
     "step 10 (decay_steps)", "[schedule] decay_steps = 20."},

    // ranks
    {"[device]\nranks = 3\n", ":2: [device] ranks: 3 ranks ([device] ranks) are more than the lanes = 2",
     "a rank without a lane would be idle",
     "Nearest that work: [device] ranks = 2, or [batch] global = 32, or [batch] micro = 4."},
    {"[device]\nranks = 64\n", ":2: [device] ranks: 64 ranks", "Nearest that works: [device] ranks = 2.", NULL},
    {"[batch]\nmicro = 2\nlanes = 2\n[device]\nranks = 8\n", ":5: [device] ranks: 8 ranks",
     "[batch] lanes = 0, or [device] ranks = 2, or [batch] lanes = 8.", NULL},
    {"[device]\nranks = 8\n[batch]\nlanes = 2\n", ":4: [batch] lanes: 8 ranks ([device] ranks)", NULL, NULL},
    {"[cluster]\nnodes = a:2, b:2\n", ":2: [cluster] nodes: 4 ranks ([cluster] nodes) are more than the lanes = 2",
     NULL, NULL},
    {"[cluster]\nnodes = a:1, b:0\n", ":2: [cluster] nodes: entry 2, `b:0`", "ranks from 1 to 1024",
     "Expected host:ranks"},
    {"[cluster]\nnodes = gpu[2-1]\n", ":2: [cluster] nodes: entry 1, `gpu[2-1]`: the range ends before it begins", NULL,
     NULL},
    {"[cluster]\nnodes = a,b\nport = 65535\n",
     ":3: [cluster] port: port = 65535 and one more for each rank of a node, 1, go beyond",
     "Nearest that works: [cluster] port = 65534.", NULL},
    {"[cluster]\ntimeout = 5\nheartbeat = 3\n", ":3: [cluster] heartbeat: with heartbeat = 3",
     "[cluster] timeout = 6, or [cluster] heartbeat = 2.5", NULL},
    {"[device]\nranks = 2\n[parallel]\ndata = 1\n", ":4: [parallel] data: [parallel] data = 1, but the run has 2 ranks",
     "[parallel] data = 0, or [parallel] data = 2,", "or [device] ranks = 1."},
    {"[device]\nranks = 3\n[parallel]\npipeline = 2\n", ":4: [parallel] pipeline: 3 ranks ([device] ranks)",
     "does not divide 3 ranks", "[device] ranks = 4, or [parallel] pipeline = 3, or [device] ranks = 2."},
    {"[device]\nranks = 20\n[parallel]\npipeline = 2\n[batch]\nlanes = 2\n",
     ":6: [batch] lanes: 20 ranks ([device] ranks) in pipelines of 2 are 10 pipelines, more than the lanes = 2",
     "Nearest that works: [device] ranks = 4.", NULL},
    {"[model]\ntype = mlp\n[sample]\ntokens = 0\n[parallel]\nsequence = yes\n",
     ":6: [parallel] sequence: a perceptron has no residual stream", "[parallel] sequence = no", NULL},
    {"[model]\nembed = 30\nheads = 2\ndropout = 0.1\n[parallel]\nslices = 2\nsequence = yes\n",
     ":7: [parallel] sequence: embed = 30 is not a multiple of 4", "[parallel] sequence = no, or [model] embed = 32",
     NULL},
    {"[model]\ncontext = 2\nheads = 16\n[batch]\nmicro = 3\nglobal = 12\n[parallel]\nslices = 16\n",
     ":8: [parallel] slices: micro-batches of 3 x 2 positions",
     "Nearest that work: [parallel] slices = 4, or [model] context = 6", NULL},
    {"[model]\ntype = llama\nheads = 4\nkv_heads = 2\n[parallel]\nslices = 4\n",
     ":6: [parallel] slices: slices = 4 don't divide kv_heads: 2", "Nearest that work: [parallel] slices = 2,",
     "[model] kv_heads = 4."},
    {"[model]\ntype = gemma\nheads = 4\nkv_heads = 2\n[parallel]\nslices = 4\n",
     ":6: [parallel] slices: slices = 4 don't divide kv_heads: 2", "Nearest that work: [parallel] slices = 2,",
     "[model] kv_heads = 4."},
    {"[model]\ntype = llama\nheads = 8\nhidden = 36\n[parallel]\nslices = 8\n",
     ":6: [parallel] slices: slices = 8 don't divide hidden: 36", "Nearest that work: [parallel] slices = 4,",
     "[model] hidden = 40"},
    {"[model]\ntype = gemma\nheads = 6\nhead_dim = 8\n[parallel]\nslices = 4\n",
     ":6: [parallel] slices: slices = 4 don't divide heads: 6", "Nearest that work: [parallel] slices = 2,",
     "[model] heads = 8"},
    {"[model]\ntype = gemma\nheads = 4\nkv_heads = 2\n[parallel]\nslices = 4\n",
     ":6: [parallel] slices: slices = 4 don't divide kv_heads: 2", "[parallel] slices = 2,", "[model] kv_heads = 4."},
    {"[model]\ntype = gemma\nheads = 8\nhidden = 36\n[parallel]\nslices = 8\n",
     ":6: [parallel] slices: slices = 8 don't divide hidden: 36", "[parallel] slices = 4,", "[model] hidden = 40"},
    {"[model]\ntype = gemma\nheads = 4\nkv_heads = 3\n",
     ":4: [model] kv_heads: heads = 4 is not a multiple of kv_heads = 3", NULL, NULL},
    {"[model]\ntype = gemma\nhead_dim = 7\n", ":3: [model] head_dim: heads of 7 elements can't be turned in pairs",
     NULL, NULL},
    {"[parallel]\ntensor = 2\n", ":2: [parallel] tensor: tensor = 2 ranks can't have equal shares of slices = 1",
     "Nearest that work: [parallel] tensor = 1", "or [parallel] slices = 2."},
    {"[parallel]\ntensor = 3\nslices = 4\n", ":3: [parallel] slices: tensor = 3",
     "[parallel] tensor = 1, or [parallel] tensor = 2 and [device] ranks = 2.", NULL},
    // each divides the slices, and both together don't; each of both divides, and one doesn't divide the token slices
    {"[device]\nranks = 8\n[parallel]\nslices = 4\ntensor = 4\ncontext = 2\ntoken_slices = 2\nzero = 2\n",
     ":7: [parallel] token_slices: context = 2 ranks can't have equal shares of token_slices = 2 and of slices = 4 with tensor = 4",
     "[parallel] context = 1, or [parallel] tensor = 2.", NULL},
    {"[device]\nranks = 8\n[model]\nheads = 8\n[parallel]\nslices = 8\ntensor = 2\ncontext = 4\ntoken_slices = 2\nzero = 2\n",
     ":9: [parallel] token_slices: context = 4 ranks can't have equal shares of token_slices = 2 and of slices = 8 with tensor = 2",
     "[parallel] token_slices = 4", NULL},
    {"[device]\nranks = 6\n[parallel]\nslices = 4\ntensor = 4\n", ":5: [parallel] tensor: 6 ranks ([device] ranks)",
     "does not divide 6 ranks", "[device] ranks = 8, or [device] ranks = 4."},
    {"[device]\nranks = 24\n[parallel]\nslices = 4\ntensor = 4\n[batch]\nlanes = 2\n",
     ":7: [batch] lanes: 24 ranks ([device] ranks) in models of 4 are 6 models, more than the lanes = 2",
     "Nearest that work: [parallel] pipeline = 3, or [device] ranks = 8.", NULL},
    // what is set and would not be heeded
    {"[parallel]\nstages = 2 x\n",
     ":2: [parallel] stages: stages = 2 x cuts the blocks of a pipeline, and with pipeline = 1 there is none",
     "Nearest that works: [parallel] stages = \"\".", NULL},
    {"[parallel]\nchunks = 5\n", ":2: [parallel] chunks: chunks = 5 is how many stages each rank of a pipeline has",
     "[parallel] chunks = 1", NULL},

    // pipelines, before any of their ranks is started
    {"[parallel]\npipeline = 2\nchunks = 2\n",
     ":3: [parallel] chunks: with schedule = 1f1b each rank has 1 stage, found chunks = 2",
     "[parallel] chunks = 1, or [parallel] schedule = zb-v.", NULL},
    {"[parallel]\npipeline = 2\nchunks = 5\nschedule = zb-v\n",
     ":4: [parallel] schedule: with schedule = zb-v each rank has 2 stages, found chunks = 5", NULL, NULL},
    {"[parallel]\npipeline = 8\n",
     ":2: [parallel] pipeline: pipeline = 8 ranks with 1 stage each are 8 stages, and the model has only 6 blocks",
     "[model] layers = 6", NULL},
    {"[parallel]\npipeline = 2\nstages = 2 x\n",
     ":3: [parallel] stages: stages = 2 x: expected 2 numbers of blocks, 1 or more each, that add up",
     "the model's 6 blocks", "[parallel] stages = \"\""},
    {"[parallel]\npipeline = 3\nschedule = interleaved\n[device]\nranks = 3\n",
     ":5: [device] ranks: schedule = interleaved takes micro-batches in groups of pipeline = 3, and 2 of a step pass through a pipeline",
     "Nearest", NULL},
    {"[parallel]\npipeline = 2\nschedule = zb-v\n[batch]\nglobal = 8\n[device]\nranks = 2\n",
     ":7: [device] ranks: schedule = zb-v needs at least as many micro-batches as pipeline = 2 has ranks, and 1 of a step passes through",
     "Nearest", NULL},
    {"[device]\nranks = 3\n[cluster]\nnodes = a:2,b:2\n",
     ":4: [cluster] nodes: [device] ranks = 3, and no entry of [cluster] nodes gives a node 3", "[device] ranks = 2",
     NULL},
    {"[data]\nholdout = 5\n",
     ":2: [data] holdout: holdout = 5 takes validation data from the end of train, and val names other files",
     "Nearest that work: [data] holdout = 0, or [data] val = \"\".", NULL},
    {"[data]\nval =\ntrain = a@0.5 b@0.5\nholdout = 5\n", ":4: [data] holdout: holdout = 5",
     "Nearest that works: [data] holdout = 0.", NULL},
    {"[reduce]\ntransport = nccl\n[device]\nbackend = cpu\n", ":4: [device] backend: transport = nccl",
     "[reduce] transport = auto", NULL},
    // servers
    {SERVERS(2, 1) "zero = 0\n",
     ":6: [parallel] zero: count = 1 servers keep the optimizer's state for the others, and with",
     "[parallel] zero = 1", "[server] count = 0"},
    {SERVERS(4, 4) "zero = 1\n[batch]\nglobal = 16\n",
     ":4: [server] count: count = 4 of 4 that share the lanes (4 ranks, [device] ranks) leaves none to run them",
     "[server] count = 3", NULL},
    {SERVERS(4, 1) "zero = 1\n",
     ":4: [server] count: 4 ranks ([device] ranks) without 1 server are more than the lanes = 2", "[device] ranks = 3",
     "[server] count = 2"},
    {SERVERS(4, 1) "zero = 1\npipeline = 2\n",
     ":7: [parallel] pipeline: count = 1 servers run no blocks, and each of pipeline = 2", "[parallel] pipeline = 1",
     NULL},
    {SERVED "zero = 1\npipeline = 2\n[device]\nranks = 4\n",
     ":6: [parallel] pipeline: count = 1 servers run no blocks, and each of pipeline = 2", "[parallel] pipeline = 1",
     NULL},
    {SERVERS(2, 1) "zero = 1\ndeal = 1,1\n",
     ":7: [parallel] deal: deal = 1,1: expected 1 whole number, one for each that shares the lanes", NULL, NULL},
    {SERVERS(2, 1) "zero = 1\n[reduce]\norder = any\n", ":8: [reduce] order: with order = any the transport adds",
     "[reduce] order = fixed", NULL},
    {SERVERS(2, 1) "zero = 1\n[outer]\nislands = 2\n",
     ":8: [outer] islands: count = 1 servers add the lanes of all ranks", "[server] count = 0", NULL},
    {"[server]\nmode = async\n", ":2: [server] mode: mode = async is how servers apply gradients, and count = 0",
     "[server] mode = sync", NULL},
    {SERVED "zero = 2\n", ":5: [parallel] zero: mode = async has whole weights and gradients on each worker",
     "[parallel] zero = 1", "[server] mode = sync"},
    {SERVED "zero = 1\n[device]\nbackend = cuda\n",
     ":7: [device] backend: mode = async works on CPUs: set [device] backend = cpu", NULL, NULL},
    {SERVED "zero = 1\n[precision]\ncompute = fp16\n",
     ":7: [precision] compute: mode = async has no loss scale that all ranks agree on", "[server] mode = sync", NULL},
    {SERVED "zero = 1\ntensor = 2\nslices = 2\n[device]\nranks = 4\n",
     ":6: [parallel] tensor: mode = async gives each worker samples of its own", "[parallel] tensor = 1", NULL},
    {SERVED "zero = 1\nslices = 2\ntoken_slices = 2\n",
     ":7: [parallel] token_slices: mode = async adds all of a worker's gradient up as it comes",
     "[parallel] token_slices = 1", NULL},
    {SERVED "zero = 1\noffload = host\n", ":6: [parallel] offload: mode = async has the state in the memory of servers",
     "[parallel] offload = none", NULL},
    {SERVED "zero = 1\nbalance = auto\n", ":6: [parallel] balance: mode = async lets fast workers do more by itself",
     "[parallel] balance = none", NULL},
    {SERVED "zero = 1\ndeal = 1,1\n[device]\nranks = 3\n",
     ":6: [parallel] deal: mode = async gives a worker the next share of a step", "[server] mode = sync", NULL},
    // it is bounded that is sync with a staleness of 0
    {SERVED "zero = 1\nbalance = auto\n[server]\nstaleness = 0\n",
     ":6: [parallel] balance: mode = async lets fast workers do more by itself", "[parallel] balance = none", NULL},
    {"[server]\ncount = 1\nmode = hybrid\nstaleness = 0\n[parallel]\nzero = 1\nbalance = auto\n",
     ":7: [parallel] balance: mode = hybrid lets fast workers do more by itself", "[parallel] balance = none", NULL},
    {SERVED "zero = 1\n[server]\nweight = 0.5\n",
     ":7: [server] weight: mode = async lets servers alone keep what is updated", "[server] weight = 0", NULL},
    {SERVED "zero = 1\n[reduce]\ncompress = int8\n", ":7: [reduce] compress: mode = async sends gradients as they are",
     "[reduce] compress = none", NULL},
    {SERVED "zero = 1\n[optimizer]\nema = 0.9\n",
     ":7: [optimizer] ema: mode = async has no mean of weights, whose steps overlap", "[optimizer] ema = 0", NULL},
    {SERVED "zero = 1\n[optimizer]\nskip_norm = 3\n",
     ":7: [optimizer] skip_norm: mode = async has no mean of norms that servers agree on", "[optimizer] skip_norm = 0",
     NULL},
    {SERVED "zero = 1\n[optimizer]\nrollback = 2\n", ":7: [optimizer] rollback: mode = async has steps that overlap",
     "[optimizer] rollback = 0", NULL},
    {SERVED "zero = 1\n[cluster]\nelastic = yes\n[snapshot]\nlive = yes\n",
     ":9: [snapshot] live: mode = async has no step of which all ranks hold the same", "[snapshot] live = no", NULL},
    {SERVED "zero = 1\n[data]\ndocuments = yes\n",
     ":7: [data] documents: mode = async does not know how many losses of a step count", "[data] documents = no", NULL},
    {SERVED "zero = 1\n[data]\nanswers = yes\n",
     ":7: [data] answers: mode = async does not know how many losses of a step count", "[data] answers = no", NULL},
    {SERVED "zero = 1\n[data]\nignore = 3\n",
     ":7: [data] ignore: mode = async does not know how many losses of a step count", "[data] ignore = -1", NULL},
    {SERVED "zero = 1\n[model]\ntype = resnet20\n[batch]\nglobal = 8\nmicro = 2\nlanes = 4\nbn_span = 2\n",
     ":12: [batch] bn_span: mode = async has no lanes that meet", "[batch] bn_span = 1", NULL},
    {SERVED "zero = 1\n[cluster]\nelastic = yes\n[server]\nreplay = runs/other\n",
     ":9: [server] replay: mode = async has one order of one set of ranks in a record", "[server] mode = sync", NULL},
    {SERVED "zero = 1\n[optimizer]\ntype = lars\n", ":7: [optimizer] type: mode = async knows no norm of a row",
     "[server] mode = sync", NULL},
    {SERVED "zero = 1\n[cluster]\nelastic = yes\n[server]\nrecord = yes\n",
     ":9: [server] record: mode = async has one order of one set of ranks in a record", "[server] record = no",
     "[server] mode = sync"},
    {SERVED "zero = 1\n[cluster]\nelastic = yes\n[snapshot]\nevery = 25\n",
     ":9: [snapshot] every: [snapshot] every = 25 is no multiple of [server] every = 10", "[snapshot] every = 30",
     NULL},
    {SERVED "zero = 1\n[eval]\nevery = 25\n",
     ":7: [eval] every: [eval] every = 25 is no multiple of [server] every = 10, and only then do all ranks hold the "
     "same weights",
     "[eval] every = 30", NULL},
    {SERVED "zero = 1\n[eval]\nevery = 3\n", ":7: [eval] every: [eval] every = 3 is no multiple of [server] every = 10",
     "[eval] every = 10", "[server] every = 1"},
    {SERVED "zero = 1\n[batch]\nglobal = 32\nmicro = 4\n[device]\nranks = 4\n",
     ":10: [device] ranks: a step's lanes = 8 can't be divided into a share for each of 3 workers (4 ranks, [device] "
     "ranks)",
     "[device] ranks = 3", "[server] count = 2"},
    {"[server]\ncount = 3\nmode = async\n[parallel]\nzero = 1\n[batch]\nglobal = 32\nmicro = 4\n[device]\nranks = 10\n",
     ":10: [device] ranks: a step's lanes = 8 can't be divided into a share for each of 7 workers (10 ranks, [device] "
     "ranks)",
     "[device] ranks = 7,", "[device] ranks = 11,"},
    {"[server]\nweight = 0.5\n", ":2: [server] weight: weight = 0.5 is what others keep beside servers, and count = 0",
     "[server] weight = 0", NULL},
    // islands
    {"[outer]\nislands = 3\n[device]\nranks = 3\n", ":2: [outer] islands: islands = 3 is not a power of two.",
     "[outer] islands = 2", NULL},
    {"[outer]\nislands = 4\n[device]\nranks = 4\n", ":2: [outer] islands: islands = 4 are more than the lanes = 2",
     "[batch] micro = 4", NULL},
    {"[outer]\nevery = 10\n", ":2: [outer] every: every = 10 is how often islands mix their weights, and islands = 1.",
     "[outer] every = 1", NULL},
    {"[outer]\ntype = nesterov\n",
     ":2: [outer] type: type = nesterov is how islands mix their weights, and islands = 1.", "[outer] type = average",
     NULL},
    {"[outer]\nislands = 2\n[device]\nranks = 3\n", ":4: [device] ranks: 3 ranks ([device] ranks)",
     "[device] ranks = 2", NULL},
    {ISLANDS "[reduce]\norder = any\n", ":6: [reduce] order: islands are added along the tree of lanes",
     "order = fixed", NULL},
    {ISLANDS "[reduce]\ncompress = int8\n", ":6: [reduce] compress: what [reduce] compress leaves out of a lane",
     "compress = none", NULL},
    {ISLANDS "[parallel]\noffload = yes\n", ":6: [parallel] offload: islands mix their state where steps are computed",
     "offload = none", NULL},
    {ISLANDS "[parallel]\nbalance = auto\n", ":6: [parallel] balance: balance = auto would move lanes",
     "balance = none", NULL},
    {ISLANDS "[parallel]\ndeal = 1,1\n", ":6: [parallel] deal: each island has an equal share of the lanes",
     "deal = ", NULL},
    {ISLANDS "[cluster]\nelastic = yes\n", ":6: [cluster] elastic: a run that heals goes on from any step",
     "elastic = no", NULL},
    {"[outer]\ncompress = int8\n", ":2: [outer] compress: compress is how islands send their weights, and islands = 1",
     "[outer] compress = none", "[outer] islands = 2"},
    {"[outer]\nmoments = own\n", ":2: [outer] moments: moments = own is what islands have of their optimizers",
     "[outer] moments = mean", NULL},
    {"[outer]\nfragments = h.*:5\n", ":2: [outer] fragments: fragments is which tensors islands mix how often",
     "[outer] islands = 2", NULL},
    {"[outer]\noverlap = 2\n", ":2: [outer] overlap: overlap is how long islands wait for what they send",
     "[outer] overlap = 0", NULL},
    {ISLANDS "fragments = h.0\n", ":5: [outer] fragments: `h.0`: expected PATTERN:PERIOD or PATTERN:PERIOD+OFFSET",
     NULL, NULL},
    {ISLANDS "fragments = :4\n", ":5: [outer] fragments: `:4`: expected PATTERN:PERIOD", NULL, NULL},
    {ISLANDS "fragments = a:3 h.*:4x\n", ":5: [outer] fragments: `h.*:4x`: after the period expected +OFFSET", NULL,
     NULL},
    {ISLANDS "fragments = h.*:4+4\n", ":5: [outer] fragments: `h.*:4+4`: expected a period of 1 or more, and an offset",
     NULL, NULL},
    {ISLANDS "fragments = h.*:0\n", ":5: [outer] fragments: `h.*:0`: expected a period of 1 or more", NULL, NULL},
    {ISLANDS "every = 4\nmoments = own\noverlap = 4\n",
     ":7: [outer] overlap: overlap = 4: what leaves after a step must be mixed in before it leaves again, and what no "
     "fragment names leaves every 4 steps",
     "[outer] overlap = 3", "[outer] every = 5"},
    {ISLANDS "every = 4\nmoments = own\nfragments = a:9 h.*:2\noverlap = 3\n",
     ":8: [outer] overlap: overlap = 3: what leaves after a step must be mixed in before it leaves again, and h.* "
     "leaves every 2 steps",
     "[outer] overlap = 0", NULL},
    {ISLANDS "every = 4\noverlap = 3\n",
     ":6: [outer] overlap: with overlap = 3 what optimizers keep would be so many steps old", "[outer] moments = own",
     NULL},
    {ISLANDS "[data]\nignore = 0\n",
     ":6: [data] ignore: with [data] ignore, answers or documents losses are weighed over all", "ignore = -1", NULL},
    {ISLANDS "[data]\nanswers = yes\n",
     ":6: [data] answers: with [data] ignore, answers or documents losses are weighed", "answers = no", NULL},
    {ISLANDS "[optimizer]\ntype = lars\n", ":6: [optimizer] type: lars weighs an island's gradient",
     "[optimizer] type = adamw", NULL},
    {ISLANDS "[model]\ntype = resnet20\n[batch]\nmicro = 4\nlanes = 4\nbn_span = 2\n",
     ":10: [batch] bn_span: bn_span takes moments over 2 lanes", NULL, NULL},
    {ISLANDS "[run]\nsteps = 605\n[outer]\nevery = 10\n",
     ":8: [outer] every: [run] steps = 605 is no multiple of [outer] every = 10, and only then do the islands hold the same weights",
     "[run] steps = 610", "[run] steps = 600"},
    {ISLANDS "[checkpoint]\nevery = 25\n[outer]\nevery = 10\n",
     ":8: [outer] every: [checkpoint] every = 25 is no multiple of [outer] every = 10", "[checkpoint] every = 30",
     "[checkpoint] every = 20"},
    {ISLANDS "[eval]\nevery = 25\n[outer]\nevery = 50\n",
     ":8: [outer] every: [eval] every = 25 is no multiple of [outer] every = 50", "[eval] every = 50", NULL},
    {ISLANDS "[sample]\nevery = 30\n[outer]\nevery = 25\n",
     ":8: [outer] every: [sample] every = 30 is no multiple of [outer] every = 25", "[sample] every = 25", NULL},
    {ISLANDS "[log]\nhash_every = 3\n[outer]\nevery = 2\n",
     ":8: [outer] every: [log] hash_every = 3 is no multiple of [outer] every = 2", "[log] hash_every = 4",
     "[log] hash_every = 2"},
};

static void test_bad_files(void **state) {
    fixture *x = *state;
    for (size_t i = 0; i < COUNT(bad_files); i++) {
        const bad *b = &bad_files[i];
        if (load_text(x, b->text) != ERR_CONFIG) fail_msg("expected ERR_CONFIG for:\n%s", b->text);
        assert_says(x->path, b->start, b->part1, b->part2);
    }
}

// What is never done needs no step at which all ranks hold the same; how many steps there are is not known yet where
// epochs are given; and a run that has lost ranks goes on with fewer servers.
static void test_what_is_no_mistake(void **state) {
    static const char *const good[] = {
        SERVED "zero = 1\n[sample]\ntokens = 0\nevery = 3\n",
        SERVED "zero = 1\n[snapshot]\nevery = 25\n",
        SERVED "zero = 1\n[server]\nevery = 7\n[checkpoint]\nevery = 0\n[eval]\nevery = 0\n[run]\nepochs = 2\n",
        ISLANDS "every = 7\n[checkpoint]\nevery = 0\n[eval]\nevery = 0\n[run]\nepochs = 2\n[sample]\ntokens = 0\n",
        SERVERS(2, 2) "zero = 1\n[cluster]\nelastic = yes\n",
    };
    fixture *x = *state;
    for (size_t i = 0; i < COUNT(good); i++)
        if (load_text(x, good[i]) != ERR_OK) fail_msg("%s\n%s", good[i], err_last()->text);
}

static void test_nul(void **state) {
    fixture *x = *state;
    static const char inside[] = "[run]\nseed = 1\0"
                                 "23\n",
                      utf16[] = "\xff\xfe[\0r\0u\0n\0]\0\n\0";
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

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_bad_files),  TEST(test_what_is_no_mistake), TEST(test_nul),       TEST(test_long_lines),
        TEST(test_unreadable), TEST(test_file_names),         TEST(test_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
