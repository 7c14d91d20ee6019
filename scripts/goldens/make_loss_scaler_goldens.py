#!/usr/bin/env python3
"""Makes tests/unit/precision/goldens/loss_scaler.json with DeepSpeed's own loss scalers.

    python scripts/goldens/make_loss_scaler_goldens.py tests/unit/precision/goldens/loss_scaler.json

Needs deepspeed 0.19.8; the test that reads the golden needs no Python.

A case is {"scaler": "zero" or "stage0", "power", "window", "hysteresis", "consecutive", "minimum",
"steps": one letter per step, f for finite and o for overflow, "scales": the scale after each step}.
Fewer scales than steps: the next step raised, for the scale was at its minimum.
"zero" is DynamicLossScaler (ZeRO stages 1 to 3), "stage0" what FP16_Optimizer and
FP16_UnfusedOptimizer both do.
"""

import json
import pathlib
import random
import sys
import types

import torch
from deepspeed import comm as dist
from deepspeed.runtime.fp16.fused_optimizer import FP16_Optimizer
from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaleConfig
from deepspeed.runtime.fp16.unfused_optimizer import FP16_UnfusedOptimizer

dist.get_rank = lambda *args: 1  # says nothing


def zero_scales(case):
    scaler = DynamicLossScaler(2.0**case["power"], case["window"], case["minimum"], case["hysteresis"],
                               case["consecutive"])
    scales = []
    for step in case["steps"]:
        try:
            scaler.update_scale(step == "o")
        except Exception:
            break
        scales.append(float(scaler.cur_scale))
    return scales


def stage0_scales(case, optimizer_class):
    args = {"init_scale": 2.0**case["power"], "scale_window": case["window"], "min_scale": case["minimum"]}
    config = LossScaleConfig(torch.float16, True, 0.0, args)
    optimizer = types.SimpleNamespace(loss_scale_config=config, verbose=False)
    scales = []
    for step in case["steps"]:
        optimizer_class._update_scale(optimizer, step == "o")
        scales.append(float(config.cur_scale))
    return scales


def cases():
    rng = random.Random(5)
    # The table of the reference notes, and DeepSpeed's own test vectors.
    yield 8, 3, 2, False, 1, "ffff" "o" "ffff" "oo" "ffff" "fff"
    yield 4, 1000, 1, False, 1, "o" * 8
    yield 4, 1000, 1, False, 2, "o" * 8
    yield 8, 2, 2, False, 1, "f" * 10
    yield 8, 2, 2, False, 1, "oofffo"
    yield 16, 1000, 2, False, 1, "o" * 30
    for window in (1, 2, 3, 7):
        for hysteresis in (1, 2, 4):
            for consecutive in (False, True):
                share = rng.choice([0.05, 0.2, 0.5])
                steps = "".join("o" if rng.random() < share else "f" for _ in range(60))
                yield rng.choice([4, 8, 16]), window, hysteresis, consecutive, rng.choice([1, 4]), steps


def main():
    written = []
    for power, window, hysteresis, consecutive, minimum, steps in cases():
        case = {"power": power, "window": window, "hysteresis": hysteresis, "consecutive": consecutive,
                "minimum": minimum, "steps": steps}
        written.append({"scaler": "zero", **case, "scales": zero_scales(case)})
        fused = stage0_scales(case, FP16_Optimizer)
        assert fused == stage0_scales(case, FP16_UnfusedOptimizer)
        written.append({"scaler": "stage0", **case, "scales": fused})
    text = ",\n".join(json.dumps(case) for case in written)
    path = pathlib.Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()
