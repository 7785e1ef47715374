#!/usr/bin/env python3
# Golden files for models of Hugging Face: for each family a small model with random weights, as save_pretrained writes it, and what transformers
# computes with it: logits, the first gradient, five AdamW steps, a greedy continuation.
#
# One idea: everything is random and large enough to matter (std 0.3, norms around 1, eps of 1e-2, fewer heads of keys than of queries, heads that are
# not hidden / heads), because default values hide what is wrong. What a test compares with was computed in float64; --mutate shows that each classic
# mistake moves the logits a thousand times further than the tests allow.
#
#   python3 make_families.py [FAMILY]   writes the folders beside this recipe, or this family's, and prints figures
#   python3 make_families.py --check    computes everything again and compares
#   python3 make_families.py --mutate   prints how far mistakes move the logits
import json, os, pathlib, shutil, sys, tempfile

os.environ.update(OMP_NUM_THREADS='1', HF_HUB_OFFLINE='1', TRANSFORMERS_VERBOSITY='error')
import numpy as np
import torch
import torch.nn.functional as F
import transformers
from safetensors.numpy import load_file, save_file
from transformers import (Gemma3ForCausalLM, Gemma3TextConfig, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

HERE = pathlib.Path(__file__).resolve().parent
V, T, B, STEPS, GREEDY = 61, 40, 4, 5, 20
LR, BETAS, EPS, DECAY, CLIP = 1e-3, (0.9, 0.99), 1e-8, 0.1, 1.0
COMMON = dict(vocab_size=V, hidden_size=24, intermediate_size=36, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64,
              rms_norm_eps=1e-2, bos_token_id=None, eos_token_id=None, pad_token_id=None, attn_implementation='eager')
LLAMA3 = dict(rope_type='llama3', rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)

# Two layers see all positions, the others a window; angles of the former are slower, and stretched.
GEMMA3 = dict(head_dim=10, query_pre_attn_scalar=10, sliding_window=12, num_hidden_layers=7, sliding_window_pattern=3, tie_word_embeddings=True,
              rope_parameters=dict(full_attention=dict(rope_type='linear', rope_theta=5000.0, factor=8.0),
                                   sliding_attention=dict(rope_type='default', rope_theta=100.0)))

FAMILIES = {
    'gpt2': (GPT2LMHeadModel, GPT2Config(vocab_size=V, n_positions=64, n_embd=24, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                                         bos_token_id=None, eos_token_id=None, attn_implementation='eager'), None),
    'llama': (LlamaForCausalLM, LlamaConfig(**COMMON, num_key_value_heads=2, head_dim=10, tie_word_embeddings=True), None),
    'llama3': (LlamaForCausalLM, LlamaConfig(**COMMON, num_key_value_heads=1, attention_bias=True, rope_parameters=LLAMA3), '20KB'),
    'qwen2': (Qwen2ForCausalLM, Qwen2Config(**COMMON, num_key_value_heads=2, tie_word_embeddings=True), None),
    'qwen3': (Qwen3ForCausalLM, Qwen3Config(**COMMON, num_key_value_heads=2, head_dim=16), None),
    'mistral': (MistralForCausalLM, MistralConfig(**COMMON, num_key_value_heads=2, sliding_window=12), None),
    'gemma3': (Gemma3ForCausalLM, Gemma3TextConfig(**COMMON | GEMMA3, num_key_value_heads=2), None),
}

# AdamW's first update is the sign of a gradient, whatever its size: one no larger than what rounding makes of it moves the second step's norm by 1e-5. Of
# 40,604 gradients one may well be. With this seed, of 7 to 39, the smallest is 3e-7, and rounding moves norms as little as it does those of other families.
SEED = {'gemma3': 23}


def token_stream():
    """Zipf-like draws, and half of the time a fixed successor of the token before. Window w is tokens [40 w, 40 w + 40], of which 41 are read."""
    rng = np.random.RandomState(61)
    cdf = np.cumsum(1.0 / (1.0 + np.arange(V)))
    cdf /= cdf[-1]
    rank, stream = rng.permutation(V), [0]
    for _ in range(STEPS * B * T):
        follow, u = rng.random_sample(2)
        stream.append((37 * stream[-1] + 11) % V if follow < 0.5 else int(rank[min(np.searchsorted(cdf, u), V - 1)]))
    return np.array(stream, dtype=np.int64)


def windows(stream):  # (STEPS,B,T+1)
    return np.stack([stream[w * T:w * T + T + 1] for w in range(STEPS * B)]).reshape(STEPS, B, T + 1)


def model_of(family, dtype):
    kind, config, _ = FAMILIES[family]
    net = kind(config)
    rng = np.random.RandomState(SEED.get(family, 7))  # the legacy generator: its stream is frozen across numpy versions
    with torch.no_grad():
        for name, p in sorted(net.named_parameters()):
            center = 1.0 if p.dim() == 1 and name.endswith('weight') and family != 'gemma3' else 0.0  # of Gemma's norms gains are 1 + w
            p.copy_(torch.from_numpy((center + 0.3 * rng.standard_normal(tuple(p.shape))).astype(np.float32)))
    return net.eval().to(dtype)


def loss_of(net, batch):
    logits = net(batch[:, :-1]).logits
    return F.cross_entropy(logits.reshape(-1, V), batch[:, 1:].reshape(-1)), logits


def train(family, dtype):
    net, data = model_of(family, dtype), torch.from_numpy(windows(token_stream()))
    named = dict(net.named_parameters())
    opt = torch.optim.AdamW([{'params': [p for p in named.values() if p.dim() >= 2], 'weight_decay': DECAY},
                             {'params': [p for p in named.values() if p.dim() < 2], 'weight_decay': 0.0}], lr=LR, betas=BETAS, eps=EPS, foreach=False)
    out, losses, norms = {}, [], []
    text = data[0, :1, :8]
    with torch.no_grad():
        for _ in range(GREEDY):
            text = torch.cat([text, net(text).logits[:, -1:].argmax(-1)], 1)
    out['greedy'] = text[0].to(torch.float64).numpy()
    for s in range(STEPS):
        opt.zero_grad(set_to_none=True)
        loss, logits = loss_of(net, data[s])
        loss.backward()
        if s == 0:
            out['logits'] = logits.detach()[:2].numpy().copy()
            out.update({f'grad/{n}': p.grad.numpy().copy() for n, p in named.items()})
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(list(named.values()), CLIP).item())
        opt.step()
    with torch.no_grad():
        final = loss_of(net, data[0])[0].item()
    return {**out, 'losses': np.array(losses), 'norms': np.array(norms), 'final_loss': np.array([final])}


