#!/usr/bin/env python3
"""Runs pyflakes on the Python sources: undefined names, names imported or assigned and never used, and the like.

Passes with a line that says so where pyflakes is not installed (Debian's pyflakes3). A line with "# noqa" is left out.

    scripts/check_python.py          exit status 1 when pyflakes finds anything
"""

import re
import shutil
import subprocess
import sys

from tracked import ROOT, tracked

PROGRAMS = ("pyflakes3", "pyflakes")
FOUND = re.compile(r"^(?P<path>[^:]+):(?P<line>\d+):(\d+:)? ")


def is_left_out(finding):
    match = FOUND.match(finding)
    if match is None:  # the next line of a syntax error
        return False
    lines = (ROOT / match["path"]).read_text(encoding="utf-8").splitlines()
    return "# noqa" in lines[int(match["line"]) - 1] if int(match["line"]) <= len(lines) else False


def main():
    program = next(filter(shutil.which, PROGRAMS), None)
    if program is None:
        print("check_python: not checked, pyflakes3 is not installed")
        return 0
    run = subprocess.run([program, *tracked("*.py")], cwd=ROOT, capture_output=True, text=True, check=False)
    findings = [line for line in (run.stdout + run.stderr).splitlines() if not is_left_out(line)]
    for finding in findings:
        print(finding)
    print(f"check_python: {len(findings)} lines to fix" if findings else "check_python: ok")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
