#!/usr/bin/env python3
# Golden files for what config.json says: other ways to write the one of a family in this folder, and what transformers makes of each of them.
#
# One idea: save_pretrained writes every key, so a reader of its files never meets a default, an old spelling, or a number that does not count. Here keys
# are taken away, spelt as transformers 4 spelt them, and switched off; and transformers, which loads the directory as a user would, says by its logits
# what the model is. What lockstep does not have must be refused, and here is shown to be another model than the one without it.
#
#   python3 make_configs.py              writes configs.json, configs.safetensors, defaults.json and headless/ beside this recipe
#   python3 make_configs.py --bin BIN    lets this lockstep read each of them, and export it; transformers must load what it wrote, with the same logits;
#                                        writes exports.json: each config.json that was shown to be right
#   python3 make_configs.py --check      computes everything but the exports again and compares
import json, os, pathlib, re, shutil, subprocess, sys, tempfile

os.environ.update(OMP_NUM_THREADS='1', HF_HUB_OFFLINE='1', TRANSFORMERS_VERBOSITY='error', HF_HUB_DISABLE_PROGRESS_BARS='1')
import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as load_torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig, Qwen3Config, Qwen3ForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[2]
T, LAST = 40, 8
GONE = object()
LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
WINDOW = dict(use_sliding_window=True, sliding_window=12, layer_types=GONE)
OLD = dict(rope_parameters=GONE, dtype=GONE, torch_dtype='float32', layer_types=GONE, transformers_version='4.51.3')
GEMMA_OLD = OLD | dict(_sliding_window_pattern=GONE)

