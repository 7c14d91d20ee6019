#!/usr/bin/env python3
"""Runs the scripts by which Accelerate tests its use of DeepSpeed (accelerate/test_utils/scripts/external_deps) on
dsrun.compat, unmodified, with the environment that `accelerate launch --use_deepspeed` gives them.

    accelerate_scripts_test.py --bin DIR [--python PATH] [--all] [CASE ...]      options as trainers_test.py

By default a chosen few run, with --all each case. The scripts get a tiny model and glue_stand_in in place of what they
would download. Not among them: test_peak_memory_usage.py and test_zero3_integration.py, which need a GPU,
test_ds_alst_ulysses_sp.py, which trains with sequence parallelism, and those that do not use DeepSpeed. Accelerate's
examples are in no package: accelerate_examples.py runs them from a checkout.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from trainer_cases import FOLDER
from trainers_test import exit_without, missing_packages, parse_options

# As in tests/deepspeed of Accelerate, which the package does not have.
FP16 = {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2,
        "min_loss_scale": 1}
OPTIMIZER = {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto", "torch_adam": True,
                                         "adam_w_mode": True}}
SCHEDULER = {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                                            "warmup_num_steps": "auto"}}
CPU = {"device": "cpu", "pin_memory": False}


def zero_section(stage):
    zero = {"stage": stage, "overlap_comm": True, "contiguous_gradients": True, "reduce_bucket_size": "auto",
            "offload_optimizer": CPU}
    if stage == 2:
        return zero | {"allgather_partitions": True, "allgather_bucket_size": 2e8, "reduce_scatter": True}
    return zero | {"offload_param": CPU, "sub_group_size": 1e9, "stage3_prefetch_bucket_size": "auto",
                   "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9,
                   "stage3_max_reuse_distance": 1e9, "stage3_gather_16bit_weights_on_model_save": "auto"}


def ds_config(stage, with_optimizer):
    config = {"fp16": FP16, "bf16": {"enabled": "auto"}, "zero_optimization": zero_section(stage)}
    if not with_optimizer and stage == 3:  # without values that are filled in from a model's config
        config["zero_optimization"] = {"stage": 3, "offload_param": CPU} | {
            f"stage3_{name}": 1e9 for name in ("prefetch_bucket_size", "param_persistence_threshold",
                                               "max_live_parameters", "max_reuse_distance")}
        return config | {"train_micro_batch_size_per_gpu": 1}
    optimizer = {"optimizer": OPTIMIZER, "scheduler": SCHEDULER} if with_optimizer else {}
    return config | optimizer | {
        "gradient_accumulation_steps": 1, "gradient_clipping": "auto", "steps_per_print": 2000,
        "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "wall_clock_breakdown": False}


MAKE_MODEL = """
import sys, torch
sys.path.insert(0, {stand_in!r})
from datasets import WORDS
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast
vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
open({folder!r} + "/vocab.txt", "w").write("\\n".join(vocabulary))
BertTokenizerFast({folder!r} + "/vocab.txt").save_pretrained({folder!r})
torch.manual_seed(3)
model = BertForSequenceClassification(BertConfig(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=64,
    vocab_size=len(vocabulary)))
