#!/usr/bin/env python3
"""Makes tests/unit/optim/goldens/schedules.json with the schedules of DeepSpeed, PyTorch and transformers.

    python scripts/goldens/make_schedule_goldens.py tests/unit/optim/goldens/schedules.json

Needs deepspeed 0.19.8, torch 2.11 and transformers 5.24.0; the test that reads the golden needs no Python.

A case is {"scheduler": the ds_config section, "lr": of the optimizer, "rates": [...], "beta1": [...]}:
entry k of the lists is what the optimizer's update k + 1 uses, the schedule having been advanced k
times. Of transformers' schedules the section has the two lengths under DeepSpeed's names, as dsrun does.
"beta1" is there where the schedule moves it. Where the section has lists the optimizer has two
parameter groups: "lr", "rates" and "beta1" are lists of theirs.
"""

import json
import pathlib
import sys

import torch
from deepspeed.runtime import lr_schedules
from transformers import get_scheduler

STEPS = 40

CASES = [
    ("LRRangeTest", {}),
    ("LRRangeTest", {"lr_range_test_min_lr": 1e-4, "lr_range_test_step_size": 7, "lr_range_test_step_rate": 5.0}),
    ("LRRangeTest", {"lr_range_test_min_lr": 1e-4, "lr_range_test_step_size": 7, "lr_range_test_staircase": True}),
    ("OneCycle", {"cycle_min_lr": 0.01, "cycle_max_lr": 0.1}),
    ("OneCycle", {"cycle_min_lr": 0.01, "cycle_max_lr": 0.1, "cycle_first_step_size": 10}),
    ("OneCycle", {"cycle_min_lr": 0.01, "cycle_max_lr": 0.1, "cycle_first_step_size": 7, "cycle_second_step_size": 11,
                  "decay_step_size": 5, "decay_lr_rate": 0.3, "decay_mom_rate": 0.02}),
    ("OneCycle", {"cycle_min_lr": 0.01, "cycle_max_lr": 0.1, "cycle_first_step_size": 9, "cycle_second_step_size": 14,
                  "cycle_first_stair_count": 3, "cycle_second_stair_count": 7, "cycle_min_mom": 0.5,
                  "cycle_max_mom": 0.95}),
    ("OneCycle", {"cycle_min_lr": 0.01, "cycle_max_lr": 0.1, "cycle_first_step_size": 8, "cycle_second_step_size": 0,
                  "cycle_first_stair_count": 4, "cycle_momentum": False, "decay_step_size": 3, "decay_mom_rate": 0.1}),
    ("OneCycle", {"cycle_min_lr": 0.01, "cycle_max_lr": 0.1, "cycle_first_step_size": 6, "decay_step_size": 4,
                  "decay_mom_rate": 0.005}),
    ("WarmupLR", {}),
    ("WarmupLR", {"warmup_num_steps": 10}),
    ("WarmupLR", {"warmup_min_lr": 0.001, "warmup_max_lr": 0.1, "warmup_num_steps": 12, "warmup_type": "linear"}),
    ("WarmupLR", {"warmup_num_steps": 1}),
    ("WarmupDecayLR", {"total_num_steps": 30, "warmup_num_steps": 10}),
    ("WarmupDecayLR", {"total_num_steps": 25, "warmup_min_lr": 1e-4, "warmup_max_lr": 0.02, "warmup_num_steps": 8,
                       "warmup_type": "linear"}),
    ("WarmupDecayLR", {"total_num_steps": 5, "warmup_num_steps": 10}),
    ("WarmupCosineLR", {"total_num_steps": 30, "warmup_num_steps": 10}),
    ("WarmupCosineLR", {"total_num_steps": 100, "warmup_num_steps": 10, "cos_min_ratio": 0.1, "warmup_min_ratio": 0.2}),
    ("WarmupCosineLR", {"total_num_steps": 25, "warmup_num_steps": 6, "warmup_type": "linear", "cos_min_ratio": 0.05}),
    ("StepLR", {"step_size": 7}),
    ("StepLR", {"step_size": 5, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [5, 12, 12, 30]}),
    ("MultiStepLR", {"milestones": [20, 3], "gamma": 0.3}),
    ("ConstantLR", {}),
    ("ConstantLR", {"factor": 0.25, "total_iters": 11}),
    ("ConstantLR", {"total_iters": 0}),
    ("LinearLR", {}),
    ("LinearLR", {"start_factor": 0.1, "end_factor": 0.7, "total_iters": 15}),
    ("LinearLR", {"total_iters": 0}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("PolynomialLR", {}),
    ("PolynomialLR", {"total_iters": 20, "power": 2.5}),
    ("PolynomialLR", {"total_iters": 0}),
    ("CosineAnnealingLR", {"T_max": 12}),
    ("CosineAnnealingLR", {"T_max": 9, "eta_min": 0.001}),
    ("CosineAnnealingWarmRestarts", {"T_0": 7}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2, "eta_min": 0.002}),
    ("CyclicLR", {"base_lr": 0.001, "max_lr": 0.1}),
    ("CyclicLR", {"base_lr": 0.001, "max_lr": 0.1, "step_size_up": 4, "step_size_down": 7, "mode": "triangular2"}),
    ("CyclicLR", {"base_lr": 0.001, "max_lr": 0.1, "step_size_up": 6, "mode": "exp_range", "gamma": 0.97,
                  "base_momentum": 0.7, "max_momentum": 0.99}),
    ("CyclicLR", {"base_lr": 0.001, "max_lr": 0.1, "step_size_up": 5, "cycle_momentum": False}),
    ("OneCycleLR", {"max_lr": 0.1, "total_steps": 40}),
    ("OneCycleLR", {"max_lr": 0.1, "epochs": 4, "steps_per_epoch": 10, "anneal_strategy": "linear",
                    "three_phase": True, "base_momentum": 0.8, "max_momentum": 0.9}),
    ("OneCycleLR", {"max_lr": 0.1, "total_steps": 40, "pct_start": 0.0, "div_factor": 10.0, "final_div_factor": 100.0,
                    "cycle_momentum": False}),
]

