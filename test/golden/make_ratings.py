#!/usr/bin/python3
# Golden files for DLRM that says ratings: 20 steps of PyTorch on made-up lines of ratings.csv, users and items without
# numbers, squared error.
#
#   dense   tables of R rows, AdamW, clipped; weights begin as in a file
#   rows    a row for each id: sums of a row's mean square (row-wise AdaGrad), as in make_rows.py; nothing is read from a
#           file
#
# One idea: this recipe reads the lines by itself (halves of a star, ids to rows), so that packing is compared, too.
#
#   python3 make_ratings.py           writes the files beside this recipe and prints the figures
#   python3 make_ratings.py --check   recomputes everything and compares with the committed files, byte by byte
#
# Alphabet: B lines of a step, F tables of R rows, C the width of a row.
import sys

import make_dlrm as dlrm
import make_gpt as gpt
import make_rows as on_demand
import numpy as np
import torch
import torch.nn.functional as F_

F, R, C, TOP, B, STEPS, MEAN, LR, ROW_LR = 2, 5, 4, 6, 4, 20, 2.75, 0.01, 0.05
WIDTH = C + F * (F + 1) // 2


def lines():
    rng = np.random.RandomState(20261129)
    text = 'userId,movieId,rating,timestamp\n'
    for k in range(STEPS * B):
        item = rng.randint(1, 1 << 31) if rng.rand() < 0.5 else rng.randint(1, 9)
        text += f'{rng.randint(1, 12)},{item},{rng.randint(1, 11) / 2},{883612800 + 86400 * k}\n'
    return text


# Ids, and of each line its rating.
def read(text):
    x = [line.split(',') for line in text.splitlines()[1:]]
    return [[int(v) for v in line[:2]] for line in x], np.array([float(line[2]) for line in x])


def row(x, table):
    return table * R + (x if x < R else dlrm.mix(table, x) % R)


def initial_weights():
    rng = np.random.RandomState(8)
    p = {}
    for name, outputs, inputs, std in (('common', C, 1, 1), ('tables', F * R, C, 0.5), ('top.0', TOP, WIDTH, 0.5), ('rating', 1, TOP, 0.5)):
        p[name + '.weight'] = (std * rng.standard_normal((outputs, inputs))).astype(np.float32)
        if name in ('top.0', 'rating'):
            p[name + '.bias'] = (0.2 * rng.standard_normal(outputs)).astype(np.float32)
    return p


# As lockstep begins a run: number of the weight in its table, and element.
def begun_weights():
    p = {'common.weight': on_demand.normal(0, (C, 1), 1)}
    p['top.0.weight'], p['top.0.bias'] = on_demand.normal(1, (TOP, WIDTH), np.sqrt(2 / WIDTH)), np.zeros(TOP, dtype=np.float32)
    p['rating.weight'], p['rating.bias'] = on_demand.normal(3, (1, TOP), np.sqrt(1 / TOP)), np.full(1, MEAN, dtype=np.float32)
    return p


def said(p, rows):  # rows (B,F,C)
    x = p['common.weight'].reshape(1, C).expand(len(rows), C)
    v = torch.cat([x.unsqueeze(1), rows], dim=1)
    products = torch.bmm(v, v.transpose(1, 2))
    i, k = torch.tril_indices(F + 1, F + 1, offset=-1)
    x = torch.cat([x, products[:, i, k]], dim=1)
    x = F_.relu(F_.linear(x, p['top.0.weight'], p['top.0.bias']))
    return F_.linear(x, p['rating.weight'], p['rating.bias'])[:, 0]


def adamw(p, lr):
    return torch.optim.AdamW(p.values(), lr=lr, betas=dlrm.BETAS, eps=dlrm.EPS, weight_decay=0, foreach=False)


def train_dense(data, dtype):
    p = {n: torch.tensor(w, dtype=dtype, requires_grad=True) for n, w in initial_weights().items()}
    ids = torch.tensor([[row(x, t) for t, x in enumerate(line)] for line in data[0]])
    stars, opt, losses = torch.tensor(data[1], dtype=dtype), adamw(p, LR), []
    for s in range(STEPS):
        now = slice(s * B, s * B + B)
        opt.zero_grad(set_to_none=True)
        loss = F_.mse_loss(said(p, p['tables.weight'][ids[now]]), stars[now])
        loss.backward()
        losses.append(loss.item())
        torch.nn.utils.clip_grad_norm_(p.values(), dlrm.CLIP)
        opt.step()
    with torch.no_grad():
        return losses + [F_.mse_loss(said(p, p['tables.weight'][ids]), stars).item()]


def train_rows(data, dtype):
    names = [[(t, x) for t, x in enumerate(line)] for line in data[0]]
    at = {name: k for k, name in enumerate(sorted({n for line in names for n in line}))}
    ids = torch.tensor([[at[n] for n in line] for line in names])
    begin = np.array([on_demand.row_of(t, i, C) for t, i in at])
    p = {n: torch.tensor(w, dtype=dtype, requires_grad=True) for n, w in begun_weights().items()}
    rows, sums = torch.tensor(begin, dtype=dtype, requires_grad=True), torch.zeros(len(begin), dtype=dtype)
    stars, opt, losses = torch.tensor(data[1], dtype=dtype), adamw(p, ROW_LR), []
    for s in range(STEPS):
        now = slice(s * B, s * B + B)
        opt.zero_grad(set_to_none=True)
        rows.grad = None
        loss = F_.mse_loss(said(p, rows[ids[now]]), stars[now])
        loss.backward()
        losses.append(loss.item())
        with torch.no_grad():
            on_demand.clip([w.grad for w in p.values()] + [rows.grad], dlrm.CLIP)
            used = torch.unique(ids[now])
            g = rows.grad[used]
            sums[used] += (g * g).mean(1)
            rows[used] -= ROW_LR * g / (sums[used].sqrt() + 1e-10).unsqueeze(1)
        opt.step()
    with torch.no_grad():
        return losses + [F_.mse_loss(said(p, rows[ids]), stars).item()]


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.mkldnn.enabled = False
    text, out = lines(), '# 20 steps of DLRM that says ratings in PyTorch, then all lines, and the root of that: made by make_ratings.py\n'
    for name, train in (('dense', train_dense), ('rows', train_rows)):
        losses, losses64 = train(read(text), torch.float32), train(read(text), torch.float64)
        print(f'{name}: float32 is off by {max(abs(a - b) for a, b in zip(losses, losses64)):.1e} at most')
        out += ''.join(f'{name} {l:.9f}\n' for l in losses64 + [np.sqrt(losses64[-1])])
    print(out)
    return gpt.write_or_compare({'dlrm-ratings.txt': out.encode(), 'dlrm-ratings.csv': text.encode(),
                                 'dlrm-ratings.safetensors': gpt.safetensors(initial_weights())})


if __name__ == '__main__':
    sys.exit(main())
