#!/usr/bin/env python3
"""Records what tests/python/symbols_test.py compares: its scripts under DeepSpeed on one CPU rank and on several.

    TORCH_EXTENSIONS_DIR=DIR scripts/goldens/make_symbol_goldens.py [SCRIPT ...]

Needs torch and deepspeed from PyPI, and a C++ compiler for DeepSpeed's kernels. Writes tests/python/goldens/SCRIPT.json:
{ranks: {case: record}}.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/python"))
from symbols_test import SCRIPTS  # noqa: E402
from trainer_cases import FOLDER, read_log  # noqa: E402


def short(value):
    """The value with its numbers of fp32 by the nine digits that tell them apart."""
    if isinstance(value, dict):
        return {key: short(item) for key, item in value.items()}
    if isinstance(value, list):
        return [short(item) for item in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def record(script, ranks):
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="")
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
        result = subprocess.run([*launch, str(FOLDER / f"{script}.py"), "deepspeed"], cwd=folder, env=environment,
                                text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                check=False)
    if result.returncode != 0:
        sys.exit(f"{script} on {ranks}: status {result.returncode}\n{result.stdout}")
    return {entry["case"]: short(entry) for entry in read_log(result.stdout)}


def main():
    for script in sys.argv[1:] or SCRIPTS:
        lines = []
        for ranks in SCRIPTS[script]:
            cases = [f"{json.dumps(case)}: {json.dumps(entry)}" for case, entry in record(script, ranks).items()]
            lines.append(f'"{ranks}": {{\n  ' + ",\n  ".join(cases) + "}")
        (FOLDER / f"goldens/{script}.json").write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