# Of transformers' get_scheduler: name, warm-up, steps, kwargs. Some end before the forty updates do.
TRANSFORMERS_CASES = [
    ("constant", None, None, {}),
    ("constant_with_warmup", 0, None, {}),
    ("constant_with_warmup", 7, None, {}),
    ("linear", 0, 40, {}),
    ("linear", 3, 40, {}),
    ("linear", 10, 25, {}),
    ("linear", 12, 12, {}),
    ("linear", 50, 30, {}),
    ("cosine", 0, 40, {}),
    ("cosine", 5, 33, {}),
    ("cosine", 4, 40, {"num_cycles": 2.0}),
    ("cosine", 1, 40, {"num_cycles": 0.3}),
    ("cosine_with_restarts", 0, 40, {}),
    ("cosine_with_restarts", 4, 30, {"num_cycles": 3}),
    ("cosine_with_restarts", 2, 40, {"num_cycles": 2}),
    ("polynomial", 0, 40, {}),
    ("polynomial", 3, 40, {"power": 2.0, "lr_end": 1e-5}),
    ("polynomial", 6, 21, {"power": 0.5, "lr_end": 0.001}),
    ("inverse_sqrt", 0, None, {}),
    ("inverse_sqrt", 6, None, {}),
    ("inverse_sqrt", 4, None, {"timescale": 9}),
    ("inverse_sqrt", 0, None, {"timescale": 5}),
    ("cosine_with_min_lr", 0, 40, {"min_lr": 0.001}),
    ("cosine_with_min_lr", 5, 40, {"min_lr_rate": 0.1}),
    ("cosine_with_min_lr", 2, 24, {"min_lr_rate": 0.25, "num_cycles": 1.5}),
    ("cosine_warmup_with_min_lr", 0, 40, {"min_lr_rate": 0.1}),
    ("cosine_warmup_with_min_lr", 6, 40, {"min_lr": 0.002}),
    ("cosine_warmup_with_min_lr", 6, 35, {"min_lr_rate": 0.2, "warmup_lr_rate": 0.4}),
    ("cosine_warmup_with_min_lr", 1, 40, {"min_lr_rate": 0.2, "warmup_lr_rate": 0.4, "num_cycles": 1.0}),
    ("warmup_stable_decay", 3, 40, {"num_decay_steps": 10}),
    ("warmup_stable_decay", 3, 40, {"num_decay_steps": 3, "min_lr_ratio": 0.1}),
    ("warmup_stable_decay", 5, 30, {"num_decay_steps": 12, "decay_type": "linear", "warmup_type": "cosine"}),
    ("warmup_stable_decay", 8, 40, {"num_decay_steps": 9, "decay_type": "1-sqrt", "warmup_type": "1-sqrt",
                                    "min_lr_ratio": 0.2}),
    ("warmup_stable_decay", 4, 40, {"num_decay_steps": 8, "num_stable_steps": 11, "num_cycles": 1.5}),
    ("warmup_stable_decay", 0, 20, {"num_decay_steps": 25, "decay_type": "linear"}),
    ("warmup_stable_decay", 2, 40, {"num_decay_steps": 0}),
]

