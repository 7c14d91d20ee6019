#!/usr/bin/env python3
"""Records the logs of the scripts of tests/python/trainer_cases.py under DeepSpeed on two CPU ranks.

    TORCH_EXTENSIONS_DIR=DIR scripts/goldens/make_trainer_goldens.py [CASE ...]

Needs torch, deepspeed, transformers, trl, peft and datasets from PyPI, and a C++ compiler for DeepSpeed's kernels. Cases
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
from trainer_cases import CASES, GOLDENS, command, read_log  # noqa: E402


def record(case):
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TMPDIR=folder, DS_ACCELERATOR="cpu",
                           TOKENIZERS_PARALLELISM="false")
        launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
        result = subprocess.run([*launch, *command(case, "deepspeed")], cwd=folder, env=environment, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if result.returncode != 0:
        sys.exit(f"{case}: status {result.returncode}\n{result.stdout}")
    return read_log(result.stdout)


def main():
    goldens = json.loads(GOLDENS.read_text()) if GOLDENS.exists() else {}
    for case in sys.argv[1:] or CASES:
        print(case, flush=True)
        goldens[case] = record(case)
    GOLDENS.parent.mkdir(exist_ok=True)
    lines = [json.dumps(case) + ": [\n  " + ",\n  ".join(json.dumps(entry) for entry in goldens[case]) + "]"
             for case in sorted(goldens)]
    GOLDENS.write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
