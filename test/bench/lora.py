#!/usr/bin/env python3
"""A training step of GPT-2 124M with adapters of rank 8 beside its frozen weights (targets c_attn): PyTorch (transformers' GPT2LMHeadModel and peft,
scaled_dot_product_attention, torch.compile, fused AdamW), and `lockstep bench` in turns with it. Prints the medians of the steps. Set OMP_NUM_THREADS,
MALLOC_MMAP_MAX_=0 and MALLOC_TRIM_THRESHOLD_=20000000000: without them PyTorch is slower.

  OMP_NUM_THREADS=2 MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=20000000000 python3 test/bench/lora.py --lockstep ./lockstep --B 4 --T 256
"""
import argparse, os, pathlib, re, statistics, subprocess, time

import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

TOP = pathlib.Path(__file__).resolve().parents[2]
p = argparse.ArgumentParser()
p.add_argument("--B", type=int, default=4)
p.add_argument("--T", type=int, default=256)
p.add_argument("--steps", type=int, default=5, help="of a turn")
p.add_argument("--turns", type=int, default=3)
p.add_argument("--bf16", action="store_true", help="autocast, beside products of BF16 pairs")
p.add_argument("--eager", action="store_true")
p.add_argument("--lockstep", default="./lockstep")
a = p.parse_args()
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
torch.manual_seed(1)
net = get_peft_model(GPT2LMHeadModel(GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False, attn_implementation="sdpa")),
                     LoraConfig(r=8, lora_alpha=16, target_modules=["c_attn"], fan_in_fan_out=True))
opt = torch.optim.AdamW([w for w in net.parameters() if w.requires_grad], lr=1e-4, fused=True)


def loss_of(tokens):
    logits = net(input_ids=tokens[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]).float(), tokens[:, 1:].reshape(-1))


step_of = loss_of if a.eager else torch.compile(loss_of)


def torch_turn(steps):
    times = []
    for _ in range(steps):
        tokens = torch.randint(0, 50257, (a.B, a.T + 1))
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=a.bf16):
            loss = step_of(tokens)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        loss.item()
        times.append(time.perf_counter() - start)
    return times


def lockstep_turn(steps):
    more = ["-o", "precision.products=bf16-pairs"] if a.bf16 else []
    say = subprocess.run([a.lockstep, "bench", str(TOP / "model/gpt/124m.ini"), "-o", "lora.rank=8", "-o", "lora.targets=c_attn",
                          "-o", f"model.context={a.T}", "-o", f"batch.global={a.B}", "-o", f"batch.micro={a.B}", "-o", "batch.lanes=1",
                          "-o", f"device.threads={torch.get_num_threads()}", "-o", "device.backend=cpu", *more, "--steps", str(steps)],
                         capture_output=True, text=True)
    found = re.search(r"median ([0-9.]+) ms", say.stdout)
    if say.returncode or not found: raise SystemExit(f"lockstep bench: {say.returncode}: {say.stdout}{say.stderr}")
    return [float(found.group(1)) / 1e3]


theirs, ours = [], []
torch_turn(3)
for _ in range(a.turns):
    ours += lockstep_turn(a.steps)
    theirs += torch_turn(a.steps)
t, o = statistics.median(theirs), statistics.median(ours)
print(f"torch {torch.__version__} {'eager' if a.eager else 'compiled'}, peft, {'bf16' if a.bf16 else 'fp32'} B={a.B} T={a.T}: median {t * 1e3:.0f} ms; "
      f"lockstep {o * 1e3:.0f} ms, {t / o:.2f} of PyTorch's speed")
