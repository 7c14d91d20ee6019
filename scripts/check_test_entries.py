#!/usr/bin/env python3
"""Checks the filters of the ctest entries: each test of a test program runs in exactly one entry, and each entry has
tests.

    scripts/check_test_entries.py BUILD_DIR      reads the entries from ctest, and the tests from the programs
"""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FILTER = "--gtest_filter="


def read_entries(build_dir):
    """The entries with a filter: (name, program, environment, filter)."""
    # In a folder of its own, because ctest empties the log of a run that goes on in its folder.
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "CTestTestfile.cmake").write_text(f'subdirs("{os.path.abspath(build_dir)}")\n')
        command = ["ctest", "--test-dir", folder, "-C", "nightly", "--show-only=json-v1"]
        shown = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    for entry in shown["tests"]:
        if "command" not in entry:
            sys.exit(f"check_test_entries: the program of {entry['name']} is not built")
        program, *arguments = entry["command"]
        properties = {each["name"]: each["value"] for each in entry["properties"]}
        variables = dict(each.split("=", 1) for each in properties.get("ENVIRONMENT", []))
        for argument in arguments:
            if argument.startswith(FILTER):
                yield entry["name"], program, variables, argument.removeprefix(FILTER)


def list_tests(program, variables):
    """The full names of the program's tests."""
    listed = subprocess.run([program, "--gtest_list_tests"], check=True, capture_output=True, text=True,
                            env={**os.environ, **variables}).stdout
    suite = ""
    for line in listed.splitlines():
        name = line.split("#")[0].rstrip()
        if line.startswith("  "):
            yield suite + name.strip()
        elif name.endswith("."):
            suite = name


def compile_patterns(patterns):
    """One regular expression for the patterns of GoogleTest, which ":" separates."""
    expressions = [re.escape(each).replace(r"\*", ".*").replace(r"\?", ".") for each in patterns.split(":") if each]
    return re.compile("|".join(f"(?:{each})" for each in expressions) or r"(?!)")


def match_tests(tests, gtest_filter):
    """The tests that the filter of GoogleTest chooses."""
    wanted, _, unwanted = gtest_filter.partition("-")
    wanted, unwanted = compile_patterns(wanted), compile_patterns(unwanted)
    return {test for test in tests if wanted.fullmatch(test) and not unwanted.fullmatch(test)}


def main(build_dir):
    problems = []
    entries_of = collections.defaultdict(list)
    for name, program, variables, gtest_filter in read_entries(build_dir):
        entries_of[program].append((name, variables, gtest_filter))
    total = 0
    for program, entries in entries_of.items():
        tests = list(list_tests(program, entries[0][1]))
        total += len(tests)
        runs_in = collections.defaultdict(list)
        for name, _, gtest_filter in entries:
            chosen = match_tests(tests, gtest_filter)
            if not chosen:
                problems.append(f"{name} has no tests")
            for test in chosen:
                runs_in[test].append(name)
        for test in tests:
            if len(runs_in[test]) != 1:
                where = " and ".join(runs_in[test]) or "no entry"
                problems.append(f"{os.path.basename(program)}: {test} runs in {where}")
    print("\n".join(problems) or f"check_test_entries: ok, {total} tests of {len(entries_of)} programs")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
