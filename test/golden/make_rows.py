#!/usr/bin/python3
# Golden files for rows on demand: 20 steps of PyTorch on the lines of make_dlrm.py, tables with a row for each of their
# 64-bit ids.
#
#   one       rows of one number: torch.nn.Embedding(sparse=True) and torch.optim.Adagrad, which keeps a sum for each
#             number, so for each row. Nothing is clipped.
#   several   rows of four: one sum for a row, of the mean of its squares, written out below; clipped by the norm of
#             everything
#
# One idea: nothing is read from a file. Rows and weights begin with values that follow from seed, table and id, and from
# seed, number of the weight and element; they are computed here by themselves (Philox4x32-10, and Box and Muller).
#
#   python3 make_rows.py           writes dlrm-rows.txt beside this recipe
#   python3 make_rows.py --check   recomputes everything and compares, byte by byte
#
# Alphabet: B lines of a step, D numbers, F tables, C the width of a row, U rows that lines name.
import sys

import make_dlrm as dlrm
import make_gpt as gpt
import numpy as np
import torch
import torch.nn.functional as F_

D, F, BOTTOM, TOP, B, STEPS = dlrm.D, dlrm.F, dlrm.BOTTOM, dlrm.TOP, dlrm.B, dlrm.STEPS
SEED, SPREAD, ROW_LR = 3, 5, 0.05
SITE_INIT, SITE_TABLE, WORD = 0x10000000, 0x05000000, (1 << 32) - 1


def philox(seed, c):
    c, k = list(c), [seed & WORD, seed >> 32]
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q & WORD, (p >> 32) ^ c[3] ^ k[1], p & WORD]
        k = [(k[0] + 0x9E3779B9) & WORD, (k[1] + 0xBB67AE85) & WORD]
    return c


def row_of(table, ident, width):
    bits = [b for g in range((width + 3) // 4) for b in philox(SEED, (g, SITE_TABLE + table, ident & WORD, ident >> 32))]
    bound = float(np.float32(np.sqrt(1 / SPREAD)))
    return np.array([(2 * ((b + 0.5) / 2**32) - 1) * bound for b in bits[:width]], dtype=np.float32)


def normal(number, shape, std):
    out = []
    for group in range((int(np.prod(shape)) + 3) // 4):
        bits = philox(SEED, (group & WORD, SITE_INIT, number, group >> 32))
        for i in (0, 2):
            radius, angle = np.sqrt(-2 * np.log((bits[i] + 0.5) / 2**32)), 2 * np.pi * bits[i + 1] / 2**32
            out += [radius * np.cos(angle), radius * np.sin(angle)]
    return (np.array(out[:int(np.prod(shape))]) * std).astype(np.float32).reshape(shape)


def initial_weights(C):
    p, number = {}, 0
    for name, outputs, inputs in (('bottom.0', BOTTOM, D), ('bottom.1', C, BOTTOM), ('top.0', TOP, C + F * (F + 1) // 2),
                                  ('click', 2, TOP)):
        p[name + '.weight'] = normal(number, (outputs, inputs), np.sqrt((1 if name == 'click' else 2) / inputs))
        p[name + '.bias'] = np.zeros(outputs, dtype=np.float32)
        number += 2
    return p


# Which of U rows each line names, and these rows as they begin.
def read(text, C):
    dense, _, labels = dlrm.read(text)
    names = [[(t, int(v, 16) + 1 if v else 0) for t, v in enumerate(line.split('\t')[1 + D:])] for line in text.splitlines()]
    at = {name: k for k, name in enumerate(sorted({n for line in names for n in line}))}
    return dense, np.array([[at[n] for n in line] for line in names]), labels, np.array([row_of(t, i, C) for t, i in at])


def scores_of(p, rows, dense, ids):
    x = dense
    for k in range(2):
        x = F_.relu(F_.linear(x, p[f'bottom.{k}.weight'], p[f'bottom.{k}.bias']))
    v = torch.cat([x.unsqueeze(1), rows(ids)], dim=1)      # (B,F+1,C)
    products = torch.bmm(v, v.transpose(1, 2))
    i, k = torch.tril_indices(F + 1, F + 1, offset=-1)
    x = torch.cat([x, products[:, i, k]], dim=1)
    x = F_.relu(F_.linear(x, p['top.0.weight'], p['top.0.bias']))
    return F_.linear(x, p['click.weight'], p['click.bias'])


def clip(grads, most):
    norm = torch.sqrt(sum((g * g).sum() for g in grads))
    for g in grads:
        g *= min(1, most / norm.item())


def train(C, text, dtype):
    dense, ids, labels, begin = read(text, C)
    dense, ids, labels = torch.tensor(dense, dtype=dtype), torch.tensor(ids), torch.tensor(labels)
    p = {n: torch.tensor(w, dtype=dtype, requires_grad=True) for n, w in initial_weights(C).items()}
    rows = torch.nn.Embedding.from_pretrained(torch.tensor(begin, dtype=dtype), freeze=False, sparse=True)
    opt = torch.optim.AdamW(p.values(), lr=ROW_LR, betas=dlrm.BETAS, eps=dlrm.EPS, weight_decay=0, foreach=False)
    adagrad = torch.optim.Adagrad(rows.parameters(), lr=ROW_LR, foreach=False)
    sums, losses = torch.zeros(len(begin), dtype=dtype), []
    for s in range(STEPS):
        now = slice(s * B, s * B + B)
        opt.zero_grad(set_to_none=True), adagrad.zero_grad(set_to_none=True)
        loss = F_.cross_entropy(scores_of(p, rows, dense[now], ids[now]), labels[now])
        loss.backward()
        losses.append(loss.item())
        with torch.no_grad():
            grad = rows.weight.grad.coalesce()
            at, g = grad.indices()[0], grad.values()
            if C > 1:
                clip([w.grad for w in p.values()] + [g], dlrm.CLIP)
                sums[at] += (g * g).mean(1)
                rows.weight[at] -= ROW_LR * g / (sums[at].sqrt() + 1e-10).unsqueeze(1)
            else:
                adagrad.step()
        opt.step()
    with torch.no_grad():
        return losses + [F_.cross_entropy(scores_of(p, rows, dense, ids), labels).item()]


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.mkldnn.enabled = False
    text, out = dlrm.lines(), '# 20 steps of DLRM with rows on demand in PyTorch, then all lines: made by make_rows.py\n'
    for name, C in (('one', 1), ('several', 4)):
        losses, losses64 = train(C, text, torch.float32), train(C, text, torch.float64)
        print(f'{name}: float32 is off by {max(abs(a - b) for a, b in zip(losses, losses64)):.1e} at most')
        out += ''.join(f'{name} {l:.9f}\n' for l in losses64)
    print(out)
    return gpt.write_or_compare({'dlrm-rows.txt': out.encode()})


if __name__ == '__main__':
    sys.exit(main())
