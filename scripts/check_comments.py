#!/usr/bin/env python3
"""Holds comments to sentences: none begins with a word that leaves its subject to be guessed.

"// What is shown." and "// Of the other host's." have to be decoded; "// The lines that are shown." does not. The
first word of every block of comment lines in a header is looked at, of comments behind a member, and of those above
what stands in the first column of a source. A clause that a main sentence follows ("// Where there is
no GPU, ranks run on the CPU.") is a sentence.

    scripts/check_comments.py          checks the tree; exit status 1 when a comment does not hold
"""

import re
import sys

from tracked import ROOT, tracked

# A block that begins so is a noun without a verb, whatever follows: no comma makes it a sentence.
FRAGMENTS = {"Of", "Both", "Then", "Which", "Whose", "Likewise", "Neither", "Ditto", "What", "Whether", "Who", "Why", "How",
             "That"}
# These may open a clause: a comma and a main sentence, with a verb, must follow before the first full stop.
CLAUSES = {"As", "Where"}
VERB = re.compile(r"\b(is|are|was|were|has|have|had|does|do|did|can|cannot|may|must|will|would|\w+(?:s|ed|n't))\b")
# Where that reads as an adverb or a pronoun instead: "As soon as", "That is why".
FINE = re.compile(r"(As (soon|long|far) as|That (is|was|would|has|way|may|can|does|makes|keeps|costs|took|takes)\b|"
                  r"Both (are|is|have|of|take|must|may)\b|Then (the|it|they|a|there|this)\b)")
# In a .cc a clause may be the subject: "What users typed is not for others to read."
SUBJECT = re.compile(r"What\b.*?\b(is|are|was|were|has|have|does|do|can|cannot|may|must|will|comes|goes|stands|means|keeps|takes)\b")
OPENS = re.compile(r"What (is|are|was|were|has|have|does|can|may|must)\b")


def blocks(text, only_first_column=False):
    """Yields (line number, text of the block) of every comment; lines of one block begin in one column."""
    start, column, words = None, 0, []
    for number, line in enumerate(text.split("\n"), 1):
        whole = re.match(r"(\s*)//\s?(.*)", line)
        if whole and start is not None and len(whole.group(1)) == column:
            words.append(whole.group(2))
            continue
        if start is not None:
            yield start, " ".join(words)
            start = None
        if whole:
            if not (only_first_column and whole.group(1)):
                start, column, words = number, len(whole.group(1)), [whole.group(2)]
        elif not only_first_column:
            behind = re.match(r"""([^"'/]*[;,{]\s+)//\s(.*)""", line)
            if behind:
                start, column, words = number, len(behind.group(1)), [behind.group(2)]
    if start is not None:
        yield start, " ".join(words)


def is_fragment(block, in_source=False):
    word = re.match(r"[A-Za-z]+", block)
    if not word or FINE.match(block):
        return False
    sentence = re.split(r"[.;:](?:\s|$)", block, maxsplit=1)[0]
    if word.group(0) in FRAGMENTS:
        if not in_source:
            return True
        if word.group(0) == "Of":  # "Of two that fit, the first counts."
            return "," not in sentence
        opened = OPENS.match(sentence)
        return SUBJECT.match("What " + sentence[opened.end():] if opened else sentence) is None
    main = sentence.partition(",")[2]
    return word.group(0) in CLAUSES and VERB.search(main) is None


def main():
    found = 0
    for path in (*tracked("*.h"), *tracked("cli/*.cc", "daemon/*.cc", "runtime/*.cc", "runtime/*.cu")):
        in_source = path.endswith((".cc", ".cu"))
        text = (ROOT / path).read_text(encoding="utf-8")
        for number, block in blocks(text, only_first_column=in_source):
            if is_fragment(block, in_source):
                found += 1
                print(f"{path}:{number}: the comment has no subject and verb: {block[:70]}")
    print(f"check_comments: {found} comments to fix" if found else "check_comments: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
