#!/usr/bin/env python3
# Golden losses of adapters: PEFT trains them for 20 steps beside the Llama of families/llama, from the values that lockstep began with and exported.
#
#   python3 make_lora.py BIN            writes lora.txt: the loss of each step; and peft/: the adapters that PEFT saves after them, and the loss of the first
#                                       samples with these. Says how near lockstep's adapters are to PEFT's in the end
#
# Needs torch, transformers and peft. test/test_lora.sh trains the same and compares the losses.
import json, os, pathlib, subprocess, sys, tempfile

os.environ.update(OMP_NUM_THREADS='1', HF_HUB_OFFLINE='1', TRANSFORMERS_VERBOSITY='error')
import numpy as np
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
T, G, STEPS, LR = 32, 8, 20, 0.01


def tokens():
    s, out = 1, []
    for _ in range(6000):
        s = (s * 1229 + 351) % 65536
        out.append(s // 64 % 61)
    return np.array(out, '<u2')


INI = '''[run]
name = {name}
steps = {steps}
seed = 7
[device]
backend = cpu
threads = 1
[model]
type = llama
layers = 2
heads = 4
kv_heads = 2
head_dim = 10
embed = 24
hidden = 36
vocab = 61
context = 32
tied = yes
norm_eps = 0.01
init_from = base
init_resize = yes
[lora]
rank = 3
alpha = 6
targets = q_proj v_proj o_proj up_proj
[data]
train = tokens.bin
val =
shuffle = no
[batch]
global = 8
micro = 2
[optimizer]
lr = {lr}
grad_clip = 0
[schedule]
type = constant
warmup = -1
[sample]
tokens = 0
[log]
every = 1
'''


def train(binary, work, name, steps, lr):
    (work / f'{name}.ini').write_text(INI.format(name=name, steps=steps, lr=lr))
    subprocess.run([binary, f'{name}.ini'], cwd=work, check=True, stdout=subprocess.DEVNULL)
    subprocess.run([binary, 'export', f'runs/{name}', f'{name}-adapters'], cwd=work, check=True, stdout=subprocess.DEVNULL)
    return [json.loads(l)['loss'] for l in (work / f'runs/{name}/log.jsonl').read_text().splitlines() if '"t":"step"' in l]


def main():
    binary = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        tokens().tofile(work / 'tokens.bin')
        (work / 'base').mkdir()
        for name in ('config.json', 'model.safetensors'):
            (work / 'base' / name).write_bytes((HERE / 'families/llama' / name).read_bytes())
        config = json.loads((work / 'base/config.json').read_text())
        (work / 'base/config.json').write_text(json.dumps(config | dict(max_position_embeddings=T)))
        train(binary, work, 'first', 1, 0)
        ours = train(binary, work, 'all', STEPS, LR)
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(work / 'base', attn_implementation='eager'), work / 'first-adapters',
                                          is_trainable=True)
        model.train()
        stream = torch.from_numpy(tokens().astype(np.int64))
        trained = [p for p in model.parameters() if p.requires_grad]
        adam = torch.optim.AdamW(trained, lr=LR, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
        theirs = []
        for step in range(STEPS):
            rows = torch.stack([stream[(step * G + g) * T:(step * G + g) * T + T + 1] for g in range(G)])
            loss = torch.nn.functional.cross_entropy(model(rows[:, :-1]).logits.flatten(0, 1), rows[:, 1:].flatten())
            adam.zero_grad()
            loss.backward()
            adam.step()
            theirs.append(loss.item())
        found, wanted = load_file(work / 'all-adapters/adapter_model.safetensors'), dict(model.state_dict())
        for name, x in found.items():
            y = wanted[name.replace('.weight', '.default.weight')]
            print(f'{name}: nmse {float(((x - y) ** 2).sum() / (y ** 2).sum()):.2e}')
        print('losses differ by at most', max(abs(a - b) for a, b in zip(ours, theirs)))
        model.save_pretrained(HERE / 'peft')
        (HERE / 'peft/README.md').unlink()
        rows = torch.stack([stream[g * T:g * T + T + 1] for g in range(G)])
        loss = torch.nn.functional.cross_entropy(model(rows[:, :-1]).logits.flatten(0, 1), rows[:, 1:].flatten())
        (HERE / 'peft/loss.txt').write_text(f'{loss.item():.9f}\n')
        (HERE / 'lora.txt').write_text(''.join(f'{x:.9f}\n' for x in theirs))


main()
