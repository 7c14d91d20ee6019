"""The scripts of guides/, which are written for DeepSpeed, with their arguments and ds_configs."""

import json
import pathlib

from trainer_cases import read_log  # noqa: F401

FOLDER = pathlib.Path(__file__).parent / "guides"
GOLDENS = FOLDER.parent / "goldens/guides.json"

PLAIN = {"train_batch_size": 16, "gradient_accumulation_steps": 2, "gradient_clipping": 0.5,
         "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.01}},
         "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 12, "warmup_num_steps": 2}},
         "zero_optimization": {"stage": 2}}
CONTRASTIVE = {"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 1.0, "zero_optimization": {"stage": 1},
               "zero_allow_untested_optimizer": True}
LORA = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0,
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}}
AUTO = {
    "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                                                 "warmup_num_steps": "auto"}},
    "zero_optimization": {
        "stage": 3, "overlap_comm": True, "contiguous_gradients": True, "sub_group_size": 1e9,
        "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9,
        "stage3_max_reuse_distance": 1e9, "stage3_gather_16bit_weights_on_model_save": True},
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": 2000,
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "wall_clock_breakdown": False}

# The script, its arguments, its ds_config. FOLDER and CONFIG in the arguments are those of the run.
CASES = {
    "plain_loop": ("plain_loop", ["--deepspeed", "--deepspeed_config", "CONFIG"], PLAIN),
    "plain_loop 3": ("plain_loop", ["--deepspeed", "--deepspeed_config", "CONFIG"],
                     {**PLAIN, "zero_optimization": {"stage": 3}}),
    "cifar10 0": ("cifar10_deepspeed", ["--deepspeed", "--stage", "0"], {}),
    "cifar10 3": ("cifar10_deepspeed", ["--deepspeed", "--stage", "3"], {}),
    # With seed 0 an activation lies so close to a ReLU's kink that the last bits decide on its gradient.
    "cifar10 moe 1": ("cifar10_deepspeed", [
        "--deepspeed", "--stage", "1", "--moe", "--ep-world-size", "2", "--num-experts", "2", "--top-k", "1",
        "--noisy-gate-policy", "RSample", "--moe-param-group", "--seed", "1"], {}),
    "cifar10 moe 2": ("cifar10_deepspeed", [
        "--deepspeed", "--stage", "2", "--moe", "--ep-world-size", "2", "--num-experts", "2", "4", "--mlp-type",
        "residual", "--top-k", "2", "--min-capacity", "2", "--moe-param-group"], {}),
    "gpt2 2": ("gpt2_lm", ["--output_dir", "FOLDER"], {}),
    "gpt2 3": ("gpt2_lm", ["--output_dir", "FOLDER", "--stage", "3"], {}),
    "bert 1": ("bert_masked_lm", ["--checkpoint_dir", "FOLDER"], {}),
    "bert 3": ("bert_masked_lm", ["--checkpoint_dir", "FOLDER", "--stage", "3"], {}),
    "t5_auto": ("t5_auto", ["FOLDER", "CONFIG"], AUTO),
    "llama_lora": ("llama_lora", ["--output_dir", "FOLDER", "--deepspeed", "--deepspeed_config", "CONFIG"], LORA),
    "clip": ("clip_contrastive", ["--deepspeed", "--deepspeed_config", "CONFIG"], CONTRASTIVE),
    "clip 3": ("clip_contrastive", ["--deepspeed", "--deepspeed_config", "CONFIG"],
               {**CONTRASTIVE, "zero_optimization": {"stage": 3}}),
}


def needs(case):
    """The packages that a case imports, by distribution."""
    script = CASES[case][0]
    packages = {"bert_masked_lm": ["transformers"], "gpt2_lm": ["transformers"], "llama_lora": ["peft", "transformers"],
                "t5_auto": ["accelerate", "transformers"]}
    return packages.get(script, [])


def command(case, folder):
    """The script and its arguments. Writes the ds_config to the folder."""
    script, arguments, config = CASES[case]
    path = pathlib.Path(folder, "ds_config.json")
    path.write_text(json.dumps(config))
    places = {"FOLDER": str(folder), "CONFIG": str(path)}
    return [str(FOLDER / f"{script}.py"), *(places.get(argument, argument) for argument in arguments)]
