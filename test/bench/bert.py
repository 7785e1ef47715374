#!/usr/bin/env python3
"""A training step of BERT-base (model/bert/base.ini) on masked tokens: PyTorch (transformers' BertModel, scaled_dot_product_attention, torch.compile, fused
AdamW), and with --lockstep BINARY `lockstep bench` in turns with it. Prints the median of the steps. As lockstep does, PyTorch gives logits to the masked
positions alone, 15 %; with --whole to all, as BertForMaskedLM does. No dropout in either. Set OMP_NUM_THREADS, MALLOC_MMAP_MAX_=0 and
MALLOC_TRIM_THRESHOLD_=20000000000: without them PyTorch is slower.

  OMP_NUM_THREADS=2 MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=20000000000 python3 test/bench/bert.py --lockstep ./lockstep --B 16 --T 128
"""
import argparse, os, pathlib, re, statistics, subprocess, time

import torch
from transformers import BertConfig, BertForMaskedLM

TOP = pathlib.Path(__file__).resolve().parents[2]
p = argparse.ArgumentParser()
p.add_argument("--B", type=int, default=16)
p.add_argument("--T", type=int, default=128)
p.add_argument("--steps", type=int, default=6, help="of a turn")
p.add_argument("--turns", type=int, default=3)
p.add_argument("--layers", type=int, default=12)
p.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
p.add_argument("--products", choices=["fp32", "bf16-pairs"], default="fp32", help="of lockstep; pairs are for --dtype bf16, and its rows then are FP32's")
p.add_argument("--eager", action="store_true")
p.add_argument("--whole", action="store_true")
p.add_argument("--lockstep")
a = p.parse_args()
M = max(1, int(0.15 * a.T + 0.5))
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
torch.manual_seed(1)
net = BertForMaskedLM(BertConfig(num_hidden_layers=a.layers, max_position_embeddings=a.T, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
                                 attn_implementation="sdpa"))
opt = torch.optim.AdamW(net.parameters(), lr=1e-4, betas=(0.9, 0.999), weight_decay=0.01, fused=True)


def loss_of(tokens, places, targets):
    x = net.bert(input_ids=tokens)[0]
    if a.whole:
        logits = net.cls(x)
        return torch.nn.functional.cross_entropy(logits.gather(1, places[..., None].expand(-1, -1, 30522)).reshape(-1, 30522), targets.reshape(-1))
    x = x.gather(1, places[..., None].expand(-1, -1, x.shape[-1]))
    return torch.nn.functional.cross_entropy(net.cls(x).reshape(-1, 30522), targets.reshape(-1))


step_of = loss_of if a.eager else torch.compile(loss_of)


def torch_turn(steps):
    times = []
    for _ in range(steps):
        tokens = torch.randint(0, 30522, (a.B, a.T))
        places = torch.stack([torch.randperm(a.T - 2)[:M].sort().values + 1 for _ in range(a.B)])
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=a.dtype == "bf16"):
            loss = step_of(tokens, places, tokens.gather(1, places))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        loss.item()
        times.append(time.perf_counter() - start)
    return times


def lockstep_turn(steps):
    say = subprocess.run([a.lockstep, "bench", str(TOP / "model/bert/base.ini"), "-o", f"model.layers={a.layers}", "-o", f"model.context={a.T}",
                          "-o", "model.dropout=0", "-o", f"batch.global={a.B}", "-o", f"batch.micro={a.B}", "-o", "batch.lanes=1",
                          "-o", f"precision.compute={'fp32' if a.products == 'bf16-pairs' else a.dtype}", "-o", f"precision.products={a.products}", "-o", f"device.threads={torch.get_num_threads()}", "-o", "device.backend=cpu",
                          "--steps", str(steps)], capture_output=True, text=True)
    found = re.search(r"median ([0-9.]+) ms", say.stdout)
    if say.returncode or not found: raise SystemExit(f"lockstep bench: {say.returncode}: {say.stdout}{say.stderr}")
    return [float(found.group(1)) / 1e3]


theirs, ours = [], []
torch_turn(3)
for _ in range(a.turns):
    if a.lockstep: ours += lockstep_turn(a.steps)
    theirs += torch_turn(a.steps)
t = statistics.median(theirs)
print(f"torch {torch.__version__} {'eager' if a.eager else 'compiled'} bert {a.layers} layers {a.dtype} B={a.B} T={a.T}: median {t * 1e3:.0f} ms, "
      f"{a.B * a.T / t:.1f} tok/s")
if ours:
    o = statistics.median(ours)
    print(f"lockstep: median {o * 1e3:.0f} ms, {a.B * a.T / o:.1f} tok/s, {t / o:.2f} of PyTorch's speed")
