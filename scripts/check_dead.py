#!/usr/bin/env python3
"""Finds functions that headers declare and nobody but tests calls.

A word is a use unless it stands where a function is declared or defined. So a name that two classes have counts as
used when either is: what is found is dead, what is dead is mostly found. A function may be declared for tests or for
users of the library alone when ALLOWED says why.

    scripts/check_dead.py          checks the tree; exit status 1 when a declaration is dead
"""

import collections
import re
import sys

from tracked import ROOT, tracked

SOURCES = ("cli", "daemon", "runtime")

# What users of the library call (DeepSpeed's engine has the same); of these only tests are users here.
INTERFACES = {"runtime/base/check.h", "runtime/engine/deepspeed_api.h", "runtime/engine/engine.h", "runtime/engine/tensor_access.h",
              "runtime/models/block.h", "runtime/parallel/expert/expert_layer.h", "runtime/parallel/expert/gating.h",
              "runtime/tokenizer/tokenizer.h", "runtime/tokenizer/chat/chat_template.h", "runtime/tokenizer/file/read_tokenizer.h"}
ALLOWED = {
    "dropped_lines": "tells a test what a blocked console has lost",
    "MakeLocalWorld": "ranks as threads, for tests",
    "Neighbour": "whom a stage or a ring sends to, until there are pipelines and rings",
    "RecvAsync": "what stages and rings pass on, until there are pipelines and rings",
    "AllReduceMany": "coalesced calls, until small units are gathered together",
    "AllGatherMany": "coalesced calls, until small units are gathered together",
    "ReduceScatterMany": "coalesced calls, until small units are gathered together",
}

NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
# A type, then the name, then its parameters.
DECLARATION = re.compile(r"(?:[\w>&*\]]\s*[\s&*])(~?[A-Za-z_]\w*)\s*\(")
NOT_TYPES = {"return", "new", "delete", "else", "throw", "case", "co_return", "not", "and", "or", "explicit", "sizeof"}
NOT_NAMES = {"if", "for", "while", "switch", "return", "sizeof", "defined", "catch", "operator", "decltype", "alignas",
             "static_assert", "requires", "noexcept", "main"}


def code_of(path):
    """The text without comments, literals and the heads of macros."""
    text = (ROOT / path).read_text(encoding="utf-8", errors="replace")
    return NOISE.sub(lambda match: '""' if match.group(0)[0] in "R\"'" else " ", text)


def declarations(code):
    """Yields (position, name) of what is declared or defined in a header: not overrides, which the base calls."""
    for match in DECLARATION.finditer(code):
        name, start = match.group(1), match.start(1)
        before = re.search(r"([A-Za-z_]\w*)[\s&*]*$", code[:start])
        if name in NOT_NAMES or name.startswith("~") or (before and before.group(1) in NOT_TYPES):
            continue
        line = code[code.rfind("\n", 0, start) + 1 : start]
        if "=" in line.replace("==", "") or "(" in line or "#" in line or name.startswith("__") or "::" == line.rstrip()[-2:]:
            continue
        end = re.compile(r"[;{]").search(code, start)
        if end and re.search(r"\b(override|final)\b", code[start : end.start()]):
            continue
        yield start, name


def is_definition(code, start):
    """In a .cc: the line, and so the statement, begins in the first column without an assignment."""
    line = code[code.rfind("\n", 0, start) + 1 : start]
    if line.strip() == "":  # the type stands alone in the line above
        return code[:start].rstrip("\n").rsplit("\n", 1)[-1][:1] not in (" ", "")
    return line[:1] not in (" ", "}", "#") and "=" not in line and "(" not in line


def main():
    headers = tracked(*(f"{folder}/*.h" for folder in SOURCES))
    declared = {}
    uses = collections.Counter()
    for path in tracked(*(f"{folder}/*" + ending for folder in SOURCES for ending in (".h", ".cc", ".cu", ".cuh", ".inc"))):
        code = code_of(path)
        places = set()
        if path in headers:
            for start, name in declarations(code):
                places.add(start)
                if path in INTERFACES:
                    continue
                declared.setdefault(name, f"{path}:{code.count(chr(10), 0, start) + 1}")
        for word in re.finditer(r"[A-Za-z_]\w*", code):
            if word.start() in places or (path.endswith(".cc") and is_definition(code, word.start())):
                continue
            uses[word.group(0)] += 1
    dead = {name: place for name, place in declared.items() if uses[name] == 0}
    for name, place in sorted(dead.items(), key=lambda item: item[1]):
        if name not in ALLOWED:
            print(f"{place}: nobody but tests calls {name}")
    for name in sorted(set(ALLOWED) - set(dead)):
        print(f"scripts/check_dead.py: {name} is allowed, but it has a caller or is gone")
    problems = len(set(dead) ^ set(ALLOWED))
    print("check_dead: ok" if problems == 0 else f"check_dead: {problems} to fix")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
