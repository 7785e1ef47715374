#!/usr/bin/env python3
"""Makes unicode_tables.c: classes of characters and NFC, as the package `tokenizers` 0.23.3 has them.

Not one version of Unicode has them all: letters, numbers and white space of its patterns are those of Unicode 16, digits of its Digits those of
Unicode 17 (Rust's char::is_numeric), NFC is that of Unicode 9. So the package itself is asked about each code point. Where the package `unicodedata2`
is installed in version 16.0.0, letters and numbers are compared with it too. A new version of `tokenizers` may need new tables.

    python3 unicode.py > unicode_tables.c       # with the packages tokenizers==0.23.3 and, if at hand, unicodedata2==16.0.0
    python3 unicode.py | cmp - unicode_tables.c
"""
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
    print(f"// {counts}; {len(marks)} combining characters, {len(pairs)} decompositions.")
    print('// clang-format off\n#include "data/tokenizer/unicode.h"')
    show("unicode_classes", "unicode_range", ranges(classes), 8, "{{0x{0:X},{2},0x{1:X}}}")
    show("unicode_combining", "unicode_range", ranges(marks), 8, "{{0x{0:X},{2},0x{1:X}}}")
    show("unicode_decompositions", "unicode_pair", sorted(pairs), 6, "{{0x{0:X},0x{1:X},0x{2:X},{3}}}")


main()
