#!/usr/bin/env python3
"""Holds files and functions to the limits of CONTRIBUTING.md: 800 lines for a source, 300 for a header, 40 for a function
from its first line to its brace, 5 parameters.

A function is what begins in the first column, or one class deep, and ends with a brace there. What is longer today stands in
ALLOWED with its size and why: it may shrink, and must not grow.

    scripts/check_limits.py          checks the tree; exit status 1 when a limit does not hold
"""

import pathlib
import re
import sys

from tracked import ROOT, tracked

FILE_LIMITS = {".h": 300, ".cuh": 300, ".cc": 800, ".cu": 800}
FUNCTION_LIMIT = 40
PARAMETER_LIMIT = 5

# "path" or "path name": (size, why)
ALLOWED = {
    "cli/flags/launch_flags_json.cc VisitFlags": (48, "a list of all flags, one a line"),
    "daemon/ranks/rank_child.cc RawSyscall": (6, "the kernel's own interface: a number and its arguments"),
    "runtime/comm/net/world_group.cc AllReduceAs": (42, "one pipeline, whose stages share its blocks"),
    "runtime/comm/shm/reduce_kernels.cc ContinueReduction": (6, "what to reduce, how, and where in the whole"),
    "runtime/comm/shm/host_group.cc ReduceToAllOrRoot": (53, "three stages of one pipeline, as functions of their round"),
    "runtime/plan/model/rope_spec.cc ReadRopeObject": (6, "a config's keys and where its values go"),
    "runtime/tokenizer/chat/renderer.cc RunStatement": (42, "a case for each kind of statement"),
    "runtime/tokenizer/models/bpe.cc Spell": (43, "the ways to spell a word, one after the other"),
    "runtime/tokenizer/text/oniguruma_pattern.cc Escape": (43, "a case for each escape"),
    "runtime/plan/zero/residency_plan.cc ComputeHash": (49, "every field of the plan, one a line"),
}

NOISE = re.compile(r'//[^\n]*|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
MACRO = re.compile(r"^[ \t]*#[ \t]*define\b(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
HEAD = re.compile(r"^( {0,2})(?!namespace|class|struct|enum|union|if|for|while|switch|do|else|return|using|try|extern|typedef|#|\}"
                  r"|TEST|INSTANTIATE|case|default|public|private|protected|static_assert|constexpr const|BENCHMARK)[\w:~\[]")
NAME = re.compile(r"(operator\s*\(\)|operator\S+|~?\w+)\s*$")


def code_of(text):
    """The text without comments, literals and macros, line by line as it was."""
    text = MACRO.sub(lambda match: "\n" * match.group(0).count("\n"), text)
    return NOISE.sub(lambda match: "\n" * match.group(0).count("\n") if match.group(0)[0] in "/R" else '""', text).split("\n")


def split_head(head):
    """The name before the first parenthesis that closes in front of the body, and the number of parameters; or None."""
    start = head.find("(")
    name = NAME.search(head[:start]) if start > 0 else None
    if not name or "=" in head[:start]:
        return None
    depth, count, seen = 0, 0, False
    for char in head[start:]:
        if char in "([{<":
            depth += 1
        elif char in ")]}>":
            depth -= 1
            if depth == 0:
                break
        elif char == "," and depth == 1:
            count += 1
        elif not char.isspace():
            seen = True
    return name.group(1), count + 1 if seen else 0


def functions(lines):
    """Yields (line number, name, lines, parameters) of the functions that are defined."""
    number = 0
    while number < len(lines):
        begin = HEAD.match(lines[number])
        if not begin:
            number += 1
            continue
        if re.search(r"\{.*\}\s*$", lines[number]):
            parts = split_head(lines[number])
            if parts:
                yield number + 1, parts[0], 1, parts[1]
            number += 1
            continue
        last = number
        while last < len(lines) and not re.search(r"[{;]\s*$", lines[last]) and last - number < 20:
            last += 1
        head = " ".join(lines[number : last + 1])
        parts = split_head(head) if last < len(lines) and head.rstrip().endswith("{") else None
        if parts is None:
            number += 1
            continue
        end = last + 1
        while end < len(lines) and not lines[end].startswith(begin.group(1) + "}"):
            end += 1
        yield number + 1, parts[0], end - number + 1, parts[1]
        number = end + 1


def measure():
    """Yields (place, key, what, size, limit) of everything that is over a limit."""
    for path in tracked("*.h", "*.cc", "*.cu", "*.cuh"):
        text = (ROOT / path).read_text(encoding="utf-8", errors="replace")
        limit = FILE_LIMITS[pathlib.PurePosixPath(path).suffix]
        if text.count("\n") > limit:
            yield path, path, "lines", text.count("\n"), limit
        if path.startswith("tests/"):
            continue
        for number, name, length, parameters in functions(code_of(text)):
            if length > FUNCTION_LIMIT:
                yield f"{path}:{number}", f"{path} {name}", "lines", length, FUNCTION_LIMIT
            if parameters > PARAMETER_LIMIT:
                yield f"{path}:{number}", f"{path} {name}", "parameters", parameters, PARAMETER_LIMIT


def main():
    problems, met = 0, set()
    for place, key, what, size, limit in measure():
        met.add(key)
        if size > ALLOWED.get(key, (limit, ""))[0]:
            problems += 1
            print(f"{place}: {key.split(' ')[-1]} has {size} {what}, at most {ALLOWED.get(key, (limit,))[0]}")
    for key in sorted(set(ALLOWED) - met):
        problems += 1
        print(f"scripts/check_limits.py: {key} is allowed more than it needs")
    print(f"check_limits: {problems} to fix" if problems else "check_limits: ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
