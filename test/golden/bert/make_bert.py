#!/usr/bin/env python3
# Golden files of BERT: small models of transformers with random weights, for both tasks, and what transformers computes with them.
#
#   python3 make_bert.py           writes tokens.bin, samples.jsonl, and in mlm/ and classify/ config.json, model.safetensors and golden.safetensors
#
# golden.safetensors, of computation in double: hidden (B,T,C), what the last layer gives for the first batch, losses and norms of each step, final_loss, and
# grad/NAME of the first step. Needs torch, transformers and tokenizers. test/test_bert.c compares.
import json, os, pathlib

os.environ.update(OMP_NUM_THREADS='1', HF_HUB_OFFLINE='1', TRANSFORMERS_VERBOSITY='error')
import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

HERE = pathlib.Path(__file__).resolve().parent
T, G, STEPS, SEED, CLASSES = 32, 4, 10, 11, 3
V, CLS, SEP, MASK = 400, 2, 3, 4
M = int(0.15 * T + 0.5)
SITE_MASK = 0x01000000
words = Tokenizer.from_file(str(HERE.parent / 'tokenizer' / 'bert.json'))
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
    tokens = np.array(ids[:43 * (T - 2) + 7], '<u2')
    assert len(tokens) == 43 * (T - 2) + 7
    tokens.tofile(HERE / 'tokens.bin')
    for s in range(STEPS):
        made = [masked(tokens, n, n % 43) for n in range(s * G, (s + 1) * G)]
        yield {'input_ids': torch.tensor([x for x, _ in made]), 'labels': torch.tensor([y for _, y in made])}


# Labels are names, to be numbered in the order of their bytes.
def samples():
    rng, names = np.random.RandomState(3), ['bad', 'good', 'neither']
    for i in range(36):
        a, b = lines[rng.randint(len(lines))], lines[rng.randint(len(lines))]
        label = int(rng.randint(CLASSES))
        one = {'text': a[:int(rng.randint(4, 60))], 'label': names[label]}
        if i % 3 == 1: one['text_b'] = b[:int(rng.randint(4, 60))]
        yield one, label


def class_batches():
    words.enable_truncation(T, strategy='longest_first')
    words.enable_padding(length=T, pad_id=0)
    made = list(samples())
    (HERE / 'samples.jsonl').write_text(''.join(json.dumps(s) + '\n' for s, _ in made))
    for s in range(STEPS):
        part = [made[n % 36] for n in range(s * G, (s + 1) * G)]
        e = [words.encode(x['text'], x['text_b']) if 'text_b' in x else words.encode(x['text']) for x, _ in part]
        yield {'input_ids': torch.tensor([x.ids for x in e]), 'token_type_ids': torch.tensor([x.type_ids for x in e]),
               'attention_mask': torch.tensor([x.attention_mask for x in e]), 'labels': torch.tensor([y for _, y in part])}


def run(folder, model, batches):
    torch.manual_seed(5)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith('LayerNorm.weight'): p.copy_(1 + 0.2 * torch.randn(p.shape))
            else: p.copy_((0.2 if p.dim() > 1 else 0.1) * torch.randn(p.shape))
    model.tie_weights()
    model.eval()
    model.save_pretrained(HERE / folder, safe_serialization=True)
    model = model.double()
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() == 1]
    opt = torch.optim.AdamW([{'params': decay, 'weight_decay': 0.1}, {'params': rest, 'weight_decay': 0.0}], lr=1e-3, betas=(0.9, 0.99), eps=1e-8)
    out, losses, norms, first = {}, [], [], None
    for b in batches:
        if first is None:
            first = b
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
        losses.append(float(loss))
        opt.step()
    out['final_loss'] = torch.tensor([float(model(**first).loss)], dtype=torch.float64)
    out['losses'], out['norms'] = torch.tensor(losses, dtype=torch.float64), torch.tensor(norms, dtype=torch.float64)
    save_file(out, HERE / folder / 'golden.safetensors')
    print(folder, losses[0], losses[-1], float(out['final_loss']))


sizes = dict(vocab_size=V, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40, max_position_embeddings=T,
             hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=0)
run('mlm', BertForMaskedLM(BertConfig(**sizes, attn_implementation='eager')), masked_batches())
run('classify', BertForSequenceClassification(BertConfig(**sizes, num_labels=CLASSES, attn_implementation='eager')), class_batches())
