#!/usr/bin/env python3
"""Reads the output of `dsrun check CONFIG --json` (or a run's config.resolved.json) with DeepSpeed.

    python scripts/goldens/read_resolved_config.py RESOLVED [CONFIG]

Writes nothing. Fails when DeepSpeed's own reader refuses it, or reads something else in it than dsrun
does; with CONFIG, the file that dsrun was given, also when DeepSpeed reads something else in that.
Needs deepspeed 0.19.8 and torch 2.11; `--world_size` of the check must have been 1.
"""

import json
import os
import sys

os.environ["DS_ACCELERATOR"] = "cpu"

from deepspeed.runtime.config import DeepSpeedConfig


def read(config):
    """What DeepSpeed makes of the keys that dsrun honours."""
    c = DeepSpeedConfig(config)
    return {
        "train_batch_size": c.train_batch_size,
        "train_micro_batch_size_per_gpu": c.train_micro_batch_size_per_gpu,
        "gradient_accumulation_steps": c.gradient_accumulation_steps,
        "gradient_clipping": c.gradient_clipping,
        "prescale_gradients": c.prescale_gradients,
        "gradient_predivide_factor": c.gradient_predivide_factor,
        "zero_optimization.stage": int(c.zero_config.stage),
        "fp16.enabled": c.float16_config.enabled,
        "bf16.enabled": c.bfloat16_config.enabled,
        "torch_autocast.enabled": c.torch_autocast_enabled,
        "optimizer.type": (c.optimizer_name or "").lower(),
        "scheduler.type": c.scheduler_name,
    }, c.optimizer_params, c.scheduler_params


def at(config, path):
    for name in path.split("."):
        config = config.get(name) if isinstance(config, dict) else None
    return config


def main():
    resolved = json.load(open(sys.argv[1]))
    theirs, optimizer, scheduler = read(resolved)
    for path, value in theirs.items():
        ours = at(resolved, path)
        ours = (ours or "").lower() if path == "optimizer.type" else ours
        assert ours == value, f"{path}: dsrun has {ours}, DeepSpeed reads {value}"
    assert (optimizer or {}) == (at(resolved, "optimizer.params") or {}), optimizer
    assert (scheduler or {}) == (at(resolved, "scheduler.params") or {}), scheduler
    if len(sys.argv) > 2:
        given, _, _ = read(sys.argv[2])
        assert given == theirs, {k: (given[k], theirs[k]) for k in given if given[k] != theirs[k]}
    print(f"{sys.argv[1]}: DeepSpeed reads {len(theirs)} keys alike, {len(optimizer or {})} of the optimizer's and "
          f"{len(scheduler or {})} of the scheduler's parameters; origins of {len(resolved['origins'])}")


if __name__ == "__main__":
    main()
