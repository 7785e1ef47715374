#!/usr/bin/env python3
"""How fast GPT-2 124M writes text on a few cores: `lockstep sample` beside llama.cpp and PyTorch, as Markdown. One text at a time, greedy, FP32.

    LLAMA_CPP=~/llama.cpp python3 test/bench/sample.py [--turns 5] [--threads 2] [--wait 60]
        [--shapes 32:256,512:64] [--work DIR] [--only lockstep,llama,torch] [--quick]

The weights are random, of the right shape: a step of training, exported, and converted for llama.cpp. Those who are compared take turns, each a process
of its own. Printed is the median of the turns, the best one, and how much of the cores other programs had meanwhile: a machine that is not quiet
shows. Threads that wait for each other in a loop, as llama.cpp's and PyTorch's do, lose much more by that than they lack. --wait SECONDS waits for a
quiet moment before each measurement, at most so long.

lockstep      whole processes: a prompt of P tokens and N new ones, less the same with 1 new one, is N - 1 tokens. That and a prompt of 1 token is
              the prompt. So it does not matter how the verb does it; and what the process takes to begin with is in neither. It varies by more
              than a short prompt takes, so both are tried three times: the median counts for the new tokens, the best for the prompt
llama.cpp     llama-batched-bench of the checkout that LLAMA_CPP names, with a build in its folder build; as it comes, where keys and values are FP16,
              and with FP32
PyTorch       transformers with the packages of test/interop/requirements.txt: generate() with its cache and scaled_dot_product_attention; and, to leave
              out what that costs, a bare loop over the same model with a cache of fixed size, compiled by torch.compile
bound         no token can be had faster than its weights are read once (build/bench_read; make bench-programs)

--work DIR keeps the weights and uses what is there. --quick is for tests: a tiny model and one turn, no figures to be quoted.
"""
import argparse, json, os, pathlib, re, resource, shutil, statistics, subprocess, sys, tempfile, time

TOP = pathlib.Path(__file__).resolve().parents[2]
SIZES = dict(layers=12, heads=12, embed=768, vocab=50257, context=1024)
TINY = dict(layers=2, heads=2, embed=64, vocab=50257, context=1024)
RUN = """[run]
name = gpt2
dir = runs
steps = 1
[device]
backend = cpu
ranks = 1
threads = {threads}
[model]
{sizes}
head_chunks = 4
[data]
train = tokens.bin
format = raw16
val =
[batch]
global = 1
micro = 1
[schedule]
type = constant
[sample]
every = 0
temperature = 0
[eval]
every = 0
"""


def run(*args, cwd=None, env=None):
    done = subprocess.run([str(a) for a in args], cwd=cwd, env=env and {**os.environ, **env}, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, args))}: {done.returncode}: {(done.stderr or done.stdout).decode(errors='replace')[-1500:]}")
    return done.stdout.decode(errors="replace")


class Others:
    """What part of the machine's cores was not idle and not ours, between enter and exit."""

    def seconds(self):
        with open("/proc/stat") as f:
            part = [int(x) / os.sysconf("SC_CLK_TCK") for x in f.readline().split()[1:9]]
        own = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF))
        return sum(part) - part[3] - part[4] - own

    def __enter__(self):
        self.since, self.before = time.perf_counter(), self.seconds()
        return self

    def __exit__(self, *_):
        spent = (time.perf_counter() - self.since) * os.cpu_count()
        self.share = max(0.0, (self.seconds() - self.before) / spent) if spent > 0 else 0.0


