#!/usr/bin/env python3
"""Holds the folder READMEs and the other pages to the code: each source folder has a README of at most 60
lines, every file or folder that a page names in backticks or links to exists, and what a README says that
its folder may include is what the table of check_layers.py says. Pages of the manual also name paths on
the user's machine, so only their paths into the project's own folders are checked; their lines fit a
terminal of 80 columns.

Exit 0 when all is well, 1 with one line per problem.
"""

import pathlib
import re
import sys

from check_layers import ROOF, RUNTIME, TOP
from tracked import ROOT, tracked

MAX_LINES = 60
TERMINAL_COLUMNS = 80
# Made when the project is built or used, so not in a fresh clone.
GENERATED = ("build", ".deps", "runs/", "logs/", "checkpoints/")
# Where a README may count a path from, besides its own folder and the root.
ALSO_FROM = ("runtime", "cli", "scripts")
MANUAL = pathlib.PurePosixPath("cli/manual")
NAME = re.compile(r"`([\w.-]+(?:/[\w.-]+)*/?)`|\]\(([\w./-]+)\)")


def folders_that_need_one():
    """cli, daemon, proto, and every folder just below cli and runtime; a folder inside another such
    folder is described by its parent's README."""
    folders = {pathlib.PurePosixPath(top) for top in ("cli", "daemon", "proto", "runtime")}
    for source in map(pathlib.PurePosixPath, tracked("*.cc", "*.h")):
        if source.parts[0] in ("cli", "runtime") and len(source.parts) > 2:
            folders.add(pathlib.PurePosixPath(*source.parts[:2]))
    folders.discard(pathlib.PurePosixPath("runtime/examples"))  # each file explains itself
    return folders


def is_path(name):
    """A name with a slash or the ending of a source file; anything else is a word of code."""
    return "/" in name or bool(re.search(r".\.(h|cc|py|sh|md|proto|cmake)$", name))


def project_folders():
    """The folders at the top of the project."""
    return {path.split("/")[0] for path in tracked("*") if "/" in path}


def exists(name, readme):
    bases = [readme.parent, pathlib.PurePosixPath(".")]
    bases += [pathlib.PurePosixPath(base) for base in ALSO_FROM]
    # A unit may be named without its ending.
    return any((ROOT / base / (name + ending)).exists() for base in bases for ending in ("", ".h"))


def told_includes(text):
    """The first sentence of what a README says that its folder may include; "" when it says nothing."""
    found = re.search(r"^(?:## )?May include:?\s+(.*?)(?:[.;](?=\s)|\Z)", text, re.MULTILINE | re.DOTALL)
    return found.group(1) if found else ""


def row_problem(readme, text):
    """How what the README of a folder of the layer table says differs from its row, or None. A folder
    that may include everything below it does not list it."""
    top, told = readme.parts[0], told_includes(text)
    if readme.parts == (top, "README.md") and top in TOP:
        row = {entry.rstrip("/") for entry in TOP[top]} - {top}
        told = set(re.findall(r"`([\w/]+)`", told))
    elif len(readme.parts) == 3 and top == "runtime" and readme.parts[1] in set(RUNTIME) - set(ROOF):
        row = RUNTIME[readme.parts[1]]
        told = set(re.findall(r"\w+", told)) & set(RUNTIME) - {"base", "config"}
        if told_includes(text).startswith("Everything below"):
            return None
    else:
        return None
    if told == row:
        return None
    return f"{readme}: may include {', '.join(sorted(told)) or 'nothing'}; its row allows {', '.join(sorted(row)) or 'nothing'}"


def unlisted_goldens():
    """Scripts that make goldens and have no line in their folder's README."""
    text = (ROOT / "scripts/goldens/README.md").read_text(encoding="utf-8")
    for script in map(pathlib.PurePosixPath, tracked("scripts/goldens/make_*.py")):
        if f"`{script.name}`" not in text:
            yield f"scripts/goldens/README.md: has no line for {script.name}"


def missing_names(page, folders):
    """The files and folders that a page names and that do not exist, each with the number of its line."""
    for number, line in enumerate((ROOT / page).read_text(encoding="utf-8").splitlines(), 1):
        for quoted, linked in NAME.findall(line):
            name = quoted or linked
            if not is_path(name) or name.startswith(GENERATED):
                continue
            if page.parent == MANUAL and name.split("/")[0] not in folders:
                continue
            if not exists(name, page):
                yield number, name


def wide_lines(page):
    """The lines of a page of the manual that wrap in a terminal; a line of one word, which users copy, may."""
    for number, line in enumerate((ROOT / page).read_text(encoding="utf-8").splitlines(), 1):
        if len(line) > TERMINAL_COLUMNS and " " in line.strip() and not line.startswith("<!--"):
            yield number, len(line)


def main():
    problems = list(unlisted_goldens())
    folders = project_folders()
    for folder in sorted(folders_that_need_one()):
        if not (ROOT / folder / "README.md").exists():
            problems.append(f"{folder}: has no README.md")
    for readme in map(pathlib.PurePosixPath, tracked("*README.md")):
        text = (ROOT / readme).read_text(encoding="utf-8")
        lines = text.splitlines()
        problems += filter(None, [row_problem(readme, text)])
        if readme.parent != pathlib.PurePosixPath(".") and len(lines) > MAX_LINES:
            problems.append(f"{readme}: {len(lines)} lines, at most {MAX_LINES}")
    for page in map(pathlib.PurePosixPath, tracked("*.md")):
        problems += [f"{page}:{number}: names {name}, which does not exist"
                     for number, name in missing_names(page, folders)]
        if page.parent == MANUAL:
            problems += [f"{page}:{number}: {width} columns, at most {TERMINAL_COLUMNS}"
                         for number, width in wide_lines(page)]
    for problem in problems:
        print(problem)
    print(f"check_readmes: {len(problems)} problem(s)" if problems else "check_readmes: ok", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
