#!/usr/bin/env python3
"""Makes unicode_tables.c: classes of characters, normal forms, lower case and graphemes, as the package `tokenizers` 0.23.3 has them.

Not one version of Unicode has them all: letters, numbers and white space of its patterns are those of Unicode 16, digits of its Digits those of
Unicode 17 (Rust's char::is_numeric), NFC is that of Unicode 9, and punctuation, control characters and graphemes come from three more crates. So the
package itself is asked about each code point. Where the package `unicodedata2`
is installed in version 16.0.0, letters and numbers are compared with it too. A new version of `tokenizers` may need new tables.

    python3 unicode.py > unicode_tables.c       # with the packages tokenizers==0.23.3 and, if at hand, unicodedata2==16.0.0
    python3 unicode.py | cmp - unicode_tables.c
"""
import base64
import itertools
import json
import struct
import sys
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
BLOCKS = [POINTS[i : i + 4096] for i in range(0, len(POINTS), 4096)]


def matched_by(pattern):
    """The characters that a pattern takes out of a text."""
    split, found = pre_tokenizers.Split(Regex(pattern), "removed"), set()
    for block in BLOCKS:
        left = {ord(c) for text, _ in split.pre_tokenize_str("".join(map(chr, block))) for c in text}
        found |= set(block) - left
    return found


def digits():
    """The characters that Digits makes pieces of their own."""
    split, found = pre_tokenizers.Digits(individual_digits=True), set()
    for block in BLOCKS:
        found |= {ord(text) for text, _ in split.pre_tokenize_str("aa".join(map(chr, block))) if len(text) == 1}
    return found


def word_characters():
    """The characters beside which an added token of the kind single_word is none."""
    t = Tokenizer(models.BPE(vocab={"x": 0, "-": 1}, merges=[]))
    t.add_tokens([AddedToken("<>", single_word=True, normalized=False)])
    found = set()
    for block in BLOCKS:
        alone = {start - 1 for i, (start, _) in zip(*(lambda e: (e.ids, e.offsets))(t.encode("\n".join(chr(c) + "<>" for c in block)))) if i == 2}
        found |= {c for i, c in enumerate(block) if 4 * i not in alone}
    return found


def ranges(values):
    """[(first, last, value)] of a {code point: value}."""
    out = []
    for c in sorted(values):
        if out and out[-1][1] == c - 1 and out[-1][2] == values[c]:
            out[-1][1] = c
        else:
            out.append([c, c, values[c]])
    return out


NFC, NFD = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str


def combining_class(c):
    """0 too for what was not yet assigned: then it stays where it is."""
    n = unicodedata.combining(chr(c))
    low, high = chr(0x334), chr(0x345)  # classes 1 and 240
    moves = NFD("a" + chr(c) + low) == "a" + low + chr(c) if n > 1 else NFD("a" + high + chr(c)) == "a" + chr(c) + high
    return n if n and moves else 0


def decompositions():
    """[(c, a, b, whether a and b compose again)]; b = 0: c is replaced by a."""
    full = {c: NFD(chr(c)) for c in POINTS if not 0xAC00 <= c <= 0xD7A3 and NFD(chr(c)) != chr(c)}
    named = {text: c for c, text in reversed(full.items())} | {chr(c): c for c in POINTS if c not in full}
    out = []
    for c, text in full.items():
        composes = NFC(text) == chr(c)
        first = NFC(text[:-1]) if composes else None
        if len(text) == 1:
            out.append((c, ord(text), 0, 0))
        else:
            a = ord(first) if composes else named[text[:-1]]
            out.append((c, a, ord(text[-1]), int(composes)))
    return out


def changed(normalizer):
    """{c: what stands between two letters after it} of the characters that a normalizer does not leave as they are."""
    out = {}
    for c in POINTS:
        text = normalizer.normalize_str(f"q{chr(c)}q")[1:-1]
        if text != chr(c):
            out[c] = text
    return out


def bert(**steps):
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**{**off, **steps})


