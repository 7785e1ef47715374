#!/usr/bin/env python3
"""Residual networks that go back and forth between lockstep and torchvision. Optional: needs torch, torchvision and safetensors.

  python3 test/interop/compare_torchvision.py [--bin ./lockstep] [--nets resnet18,resnet50]

For each net torchvision makes random weights, and safetensors saves them. `lockstep inspect` must tell the net by that file. A run that begins with it
takes five steps with momentum on made-up images: its losses must be PyTorch's in double to 1e-5, and what each parameter has changed by must be so
within an nmse of 1e-7; or both nearly as near as PyTorch in float is, which is printed beside them. The export must load with strict=True, evaluate to the same loss,
and be what safetensors saves again, to the bit.
"""
import argparse, os, pathlib, struct, subprocess, tempfile

os.environ.update(OMP_NUM_THREADS="2")
import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from safetensors.torch import load_file, save_file

TOP = pathlib.Path(__file__).resolve().parents[2]
SIDE, K, B, STEPS = 64, 12, 8, 5
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LR, MOMENTUM, DECAY, SMOOTHING = 0.001, 0.9, 1e-3, 0.1
RUN = """[run]
name = {name}
dir = runs
steps = {steps}
[model]
image = {side}
smoothing = {smoothing}
[data]
train = images.idx labels.idx
val = images.idx labels.idx
shuffle = no
[batch]
global = 8
micro = 8
[optimizer]
type = sgd
lr = {lr}
momentum = {momentum}
weight_decay = {decay}
grad_clip = 0
[schedule]
type = constant
warmup = -1
[checkpoint]
keep_best = no
[eval]
batches = 0
[log]
every = 1
"""


def fresh(name, seed):
    """Random weights; no gain, bias or statistic is the one that it would begin with. Small gains at the end of each unit keep the rounding of float
    from growing on its way through the net: without them PyTorch in float is 1e-4 off its own losses in double after five steps."""
    torch.manual_seed(seed)
    net = getattr(torchvision.models, name)(weights=None, num_classes=K)
    for key, t in net.state_dict().items():
        if key.endswith("running_var"): t.add_(torch.rand_like(t) * 0.5)
        elif t.dim() == 1: t.add_(torch.randn_like(t) * 0.1)
        if key.endswith("bn3.weight" if hasattr(net.layer1[0], "bn3") else "bn2.weight"): t.mul_(0.2)
    return net


