#!/usr/bin/env python3
"""Compares dsrun's tokenizers with Hugging Face's library on many random texts: ids, offsets, decoded text.

    ninja -C build bench_tokenizer
    /tmp/goldens/bin/python scripts/compare_tokenizers.py [build] [texts per kind] [seed]

Needs tokenizers and sentencepiece. Texts are random pieces of scripts, code, blanks and special tokens, random
characters of Unicode 9 (Hugging Face's normal forms are of that version), and lines of up to a megabyte. Prints a row for
each kind of tokenizer; exit status 1 when anything differs.
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts/goldens"))
import tokenizer_cases  # noqa: E402


def known_characters():
    """Those that had the same name in old versions of Unicode, which every table agrees on."""
    return [chr(code) for code in range(0x110000)
            if unicodedata.ucd_3_2_0.category(chr(code)) not in ("Cn", "Cs")
            and unicodedata.ucd_3_2_0.category(chr(code)) == unicodedata.category(chr(code))]


def texts_of(count, seed):
    source = random.Random(seed)
    known = known_characters()
    texts = tokenizer_cases.TEXTS + tokenizer_cases.fuzzed(count, seed)
    texts += ["".join(source.choice(known) for _ in range(source.randint(1, 30))) for _ in range(count // 2)]
    texts += ["".join(source.choice(tokenizer_cases.PIECES + known[:200]) for _ in range(200)) for _ in range(count // 20)]
    code = (ROOT / "runtime/base/files.h").read_text(encoding="utf-8")
    return texts + [code, "x" * 100_000, "".join(source.choice(tokenizer_cases.PIECES) for _ in range(60_000)), (code * 300)[:1_000_000]]


def places(text, spans):
    """Offsets in characters of offsets in bytes."""
    # A byte inside of a character counts as its beginning.
    starts, at = {}, 0
    for index, character in enumerate(text):
        for _ in character.encode():
            starts[at] = index
            at += 1
    starts[at] = len(text)
    return [(starts[begin], starts[end]) for begin, end in spans]


def compare(made, path, build, texts):
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    result = subprocess.run([build / "tests/bench_tokenizer", path, "--dump"], input=lines.encode(), check=True, capture_output=True)
    counts = {"ids": 0, "offsets": 0, "decoded": 0}
    shown = 0
    for text, line in zip(texts, result.stdout.decode().rstrip("\n").split("\n"), strict=True):
        ours = json.loads(line)
        theirs = made.encode(text)
        wrong = []
        if ours.get("ids") != theirs.ids:
            wrong.append("ids")
        elif places(text, ours["offsets"]) != [tuple(pair) for pair in theirs.offsets]:
            wrong.append("offsets")
        if "ids" not in wrong and ours["decoded"] != made.decode(theirs.ids, skip_special_tokens=False):
            wrong.append("decoded")
        for kind in wrong:
            counts[kind] += 1
        if wrong and shown < 3:
            shown += 1
            print("  differs in", ", ".join(wrong), ascii(text[:80]))
    return counts


def main():
    build = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build"
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    texts = texts_of(count, int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for config in tokenizer_cases.CONFIGS:
            made = config()
            path = pathlib.Path(folder) / "tokenizer.json"
            path.write_text(made.to_str(), encoding="utf-8")
            counts = compare(made, path, build, texts)
            failed = failed or any(counts.values())
            print(f"{config.__name__:16} {len(texts)} texts, {counts['ids']} ids, {counts['offsets']} offsets, "
                  f"{counts['decoded']} decoded texts differ", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
