// trainer/manual.c: the help: of all verbs on one screen, and a page of each verb with its options.
#include "trainer/command.h"

// At most 24 lines of 120 columns.
const char command_overview[] =
    "lockstep: trains neural networks from one INI file, the same bits every time\n"
    "\n"
    "  lockstep train CONFIG.ini...      train, or continue, the run that the files describe; `train` may be left out\n"
    "  lockstep check CONFIG.ini...      check settings, device and every checksum of the data; train nothing\n"
    "  lockstep plan CONFIG.ini...       memory and traffic of each rank, to the byte; --search: the fastest layout\n"
    "  lockstep config [CONFIG.ini...]   print every setting, its value and where it came from\n"
    "  lockstep pack CONFIG.ini...       turn text into sharded datasets, as [pack] says\n"
    "  lockstep tokenize TOKENIZER       ids of standard input, and back; make a tokenizer\n"
    "  lockstep data info|verify FILES   what files of data are; check them; convert tokens\n"
    "  lockstep eval CONFIG.ini...       what the model knows: validation loss, bits per byte of a text, questions\n"
    "  lockstep sample CONFIG.ini...     let the model write\n"
    "  lockstep status|tail|flight DIR   does a run live, and what to do; its progress; who held it up when it failed\n"
    "  lockstep fork RUN_DIR[@STEP] NAME begin a new run with a checkpoint of another, and other settings\n"
    "  lockstep hash RUN_OR_CKPT_DIR...  fingerprints of weights and of the whole state, after checking every digest\n"
    "  lockstep export|inspect WEIGHTS   a run's weights for others to load; what is in theirs, as a [model] section\n"
    "  lockstep bench [step] CONFIG.ini  time training steps on made-up data, or operations; links: those between ranks\n"
    "  lockstep tune CONFIG.ini...       measure how a GPU multiplies the run's matrices best; [device] plans uses it\n"
    "  lockstep failures CLUSTER.ini     what of a cluster's time is useful when its parts fail, and how often to save\n"
    "  lockstep report|compare RUN_DIR.. what runs did: as one page, report.html; in the terminal\n"
    "\n"
    "`lockstep VERB --help` explains a verb and its options; `-o section.key=value` sets a key in place of the files.\n"
    "SIGTERM or Ctrl-C: finish the step, save, exit 75; the same command continues. A second one: leave at once.\n"
    "Exit codes: 0 done, 64 usage, 65 bad data, 69 unavailable, 70 internal, 74 I/O, 75 interrupted, 77 not\n"
    "authorised, 78 settings. Of status: 0 fine, 1 attention, 2 dead. `lockstep version` names the build.\n";

#define INI "CONFIG.ini..."
#define CHECKPOINT \
    { "--ckpt", "DIR", "this checkpoint; without it the run's best one, or its newest where none is best" }

