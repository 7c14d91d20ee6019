#!/usr/bin/env python3
"""Records the logs of the scripts of tests/python/trainer_cases.py under DeepSpeed on two CPU ranks.

    TORCH_EXTENSIONS_DIR=DIR scripts/goldens/make_trainer_goldens.py [CASE ...]

Needs torch, deepspeed, transformers, trl, peft and datasets from PyPI, and a C++ compiler for DeepSpeed's kernels. Cases
that are not named keep their records.
"""

import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/python"))
from record_cases import run, update  # noqa: E402
from trainer_cases import CASES, GOLDENS, command  # noqa: E402


def record(case):
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TMPDIR=folder, DS_ACCELERATOR="cpu",
                           TOKENIZERS_PARALLELISM="false")
        launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
        return run(case, [*launch, *command(case, "deepspeed")], folder, environment)


def main():
    update(GOLDENS, sys.argv[1:] or CASES, record)


if __name__ == "__main__":
    main()