def words(space, compat):
    """{c: bits} of what the normalizers and pre-tokenizers of words do with a character: unicode.h has the bits."""
    clean = changed(bert(clean_text=True))
    assert {c for c in clean if clean[c] == " "} | {0x20} == {c for c in space if clean.get(c) != ""} and set(clean.values()) == {"", " "}
    assert space == {c for c in POINTS if len(pre_tokenizers.WhitespaceSplit().pre_tokenize_str(f"q{chr(c)}q")) == 2}
    pieces = {c: len(pre_tokenizers.BertPreTokenizer().pre_tokenize_str(f"q{chr(c)}q")) for c in POINTS}
    assert space == {c for c in POINTS if pieces[c] == 2}
    accents, marks = changed(bert(strip_accents=True)), changed(normalizers.StripAccents())
    chinese = changed(bert(handle_chinese_chars=True))
    assert set(marks.values()) == {""} and all(text == f" {chr(c)} " for c, text in chinese.items())
    lower = changed(normalizers.Lowercase())
    assert lower == changed(bert(lowercase=True))
    sets = [{c for c in clean if clean[c] == ""}, {c for c in POINTS if pieces[c] == 3}, {c for c in accents if accents[c] == ""}, marks, chinese, lower, compat]
    return {c: sum(1 << k for k, s in enumerate(sets) if c in s) for c in set().union(*sets)}, lower


def lower_ranges(lower):
    """[(first, last, step, difference)] of the characters whose lower case is one character."""
    out = []
    for c in sorted(lower):
        if len(lower[c]) > 1:
            assert c == 0x130 and lower[c] == "i\u0307"
            continue
        d = ord(lower[c]) - c
        if out and out[-1][3] == d and (c - out[-1][1] == out[-1][2] or (out[-1][0] == out[-1][1] and c - out[-1][1] in (1, 2))):
            out[-1][2] = c - out[-1][1]
            out[-1][1] = c
        else:
            out.append([c, c, 1, d])
    return out


def charsmap(mapping):
    """What sentencepiece calls precompiled_charsmap, in base64: a double array, and the texts. mapping: {str: str}."""
    texts, at, tree = b"", {}, {}
    for key, text in sorted(mapping.items()):
        if text not in at:
            at[text] = len(texts)
            texts += text.encode() + b"\0"
        node = tree
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[None] = at[text]
    units, used, bases, todo = [0], {0}, {0}, [(0, tree)]
    while todo:
        place, node = todo.pop()
        labels = [byte or 0 for byte in node]
        base = next(base for base in itertools.count(max(bases) - 256 if len(bases) > 256 else 1) if base not in bases and not any(base ^ byte in used for byte in labels))
        bases.add(base)
        used |= {base ^ byte for byte in labels}
        units += [0] * (max(base ^ byte for byte in labels) + 1 - len(units))
        offset = place ^ base
        assert offset < 1 << 21
        units[place] |= offset << 10 | (1 << 8 if None in node else 0)
        for byte, child in node.items():
            if byte is None:
                units[base] = 1 << 31 | child
            else:
                units[base ^ byte] |= byte
                todo.append((base ^ byte, child))
    units += [0] * (-len(units) % 256)  # readers look at any place within the 256 of one that is used
    return base64.b64encode(struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + texts).decode()


