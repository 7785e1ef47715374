#!/usr/bin/python3
"""test/bench/curve.py --weights model.safetensors --train TOKENS --val TOKENS --layers L --heads H ...: PyTorch trains
the GPT of gpt.py from the weights that `lockstep export` wrote, with lockstep's AdamW, clipping and schedule, on the
same samples in the same order ([data] shuffle = no), under BF16 autocast. It prints one line a step, `step N loss X`,
and at the end `val X`. test/bench/curves.sh runs it beside lockstep. Tokens are files of uint16.
"""
import argparse, json, math
import numpy as np, torch
import torch.nn.functional as F
import gpt

# Names of GPT-2's file, and gpt.py's. Matrices stand transposed there.
PARTS = {"ln_1": "norm1", "attn.c_attn": "attention.qkv", "attn.c_proj": "attention.proj",
         "ln_2": "norm2", "mlp.c_fc": "up", "mlp.c_proj": "down"}

def read_weights(path):
    raw = open(path, "rb").read()
    size = int.from_bytes(raw[:8], "little")
    for name, about in json.loads(raw[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = about["data_offsets"]
            values = np.frombuffer(raw[8 + size + begin:8 + size + end], np.float32)
            yield name.removeprefix("transformer."), torch.from_numpy(values.reshape(about["shape"]).copy())

def load(model, path):
    own, left = dict(model.named_parameters()), set(dict(model.named_parameters()))
    for name, value in read_weights(path):
        if name == "lm_head.weight":
            continue
        to = {"wte.weight": "wte.weight", "wpe.weight": "wpe.weight",
              "ln_f.weight": "norm.weight", "ln_f.bias": "norm.bias"}.get(name)
        if not to:
            _, layer, part = name.split(".", 2)
            part, kind = part.rsplit(".", 1)
            to = f"blocks.{layer}.{PARTS[part]}.{kind}"
            if kind == "weight" and value.dim() == 2:
                value = value.t()
        with torch.no_grad():
            own[to].zero_()
            own[to][:value.shape[0]].copy_(value)
        left.discard(to)
    assert not left, f"no weights for {left}"

def rate(a, step):
    if step < a.warmup:
        return a.lr * step / a.warmup
    done = min(1, (step - a.warmup) / (a.steps - a.warmup))
    return a.lr * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done)))

def windows(tokens, first, count, length):
    x = np.stack([tokens[k * length:(k + 1) * length + 1] for k in range(first, first + count)]).astype(np.int64)
    return torch.from_numpy(x[:, :-1].copy()), torch.from_numpy(x[:, 1:].copy())

def main():
    p = argparse.ArgumentParser()
    for name in ("weights", "train", "val"):
        p.add_argument("--" + name, required=True)
    for name in ("threads", "layers", "heads", "embed", "vocab", "context", "batch", "steps", "warmup"):
        p.add_argument("--" + name, type=int, required=True)
    p.add_argument("--lr", type=float, required=True)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    train, val = (np.fromfile(f, np.uint16) for f in (a.train, a.val))
    model = gpt.GPT(a)
    load(model, a.weights)
    decayed = [x for x in model.parameters() if x.dim() == 2]
    others = [x for x in model.parameters() if x.dim() != 2]
    groups = [dict(params=decayed, weight_decay=0.1), dict(params=others, weight_decay=0)]
    optimizer = torch.optim.AdamW(groups, lr=a.lr, betas=(0.9, 0.99), eps=1e-8)

    def loss_of(x, y):  # of all positions, over the vocabulary without its padding
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = model.norm(model.blocks(model.wte(x) + model.wpe.weight[:x.shape[1]]))
            logits = F.linear(h, model.wte.weight)
        return F.cross_entropy(logits[..., :a.vocab].float().reshape(-1, a.vocab), y.reshape(-1))

    for step in range(1, a.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate(a, step)
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(*windows(train, (step - 1) * a.batch, a.batch, a.context))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"step {step} loss {loss.item():.6f}")
    count = (len(val) - 1) // a.context
    with torch.no_grad():
        losses = [loss_of(*windows(val, k, 1, a.context)).item() for k in range(count)]
    print(f"val {sum(losses) / count:.6f}")

if __name__ == "__main__":
    main()