def images():
    rng = np.random.RandomState(3)
    labels = rng.randint(0, K, STEPS * B)
    pixels = rng.randint(0, 150, (STEPS * B, 3, SIDE, SIDE))
    for n, k in enumerate(labels): pixels[n, k // 4, k % 2 * SIDE // 2:][:SIDE // 2, k // 2 % 2 * SIDE // 2:][:, :SIDE // 2] += 100
    return pixels.astype(np.uint8), labels.astype(np.uint8)


def write_idx(path, a):
    path.write_bytes(bytes((0, 0, 8, a.ndim)) + struct.pack(f">{a.ndim}I", *a.shape) + a.tobytes())


def inputs(pixels, dtype):
    return (torch.tensor(pixels, dtype=dtype) / 255 - torch.tensor(MEAN, dtype=dtype).view(3, 1, 1)) / torch.tensor(STD, dtype=dtype).view(3, 1, 1)


def train(net, pixels, labels, dtype):
    net, x, y = net.to(dtype).train(), inputs(pixels, dtype), torch.tensor(labels, dtype=torch.int64)
    groups = [{"params": [p for p in net.parameters() if p.dim() > 1], "weight_decay": DECAY},
              {"params": [p for p in net.parameters() if p.dim() == 1], "weight_decay": 0}]
    opt, losses = torch.optim.SGD(groups, lr=LR, momentum=MOMENTUM), []
    for s in range(STEPS):
        opt.zero_grad(set_to_none=True)
        loss = F.cross_entropy(net(x[s * B:s * B + B]), y[s * B:s * B + B], label_smoothing=SMOOTHING)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses, {k: t.double() for k, t in net.state_dict().items() if not k.endswith("num_batches_tracked")}


def off(found, wanted, begin):
    """The parameter that is farthest off, of what it has changed by."""
    return max((((found[k] - w) ** 2).sum() / ((w - begin[k]) ** 2).sum()).item() for k, w in wanted.items())


def compare(run, name):
    begin = {k: t.clone() for k, t in fresh(name, 1).state_dict().items()}
    save_file(begin, "net.safetensors")
    section = run("inspect", "net.safetensors")
    assert f"depth = {name[6:]}\n" in section and f"classes = {K}\n" in section, section
    ini = section.replace("image = 224\n", "").replace("smoothing = 0\n", "")
    pathlib.Path("net.ini").write_text(ini)
    pathlib.Path("run.ini").write_text(RUN.format(name=name, steps=STEPS, side=SIDE, smoothing=SMOOTHING, lr=LR, momentum=MOMENTUM, decay=DECAY))
    said = run("train", "net.ini", "run.ini")
    found = [float(line.split("loss ")[1].split()[0]) for line in said.splitlines() if line.startswith("step ")]
    pixels, labels = images()
    losses, end = train(fresh(name, 1), pixels, labels, torch.float64)
    losses32, end32 = train(fresh(name, 1), pixels, labels, torch.float32)
    begin = {k: t.double() for k, t in begin.items()}
    # printed with four digits; PyTorch in float may itself be farther off than 1e-5
    room = [6e-5 + max(1e-5 * b, 3 * abs(b32 - b)) for b, b32 in zip(losses, losses32)]
    assert len(found) == STEPS and all(abs(a - b) <= r for a, b, r in zip(found, losses, room)), (found, losses, losses32)
    run("export", f"runs/{name}", f"{name}-export")
    out = load_file(f"{name}-export/model.safetensors")
    ours, theirs = off({k: t.double() for k, t in out.items()}, end, begin), off(end32, end, begin)
    assert ours <= max(1e-7, 4 * theirs), f"{name}: nmse {ours:.1e}, PyTorch in float {theirs:.1e}"
    net = getattr(torchvision.models, name)(weights=None, num_classes=K)
    net.load_state_dict(out, strict=True)
    net.eval()
    with torch.no_grad(): loss = F.cross_entropy(net(inputs(pixels, torch.float32)), torch.tensor(labels, dtype=torch.int64)).item()
    evaluated = float(run("eval", f"runs/{name}/config.ini").split("loss ")[1].split()[0])
    assert abs(evaluated - loss) <= 1e-5 * loss, (evaluated, loss)
    save_file(net.state_dict(), "again.safetensors")
    again = {k: t for k, t in load_file("again.safetensors").items() if not k.endswith("num_batches_tracked")}
    assert again.keys() == out.keys() and all(torch.equal(again[k], out[k]) for k in out)
    print(f"{name}: parameters within an nmse of {ours:.1e} (PyTorch in float: {theirs:.1e}), evaluation {evaluated:.6f} and {loss:.6f}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--bin", default=str(TOP / "lockstep"))
    p.add_argument("--nets", default="resnet18,resnet34,resnet50,resnet101")
    a = p.parse_args()
    bin = str(pathlib.Path(a.bin).resolve())

    def run(*args):
        r = subprocess.run([bin, *args], capture_output=True, text=True)
        assert r.returncode == 0, f"lockstep {' '.join(args)}: {r.returncode}\n{r.stdout}{r.stderr}"
        return r.stdout

    with tempfile.TemporaryDirectory() as dir:
        os.chdir(dir)
        for name, x in zip(("images.idx", "labels.idx"), images()): write_idx(pathlib.Path(name), x)
        for name in a.nets.split(","): compare(run, name)


if __name__ == "__main__":
    main()
