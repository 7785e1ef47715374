#!/usr/bin/env python3
# Golden files of T5: small models of transformers with random weights, of version 1.0 and 1.1, and what transformers computes with them.
#
#   python3 make_t5.py                      writes tokens.bin, and in v1.0/ and v1.1/ config.json, model.safetensors, golden.safetensors and more.ini, the settings that
#                                           inspect does not know; texts.jsonl, and in both texts.safetensors
#
# golden.safetensors, of computation in double: encoder (G,Te,C), what the encoder gives for the first batch, said, the tokens that the decoder says greedily of the first 9 tokens, at most 12, losses and norms of each of 20 steps, final_loss, and grad/NAME of
# the first step. texts.safetensors, of the samples in texts.jsonl with their answers as labels, whose room is -100: losses, norms, final_loss, and of v1.0 grad/NAME.
# Needs torch, transformers and numpy. test/test_t5.c compares.
import json, os, pathlib

os.environ.update(OMP_NUM_THREADS='1', HF_HUB_OFFLINE='1', TRANSFORMERS_VERBOSITY='error')
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import T5Config, T5ForConditionalGeneration

HERE = pathlib.Path(__file__).resolve().parent
G, STEPS, SEED, V, LR = 4, 20, 11, 300, 1e-3
SENTINEL, BEGIN, END, TE, NOISE, SPAN = 299, 0, 1, 40, 0.25, 2.0
SITE_SPANS = 0x06000000


def philox(seed, c):
    c, k0, k1, m = list(c), seed & 0xffffffff, seed >> 32, 0xffffffff
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & m, (p0 >> 32) ^ c[3] ^ k1, p0 & m]
        k0, k1 = (k0 + 0x9E3779B9) & m, (k1 + 0xBB67AE85) & m
    return c


# As T5's code has it: noise and spans of a window, tokens of the encoder's text and of the decoder's.
def lengths(window):
    noise = min(max(int(round(window * NOISE)), 1), window - 1)
    spans = max(int(round(noise / SPAN)), 1)
    return noise, spans, window - noise + spans + 1, noise + spans + 1


N = TE
while lengths(N + 1)[2] <= TE: N += 1
GONE, SPANS, INPUTS, TD = lengths(N)


def divide(tokens, n, which):
    word = [philox(SEED, (i, SITE_SPANS, n & 0xffffffff, n >> 32))[which] for i in range(tokens - 1)]
    cuts = sorted(sorted(range(tokens - 1), key=lambda i: (word[i], i))[:SPANS - 1])
    ends = [i + 1 for i in cuts] + [tokens]
    return [b - a for a, b in zip([0] + ends, ends)]


# Sample n of a run, of window w of the tokens: as data/text/spans.c says it.
def sample(tokens, n, w):
    at, x, y = w * N, [], []
    for k, (gone, stays) in enumerate(zip(divide(GONE, n, 0), divide(N - GONE, n, 1))):
        x += [int(t) for t in tokens[at:at + stays]] + [SENTINEL - k]
        y += [SENTINEL - k] + [int(t) for t in tokens[at + stays:at + stays + gone]]
        at += stays + gone
    x.append(END), y.append(END)
    assert len(x) == INPUTS and len(y) == TD
    return x + [BEGIN] * (TE - INPUTS), [1] * INPUTS + [0] * (TE - INPUTS), y


def batches(tokens, W):
    for s in range(STEPS):
        made = [sample(tokens, n, n % W) for n in range(s * G, (s + 1) * G)]
        x, mask, y = (torch.tensor(part) for part in zip(*made))
        yield {'input_ids': x, 'attention_mask': mask, 'labels': y}


