#!/usr/bin/env python3
"""Runs the scripts of guides/ on dsrun.compat, unmodified, and compares their logs with DeepSpeed's, which
scripts/goldens/make_guide_goldens.py has recorded.

    guides_test.py --bin DIR [--python PATH] [CASE ...]      options as trainers_test.py
"""

import json
import os
import subprocess
import sys
import tempfile

from guide_cases import CASES, GOLDENS, command, needs, read_log
from trainers_test import SKIPPED, differences, lacks, parse_options

# DeepSpeed's Adam takes 1 - beta in fp32, which for the tutorials' 0.999 is 5e-5 off.
RELATIVE = 2e-6


def run(options, case):
    package = os.environ.get("PYTHONPATH", options.bin.parent / "python")
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", HF_HOME=folder,
                           TOKENIZERS_PARALLELISM="false", PYTHONPATH=str(package))
        return subprocess.run(
            [options.bin / "dsrun", "-n", "2", "--run_dir", os.path.join(folder, "run"), "run", "--python",
             options.python, "-m", "--", "dsrun.compat", *command(case, folder)], cwd=folder, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def main():
    options = parse_options()
    goldens = json.loads(GOLDENS.read_text())
    chosen = options.cases or list(CASES)
    skipped = failed = 0
    for case in chosen:
        missing = [package for package in needs(case) if lacks(options.python, package)]
        if missing:
            print(f"SKIPPED {case}: {options.python} has no {', '.join(missing)}")
            skipped += 1
            continue
        result = run(options, case)
        wrong = list(differences(case, read_log(result.stdout), goldens[case], RELATIVE))[:10]
        if result.returncode != 0:
            wrong.insert(0, f"status {result.returncode}\n{result.stdout[-6000:]}")
        failed += bool(wrong)
        print("FAILED" if wrong else "ok", case, *wrong, sep="\n  ", flush=True)
    if failed:
        return 1
    return SKIPPED if skipped == len(chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
