#!/usr/bin/env python3
"""Runs a script of this folder on two ranks, or as many as RANKS says, which prints "all checks passed" at its end.

    two_ranks_test.py --bin DIR [--python PATH] SCRIPT [ARGUMENT ...]      options as trainers_test.py
"""

import os
import subprocess
import sys
import tempfile

from trainer_cases import FOLDER
from trainers_test import parse_options

RANKS = {"check_zero_plus_plus.py": "4"}  # pairs of neighbours


def main():
    options = parse_options()
    script, *arguments = options.cases
    package = os.environ.get("PYTHONPATH", options.bin.parent / "python")
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run(
            [options.bin / "dsrun", "-n", RANKS.get(script, "2"), "--run_dir", os.path.join(folder, "run"), "--python", options.python,
             str(FOLDER / script), *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False,
            env=dict(os.environ, PYTHONPATH=str(package), OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1",
                     TORCHINDUCTOR_CACHE_DIR=folder))
    print(result.stdout)
    return int(result.returncode != 0 or "all checks passed" not in result.stdout)


if __name__ == "__main__":
    sys.exit(main())