# name: (whose weights, what is changed in its config.json, what a refusal names or None)
CASES = {
    'gpt2-least': ('gpt2', dict.fromkeys(['activation_function', 'n_inner', 'layer_norm_epsilon', 'scale_attn_weights', 'tie_word_embeddings',
                                          'scale_attn_by_inverse_layer_idx', 'add_cross_attention', 'n_positions'], GONE) | dict(n_positions=64), None),
    'gpt2-tanh': ('gpt2', dict(activation_function='gelu_pytorch_tanh'), None),
    'gpt2-erf': ('gpt2', dict(activation_function='gelu'), 'activation_function'),
    'gpt2-eps': ('gpt2', dict(layer_norm_epsilon=1e-2), 'layer_norm_epsilon'),
    'gpt2-unscaled': ('gpt2', dict(scale_attn_weights=False), 'scale_attn_weights'),
    'gpt2-by-layer': ('gpt2', dict(scale_attn_by_inverse_layer_idx=True), 'scale_attn_by_inverse_layer_idx'),
    'llama-old': ('llama', OLD | dict(rope_theta=500.0, rope_scaling=None), None),
    'llama-theta': ('llama', dict(rope_parameters=dict(rope_type='default', rope_theta=500.0)), None),
    'llama-no-rope': ('llama', dict(rope_parameters=GONE), None),
    'llama-no-eps': ('llama', dict(rms_norm_eps=GONE), None),
    'llama-gelu': ('llama', dict(hidden_act='gelu'), 'hidden_act'),
    'llama-linear': ('llama', dict(rope_parameters=dict(rope_type='linear', rope_theta=10000.0, factor=4.0)), 'rope_type'),
    'llama-linear-old': ('llama', OLD | dict(rope_theta=10000.0, rope_scaling=dict(type='linear', factor=4.0)), 'rope_type'),
    'llama-dynamic': ('llama', dict(rope_parameters=dict(rope_type='dynamic', rope_theta=10000.0, factor=4.0), max_position_embeddings=16), 'rope_type'),
    'llama-yarn': ('llama', dict(rope_parameters=dict(rope_type='yarn', rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16)), 'rope_type'),
    'llama3-old': ('llama3', OLD | dict(rope_theta=500000.0, rope_scaling=LLAMA3 | dict(rope_type='llama3')), None),
    'llama3-older': ('llama3', OLD | dict(rope_theta=500.0, rope_scaling=LLAMA3 | dict(type='llama3')), None),
    'llama3-others': ('llama3', dict(rope_parameters=dict(rope_type='llama3', rope_theta=5000.0, factor=3.0, low_freq_factor=2.0, high_freq_factor=7.0,
                                                          original_max_position_embeddings=24)), None),
    'llama3-least': ('llama3', dict.fromkeys(['head_dim', 'hidden_act', 'mlp_bias', 'tie_word_embeddings', 'pretraining_tp'], GONE), None),
    'llama3-null': ('llama3', dict(head_dim=None, rope_scaling=None), None),
    'mistral-whole': ('mistral', dict(sliding_window=None), None),
    'mistral-default': ('mistral', dict(sliding_window=GONE), None),
    'mistral-least': ('mistral', dict.fromkeys(['head_dim', 'hidden_act', 'rope_parameters', 'tie_word_embeddings'], GONE), None),
    'qwen2-off': ('qwen2', dict(use_sliding_window=False, sliding_window=12, max_window_layers=0, layer_types=GONE), None),
    'qwen2-unsaid': ('qwen2', dict(use_sliding_window=GONE, sliding_window=12, max_window_layers=0, layer_types=GONE), None),
    'qwen2-window': ('qwen2', WINDOW | dict(max_window_layers=0), None),
    'qwen2-types': ('qwen2', WINDOW | dict(max_window_layers=28, layer_types=['sliding_attention'] * 2), None),
    'qwen2-types-full': ('qwen2', WINDOW | dict(max_window_layers=0, layer_types=['full_attention'] * 2), None),
    'qwen2-late': ('qwen2', WINDOW | dict(max_window_layers=2), None),
    'qwen2-unsaid-late': ('qwen2', WINDOW | dict(max_window_layers=GONE), None),
    'qwen2-some': ('qwen2', WINDOW | dict(max_window_layers=1), 'use_sliding_window'),
    'qwen2-some-types': ('qwen2', WINDOW | dict(layer_types=['full_attention', 'sliding_attention']), 'use_sliding_window'),
    'qwen2-old': ('qwen2', OLD | dict(rope_theta=500.0, rope_scaling=None, sliding_window=12, max_window_layers=2), None),
    'qwen3-window': ('qwen3', WINDOW | dict(max_window_layers=0), None),
    'headless': ('headless', {}, None),
    'gemma3-old': ('gemma3', GEMMA_OLD | dict(rope_theta=500.0, rope_local_base_freq=70.0, rope_scaling=dict(rope_type='linear', factor=4.0)), None),
    'gemma3-old-plain': ('gemma3', GEMMA_OLD | dict(rope_theta=500.0, rope_local_base_freq=70.0, rope_scaling=None), None),
    'gemma3-least': ('gemma3', dict.fromkeys(['attention_bias', 'attn_logit_softcapping', 'final_logit_softcapping', 'hidden_activation', 'layer_types',
                                              'rope_parameters', 'sliding_window_pattern', 'tie_word_embeddings', 'use_bidirectional_attention',
                                              '_sliding_window_pattern'], GONE), None),
    'gemma3-underscored': ('gemma3', dict(layer_types=GONE, sliding_window_pattern=GONE, _sliding_window_pattern=3), None),
    'gemma3-pattern': ('gemma3', dict(layer_types=GONE, sliding_window_pattern=2), None),
    'gemma3-none': ('gemma3', dict(layer_types=GONE, sliding_window_pattern=9), None),
    'gemma3-types': ('gemma3', dict(layer_types=['sliding_attention', 'full_attention'] * 3 + ['sliding_attention'], sliding_window_pattern=3), None),
    'gemma3-types-full': ('gemma3', dict(layer_types=['full_attention'] * 7, sliding_window_pattern=GONE), None),
    'gemma3-types-window': ('gemma3', dict(layer_types=['sliding_attention'] * 7, sliding_window_pattern=3), None),
    'gemma3-types-uneven': ('gemma3', dict(layer_types=['full_attention'] + ['sliding_attention'] * 6), 'layer_types'),
    'gemma3-far': ('gemma3', dict(rope_parameters=dict(full_attention=dict(rope_type='default')), rope_theta=500.0, rope_local_base_freq=70.0), None),
    'gemma3-near': ('gemma3', dict(rope_parameters=dict(full_attention=None, sliding_attention=dict(rope_type='default', rope_theta=300.0))), None),
    'gemma3-both': ('gemma3', dict(rope_scaling=dict(rope_type='linear', factor=3.0)), None),
    'gemma3-unstretched': ('gemma3', dict(rope_scaling=dict(rope_type='default')), None),
    'gemma3-near-linear': ('gemma3', dict(rope_parameters=dict(sliding_attention=dict(rope_type='linear', factor=4.0, rope_theta=100.0))),
                           'rope_parameters'),
    'gemma3-llama3': ('gemma3', dict(rope_parameters=dict(full_attention=LLAMA3 | dict(rope_type='llama3', rope_theta=5000.0))), 'rope_type'),
    'gemma3-typed': ('gemma3', GEMMA_OLD | dict(rope_scaling=dict(type='linear', factor=4.0)), 'type'),
    'gemma3-scale': ('gemma3', dict(query_pre_attn_scalar=20), 'query_pre_attn_scalar'),
    'gemma3-capped': ('gemma3', dict(final_logit_softcapping=5.0), 'final_logit_softcapping'),
    'gemma3-two-way': ('gemma3', dict(use_bidirectional_attention=True), 'use_bidirectional_attention'),
    'gemma3-erf': ('gemma3', dict(hidden_activation='gelu'), 'hidden_activation'),
}
READ = [n for n, c in CASES.items() if not c[2]] + ['gpt2', 'llama', 'llama3', 'qwen2', 'qwen3', 'mistral', 'gemma3']


