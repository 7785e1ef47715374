#!/usr/bin/python3
# Golden file for gradient descent: the model, the weights and the tokens of make_gpt.py, and ten steps of torch.optim.SGD without momentum, with
# it, and with Nesterov's.
#
#   python3 make_sgd.py           writes the file beside this recipe and prints the figures
#   python3 make_sgd.py --check   recomputes everything and compares with the committed file, byte by byte; exit 1 if it differs
import os, sys

import make_gpt as gpt  # first: it chooses the kernels of BLAS
import numpy as np
import torch

LR, DECAY, CLIP = 0.05, 0.1, 1.0
KINDS = {'plain': {}, 'momentum': {'momentum': 0.9}, 'nesterov': {'momentum': 0.9, 'nesterov': True}}
FILE = os.path.join(gpt.HERE, 'sgd-golden.safetensors')


def train(weights, tokens, dtype, kind):
    p = {n: torch.tensor(w, dtype=dtype, requires_grad=True) for n, w in weights.items()}
    tokens = torch.from_numpy(tokens)
    opt = torch.optim.SGD([{'params': [t for t in p.values() if t.dim() >= 2], 'weight_decay': DECAY},
                           {'params': [t for t in p.values() if t.dim() < 2], 'weight_decay': 0.0}], lr=LR, **KINDS[kind])
    out = {'losses': [], 'norms': []}
    for s in range(gpt.STEPS):
        opt.zero_grad(set_to_none=True)
        loss = gpt.loss_of(p, tokens[s])
        loss.backward()
        out['losses'].append(loss.item())
        out['norms'].append(torch.nn.utils.clip_grad_norm_(p.values(), CLIP).item())         # the norm before clipping
        opt.step()
    with torch.no_grad():
        out['final_loss'] = [gpt.loss_of(p, tokens[0]).item()]
    return out


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.mkldnn.enabled = False
    w, golden = gpt.initial_weights(), {}
    tokens = gpt.batches(gpt.token_stream())
    print('kind       step  loss (float32)   relative to float64   norm (float32)   relative to float64')
    for kind in KINDS:
        f32, f64 = train(w, tokens, torch.float32, kind), train(w, tokens, torch.float64, kind)
        for k in f32:
            golden[f'{kind}/{k}'], golden[f'{kind}/{k}64'] = np.array(f32[k], np.float64), np.array(f64[k], np.float64)
        for s in range(gpt.STEPS):
            l, n = f32['losses'][s], f32['norms'][s]
            print(f"{kind:9} {s + 1:5}  {l:.9f}  {abs(l / f64['losses'][s] - 1):12.1e}  {n:18.9f}  {abs(n / f64['norms'][s] - 1):12.1e}")
        print(f"{kind:9}  last  {f32['final_loss'][0]:.9f}  {abs(f32['final_loss'][0] / f64['final_loss'][0] - 1):12.1e}")
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
