#!/usr/bin/env python3
"""Records the logs of the scripts of tests/python/guides under DeepSpeed on two CPU ranks.

    TORCH_EXTENSIONS_DIR=DIR scripts/goldens/make_guide_goldens.py [CASE ...]

Needs torch, deepspeed, transformers, accelerate and peft from PyPI, and a C++ compiler for DeepSpeed's kernels. Cases
that are not named keep their records.
"""

import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/python"))
from record_cases import run, update  # noqa: E402
from guide_cases import CASES, GOLDENS, command  # noqa: E402

# Accelerate takes each rank of a DeepSpeed job on a host without a GPU for the only one.
PROGRAM = """
import os, runpy, sys, torch
from accelerate.state import DistributedType, PartialState
PartialState._prepare_backend = lambda self, *args, **kwargs: ("gloo", DistributedType.MULTI_CPU)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
torch.distributed.barrier()
sys.stdout.flush()
os._exit(0)  # the threads of the process group may abort an orderly end
"""


def record(case):
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder, "program.py")
        program.write_text(PROGRAM)
        environment = dict(os.environ, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", DS_ACCELERATOR="cpu")
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(program)]
        return run(case, [*launch, *command(case, folder)], folder, environment)


def main():
    update(GOLDENS, sys.argv[1:] or CASES, record)


if __name__ == "__main__":
    main()