def headless(to):
    """Qwen 3 whose config.json has no head_dim: it is 128, whatever hidden_size and heads are."""
    shutil.rmtree(to, ignore_errors=True)
    config = Qwen3Config(vocab_size=61, hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1, head_dim=128,
                         max_position_embeddings=64, rms_norm_eps=1e-2, tie_word_embeddings=True, bos_token_id=None, eos_token_id=None)
    net, rng = Qwen3ForCausalLM(config), np.random.RandomState(7)
    with torch.no_grad():
        for name, p in sorted(net.named_parameters()):
            center = 1.0 if p.dim() == 1 else 0.0
            p.copy_(torch.from_numpy((center + 0.3 * rng.standard_normal(tuple(p.shape))).astype(np.float32)))
    net.save_pretrained(to)
    (to / 'generation_config.json').unlink(missing_ok=True)
    said = json.loads((to / 'config.json').read_text())
    del said['head_dim']
    (to / 'config.json').write_text(json.dumps(said, indent=2) + '\n')


def config_of(case):
    if case not in CASES:
        return json.loads((HERE / case / 'config.json').read_text())
    weights, changes, _ = CASES[case]
    said = json.loads((HERE / weights / 'config.json').read_text()) | changes
    return {k: v for k, v in said.items() if v is not GONE}


def directory_of(case, to):
    """As a user has it: config.json, and links to the weights."""
    to.mkdir()
    (to / 'config.json').write_text(json.dumps(config_of(case)))
    for f in (HERE / CASES.get(case, (case,))[0]).glob('model*'):
        (to / f.name).symlink_to(f)


def logits_of(directory):
    net, info = AutoModelForCausalLM.from_pretrained(directory, attn_implementation='eager', output_loading_info=True)
    assert not info['missing_keys'] and not info['unexpected_keys'] and not info['mismatched_keys'], info
    tokens = torch.from_numpy(np.fromfile(HERE / 'tokens.bin', '<u2')[:T].astype(np.int64))
    with torch.no_grad():
        return net.eval().to(torch.float64)(tokens[None]).logits[0, -LAST:].numpy()


def distance(a, b):
    return np.abs(a - b).max() / np.abs(b).max()


def ropes():
    """Angles as others round them: inv_freq, and at some positions cosines, then sines, of Llama's own module."""
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
    at, out = torch.tensor([0, 1, 2, 39, 1000, 8191, 65537, 100000]), {}
    kinds = {'default': dict(rope_type='default', rope_theta=10000.0), 'theta': dict(rope_type='default', rope_theta=500000.0),
             'llama3': dict(rope_type='llama3', rope_theta=500000.0, **(LLAMA3 | dict(original_max_position_embeddings=8192)))}
    for name, parameters in kinds.items():
        config = AutoConfig.for_model('llama', hidden_size=64, num_attention_heads=1, head_dim=64, max_position_embeddings=131072, rope_parameters=parameters)
        module = LlamaRotaryEmbedding(config)
        cos, sin = module(torch.zeros(1), at[None])
        out[f'rope/{name}/inv_freq'] = module.inv_freq.numpy().astype(np.float32)
        out[f'rope/{name}/table'] = np.concatenate([cos[0, :, :32].numpy(), sin[0, :, :32].numpy()], 1).astype(np.float32)
    return out | {'rope/positions': at.numpy().astype(np.float32)}


