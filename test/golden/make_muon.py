#!/usr/bin/python3
# Golden file for Muon: the model, the weights and the tokens of make_gpt.py, and twenty steps of torch.optim.Muon for the matrices of the blocks,
# with torch.optim.AdamW for all else. The published code rounds to BF16 before its iteration; here the very same code gets FP32 (and FP64) instead,
# which is what lockstep computes in. q, k and v are matrices of their own. From step 11 on the batches come again.
#
#   python3 make_muon.py           writes the file beside this recipe and prints the figures (torch 2.15.0)
#   python3 make_muon.py --check   recomputes everything and compares with the committed file, byte by byte; exit 1 if it differs
import os, sys

import make_gpt as gpt  # first: it chooses the kernels of BLAS
import numpy as np
import torch
from torch.optim import _muon

LR, DECAY, CLIP, STEPS = 1e-3, 0.1, 1.0, 20
FILE = os.path.join(gpt.HERE, 'muon-golden.safetensors')


class In:
    """The module `torch` as _muon.py sees it, with another type in the place of bfloat16."""

    def __init__(self, dtype): self.bfloat16 = dtype

    def __getattr__(self, name): return getattr(torch, name)


def is_hidden(name): return name.startswith('h.') and name.endswith('.weight') and 'ln_' not in name


def train(weights, tokens, dtype):
    _muon.torch = In(dtype)
    own = {}  # what the optimizers see: q, k and v apart
    for n, w in weights.items():
        parts = np.split(w, 3) if is_hidden(n) and 'c_attn' in n else [w]
        for i, x in enumerate(parts): own[n, i] = torch.tensor(x, dtype=dtype, requires_grad=True)
    hidden = [t for (n, i), t in own.items() if is_hidden(n)]
    rest = [t for (n, i), t in own.items() if not is_hidden(n)]
    opts = [torch.optim.Muon(hidden, lr=LR, weight_decay=DECAY, momentum=0.95, adjust_lr_fn='match_rms_adamw'),
            torch.optim.AdamW([{'params': [t for t in rest if t.dim() >= 2], 'weight_decay': DECAY},
                               {'params': [t for t in rest if t.dim() < 2], 'weight_decay': 0.0}], lr=LR, betas=(0.9, 0.99), eps=1e-8)]
    whole = lambda: {n: torch.cat([own[n, 0], own[n, 1], own[n, 2]]) if (n, 1) in own else own[n, 0] for n in weights}
    tokens = torch.from_numpy(tokens)
    out = {'losses': [], 'norms': []}
    for s in range(STEPS):
        for o in opts: o.zero_grad(set_to_none=True)
        loss = gpt.loss_of(whole(), tokens[s % gpt.STEPS])
        loss.backward()
        out['losses'].append(loss.item())
        out['norms'].append(torch.nn.utils.clip_grad_norm_(own.values(), CLIP).item())         # the norm before clipping
        for o in opts: o.step()
    with torch.no_grad():
        out['final_loss'] = [gpt.loss_of(whole(), tokens[0]).item()]
    return out


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.mkldnn.enabled = False
    w, golden = gpt.initial_weights(), {}
    tokens = gpt.batches(gpt.token_stream())
    f32, f64 = train(w, tokens, torch.float32), train(w, tokens, torch.float64)
    for k in f32: golden[k], golden[f'{k}64'] = np.array(f32[k], np.float64), np.array(f64[k], np.float64)
    print('step  loss (float32)   relative to float64   norm (float32)   relative to float64')
    for s in range(STEPS):
        l, n = f32['losses'][s], f32['norms'][s]
        print(f"{s + 1:4}  {l:.9f}  {abs(l / f64['losses'][s] - 1):12.1e}  {n:18.9f}  {abs(n / f64['norms'][s] - 1):12.1e}")
    print(f"last  {f32['final_loss'][0]:.9f}  {abs(f32['final_loss'][0] / f64['final_loss'][0] - 1):12.1e}")
    raw = gpt.safetensors(golden)
    if '--check' in sys.argv:
        same = os.path.exists(FILE) and open(FILE, 'rb').read() == raw
        print('same bytes' if same else 'DIFFERS from the committed file')
        return int(not same)
    with open(FILE, 'wb') as f:
        f.write(raw)
    print(f'{len(raw)} bytes written')
    return 0


if __name__ == '__main__':
    sys.exit(main())
