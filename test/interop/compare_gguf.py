#!/usr/bin/env python3
"""Exports of lockstep that go through llama.cpp's converter to GGUF and are run by llama.cpp. Optional: needs a checkout of llama.cpp with a build in its
folder build (llama-completion, llama-perplexity, llama-tokenize), named by LLAMA_CPP, and the packages of test/interop/requirements.txt.

  LLAMA_CPP=~/llama.cpp python3 test/interop/compare_gguf.py [--bin ./lockstep] [--families gpt2,qwen3]

For each family a small model learns the first sentences of this project's licence by heart with the family's own vocabulary, is exported, and converted
to GGUF in FP32. The converter must know the tokenizer by its ids; llama.cpp's ids of a text in many scripts must be those of `lockstep tokenize`, its
greedy text that of `lockstep sample`, and its perplexity of the whole licence that which transformers computes from the export (whose loss is that of
`lockstep eval`: compare_models.py). Greedy text of few different tokens would prove little, and is wrong too.
The vocabularies are those that lie in the checkout for its own tests; of GPT-2's, the two files in LOCKSTEP_TEST_DATA/gpt2-bpe where they are.
"""
import argparse, json, math, os, pathlib, re, subprocess, sys, tempfile

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", OMP_NUM_THREADS="2")
TOP = pathlib.Path(__file__).resolve().parents[2]
T, GREEDY, STEPS, DISTINCT = 96, 60, 160, 20
LICENCE = b" ".join((TOP / "LICENSE").read_bytes().split())
LEARNED, PROMPT = LICENCE[:1000], LICENCE[223:325].decode()
PROGRAMS = "llama-completion", "llama-perplexity", "llama-tokenize"
LLAMA = "type = llama\nlayers = 3\nheads = 4\nembed = 48\nhidden = 80\n"
# vocabulary, [model]. llama.cpp computes full attention for Mistral whatever its window, so the window here is as wide as the context.
FAMILIES = {
    "gpt2": ("gpt-2", "type = gpt\nlayers = 3\nheads = 4\nembed = 48\n"),
    "llama": ("gpt-2", LLAMA + "kv_heads = 2\nhead_dim = 10\ntied = yes\nrope_theta = 1000\n"),
    "llama3": ("llama-bpe", LLAMA + "kv_heads = 1\nbias = all\nrope_theta = 5000\nrope_scaling = llama3\nrope_original = 16\n"),
    "qwen2": ("qwen2", LLAMA + "kv_heads = 2\nbias = qkv\ntied = yes\nnorm_eps = 1e-6\n"),
    "qwen3": ("qwen2", LLAMA + "kv_heads = 2\nhead_dim = 16\nqk_norm = yes\nnorm_eps = 1e-6\n"),
    "mistral": ("gpt-2", LLAMA + f"kv_heads = 2\nwindow = {T}\n"),
}
RUN = """[run]
name = {name}
dir = runs
steps = {steps}
[model]
context = {T}
vocab = {vocab}
{model}
[pack]
input = learned
output = {name}
tokenizer = {tokenizer}
[data]
train = {name}-train-*.bin
val =
[batch]
global = 8
micro = 8
[optimizer]
lr = 3e-3
[schedule]
warmup = 1
type = constant
[sample]
every = 0
tokens = {greedy}
temperature = 0
tokenizer = {tokenizer}
[eval]
every = 0
"""


def run(*args, stdin=b""):
    done = subprocess.run([str(a) for a in args], input=stdin, capture_output=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, args))}: {done.returncode}: {done.stderr.decode(errors='replace')[-2000:]}")
    return done


class Peer:
    """The converter and the programs of a checkout of llama.cpp."""

    def __init__(self, folder):
        self.folder = folder

    def missing(self):
        wanted = [self.folder / "convert_hf_to_gguf.py", *(self.folder / "build" / "bin" / p for p in PROGRAMS)]
        return [str(p) for p in wanted if not p.exists()]

    def __call__(self, program, *args):
        return run(self.folder / "build" / "bin" / program, *args)

    def convert(self, export, gguf):
        done = run(sys.executable, self.folder / "convert_hf_to_gguf.py", export, "--outfile", gguf, "--outtype", "f32")
        return done.stderr.decode() + done.stdout.decode()

    def ids(self, gguf, path):
        return json.loads(self("llama-tokenize", "-m", gguf, "-f", path, "--ids", "--no-bos", "--no-parse-special", "--log-disable").stdout)

    def greedy(self, gguf):
        exact = ["--temp", "0", "--repeat-penalty", "1", "-ctk", "f32", "-ctv", "f32", "-fa", "off"]
        done = self("llama-completion", "-m", gguf, "-p", PROMPT, "-n", GREEDY, "-c", T, "-t", 2, "-no-cnv", *exact)
        return done.stdout.removesuffix(b"\n\n")

    def loss(self, gguf, path):
        done = self("llama-perplexity", "-m", gguf, "-f", path, "-c", T, "-b", T, "-t", 2, "-ctk", "f32", "-ctv", "f32", "-fa", "off")
        said = (done.stdout + done.stderr).decode()
        return math.log(float(re.findall(r"\[[0-9]+\]([0-9.]+),", said)[-1]))  # of all windows so far


