#!/usr/bin/python3
"""test/bench/planner.py BIN WORK CONFIG...: how well `plan --search` foretells this machine, as Markdown.

For each INI it measures a table of costs with one and with two ranks of a thread each, asks the planner for its
layouts of --ranks ranks, and runs each of them for --steps steps, in an order that is drawn. With --all these are not
the search's best layouts, but all that the INI's rules allow: each width, depth, ZeRO stage, schedule and
recomputation. All of it --turns times, as a machine's clock moves, and --tables tables in each turn, among its runs: a
table is of one process, and processes of the same run differ by several percent from start to start. What stands in a
row are medians: of the turns' median steps, and of what each table predicts. WORK is a folder for all files. Run it on
a quiet machine.
"""
import argparse, itertools, json, os, random, statistics, subprocess

REFUSED = 78

def call(*words, may=0):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode not in (0, may):
        raise SystemExit(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout[-600:]}{done.stderr[-1200:]}")
    return None if done.returncode else done.stdout

QUIET = ["log.watch=no", "log.every=1", "log.hash_every=0", "log.power_every=0", "eval.every=0", "sample.tokens=0",
         "checkpoint.every=0", "device.backend=cpu", "device.threads=1", "run.dir=runs"]

def options(settings):
    return [word for s in settings for word in ("-o", s)]

def layout_of(row):
    keys = ["tensor", "context", "pipeline", "zero", "chunks", "schedule", "recompute", "stages"]
    out = [f"parallel.{k}={row[k]}" for k in keys if not (k == "stages" and not row[k])]
    return out + [f"parallel.sequence={'yes' if row['sequence'] else 'no'}", "parallel.data=0"]

def measured(a, config, row, ranks):
    call(a.bin, config, *options(QUIET + layout_of(row) + [f"device.ranks={ranks}", "run.name=p", f"run.steps={a.steps}",
                                                          "run.resume=never"]))
    with open("runs/p/log.jsonl") as log:
        ms = [step["ms"] for step in map(json.loads, log) if step["t"] == "step"]
    subprocess.run(["rm", "-rf", "runs/p"], check=True)
    return statistics.median(ms[2:])

def table_of(a, config):
    costs = f"{os.path.basename(config)}.costs"
    if os.path.exists(costs):
        os.remove(costs)
    call(a.bin, "bench", "step", config, *options(QUIET + ["device.ranks=1"]), "--steps", "8", "--save", costs)
    call(a.bin, "bench", "comm", config, *options(QUIET + ["device.ranks=2"]), "--save", costs)
    return costs

def ranked(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    return [order.index(i) for i in range(len(values))]

def name_of(row):
    name = f"t{row['tensor']} c{row['context']} p{row['pipeline']} d{row['data']} zero {row['zero']}"
    name += f", {row['schedule']} x{row['chunks']}" if row["pipeline"] > 1 else ""
    return name + (", sequence" if row["sequence"] else "") + (
        f", recompute {row['recompute']}" if row["recompute"] != "none" else "")

def found_by(a, config, costs):
    return json.loads(call(a.bin, "plan", "--search", "--json", "--costs", costs, config,
                           *options(QUIET + [f"device.ranks={a.ranks}"])))["found"]

def every_layout(ranks):
    schedules = [("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("interleaved", 4), ("interleaved", 8), ("zb-h1", 1),
                 ("zb-v", 2)]
    widths = [n for n in range(1, ranks + 1) if ranks % n == 0]
    for tensor, context, pipeline in itertools.product(widths, widths, widths):
        if ranks % (tensor * context * pipeline):
            continue
        shared = ranks // tensor // pipeline > 1
        for zero, (schedule, chunks), recompute, sequence in itertools.product(
                range(4) if shared else [0], schedules if pipeline > 1 else [("1f1b", 1)],
                ["none", "selective", "block"], [False, True] if tensor > 1 else [False]):
            yield {"tensor": tensor, "context": context, "pipeline": pipeline, "zero": zero, "schedule": schedule,
                   "chunks": chunks, "recompute": recompute, "sequence": sequence, "stages": ""}

# Of one layout; None: the rules refuse it.
def predicted(a, config, costs, row):
    said = call(a.bin, "plan", "--costs", costs, "--json", config,
                *options(QUIET + layout_of(row) + [f"device.ranks={a.ranks}"]), may=REFUSED)
    return json.loads(said)["found"][0] if said else None

def all_layouts(a, config, costs):
    return [row for row in (predicted(a, config, costs, row) for row in every_layout(a.ranks)) if row]

def one_config(a, config, draw, errors):
    found, times, foretold = None, {}, {}
    for part in range(a.turns * a.tables):
        costs = table_of(a, config)
        found = found or (all_layouts if a.all else found_by)(a, config, costs)
        if part % a.tables == 0:
            order = draw.sample(range(len(found)), len(found))
        for i in order:
            foretold.setdefault(i, []).append(predicted(a, config, costs, found[i])["ms"])
        for i in order[part % a.tables::a.tables]:
            times.setdefault(i, []).append(measured(a, config, found[i], a.ranks))
    rows = sorted(((statistics.median(foretold[i]), statistics.median(times[i]), found[i]) for i in times),
                  key=lambda row: row[0])
    said, took, found = zip(*rows)
    print(f"\n{os.path.basename(config)}, {a.ranks} ranks\n\n| layout | measured ms | said ms | error |\n|---|---|---|---|")
    for row, ms, p in zip(found, took, said):
        print(f"| {name_of(row)} | {ms:.1f} | {p:.1f} +- {row['error_ms']:.0f} | {100 * (p / ms - 1):+.1f} % |")
    errors += [p / ms - 1 for ms, p in zip(took, said)]
    x, y = ranked(took), ranked(said)
    print(f"\nchosen: {100 * (took[said.index(min(said))] / min(took) - 1):.1f} % above the best measured; rank correlation"
          f" {statistics.correlation(x, y):.2f}; mean error {100 * statistics.mean(map(abs, errors[-len(took):])):.1f} %",
          flush=True)

def main():
    p = argparse.ArgumentParser()
    p.add_argument("bin"), p.add_argument("work"), p.add_argument("configs", nargs="+")
    p.add_argument("--ranks", type=int, default=2), p.add_argument("--steps", type=int, default=7)
    p.add_argument("--turns", type=int, default=2), p.add_argument("--tables", type=int, default=3)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--all", action="store_true")
    a = p.parse_args()
    a.bin, a.configs = os.path.abspath(a.bin), [os.path.abspath(c) for c in a.configs]
    os.chdir(a.work)
    errors, draw = [], random.Random(a.seed)
    for config in a.configs:
        one_config(a, config, draw, errors)
    size = [abs(e) for e in errors]
    print(f"\n{len(size)} layouts: mean error {100 * statistics.mean(size):.1f} %, worst {100 * max(size):.1f} %")

main()