def precompiled(mapping):
    model = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0]], "byte_fallback": False}
    return Tokenizer.from_str(json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "pre_tokenizer": None,
                                          "post_processor": None, "decoder": None, "model": model,
                                          "normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap(mapping)}})).normalizer


def graphemes():
    """{c: class}: how graphemes are found, as far as Precompiled shows it: it replaces a grapheme of less than 6 bytes by what its beginning stands for.

    Of "ab" with a mapped to A there is "A" left if ab is a grapheme, and "Ab" if not. Longer ones are seen by an accent at the end, which then stays.
    """
    letter, sign, ka, virama, accent, zwj = "a", "\u00ae", "\u0915", "\u094d", "\u0301", "\u200d"
    one = precompiled({letter: "A", sign: "R", ka: "K"}).normalize_str
    out = {}
    for block in BLOCKS:
        each = precompiled({chr(c): "X" for c in block if chr(c) != accent}).normalize_str
        for c in block:
            s, kind = chr(c), "OTHER"
            if c == 0x200D:
                kind = "JOINER"
            elif 0x1F1E6 <= c <= 0x1F1FF:
                kind = "OTHER"  # flags: two of them have 8 bytes
            elif one(letter + s) == "A":
                kind = "EXTEND" if one(sign + s + zwj + sign + accent)[-1:] == accent else "SPACING"
                if kind == "EXTEND" and one(ka + s + ka + accent)[-1:] == accent:
                    kind = "LINKER"
                elif kind == "EXTEND" and one(ka + s + virama + ka + accent)[-1:] != accent:
                    kind = "EXTEND_ALONE"
            elif each(s + letter) == "X":
                kind = "PREPEND"
            elif len(s.encode()) < 4 and each(s + accent) != "X":
                kind = "CONTROL"
            elif c > 0xFF and len(s.encode()) < 4 and each(ka + virama + s + accent)[-1:] == accent:
                kind = "CONSONANT"
            elif each(sign + zwj + s + accent)[-1:] == accent and len(s.encode()) < 4:
                kind = "PICTURE"
            if kind != "OTHER":
                out[c] = kind
    return out


def check(letters, numbers):
    try:
        import unicodedata2
    except ImportError:
        return
    if unicodedata2.unidata_version != "16.0.0":
        return
    for found, letter in (letters, "L"), (numbers, "N"):
        assert found == {c for c in POINTS if unicodedata2.category(chr(c))[0] == letter}, letter
    print("letters and numbers are those of unicodedata2 16.0.0", file=sys.stderr)


def show(name, kind, rows, per_line, form):
    print(f"\nconst {kind} {name}[] = {{")
    for i in range(0, len(rows), per_line):
        print("    " + " ".join(form.format(*row) + "," for row in rows[i : i + per_line]))
    print("};")
    print(f"const int {name}_count = sizeof {name} / sizeof *{name};")


def main():
    assert tokenizers.__version__ == "0.23.3", tokenizers.__version__
    sets = [matched_by(r"\p{L}"), matched_by(r"\p{N}"), matched_by(r"\s"), digits(), word_characters()]
    check(sets[0], sets[1])
    classes = {c: sum(1 << k for k, s in enumerate(sets) if c in s) for c in set().union(*sets)}
    marks = {c: n for c in POINTS if (n := combining_class(c))}
    pairs = decompositions()
    counts = ", ".join(f"{len(s)} {name}" for s, name in zip(sets, ("letters", "numbers", "white space", "digits", "of words")))
    print("// Made by data/tokenizer/unicode.py. What the tables are is said in unicode.h.")
    print(f"// {counts}; {len(marks)} combining characters,\n// {len(pairs)} decompositions.")
    compat = {c: text for c, text in changed(normalizers.NFKD()).items() if text != NFD(chr(c))}
    bits, lower = words(sets[2], compat)
    shapes = graphemes()
    print('// clang-format off\n#include "data/tokenizer/unicode.h"')
    show("unicode_classes", "unicode_range", ranges(classes), 8, "{{0x{0:X},{2},0x{1:X}}}")
    show("unicode_combining", "unicode_range", ranges(marks), 8, "{{0x{0:X},{2},0x{1:X}}}")
    show("unicode_decompositions", "unicode_pair", sorted(pairs), 6, "{{0x{0:X},0x{1:X},0x{2:X},{3}}}")
    show("unicode_words", "unicode_range", ranges(bits), 8, "{{0x{0:X},{2},0x{1:X}}}")
    show("unicode_lower", "unicode_shift", lower_ranges(lower), 6, "{{0x{0:X},0x{1:X},{2},{3}}}")
    rows, points = [], []
    for c, text in sorted(compat.items()):
        rows.append((c, len(points)))
        points += [(ord(x),) for x in text]
    show("unicode_compat", "unicode_long", rows + [(0x110000, len(points))], 10, "{{0x{0:X},{1}}}")
    show("unicode_compat_points", "uint32_t", points, 18, "0x{0:X}")
    show("unicode_graphemes", "unicode_range", ranges(shapes), 5, "{{0x{0:X},GRAPHEME_{2},0x{1:X}}}")


if __name__ == "__main__":
    main()
