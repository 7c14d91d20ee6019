#!/usr/bin/env python3
"""Finds names that two sources of one target define in one namespace. In an unnamed namespace they collide where
sources are compiled in batches (DS_UNITY), in a named one where the target is linked. It reads only definitions in
the first column; the compiler has the last word.

    scripts/check_names.py          checks the tree; exit status 1 when a name is there twice
"""

import collections
import re
import sys

from tracked import ROOT, tracked

# Compiled one by one, as its CMakeLists.txt says.
ONE_BY_ONE = "runtime/config/sections"

GLOB = re.compile(r"^file\(GLOB (\w+)[^)]*?\$\{CMAKE_CURRENT_SOURCE_DIR\} ([^)]*)\)", re.MULTILINE)
TARGET = re.compile(r"^\s*(ds_test|ds_library|add_library|add_executable)\(([^)]*)\)", re.MULTILINE)
OPENED = re.compile(r"^namespace ?([\w:]*) ?\{$")
CLOSED = re.compile(r"^\}  // namespace")
CONSTANTS = re.compile(r"^(?:constexpr|const|thread_local|inline)\s[^=({]*?\b(k[A-Z]\w*\s*[={(\[][^;]*);", re.MULTILINE)
CONSTANT = re.compile(r"(?:^|, )(k[A-Z]\w*)(?:\s*[={\[]|\()")
TYPE = re.compile(r"^(?:struct|class|enum class|enum|union) (\w+)\b[^;]*?\{", re.MULTILINE)
ALIAS = re.compile(r"^using (\w+) = ([^;]*);", re.MULTILINE)
FUNCTION = re.compile(r"^(?!return|using|namespace|TEST|TYPED_TEST|INSTANTIATE|struct|class|enum)[A-Za-z]"
                      r"[\w:<>,&* ]*?[ &*>](\w+)\(([^;{]*?)\)(?: const| noexcept)* \{", re.MULTILINE)


def signatures_of(name, parameters):
    """What a call may look like: the name and types of parameters, with and without those that have defaults. A
    literal fits any string."""
    types = []
    for parameter in filter(None, re.split(r",(?![^<]*>)", parameters)):
        if "=" in parameter:
            yield f"{name}({','.join(types)})"
        parameter = re.sub(r"/\*.*?\*/", "", parameter.split("=")[0])
        words = re.sub(r"\s+", "", re.sub(r"(?<=[\s&*>])\w+\s*$", "", parameter.strip()))
        types.append(re.sub(r"^(?:conststd::string&|std::string_view|std::string|constchar\*)$", "string", words))
    yield f"{name}({','.join(types)})"


def by_namespace(text):
    """The lines of each namespace: (its name, lines)."""
    lines = collections.defaultdict(list)
    opened = []
    for line in text.splitlines():
        if match := OPENED.match(line):
            opened.append(match[1] or "(unnamed)")
        elif CLOSED.match(line) and opened:
            opened.pop()
        else:
            lines["::".join(opened)].append(line)
    return lines.items()


def names_of(path):
    """The names that the file defines outside of types and functions: (name, what an equal name may stand for)."""
    for namespace, lines in by_namespace(path.read_text(encoding="utf-8")):
        text = "\n".join(lines)
        names = TYPE.findall(text)
        for constants in CONSTANTS.findall(text):
            names += CONSTANT.findall(constants)
        names += [call for function in FUNCTION.findall(text) for call in signatures_of(*function)]
        yield from ((f"{namespace}::{name}", None) for name in names)
        yield from ((f"{namespace}::{name}", "a function") for name, _ in FUNCTION.findall(text))
        yield from ((f"{namespace}::{name}", meaning) for name, meaning in ALIAS.findall(text))


def sources_of(target, text, folder):
    """The sources that a target lists, those of a file(GLOB) included."""
    globs = {"${" + name + "}": patterns.split() for name, patterns in GLOB.findall(text)}
    for word in target.split():
        if word in globs:
            for pattern in globs[word]:
                yield from sorted(folder.glob(pattern))
        elif word.endswith(".cc"):
            yield folder / word


def program_of(words):
    """The executable of a ds_test: its PROGRAM, else the part of its name before the dot."""
    if "PROGRAM" in words:
        return words[words.index("PROGRAM") + 1]
    return words[0].split(".")[0]


def sources_by_target():
    """The sources of each target; those of a test program stand in several CMakeLists.txt."""
    sources = collections.defaultdict(set)
    for cmake in map(ROOT.joinpath, tracked("*CMakeLists.txt")):
        text = cmake.read_text(encoding="utf-8")
        for command, target in TARGET.findall(text):
            words = target.split()
            name = "test_" + program_of(words) if command == "ds_test" else f"{cmake}:{words[0]}"
            sources[name].update(path.resolve() for path in sources_of(target, text, cmake.parent) if path.exists())
    return sources


def main():
    problems = 0
    for target, sources in sources_by_target().items():
        found = collections.defaultdict(lambda: collections.defaultdict(set))
        for source in sorted(sources):
            if source.parent != ROOT / ONE_BY_ONE:
                for name, meaning in names_of(source):
                    found[name][meaning].add(str(source.relative_to(ROOT)))
        for name, meanings in sorted(found.items()):
            files = sorted(set().union(*meanings.values()))
            if len(meanings) > 1 or (None in meanings and len(files) > 1):
                problems += 1
                print(f"{' and '.join(files)} both define {name}")
    print(f"check_names: {problems} to fix" if problems else "check_names: ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
