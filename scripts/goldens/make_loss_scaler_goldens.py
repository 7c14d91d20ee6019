#!/usr/bin/env python3
"""Makes tests/unit/precision/goldens/loss_scaler.json with DeepSpeed's own loss scalers and PyTorch's.

    python scripts/goldens/make_loss_scaler_goldens.py tests/unit/precision/goldens/loss_scaler.json

Needs deepspeed 0.19.8 and torch 2.11; the test that reads the golden needs no Python.

A case is {"scaler": "zero", "stage0" or "torch", "power", "window", "hysteresis", "consecutive", "minimum",
"steps": one letter per step, f for finite and o for overflow, "scales": the scale after each step}.
Fewer scales than steps: the next step raised, for the scale was at its minimum.
"zero" is DynamicLossScaler (ZeRO stages 1 to 3), "stage0" what FP16_Optimizer and
FP16_UnfusedOptimizer both do, "torch" is torch.amp.GradScaler, which has no minimum and no hysteresis.
The last case, {"scaler": "torch_defaults", "power", "window"}, is that of DeepSpeed's torch_autocast.
"""

import json
import math
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


def torch_scales(case):
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**case["power"], growth_interval=case["window"])
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    scales = []
    for step in case["steps"]:
        parameter.grad = scaler.scale(torch.ones(3))
        if step == "o":
            parameter.grad[1] = float("inf")
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales


def torch_defaults():
    scaler = torch.amp.GradScaler("cpu")
    assert (scaler.get_growth_factor(), scaler.get_backoff_factor()) == (2.0, 0.5)
    power = int(math.log2(scaler.get_scale()))
    return {"scaler": "torch_defaults", "power": power, "window": scaler.get_growth_interval()}


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
        written.append({"scaler": "torch", **case, "scales": torch_scales(case)})
    written.append({"scaler": "torch", "power": 125, "window": 1, "steps": "fffff",
                    "scales": torch_scales({"power": 125, "window": 1, "steps": "fffff"})})
    written.append(torch_defaults())
    text = ",\n".join(json.dumps(case) for case in written)
    path = pathlib.Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()
