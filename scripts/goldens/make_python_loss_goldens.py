#!/usr/bin/env python3
"""Records the losses and norms of the cases of tests/python/loss_cases.py under DeepSpeed on two CPU ranks.

    TORCH_EXTENSIONS_DIR=DIR scripts/goldens/make_python_loss_goldens.py [CASE ...]

Needs torch, deepspeed and transformers from PyPI, and a C++ compiler for DeepSpeed's kernels. Cases that are not named
keep their records. A resumed case goes through DeepSpeed's universal checkpoint, as it resumes on another number of
ranks only from that.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/python"))
from loss_cases import CASES, GOLDENS, REFERENCES, is_recorded, mean_over_ranks, resumed_ranks, split  # noqa: E402


def launch(folder, ranks, *arguments):
    environment = dict(os.environ, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", DS_ACCELERATOR="cpu")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks),
               str(ROOT / "tests/python/deepspeed_losses.py"), "deepspeed", folder, *arguments]
    subprocess.run(command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, check=True)


def make_universal(checkpoint):
    """Converts the checkpoint of tag "saved" to one of tag "universal", unless that is there."""
    if (checkpoint / "universal").exists():
        return
    program = ("import sys, torch, functools\n"
               "torch.load = functools.partial(torch.load, weights_only=False)\n"
               "from deepspeed.checkpoint.ds_to_universal import main, parse_arguments\nmain(parse_arguments())")
    subprocess.run([sys.executable, "-c", program, "--input_folder", f"{checkpoint}/saved", "--output_folder",
                    f"{checkpoint}/universal", "--num_extract_workers", "1", "--num_merge_workers", "1",
                    "--inject_missing_state"],
                   env=dict(os.environ, DS_ACCELERATOR="cpu"), check=True)


def record(cases):
    """Runs cases in one job, and the second parts of resumed ones in two more."""
    with tempfile.TemporaryDirectory() as folder:
        launch(folder, 2, *cases)
        records = mean_over_ranks(folder, "rank", 2)
        for ranks in (1, 4):
            resumed = [case for case in cases if resumed_ranks(case) == ranks]
            for case in resumed:
                make_universal(pathlib.Path(folder, case.replace(" ", "_").rpartition("_resume")[0]))
            if resumed:
                launch(folder, ranks, "--resume", *resumed)
                for case, part in mean_over_ranks(folder, "resumed", ranks).items():
                    records[case] = {name: records[case][name] + part[name] for name in part}
    return records


def shorten(values):
    return [None if value is None else float(f"{value:.9g}") for value in values]


def main():
    goldens = json.loads(GOLDENS.read_text()) if GOLDENS.exists() else {}
    chosen = sys.argv[1:] or [case for case in CASES + REFERENCES if is_recorded(case)]
    groups = {}
    for case in chosen:
        _, _, dtype, variant = split(case)
        groups.setdefault((dtype, "resume" if resumed_ranks(case) else variant), []).append(case)
    for group in groups.values():
        print(*group, sep=", ", flush=True)
        for case, entry in record(group).items():
            if split(case)[2] != "fp32":
                del entry["norms"]
            goldens[case] = {name: shorten(values) for name, values in entry.items()}
        lines = [f"{json.dumps(case)}: {json.dumps(goldens[case])}" for case in sorted(goldens)]
        GOLDENS.write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