torch.nn.init.zeros_(model.classifier.weight)
model.classifier.bias.data = torch.tensor([{bias}, -{bias}])
model.save_pretrained({folder!r})
"""


# The models begin with the rarer label, by twice this, and learn the other one in their second epoch or later. The
# difference grows by some 1.4e-4 in a step; an epoch has two steps on two ranks and four on one.
BIAS, BIAS_OF_ONE_RANK = 1.7e-4, 9e-4


class Runner:
    def __init__(self, options, folder):
        self.options, self.folder, self.runs = options, folder, 0
        self.stand_in = str(FOLDER / "glue_stand_in")
        self.models = {2: self.make_model("model", BIAS), 1: self.make_model("model_of_one_rank", BIAS_OF_ONE_RANK)}
        found = subprocess.run([options.python, "-c", "import accelerate; print(accelerate.__path__[0])"], check=True,
                               capture_output=True, text=True)
        self.scripts = pathlib.Path(found.stdout.strip(), "test_utils/scripts/external_deps")
        # A script reads its ds_configs from beside the package.
        self.copies = pathlib.Path(folder, "src/accelerate/test_utils/scripts/external_deps")
        shutil.copytree(self.scripts, self.copies)
        configs = pathlib.Path(folder, "tests/deepspeed")
        configs.mkdir(parents=True)
        for stage in (2, 3):
            for suffix, with_optimizer in (("", True), ("_model_only", False)):
                path = configs / f"ds_config_zero{stage}{suffix}.json"
                path.write_text(json.dumps(ds_config(stage, with_optimizer)))

    def make_model(self, name, bias):
        folder = os.path.join(self.folder, name)
        os.mkdir(folder)
        program = MAKE_MODEL.format(stand_in=self.stand_in, folder=folder, bias=bias)
        subprocess.run([self.options.python, "-c", program], check=True, env=dict(os.environ, HF_HUB_OFFLINE="1"))
        return folder

    def run(self, name, variables, *arguments, ranks=2):
        return self.launch(self.copies / name, variables, "--model_name_or_path", self.models[ranks], *arguments,
                           ranks=ranks)

    def launch(self, script, variables, *arguments, ranks=2, further=None):
        """Runs a script; further, the folder of other modules that it imports, is glue_stand_in by default."""
        package = os.environ.get("PYTHONPATH", self.options.bin.parent / "python")
        environment = dict(os.environ, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", HF_HOME=self.folder,
                           TOKENIZERS_PARALLELISM="false", PYTHONPATH=f"{package}:{further or self.stand_in}",
                           ACCELERATE_USE_DEEPSPEED="true", **variables)
        self.runs += 1
        return subprocess.run(
            [self.options.bin / "dsrun", "-n", str(ranks), "--run_dir", os.path.join(self.folder, f"run{self.runs}"),
             "run", "--python", self.options.python, "-m", "--", "dsrun.compat", str(script), *arguments],
            cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False)


def stage_variables(stage, offload="none", mixed_precision="no"):
    return {"ACCELERATE_MIXED_PRECISION": mixed_precision, "ACCELERATE_CONFIG_DS_FIELDS":
            "zero_stage,gradient_accumulation_steps,offload_optimizer_device,offload_param_device",
            "ACCELERATE_DEEPSPEED_ZERO_STAGE": str(stage), "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "1",
            "ACCELERATE_GRADIENT_CLIPPING": "1.0", "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE": offload,
            "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE": offload if stage == 3 else "none",
            "ACCELERATE_DEEPSPEED_ZERO3_INIT": "true", "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL": "true"}


def config_variables(folder, stage):
    return {"ACCELERATE_MIXED_PRECISION": "no", "ACCELERATE_DEEPSPEED_CONFIG_FILE":
            os.path.join(folder, f"tests/deepspeed/ds_config_zero{stage}.json"),
            "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL": "true"}


# Three of four pairs have the label that the model learns; with the one that it begins with, a quarter is right.
ACCURACY = 0.75


def performance(runner, variables):
    yield runner.run("test_performance.py", variables, "--output_dir", runner.folder, "--num_epochs", "3",
                     "--performance_lower_bound", str(ACCURACY))


def checkpointing(runner, variables):
    with tempfile.TemporaryDirectory(dir=runner.folder) as folder:
        options = ["--output_dir", folder]
        yield runner.run("test_checkpointing.py", variables, *options, "--partial_train_epoch", "1")
        yield runner.run("test_checkpointing.py", variables, *options, "--resume_from_checkpoint", f"{folder}/epoch_0")


def multiple_models(runner, variables):
    yield runner.run("test_ds_multiple_model.py", variables, "--num_epochs", "4", ranks=1)


def cases(folder):
    """Each case's name, function and variables."""
    for stage in (1, 2, 3):
        yield f"performance {stage}", performance, stage_variables(stage)
    for stage in (2, 3):
        yield f"performance {stage} offload", performance, stage_variables(stage, "cpu")
        yield f"performance {stage} config", performance, config_variables(folder, stage)
        yield f"checkpointing {stage}", checkpointing, stage_variables(stage)
        yield f"checkpointing {stage} config", checkpointing, config_variables(folder, stage)
    yield "multiple_models", multiple_models, {"ACCELERATE_MIXED_PRECISION": "bf16"}


QUICK = ["performance 2 offload", "checkpointing 3 config"]


def main():
    options = parse_options("--all")
    missing = missing_packages(options.python, ["accelerate", "transformers"])
    if missing:
        exit_without("peers", missing)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(options, folder)
        known = {name: rest for name, *rest in cases(folder)}
        for name in known if options.all else options.cases or QUICK:
            function, variables = known[name]
            wrong = ""
            for result in function(runner, variables):
                if result.returncode != 0:
                    wrong = f"status {result.returncode}\n{result.stdout[-6000:]}"
                    break
            failed += bool(wrong)
            print("FAILED" if wrong else "ok", name, wrong, flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
