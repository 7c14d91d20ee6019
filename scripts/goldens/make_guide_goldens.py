#!/usr/bin/env python3
"""Records the logs of the scripts of tests/python/guides under DeepSpeed on two CPU ranks.

    TORCH_EXTENSIONS_DIR=DIR scripts/goldens/make_guide_goldens.py [CASE ...]

Needs torch, deepspeed, transformers, accelerate and peft from PyPI, and a C++ compiler for DeepSpeed's kernels. Cases
that are not named keep their records.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/python"))
from guide_cases import CASES, GOLDENS, command, read_log  # noqa: E402

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
        result = subprocess.run([*launch, *command(case, folder)], cwd=folder, env=environment, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if result.returncode != 0:
        sys.exit(f"{case}: status {result.returncode}\n{result.stdout}")
    return read_log(result.stdout)


def main():
    goldens = json.loads(GOLDENS.read_text()) if GOLDENS.exists() else {}
    for case in sys.argv[1:] or CASES:
        print(case, flush=True)
        goldens[case] = record(case)
        lines = [json.dumps(case) + ": [\n  " + ",\n  ".join(json.dumps(entry) for entry in goldens[case]) + "]"
                 for case in sorted(goldens)]
        GOLDENS.write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
