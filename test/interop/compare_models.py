#!/usr/bin/env python3
"""Models that go back and forth between lockstep and transformers. Optional: needs torch, transformers and safetensors.

  python3 test/interop/compare_models.py [--bin ./lockstep] [--families gpt2,qwen3]

For each family a small model is trained on this project's licence, a token for each byte, and exported. transformers loads the directory as a user
would (AutoModelForCausalLM, AutoTokenizer): its mean loss over the validation windows must be that of `lockstep eval` to 1e-5, and its greedy text
that of `lockstep sample`. Then save_pretrained writes the model, and a run that starts from that must have the hash of the first run.
"""
import argparse, os, pathlib, re, subprocess, sys, tempfile

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", OMP_NUM_THREADS="2")
import numpy as np
import torch
import torch.nn.functional as F
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

TOP = pathlib.Path(__file__).resolve().parents[2]
T, PROMPT, GREEDY = 48, "The Software is provided ", 60
LLAMA = "type = llama\nlayers = 3\nheads = 4\nembed = 48\nhidden = 80\n"
FAMILIES = {
    "gpt2": "type = gpt\nlayers = 3\nheads = 4\nembed = 48\n",
    "llama": LLAMA + "kv_heads = 2\nhead_dim = 10\ntied = yes\nrope_theta = 1000\n",
    "llama3": LLAMA + "kv_heads = 1\nbias = all\nrope_theta = 5000\nrope_scaling = llama3\nrope_original = 16\n",
    "qwen2": LLAMA + "kv_heads = 2\nbias = qkv\ntied = yes\nnorm_eps = 1e-6\n",
    "qwen3": LLAMA + "kv_heads = 2\nhead_dim = 16\nqk_norm = yes\nnorm_eps = 1e-6\n",
    "mistral": LLAMA + "kv_heads = 2\nwindow = 12\n",
    "gemma3": "type = gemma\nlayers = 7\nheads = 4\nkv_heads = 2\nhead_dim = 16\nembed = 48\nhidden = 80\npattern = 3\nwindow = 12\nrope_factor = 8\n",
}
RUN = """[run]
name = {name}
dir = runs
steps = {steps}
[model]
context = {T}
vocab = 256
{model}
[data]
train = data-train-*.bin
val = data-val-*.bin
[batch]
global = 8
micro = 8
[optimizer]
lr = {lr}
[schedule]
warmup = 1
type = constant
[sample]
every = 0
tokens = {tokens}
temperature = 0
[eval]
every = 0
"""


class Lockstep:
    def __init__(self, bin):
        self.bin = bin

    def __call__(self, *args, text=True):
        done = subprocess.run([self.bin, *map(str, args)], capture_output=True)
        if done.returncode:
            sys.exit(f"lockstep {' '.join(map(str, args))}: {done.returncode}: {done.stderr.decode()}")
        return done.stdout.decode() if text else done.stdout


def write_run(name, model, steps, lr):
    pathlib.Path(f"{name}.ini").write_text(RUN.format(name=name, model=model, steps=steps, lr=lr, T=T, tokens=GREEDY))
    return f"{name}.ini"


def loss_of(net, shard_text):
    """The mean over whole windows of T bytes, each of which is followed by one more."""
    data = torch.tensor(list(shard_text))
    windows = [data[i:i + T + 1] for i in range(0, len(data) - T, T)]
    batch = torch.stack(windows)
    with torch.no_grad():
        logits = net(batch[:, :-1]).logits.double()
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), batch[:, 1:].reshape(-1)).item(), len(windows)


def hash_of(output):
    return re.findall(r"hash ([0-9a-f]{16})", output)[-1]


def family(name, model, lockstep, val):
    ini = write_run(name, model, 40, 3e-3)
    trained = hash_of(lockstep(ini))
    lockstep("export", f"runs/{name}", f"{name}-export", "--shard-mb", "0.1")
    net, tokenizer = AutoModelForCausalLM.from_pretrained(f"{name}-export").eval(), AutoTokenizer.from_pretrained(f"{name}-export")
    ours = float(re.search(r"loss ([0-9.]+)", lockstep("eval", ini)).group(1))
    theirs, windows = loss_of(net, val)
    ids = tokenizer(PROMPT, return_tensors="pt", add_special_tokens=False).input_ids
    assert ids[0].tolist() == list(PROMPT.encode()), "the tokenizer's ids are not the bytes"
    with torch.no_grad():
        for _ in range(GREEDY):
            ids = torch.cat([ids, net(ids[:, -T:]).logits[:, -1:].argmax(-1)], 1)
    greedy = lockstep("sample", ini, "--prompt", PROMPT, text=False).rstrip(b"\n") == bytes(ids[0].tolist()).rstrip(b"\n")
    net.save_pretrained(f"{name}-saved")
    again = model + "init_from = %s-saved\n"
    back = hash_of(lockstep(write_run(name + "-back", again % name, 1, 0)))
    good = abs(ours - theirs) <= 1e-5 * theirs and greedy and back == trained
    print(f"{name}: model_type {net.config.model_type}, loss over {windows} windows {ours:.6f}, transformers' {theirs:.6f}; greedy text "
          f"{'equal' if greedy else 'DIFFERENT'}; hash {trained}, of save_pretrained's directory {back}: {'right' if good else 'WRONG'}", flush=True)
    return not good


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--bin", default=str(TOP / "lockstep"))
    p.add_argument("--families", default=",".join(FAMILIES))
    a = p.parse_args()
    lockstep, wrong = Lockstep(os.path.abspath(a.bin)), 0
    print(f"transformers {transformers.__version__}, PyTorch {torch.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        text = (TOP / "LICENSE").read_bytes() * 3
        pathlib.Path("text").write_bytes(text)
        pathlib.Path("pack.ini").write_text("[pack]\ninput = text\noutput = data\nval_fraction = 0.2\n")
        lockstep("pack", "pack.ini")
        val = text[int(len(text) * 0.8):]
        for name in a.families.split(","):
            wrong += family(name, FAMILIES[name], lockstep, val)
    print(f"{len(a.families.split(','))} families, {wrong} wrong")
    return wrong


if __name__ == "__main__":
    sys.exit(main() != 0)
