#!/usr/bin/env python3
"""Finds what two files of one target keep to themselves under one name: sources that are compiled in batches
(DS_UNITY) must not. It reads only what stands in the first column of an unnamed namespace; the compiler has the
last word.

    scripts/check_names.py          checks the tree; exit status 1 when a name is there twice
"""

import collections
import re
import sys

from tracked import ROOT, tracked

# Compiled one by one, as its CMakeLists.txt says.
ONE_BY_ONE = "runtime/config/sections"

GLOB = re.compile(r"^file\(GLOB (\w+)[^)]*?\$\{CMAKE_CURRENT_SOURCE_DIR\} ([^)]*)\)", re.MULTILINE)
TARGET = re.compile(r"^\s*(?:ds_test|ds_library|add_library|add_executable)\(([^)]*)\)", re.MULTILINE)
UNNAMED = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.MULTILINE | re.DOTALL)
CONSTANT = re.compile(r"^(?:constexpr|const|thread_local|inline)\s[^=({]*?\b(k[A-Z]\w*)\s*[={(\[]", re.MULTILINE)
TYPE = re.compile(r"^(?:struct|class|enum class|enum|union) (\w+)\b[^;]*?\{", re.MULTILINE)
FUNCTION = re.compile(r"^(?!return|using|namespace|TEST|INSTANTIATE|struct|class|enum)[A-Za-z][\w:<>,&* ]*?[ &*>](\w+)"
                      r"\(([^;{]*?)\)(?: const| noexcept)* \{", re.MULTILINE)


def types_of(parameters):
    """The parameters without their names and defaults, which tell no two functions apart."""
    types = []
    for parameter in filter(None, re.split(r",(?![^<]*>)", parameters)):
        parameter = re.sub(r"/\*.*?\*/", "", parameter.split("=")[0])
        types.append(re.sub(r"\s+", "", re.sub(r"(?<=[\s&*>])\w+\s*$", "", parameter.strip())))
    return "(" + ",".join(types) + ")"


def kept(path):
    """What the file keeps to itself."""
    for unnamed in UNNAMED.findall(path.read_text(encoding="utf-8")):
        yield from CONSTANT.findall(unnamed)
        yield from TYPE.findall(unnamed)
        for name, parameters in FUNCTION.findall(unnamed):
            yield name + types_of(parameters)


def sources_of(target, text, folder):
    """The sources that a target lists, those of a file(GLOB) included."""
    globs = {"${" + name + "}": patterns.split() for name, patterns in GLOB.findall(text)}
    for word in target.split():
        if word in globs:
            for pattern in globs[word]:
                yield from sorted(folder.glob(pattern))
        elif word.endswith(".cc"):
            yield folder / word


def main():
    problems = 0
    for cmake in map(ROOT.joinpath, tracked("*CMakeLists.txt")):
        text = cmake.read_text(encoding="utf-8")
        for target in TARGET.findall(text):
            found = collections.defaultdict(list)
            for source in sources_of(target, text, cmake.parent):
                if source.exists() and source.parent != ROOT / ONE_BY_ONE:
                    for name in set(kept(source)):
                        found[name].append(str(source.relative_to(ROOT)))
            for name, files in sorted(found.items()):
                if len(files) > 1:
                    problems += 1
                    print(f"{' and '.join(files)} both keep {name} to themselves")
    print(f"check_names: {problems} to fix" if problems else "check_names: ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
