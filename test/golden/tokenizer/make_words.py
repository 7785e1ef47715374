#!/usr/bin/env python3
"""Makes small tokenizers of words, as BERT, T5 and ALBERT have them, and their answers to texts that are easy to get wrong.

    python3 make_words.py            # writes bert.json, vocab.txt, t5.json, albert.json, llama.json, words.txt here
    python3 make_words.py --check    # compares instead

Needs the package tokenizers==0.23.3, no network. The text that they are made from is made up here, as that of make_tokenizers.py.
"""
import collections
import json
import math
import pathlib
import random
import sys

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent.parent / "data" / "tokenizer"))
from unicode import charsmap

WORDS = """the of and to in is that it was for on are with as his they at be this from have or by one had not but what all were when we there can an your
which their said if do will each about how up out them then she many some so these would other into has more her two like him see time could no make
than first been its who now people my made over did down only way find use may water long little very after words called just where most know don't
it's we'll they've I'm you're he'd Zürich façade naïve Ελλάδα ελληνικά Москва привет мир 中文 日本語 こんにちは 한국어 עברית العربية हिन्दी 1234567890 3.14
2024 0x7f foo_bar() x+=1; // -> != "quoted" (a,b) [i] {j} <p> </p> e.g. U.S.A. caffè Å ½ ² ① Ⅳ 😀 👩‍👩‍👧 ﬁnd ｆｕｌｌ ｶﾞ ㍿ ™ ©""".split()
TEXTS = [
    "", " ", "  ", "\n", " a", "a ", "Hello, world!", "don't DON'T it's'll", "a  b   c\n\n d \n e\t\tf ", "  leading and trailing  ", "12345 1 22 333 ٣٤٥٦ ²³½ Ⅳ①",
    "中文字符。中文\n　全角", "e\u0301 e\u0323\u0301 a\u0301\u0323 \u1e9b\u0323 q\u0307\u0323 Ö ö", "한국어 \u1112\u1161\u11ab\u1100\u116e\u11a8 \u1100\u1161\u0300",
    "\u212b \u2126 \u0344 \u0958 \ufb2c \u1d15f \u2adc \u0374", "\u00a0x\u2003y\u3000z\u0085w\u200b.\u200dv\ufeffu\u00ads", "👩‍👩‍👧 😀😀 🇫🇷🇫", "\u0301 leading mark",
    "x\u0301\u0302\u0303\u0304\u0323", "[CLS] [SEP][MASK] [mask] x", "</s> <extra_id_0><extra_id_1> a <pad>", "ΑΣ Σ İIıi ŒœẞßǅǄ", "\u0000a\u0001b\ufffdc\u007fd\u009fe",
    "``quoted'' it ''", "▁▁a ▁b▁ c▁", "½\u0301 ①\u0301 ™\u0301 ﬁ\u0301 \u0958\u0301 \u00bd\u200d", "\u00ae\u0301\u200d\u00ae\u0301 \u00ae\u200d\u00ae\u0301", "\u0600½ \u0600a \r\n½\r\u0301",
    "\u0915\u094d\u0958\u0301 \u0915\u0958\u0301 \u0915\u094d\u200d\u0958\u0301 \u0915\u094d\u200c\u0958\u0301 \u0915\u0903\u0958\u0301", "\u1100\u1161\u0301 \u1161\u0301 \uac00\u11a8\u0301",
    "ﷺ ㍿ ㌀ 𝐀𝐛 ﬆ", "if (x != 0) {\n    return foo_bar(x++, \"s\");  // 3.14e-10\n}\n", "the" * 50, "a" * 200, "=" * 150 + "\n", "ab" * 60, " " * 130 + "x", "q" * 100, "q" * 101, "中" * 101,
    "\U00020000\U0002b740\U0002b820\U0002f800\u4dc0\u9fff", "$+<=>^`|~ \u2018\u2019 \u00a7 \u3001 \u055a", "<0x0A> <0x41> \u0080 \U000e0001", "two words solo solos",
]
# What sentencepiece's nmt_nfkc does with some characters, and a few of ours.
RULES = {"\u00bd": "1\u20442", "\u2460": "1", "\u2122": "TM", "\ufb01": "fi", "\u0958": "\u0915\u093c", "\u00ae": "R", "\n": " ", "\t": " ", "\r": " ", "\u3000": " ", "\u00a0": " ",
         "e\u0301": "\u00e9", "\u200b": " ", "\u0001": "", "\ufeff": "", "\u00ad": "", "\u1161": "A", "\u337f": "株式会社", "\uff46": "f", "\uff55": "u", "\uff4c": "l", "\ufdfa": "صلى الله عليه وسلم"}


def corpus(lines=1500):
    dice = random.Random(5)
    for _ in range(lines):
        yield " ".join(dice.choice(WORDS) for _ in range(12)) + dice.choice(["\n", ".\n", "\r\n", "  \n\n", "\n\tx"])