def distance(a, b):
    return np.linalg.norm(np.float64(a) - b) / np.linalg.norm(b)


def golden(family):
    exact, single = train(family, torch.float64), train(family, torch.float32)
    assert (exact['greedy'] == single['greedy']).all()
    print(f"{family}: float32 is off by {np.abs(single['logits'] - exact['logits']).max() / np.abs(exact['logits']).max():.1e} in logits, "
          f"{max(abs(single['losses'] / exact['losses'] - 1)):.1e} in losses, {max(abs(single['norms'] / exact['norms'] - 1)):.1e} in norms, "
          f"{max(distance(single[k], exact[k]) for k in exact if k.startswith('grad/')):.1e} in gradients; loss {exact['losses'][0]:.3f} -> {exact['final_loss'][0]:.3f}")
    keep = ('losses', 'norms', 'final_loss', 'greedy')
    return {k: v if k in keep else v.astype(np.float32) for k, v in exact.items()}


def write(folder, families):
    token_stream().astype('<u2').tofile(folder / 'tokens.bin')
    for family in families:
        to, shard = folder / family, FAMILIES[family][2]
        shutil.rmtree(to, ignore_errors=True)
        model_of(family, torch.float32).save_pretrained(to, **({'max_shard_size': shard} if shard else {}))
        (to / 'generation_config.json').unlink(missing_ok=True)
        save_file(golden(family), to / 'golden.safetensors')


def check():
    bad = 0
    with tempfile.TemporaryDirectory() as temp:
        write(pathlib.Path(temp), FAMILIES)
        for new in sorted(pathlib.Path(temp).rglob('*')):
            if new.is_dir():
                continue
            old = HERE / new.relative_to(temp)
            if new.name == 'golden.safetensors':
                a, b = load_file(old), load_file(new)
                same = a.keys() == b.keys() and all(np.allclose(a[k], b[k], rtol=1e-6, atol=1e-7) for k in a)
            elif new.name == 'config.json':
                a, b = (json.loads(f.read_text()) for f in (old, new))
                same = {k: v for k, v in a.items() if k != 'transformers_version'} == {k: v for k, v in b.items() if k != 'transformers_version'}
            else:
                same = old.read_bytes() == new.read_bytes()
            bad += not same
            if not same:
                print(f'{old}: different')
    print('equal' if not bad else f'{bad} files differ')
    return bad