# A sample of texts.jsonl, of bytes: the encoder's text, its mask, and labels. As data/text/to_text.h says it, where texts are too long, too.
def text_sample(line, TD=12):
    a, b = list((line.get('prompt') or line['text']).encode()), line.get('text_b')
    y = list((line.get('response') or line['label']).encode())[:TD - 1] + [END]
    if b is None: x = a[:TE - 1] + [END]
    else:
        b, room = list(b.encode()), TE - 2
        if len(a) + len(b) > room:
            less = min(len(b), len(a), room // 2)
            a, b = (a[:less], b[:room - less]) if len(a) <= len(b) else (a[:room - less], b[:less])
        x = a + [END] + b + [END]
    return x + [BEGIN] * (TE - len(x)), [1] * len(x) + [0] * (TE - len(x)), y + [-100] * (TD - len(y))


def text_batches(W):
    lines = [json.loads(line) for line in (HERE / 'texts.jsonl').read_text().splitlines()]
    for s in range(STEPS):
        x, mask, y = (torch.tensor(part) for part in zip(*[text_sample(lines[n % W]) for n in range(s * G, (s + 1) * G)]))
        yield {'input_ids': x, 'attention_mask': mask, 'labels': y}


def write_texts():
    rng, lines = np.random.RandomState(2), []
    words = ['red', 'blue', 'old', 'seven', 'lamp', 'river', 'of', 'stone', 'under', 'grey']
    text = lambda n: ' '.join(words[k] for k in rng.randint(0, len(words), n))
    for k in range(23):
        if k % 3 == 0: lines.append({'prompt': text(1 + k % 9), 'response': text(1 + k % 4)})
        elif k % 3 == 1: lines.append({'text': text(1 + k % 6), 'label': words[k % 4]})
        else: lines.append({'text': text(1 + k % 7), 'text_b': text(1 + k % 5), 'label': words[k % 4]})
    (HERE / 'texts.jsonl').write_text(''.join(json.dumps(line) + '\n' for line in lines))
    return len(lines)


def run_texts(folder, W):
    model = T5ForConditionalGeneration.from_pretrained(HERE / folder).double().eval()
    out, losses, norms, first = {}, [], [], None
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() == 1]
    opt = torch.optim.AdamW([{'params': decay, 'weight_decay': 0.1}, {'params': rest, 'weight_decay': 0.0}], lr=LR, betas=(0.9, 0.99), eps=1e-8)
    for b in text_batches(W):
        opt.zero_grad()
        loss = model(**b).loss
        loss.backward()
        if first is None:
            first = b
            for name, p in model.named_parameters():
                if p.grad is not None and folder == 'v1.0': out['grad/' + name] = p.grad.float().clone()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        losses.append(float(loss.detach()))
        opt.step()
    out['final_loss'] = torch.tensor([float(model(**first).loss.detach())], dtype=torch.float64)
    out['losses'], out['norms'] = torch.tensor(losses, dtype=torch.float64), torch.tensor(norms, dtype=torch.float64)
    save_file(out, HERE / folder / 'texts.safetensors')
    print(folder, 'texts', losses[0], losses[-1], float(out['final_loss']))


def run(folder, model):
    torch.manual_seed(5)
    tied = folder == 'v1.0'
    if not tied: model.lm_head.weight = torch.nn.Parameter(torch.zeros(V, model.config.d_model))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith('layer_norm.weight'): p.copy_(1 + 0.2 * torch.randn(p.shape))
            elif name == 'shared.weight': p.copy_(torch.randn(p.shape))
            elif 'relative' in name: p.copy_(0.7 * torch.randn(p.shape))
            else: p.copy_(0.2 * torch.randn(p.shape))
    model.eval()
    assert (model.lm_head.weight is model.shared.weight) == tied
    model.save_pretrained(HERE / folder)
    (HERE / folder / 'generation_config.json').unlink()
    (HERE / folder / 'more.ini').write_text(
        f'[model]\ncontext = {TE}\nnoise = {NOISE}\nspan = {SPAN:g}\nsentinel_token = {SENTINEL}\nbegin_token = {BEGIN}\nend_token = {END}\n[optimizer]\nlr = {LR:g}\n')
    model = model.double()
    tokens = np.fromfile(HERE / 'tokens.bin', '<u2')
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() == 1]
    opt = torch.optim.AdamW([{'params': decay, 'weight_decay': 0.1}, {'params': rest, 'weight_decay': 0.0}], lr=LR, betas=(0.9, 0.99), eps=1e-8)
    out, losses, norms, first = {}, [], [], None
    prompt = torch.tensor([[int(t) for t in tokens[:9]] + [END]])
    said = model.generate(prompt, max_new_tokens=12, do_sample=False, num_beams=1, use_cache=False, decoder_start_token_id=BEGIN, eos_token_id=END, pad_token_id=BEGIN)
    out['said'] = said[0, 1:].float()
    for b in batches(tokens, len(tokens) // N):
        opt.zero_grad()
        loss = model(**b).loss
        loss.backward()
        if first is None:
            first = b
            with torch.no_grad(): out['encoder'] = model.encoder(b['input_ids'], attention_mask=b['attention_mask'])[0].float().contiguous()
            for name, p in model.named_parameters():
                if p.grad is not None: out['grad/' + name] = p.grad.float().clone()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        losses.append(float(loss.detach()))
        opt.step()
    out['final_loss'] = torch.tensor([float(model(**first).loss.detach())], dtype=torch.float64)
    out['losses'], out['norms'] = torch.tensor(losses, dtype=torch.float64), torch.tensor(norms, dtype=torch.float64)
    save_file(out, HERE / folder / 'golden.safetensors')
    print(folder, losses[0], losses[-1], float(out['final_loss']))


rng = np.random.RandomState(1)
walk = np.cumsum(rng.randint(-3, 4, 23 * N + 7)) % 250 + 2
walk.astype('<u2').tofile(HERE / 'tokens.bin')
sizes = dict(vocab_size=V, d_model=24, d_kv=6, d_ff=40, num_layers=2, num_decoder_layers=3, num_heads=3, relative_attention_num_buckets=8, relative_attention_max_distance=20,
             dropout_rate=0.0, decoder_start_token_id=BEGIN)
run('v1.0', T5ForConditionalGeneration(T5Config(**sizes, feed_forward_proj='relu')))
run('v1.1', T5ForConditionalGeneration(T5Config(**sizes, feed_forward_proj='gated-gelu', tie_word_embeddings=False)))
lines = write_texts()
for folder in ('v1.0', 'v1.1'): run_texts(folder, lines)