def wait_for_quiet(limit):
    """Until others have less than a tenth of the cores for two seconds, or the limit is over."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        with Others() as others:
            time.sleep(2)
        if others.share < 0.1:
            return


# --- those who are compared: each takes (prompt, new) and gives seconds of the prompt, of `tokens` new ones, and how many those are --------------


class Lockstep:
    name = "lockstep"

    def __init__(self, a):
        self.bin, self.work = a.bin, a.work

    def process(self, prompt, new):
        (self.work / "new.ini").write_text(f"[sample]\ntokens = {new}\n")
        since = time.perf_counter()
        run(self.bin, "sample", "gpt2.ini", "new.ini", "--prompt", "x" * prompt, cwd=self.work)
        return time.perf_counter() - since

    def __call__(self, prompt, new):
        one, first = ([self.process(tokens, 1) for _ in range(3)] for tokens in (1, prompt))
        rest = self.process(prompt, new) - statistics.median(first)
        return min(first) - min(one) + rest / (new - 1), rest, new - 1


class Llama:
    def __init__(self, a, cache):
        self.name = f"llama.cpp, cache {cache.upper()}"
        self.args = [a.llama / "build" / "bin" / "llama-batched-bench", "-m", a.work / "gpt2.gguf", "-c", 1024, "-npl", 1, "-t", a.threads, "-tb", a.threads,
                     "-ctk", cache, "-ctv", cache, "-ngl", 0, "--output-format", "jsonl"]

    def __call__(self, prompt, new):
        said = run(*self.args, "-npp", prompt, "-ntg", new)
        found = json.loads([line for line in said.splitlines() if line.startswith("{")][-1])
        return found["t_pp"], found["t_tg"], new


class Torch:
    def __init__(self, a, how):
        self.name, self.a, self.how = f"PyTorch, {how}", a, how

    def __call__(self, prompt, new):
        env = dict(OMP_NUM_THREADS=str(self.a.threads), MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_="20000000000", HF_HUB_OFFLINE="1",
                   TORCHINDUCTOR_CACHE_DIR=str(self.a.work / "compiled"), TRANSFORMERS_VERBOSITY="error")
        said = run(sys.executable, __file__, "--torch", self.how, prompt, new, "--work", self.a.work, "--threads", self.a.threads, env=env)
        return *map(float, said.split()[-3:-1]), int(said.split()[-1])


# --- PyTorch, in a process of its own ------------------------------------------------------------------------------------------------------------


def torch_generate(net, ids, new):
    """Two passes, of which the first warms up; with one token and with all, as lockstep is timed."""
    import torch
    ask = dict(do_sample=False, attention_mask=torch.ones_like(ids), pad_token_id=0, use_cache=True)
    for _ in range(2):
        spent = []
        for n in 1, new:
            since = time.perf_counter()
            out = net.generate(ids, max_new_tokens=n, min_new_tokens=n, **ask)
            spent.append(time.perf_counter() - since)
            assert out.shape[1] == ids.shape[1] + n
    return spent[0], spent[1] - spent[0], new - 1


def torch_compiled(net, ids, new):
    import torch
    from transformers import StaticCache
    step, prompt = torch.compile(net.forward), ids.shape[1]
    at = torch.arange(prompt + new)
    for _ in range(3):
        cache = StaticCache(config=net.config, max_cache_len=prompt + new)
        since = time.perf_counter()
        token = net(ids, past_key_values=cache, cache_position=at[:prompt], use_cache=True).logits[:, -1:].argmax(-1)
        first = time.perf_counter()
        for i in range(prompt, prompt + new - 1):
            token = step(token, past_key_values=cache, cache_position=at[i:i + 1], use_cache=True).logits[:, -1:].argmax(-1)
        last = time.perf_counter()
    return first - since, last - first, new - 1


def torch_main(a):
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(a.threads)
    how, prompt, new = a.torch[0], int(a.torch[1]), int(a.torch[2])
    net = AutoModelForCausalLM.from_pretrained(a.work / "export", attn_implementation="sdpa").eval()
    with torch.inference_mode():
        print(*{"generate": torch_generate, "compiled": torch_compiled}[how](net, torch.full((1, prompt), 120), new))


# --- weights -------------------------------------------------------------------------------------------------------------------------------------


def prepare(a):
    sizes = TINY if a.quick else SIZES
    (a.work / "gpt2.ini").write_text(RUN.format(threads=a.threads, sizes="\n".join(f"{k} = {v}" for k, v in sizes.items())))
    if not (a.work / "export").exists():
        (a.work / "tokens.bin").write_bytes(bytes(range(1, 129)) * 64)
        run(a.bin, "gpt2.ini", cwd=a.work)
        run(a.bin, "export", "runs/gpt2", "export", cwd=a.work)
    h = sizes["embed"]
    return 4 * (sizes["layers"] * (12 * h * h + 13 * h) + sizes["vocab"] * h), 2 * 4 * sizes["layers"] * h  # bytes of weights, of a token's keys and values


def convert(a):
    """llama.cpp reads no model without a tokenizer: GPT-2's, from LOCKSTEP_TEST_DATA or from what the checkout tests its own with."""
    if (a.work / "gpt2.gguf").exists():
        return
    sys.path.append(str(TOP / "test" / "interop"))
    import compare_gguf
    peer, tokenizer = compare_gguf.Peer(a.llama), pathlib.Path(os.environ.get("LOCKSTEP_TEST_DATA", "")) / "gpt2-bpe"
    if not tokenizer.is_dir():
        tokenizer = a.work / "gpt-2.json"
        compare_gguf.make_tokenizer(peer, "gpt-2", str(tokenizer))
    shutil.rmtree(a.work / "with-tokenizer", ignore_errors=True)
    run(a.bin, "export", "runs/gpt2", "with-tokenizer", "--tokenizer", tokenizer, cwd=a.work)
    peer.convert(a.work / "with-tokenizer", a.work / "gpt2.gguf")


