#!/usr/bin/env python3
"""Compares the ids of lockstep with those of Hugging Face's `tokenizers` and of tiktoken, text by text, for each family of tokenizers.

    make build/test/tokens
    python3 test/interop/compare_tokenizers.py [--strings N] [--seed S] [--text FILE]... [--family NAME] [--speed SECONDS | --train]

Run from the top directory, with the packages tokenizers==0.23.3, tiktoken==0.14.0 and sentencepiece==0.2.3; nothing is downloaded. Texts: random strings over all of
Unicode, this project's sources, and each FILE. GPT-2's own vocabulary is used where LOCKSTEP_TEST_DATA has gpt2-bpe; the other families are trained on
this project's sources, with their own normalizer, patterns, added tokens and template. tiktoken has no normalizer and no white space to take along,
so it is compared where those are not. Texts are also decoded again, where that gives the text. --speed times encoding, alternating; --train compares what
`lockstep tokenize --train` makes of such texts with what BpeTrainer makes.
"""
import argparse
import base64
import io
import itertools
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import time

import sentencepiece
import tiktoken
from tiktoken.load import data_gym_to_mergeable_bpe_ranks
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden" / "tokenizer"))
import make_tokenizers as make
import make_words

TOKENS = "build/test/tokens"
BYTE_OF = {}  # of a character that tokenizer.json writes for a byte
SPARE = iter(range(256, 512))
for byte in range(256):
    BYTE_OF[chr(byte if 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or byte >= 0xAE else next(SPARE))] = byte
PATTERN = {"gpt2": make.GPT2, "gpt2 (its own files)": make.GPT2, "llama3": make.LLAMA3, "qwen2": make.QWEN2}


def sources(limit=4_000_000):
    names = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split()
    texts = [pathlib.Path(n).read_bytes() for n in names]
    return [t.decode() for t in texts if b"\0" not in t and valid(t)]


def valid(text):
    try:
        return bool(text.decode())
    except UnicodeDecodeError:
        return False


class Strings:
    """Random strings: characters of one kind or of all, runs, what patterns look for, marks, and pieces of added tokens."""

    WORDS = "[CLS] [SEP] [MASK] </s> <pad> <unk> <extra_id_0> ▁ ▁▁ `` '' ½\u0301 ™\u0301 ﬁ \u200d \u0600 \u0958 \u094d <0x0A> ﷺ İ ß".split(" ")
    SPECIAL = WORDS + "'s 't 're 've 'm 'll 'd 'S 'ſ \r\n \n \t  \u00a0 \u3000 ' - . , ! 1 22 333 ٣ ² <| |> < > <|endoftext|> <mask> <r> <lr> solo two\u0020words <tool_call>".split(" ")

    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.alphabets = [range(0x20, 0x7F), range(0, 0x80), range(0xA0, 0x250), range(0x300, 0x370), range(0x370, 0x600), range(0x900, 0xE00),
                          range(0x1100, 0x1200), range(0x1E00, 0x2100), range(0x2000, 0x2070), range(0x3000, 0x3100), range(0x4E00, 0x5000),
                          range(0xAC00, 0xAE00), range(0xF900, 0xFB50), range(0x1D100, 0x1D200), range(0x1F300, 0x1F700), range(0x10000, 0x11FFF),
                          range(0x2F800, 0x2FA20), [0x20, 0x0A, 0x0D, 0x41, 0x31, 0x2E], range(0, 0x110000)]

    def character(self):
        while True:
            c = self.dice.choice(self.dice.choice(self.alphabets))
            if not 0xD800 <= c < 0xE000:
                return chr(c)

    def one(self):
        parts = []
        for _ in range(self.dice.randint(1, 20)):
            kind = self.dice.randrange(5)
            if kind == 0:
                parts.append(self.dice.choice(self.SPECIAL) or " ")
            elif kind == 1:
                parts.append(self.character() * self.dice.randint(1, 130 if self.dice.random() < 0.05 else 4))
            elif kind == 2:
                parts.append(self.dice.choice(make.WORDS))
            else:
                parts.append("".join(self.character() for _ in range(self.dice.randint(1, 6))))
            if self.dice.random() < 0.3:
                parts.append(self.dice.choice([" ", "  ", "\n", " \u0301", "\u0323"]))
        return "".join(parts)


def every_character():
    """Each code point among others: 1,112,064 of them in texts of a thousand."""
    points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    for i in range(0, len(points), 1000):
        yield "".join(f"a{chr(c)}{chr(c)} {chr(c)}1{chr(c)}'{chr(c)}e{chr(c)}\u0301\n{chr(c)}" for c in points[i : i + 1000])


def lockstep(path, how, texts):
    packed = b"".join(struct.pack("<I", len(b)) + b for b in (t.encode() for t in texts))
    out = subprocess.run([TOKENS, path, str(how)], input=packed, stdout=subprocess.PIPE, check=True).stdout
    at, answers = 0, []
    for _ in texts:
        (n,) = struct.unpack_from("<i", out, at)
        answers.append(list(struct.unpack_from(f"<{n}i", out, at + 4)) if n >= 0 else None)
        at += 4 + 4 * max(n, 0)
    return answers


