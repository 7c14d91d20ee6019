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

from guide_cases import CASES, GOLDENS, command, needs
from trainers_test import check_log, parse_options, run_cases

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
    return run_cases(options, list(CASES), needs,
                     lambda case: check_log(case, run(options, case), goldens[case], RELATIVE))


if __name__ == "__main__":
    sys.exit(main())
