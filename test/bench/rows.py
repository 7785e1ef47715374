#!/usr/bin/python3
# Rows a second of PyTorch's EmbeddingBag(sparse=True) with sparse AdaGrad, beside bench_rows, in turns on one quiet
# machine: 26 tables of a million rows, batches of 2,048 samples, ids of Zipf's law, exponent 1.05.
#
#     python3 test/bench/rows.py [thousands of rows a table] [width...]
#
# PyTorch's tables are whole from the beginning, and its AdaGrad keeps a sum for each number; ours have a sum a row. A
# lookup is counted by the different rows of a batch, as ours is. One thread each.
import subprocess
import sys
import time

import numpy as np
import torch

TABLES, SAMPLES, BATCHES, ROUNDS = 26, 2048, 4, 5


def batches(rows):
    rng, p = np.random.default_rng(5), 1 / np.arange(1, rows + 1) ** 1.05
    below = np.cumsum(p / p.sum())
    return [torch.tensor(np.minimum(np.searchsorted(below, rng.random((TABLES, SAMPLES))), rows - 1)) for _ in range(BATCHES)]


def theirs(rows, width):
    torch.set_num_threads(1)
    bags = [torch.nn.EmbeddingBag(rows, width, mode='sum', sparse=True) for _ in range(TABLES)]
    opt = torch.optim.Adagrad([w for bag in bags for w in bag.parameters()], lr=0.01)
    offsets, rates = torch.arange(SAMPLES), []
    for _ in range(ROUNDS + 1):
        look = update = n = 0
        for ids in batches(rows):
            start = time.perf_counter()
            out = [bag(i, offsets) for bag, i in zip(bags, ids)]
            look += time.perf_counter() - start
            sum(o.sum() for o in out).backward()
            start = time.perf_counter()
            opt.step()
            update += time.perf_counter() - start
            opt.zero_grad(set_to_none=True)
            n += sum(len(i.unique()) for i in ids)
        rates.append((1e-6 * n / look, 1e-6 * n / update))
    return np.median(rates[1:], axis=0)


def main():
    rows = 1000 * int(sys.argv[1]) if len(sys.argv) > 1 else 1000000
    widths = [int(w) for w in sys.argv[2:]] or [16, 64, 128]
    if len(widths) > 1:  # each in a process of its own, or the tables of one stay in the way of the next
        for width in widths:
            subprocess.run([sys.executable, sys.argv[0], str(rows // 1000), str(width)], check=True)
        return
    for width in widths:
        print(subprocess.run(['build/bench_rows', str(rows // 1000), str(width)], check=True, capture_output=True,
                             text=True).stdout.strip())
        look, update = theirs(rows, width)
        print(f'  PyTorch {torch.__version__}     look {look:6.2f} M rows/s  update {update:6.2f}', flush=True)


if __name__ == '__main__':
    main()
