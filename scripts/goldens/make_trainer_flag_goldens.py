#!/usr/bin/env python3
"""Makes tests/unit/cli/goldens/trainer_flags.json and trainer_mismatches.json with transformers.

    python scripts/goldens/make_trainer_flag_goldens.py tests/unit/cli/goldens

Needs torch 2.11, transformers 5.24.0, accelerate and deepspeed 0.19.8. A row of the first is {"arguments":
TrainingArguments of a file, "flags": those that a user gives over it, "rates": of every step, as Trainer computes them
with both; null where get_scheduler takes no such kwargs}. A row of the second is {"arguments", "deepspeed": the
ds_config, "world_size", "mismatches": the keys that HfTrainerDeepSpeedConfig refuses}.
"""

import copy
import dataclasses
import json
import pathlib
import re
import sys
import types

import transformers
from transformers import TrainingArguments
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

from make_trainer_rate_goldens import DECAY, rates_of

WARM = {"max_steps": 9, "learning_rate": 3e-4, "warmup_steps": 3}
SHARE = {"max_steps": 9, "learning_rate": 3e-4, "warmup_steps": 0.3, "lr_scheduler_type": "cosine"}
CONSTANT = {"max_steps": 9, "learning_rate": 3e-4, "warmup_steps": 2, "lr_scheduler_type": "constant"}
RESTARTS = {"max_steps": 12, "warmup_steps": 2, "lr_scheduler_type": "cosine_with_restarts",
            "lr_scheduler_kwargs": {"num_cycles": 3}}
LOWEST = {"max_steps": 9, "warmup_steps": 2, "lr_scheduler_type": "cosine_with_min_lr",
          "lr_scheduler_kwargs": {"min_lr_rate": 0.1, "num_cycles": 1.0}}
FLAGGED = [
    *[(below, {"lr_scheduler_type": name}) for below in (WARM, SHARE, CONSTANT)
      for name in ("linear", "cosine", "polynomial", "inverse_sqrt", "constant_with_warmup", "constant")],
    (RESTARTS, {"lr_scheduler_type": "cosine"}),
    (RESTARTS, {"lr_scheduler_type": "linear"}),
    (RESTARTS, {"lr_scheduler_type": "linear", "lr_scheduler_kwargs": {}}),
    (RESTARTS, {"lr_scheduler_kwargs": {"num_cycles": 2}}),
    (RESTARTS, {"lr_scheduler_kwargs": {}}),
    (LOWEST, {"lr_scheduler_type": "cosine"}),
    (LOWEST, {"lr_scheduler_type": "cosine_warmup_with_min_lr"}),
    (WARM, {"lr_scheduler_kwargs": {"power": 2.0}}),
    (WARM, {"lr_scheduler_type": "polynomial", "lr_scheduler_kwargs": {"power": 2.0}}),
    (WARM, {"warmup_steps": 5}),
    (WARM, {"warmup_steps": 0}),
    (WARM, {"warmup_steps": 0.5}),
    (SHARE, {"warmup_steps": 4}),
    (WARM, {"learning_rate": 1e-4}),
    (WARM, {"max_steps": 6}),
    (LOWEST, {"max_steps": 20}),
    (LOWEST, {"learning_rate": 1e-4}),
]

ARGUMENTS = {"max_steps": 4, "learning_rate": 1e-3, "warmup_steps": 2, "per_device_train_batch_size": 1}


def changed(path, value):
    config = copy.deepcopy(DECAY)
    section = config
    *sections, name = path.split(".")
    for each in sections:
        section = section.setdefault(each, {})
    section[name] = value
    return config


MATCHED = [
    ({}, DECAY, 2),
    *[({}, changed(path, value), 2) for path, value in (
        ("train_micro_batch_size_per_gpu", 2), ("train_micro_batch_size_per_gpu", 1),
        ("gradient_accumulation_steps", 2), ("gradient_accumulation_steps", 1),
        ("train_batch_size", 64), ("train_batch_size", 2), ("train_batch_size", 1),
        ("gradient_clipping", 0.5), ("gradient_clipping", 1.0),
        ("optimizer.params.lr", 2e-3), ("optimizer.params.lr", 1e-3),
        ("optimizer.params.betas", [0.8, 0.9]), ("optimizer.params.betas", [0.9, 0.999]),
        ("optimizer.params.eps", 1e-6), ("optimizer.params.eps", 1e-8),
        ("optimizer.params.weight_decay", 0.1), ("optimizer.params.weight_decay", 0.0),
        ("scheduler.params.warmup_max_lr", 2e-3), ("scheduler.params.warmup_max_lr", 1e-3),
        ("scheduler.params.warmup_min_lr", 1e-5),
        ("scheduler.params.warmup_num_steps", 1), ("scheduler.params.warmup_num_steps", 2),
        ("scheduler.params.total_num_steps", 100), ("scheduler.params.total_num_steps", 4),
        ("fp16.enabled", True), ("fp16.enabled", False), ("bf16.enabled", True), ("bf16.enabled", False))],
    ({"bf16": True}, changed("bf16.enabled", False), 1),
    ({"bf16": True}, changed("bf16.enabled", True), 1),
    ({"fp16": True}, changed("fp16.enabled", False), 1),
    ({"bf16_full_eval": True}, changed("bf16.enabled", True), 1),
    ({"warmup_steps": 0}, changed("scheduler.params.warmup_num_steps", 10), 1),
    ({"warmup_steps": 0}, changed("scheduler.params.warmup_num_steps", 1), 1),
    ({"warmup_steps": 0.5}, changed("scheduler.params.warmup_num_steps", 2), 1),
    ({"warmup_steps": 0.5}, changed("scheduler.params.warmup_num_steps", 3), 1),
    ({"gradient_accumulation_steps": 3}, changed("train_batch_size", 12), 4),
    ({"gradient_accumulation_steps": 3}, changed("train_batch_size", 12), 2),
]


def row_of_flags(below, flags):
    try:
        rates = rates_of({**below, **flags}, None)
    except TypeError as error:
        assert "unexpected keyword" in str(error), error
        rates = None
    return {"arguments": below, "flags": flags, "rates": rates}


def mismatches(given, config, world_size):
    values = {field.name: field.default for field in dataclasses.fields(TrainingArguments)}
    args = types.SimpleNamespace(**{**values, **ARGUMENTS, **given, "world_size": world_size})
    args.get_warmup_steps = types.MethodType(TrainingArguments.get_warmup_steps, args)
    integration = HfTrainerDeepSpeedConfig(copy.deepcopy(config))
    integration.trainer_config_process(args)
    try:
        integration.trainer_config_finalize(args, types.SimpleNamespace(), args.max_steps)
    except ValueError as error:
        return re.findall(r"^- ds (\S+)=", str(error), re.MULTILINE)
    return []


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if transformers.__version__ != "5.24.0":
        sys.exit(f"this needs transformers 5.24.0, not {transformers.__version__}")
    files = {
        "trainer_flags.json": [row_of_flags(*case) for case in FLAGGED],
        "trainer_mismatches.json": [{"arguments": {**ARGUMENTS, **given}, "deepspeed": config, "world_size": world_size,
                                     "mismatches": mismatches(given, config, world_size)}
                                    for given, config, world_size in MATCHED]}
    for name, rows in files.items():
        path = pathlib.Path(sys.argv[1]) / name
        path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")
        print(path, path.stat().st_size, file=sys.stderr)


if __name__ == "__main__":
    main()