def pieces(normalizer, pre, texts, most, inner=""):
    """{piece: count}: each character, and the parts of words that save most; `inner` goes before those that do not begin a word. The package's own
    trainers depend on the order of a hash table."""
    words, parts = collections.Counter(), collections.Counter()
    for text in texts:
        words.update(word for word, _ in pre.pre_tokenize_str(normalizer.normalize_str(text)) if len(word) < 100)
    for word, count in words.items():
        for begin in range(len(word)):
            for end in range(begin + 1, min(len(word), begin + 8) + 1):
                parts[(inner if begin else "") + word[begin:end]] += count
    saved = {p: n * (len(p.removeprefix(inner)) - 1) for p, n in parts.items()}
    singles = sorted(p for p in parts if not saved[p])
    return {p: parts[p] for p in singles + sorted((p for p in parts if saved[p]), key=lambda p: (-saved[p], p))[: max(0, most - len(singles))]}


def bert(texts, vocab, **options):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t = Tokenizer(models.WordPiece({w: i for i, w in enumerate(special)}, unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizers.BertNormalizer(**options), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    found = special + list(pieces(t.normalizer, t.pre_tokenizer, texts, vocab - len(special), "##"))
    t.model = models.WordPiece({w: i for i, w in enumerate(found)}, unk_token="[UNK]")
    t.add_special_tokens(special)
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                     special_tokens=[("[CLS]", t.token_to_id("[CLS]")), ("[SEP]", t.token_to_id("[SEP]"))])
    return t


def unigram(texts, vocab, normalizer, pre, decoder, special, end, **model):
    """A score is the logarithm of how often a piece occurs among all, rounded, so that some are equal."""
    found = pieces(normalizer, pre, texts, vocab - len(special))
    total = sum(found.values())
    words = [[s, 0.0] for s in special] + [[p, round(math.log(n / total), 2)] for p, n in found.items() if p not in special]
    t = Tokenizer(models.Unigram([tuple(w) for w in words], special.index("<unk>"), **model))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizer, pre, decoder
    t.add_special_tokens([s for s in special if not s.startswith("<0x")])
    t.post_processor = processors.TemplateProcessing(single=f"$A {end}" if end == "</s>" else f"[CLS] $A {end}", pair=f"$A {end} $B {end}",
                                                     special_tokens=[(x, t.token_to_id(x)) for x in ("[CLS]", end) if t.token_to_id(x) is not None])
    return t


def precompiled(rules):
    return {"type": "Precompiled", "precompiled_charsmap": charsmap(rules)}


def with_normalizers(t, nodes):
    return Tokenizer.from_str(json.dumps({**json.loads(t.to_str()), "normalizer": {"type": "Sequence", "normalizers": nodes}}))


def t5(texts, vocab, rules=RULES):
    meta = {"replacement": "▁", "prepend_scheme": "always"}
    t = unigram(texts, vocab, normalizers.NFKC(), pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(**meta)]),
                decoders.Metaspace(**meta), ["<pad>", "</s>", "<unk>"], "</s>")
    t = with_normalizers(t, [precompiled(rules), {"type": "Strip", "strip_left": False, "strip_right": True},
                             {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}])
    t.add_special_tokens([f"<extra_id_{k}>" for k in range(2)])
    t.add_tokens([AddedToken("two words", normalized=True), AddedToken("solo", single_word=True, normalized=False)])
    return t


def albert(texts, vocab, rules=RULES):
    t = unigram(texts, vocab, normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]), pre_tokenizers.Metaspace(),
                decoders.Metaspace(), ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"], "[SEP]")
    quotes = [{"type": "Replace", "pattern": {"String": s}, "content": '"'} for s in ("``", "''")]
    return with_normalizers(t, quotes + [{"type": "Nmt"}, {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, precompiled(rules)])


def llama(texts, vocab):
    """Unigram with bytes, on the whole text: the mark only at its beginning."""
    t = unigram(texts, vocab, normalizers.Sequence([normalizers.NFKC(), normalizers.NFC()]), pre_tokenizers.Metaspace(),
                decoders.Metaspace(), ["<unk>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)], "</s>", byte_fallback=True)
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return t


def plain(bert_tokenizer):
    """BERT's vocab.txt: a token a line."""
    ids = bert_tokenizer.get_vocab()
    return "".join(f"{token}\n" for token in sorted(ids, key=ids.get))


def make():
    out, lines = {}, []
    tokenizers = {"bert": bert(corpus(), 400), "t5": t5(corpus(), 400), "albert": albert(corpus(), 350), "llama": llama(corpus(), 620)}
    for name, t in tokenizers.items():
        out[f"{name}.json"] = json.dumps(json.loads(t.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n"
        for text in TEXTS:
            for how in 0, 7:
                t.encode_special_tokens = how == 0
                ids = t.encode(text, add_special_tokens=how == 7).ids
                lines.append(f"{name} {how} {text.encode().hex() or '-'} {' '.join(map(str, ids))}".rstrip())
                lines.append(f"{name} decode {t.decode(ids, skip_special_tokens=False).encode().hex() or '-'} {' '.join(map(str, ids))}".rstrip())
    out["vocab.txt"] = plain(tokenizers["bert"])
    return out | {"words.txt": "\n".join(lines) + "\n"}


def main():
    for name, text in make().items():
        if "--check" not in sys.argv:
            (HERE / name).write_bytes(text.encode())
        elif (HERE / name).read_bytes() != text.encode():
            sys.exit(f"{name} differs")
        print(f"{name}: {len(text.encode())} bytes")


if __name__ == "__main__":
    main()
