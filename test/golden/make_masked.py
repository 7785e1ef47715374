#!/usr/bin/python3
# Golden files for a loss on answers only: ten AdamW steps of the GPT of make_gpt.py on conversations in bytes, where PyTorch's
# cross entropy leaves out, by its ignore_index, every target that is no part of an answer. How many count differs from sample to
# sample and from step to step.
#
#   python3 make_masked.py           writes the files beside this recipe and prints the figures
#   python3 make_masked.py --check   compares them with those there; exit 1 if they differ
import json, sys
import make_gpt as gpt                        # first: it sets which kernels run
import numpy as np
import torch
import torch.nn.functional as F

IGNORED = -100


def conversations():
    """Prompts and responses of very different lengths; some end beyond the context, and of one nothing is left."""
    rng = np.random.RandomState(62)
    words = 'one two three four five six seven eight nine ten'.split()
    said = []
    while len(said) < gpt.STEPS * gpt.B:
        n, k = rng.randint(1, 5), rng.randint(1, 9)
        some = [words[rng.randint(len(words))] for _ in range(max(n, k))]
        said.append((' '.join(some[:n]) + '?', ' '.join(some[::-1][:k])))
    said.insert(20, ('a prompt that is as long as all the context is, or longer', 'lost'))
    return said


def rows(said):
    """As the template `plain` writes bytes, cut at T+1 or filled with 0: tokens, and targets with those ignored that don't count."""
    tokens, targets = [], []
    for prompt, response in said:
        text, begin = (prompt + '\n' + response + '\n').encode(), len(prompt) + 1
        row = np.zeros(gpt.T + 1, np.int64)
        row[:min(len(text), gpt.T + 1)] = list(text[:gpt.T + 1])
        counts = np.zeros(gpt.T + 1, bool)
        counts[begin:min(len(text), gpt.T + 1)] = True
        if counts.any():
            tokens.append(row[:-1])
            targets.append(np.where(counts, row, IGNORED)[1:])
    shape = (gpt.STEPS, gpt.B, gpt.T)
    return torch.from_numpy(np.stack(tokens).reshape(shape)), torch.from_numpy(np.stack(targets).reshape(shape))


def train(weights, tokens, targets, dtype):
    p = {n: torch.tensor(w, dtype=dtype, requires_grad=True) for n, w in weights.items()}
    opt = torch.optim.AdamW([{'params': [t for t in p.values() if t.dim() >= 2], 'weight_decay': gpt.DECAY},
                             {'params': [t for t in p.values() if t.dim() < 2], 'weight_decay': 0.0}],
                            lr=gpt.LR, betas=gpt.BETAS, eps=gpt.EPS, foreach=False)
    out = []
    for s in range(gpt.STEPS):
        opt.zero_grad(set_to_none=True)
        loss = F.cross_entropy(gpt.logits_of(p, tokens[s]).view(-1, gpt.V), targets[s].view(-1), ignore_index=IGNORED)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(p.values(), gpt.CLIP)
        out.append((loss.item(), norm.item(), int((targets[s] != IGNORED).sum())))
        opt.step()
    return out


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    said = conversations()
    tokens, targets = rows(said)
    w = gpt.initial_weights()
    f32, f64 = train(w, tokens, targets, torch.float32), train(w, tokens, targets, torch.float64)
    for a, b in zip(f32, f64):
        print(f'loss {b[0]:.9f}, float32 {abs(a[0] / b[0] - 1):.1e} from it; norm {b[1]:.9f}, {abs(a[1] / b[1] - 1):.1e}; {b[2]} count')
    lines = ''.join(json.dumps({'prompt': p, 'response': r}) + '\n' for p, r in said)
    told = ''.join(f'{s + 1} {loss:.9f} {norm:.9f} {count}\n' for s, (loss, norm, count) in enumerate(f64))
    return gpt.write_or_compare({'masked.jsonl': lines.encode(), 'masked.txt': told.encode()})


if __name__ == '__main__':
    sys.exit(main())