def make_tokenizer(peer, kind, path):
    """The vocabulary of kind that llama.cpp tests its own tokenizer with, as a tokenizer.json, and the number of rows that its models have."""
    sys.path[:0] = [str(peer.folder / "gguf-py"), str(TOP / "test" / "golden" / "tokenizer")]
    import gguf
    import make_tokenizers as make
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    fields = gguf.GGUFReader(peer.folder / "models" / f"ggml-vocab-{kind}.gguf").fields
    tokens, types, merges = (fields[f"tokenizer.ggml.{f}"].contents() for f in ("tokens", "token_type", "merges"))
    normal, unused = gguf.TokenType.NORMAL, gguf.TokenType.UNUSED
    t = Tokenizer(models.BPE({w: i for i, (w, k) in enumerate(zip(tokens, types)) if k == normal}, [tuple(m.split(" ")) for m in merges],
                             ignore_merges=kind == "llama-bpe"))
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    t.pre_tokenizer = {"gpt-2": level, "llama-bpe": make.split(make.LLAMA3), "qwen2": make.split(make.QWEN2)}[kind]
    t.decoder, t.post_processor = decoders.ByteLevel(), processors.ByteLevel(trim_offsets=False)
    if kind == "qwen2":
        t.normalizer = normalizers.NFC()
    for i, (word, k) in enumerate(zip(tokens, types)):
        if k not in (normal, unused):
            t.add_tokens([AddedToken(word, special=k == gguf.TokenType.CONTROL, normalized=False)])
            assert t.token_to_id(word) == i, f"{word} is {t.token_to_id(word)}, expected {i}"
    if kind == "llama-bpe":
        begin = "<|begin_of_text|>"
        t.post_processor = processors.Sequence([t.post_processor, processors.TemplateProcessing(
            single=begin + " $A", pair=f"{begin} $A {begin}:1 $B:1", special_tokens=[(begin, t.token_to_id(begin))])])
    t.save(path)
    return len(tokens)


def loss_of(export, ids, begin):
    """As llama-perplexity has it: of windows of T tokens, the first of which is `begin` where a model has that, as the text's is, the second half."""
    import torch
    from transformers import AutoModelForCausalLM
    net = AutoModelForCausalLM.from_pretrained(export).eval()
    ids = ids if begin is None else [begin, *ids]
    windows = torch.tensor(ids[:len(ids) // T * T]).view(-1, T)
    read = windows.clone()
    if begin is not None:
        read[:, 0] = begin
    with torch.no_grad():
        logits = net(read).logits[:, T // 2:-1].double()
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, T // 2 + 1:].flatten()).item(), len(windows)


def family(name, peer, bin):
    kind, model = FAMILIES[name]
    tokenizer, own = f"{kind}.json", pathlib.Path(os.environ.get("LOCKSTEP_TEST_DATA", "")) / "gpt2-bpe"
    vocab = make_tokenizer(peer, kind, tokenizer)
    if name == "gpt2" and own.is_dir():
        tokenizer = own
    ini, export, gguf = f"{name}.ini", f"{name}-export", f"{name}.gguf"
    pathlib.Path(ini).write_text(RUN.format(name=name, model=model, steps=STEPS, T=T, greedy=GREEDY, vocab=vocab, tokenizer=tokenizer))
    for args in ["pack", ini], [ini], ["export", f"runs/{name}", export, "--tokenizer", tokenizer]:
        run(bin, *args)
    peer.convert(export, gguf)
    tokenize = lambda text: [int(i) for i in run(bin, "tokenize", tokenizer, stdin=text).stdout.split()]
    ids = tokenize(pathlib.Path("words").read_bytes())
    same_ids = peer.ids(gguf, "words") == ids
    ours = run(bin, "sample", ini, "--prompt", PROMPT).stdout.removesuffix(b"\n")
    same_text, distinct = ours == peer.greedy(gguf), len(set(tokenize(ours)))
    begin = json.loads(pathlib.Path(export, "config.json").read_text())["bos_token_id"]
    wanted, windows = loss_of(export, tokenize(LICENCE), begin)
    found = peer.loss(gguf, "licence")
    good = same_ids and same_text and distinct >= DISTINCT and abs(found - wanted) <= 1e-4 * wanted
    print(f"{name}: {len(ids)} ids of {kind} {'equal' if same_ids else 'DIFFERENT'}; greedy text of {distinct} tokens {'equal' if same_text else 'DIFFERENT'}; "
          f"loss over {windows} half windows {found:.5f}, transformers' {wanted:.5f}: {'right' if good else 'WRONG'}", flush=True)
    if not same_text:
        print(f"  lockstep:  {ours}\n  llama.cpp: {peer.greedy(gguf)}")
    return not good


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--bin", default=str(TOP / "lockstep"))
    p.add_argument("--families", default=",".join(FAMILIES))
    a = p.parse_args()
    if not os.environ.get("LLAMA_CPP"):
        print("skipped: compare_gguf.py (LLAMA_CPP names no checkout of llama.cpp)")
        return 0
    peer, bin, wrong = Peer(pathlib.Path(os.environ["LLAMA_CPP"]).resolve()), os.path.abspath(a.bin), 0
    if peer.missing():
        print(f"skipped: compare_gguf.py (not there: {', '.join(peer.missing())})")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        pathlib.Path("licence").write_bytes(LICENCE)
        pathlib.Path("learned").write_bytes(LEARNED * 20)
        pathlib.Path("words").write_bytes((TOP / "test" / "golden" / "tokenizer" / "train.txt").read_bytes())
        for name in a.families.split(","):
            wrong += family(name, peer, bin)
    print(f"{len(a.families.split(','))} families, {wrong} wrong")
    return wrong


if __name__ == "__main__":
    sys.exit(main() != 0)
