#!/usr/bin/python3
# Golden files for residual networks: five steps of PyTorch with momentum on made-up images, of a net of basic units and
# one of bottlenecks, under the names and in the orders of torchvision; the losses, what each parameter and running
# statistic is afterwards, and an evaluation.
#
# One idea: as in make_gpt.py, the same lines run in float32 and in float64, whose difference bounds what a test may ask.
#
#   python3 make_resnet.py           writes the files beside this recipe and prints the figures
#   python3 make_resnet.py --check   recomputes everything and compares with the committed files, byte by byte
#
# Alphabet: B images of a step, N filters of the first stage, K classes.
import sys

import make_gpt as gpt
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

N, K, B, STEPS, MEAN, STD = 6, 12, 8, 5, (0.5, 0.4, 0.3), (0.25, 0.2, 0.3)
LR, MOMENTUM, DECAY, SMOOTHING = 0.01, 0.9, 0.01, 0.1
NETS = {'basic': (16, True, (1, 2, 1), 17), 'bottleneck': (24, False, (1, 2), 7)}  # pixels of a side, small, units of each stage, seed


class Unit(nn.Module):
    def __init__(s, i, n, stride, widens):
        super().__init__()
        kinds = [(n, 3, stride), (n, 3, 1)] if widens == 1 else [(n, 1, 1), (n, 3, stride), (n * widens, 1, 1)]
        for k, (o, taps, st) in enumerate(kinds, 1):
            setattr(s, f'conv{k}', nn.Conv2d(i if k == 1 else kinds[k - 2][0], o, taps, st, taps // 2, bias=False))
            setattr(s, f'bn{k}', nn.BatchNorm2d(o))
        s.count = len(kinds)
        if stride > 1 or i != n * widens:
            s.downsample = nn.Sequential(nn.Conv2d(i, n * widens, 1, stride, bias=False), nn.BatchNorm2d(n * widens))

    def forward(s, x):
        past = s.downsample(x) if hasattr(s, 'downsample') else x
        for k in range(1, s.count + 1):
            x = getattr(s, f'bn{k}')(getattr(s, f'conv{k}')(x))
            if k < s.count: x = F.relu(x)
        return F.relu(past + x)


class Net(nn.Module):
    def __init__(s, small, units, widens):
        super().__init__()
        s.small, s.units, i = small, units, N
        s.conv1 = nn.Conv2d(3, N, 3, 1, 1, bias=False) if small else nn.Conv2d(3, N, 7, 2, 3, bias=False)
        s.bn1 = nn.BatchNorm2d(N)
        for stage, count in enumerate(units):
            layer = []
            for k in range(count):
                layer.append(Unit(i, N << stage, 2 if stage and not k else 1, widens))
                i = (N << stage) * widens
            setattr(s, f'layer{stage + 1}', nn.Sequential(*layer))
        s.fc = nn.Linear(i, K)

    def forward(s, x):
        x = F.relu(s.bn1(s.conv1(x)))
        if not s.small: x = F.max_pool2d(x, 3, 2, 1)
        for stage in range(len(s.units)): x = getattr(s, f'layer{stage + 1}')(x)
        return s.fc(x.mean((2, 3)))


def initial(net, seed):
    """No gain, bias or statistic is the one that it would begin with."""
    rng = np.random.RandomState(seed)
    w = {}
    for name, t in net.state_dict().items():
        if name.endswith('num_batches_tracked'): continue
        x = rng.standard_normal(t.shape)
        if t.dim() > 1: x *= np.sqrt(2 / np.prod(t.shape[1:]))
        elif name.endswith('running_var'): x = 1 + 0.3 * np.abs(x)
        elif name.endswith('weight'): x = 0.7 + 0.2 * x
        else: x *= 0.2
        w[name] = x.astype(np.float32)
    return w


def images(side):
    """Noise, and a square whose place and colour are the label's.                        (STEPS*B,3,side,side), (STEPS*B)"""
    rng = np.random.RandomState(5)
    labels = rng.randint(0, K, STEPS * B)
    pixels = rng.randint(0, 150, (STEPS * B, 3, side, side))
    for n, k in enumerate(labels):
        r, c = k % 2 * side // 2, k // 2 % 2 * side // 2
        pixels[n, k // 4, r:r + side // 2, c:c + side // 2] += 100
    return pixels.astype(np.uint8), labels.astype(np.uint8)


def train(net, weights, pixels, labels, dtype):
    net = net.to(dtype)
    net.load_state_dict({n: torch.tensor(w, dtype=dtype) for n, w in weights.items()}, strict=False)
    x = (torch.tensor(pixels, dtype=dtype) / 255 - torch.tensor(MEAN, dtype=dtype).view(3, 1, 1)) / torch.tensor(STD, dtype=dtype).view(3, 1, 1)
    y = torch.tensor(labels, dtype=torch.int64)
    matrices = [p for p in net.parameters() if p.dim() > 1]
    opt = torch.optim.SGD([{'params': matrices, 'weight_decay': DECAY},
                           {'params': [p for p in net.parameters() if p.dim() == 1], 'weight_decay': 0}], lr=LR, momentum=MOMENTUM)
    losses = []
    net.train()
    for s in range(STEPS):
        opt.zero_grad(set_to_none=True)
        loss = F.cross_entropy(net(x[s * B:s * B + B]), y[s * B:s * B + B], label_smoothing=SMOOTHING)
        loss.backward()
        losses.append(loss.item())
        opt.step()
    net.eval()
    with torch.no_grad():
        scores = net(x)
        best = scores.topk(5).indices
        sorted_scores = scores.sort(descending=True).values
        near = min((sorted_scores[:, 0] - sorted_scores[:, 1]).min().item(), (sorted_scores[:, 4] - sorted_scores[:, 5]).min().item())
        after = [F.cross_entropy(scores, y).item(), (best[:, 0] == y).double().mean().item(), (best == y[:, None]).any(1).double().mean().item()]
    return losses, after, near, {n: t.double().numpy() for n, t in net.state_dict().items() if n in weights}


def main():
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False
    text, files = '# Five steps of residual networks in PyTorch: made by make_resnet.py\n', {}
    for name, (side, small, units, seed) in NETS.items():
        torch.manual_seed(1)
        net = Net(small, units, 4 if name == 'bottleneck' else 1)
        w, (pixels, labels) = initial(net, seed), images(side)
        losses, after, near, end = train(net, w, pixels, labels, torch.float32)
        losses64, after64, _, end64 = train(net, w, pixels, labels, torch.float64)
        off = max(abs(a / b - 1) for a, b in zip(losses + after[:1], losses64 + after64[:1]))
        worst = max(((end[n] - e) ** 2).sum() / ((e - w[n]) ** 2).sum() for n, e in end64.items())
        print(f'{name}: float32 is off by {off:.1e} at most, of what changed by an nmse of {worst:.1e}; ranks are {near:.1e} apart')
        assert after[1:] == after64[1:] and near > 1e-4, 'choose another seed: float32 may count another image as right'
        text += f'{name} losses ' + ' '.join(f'{l:.9f}' for l in losses64) + '\n'
        text += f'{name} after ' + ' '.join(f'{l:.9f}' for l in after64) + '\n'
        files[f'resnet-{name}.safetensors'] = gpt.safetensors(w)
        files[f'resnet-{name}-end.safetensors'] = gpt.safetensors({n: e.astype(np.float32) for n, e in end64.items()})
        files[f'resnet-{name}-images.idx'], files[f'resnet-{name}-labels.idx'] = gpt.idx(pixels), gpt.idx(labels)
    print(text)
    files['resnet.txt'] = text.encode()
    return gpt.write_or_compare(files)


if __name__ == '__main__':
    sys.exit(main())