def defaults(family):
    """What a config.json that says its model_type and nothing else means, by the keys of lockstep's [model] section."""
    c = AutoConfig.for_model(family)
    if family == 'gpt2':
        return dict(layers=c.n_layer, heads=c.n_head, embed=c.n_embd, vocab=c.vocab_size, context=c.n_positions)
    if family == 'gemma3_text':
        pattern, rope = c.layer_types.index('full_attention') + 1, c.rope_parameters
        return dict(layers=c.num_hidden_layers, heads=c.num_attention_heads, kv_heads=c.num_key_value_heads, embed=c.hidden_size, hidden=c.intermediate_size,
                    head_dim=c.head_dim, vocab=c.vocab_size, context=c.max_position_embeddings, norm_eps=c.rms_norm_eps, window=c.sliding_window,
                    pattern=pattern, rope_theta=rope['full_attention']['rope_theta'], local_theta=rope['sliding_attention']['rope_theta'],
                    rope_factor={'default': 1}[rope['full_attention']['rope_type']])
    head = getattr(c, 'head_dim', None) or c.hidden_size // c.num_attention_heads
    bias = 'qkv' if family == 'qwen2' else 'all' if getattr(c, 'attention_bias', False) else 'no'
    return dict(layers=c.num_hidden_layers, heads=c.num_attention_heads, kv_heads=c.num_key_value_heads, embed=c.hidden_size, hidden=c.intermediate_size,
                head_dim=head, vocab=c.vocab_size, context=c.max_position_embeddings, norm_eps=c.rms_norm_eps, tied='yes' if c.tie_word_embeddings else 'no',
                bias=bias, qk_norm='yes' if family == 'qwen3' else 'no', rope_theta=c.rope_parameters['rope_theta'],
                rope_scaling={'default': 'no'}[c.rope_parameters['rope_type']], window=getattr(c, 'sliding_window', None) or 0)


def write(folder):
    headless(folder / 'headless')
    cases, logits = {}, ropes()
    with tempfile.TemporaryDirectory() as temp:
        plain = {}
        for case, (weights, _, refused) in CASES.items():
            directory_of(case, pathlib.Path(temp) / case)
            found = logits_of(pathlib.Path(temp) / case)
            if weights not in plain and weights != 'headless':
                plain[weights] = logits_of(HERE / weights)
            far = distance(found, plain[weights]) if weights in plain else 0
            print(f'{case}: {far:.1e} from {weights}' + (f', to be refused: {refused}' if refused else ''))
            assert not refused or far > 1e-4
            cases[case] = {'weights': weights, 'config': config_of(case)} | ({'refused': refused} if refused else {})
            if not refused:
                logits[f'logits/{case}'] = found.astype(np.float32)
    (folder / 'configs.json').write_text('{\n' + ',\n'.join(f'"{k}": {json.dumps(v)}' for k, v in cases.items()) + '\n}\n')
    save_file(logits, folder / 'configs.safetensors')
    said = {family: {k: str(v) for k, v in defaults(family).items()} for family in ('gpt2', 'llama', 'mistral', 'qwen2', 'qwen3', 'gemma3_text')}
    (folder / 'defaults.json').write_text('{\n' + ',\n'.join(f'"{k}": {json.dumps(v)}' for k, v in said.items()) + '\n}\n')


def check():
    bad = 0
    with tempfile.TemporaryDirectory() as temp:
        write(pathlib.Path(temp))
        for new in sorted(p for p in pathlib.Path(temp).rglob('*') if p.is_file()):
            old = HERE / new.relative_to(temp)
            same = old.read_bytes() == new.read_bytes()
            if new.name == 'configs.safetensors':
                a, b = load_file(old), load_file(new)
                same = a.keys() == b.keys() and all(np.allclose(a[k], b[k], rtol=1e-6, atol=1e-7) for k in a)
            elif new.name == 'config.json':
                same = (json.loads(old.read_text()) | {'transformers_version': 0}) == (json.loads(new.read_text()) | {'transformers_version': 0})
            bad += not same
            if not same:
                print(f'{old}: different')
    print('equal' if not bad else f'{bad} files differ')
    return bad