class Tally:
    def __init__(self):
        self.compared = self.different = 0

    def add(self, what, text, ours, theirs):
        self.compared += 1
        if ours == theirs:
            return
        self.different += 1
        if self.different <= 5:
            at = next((i for i, (a, b) in enumerate(zip(ours or [], theirs)) if a != b), min(len(ours or []), len(theirs)))
            print(f"  {what}: id {at}: {(ours or ['does not decode'])[max(0, at - 2):at + 5]}, expected {theirs[max(0, at - 2):at + 5]}; text {text[:80]!r}")


def compare(name, path, hf, tik, groups):
    both = {"tokenizers": Tally(), "tiktoken": Tally()}
    for group, texts in groups.items():
        before = {k: (t.compared, t.different) for k, t in both.items()}
        for how in 0, 7:
            ours = lockstep(path, how, texts)
            hf.encode_special_tokens = how == 0
            for text, mine, other in zip(texts, ours, hf.encode_batch(texts, add_special_tokens=how == 7)):
                both["tokenizers"].add(f"{name}, {group}, tokenizers", text, mine, other.ids)
            if tik and how == 0:
                normal = [hf.normalizer.normalize_str(t) if hf.normalizer else t for t in texts]
                for text, mine in zip(normal, ours):
                    both["tiktoken"].add(f"{name}, {group}, tiktoken", text, mine, tik.encode_ordinary(text))
        for k, t in both.items():
            if t.compared > before[k][0]:
                print(f"{name}: {group}: {k}: {t.compared - before[k][0]} compared, {t.different - before[k][1]} different", flush=True)
    return sum(t.different for t in both.values())


def tiktoken_of(name, hf):
    """The same vocabulary in tiktoken, where ids rise with ranks, every token is made by a merge, and no added token but special ones."""
    j = json.loads(hf.to_str())
    if name not in PATTERN or any(not a["special"] for a in j["added_tokens"]):
        return None
    added = {a["content"] for a in j["added_tokens"]}
    ranks = {bytes(BYTE_OF[c] for c in token): i for token, i in j["model"]["vocab"].items() if token not in added}
    return tiktoken.Encoding(name, pat_str=PATTERN[name], mergeable_ranks=ranks, special_tokens={})


def families(folder, texts, wanted):
    own = pathlib.Path(os.environ.get("LOCKSTEP_TEST_DATA", "")) / "gpt2-bpe"
    if own.is_dir() and wanted in (None, "gpt2"):
        hf = Tokenizer(models.BPE.from_file(str(own / "encoder.json"), str(own / "vocab.bpe")))
        hf.pre_tokenizer, hf.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        hf.add_special_tokens(["<|endoftext|>"])
        ranks = data_gym_to_mergeable_bpe_ranks(vocab_bpe_file=str(own / "vocab.bpe"), encoder_json_file=str(own / "encoder.json"))
        yield "gpt2 (its own files)", str(own), hf, tiktoken.Encoding("gpt2", pat_str=make.GPT2, mergeable_ranks=ranks, special_tokens={})
    for name in "gpt2", "llama3", "qwen2", "smollm", "added":
        if wanted in (None, name):
            hf = make.added(texts, 3000) if name == "added" else make.family(name, texts, 8000)
            path = str(folder / f"{name}.json")
            hf.save(path)
            yield name, path, Tokenizer.from_file(path), tiktoken_of(name, hf)


def field(message, number):
    """The bytes of a field of a serialized protocol buffer."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        size = {0: lambda: varint() and 0, 1: lambda: 8, 2: varint, 5: lambda: 4}[key & 7]()
        if key == number << 3 | 2:
            return message[at : at + size]
        at += size
    return b""


def sentencepiece_charsmap(rules):
    """The precompiled_charsmap that sentencepiece puts into models with this normalization."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(make_words.WORDS * 4), model_writer=model, vocab_size=300, hard_vocab_limit=False,
                                             normalization_rule_name=rules, minloglevel=2)
    return base64.b64encode(field(field(model.getvalue(), 3), 2)).decode()


def with_charsmap(t, rules):
    """The same tokenizer with sentencepiece's own rules in place of ours."""
    j = json.loads(t.to_str())
    for step in j["normalizer"]["normalizers"]:
        if step["type"] == "Precompiled":
            step["precompiled_charsmap"] = sentencepiece_charsmap(rules)
    return Tokenizer.from_str(json.dumps(j))


