#!/usr/bin/env python3
"""Holds the comments of headers to sentences: none begins with a word that leaves its subject to be guessed.

"// What is shown." and "// Of the other host's." have to be decoded; "// The lines that are shown." does not. The
first word of every block of comment lines in a header is looked at, and of comments behind a member. A clause that
a main sentence follows ("// Where there is no GPU, ranks run on the CPU.") is a sentence.

    scripts/check_comments.py          checks the tree; exit status 1 when a comment does not hold
"""

import re
import subprocess
import sys

# A block that begins so is a noun without a verb, whatever follows.
FRAGMENTS = {"Of", "Both", "Then", "Which", "Whose", "Likewise", "Neither", "Ditto"}
# These may open a clause: a comma and a main sentence must follow before the first full stop.
CLAUSES = {"As", "What", "That", "Where", "How", "Whether", "Who", "Why"}
# Where that reads as an adverb or a pronoun instead: "As soon as", "That is why".
FINE = re.compile(r"(As (soon|long|far) as|That (is|was|would|has|way|may|can|does|makes|keeps|costs|took|takes)\b|"
                  r"Both (are|is|have|of|take|take|must|may)\b|Then (the|it|they|a|there|this)\b)")


def blocks(text):
    """Yields (line number, text of the block) of every comment of a header."""
    lines = text.split("\n")
    start, words = None, []
    for number, line in enumerate(lines, 1):
        whole = re.match(r"\s*//\s?(.*)", line)
        if whole:
            if start is None:
                start, words = number, []
            words.append(whole.group(1))
            continue
        if start is not None:
            yield start, " ".join(words)
            start = None
        behind = re.match(r"""[^"'/]*[;,{]\s+//\s(.*)""", line)
        if behind:
            start, words = number, [behind.group(1)]
    if start is not None:
        yield start, " ".join(words)


def is_fragment(block):
    word = re.match(r"[A-Za-z]+", block)
    if not word or FINE.match(block):
        return False
    if word.group(0) in FRAGMENTS:
        return True
    sentence = re.split(r"[.;:](?:\s|$)", block, maxsplit=1)[0]
    return word.group(0) in CLAUSES and "," not in sentence


def main():
    headers = subprocess.run(["git", "ls-files", "*.h"], capture_output=True, text=True, check=True).stdout.split("\n")
    found = 0
    for header in filter(None, headers):
        with open(header, encoding="utf-8") as file:
            for number, block in blocks(file.read()):
                if is_fragment(block):
                    found += 1
                    print(f"{header}:{number}: the comment has no subject and verb: {block[:70]}")
    print(f"check_comments: {found} comments to mend" if found else "check_comments: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
