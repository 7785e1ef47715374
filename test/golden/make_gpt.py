#!/usr/bin/python3
# Golden files for the GPT model: ten AdamW steps of a small GPT in PyTorch, written so that a trainer can be held against them.
#
# One idea: the model below is GPT-2 written as plain functions over a dictionary of named tensors, so that the very same lines
# run in float32 (the golden values) and in float64 (how far float32 itself is from exact, which bounds what a test may ask).
#
#   python3 make_gpt.py           writes the files beside this recipe and prints the figures
#   python3 make_gpt.py --check   recomputes everything and compares with the committed files, byte by byte; exit 1 if they differ
#
# Alphabet: B batch, T time, C channels, H heads, D head size, V vocabulary, L layers.
import json, math, os, struct, sys

# Bits of float32 sums depend on the kernels that BLAS and ATen pick for the CPU. Any x86-64 machine with AVX2 can run these.
os.environ.update(OPENBLAS_CORETYPE='Haswell', ATEN_CPU_CAPABILITY='avx2', OMP_NUM_THREADS='1', OPENBLAS_NUM_THREADS='1')
import numpy as np
import torch
import torch.nn.functional as F

L, H, C, V, T, B = 2, 4, 48, 131, 32, 6
STEPS, LR, BETAS, EPS, DECAY, CLIP = 10, 1e-3, (0.9, 0.99), 1e-8, 0.1, 1.0
HERE = os.path.dirname(os.path.abspath(__file__))


def initial_weights():
    """Names and shapes of all parameters, in table order. Scales are larger than GPT-2's, no layer norm is the identity and no
    bias is zero: attention is far from uniform and GELU far from linear, so that a wrong term in any gradient shows."""
    rng = np.random.RandomState(20240520)     # the legacy generator: its stream is frozen across numpy versions
    p = {}

    def normal(name, shape, std, mean=0.0):
        p[name] = (mean + std * rng.standard_normal(shape)).astype(np.float32)

    normal('wte.weight', (V, C), 0.10)
    normal('wpe.weight', (T, C), 0.05)
    for l in range(L):
        h = f'h.{l}.'
        normal(h + 'ln_1.weight', (C,), 0.10, 1.0)
        normal(h + 'ln_1.bias', (C,), 0.10)
        normal(h + 'attn.c_attn.weight', (3 * C, C), 0.18)
        normal(h + 'attn.c_attn.bias', (3 * C,), 0.10)
        normal(h + 'attn.c_proj.weight', (C, C), 0.10)
        normal(h + 'attn.c_proj.bias', (C,), 0.05)
        normal(h + 'ln_2.weight', (C,), 0.10, 1.0)
        normal(h + 'ln_2.bias', (C,), 0.10)
        normal(h + 'mlp.c_fc.weight', (4 * C, C), 0.15)
        normal(h + 'mlp.c_fc.bias', (4 * C,), 0.10)
        normal(h + 'mlp.c_proj.weight', (C, 4 * C), 0.06)
        normal(h + 'mlp.c_proj.bias', (C,), 0.05)
    normal('ln_f.weight', (C,), 0.10, 1.0)
    normal('ln_f.bias', (C,), 0.10)
    return p


def token_stream():
    """A stream with something to learn: Zipf-like draws, and half of the time a fixed successor of the token before."""
    rng = np.random.RandomState(131)
    freq = 1.0 / (1.0 + np.arange(V))
    cdf = np.cumsum(freq / freq.sum())
    rank = rng.permutation(V)                 # which token is the r-th most frequent
    stream = [0]
    for _ in range(STEPS * B * T):
        follow, u = rng.random_sample(2)
        stream.append((37 * stream[-1] + 11) % V if follow < 0.5 else int(rank[min(np.searchsorted(cdf, u), V - 1)]))
    return np.array(stream, dtype=np.int64)


def batches(stream):
    """Windows of T tokens and the one after, read in order: sample i of step s is window s*B + i.      (STEPS,B,T+1)"""
    windows = [stream[w * T:w * T + T + 1] for w in range(STEPS * B)]
    return np.stack(windows).reshape(STEPS, B, T + 1)


def logits_of(p, tokens):                     # tokens (B,T), T at most the context -> (B,T,V)
    (B, T), D = tokens.shape, C // H
    x = p['wte.weight'][tokens] + p['wpe.weight'][:T]                                        # (B,T,C)
    future = torch.ones(T, T, dtype=torch.bool).triu(1)

    def norm(x, name):
        return F.layer_norm(x, (C,), p[name + '.weight'], p[name + '.bias'], 1e-5)

    def linear(x, name):
        return F.linear(x, p[name + '.weight'], p[name + '.bias'])

    for l in range(L):
        h = f'h.{l}.'
        q, k, v = [t.view(B, T, H, D).transpose(1, 2) for t in linear(norm(x, h + 'ln_1'), h + 'attn.c_attn').split(C, 2)]
        score = (q @ k.transpose(-2, -1)) / math.sqrt(D)                                     # (B,H,T,T)
        a = F.softmax(score.masked_fill(future, -math.inf), -1) @ v
        x = x + linear(a.transpose(1, 2).reshape(B, T, C), h + 'attn.c_proj')
        x = x + linear(F.gelu(linear(norm(x, h + 'ln_2'), h + 'mlp.c_fc'), approximate='tanh'), h + 'mlp.c_proj')
    return F.linear(norm(x, 'ln_f'), p['wte.weight'])                                        # tied head, no bias


