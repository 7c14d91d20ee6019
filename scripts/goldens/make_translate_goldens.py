"""Writes what `dsrun translate` has to know of the real programs: the arguments of transformers' Trainer with their
defaults, the keys of Accelerate's config, files that Accelerate writes and what PyYAML reads in them, the files of
Accelerate in TRL's package, the arguments of TRL's trainers, the rates of transformers' schedules.

    python scripts/goldens/make_translate_goldens.py tests/unit/cli/goldens

Needs torch, transformers 5.24.0, accelerate 1.15.0 and trl 1.16.0.
"""

import argparse
import dataclasses
import json
import pathlib
import sys
import tempfile

import accelerate
import torch
import transformers
import trl
import yaml
from accelerate.commands import launch
from accelerate.commands.config.config_args import ClusterConfig
from transformers import TrainingArguments, get_scheduler


def default_of(field):
    if field.default is not dataclasses.MISSING:
        return getattr(field.default, "value", field.default)
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else None


def options_of(is_wanted):
    """Options of `accelerate launch`, which are the keys of the sections of a config."""
    names = [action.dest for action in launch.launch_command_parser()._actions]
    return sorted(name for name in names if is_wanted(name))


def fields_of(config):
    """The fields that `config` adds to TrainingArguments, and those whose default it changes."""
    of_trainer = {field.name: default_of(field) for field in dataclasses.fields(TrainingArguments)}
    own = {field.name: default_of(field) for field in dataclasses.fields(config)}
    return {name: value for name, value in own.items() if name not in of_trainer or of_trainer[name] != value}


def trl_files():
    folder = pathlib.Path(trl.__file__).parent / "accelerate_configs"
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.yaml"))}


TRL = ("SFTConfig", "DPOConfig", "KTOConfig", "RewardConfig", "GRPOConfig", "RLOOConfig", "DistillationConfig")
DEEPSPEED = ("deepspeed_", "zero", "offload_", "gradient_")
COMMON = {"compute_environment": "LOCAL_MACHINE", "use_cpu": False, "debug": False}


def yaml_files():
    configs = [
        ClusterConfig(distributed_type="DEEPSPEED", mixed_precision="bf16", num_processes=8, num_machines=2,
                      main_process_ip="10.0.0.1", main_process_port=29500, downcast_bf16="no",
                      deepspeed_config={"gradient_accumulation_steps": 4, "gradient_clipping": 1.0, "zero_stage": 3,
                                        "offload_optimizer_device": "nvme", "offload_optimizer_nvme_path": "/nvme",
                                        "offload_param_device": "cpu", "zero3_init_flag": True,
                                        "zero3_save_16bit_model": True, "deepspeed_multinode_launcher": "standard"},
                      **COMMON),
        ClusterConfig(distributed_type="FSDP", mixed_precision="fp16", num_processes=4,
                      fsdp_config={"fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_offload_params": True,
                                   "fsdp_backward_prefetch": "BACKWARD_PRE", "fsdp_sharding_strategy": "SHARD_GRAD_OP",
                                   "fsdp_activation_checkpointing": True, "fsdp_min_num_params": 100000000},
                      **COMMON),
        ClusterConfig(distributed_type="MULTI_GPU", mixed_precision="bf16", num_processes=2, gpu_ids="0,2", **COMMON),
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        for config in configs:
            config.to_yaml_file(file.name)
            yield pathlib.Path(file.name).read_text(encoding="utf-8")
    yield "---\n# by hand\nname: 'it''s'   # a comment\ntext: \"a # b\"\nempty:\nnone: ~\nmaps: {}\nlists: []\nswitch: off\n" \
          "number: 1.5\nlarge: 1e5\nitems:\n- a\n- 2\nsection:\n    inner: yes\n    more: 1.e+3\n"


def rates(name, steps, warmup, kwargs):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    schedule = get_scheduler(name, optimizer, warmup, steps, scheduler_specific_kwargs=kwargs)
    result = []
    for _ in range(steps):
        result.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    saved = TrainingArguments(output_dir="out", use_cpu=True, max_steps=5)
    sft = trl.SFTConfig(output_dir="out", use_cpu=True, bf16=False, max_steps=5)
    dpo = trl.DPOConfig(output_dir="out", use_cpu=True, bf16=False, max_steps=5)
    golden = {
        "versions": {"transformers": transformers.__version__, "accelerate": accelerate.__version__,
                     "trl": trl.__version__},
        "trl_fields": {name: fields_of(getattr(trl, name)) for name in TRL},
        "saved_sft": json.loads(sft.to_json_string()),
        "saved_dpo": json.loads(dpo.to_json_string()),
        "trl_files": trl_files(),
        "fields": {field.name: default_of(field) for field in dataclasses.fields(TrainingArguments)},
        "saved": json.loads(saved.to_json_string()),
        "accelerate_keys": sorted(field.name for field in dataclasses.fields(ClusterConfig)),
        "deepspeed_keys": options_of(lambda name: name.startswith(DEEPSPEED)),
        "fsdp_keys": options_of(lambda name: name.startswith("fsdp_")),
        "parallelism_keys": options_of(lambda name: name.startswith("parallelism_config_")),
        "yaml": [{"text": text, "value": yaml.safe_load(text)} for text in yaml_files()],
        "rates": {"linear": rates("linear", 5, 0, {}), "cosine": rates("cosine", 5, 0, {}),
                  "cosine_with_min_lr": rates("cosine_with_min_lr", 5, 0, {"min_lr_rate": 0.1})},
    }
    path = folder / "translate.json"
    path.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")
    print(path, path.stat().st_size, file=sys.stderr)


if __name__ == "__main__":
    main()