# Of two parameter groups with rates of their own.
GROUP_CASES = [
    ("LRRangeTest", {"lr_range_test_min_lr": [1e-4, 3e-3], "lr_range_test_step_size": 7}),
    ("OneCycle", {"cycle_min_lr": [0.01, 0.002], "cycle_max_lr": [0.1, 0.03], "cycle_first_step_size": 9,
                  "decay_step_size": 5, "decay_lr_rate": 0.3, "cycle_min_mom": [0.7, 0.5], "cycle_max_mom": [0.9, 0.95],
                  "decay_mom_rate": 0.01}),
    ("OneCycle", {"cycle_min_lr": 0.001, "cycle_max_lr": [0.1, 0.03], "cycle_first_step_size": 6}),
    ("WarmupLR", {"warmup_min_lr": [0.001, 0.0], "warmup_max_lr": [0.1, 0.02], "warmup_num_steps": 12}),
    ("WarmupLR", {"warmup_min_lr": [0.001, 0.002], "warmup_num_steps": 5, "warmup_type": "linear"}),
    ("WarmupDecayLR", {"total_num_steps": 25, "warmup_max_lr": [0.02, 0.05], "warmup_num_steps": 8}),
    ("CyclicLR", {"base_lr": [0.001, 0.002], "max_lr": [0.1, 0.05], "step_size_up": 4, "base_momentum": [0.7, 0.8],
                  "max_momentum": [0.9, 0.95]}),
    ("OneCycleLR", {"max_lr": [0.1, 0.04], "total_steps": 40}),
]


def group_trajectory(name, params, lrs):
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in lrs]
    optimizer = torch.optim.Adam(groups, lr=1.0)
    make = getattr(lr_schedules, name, None) or getattr(torch.optim.lr_scheduler, name)
    scheduler = make(optimizer, **params)
    rates, beta1 = [[], []], [[], []]
    for _ in range(STEPS):
        for i, group in enumerate(optimizer.param_groups):
            rates[i].append(float(group["lr"]))
            beta1[i].append(float(group["betas"][0]))
        optimizer.step()
        scheduler.step()
    case = {"scheduler": {"type": name, "params": params}, "lr": lrs, "rates": rates}
    if any(value != 0.9 for value in beta1[0]):
        case["beta1"] = beta1
    return case


def trajectory(name, params, lr):
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    if hasattr(lr_schedules, name):
        scheduler = getattr(lr_schedules, name)(optimizer, **params)
    else:
        scheduler = getattr(torch.optim.lr_scheduler, name)(optimizer, **params)
    rates, beta1 = [], []
    for _ in range(STEPS):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        beta1.append(float(optimizer.param_groups[0]["betas"][0]))
        optimizer.step()
        scheduler.step()
    case = {"scheduler": {"type": name, "params": params}, "lr": lr, "rates": rates}
    if any(value != 0.9 for value in beta1):
        case["beta1"] = beta1
    return case


def transformers_trajectory(name, warmup, steps, kwargs, lr):
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    scheduler = get_scheduler(name, optimizer, warmup, steps, scheduler_specific_kwargs=kwargs)
    lengths = {"warmup_num_steps": warmup, "total_num_steps": steps}
    params = {key: value for key, value in lengths.items() if value is not None}
    rates = []
    for _ in range(STEPS):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    return {"scheduler": {"type": name, "params": {**params, **kwargs}}, "lr": lr, "rates": rates}


def main():
    cases = [trajectory(name, params, 0.0125) for name, params in CASES]
    cases += [transformers_trajectory(*case, 0.0125) for case in TRANSFORMERS_CASES]
    cases += [group_trajectory(name, params, [0.0125, 0.004]) for name, params in GROUP_CASES]
    text = ",\n".join(json.dumps(case) for case in cases)
    path = pathlib.Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()