def mutate():
    """How far a mistake moves the logits, as a share of the largest."""
    batch = torch.from_numpy(windows(token_stream()))[0]
    module = {f: sys.modules[FAMILIES[f][0].__module__] for f in FAMILIES}

    def logits(family, change=lambda net: None):
        net = model_of(family, torch.float64)
        change(net)
        with torch.no_grad():
            return loss_of(net, batch)[1]

    def show(what, family, change=lambda net: None, **patches):
        right = logits(family)
        old = {k: getattr(module[family], k) for k in patches}
        for k, v in patches.items():
            setattr(module[family], k, v)
        wrong = logits(family, change)
        for k, v in old.items():
            setattr(module[family], k, v)
        print(f'{what}, {family}: {(wrong - right).abs().max() / right.abs().max():.1e}')

    def interleaved(q, k, cos, sin, *_, **__):
        half = cos.shape[-1] // 2
        c, s = (x[..., :half].repeat_interleave(2, -1).unsqueeze(1) for x in (cos, sin))
        turn = lambda x: torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
        return q * c + turn(q) * s, k * c + turn(k) * s

    def eps_outside(net):
        for m in net.modules():
            if type(m).__name__.endswith('RMSNorm'):
                m.forward = lambda x, m=m: m.weight * x / (x.pow(2).mean(-1, keepdim=True).sqrt() + m.variance_epsilon)

    def unscaled(net):
        r, D = net.model.rotary_emb, net.config.head_dim
        r.inv_freq = 1.0 / (500000.0 ** (torch.arange(0, D, 2, dtype=torch.float64) / D))

    def window(net):
        for layer in net.model.layers:
            layer.self_attn.sliding_window = 13
        net.config.sliding_window = 13

    def without_norms(net):
        for layer in net.model.layers:
            layer.self_attn.q_norm = layer.self_attn.k_norm = torch.nn.Identity()

    def named(net, end, change):
        for name, m in net.named_modules():
            if name.endswith(end):
                change(m)

    def plain_gain(net):
        named(net, 'norm', lambda m: setattr(m, 'forward', lambda x: m._norm(x) * m.weight))

    def one_theta(net):
        net.model.rotary_emb.sliding_attention_inv_freq = net.model.rotary_emb.full_attention_inv_freq

    def unstretched(net):
        net.model.rotary_emb.full_attention_inv_freq = net.model.rotary_emb.full_attention_inv_freq * 8

    def unscaled_embedding(net):
        net.model.embed_tokens.embed_scale = torch.ones((), dtype=torch.float64)

    def without(end):
        return lambda net: named(net, end, lambda m: setattr(m, 'forward', lambda x: x))

    def silu(net):
        named(net, 'mlp', lambda m: setattr(m, 'act_fn', torch.nn.SiLU()))

    show('gains of w for 1 + w', 'gemma3', plain_gain)
    show('one base of angles', 'gemma3', one_theta)
    show('angles of layers that see all not stretched', 'gemma3', unstretched)
    show('embedding not scaled', 'gemma3', unscaled_embedding)
    for end in 'post_attention_layernorm', 'post_feedforward_layernorm', 'q_norm', 'k_norm':
        show(f'without {end}', 'gemma3', without(end))
    show('SiLU for GELU', 'gemma3', silu)
    show('a window of 13 for 12', 'gemma3', window)
    for f in 'llama', 'llama3', 'qwen2', 'qwen3', 'mistral', 'gemma3':
        show('rotary pairs side by side', f, apply_rotary_pos_emb=interleaved)
        if f != 'gemma3':
            show('eps outside of the root', f, eps_outside)
    for f in 'llama', 'qwen2', 'qwen3', 'mistral', 'gemma3':
        show('query head h reads head h % KV', f, repeat_kv=lambda x, n: x.repeat(1, n, 1, 1))
    show('scaling dropped', 'llama3', unscaled)
    show('a window of 13 for 12', 'mistral', window)
    show('without norms of q and k', 'qwen3', without_norms)


if __name__ == '__main__':
    torch.set_num_threads(1)
    print(f'transformers {transformers.__version__}, PyTorch {torch.__version__}, numpy {np.__version__}')
    if '--check' in sys.argv:
        sys.exit(check() != 0)
    mutate() if '--mutate' in sys.argv else write(HERE, sys.argv[1:] or FAMILIES)
