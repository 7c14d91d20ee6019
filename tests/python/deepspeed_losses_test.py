#!/usr/bin/env python3
"""Trains the cases of loss_cases.py on dsrun and compares the losses of their steps with DeepSpeed's, which
scripts/goldens/make_python_loss_goldens.py has recorded.

    deepspeed_losses_test.py --bin DIR [--python PATH] [--all] [CASE ...]     options as trainers_test.py

By default a chosen few run, with --all each case. Prints the largest differences of each model.
"""

import json
import os
import subprocess
import sys
import tempfile

from largest import find_largest
from loss_cases import CASES, GOLDENS, QUICK, REFERENCES, mean_over_ranks, records_of, resumed_ranks, split
from trainer_cases import FOLDER
from trainers_test import parse_options

LIMIT = 2e-6  # of a loss in fp32, relative above 1
# Twice as far as PyTorch's in fp32 are from those in fp64, of CLIP with clipping, whose norms fall from 57 to 0.4.
LIMIT_OF_NORM = 6e-6
# In bf16, a weight that is rounded to the other neighbour changes the losses: they are as close to one of DeepSpeed's
# runs of the model, which are its stages and one with PyTorch's AdamW, as two of its stages are to one another. Its
# stages have the same bits for models that compute their loss in fp32; the two AdamWs are up to 7e-5 apart there.
LEAST_LIMIT_BF16 = 1e-4


def launch(options, folder, ranks, *arguments):
    package = os.environ.get("PYTHONPATH", options.bin.parent / "python")
    environment = dict(os.environ, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", PYTHONPATH=str(package))
    command = [options.bin / "dsrun", "-n", str(ranks), "--run_dir", os.path.join(folder, f"run{ranks}"), "run",
               "--python", options.python, "--", str(FOLDER / "deepspeed_losses.py"), "dsrun", folder, *arguments]
    result = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if result.returncode != 0:
        sys.exit(f"status {result.returncode} on {ranks} ranks\n{result.stdout[-6000:]}")


def train(options, cases):
    with tempfile.TemporaryDirectory() as folder:
        launch(options, folder, 2, *cases)
        records = mean_over_ranks(folder, "rank", 2)
        for ranks in (1, 4):
            resumed = [case for case in cases if resumed_ranks(case) == ranks]
            if resumed:
                launch(options, folder, ranks, "--resume", *resumed)
                for case, part in mean_over_ranks(folder, "resumed", ranks).items():
                    records[case] = {name: records[case][name] + part[name] for name in part}
    return records


def largest_difference(losses, expected):
    return find_largest(abs(a - b) / max(1.0, abs(b)) for a, b in zip(losses, expected, strict=True))


def limit_of(case, goldens):
    """The largest difference of losses that is allowed."""
    model, _, dtype, _ = split(case)
    if dtype == "fp32":
        return LIMIT
    stages = [record["losses"] for name, record in goldens.items()
              if split(name)[::2] == (model, dtype) and name not in REFERENCES]
    return max(LEAST_LIMIT_BF16, *(largest_difference(a, b) for a in stages for b in stages))


def check(case, record, goldens):
    """Returns the difference of the losses to DeepSpeed's nearest, and what is wrong, or an empty text."""
    records = records_of(case, goldens)
    difference = min(largest_difference(record["losses"], golden["losses"]) for golden in records)
    limit = limit_of(case, goldens)
    if not difference <= limit:
        return difference, f"losses differ by {difference:.2g}, at most {limit:.2g}"
    pairs = zip(record["norms"], records[0].get("norms", []))
    norms = find_largest((abs(norm / expected - 1) for norm, expected in pairs if expected is not None), default=0.0)
    if norms > LIMIT_OF_NORM:
        return difference, f"norms differ by {norms:.2g}, at most {LIMIT_OF_NORM:.2g}"
    return difference, ""


def main():
    options = parse_options("--all")
    goldens = json.loads(GOLDENS.read_text())
    cases = options.cases or (CASES if options.all else QUICK)
    largest, failed = {}, False
    for case, record in train(options, cases).items():
        difference, wrong = check(case, record, goldens)
        failed |= bool(wrong)
        if wrong:
            print(f"FAILED {case}: {wrong}")
        key = (split(case)[0], split(case)[2])
        largest[key] = max(largest.get(key, 0.0), difference)
    for (model, dtype), difference in largest.items():
        print(f"{model:10} {dtype}  {difference:.1e}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