def loss_of(p, tokens):                       # tokens (B,T+1) -> mean cross entropy over all B*T positions
    return F.cross_entropy(logits_of(p, tokens[:, :-1]).view(-1, V), tokens[:, 1:].reshape(-1))


def train(weights, tokens, dtype):
    p = {n: torch.tensor(w, dtype=dtype, requires_grad=True) for n, w in weights.items()}
    tokens = torch.from_numpy(tokens)
    opt = torch.optim.AdamW([{'params': [t for t in p.values() if t.dim() >= 2], 'weight_decay': DECAY},
                             {'params': [t for t in p.values() if t.dim() < 2], 'weight_decay': 0.0}],
                            lr=LR, betas=BETAS, eps=EPS, foreach=False)
    out = {'losses': [], 'norms': []}
    for s in range(STEPS):
        opt.zero_grad(set_to_none=True)
        loss = loss_of(p, tokens[s])
        loss.backward()
        if s == 0:
            out['grad'] = {n: t.grad.clone().numpy() for n, t in p.items()}
        out['losses'].append(loss.item())
        out['norms'].append(torch.nn.utils.clip_grad_norm_(p.values(), CLIP).item())         # the norm before clipping
        opt.step()
    with torch.no_grad():
        out['final_loss'] = [loss_of(p, tokens[0]).item()]
    out['after'] = {n: t.detach().numpy() for n, t in p.items()}
    return out


def write_or_compare(files):
    """Writes the files {name: bytes} beside this recipe, or, with --check, compares them with those there. Returns the exit status."""
    bad = False
    for name, raw in files.items():
        path, verdict = os.path.join(HERE, name), 'written'
        if '--check' in sys.argv:
            same = os.path.exists(path) and open(path, 'rb').read() == raw
            bad, verdict = bad or not same, 'same bytes' if same else 'DIFFERS from the committed file'
        else:
            with open(path, 'wb') as f:
                f.write(raw)
        print(f'{name:29} {len(raw):7} bytes  {verdict}')
    return int(bad)


def idx(a):
    """An array of bytes as an IDX file."""
    return bytes((0, 0, 8, a.ndim)) + struct.pack(f'>{a.ndim}I', *a.shape) + a.tobytes()


def safetensors(tensors):
    """8-byte length, JSON header padded with spaces to a multiple of 8, raw little-endian data without gaps."""
    kinds = {'float32': 'F32', 'float64': 'F64', 'int64': 'I64'}
    header, data = {}, b''
    for name, t in tensors.items():
        raw = np.ascontiguousarray(t).astype(t.dtype.newbyteorder('<')).tobytes()
        header[name] = {'dtype': kinds[t.dtype.name], 'shape': list(t.shape), 'data_offsets': [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % 8)
    return struct.pack('<Q', len(text)) + text + data


def far(a, b):
    """Relative L2 distance of a from b, in double."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def report(w, f32, f64):
    f64v = lambda x: np.array(x, np.float64)
    rel = lambda k: np.abs(f64v(f32[k]) / f64v(f64[k]) - 1)
    print(f'{sum(t.size for t in w.values())} parameters; python {sys.version.split()[0]}, torch {torch.__version__}, '
          f'numpy {np.__version__}')
    print('step  loss (float32)   relative to float64   norm (float32)   relative to float64')
    for s in range(STEPS):
        print(f"{s + 1:4}  {f32['losses'][s]:.9f}  {rel('losses')[s]:12.1e}  {f32['norms'][s]:18.9f}  {rel('norms')[s]:12.1e}")
    print(f"last  {f32['final_loss'][0]:.9f}  {rel('final_loss')[0]:12.1e}   (first batch, after the last update)")
    print('\ntensor                       gradient norm   float32 from float64: gradient    change of weights in 10 steps')
    for n in w:
        moved32, moved64 = f64v(f32['after'][n]) - f64v(w[n]), f64v(f64['after'][n]) - f64v(w[n])
        print(f"{n:28} {np.linalg.norm(f64['grad'][n]):14.3e} {far(f32['grad'][n], f64['grad'][n]):26.1e} "
              f"{far(moved32, moved64):26.1e}")
        if n.endswith('c_attn.bias'):         # softmax does not see a shift of all scores of a row: the key bias has gradient 0
            for part, cut in (('query', slice(0, C)), ('key', slice(C, 2 * C)), ('value', slice(2 * C, 3 * C))):
                g32, g64 = f32['grad'][n][cut], f64['grad'][n][cut]
                print(f"  {part + ' part':26} {np.linalg.norm(g64):14.3e} {np.linalg.norm(f64v(g32) - g64):26.1e} absolute"
                      f" {np.abs(moved32[cut] - moved64[cut]).max():17.1e} largest, absolute")


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.mkldnn.enabled = False     # matmul through the one BLAS chosen above
    w, stream = initial_weights(), token_stream()
    tokens = batches(stream)
    f32, f64 = train(w, tokens, torch.float32), train(w, tokens, torch.float64)
    golden = {'tokens': tokens}
    for k in ('losses', 'norms', 'final_loss'):
        golden[k], golden[k + '64'] = np.array(f32[k], np.float64), np.array(f64[k], np.float64)
    golden.update({'grad/' + n: g for n, g in f32['grad'].items()})
    files = {'gpt-weights.safetensors': safetensors(w),
             'gpt-golden.safetensors': safetensors(golden),
             'gpt-after.safetensors': safetensors({'after/' + n: t for n, t in f32['after'].items()}),
             'gpt-tokens.bin': stream.astype('<u2').tobytes()}
    report(w, f32, f64)
    print()
    return write_or_compare(files)


if __name__ == '__main__':
    sys.exit(main())
