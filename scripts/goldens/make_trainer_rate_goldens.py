#!/usr/bin/env python3
"""Makes tests/unit/cli/goldens/trainer_rates.json: the learning rate of every step that transformers' Trainer takes.

    python scripts/goldens/make_trainer_rate_goldens.py tests/unit/cli/goldens

Needs torch 2.11, transformers 5.24.0, accelerate and deepspeed 0.19.8. A row is {"arguments": TrainingArguments that
are given, "deepspeed": the ds_config or null, "rates": [...]}. Without a scheduler in the ds_config Trainer makes its
own by get_scheduler; with one, the integration fills in what is "auto" and DeepSpeed makes it.
"""

import copy
import json
import pathlib
import sys
import types

import torch
import transformers
from deepspeed.runtime import lr_schedules
from transformers import TrainingArguments, get_scheduler
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig


def deepspeed(scheduler, **params):
    return {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
            "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
                                                      "weight_decay": "auto"}},
            **({"scheduler": {"type": scheduler, "params": params}} if scheduler else {})}


DECAY = deepspeed("WarmupDecayLR", warmup_min_lr="auto", warmup_max_lr="auto", warmup_num_steps="auto",
                  total_num_steps="auto")
COSINE = deepspeed("WarmupCosineLR", warmup_num_steps="auto", total_num_steps="auto", cos_min_ratio=0.05)
WARMUP = deepspeed("WarmupLR", warmup_min_lr="auto", warmup_max_lr="auto", warmup_num_steps="auto",
                   warmup_type="linear")

CASES = [
    ({"max_steps": 12}, None),
    ({"max_steps": 8, "learning_rate": 3e-4, "warmup_steps": 3}, None),
    ({"max_steps": 20, "learning_rate": 3e-4, "warmup_ratio": 0.1}, None),
    ({"max_steps": 17, "learning_rate": 2e-4, "warmup_steps": 0.25, "lr_scheduler_type": "cosine"}, None),
    ({"max_steps": 15, "learning_rate": 1e-5, "lr_scheduler_type": "constant", "warmup_steps": 4}, None),
    ({"max_steps": 15, "learning_rate": 1e-5, "lr_scheduler_type": "constant_with_warmup", "warmup_steps": 4}, None),
    ({"max_steps": 24, "learning_rate": 4e-4, "warmup_steps": 2, "lr_scheduler_type": "cosine_with_restarts",
      "lr_scheduler_kwargs": {"num_cycles": 3}}, None),
    ({"max_steps": 8, "learning_rate": 3e-4, "warmup_steps": 3, "lr_scheduler_type": "polynomial",
      "lr_scheduler_kwargs": {"power": 2.0, "lr_end": 1e-5}}, None),
    ({"max_steps": 18, "learning_rate": 3e-4, "warmup_ratio": 0.2, "lr_scheduler_type": "inverse_sqrt"}, None),
    ({"max_steps": 18, "learning_rate": 3e-4, "warmup_steps": 5, "lr_scheduler_type": "cosine_with_min_lr",
      "lr_scheduler_kwargs": {"min_lr": 3e-5, "min_lr_rate": None}}, None),
    ({"max_steps": 18, "learning_rate": 3e-4, "warmup_steps": 5, "lr_scheduler_type": "cosine_warmup_with_min_lr",
      "lr_scheduler_kwargs": {"min_lr_rate": 0.1, "warmup_lr_rate": 0.02}}, None),
    ({"max_steps": 16, "learning_rate": 3e-4, "warmup_ratio": 0.1, "lr_scheduler_type": "warmup_stable_decay",
      "lr_scheduler_kwargs": "{\"num_decay_steps\": 6, \"decay_type\": \"1-sqrt\", \"min_lr_ratio\": 0.1}"}, None),
    ({"max_steps": 8, "learning_rate": 3e-4, "warmup_steps": 3}, DECAY),
    ({"max_steps": 30, "learning_rate": 2e-4, "warmup_ratio": 0.2, "adam_beta2": 0.95}, DECAY),
    ({"max_steps": 9}, DECAY),
    ({"max_steps": 25, "learning_rate": 6e-4, "warmup_steps": 7}, COSINE),
    ({"max_steps": 11, "learning_rate": 6e-4, "warmup_steps": 0.3}, WARMUP),
    ({"max_steps": 14, "learning_rate": 7e-4, "warmup_steps": 4, "lr_scheduler_type": "cosine"}, deepspeed(None)),
]


def rates_of(given, config):
    given = dict(given)
    if "warmup_ratio" in given:  # of earlier versions; now warmup_steps below 1
        given["warmup_steps"] = given.pop("warmup_ratio")
    args = TrainingArguments(output_dir="out", use_cpu=True, **given)
    steps = args.max_steps
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=args.learning_rate)
    if config is not None:
        integration = HfTrainerDeepSpeedConfig(copy.deepcopy(config))
        integration.trainer_config_process(args)
        integration.trainer_config_finalize(args, types.SimpleNamespace(), steps)
        assert integration.config["optimizer"]["params"]["lr"] == args.learning_rate
    if config is not None and "scheduler" in config:
        section = integration.config["scheduler"]
        schedule = getattr(lr_schedules, section["type"])(optimizer, **section["params"])
    else:
        schedule = get_scheduler(args.lr_scheduler_type, optimizer, args.get_warmup_steps(steps), steps,
                                 scheduler_specific_kwargs=args.lr_scheduler_kwargs)
    rates = []
    for _ in range(steps):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        schedule.step()
    return rates


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if transformers.__version__ != "5.24.0":
        sys.exit(f"this needs transformers 5.24.0, not {transformers.__version__}")
    rows = [{"arguments": given, "deepspeed": config, "rates": rates_of(given, config)} for given, config in CASES]
    path = pathlib.Path(sys.argv[1]) / "trainer_rates.json"
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")
    print(path, path.stat().st_size, file=sys.stderr)


if __name__ == "__main__":
    main()
