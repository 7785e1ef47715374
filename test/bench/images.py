#!/usr/bin/env python3
"""A training step of a residual network in PyTorch, channels last, FP32, or with --bf16 under autocast: torchvision's ResNet-50 on 224 x 224 pixels, or the nets of He et al. for
32 x 32: resnet20, and resnet18 with a small stem. SGD with momentum. Prints the median of the steps. Set OMP_NUM_THREADS, MALLOC_MMAP_MAX_=0 and
MALLOC_TRIM_THRESHOLD_=20000000000: without them it is slower.

  OMP_NUM_THREADS=2 MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=20000000000 python3 test/bench/images.py --net resnet50 --B 8 --compile
"""
import argparse, os, statistics, time

import torch
from torch import nn
from torch.nn import functional as F

p = argparse.ArgumentParser()
p.add_argument("--net", default="resnet50", choices=["resnet50", "resnet18", "resnet20"])
p.add_argument("--B", type=int, default=8)
p.add_argument("--steps", type=int, default=10)
p.add_argument("--compile", action="store_true")
p.add_argument("--bf16", action="store_true", help="autocast")
a = p.parse_args()
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
torch.manual_seed(1)


class Unit(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
        self.c2, self.b2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        same = stride == 1 and i == o
        self.short = nn.Identity() if same else nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        return F.relu(self.b2(self.c2(F.relu(self.b1(self.c1(x))))) + self.short(x))


def small(widths, units):
    layers, i = [nn.Conv2d(3, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU()], widths[0]
    for k, w in enumerate(widths):
        for u in range(units):
            layers.append(Unit(i, w, 2 if k and u == 0 else 1))
            i = w
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, 10))


if a.net == "resnet50":
    import torchvision
    net, side, classes = torchvision.models.resnet50(weights=None), 224, 1000
else:
    net, side, classes = small([64, 128, 256, 512], 2) if a.net == "resnet18" else small([16, 32, 64], 3), 32, 10
net = net.to(memory_format=torch.channels_last)
step_of = torch.compile(net) if a.compile else net
opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
x = torch.randn(a.B, 3, side, side).contiguous(memory_format=torch.channels_last)
y = torch.randint(0, classes, (a.B,))
times = []
for k in range(3 + a.steps):
    start = time.perf_counter()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.bf16):
        loss = F.cross_entropy(step_of(x), y)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    loss.item()
    if k >= 3:
        times.append(time.perf_counter() - start)
print(f"torch {torch.__version__} {'compiled' if a.compile else 'eager'} {'bf16' if a.bf16 else 'fp32'} {a.net} B={a.B}: median {statistics.median(times) * 1e3:.0f} ms, "
      f"{a.B / statistics.median(times):.1f} images/s")
