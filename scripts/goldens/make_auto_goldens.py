#!/usr/bin/env python3
"""Makes tests/unit/config/goldens/auto.json with the DeepSpeed integration of transformers.

    python scripts/goldens/make_auto_goldens.py tests/unit/config/goldens

Needs transformers 5.23.0, accelerate and deepspeed; the test that reads the golden needs no Python. A case
is [config, flags, world size, config.json or null, steps, config with every "auto" filled in]. The last is
null where the integration refuses: no hidden size, or a flag that contradicts the config.
"""

import copy
import dataclasses
import json
import logging
import pathlib
import random
import sys
import types

import transformers
from transformers import AutoConfig, TrainingArguments
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

MODELS = {"gpt2": {}, "llama": {"hidden_size": 512}, "t5": {}, "distilbert": {}, "gemma3": {}, "whisper": {},
          "segformer": {}, "codegen": {"n_embd": 321}}
HIDDEN_SIZE_KEYS = ["reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold"]
FLAGS = {"per_device_train_batch_size": [1, 4], "gradient_accumulation_steps": [1, 3], "learning_rate": [1e-3, 2e-5],
         "adam_beta1": [0.8], "adam_beta2": [0.95], "adam_epsilon": [1e-6], "weight_decay": [0.1],
         "max_grad_norm": [0.5, 0.0], "warmup_steps": [0, 7, 0.25, 0.03], "bf16": [True], "fp16": [True]}


def arguments(flags, world_size):
    """TrainingArguments as it fills itself in, without the devices that it asks about."""
    values = {field.name: field.default for field in dataclasses.fields(TrainingArguments)}
    args = types.SimpleNamespace(**{**values, **flags, "world_size": world_size})
    args.get_warmup_steps = types.MethodType(TrainingArguments.get_warmup_steps, args)
    return args


def full_config(stage):
    return {
        "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto", "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"},
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
                                                  "weight_decay": "auto"}},
        "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                                                          "warmup_num_steps": "auto", "total_num_steps": "auto"}},
        "zero_optimization": {"stage": stage, **{key: "auto" for key in HIDDEN_SIZE_KEYS}},
    }


def cases():
    rng = random.Random(5)
    for name, changes in MODELS.items():
        yield full_config(3), {}, 2, (name, changes), 100
    yield full_config(3), {}, 1, ("nothing", {}), 100
    for _ in range(60):
        config = full_config(rng.choice([0, 1, 2, 3]))
        flags = {flag: rng.choice(values) for flag, values in FLAGS.items() if rng.random() < 0.4}
        if flags.get("bf16"):
            flags.pop("fp16", None)
        if rng.random() < 0.3:  # some keys have values of their own, which may contradict the flags
            config["optimizer"]["params"]["lr"] = config["scheduler"]["params"]["warmup_max_lr"] = 2e-5
            flags["learning_rate"] = rng.choice([2e-5, 1e-3])
        if rng.random() < 0.2:
            config["gradient_clipping"], flags["max_grad_norm"] = 0.5, rng.choice([0.5, 0.0])
        yield config, flags, rng.choice([1, 2, 6]), ("gpt2", {"n_embd": rng.choice([64, 96, 1600])}), rng.choice([1, 99, 1000])


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if transformers.__version__ != "5.23.0":
        sys.exit(f"this needs transformers 5.23.0, not {transformers.__version__}")
    logging.disable(logging.CRITICAL)
    lines = []
    for config, flags, world_size, (name, changes), steps in cases():
        model_config = types.SimpleNamespace() if name == "nothing" else AutoConfig.for_model(name, **changes)
        json_config = {} if name == "nothing" else model_config.to_dict()
        kept = {key: json_config[key] for key in ("hidden_size", "n_embd", "d_model", "dim", "hidden_sizes")
                if json_config.get(key) is not None}
        if json_config.get("text_config"):
            kept["text_config"] = {"hidden_size": json_config["text_config"]["hidden_size"]}
        try:
            integration = HfTrainerDeepSpeedConfig(copy.deepcopy(config))
            args = arguments(flags, world_size)
            integration.trainer_config_process(args)
            integration.trainer_config_finalize(args, types.SimpleNamespace(config=model_config), steps)
            answer = integration.config
        except ValueError:
            answer = None
        lines.append(json.dumps([config, flags, world_size, kept, steps, answer]))
    path = pathlib.Path(sys.argv[1]) / "auto.json"
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