# --- what lockstep writes --------------------------------------------------------------------------------------------------------------

RUN = f'''[run]
name = run
dir = runs
steps = 1
[data]
train = {HERE}/tokens.bin
val =
format = raw16
[optimizer]
lr = 0
[batch]
global = 2
micro = 2
[sample]
tokens = 0
'''


def lockstep(bin, *args, cwd):
    done = subprocess.run([bin, *map(str, args)], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"lockstep {' '.join(map(str, args))}: {done.stderr}")
    return done.stdout


def export(bin, case, folder, *options):
    """Weights that lockstep read from the case's directory, as it writes them."""
    directory_of(case, folder / 'from')
    (folder / 'model.ini').write_text(lockstep(bin, 'inspect', 'from', cwd=folder))
    (folder / 'run.ini').write_text(RUN)
    lockstep(bin, 'model.ini', 'run.ini', cwd=folder)
    lockstep(bin, 'export', 'runs/run', 'to', *options, cwd=folder)
    return folder / 'to'


def exports(bin):
    right, golden = {}, load_file(HERE / 'configs.safetensors')
    for case in READ:
        with tempfile.TemporaryDirectory() as temp:
            out = export(bin, case, pathlib.Path(temp))
            want = golden[f'logits/{case}'] if case in CASES else load_file(HERE / case / 'golden.safetensors')['logits'][0, -LAST:]
            off = distance(logits_of(out), want)
            theirs, ours = {}, load_torch(out / 'model.safetensors')
            for f in (HERE / CASES.get(case, (case,))[0]).glob('model*.safetensors'):
                theirs |= load_torch(f)
            same = theirs.keys() == ours.keys() and all(torch.equal(theirs[k], ours[k]) and theirs[k].dtype == ours[k].dtype for k in theirs)
            print(f'{case}: the export is off by {off:.1e} in logits, its tensors are {"those that were read" if same else "OTHERS"}')
            assert off < 1e-6 and same
            right[case] = {n: json.loads((out / f'{n}.json').read_text()) for n in ('config', 'generation_config')}
            said = right[case]['config']
            if 'rope_parameters' in said:  # transformers 4 reads the other two
                rope = said['rope_parameters']
                if 'sliding_attention' in rope:
                    assert said['rope_local_base_freq'] == rope['sliding_attention']['rope_theta'] and rope['sliding_attention']['rope_type'] == 'default'
                    rope = rope['full_attention']
                    said = said | {'rope_scaling': said['rope_scaling'] and said['rope_scaling'] | {'rope_theta': said['rope_theta']}}
                assert said['rope_theta'] == rope['rope_theta'] and said['rope_scaling'] in (None, rope) and (rope['rope_type'] == 'default') == (said['rope_scaling'] is None)
    right.update({name: made(bin, name) for name in MADE})
    right.update(with_tokenizer(bin))
    (HERE / 'exports.json').write_text('{\n' + ',\n'.join(f'"{k}": {json.dumps(v)}' for k, v in right.items()) + '\n}\n')


# [model] sections whose weights begin at random: what no family above has.
MADE = {
    'made-llama': 'type = llama\nlayers = 2\nheads = 2\nembed = 16\nhidden = 20\nbias = all\ntied = yes\nrope_theta = 700\nnorm_eps = 1e-3\n',
    'made-qwen2': 'type = llama\nlayers = 2\nheads = 4\nkv_heads = 1\nhead_dim = 6\nembed = 16\nhidden = 20\nbias = qkv\nwindow = 9\nrope_scaling = llama3\n'
                  'rope_factor = 4\nrope_low = 2\nrope_high = 8\nrope_original = 24\nrope_theta = 900\n',
    'made-qwen3': 'type = llama\nlayers = 2\nheads = 4\nkv_heads = 2\nhead_dim = 8\nembed = 16\nhidden = 20\nbias = all\nqk_norm = yes\nwindow = 7\ntied = yes\n',
    'made-mistral': 'type = llama\nlayers = 2\nheads = 2\nembed = 16\nhidden = 20\nwindow = 11\nrope_theta = 300\n',
    'made-gemma3': 'type = gemma\nlayers = 5\nheads = 4\nkv_heads = 2\nhead_dim = 8\nembed = 16\nhidden = 20\npattern = 2\nwindow = 7\nrope_theta = 900\n'
                   'rope_factor = 4\nlocal_theta = 30\nnorm_eps = 1e-3\n',
    'made-gpt2': 'type = gpt\nlayers = 2\nheads = 2\nembed = 16\n',
}


