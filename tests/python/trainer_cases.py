"""The runs whose logs are compared with DeepSpeed's, most of Hugging Face's trainers: script, ZeRO stage, options."""

import json
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent
GOLDENS = FOLDER / "goldens/trainers.json"
CASES = [
    f"{script} {stage} {options}".strip()
    for script, variants in {
        "hf_trainer": ["", "config_optimizer", "from_pretrained", "offload", "bf16"],
        "accelerate_loop": ["", "config_optimizer"],
        "trl_sft": ["", "lora"],
        "trl_dpo": ["", "precompute"],
        "trl_grpo": [""],
        "checkpoint_loads": [""],
    }.items() for options in variants for stage in (2, 3)
] + ["trl_grpo 3 ref", "alexnet_pipeline 1", "alexnet_pipeline 2"]  # numbers of a pipeline's stages

# Every run has another case of the same trainer of TRL, and of the same option.
NIGHTLY = ["trl_sft 2", "trl_sft 2 lora", "trl_dpo 2", "trl_dpo 3 precompute", "trl_grpo 2", "trl_grpo 3"]


def needs(case):
    """The packages that a case imports, by distribution."""
    script, _, *options = case.split()
    if script == "alexnet_pipeline":
        return ["torch"]
    packages = ["accelerate", "transformers"]
    if script.startswith("trl_"):
        packages += ["datasets", "trl"]
    return packages + (["peft"] if "lora" in options else [])


def command(case, engine):
    script, stage, *options = case.split()
    return [str(FOLDER / f"{script}.py"), engine, stage, *options]


def read_log(output):
    """The records that libraries.log has printed."""
    return [json.loads(line.split("LOG ", 1)[1]) for line in output.splitlines() if "LOG {" in line]
