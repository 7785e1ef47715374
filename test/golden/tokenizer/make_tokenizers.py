#!/usr/bin/env python3
"""Makes small tokenizers of each family that lockstep reads, and their answers to texts that are easy to get wrong.

    python3 make_tokenizers.py            # writes gpt2.json, llama3.json, qwen2.json, smollm.json, added.json, bytes.json, answers.txt, train.txt, trained.txt, here
    python3 make_tokenizers.py --check    # compares instead

Needs the packages tokenizers==0.23.3 and tiktoken==0.14.0, no network. The text that they are trained on is made up here.
"""
import json
import pathlib
import random
import sys

import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
WORDS = """the of and to in is that it was for on are with as his they at be this from have or by one had not but what all were when we there can an your
which their said if do will each about how up out them then she many some so these would other into has more her two like him see time could no make
than first been its who now people my made over did down only way find use may water long little very after words called just where most know don't
it's we'll they've I'm you're he'd Zürich façade naïve Ελλάδα ελληνικά Москва привет мир 中文 日本語 こんにちは 한국어 עברית العربية हिन्दी 1234567890 3.14
2024 0x7f foo_bar() x+=1; // -> != "quoted" (a,b) [i] {j} <p> </p> e.g. U.S.A. caffè Å ½ ² ① Ⅳ 😀 👩‍👩‍👧""".split()


def corpus(lines=1500):
    dice = random.Random(5)
    for _ in range(lines):
        yield " ".join(dice.choice(WORDS) for _ in range(12)) + dice.choice(["\n", ".\n", "\r\n", "  \n\n", "\n\tx"])


def split(regex):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def unmerged(t, words):
    """The same with words in the vocabulary that no merge makes, which only ignore_merges finds."""
    j = json.loads(t.to_str())
    spelled = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for word in words:
        j["model"]["vocab"][spelled.pre_tokenize_str(word)[0][0]] = len(j["model"]["vocab"])
    return Tokenizer.from_str(json.dumps(j))


