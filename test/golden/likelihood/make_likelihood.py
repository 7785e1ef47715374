#!/usr/bin/env python3
# Golden values of evaluations by likelihood: two small models with random weights, a text and two files of questions, and what lm-evaluation-harness
# says of them: the log-likelihood of every choice and of every text, acc and acc_norm.
#
# One idea: what is easy to get wrong is in the files. Tokens at the seam of query and choice that join, queries that end in white space, brackets,
# capitals in the middle and outside of ASCII, choices of very different lengths, rows longer than the context. The models read 48 tokens at once, so the
# texts roll. The numbers are computed in float64.
#
#   python3 make_likelihood.py            writes the models, the files and likelihood.txt beside this recipe
#   python3 make_likelihood.py --check    computes everything again and compares
#
# Needs the packages lm_eval==0.4.13, transformers==5.23.0, torch==2.15.0, tokenizers==0.23.3; no network. Protocol llmc is computed here, as
# dev/data/hellaswag.py of llm.c does it.
import json, os, pathlib, random, shutil, sys, tempfile

os.environ.update(OMP_NUM_THREADS='1', HF_HUB_OFFLINE='1', HF_DATASETS_OFFLINE='1', TRANSFORMERS_VERBOSITY='error', TOKENIZERS_PARALLELISM='false')
import lm_eval
import numpy as np
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks.hellaswag.utils import process_docs
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).resolve().parent
T = 48
SPECIAL = {'gpt2': dict(eos_token='<|endoftext|>'), 'llama3': dict(bos_token='<|begin_of_text|>', eos_token='<|end_of_text|>')}
WORDS = """the of and to in is that it was for on are with as his they at be this from have or by one had not but what all were when we there can an
your which their said Zürich façade Ελλάδα Москва Мир 中文 日本語 1234 3.14 foo_bar() -> "quoted" (a,b) caffè Éclair don't It's WE'LL""".split()


def tokenizer_of(family):
    return PreTrainedTokenizerFast(tokenizer_file=str(HERE.parent / 'tokenizer' / f'{family}.json'), **SPECIAL[family])


def model_of(family):
    vocab = len(tokenizer_of(family))
    if family == 'gpt2':
        net = GPT2LMHeadModel(GPT2Config(vocab_size=vocab, n_positions=T, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                                         bos_token_id=None, eos_token_id=None, attn_implementation='eager'))
    else:
        net = LlamaForCausalLM(LlamaConfig(vocab_size=vocab, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                                           num_key_value_heads=2, max_position_embeddings=T, rms_norm_eps=1e-2, bos_token_id=None, eos_token_id=None,
                                           pad_token_id=None, tie_word_embeddings=True, attn_implementation='eager'))
    rng = np.random.RandomState(11)
    with torch.no_grad():
        for name, p in sorted(net.named_parameters()):
            center = 1.0 if p.dim() == 1 and name.endswith('weight') else 0.0
            p.copy_(torch.from_numpy((center + 0.3 * rng.standard_normal(tuple(p.shape))).astype(np.float32)))
    return net.eval()


def words(dice, n):
    return ' '.join(dice.choice(WORDS) for _ in range(n))


def hellaswag():
    """Made up, in the form of HellaSwag's files."""
    dice, out = random.Random(3), []
    odd = [('A [header] b', 'then THE Éa ΣΑΣ ends.  Twice  spaced [step] '), ('[title] one', '[substeps] two.'), ('x', ''), ('  y [a\nb] z', 'ÉT [c'),
           ('p [title] q [title] r', 'ǆ s'), ('\u00a0nbsp', 'end.\u2003'), ('the', 'ÄÖ [x] [y]'), ('q]', '[[z]]'), ('seam ', ' seam'), ('tab\t', 'Tab\t[h] ')]
    for i in range(40):
        a, b = odd[i] if i < len(odd) else (words(dice, dice.randint(1, 6)), words(dice, dice.randint(0, 4)))
        if i % 9 == 8:
            a = words(dice, 60)  # too long for the context
        endings = [words(dice, dice.randint(1, 9)) + dice.choice(['.', '', ' [end]', '  !', ' [title] x']) for _ in range(4)]
        if i == 20:
            endings[2] = endings[1]  # equals
        label = dice.randrange(4)
        out.append(dict(ind=i, activity_label=words(dice, 2).capitalize(), ctx_a=a, ctx_b=b, ctx=a + ' ' + b, endings=endings, source_id='made up',
                        split='val', split_type='indomain', label=str(label) if i % 2 else label))
    return out


def general():
    """Two to five choices, queries that end in white space of all sorts, one that is empty."""
    dice, out = random.Random(4), []
    for i in range(40):
        query = words(dice, dice.randint(1, 7)) + ['', ' ', '  ', '\n', '\u3000 ', ':', ' [kept] '][i % 7]
        if i == 7:
            query = ''
        if i == 8:
            query = words(dice, 60) + ' '
        choices = [words(dice, dice.randint(1, 8)) for _ in range(2 + i % 4)]
        out.append(dict(query=query, choices=choices, gold=dice.randrange(len(choices))))
    return out


FILES = {'hellaswag.jsonl': hellaswag, 'general.jsonl': general}


