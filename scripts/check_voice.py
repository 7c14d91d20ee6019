#!/usr/bin/env python3
"""Counts words that plain technical English seldom has, in comments and strings, and lets no file get worse.

Of each kind a file may have as many as its budget per 1,000 words allows, rounded up. A file that has more stands in
voice_ratchet.json with what it has above the budget: it may come down, not go up. A new file meets the budget.
Counting finds sentences that are hard to read; a person decides how to say them.

    scripts/check_voice.py             checks the tree; exit status 1 when a file has more than it may
    scripts/check_voice.py --rates     prints the rates of the whole tree as well
    scripts/check_voice.py --update    lowers the numbers in voice_ratchet.json to what the files have
"""

import json
import math
import re
import sys

from tracked import ROOT, tracked

RATCHET = ROOT / "scripts/voice_ratchet.json"
# Words per 1,000 of comments, as in leveldb, ninja, gloo, abseil and torchtitan.
KINDS = {
    "what": (re.compile(r"\bwhat\b", re.I), 2.0),
    "who, whose": (re.compile(r"\b(?:who|whose|whom)\b", re.I), 0.6),
    "of which, of them": (re.compile(r"\b(?:of which|that of|those of|of them)\b", re.I), 0.5),
    "beside, behind": (re.compile(r"\b(?:beside|behind)\b", re.I), 0.3),
    "whatever": (re.compile(r"\b(?:whatever|wherever|whichever)\b", re.I), 0.3),
    "so many": (re.compile(r"\bso (?:many|much|long)\b", re.I), 0.3),
}
SHORTEST = 3  # words; shorter texts are names
# A literal, a comment line or the comment after code.
TEXT = re.compile(r'R"(\w*)\((.*?)\)\1"|"((?:\\.|[^"\\\n])*)"|//+ ?([^\n]*)', re.S)


def texts(source):
    """Yields the comments and the strings of C++; comment lines of one block are one text."""
    block, end = [], 0
    for match in TEXT.finditer(source):
        if match.group(4) is not None:
            if block and source[end:match.start()].strip():
                yield " ".join(block)
                block = []
            block.append(match.group(4))
            end = match.end()
        elif not re.search(r"#\s*include\s*$", source[max(0, match.start() - 12):match.start()]):
            yield match.group(2) or match.group(3) or ""
    yield " ".join(block)


def measure(source):
    """The words of a file's texts and, by kind, its hits."""
    words, hits = 0, dict.fromkeys(KINDS, 0)
    for text in texts(source):
        count = len(re.findall(r"[A-Za-z']+", text))
        if count < SHORTEST:
            continue
        words += count
        for kind, (pattern, _) in KINDS.items():
            hits[kind] += len(pattern.findall(text))
    return words, hits


def excess(words, hits):
    return {kind: hits[kind] - allowed for kind, (_, budget) in KINDS.items()
            if hits[kind] > (allowed := math.ceil(budget * words / 1000))}


def main():
    known = json.loads(RATCHET.read_text(encoding="utf-8")) if RATCHET.exists() else {}
    found, problems, all_words, all_hits = {}, 0, 0, dict.fromkeys(KINDS, 0)
    for path in tracked("cli/*.cc", "cli/*.h", "daemon/*.cc", "daemon/*.h", "runtime/*.cc", "runtime/*.h", "runtime/*.cu",
                        "runtime/*.cuh"):
        words, hits = measure((ROOT / path).read_text(encoding="utf-8"))
        all_words += words
        for kind in KINDS:
            all_hits[kind] += hits[kind]
        over = excess(words, hits)
        if over:
            found[path] = sum(over.values())
        if found.get(path, 0) > known.get(path, 0):
            problems += 1
            print(f"{path}: " + ", ".join(f"{count} \"{kind}\" above the budget" for kind, count in over.items())
                  + (f"; {known[path]} in all before" if path in known else ""))
    if "--update" in sys.argv[1:]:
        kept = {path: min(count, known.get(path, count)) for path, count in found.items() if path in known or not known}
        RATCHET.write_text(json.dumps(kept, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    if "--rates" in sys.argv[1:]:
        for kind, (_, budget) in KINDS.items():
            print(f"{kind:20} {1000 * all_hits[kind] / all_words:5.1f} in 1,000 words (budget {budget})")
    print(f"check_voice: {problems} files to fix" if problems else "check_voice: ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