def those_here(a):
    """Each that can run, and a line for each that can't."""
    found, missing = [], []
    for name in a.only.split(","):
        try:
            if name == "lockstep":
                found.append(Lockstep(a))
            elif name == "llama":
                if not a.llama or not (a.llama / "build" / "bin" / "llama-batched-bench").exists():
                    raise RuntimeError("LLAMA_CPP names no checkout of llama.cpp with build/bin/llama-batched-bench")
                convert(a)
                found += [Llama(a, "f16"), Llama(a, "f32")]
            elif name == "torch":
                run(sys.executable, "-c", "import torch, transformers")
                found += [Torch(a, "generate"), Torch(a, "compiled")]
            else:
                raise RuntimeError("no such name")
        except RuntimeError as why:
            missing.append(f"({name} is left out: {str(why).strip().splitlines()[-1]})")
    return found, missing


# --- the page ------------------------------------------------------------------------------------------------------------------------------------


def bandwidth(a):
    program = TOP / "build" / "bench_read"
    return float(re.search(r"^read ([0-9.]+) GB/s", run(program, a.threads, 64 if a.quick else 512), re.M).group(1)) if program.exists() else 0.0


def rate(tokens, seconds):
    """0 where what else ran has made a difference of two times negative."""
    return tokens / seconds if seconds > 0 else 0.0


def measure(a, peers, shapes):
    """{(peer, shape): [(prompt tok/s, new tok/s, share of others)]}, and GB/s before each turn."""
    results, read = {}, []
    for _ in range(a.turns):
        wait_for_quiet(a.wait)
        read.append(bandwidth(a))
        for shape in shapes:
            for peer in peers:
                wait_for_quiet(a.wait)
                with Others() as others:
                    first, rest, tokens = peer(*shape)
                results.setdefault((peer.name, shape), []).append((rate(shape[0], first), rate(tokens, rest), others.share))
    return results, read


def table(results, shape, bound):
    print(f"\n## A prompt of {shape[0]} tokens, {shape[1]} new ones\n\n```")
    print("# tok/s                      new: median    best   of bound  prompt: median    best   others had: median   least")
    for (name, which), turns in results.items():
        if which != shape:
            continue
        prompt, new, others = zip(*turns)
        share = f"{100 * max(new) / bound:.0f} %" if bound else "-"
        print(f"{name:27} {statistics.median(new):13.2f} {max(new):7.2f} {share:>10} {statistics.median(prompt):15.1f} {max(prompt):7.1f} "
              f"{100 * statistics.median(others):18.0f} % {100 * min(others):5.0f} %")
    print("```")


def page(a):
    weights, pair = prepare(a)
    peers, missing = those_here(a)
    shapes = [tuple(map(int, s.split(":"))) for s in ("8:4" if a.quick else a.shapes).split(",")]
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    print(f"# Writing text, GPT-2 124M in FP32, {time.strftime('%Y-%m-%d', time.gmtime())}\n\n```")
    print(f"processor   {cpu.group(1) if cpu else '?'}, {os.cpu_count()} cores; threads: {a.threads}")
    print(f"lockstep    {run(a.bin, 'version').strip()}")
    if any(isinstance(p, Torch) for p in peers):
        print("PyTorch     " + run(sys.executable, "-c", "import torch, transformers as t; print(torch.__version__ + ', transformers ' + t.__version__)").strip())
    print(f"load before {' '.join(open('/proc/loadavg').read().split()[:3])}", flush=True)
    results, read = measure(a, peers, shapes)
    print(f"load after  {' '.join(open('/proc/loadavg').read().split()[:3])}; turns: {a.turns}")
    print(f"bound       {weights / 1e6:.1f} MB of weights a token and {pair / 1e3:.1f} kB for each token before it; memory is read at {max(read):.1f} GB/s "
          f"at best (median {statistics.median(read):.1f})" if max(read) else "bound       (build/bench_read is not built: make bench-programs)")
    print("\n".join(missing + ["quick: a tiny model, no figures to be quoted"] * a.quick + ["```"]))
    for prompt, new in shapes:
        table(results, (prompt, new), 1e9 * max(read) / (weights + pair * (prompt + new / 2)))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--bin", default=str(TOP / "lockstep"))
    p.add_argument("--turns", type=int, default=5)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--shapes", default="32:256,512:64", help="tokens of the prompt : new ones, at least 2")
    p.add_argument("--wait", type=float, default=0, help="seconds to wait at most for a quiet machine, before each measurement")
    p.add_argument("--work")
    p.add_argument("--only", default="lockstep,llama,torch")
    p.add_argument("--quick", action="store_true")
    p.add_argument("--torch", nargs=3, help=argparse.SUPPRESS)
    a = p.parse_args()
    a.bin = os.path.abspath(a.bin)
    a.llama = pathlib.Path(os.environ["LLAMA_CPP"]).resolve() if os.environ.get("LLAMA_CPP") else None
    a.turns = 1 if a.quick else a.turns
    with tempfile.TemporaryDirectory() as folder:
        a.work = pathlib.Path(a.work or folder).resolve()
        a.work.mkdir(parents=True, exist_ok=True)
        try:
            torch_main(a) if a.torch else page(a)
        except RuntimeError as why:
            sys.exit(f"sample.py: {why}")


if __name__ == "__main__":
    main()