const verb_page verb_pages[VERB_COUNT] = {
    [VERB_train] =
        {"train", INI,
         "Trains the run that the files describe, or goes on from its newest checkpoint. `train` may be left out. Of several\n"
         "files the later ones override the earlier ones. SIGTERM or Ctrl-C ends it after the step, with a checkpoint and exit\n"
         "code 75; the same command goes on, to the same bits. A second one leaves at once; then the newest checkpoint stands.\n"
         "With [cluster] nodes the same command, with the same files, is started on each of them.\n",
         "lockstep train config.ini -o run.steps=2000", 1, .option = {{0}}},
    [VERB_check] =
        {"check", INI,
         "Checks that the run could begin: every setting, the rules between them, the device, the data with all its checksums.\n"
         "Prints the model's size, memory and epochs, and which of several GPUs NVLink joins. Trains nothing and writes nothing.\n",
         "lockstep check config.ini", 1, .option = {{0}}},
    [VERB_plan] =
        {"plan", INI,
         "Prints what the run would take, to the byte: memory of each rank, and the traffic of a step; of a pipeline also each\n"
         "stage's blocks and idle time. Nothing is allocated and nothing is sent, so a large cluster can be planned on a laptop.\n",
         "lockstep plan model/llama/8b.ini -o device.ranks=8 -o parallel.zero=3", 1,
         .option = {{"--draw", NULL, "draw a pipeline's schedule, too: which micro-batch each rank works on, and when"},
                    {"--graph", "[BLOCK]",
                     "instead: what the model's blocks do in a step, or one block, by its name or number"},
                    {"--cluster", "NODESxEACH",
                     "plan for 128x8 devices, or in racks, 128x8x4, or as a file says, ./cluster.ini; none need exist"},
                    {"--search", NULL,
                     "instead: the fastest layouts of this run on its ranks, with the INI lines of each"},
                    {"--costs", "FILE",
                     "predict the step, by what `bench --save` measured or a sheet: h100 h200 a100 epyc9654 xeon8480"},
                    {"--free", "KEYS",
                     "of --search: micro, lanes, slices, which change the run's bits, may be others, too"},
                    {"--trace", "FILE",
                     "the fastest layout's step, predicted: a trace for Perfetto (FILE.json) or a picture (FILE.svg)"},
                    {"--json", NULL, "what was predicted, as JSON"}}},
    [VERB_config] =
        {"config", "[" INI "]",
         "Prints every setting: its value, whether it may change when a run goes on (bits, layout or local), and where it came\n"
         "from: a file and line, the command line, the default, or chosen because it was left open. The output is a valid INI\n"
         "file. Without files: the defaults, with a line that explains each key.\n",
         "lockstep config common.ini mine.ini -o optimizer.lr=3e-4", -1, .option = {{0}}},
    [VERB_pack] =
        {"pack", INI,
         "Turns text into shards of tokens, as [pack] says: files, directories and globs, plain, compressed or JSONL, become\n"
         "PREFIX-train-00000.bin and PREFIX-val-00000.bin. The same text gives the same bytes.\n",
         "lockstep pack config.ini -o pack.input=book.txt -o pack.output=datasets/book", 1, .option = {{0}}},
    [VERB_tokenize] =
        {"tokenize", "[OPTION] TOKENIZER",
         "Prints the ids of the text on standard input, one a line. TOKENIZER is `bytes`, a tokenizer.json, or a folder with\n"
         "one. --train makes one from the text on standard input and prints it.\n",
         "lockstep tokenize gpt2/tokenizer.json <book.txt >ids.txt", 0,
         .option = {{"--decode", NULL, "the other way round: the text of ids"},
                    {"--special", NULL, "names of special tokens in the text are these tokens"},
                    {"--train", "SIZE KIND",
                     "make a tokenizer of so many tokens; KIND is gpt2, llama3, qwen2 or smollm"}}},
    [VERB_data] =
        {"data", "info|verify|convert [OPTION]... FILES",
         "Files of tokens of any format that [data] format knows, and shards of images and of clicks. info: what each file is.\n"
         "verify: reads all of it and checks every checksum. convert FILES OUT: all files of tokens as one new file.\n",
         "lockstep data convert --to llmc datasets/self-train-00000.bin train.bin", 0,
         .option = {{"--from", "FORMAT",
                     "the files' format, where their first bytes don't tell: lockstep, llmc, raw16, raw32 or megatron"},
                    {"--to", "FORMAT", "of convert: lockstep, llmc, raw16 or raw32; without it lockstep"}}},
    [VERB_eval] =
        {"eval", INI,
         "Prints what the model knows: its loss on the validation data and on each of [eval] sets, and bits per byte and\n"
         "accuracy where [eval] asks for them. --set, --text and --choices ask for these alone. It runs on the ranks that the\n"
         "INI says, with the same digits.\n",
         "lockstep eval config.ini --choices hellaswag_val.jsonl", 1,
         .option =
             {CHECKPOINT,
              {"--set", "NAME", "the loss on this one of [eval] sets"},
              {"--text", "FILE",
               "bits per byte of this text, in place of what [eval] asks; may be compressed, or JSONL"},
              {"--choices", "FILE",
               "accuracy on these questions with several answers, in place of what [eval] asks: JSONL"},
              {"--protocol", "NAME", "how answers are compared: lm-eval or llmc, in place of [eval] protocol"},
              {"--answers", "RUN_DIR",
               "writes there what a model of classes says of the validation data, for `lockstep report RUN_DIR`"}}},
    [VERB_sample] =
        {"sample", INI,
         "Lets the model write what follows a prompt, as [sample] says: length, temperature, top_k, top_p, stop. On a terminal\n"
         "the text appears as it is written. A file of prompts gives a line of JSON for each.\n",
         "lockstep sample config.ini --prompt \"It is \" -o sample.temperature=0.5", 1,
         .option = {CHECKPOINT,
                    {"--prompt", "TEXT", "in place of [sample] prompt"},
                    {"--prompts", "FILE", "a prompt a line, or JSONL with \"prompt\""}}},
    [VERB_status] =
        {"status", "RUN_DIR",
         "Says in at most 15 lines whether a run lives, whom it waits for, what would be lost, and which command comes next. It\n"
         "reads files alone, on any node of the run. Exit codes: 0 fine, 1 attention, 2 dead, 64 no such run.\n",
         "lockstep status runs/default", 0, .option = {{"--json", NULL, "the same as one object, for programs"}}},
    [VERB_tail] =
        {"tail", "RUN_DIR",
         "Prints the progress of a run that was started elsewhere, as the run itself does: a bar on a terminal, plain lines in a\n"
         "pipe. It ends when the run ends, or on Ctrl-C, which does nothing to the run.\n",
         "lockstep tail runs/default --lines 20", 0,
         .option = {{"--lines", "N", "begin with so many lines of the past"}}},
    [VERB_flight] =
        {"flight", "RUN_DIR|FILE...",
         "Says which rank held up the others when a run failed: who had not entered which call, who waited in it since when, and\n"
         "what each was doing. It reads the newest flight recording of a run, which a failure leaves in its directory. Of several\n"
         "machines copy their files into one directory, or name several: they are put together, and the failure that is told is\n"
         "the newest.\n",
         "lockstep flight runs/default", 0},
    [VERB_fork] =
        {"fork", "RUN_DIR[@STEP|@best] NEW_NAME [" INI "]",
         "Begins a new run, beside the other one, with one of its checkpoints: weights, optimizer state, counters and place in\n"
         "the data. Without a step it is the newest checkpoint whose loss had not exploded. Its settings are those of\n"
         "RUN_DIR/config.ini with the files and -o over them. What differs is printed, and is in the events of both runs. A\n"
         "setting that the state does not fit, such as the model's shape, is refused by name. With nothing changed the new run\n"
         "has the other's bits.\n",
         "lockstep fork runs/a@best b -o optimizer.lr=3e-4", -1, .option = {{0}}},
    [VERB_hash] =
        {"hash", "RUN_OR_CKPT_DIR...",
         "Prints fingerprints of checkpoints: of the weights, and of the whole state with that of the optimizer, after checking\n"
         "every digest. Of a run it takes the best checkpoint, or the newest where none is best. Two runs with the same hash\n"
         "have the same weights, bit for bit.\n",
         "lockstep hash runs/default runs/again/best", 0, .option = {{0}}},
    [VERB_export] =
        {"export", "RUN DIR",
         "Writes the weights of a run, or of one checkpoint, as a new directory in the form of Hugging Face: safetensors,\n"
         "config.json and the tokenizer of its data, if found. Of a run its best checkpoint, or its newest where none is best.\n",
         "lockstep export runs/default my-model --dtype bf16", 0,
         .option = {{"--dtype", "TYPE", "of the numbers: f32, bf16 or f16; without it f32"},
                    {"--tokenizer", "PATH",
                     "add this tokenizer, a tokenizer.json or a folder with one, in place of that"},
                    {"--shard-mb", "N", "most megabytes in one file; without it 5000"},
                    {"--merge", NULL,
                     "adds adapters to the weights beside them, and writes these; without it the adapters alone"},
                    {"--ema", NULL, "writes the mean of the weights that [optimizer] ema keeps, not the last ones"}}},
    [VERB_inspect] =
        {"inspect", "WEIGHTS",
         "Says what weights of others are: files, tensors, types, and the [model] section that fits them, where that is known.\n"
         "WEIGHTS is a safetensors file, a directory of Hugging Face, a .bin of llm.c, or a run: its best checkpoint or newest.\n",
         "lockstep inspect gpt2 >gpt2.ini", 0, .option = {{0}}},
    [VERB_bench] =
        {"bench", "[step|links|comm] " INI,
         "Times training steps of the model on made-up samples: no data and no files are needed. `bench step` times them\n"
         "operation by operation, beside what memory and arithmetic of this machine could do. `bench links`, started on\n"
         "every machine, measures each link between the run's ranks and names those that are slower than their equals;\n"
         "`bench comm` times the collectives of all of them, by size.\n",
         "lockstep bench step config.ini --steps 10", 1,
         .option =
             {{"--steps", "N", "how many steps, 1 to 1000000; without it 20"},
              {"--save", "FILE",
               "of step and comm: add what was measured to this table, from which `plan --search` predicts"}}},
    [VERB_tune] =
        {"tune", INI,
         "Measures how this GPU best multiplies each pair of matrices that a step of the run multiplies, and writes the file that\n"
         "[device] plans reads. A run with other plans has other bits.\n",
         "lockstep tune config.ini", 1, .option = {{0}}},
    [VERB_report] =
        {"report", "RUN_DIR...",
         "Writes what a run did as one page, report.html in its directory: curves, hashes, settings, events. Of several runs it is\n"
         "report.html here. The page needs nothing else and no network.\n",
         "lockstep report runs/a runs/b --out both.html", 0,
         .option = {{"--out", "FILE", "where the page is written"}}},
    [VERB_compare] =
        {"compare", "RUN_DIR...",
         "Prints what runs did side by side in the terminal: curves, settings that differ, and the first step at which two of\n"
         "them part.\n",
         "lockstep compare runs/a runs/b", 0, .option = {{0}}},
    [VERB_failures] =
        {"failures", "CLUSTER.ini",
         "Simulates a cluster whose devices, nodes, network and jobs fail now and then: how much of the time is useful, what\n"
         "the rest goes into, and how often to save. `plan --costs TABLE --cluster CLUSTER.ini` says so of a run and its steps.\n"
         "The file has [cluster] nodes, devices, racks, spares, card_devices; [links] node_gb_s, node_us, the same of rack and\n"
         "spine, spread; [stragglers] share, slower; [failures] gpu_mtbf_h, node_mtbf_h, network_mtbf_h, job_mtbf_h, detect_s,\n"
         "restart_s, repair_h, every_s, save_s, save_gb_s, slow_share, slow_factor, days, runs, seed.\n",
         "lockstep failures cluster.ini", 0,
         .option = {{"--trace",
                     "FILE", "draw one such time, by days: a trace for Perfetto (FILE.json) or a picture (FILE.svg)"}}},
};
