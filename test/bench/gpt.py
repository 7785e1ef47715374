#!/usr/bin/python3
"""test/bench/gpt.py --threads N [--layers L --heads H --embed C --vocab V --context T --batch B --steps K]: what `lockstep bench`
times, done with PyTorch; with --bf16 under autocast, with --compile by torch.compile.

The same GPT (pre-norm blocks, biases, tanh GELU, a head tied to the embedding), random tokens, cross entropy, AdamW; FP32, eager. It uses
the fastest attention and AdamW that the installed version has for CPUs, and leaves out what would cost it time: no dropout, no
clipping of the gradient, no loader. With --about it trains nothing and says what it would use. One fact a line, `name value...`:

    about torch 1.13.0, attention in parts, AdamW in parts
    sgemm_gflops 431.2
    ms 1130.2 1128.4 ...
    peak_mb 3604.1
"""
import argparse, math, resource, time
import torch, torch.nn as nn, torch.nn.functional as F

WARM = 2
FUSED_ATTENTION = hasattr(F, "scaled_dot_product_attention")

class Attention(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.heads = a.heads
        self.qkv, self.proj = nn.Linear(a.embed, 3 * a.embed), nn.Linear(a.embed, a.embed)
        self.register_buffer("future", torch.ones(a.context, a.context).triu(1).bool())

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in self.qkv(x).split(C, dim=2))
        if FUSED_ATTENTION:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            score = (q @ k.transpose(-2, -1)) / math.sqrt(C // self.heads)
            y = F.softmax(score.masked_fill(self.future, float("-inf")), dim=-1) @ v
        return self.proj(y.transpose(1, 2).reshape(B, T, C))

class Block(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(a.embed), Attention(a), nn.LayerNorm(a.embed)
        self.up, self.down = nn.Linear(a.embed, 4 * a.embed), nn.Linear(4 * a.embed, a.embed)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

class GPT(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.rows = (a.vocab + 127) // 128 * 128  # padded, as ours is
        self.wte, self.wpe = nn.Embedding(self.rows, a.embed), nn.Embedding(a.context, a.embed)
        self.blocks = nn.Sequential(*(Block(a) for _ in range(a.layers)))
        self.norm = nn.LayerNorm(a.embed)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, tokens, targets):
        x = self.blocks(self.wte(tokens) + self.wpe.weight[:tokens.shape[1]])
        logits = F.linear(self.norm(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, self.rows), targets.view(-1))

def make_optimizer(parameters):
    """AdamW in one pass where this version has that for CPUs, and its name."""
    parameters = list(parameters)
    options = dict(lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    try:
        return torch.optim.AdamW(parameters, fused=True, **options), "fused"
    except (TypeError, RuntimeError):
        return torch.optim.AdamW(parameters, **options), "in parts"

def sgemm_gflops(n):
    """The most that was seen in half a second: a BLAS that is meant for another processor shows here."""
    x, y, best = torch.rand(n, n), torch.rand(n, n), 0.0
    begin = now = time.perf_counter()
    while now - begin < 0.5 or best == 0:
        torch.mm(x, y)
        start, now = now, time.perf_counter()
        best = max(best, 2e-9 * n ** 3 / (now - start))
    return best

def train(a):
    model = GPT(a)
    optimizer, _ = make_optimizer(model.parameters())
    forward = torch.compile(model) if a.compile else model
    ms = []
    for k in range(WARM + a.steps):
        tokens = torch.randint(0, a.vocab, (a.batch, a.context + 1))
        start = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.bf16):
            loss = forward(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        loss.item()
        if k >= WARM:
            ms.append(1e3 * (time.perf_counter() - start))
    print("ms", *(f"{t:.3f}" for t in ms))
    print(f"peak_mb {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024e-6:.1f}")

def main():
    p = argparse.ArgumentParser()
    for name in ("about", "bf16", "compile"):
        p.add_argument("--" + name, action="store_true")
    sizes = dict(threads=1, layers=12, heads=12, embed=768, vocab=50257, context=256, batch=4, steps=5)
    for name, default in sizes.items():
        p.add_argument("--" + name, type=int, default=default)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    if a.about:
        fused = "fused" if FUSED_ATTENTION else "in parts"
        print(f"about torch {torch.__version__}, attention {fused}, AdamW {make_optimizer(nn.Linear(1, 1).parameters())[1]}")
        print(f"sgemm_gflops {sgemm_gflops(1024):.1f}")
    else:
        train(a)

if __name__ == "__main__":
    main()
