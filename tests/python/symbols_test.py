#!/usr/bin/env python3
"""Runs scripts on dsrun.compat, on one rank and on several, and compares their records with DeepSpeed's, which
scripts/goldens/make_symbol_goldens.py has recorded.

    symbols_test.py --bin DIR [--python PATH] [SCRIPT ...]

SCRIPT is fp16_cases, moe_cases or symbol_cases. The rest is as for trainers_test.py.
"""

import json
import math
import os
import subprocess
import sys
import tempfile

from trainer_cases import FOLDER, read_log
from trainers_test import parse_options

# Each script, and on how many ranks.
SCRIPTS = {"fp16_cases": (1, 2), "moe_cases": (1, 2, 4), "symbol_cases": (1, 2)}
RELATIVE, ABSOLUTE = 2e-6, 1e-6
OF_16_BITS = {"bf16": 1e-2, "fp16": 2e-3}  # one bit of bf16, two of fp16


def differences(name, own, expected, relative):
    """What differs between two values of JSON, line by line."""
    if isinstance(own, dict) and isinstance(expected, dict):
        for key in sorted(own.keys() | expected.keys()):
            yield from differences(f"{name}, {key}", own.get(key), expected.get(key), relative)
    elif isinstance(own, list) and isinstance(expected, list) and len(own) == len(expected):
        for index, pair in enumerate(zip(own, expected)):
            yield from differences(f"{name}[{index}]", *pair, relative)
    elif isinstance(own, float) and isinstance(expected, float):
        if not math.isclose(own, expected, rel_tol=relative, abs_tol=ABSOLUTE):
            yield f"{name}: {own}, DeepSpeed has {expected}"
    elif own != expected:
        yield f"{name}: {own}, DeepSpeed has {expected}"


def run(options, script, ranks):
    """(status, output) of the script on dsrun.compat."""
    package = os.environ.get("PYTHONPATH", options.bin.parent / "python")
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=str(package), CUDA_VISIBLE_DEVICES="")
        result = subprocess.run(
            [options.bin / "dsrun", "-n", str(ranks), "run", "--python", options.python, "--",
             str(FOLDER / f"{script}.py"), "dsrun"],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False)
    return result.returncode, result.stdout


def check(options, script, ranks):
    """Whether all cases of the script have DeepSpeed's values."""
    goldens = json.loads((FOLDER / f"goldens/{script}.json").read_text())[str(ranks)]
    status, output = run(options, script, ranks)
    records = {record["case"]: record for record in read_log(output)}
    passed = status == 0 and goldens.keys() <= records.keys()
    if not passed:
        print(f"{script} on {ranks}: status {status}, without {sorted(goldens.keys() - records.keys())}\n{output}")
    for case, record in records.items():
        # DeepSpeed has no experts at stage 3, where the losses are those of stage 2.
        expected = goldens.get(case) or goldens[case.replace("stage 3", "stage 2")] | {"case": case}
        relative = max((limit for dtype, limit in OF_16_BITS.items() if dtype in case), default=RELATIVE)
        wrong = list(differences("", record, expected, relative))
        print("FAILED" if wrong else "ok", f"{script} on {ranks}: {case}", *wrong[:5], sep="\n  " if wrong else " ")
        passed = passed and not wrong
    return passed


def main():
    options = parse_options()
    # Every script runs, also after one that fails.
    return 0 if all([check(options, script, ranks)
                     for script in options.cases or SCRIPTS for ranks in SCRIPTS[script]]) else 1


if __name__ == "__main__":
    sys.exit(main())
