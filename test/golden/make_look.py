#!/usr/bin/python3
# Golden files for evaluation and sampling: what a GPT with large random weights says of windows and prompts, in double.
#
# One idea: all that a trainer does to look at its weights is done here once more by other means: windows are cut here,
# the model is make_gpt.py's in PyTorch, the draws are numpy's, and the random words are Philox as its paper has it.
#
#   python3 make_look.py           writes the files beside this recipe and prints the figures
#   python3 make_look.py --check   recomputes and compares: weights and tokens byte by byte, the rest to 1e-10
#
# Alphabet: T time (the context), V vocabulary, W windows, N tokens drawn.
import os, sys

import make_gpt as gpt
import numpy as np
import torch
import torch.nn.functional as F

T, V, W, N = 32, 128, 21, 80
gpt.L, gpt.H, gpt.C, gpt.V, gpt.T = 2, 2, 32, V, T
SPARE = 13                                     # tokens after the last whole window: not evaluated
TEXT = 'The lanes are added by one fixed binary tree over the lane index.'
PROMPTS = (1, 7, 32, 45)                        # the first so many bytes of TEXT; the last one exceeds the context
DISTRIBUTIONS = ((0.7, 0), (1.5, 0), (1.0, 10))  # temperature and top_k, after the prompt of 7 bytes
# seed, step, temperature, top_k, bytes of TEXT as a prompt: N tokens each, so that the context fills up and moves on
DRAWS = ((1337, 0, 1.0, 0, 7), (1337, 1, 1.0, 0, 7), (1338, 0, 1.0, 0, 7), (6, 300, 0.6, 0, 45),
         (2**40 + 9, 7, 1.3, 12, 32), (1, 1, 0.0, 0, 1))
SITE_SAMPLE = 0x30000000
HERE = os.path.dirname(os.path.abspath(__file__))


def weights():
    """Names and shapes are make_gpt's, the std is 0.3 throughout: no two positions, heads or windows look alike."""
    rng = np.random.RandomState(20261122)
    p = {}
    for name, w in gpt.initial_weights().items():
        mean = 1.0 if name.endswith('.weight') and w.ndim == 1 else 0.0
        p[name] = (mean + 0.3 * rng.standard_normal(w.shape)).astype(np.float32)
    return p


def validation_tokens():
    rng = np.random.RandomState(21)
    freq = 1.0 / (3.0 + np.arange(V))
    return rng.permutation(V)[np.searchsorted(np.cumsum(freq / freq.sum()), rng.random_sample(W * T + 1 + SPARE))]


def window_losses(p, tokens):
    """Window w is tokens [wT, wT+T] with its targets one further, and is computed by itself.                    (W)"""
    one = lambda w: torch.from_numpy(tokens[w * T:w * T + T + 1][None])
    return np.array([gpt.loss_of(p, one(w)).item() for w in range((len(tokens) - 1) // T)])


def last_logits(p, tokens):
    """Of the token after these, of which the model sees the last T.                                             (V)"""
    return gpt.logits_of(p, torch.tensor([tokens[-T:]]))[0, -1].numpy()


def philox(seed, counter):
    """philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.3."""
    low = 2**32 - 1
    k, c = [seed & low, seed >> 32], list(counter)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & low, a >> 32 ^ c[3] ^ k[1], a & low]
        k = [(k[0] + 0x9E3779B9) & low, (k[1] + 0xBB67AE85) & low]
    return c


def distribution(logits, temperature, top_k):
    kept = np.sort(logits)[::-1][top_k - 1] if top_k else -np.inf
    weight = np.where(logits >= kept, np.exp((logits - logits.max()) / temperature), 0.0)
    return weight / weight.sum()


def draw(p, seed, step, temperature, top_k, prompt):
    """Token n is the first at which the distribution, added up in order of token, is above the stream's n-th number.
    With the tokens comes how far a number, or the likeliest or k-th logit, was from giving another one."""
    tokens, near = [ord(c) for c in TEXT[:prompt]], np.inf
    for n in range(N):
        logits = last_logits(p, tokens)
        order = np.sort(logits)[::-1]
        if temperature == 0:
            near, token = min(near, order[0] - order[1]), int(np.argmax(logits))
        else:
            up_to = np.cumsum(distribution(logits, temperature, top_k))
            u = philox(seed, (0, SITE_SAMPLE, step, n))[0] * 2.0**-32
            near = min(near, np.abs(up_to[:-1] - u).min(), order[top_k - 1] - order[top_k] if top_k else np.inf)
            token = int(np.searchsorted(up_to, u, side='right'))
        tokens.append(token)
    return np.array(tokens[prompt:], np.float64), near


def golden(p, tokens):
    losses = window_losses(p, tokens)
    f32 = window_losses({n: t.float() for n, t in p.items()}, tokens)
    print(f'{len(losses)} windows: losses {losses.min():.3f} to {losses.max():.3f}, mean {losses.mean():.9f}, '
          f'float32 is off by {np.abs(f32 - losses).max():.1e} at most')
    g = {'losses': losses}
    for n in PROMPTS:
        g[f'logits/{n}'] = last_logits(p, [ord(c) for c in TEXT[:n]])
    for i, (temperature, top_k) in enumerate(DISTRIBUTIONS):
        g[f'distribution/{i}'] = distribution(g['logits/7'], temperature, top_k)
    for i, o in enumerate(DRAWS):
        g[f'draws/{i}'], near = draw(p, *o)
        print(f'draws {i}: {len(set(g[f"draws/{i}"]))} different tokens, {near:.1e} from being others')
        assert near > 1e-5, 'choose another seed: float32 may draw another token'
    return g


def differs(name, raw):
    path = os.path.join(HERE, name)
    old = open(path, 'rb').read() if os.path.exists(path) else b''
    if name != 'look-golden.safetensors' or len(old) != len(raw):
        return old != raw
    data = 8 + int.from_bytes(raw[:8], 'little')
    a, b = np.frombuffer(old[data:]), np.frombuffer(raw[data:])
    return old[:data] != raw[:data] or not np.allclose(a, b, rtol=1e-10, atol=1e-14)


def main():
    torch.set_num_threads(1)
    w, tokens = weights(), validation_tokens()
    with torch.no_grad():
        g = golden({n: torch.tensor(t, dtype=torch.float64) for n, t in w.items()}, tokens)
    files = {'look-weights.safetensors': gpt.safetensors(w), 'look-val.bin': tokens.astype('<u2').tobytes(),
             'look-golden.safetensors': gpt.safetensors(g)}
    bad = False
    for name, raw in files.items():
        verdict = 'written'
        if '--check' in sys.argv:
            different = differs(name, raw)
            bad, verdict = bad or different, 'DIFFERS from the committed file' if different else 'the same'
        else:
            open(os.path.join(HERE, name), 'wb').write(raw)
        print(f'{name:26} {len(raw):7} bytes  {verdict}')
    return int(bad)


if __name__ == '__main__':
    sys.exit(main())
