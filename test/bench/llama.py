#!/usr/bin/env python3
"""A training step of the Llama of 160 M parameters (model/llama/160m.ini) in PyTorch: transformers' LlamaForCausalLM, scaled_dot_product_attention,
torch.compile, fused AdamW. Prints the median of the steps. Set OMP_NUM_THREADS, MALLOC_MMAP_MAX_=0 and MALLOC_TRIM_THRESHOLD_=20000000000: without
them it is slower.

  OMP_NUM_THREADS=2 MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=20000000000 python3 test/bench/llama.py --B 4 --T 256
"""
import argparse, os, statistics, time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

p = argparse.ArgumentParser()
p.add_argument("--B", type=int, default=4)
p.add_argument("--T", type=int, default=256)
p.add_argument("--steps", type=int, default=10)
p.add_argument("--eager", action="store_true")
a = p.parse_args()
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
torch.manual_seed(1)
net = LlamaForCausalLM(LlamaConfig(vocab_size=32000, hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12,
                                   max_position_embeddings=1024, attn_implementation="sdpa", use_cache=False))
step_of = net if a.eager else torch.compile(net)
opt = torch.optim.AdamW(net.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
times = []
for k in range(3 + a.steps):
    tokens = torch.randint(0, 32000, (a.B, a.T + 1))
    start = time.perf_counter()
    logits = step_of(input_ids=tokens[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.view(-1, 32000), tokens[:, 1:].reshape(-1))
    opt.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    loss.item()
    if k >= 3:
        times.append(time.perf_counter() - start)
print(f"torch {torch.__version__} {'eager' if a.eager else 'compiled'} llama 160m B={a.B} T={a.T}: median {statistics.median(times) * 1e3:.0f} ms, "
      f"{a.B * a.T / statistics.median(times):.1f} tok/s")
