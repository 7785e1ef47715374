#!/usr/bin/env python3
# Golden losses of documents that do not see each other: ten AdamW steps of transformers' GPT-2 and Llama of families/, in float64, with a mask that is causal
# and block-diagonal, positions that begin again, and targets of the next document left out.
#
#   python3 make_documents.py           writes documents.txt: the losses of GPT-2, then of Llama
#   python3 make_documents.py --check   compares
#
# Needs torch and transformers. test/test_documents.sh trains the same.
import os, pathlib, sys

os.environ.update(OMP_NUM_THREADS='1', HF_HUB_OFFLINE='1', TRANSFORMERS_VERBOSITY='error')
import torch
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
T, G, STEPS, LR, END = 48, 4, 10, 0.01, 60


# Documents of 1 to 64 tokens, and a few that a window begins in the middle of.
def tokens():
    s, out = 1, []
    while len(out) < STEPS * G * T + 1:
        s = (s * 1229 + 351) % 65536
        for _ in range(s // 64 % 64):
            s = (s * 1229 + 351) % 65536
            out.append(s // 64 % 60)
        out.append(END)
    return torch.tensor(out)


# Of a window: each token's place in its document, the mask, and the targets.
def look(window):
    places, targets, ends = [], [], window == END
    for t in range(T):
        places.append(0 if t == 0 or ends[t - 1] else places[-1] + 1)
        targets.append(-100 if ends[t] else int(window[t + 1]))
    places = torch.tensor(places)
    first, at = torch.arange(T) - places, torch.arange(T)
    seen = (at[None, :] <= at[:, None]) & (at[None, :] >= first[:, None])
    return places, torch.where(seen, 0.0, float('-inf')).double()[None], torch.tensor(targets)


def losses(name):
    model = AutoModelForCausalLM.from_pretrained(HERE / 'families' / name, attn_implementation='eager').double()
    model.train()
    groups = [dict(params=[p for p in model.parameters() if p.dim() > 1], weight_decay=0.1), dict(params=[p for p in model.parameters() if p.dim() == 1], weight_decay=0)]
    adam, stream = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.99), eps=1e-8), tokens()
    for step in range(STEPS):
        rows = torch.stack([stream[(step * G + g) * T:(step * G + g) * T + T + 1] for g in range(G)])
        places, mask, targets = (torch.stack(x) for x in zip(*map(look, rows)))
        logits = model(input_ids=rows[:, :-1], attention_mask=mask, position_ids=places).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
        adam.zero_grad()
        loss.backward()
        adam.step()
        yield loss.item()


text = ''.join(f'{x:.9f}\n' for name in ('gpt2', 'llama') for x in losses(name))
path = HERE / 'documents.txt'
if sys.argv[1:] == ['--check']:
    sys.exit(text != path.read_text())
path.write_text(text)