def family(name, texts, vocab):
    """A tokenizer with the parts that the family's tokenizer.json has, trained on texts."""
    t = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name == "llama3":
        t.pre_tokenizer = split(LLAMA3)
    if name == "qwen2":
        t.normalizer, t.pre_tokenizer = normalizers.NFC(), split(QWEN2)
    if name == "smollm":
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), t.pre_tokenizer])
    specials = {"gpt2": [], "llama3": [], "qwen2": [], "smollm": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]}[name]
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=vocab, special_tokens=specials, show_progress=False,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    if name == "gpt2":
        t.add_special_tokens(["<|endoftext|>"])
    if name == "llama3":
        t = unmerged(t, ["unmerged", " unmerged"])
        t.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>", "<|eot_id|>"])
        bos = t.token_to_id("<|begin_of_text|>")
        t.post_processor = processors.Sequence([t.post_processor, processors.TemplateProcessing(
            single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1", special_tokens=[("<|begin_of_text|>", bos)])])
    if name == "qwen2":
        t.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
        t.add_tokens([AddedToken("<tool_call>", normalized=False, special=False), AddedToken("</tool_call>", normalized=False, special=False)])
    return t


def added(texts, vocab):
    """GPT-2's kind with added tokens of every sort."""
    t = family("gpt2", texts, vocab)
    t.normalizer = normalizers.NFC()
    t.add_tokens([AddedToken("<mask>", lstrip=True, special=True), AddedToken("<r>", rstrip=True), AddedToken("<lr>", lstrip=True, rstrip=True),
                  AddedToken("solo", single_word=True), AddedToken("é<", normalized=True), AddedToken("two words", normalized=False),
                  AddedToken("<r><r>"), AddedToken("<|", special=True), AddedToken("|>", normalized=False), AddedToken("  ", single_word=True)])
    return t


def of_bytes():
    """A token for each byte, which are their numbers: no merges, and nothing else. It reads and writes any text."""
    itself = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in itself]
    t = Tokenizer(models.BPE(vocab={chr(b if b in itself else 256 + others.index(b)): b for b in range(256)}, merges=[]))
    assert set(t.get_vocab()) == set(pre_tokenizers.ByteLevel.alphabet())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    j = json.loads(t.to_str())
    t = Tokenizer.from_str(json.dumps(j | {"decoder": j["pre_tokenizer"]}))
    for text in TEXTS:
        assert t.encode(text).ids == list(text.encode()) and t.decode(list(text.encode())) == text
    return t


TEXTS = [
    "", " ", "  ", "\n", " a", "a ", "Hello, world!", "don't DON'T it's'll've'd'm're 'S 'ſ' x'ſy", "a  b   c\n\n d \n e\t\tf ", "  leading and trailing  ",
    "\r\n\r\nx\r\n y \r z", "!!\n\n!!\r\n\r\n  !!\n a", "12345 1 22 333 4444 ٣٤٥٦ ²³½ Ⅳ① x1y22z333", "中文字符。中文\n　全角", "e\u0301 e\u0323\u0301 a\u0301\u0323 \u1e9b\u0323 q\u0307\u0323",
    "한국어 \u1112\u1161\u11ab\u1100\u116e\u11a8 \u1100\u1161\u0300", "\u212b \u2126 \u0344 \u0958 \ufb2c \u1d15f \u2adc \u0374", "\u00a0x\u2003y\u3000z\u0085w\u200b.", "👩‍👩‍👧 😀😀 🇫🇷",
    "\u0301 leading mark", "x\u0301\u0302\u0303\u0304\u0323", "<|endoftext|>", "a<|endoftext|>b <|im_start|>user\n<|im_end|><|begin_of_text|> x<|eot_id|>", "<|endoftext", "<tool_call>{}</tool_call>",
    " <mask> x <r>  y <lr> \n z", "solo solos a solo. (solo) résolo", "e\u0301< \u00e9< e\u0301 <", "a two words b twowords", "<r><r><r> <r>", "<|x|>", "a  b   c    d",
    "\U00011de0\U00011de9 \U00016ff4 \U00010400 \U0001e900", "\u0f73 \u0f71\u0f72\u0f74 \u09c7\u09be", "if (x != 0) {\n    return foo_bar(x++, \"s\");  // 3.14e-10\n}\n", "unmerged  unmerged\nunmergedx",
    "the" * 50, "a" * 200, "=" * 150 + "\n", "ab" * 120, " " * 130 + "x", "1" * 140, "\n" * 130,
]


def make():
    out = {}
    tokenizers = {name: family(name, corpus(), 600) for name in ("gpt2", "llama3", "qwen2", "smollm")}
    tokenizers["added"] = added(corpus(), 400)
    lines = []
    for name, t in tokenizers.items():
        out[f"{name}.json"] = json.dumps(json.loads(t.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n"
        for text in TEXTS:
            for how in 0, 7:
                t.encode_special_tokens = how == 0
                ids = t.encode(text, add_special_tokens=how == 7).ids
                lines.append(f"{name} {how} {text.encode().hex() or '-'} {' '.join(map(str, ids))}".rstrip())
    out["bytes.json"] = json.dumps(json.loads(of_bytes().to_str()), ensure_ascii=False, separators=(",", ":")) + "\n"
    out["answers.txt"] = "\n".join(lines) + "\n"
    return out | trained()


def trained():
    """A text, and the merges that BpeTrainer finds in it, line by line, for a vocabulary of 450."""
    text, lines = "".join(corpus(150)) + "aaaaaaa <|endoftext|> aaaa\n no end of the last line", []
    for name in ("gpt2", "llama3", "qwen2", "smollm"):
        t = family(name, text.splitlines(keepends=True), 300)
        empty = json.loads(t.to_str()) | {"added_tokens": [], "post_processor": None}
        empty["model"] |= {"vocab": {}, "merges": []}
        t = Tokenizer.from_str(json.dumps(empty))
        t.train_from_iterator([line + end for line, end in zip(text.split("\n"), ["\n"] * text.count("\n") + [""])], trainers.BpeTrainer(
            vocab_size=450, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=["<|begin_of_text|>", "<|end_of_text|>"] if name == "llama3" else ["<|endoftext|>"]))
        lines += [f"{name} {' '.join(pair)}" for pair in json.loads(t.to_str())["model"]["merges"]]
    return {"train.txt": text, "trained.txt": "\n".join(lines) + "\n"}


def main():
    for name, text in make().items():
        if "--check" not in sys.argv:
            (HERE / name).write_bytes(text.encode())
        elif (HERE / name).read_bytes() != text.encode():
            sys.exit(f"{name} differs")
        print(f"{name}: {len(text.encode())} bytes")


if __name__ == "__main__":
    main()