def made(bin, name):
    """Twenty steps at a high rate, so that all of it matters; transformers' loss of the export must be that of `lockstep eval`."""
    with tempfile.TemporaryDirectory() as temp:
        folder = pathlib.Path(temp)
        steps = RUN.replace('steps = 1\n', 'steps = 20\n').replace('lr = 0\n', 'lr = 0.03\n').replace('val =\n', f'val = {HERE}/tokens.bin\n')
        (folder / 'run.ini').write_text(steps + f'[eval]\nevery = 0\n[model]\nvocab = 61\ncontext = {T}\n{MADE[name]}')
        lockstep(bin, 'run.ini', cwd=folder)
        lockstep(bin, 'export', 'runs/run', 'to', cwd=folder)
        ours = float(re.search(r'loss ([0-9.]+)', lockstep(bin, 'eval', 'run.ini', cwd=folder)).group(1))
        net, info = AutoModelForCausalLM.from_pretrained(folder / 'to', attn_implementation='eager', output_loading_info=True)
        assert not info['missing_keys'] and not info['unexpected_keys'] and not info['mismatched_keys'], info
        tokens = torch.from_numpy(np.fromfile(HERE / 'tokens.bin', '<u2').astype(np.int64))
        batch = torch.stack([tokens[i:i + T + 1] for i in range(0, len(tokens) - T, T)])
        with torch.no_grad():
            logits = net.eval().to(torch.float64)(batch[:, :-1]).logits
        theirs = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()).item()
        print(f'{name}: loss {ours:.6f}, transformers\' {theirs:.6f}')
        assert abs(ours - theirs) < 1e-5 * theirs
        return {'section': MADE[name]} | {n: json.loads((folder / 'to' / f'{n}.json').read_text()) for n in ('config', 'generation_config')}


def with_tokenizer(bin):
    """The ids of the first and the last token: a vocabulary of 1000 has room for those of Llama 3's tokenizer."""
    path = HERE.parent / 'tokenizer' / 'llama3.json'
    added = {t['content']: t['id'] for t in json.loads(path.read_text())['added_tokens']}
    with tempfile.TemporaryDirectory() as temp:
        folder = pathlib.Path(temp)
        (folder / 'run.ini').write_text(RUN + '[model]\ntype = llama\nlayers = 1\nheads = 1\nembed = 4\nhidden = 4\ncontext = 8\nvocab = 1000\n')
        lockstep(bin, 'run.ini', cwd=folder)
        lockstep(bin, 'export', 'runs/run', 'to', '--tokenizer', path, '--dtype', 'bf16', cwd=folder)
        out = folder / 'to'
        words, net, generation = AutoTokenizer.from_pretrained(out), AutoConfig.from_pretrained(out), GenerationConfig.from_pretrained(out)
        for token, ids in ('<|begin_of_text|>', (words.bos_token_id, net.bos_token_id, generation.bos_token_id)), \
                          ('<|end_of_text|>', (words.eos_token_id, net.eos_token_id, generation.eos_token_id)):
            assert set(ids) == {added[token]}, (token, ids)
        assert net.dtype == torch.bfloat16 and AutoModelForCausalLM.from_pretrained(out).dtype == torch.bfloat16
        print(f'with a tokenizer: begins with {words.bos_token_id}, ends with {words.eos_token_id}, {net.dtype}')
        return {'tokenizer': {n: json.loads((out / f'{n}.json').read_text()) for n in ('config', 'generation_config', 'tokenizer_config')}}


if __name__ == '__main__':
    torch.set_num_threads(1)
    print(f'transformers {transformers.__version__}, PyTorch {torch.__version__}, numpy {np.__version__}')
    if '--check' in sys.argv:
        sys.exit(check() != 0)
    if '--bin' in sys.argv:
        exports(os.path.abspath(sys.argv[sys.argv.index('--bin') + 1]))
    else:
        write(HERE)