def word_families(folder, texts, wanted):
    """Of words: BERT's, with and without case, and sentencepiece's with its own normalization."""
    texts = [t[:200000] for t in texts]
    all_of = {"bert": lambda: make_words.bert(texts, 8000), "bert-cased": lambda: make_words.bert(texts, 8000, lowercase=False),
              "bert-plain": lambda: make_words.bert(texts, 3000, clean_text=False, handle_chinese_chars=False, strip_accents=False),
              "t5": lambda: with_charsmap(make_words.t5(texts, 8000), "nmt_nfkc"), "albert": lambda: with_charsmap(make_words.albert(texts, 4000), "nfkc"),
              "t5-fold": lambda: with_charsmap(make_words.t5(texts, 2000), "nmt_nfkc_cf"), "llama": lambda: make_words.llama(texts, 4000)}
    for name, of in all_of.items():
        if wanted in (None, name):
            path = str(folder / f"{name}.json")
            of().save(path)
            yield name, path, Tokenizer.from_file(path), None


def ours_speed(path, text, seconds):
    out = subprocess.run([TOKENS, path, "time", str(seconds)], input=text.encode(), stdout=subprocess.PIPE, check=True).stdout
    return float(out.split()[0])


def best(encode, text, seconds):
    size, end, most = len(text.encode()) / 1e6, time.monotonic() + seconds, 0
    while time.monotonic() < end or not most:
        begin = time.monotonic()
        encode(text)
        most = max(most, size / (time.monotonic() - begin))
    return most


def speed(name, path, hf, tik, groups, seconds):
    """MB/s of one thread; each in turn, three times, the best of each."""
    hf.encode_special_tokens = True
    for group, text in groups.items():
        most = {}
        for _ in range(3):
            for who, run in {"lockstep": lambda s: ours_speed(path, text, s), "tiktoken": lambda s: best(tik.encode_ordinary, text, s) if tik else 0,
                             "tokenizers": lambda s: best(lambda t: hf.encode(t, add_special_tokens=False), text, s)}.items():
                most[who] = max(most.get(who, 0), run(seconds))
        print(f"{name}: {group}, {len(text.encode()) / 1e6:.1f} MB: " + ", ".join(f"{who} {rate:.1f} MB/s" for who, rate in most.items()), flush=True)


def train(folder, texts, sizes):
    """The merges of `lockstep tokenize --train` beside those of BpeTrainer, of the same text as a file."""
    different = 0
    for name in "gpt2", "llama3", "qwen2", "smollm":
        for group, text in texts.items():
            for size in sizes:
                (folder / "text").write_text(text, newline="")
                with open(folder / "text", "rb") as text_file, open(folder / "ours.json", "wb") as ours_file:
                    subprocess.run(["./lockstep", "tokenize", "--train", str(size), name], stdin=text_file, stdout=ours_file, check=True)
                ours = json.loads((folder / "ours.json").read_text())
                special = [a["content"] for a in ours["added_tokens"]]
                # A new one with the same parts: one that has special tokens already would take them out of the text.
                hf = Tokenizer.from_str(json.dumps({**ours, "added_tokens": [], "post_processor": None, "model": {**ours["model"], "vocab": {}, "merges": []}}))
                hf.train([str(folder / "text")], trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
                theirs = json.loads(hf.to_str())
                same = [ours["model"][k] == theirs["model"][k] for k in ("vocab", "merges")] + [ours["added_tokens"] == theirs["added_tokens"]]
                different += not all(same)
                merges = list(zip(ours["model"]["merges"], theirs["model"]["merges"]))
                first = next((i for i, (a, b) in enumerate(merges) if a != b), None)
                print(f"training: {name}, {group}, {size}: {len(merges)} merges, {'equal' if all(same) else f'DIFFERENT at {first}'}", flush=True)
    return different


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--strings", type=int, default=10000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--text", action="append", default=[])
    p.add_argument("--family")
    p.add_argument("--speed", type=float)
    p.add_argument("--train", action="store_true")
    a = p.parse_args()
    os.environ["RAYON_NUM_THREADS"] = "1"
    code, files = sources(), {pathlib.Path(f).name: pathlib.Path(f).read_text() for f in a.text}
    strings, different = Strings(a.seed), 0
    with tempfile.TemporaryDirectory() as folder:
        if a.train:
            texts = {"the project's sources": "".join(code), "random strings": "\n".join(strings.one() for _ in range(a.strings)), **files}
            sys.exit(train(pathlib.Path(folder), texts, (300, 2000, 16000)) > 0)
        learnt = code + list(make.corpus())
        for name, path, hf, tik in itertools.chain(families(pathlib.Path(folder), learnt, a.family), word_families(pathlib.Path(folder), learnt, a.family)):
            if a.speed:
                speed(name, path, hf, tik, {**{n: t * 10 for n, t in files.items()}, "the project's sources": "".join(code)}, a.speed)
                continue
            groups = {"random strings": [strings.one() for _ in range(a.strings)], "every character": list(every_character()), "sources": code}
            groups |= {n: [t] for n, t in files.items()} | {"golden texts": make.TEXTS + make_words.TEXTS}
            different += compare(name, path, hf, tik, groups)
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
