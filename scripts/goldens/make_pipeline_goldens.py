#!/usr/bin/env python3
"""Makes tests/unit/pipeline/goldens/pipeline.json with DeepSpeed's own schedule and cuts.

    python scripts/goldens/make_pipeline_goldens.py tests/unit/pipeline/goldens/pipeline.json

Needs deepspeed 0.19.8; the test that reads the golden needs no Python.

"schedules": [{"stages": S, "micro_batches": M, "tasks": [of stage 0: ["F0",
"B0", ...], ...]}], what TrainSchedule computes on each stage, in order.
"cuts": [{"weights": [...], "parts": P, "cut": [0, ...]}] of partition_balanced,
"uniform": [{"count": N, "parts": P, "cut": [0, ...]}] of partition_uniform.
"""

import json
import pathlib
import random
import sys

from deepspeed.runtime.pipe.schedule import BackwardPass, ForwardPass, TrainSchedule
from deepspeed.runtime.utils import partition_balanced, partition_uniform


def compute_tasks(stages, stage, micro_batches):
    """What a stage computes, with micro-batches numbered as they come (a schedule names buffers)."""
    tasks, forwards, backwards = [], 0, 0
    for commands in TrainSchedule(micro_batches, stages, stage).steps():
        for command in commands:
            if isinstance(command, ForwardPass):
                tasks.append(f"F{forwards}")
                forwards += 1
            if isinstance(command, BackwardPass):
                tasks.append(f"B{backwards}")
                backwards += 1
    return tasks


def make_cuts():
    draw = random.Random(8)
    cases = []
    for trial in range(64):
        weights = [draw.randint(0, 9) for _ in range(draw.randint(1, 14))]
        parts = draw.randint(1, 6)
        cases.append({"weights": weights, "parts": parts, "cut": [int(i) for i in partition_balanced(weights, parts)]})
    return cases


def main():
    golden = {
        "schedules": [{"stages": s, "micro_batches": m, "tasks": [compute_tasks(s, i, m) for i in range(s)]}
                      for s in (1, 2, 3, 4, 6) for m in (1, 2, 3, 8)],
        "cuts": make_cuts(),
        "uniform": [{"count": n, "parts": p, "cut": [int(i) for i in partition_uniform(n, p)]}
                    for n in (0, 1, 5, 8, 13, 24) for p in (1, 2, 3, 4, 7)],
    }
    lines = ",\n".join(f'"{key}": [\n' + ",\n".join(json.dumps(case) for case in golden[key]) + "]" for key in golden)
    pathlib.Path(sys.argv[1]).write_text("{" + lines + "}\n")


main()
