#!/usr/bin/env python3
"""Runs the scripts of trainer_cases.py on dsrun.compat and compares their logs with DeepSpeed's, which
scripts/goldens/make_trainer_goldens.py has recorded.

    trainers_test.py --bin DIR [--python PATH] [--all] [CASE ...]

By default all cases run but the nightly ones, with --all each. DIR is the build's bin. The ranks run by PATH, else by
the python of scripts/bench/setup_peers.sh. A case whose packages it does not have is skipped, or fails where
DSRUN_REQUIRE names peers; status 77 if all are skipped.
"""

import argparse
import functools
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

from trainer_cases import CASES, GOLDENS, NIGHTLY, command, needs, read_log

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
from requirement import SKIPPED, exit_without, skip_status  # noqa: E402

# fp32: the last bits, of kernels that add in another order. Differences of log-probabilities lose digits.
RELATIVE, ABSOLUTE = 1e-6, 5e-7
# bf16: a weight may be rounded to the other neighbour.
RELATIVE_BF16 = 2e-4


@functools.cache
def lacks(python, package):
    program = f"import importlib.metadata as m; m.version({package!r})"
    return subprocess.run([python, "-c", program], capture_output=True).returncode != 0


def differences(case, actual, expected, relative=RELATIVE):
    relative = RELATIVE_BF16 if "bf16" in case else relative
    if len(actual) != len(expected):
        yield f"{len(actual)} records, DeepSpeed has {len(expected)}"
    for index, (own, other) in enumerate(zip(actual, expected)):
        if own.keys() != other.keys():
            yield f"record {index}: names {sorted(own.keys() ^ other.keys())}"
        for name in own.keys() & other.keys():
            if not math.isclose(own[name], other[name], rel_tol=relative, abs_tol=ABSOLUTE):
                yield f"record {index}: {name} {own[name]}, DeepSpeed has {other[name]}"


def run(dsrun, python, case):
    package = os.environ.get("PYTHONPATH", dsrun.parents[1] / "python")
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TMPDIR=folder,
                           HF_HOME=folder, TOKENIZERS_PARALLELISM="false", PYTHONPATH=str(package))
        return subprocess.run(
            [dsrun, "-n", "2", "run", "--python", python, "--", *command(case, "dsrun")], cwd=folder,
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True)


def find_python():
    """The interpreter of the peers; ends the test without it."""
    check = subprocess.run([ROOT / "scripts/bench/setup_peers.sh", "--check"], capture_output=True, text=True)
    if check.returncode == 0:
        return check.stdout.strip()
    return exit_without("peers", check.stderr.strip())


def missing_packages(python, packages):
    """Names the packages that the interpreter does not have; an empty text if it has all."""
    missing = [package for package in packages if lacks(python, package)]
    return f"{python} has no {', '.join(missing)}" if missing else ""


def check_log(case, result, expected, relative=RELATIVE):
    """What is wrong with the result of a script, line by line."""
    wrong = list(differences(case, read_log(result.stdout), expected, relative))
    if result.returncode != 0:
        wrong.insert(0, f"status {result.returncode}\n{result.stdout[-6000:]}")
    return wrong[:10]


def parse_options(*flags):
    parser = argparse.ArgumentParser()
    for flag in flags:
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--python")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    options = parser.parse_args()
    options.bin = options.bin.absolute()
    options.python = options.python or find_python()
    return options


def run_cases(options, cases, needs, check_case):
    """Prints what check_case(case) finds wrong in the cases; returns the status of the test."""
    chosen = options.cases or cases
    skipped = failed = 0
    for case in chosen:
        missing = missing_packages(options.python, needs(case))
        if missing:
            status = skip_status("peers", missing, case)
            skipped += status == SKIPPED
            failed += status != SKIPPED
            continue
        wrong = check_case(case)
        failed += bool(wrong)
        print("FAILED" if wrong else "ok", case, *wrong, sep="\n  ", flush=True)
    if failed:
        return 1
    return SKIPPED if skipped == len(chosen) else 0


def main():
    options = parse_options("--all")
    goldens = json.loads(GOLDENS.read_text())
    cases = [case for case in CASES if options.all or case not in NIGHTLY]
    return run_cases(options, cases, needs, lambda case: check_log(
        case, run(options.bin / "dsrun", options.python, case), goldens[case]))


if __name__ == "__main__":
    sys.exit(main())
