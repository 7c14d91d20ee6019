#!/usr/bin/env python3
"""Holds C++ and CUDA sources to .clang-format, by the version of clang-format that wrote them.

Versions format differently, so another one says nothing: the check then passes with a line that says so.

    scripts/check_format.py          checks the tree; exit status 1 when a file is formatted otherwise
    scripts/check_format.py --fix    formats it
"""

import re
import shutil
import subprocess
import sys

from tracked import ROOT, tracked

VERSION = "14"  # Debian 12's
PROGRAMS = (f"clang-format-{VERSION}", "clang-format")
AT_ONCE = 100  # files


def find_program():
    for program in filter(shutil.which, PROGRAMS):
        told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        if re.search(rf"version {VERSION}\.", told):
            return program
    return None


def main():
    program = find_program()
    if program is None:
        print(f"check_format: not checked, clang-format {VERSION} is not installed")
        return 0
    files = tracked("*.cc", "*.h", "*.cu", "*.cuh")
    how = ["-i"] if "--fix" in sys.argv[1:] else ["--dry-run"]
    problems = set()
    for first in range(0, len(files), AT_ONCE):
        run = subprocess.run([program, *how, *files[first:first + AT_ONCE]], cwd=ROOT, capture_output=True, text=True,
                             check=False)
        if run.returncode != 0:
            print(run.stderr, end="")
            return 1
        problems |= set(re.findall(r"^(\S+?):\d+:\d+: warning:", run.stderr, re.MULTILINE))
    for path in sorted(problems):
        print(f"{path}: not formatted; scripts/check_format.py --fix formats it")
    print(f"check_format: {len(problems)} to fix" if problems else "check_format: ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
