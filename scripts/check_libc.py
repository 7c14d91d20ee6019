#!/usr/bin/env python3
"""Checks that programs and plugins start where the C and C++ libraries are as old as `dsrun help install` says.

    scripts/check_libc.py FILE...    exit status 1 when a file needs a newer one; names the symbols

Debian 12's own start-up code (Scrt1.o) needs glibc 2.34, so no program that is linked there can need less.
"""

import re
import subprocess
import sys

NEWEST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (4, 8)}
UNDEFINED = re.compile(r"\*UND\*.*\((?P<library>[A-Z]+)_(?P<version>[0-9.]+)\)\s+(?P<symbol>\S+)$")


def list_newer(file):
    """The symbols that `file` takes from a newer library: "symbol (GLIBC_2.36)"."""
    shown = subprocess.run(["objdump", "-T", file], check=True, capture_output=True, text=True).stdout
    for line in shown.splitlines():
        match = UNDEFINED.search(line)
        if match is None or match["library"] not in NEWEST:
            continue
        version = tuple(int(number) for number in match["version"].split("."))
        if version > NEWEST[match["library"]]:
            yield f"{match['symbol']} ({match['library']}_{match['version']})"


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    failed = False
    for file in sys.argv[1:]:
        newer = sorted(set(list_newer(file)))
        for symbol in newer:
            print(f"{file}: needs {symbol}, newer than the documented requirement")
        failed = failed or bool(newer)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