def texts():
    """One shorter than the context, one of exactly a few windows' worth of words, one long; with line ends and characters of many bytes."""
    dice = random.Random(5)
    return [words(dice, 5) + '\n', '\n'.join(words(dice, 9) for _ in range(12)), ''.join(words(dice, dice.randint(1, 12)) + dice.choice(['\n', '  ', '.\n\n']) for _ in range(60)), 'x']


def lm_eval_of(family, name, rows):
    """[(log-likelihoods of the choices)], acc, acc_norm."""
    lm = HFLM(pretrained=model_of(family).double(), tokenizer=tokenizer_of(family), device='cpu', batch_size=4, max_length=T, dtype=torch.float64)
    with tempfile.TemporaryDirectory() as temp:
        path = pathlib.Path(temp) / name
        path.write_text(''.join(json.dumps(r | {'label': str(r['label'])} if 'label' in r else r) + '\n' for r in rows))
        hella = name == 'hellaswag.jsonl'
        task = dict(task=name.split('.')[0] + '_local', dataset_path='json', dataset_kwargs={'data_files': {'validation': str(path)}, 'cache_dir': temp},
                    validation_split='validation', output_type='multiple_choice', doc_to_text='{{query}}', doc_to_choice='choices',
                    doc_to_target='{{label}}' if hella else 'gold', metric_list=[{'metric': m, 'aggregation': 'mean', 'higher_is_better': True} for m in ('acc', 'acc_norm')])
        if hella:
            task['process_docs'] = process_docs
        got = lm_eval.simple_evaluate(model=lm, tasks=[task], log_samples=True, bootstrap_iters=0)
    samples = sorted(got['samples'][task['task']], key=lambda s: s['doc_id'])
    result = got['results'][task['task']]
    return [[float(r[0][0]) for r in s['resps']] for s in samples], result['acc,none'], result['acc_norm,none']


def losses_of(net, ids, asked):
    """Sum of the losses of the last `asked` ids, of which the last T + 1 are kept."""
    ids = torch.tensor([ids[-(T + 1):]])
    with torch.no_grad():
        log = torch.log_softmax(net(ids[:, :-1]).logits[0], -1)
    return float(-log[torch.arange(ids.shape[1] - 1), ids[0, 1:]][-asked:].sum())


def llmc_of(family, name, rows):
    net, words_, out, right, right_norm = model_of(family).double(), tokenizer_of(family), [], 0, 0
    encode = lambda text: words_.encode(text, add_special_tokens=False)
    prefix = words_.bos_token_id if words_.bos_token_id is not None else words_.eos_token_id
    for r in rows:
        hella = 'endings' in r
        context = encode(r['ctx' if hella else 'query']) or [prefix]
        ends = [encode(' ' + c) for c in r['endings' if hella else 'choices']]
        sums = [losses_of(net, context + e, len(e)) for e in ends]
        gold = int(r['label'] if hella else r['gold'])
        right += int(np.argmin(sums)) == gold
        right_norm += int(np.argmin([s / len(e) for s, e in zip(sums, ends)])) == gold
        out.append([-s for s in sums])
    return out, right / len(rows), right_norm / len(rows)


def values():
    lines = []
    for family in SPECIAL:
        for name, make in FILES.items():
            rows = make()
            for protocol, of in ('lm-eval', lm_eval_of), ('llmc', llmc_of):
                sums, acc, acc_norm = of(family, name, rows)
                lines += [f'{family} {protocol} {name} acc {acc:.6f} acc_norm {acc_norm:.6f}']
                lines += [f'{family} {protocol} {name} {i} {k} {x:.9f}' for i, each in enumerate(sums) for k, x in enumerate(each)]
        lm = HFLM(pretrained=model_of(family).double(), tokenizer=tokenizer_of(family), device='cpu', batch_size=1, max_length=T, dtype=torch.float64,
                  add_bos_token=False)  # else lm-eval asks for the first token of Llama 3's template too
        said = lm.loglikelihood_rolling([Instance('loglikelihood_rolling', {}, (t,), 0) for t in texts()])
        lines += [f'{family} rolling {i} {len(t.encode())} {x:.9f}' for i, (t, x) in enumerate(zip(texts(), said))]
    return '\n'.join(lines) + '\n'


def write(folder):
    for family in SPECIAL:
        to = folder / family
        shutil.rmtree(to, ignore_errors=True)
        model_of(family).save_pretrained(to)
        (to / 'generation_config.json').unlink(missing_ok=True)
    for name, make in FILES.items():
        (folder / name).write_text(''.join(json.dumps(r, ensure_ascii=i % 2 == 0) + '\n' for i, r in enumerate(make())))
    (folder / 'texts.jsonl').write_text(''.join(json.dumps({'text': t}) + '\n' for t in texts()))
    (folder / 'likelihood.txt').write_text(values())


def check():
    bad = 0
    with tempfile.TemporaryDirectory() as temp:
        write(pathlib.Path(temp))
        for new in sorted(p for p in pathlib.Path(temp).rglob('*') if p.is_file()):
            old = HERE / new.relative_to(temp)
            if new.name == 'likelihood.txt':
                a, b = (f.read_text().split() for f in (old, new))
                same = len(a) == len(b) and all(x == y or abs(float(x) - float(y)) < 1e-6 for x, y in zip(a, b))
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


if __name__ == '__main__':
    torch.set_num_threads(1)
    sys.exit(check() != 0) if '--check' in sys.argv else write(HERE)
