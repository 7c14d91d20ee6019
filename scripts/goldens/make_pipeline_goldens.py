#!/usr/bin/env python3
"""Makes tests/unit/pipeline/goldens/pipeline.json with DeepSpeed's own schedule.

    python scripts/goldens/make_pipeline_goldens.py tests/unit/pipeline/goldens/pipeline.json

Needs deepspeed 0.19.8; the test that reads the golden needs no Python.

"schedules": [{"stages": S, "micro_batches": M, "tasks": [of stage 0: ["F0",
"B0", ...], ...]}], what TrainSchedule computes on each stage, in order.
"""

import json
import pathlib
import sys

from deepspeed.runtime.pipe.schedule import BackwardPass, ForwardPass, TrainSchedule


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


def main():
    golden = {
        "schedules": [{"stages": s, "micro_batches": m, "tasks": [compute_tasks(s, i, m) for i in range(s)]}
                      for s in (1, 2, 3, 4, 6) for m in (1, 2, 3, 8)],
    }
    lines = ",\n".join(f'"{key}": [\n' + ",\n".join(json.dumps(case) for case in golden[key]) + "]" for key in golden)
    pathlib.Path(sys.argv[1]).write_text("{" + lines + "}\n")


main()
