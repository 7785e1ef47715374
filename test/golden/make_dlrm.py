#!/usr/bin/python3
# Golden files for DLRM: 20 AdamW steps of PyTorch on made-up lines of Criteo's form, some values missing.
#
# One idea: this recipe reads the lines by itself (logarithms, ids to rows), so that packing is compared, too. As in
# make_gpt.py, the same lines run in float32 and in float64, whose difference bounds what a test may ask.
#
#   python3 make_dlrm.py           writes the files beside this recipe and prints the figures
#   python3 make_dlrm.py --check   recomputes everything and compares with the committed files, byte by byte
#
# Alphabet: B lines of a step, D numbers, F tables of R rows, C the width of a row.
import sys

import make_gpt as gpt
import numpy as np
import torch
import torch.nn.functional as F_

D, F, R, C, BOTTOM, TOP, B, STEPS = 13, 26, 5, 4, 6, 8, 4, 20
LR, BETAS, EPS, CLIP = 0.01, (0.9, 0.99), 1e-8, 1.0
MASK = (1 << 64) - 1


def lines():
    rng = np.random.RandomState(20261202)
    text = ''
    for _ in range(STEPS * B):
        numbers = ['' if rng.rand() < 0.2 else str(int(rng.exponential(20)) - 2) for _ in range(D)]
        ids = ['' if rng.rand() < 0.2 else '%08x' % (rng.randint(0, 1 << 31) if rng.rand() < 0.7 else rng.randint(0, 4)) for _ in range(F)]
        text += '\t'.join([str(rng.randint(0, 2))] + numbers + ids) + '\n'
    return text


def mix(h, x):
    z = (h * 0x9e3779b97f4a7c15 + x + 0x9e3779b97f4a7c15) & MASK
    z = ((z ^ z >> 30) * 0xbf58476d1ce4e5b9) & MASK
    z = ((z ^ z >> 27) * 0x94d049bb133111eb) & MASK
    return z ^ z >> 31


def row(text, table):
    x = int(text, 16) + 1 if text else 0
    return table * R + (x if x < R else mix(table, x) % R)


def read(text):
    labels, dense, ids = [], [], []
    for line in text.splitlines():
        x = line.split('\t')
        labels.append(int(x[0]))
        dense.append([np.log(1 + max(int(v), 0)) if v else 0.0 for v in x[1:1 + D]])
        ids.append([row(v, t) for t, v in enumerate(x[1 + D:])])
    return np.array(dense, dtype=np.float32), np.array(ids), np.array(labels)


def initial_weights():
    rng = np.random.RandomState(7)
    p = {}
    for name, outputs, inputs in (('bottom.0', BOTTOM, D), ('bottom.1', C, BOTTOM), ('tables', F * R, C),
                                  ('top.0', TOP, C + F * (F + 1) // 2), ('click', 2, TOP)):
        std = 0.5 if name == 'tables' else np.sqrt(2 / inputs)
        p[name + '.weight'] = (std * rng.standard_normal((outputs, inputs))).astype(np.float32)
        if name != 'tables':
            p[name + '.bias'] = (0.2 * rng.standard_normal(outputs)).astype(np.float32)
    return p


def scores_of(p, dense, ids):
    x = dense
    for k in range(2):
        x = F_.relu(F_.linear(x, p[f'bottom.{k}.weight'], p[f'bottom.{k}.bias']))
    v = torch.cat([x.unsqueeze(1), p['tables.weight'][ids]], dim=1)      # (B,F+1,C)
    products = torch.bmm(v, v.transpose(1, 2))
    i, k = torch.tril_indices(F + 1, F + 1, offset=-1)
    x = torch.cat([x, products[:, i, k]], dim=1)
    x = F_.relu(F_.linear(x, p['top.0.weight'], p['top.0.bias']))
    return F_.linear(x, p['click.weight'], p['click.bias'])


def train(weights, data, dtype):
    p = {n: torch.tensor(w, dtype=dtype, requires_grad=True) for n, w in weights.items()}
    dense, ids, labels = torch.tensor(data[0], dtype=dtype), torch.tensor(data[1]), torch.tensor(data[2])
    opt = torch.optim.AdamW(p.values(), lr=LR, betas=BETAS, eps=EPS, weight_decay=0, foreach=False)
    losses = []
    for s in range(STEPS):
        now = slice(s * B, s * B + B)
        opt.zero_grad(set_to_none=True)
        loss = F_.cross_entropy(scores_of(p, dense[now], ids[now]), labels[now])
        loss.backward()
        losses.append(loss.item())
        torch.nn.utils.clip_grad_norm_(p.values(), CLIP)
        opt.step()
    with torch.no_grad():
        scores = scores_of(p, dense, ids)
        chance = torch.softmax(scores.double(), 1)[:, 1]
        yes, no = chance[labels == 1], chance[labels == 0]
        pairs = (yes[:, None] > no).double() + 0.5 * (yes[:, None] == no).double()
        return losses, F_.cross_entropy(scores, labels).item(), pairs.mean().item()


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.mkldnn.enabled = False
    w, text = initial_weights(), lines()
    losses, last, auc = train(w, read(text), torch.float32)
    losses64, last64, auc64 = train(w, read(text), torch.float64)
    off = max(abs(a - b) for a, b in zip(losses + [last], losses64 + [last64]))
    print(f'float32 is off by {off:.1e} at most, its AUC by {abs(auc - auc64):.1e}')
    out = '# 20 AdamW steps of DLRM in PyTorch, and loss and AUC after the last: made by make_dlrm.py\n'
    out += ''.join(f'{l:.9f}\n' for l in losses64) + f'{last64:.9f} {auc64:.9f}\n'
    print(out)
    return gpt.write_or_compare({'dlrm.txt': out.encode(), 'dlrm.tsv': text.encode(),
                                 'dlrm-weights.safetensors': gpt.safetensors(w)})


if __name__ == '__main__':
    sys.exit(main())
