#!/usr/bin/python3
# Golden files for the perceptron: five AdamW steps of PyTorch on made-up images, with ReLU and with tanh GELU.
#
# One idea: as in make_gpt.py, the same lines run in float32 and in float64, whose difference bounds what a test may ask.
#
#   python3 make_mlp.py           writes the files beside this recipe and prints the figures
#   python3 make_mlp.py --check   recomputes everything and compares with the committed files, byte by byte; exit 1 if they differ
#
# Alphabet: B images of a step, I their pixels, W widths of the hidden layers, K classes.
import sys

import make_gpt as gpt
import numpy as np
import torch
import torch.nn.functional as F

SIZE, I, W, K, B, STEPS = (4, 5), 20, (17, 9), 6, 12, 5
LR, BETAS, EPS, DECAY, CLIP = 0.01, (0.9, 0.99), 1e-8, 0.1, 1.0
ACTIVATIONS = {'relu': F.relu, 'gelu': lambda x: F.gelu(x, approximate='tanh')}


def initial_weights():
    """In table order. No bias is zero, and half of the values before an activation are far from it."""
    rng = np.random.RandomState(20261201)
    p, sizes = {}, (I,) + W + (K,)
    for n in range(len(sizes) - 1):
        p[f'fc.{n}.weight'] = (rng.standard_normal((sizes[n + 1], sizes[n])) * np.sqrt(3 / sizes[n])).astype(np.float32)
        p[f'fc.{n}.bias'] = (0.3 * rng.standard_normal(sizes[n + 1])).astype(np.float32)
    return p


def images():
    """A dark image of noise with pixels 3k to 3k+2 bright, if its label is k.                     (STEPS*B,4,5), (STEPS*B)"""
    rng = np.random.RandomState(5)
    labels = rng.randint(0, K, STEPS * B)
    pixels = rng.randint(0, 120, (STEPS * B, I))
    for n, k in enumerate(labels):
        pixels[n, 3 * k:3 * k + 3] += 130
    return pixels.reshape(-1, *SIZE).astype(np.uint8), labels.astype(np.uint8)


def scores_of(p, x, activation):              # x (B,I) -> (B,K)
    for n in range(len(W)):
        x = activation(F.linear(x, p[f'fc.{n}.weight'], p[f'fc.{n}.bias']))
    return F.linear(x, p[f'fc.{len(W)}.weight'], p[f'fc.{len(W)}.bias'])


def train(weights, pixels, labels, activation, dtype):
    """The loss of each step before its update, and loss and accuracy of all images after the last."""
    p = {n: torch.tensor(w, dtype=dtype, requires_grad=True) for n, w in weights.items()}
    x, y = torch.tensor(pixels.reshape(-1, I), dtype=dtype) / 255, torch.tensor(labels, dtype=torch.int64)
    opt = torch.optim.AdamW([{'params': [t for t in p.values() if t.dim() >= 2], 'weight_decay': DECAY},
                             {'params': [t for t in p.values() if t.dim() < 2], 'weight_decay': 0.0}],
                            lr=LR, betas=BETAS, eps=EPS, foreach=False)
    losses = []
    for s in range(STEPS):
        opt.zero_grad(set_to_none=True)
        loss = F.cross_entropy(scores_of(p, x[s * B:s * B + B], activation), y[s * B:s * B + B])
        loss.backward()
        losses.append(loss.item())
        torch.nn.utils.clip_grad_norm_(p.values(), CLIP)
        opt.step()
    with torch.no_grad():
        scores = scores_of(p, x, activation)
        top = scores.topk(2).values
        return losses, F.cross_entropy(scores, y).item(), (scores.argmax(1) == y).double().mean().item(), (top[:, 0] - top[:, 1]).min().item()


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.mkldnn.enabled = False
    w, (pixels, labels) = initial_weights(), images()
    text = '# Five AdamW steps of a perceptron 20-17-9-6 in PyTorch: made by make_mlp.py\n'
    for name, activation in ACTIVATIONS.items():
        losses, last, accuracy, near = train(w, pixels, labels, activation, torch.float32)
        losses64, last64, accuracy64, _ = train(w, pixels, labels, activation, torch.float64)
        off = max(abs(a / b - 1) for a, b in zip(losses + [last], losses64 + [last64]))
        print(f'{name}: float32 is off by {off:.1e} at most; the two best scores of an image are {near:.1e} apart at least')
        assert accuracy == accuracy64 and near > 1e-4, 'choose another seed: float32 may count another image as right'
        text += f'{name} losses ' + ' '.join(f'{l:.9f}' for l in losses) + '\n'
        text += f'{name} after {last:.9f} {accuracy:.9f}\n'
    print(text)
    files = {'mlp.txt': text.encode(), 'mlp-weights.safetensors': gpt.safetensors(w), 'mlp-images.idx': gpt.idx(pixels), 'mlp-labels.idx': gpt.idx(labels)}
    return gpt.write_or_compare(files)


if __name__ == '__main__':
    sys.exit(main())
