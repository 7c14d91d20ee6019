#!/usr/bin/env python3
"""Makes tests/unit/config/goldens/curriculum.json with DeepSpeed's own schedulers.

    python scripts/goldens/make_curriculum_goldens.py tests/unit/config/goldens

Needs deepspeed 0.19.8. Of each case: the config, and the value of every step, asked for one after the other as
the engine does: curricula from step 1 on, random-LTD from 0 finished steps on.
"""

import json
import pathlib
import sys

import deepspeed
from deepspeed.runtime.data_pipeline.curriculum_scheduler import CurriculumScheduler
from deepspeed.runtime.data_pipeline.data_routing.scheduler import RandomLTDScheduler

STEPS = 60


def curve(kind, least, most, total, multiple, **more):
    return {"min_difficulty": least, "max_difficulty": most, "schedule_type": kind,
            "schedule_config": {"total_curriculum_step": total, "difficulty_step": multiple, **more}}


def discrete(least, most, levels, steps):
    return {"min_difficulty": least, "max_difficulty": most, "schedule_type": "fixed_discrete",
            "schedule_config": {"difficulty": levels, "max_step": steps}}


CURRICULA = [
    curve("fixed_linear", 2, 10, 8, 2),
    curve("fixed_linear", 8, 1024, 50, 8),
    curve("fixed_linear", 10, 100, 37, 16),
    curve("fixed_linear", 64, 64, 10, 8),
    curve("fixed_linear", 100, 70, 10, 8),
    curve("fixed_root", 64, 2048, 40, 8, root_degree=2),
    curve("fixed_root", 8, 333, 55, 1, root_degree=3),
    curve("fixed_root", 5, 50, 20, 7, root_degree=1),
    discrete(1, 3, [1, 2, 3], [5, 10]),
    discrete(8, 64, [8, 64, 16], [3, 9]),
    discrete(8, 128, [8, 16, 32, 64], [1, 2, 40]),
    discrete(64, 64, [8, 16], [4]),
]


def ltd(least, most, steps, multiple):
    return {"total_layer_num": 12, "random_ltd_layer_num": 10, "global_batch_size": 4,
            "random_ltd_schedule": {"min_value": least, "max_value": most, "schedule_type": "fixed_linear",
                                    "schedule_config": {"require_steps": steps, "seq_per_step": multiple}},
            "layer_token_lr_schedule": {"enabled": False}}


LTDS = [ltd(128, 2048, 50, 16), ltd(16, 100, 33, 8), ltd(20, 90, 20, 16), ltd(64, 64, 5, 8)]


def main():
    cases = []
    for config in CURRICULA:
        scheduler = CurriculumScheduler(config)
        cases.append({"config": config, "values": [scheduler.update_difficulty(s + 1) for s in range(STEPS)]})
    drops = []
    for config in LTDS:
        scheduler = RandomLTDScheduler(config)
        values = []
        for step in range(STEPS):
            scheduler.update_seq(step)
            values.append(scheduler.get_current_seq())
        drops.append({"config": config["random_ltd_schedule"], "values": values})
    out = {"deepspeed": deepspeed.__version__, "curricula": cases, "random_ltd": drops}
    (pathlib.Path(sys.argv[1]) / "curriculum.json").write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main()
