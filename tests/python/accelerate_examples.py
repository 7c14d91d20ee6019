#!/usr/bin/env python3
"""Runs the examples of Accelerate that its users of DeepSpeed begin with on dsrun.compat, unmodified.

    accelerate_examples.py --bin DIR [--python PATH] EXAMPLES      options as trainers_test.py

EXAMPLES is the folder `examples` of a checkout of Accelerate. No package has it, so no entry of ctest runs this. As for
accelerate_scripts_test.py, the model is a tiny one and the data are random.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from accelerate_scripts_test import Runner, config_variables, stage_variables
from trainers_test import parse_options

MAKE_GPT2 = """
import sys, torch
sys.path.insert(0, {stand_in!r})
from datasets import _make_rows
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
lines = [row["sentence1"] for row in _make_rows("train", 200)]
open({folder!r} + "/text.txt", "w").write("\\n".join(lines))
tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.train_from_iterator(lines, trainers.WordLevelTrainer(special_tokens=["<unk>", "<eos>"]))
PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<eos>",
                        model_max_length=32).save_pretrained({folder!r})
torch.manual_seed(3)
GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=32, n_embd=32, n_layer=2, n_head=4, bos_token_id=1,
                           eos_token_id=1)).save_pretrained({folder!r})
"""


def epochs_of(result, first, last=2):
    """The metrics that a script prints after each epoch; an error with its output if one is missing."""
    found = dict(re.findall(r"epoch (\d+): (\{'accuracy'.*?\})", result.stdout))
    if result.returncode != 0 or sorted(found) != [str(epoch) for epoch in range(first, last + 1)]:
        raise AssertionError(f"status {result.returncode}, epochs {sorted(found)}\n{result.stdout[-6000:]}")
    return found


def nlp_example(runner, examples):
    for stage in (2, 3):
        epochs_of(runner.launch(examples / "nlp_example.py", stage_variables(stage)), 0)


def gradient_accumulation(runner, examples):
    variables = {**stage_variables(2), "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "2"}
    epochs_of(runner.launch(examples / "by_feature/gradient_accumulation.py", variables,
                            "--gradient_accumulation_steps", "2"), 0)


def checkpointing(runner, examples):
    script, folder = examples / "by_feature/checkpointing.py", os.path.join(runner.folder, "states")
    for stage in (2, 3):
        whole = epochs_of(runner.launch(script, stage_variables(stage), "--checkpointing_steps", "epoch",
                                        "--output_dir", folder), 0)
        resumed = epochs_of(runner.launch(script, stage_variables(stage), "--resume_from_checkpoint",
                                          f"{folder}/epoch_0"), 1)
        assert resumed == {epoch: whole[epoch] for epoch in resumed}, (whole, resumed)


def config_support(runner, examples):
    """The script raises if the best checkpoint, loaded again, has another perplexity than before."""
    model = pathlib.Path(runner.folder, "gpt2")
    model.mkdir()
    program = MAKE_GPT2.format(stand_in=runner.stand_in, folder=str(model))
    subprocess.run([runner.options.python, "-c", program], check=True, env=dict(os.environ, HF_HUB_OFFLINE="1"))
    for stage in (2, 3):
        run_config_support(runner, examples, stage, model)


def run_config_support(runner, examples, stage, model):
    output = pathlib.Path(runner.folder, f"gpt2_trained_{stage}")
    result = runner.launch(
        examples / "by_feature/deepspeed_with_config_support.py", config_variables(runner.folder, stage),
        "--model_name_or_path", str(model), "--train_file", str(model / "text.txt"), "--block_size", "16",
        "--per_device_train_batch_size", "4", "--per_device_eval_batch_size", "2", "--learning_rate", "1e-2",
        "--num_train_epochs", "2", "--checkpointing_steps", "epoch", "--load_best_model", "--seed", "3",
        "--validation_split_percentage", "10", "--output_dir", str(output), further=str(model))
    assert result.returncode == 0, result.stdout[-6000:]
    # A model that only knows which words there are has 17; one that knows nothing 32.
    perplexity = json.loads((output / "all_results.json").read_text())["perplexity"]
    assert perplexity < 18, perplexity
    assert (output / "model.safetensors").exists(), os.listdir(output)


def main():
    options = parse_options()
    examples, failed = pathlib.Path(options.cases[0]).absolute(), 0
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(options, folder)
        os.symlink(runner.models[2], os.path.join(folder, "bert-base-cased"))
        for case in (nlp_example, gradient_accumulation, checkpointing, config_support):
            try:
                case(runner, examples)
                print("ok", case.__name__, flush=True)
            except AssertionError as error:
                failed += 1
                print("FAILED", case.__name__, error, flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
