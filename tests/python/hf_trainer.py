"""transformers' Trainer with a ds_config of "auto" values: accumulation, clipping, a linear
schedule with warmup, evaluation, saving, and resumption from the saved checkpoint.

Options: config_optimizer (ds_config's AdamW and WarmupDecayLR in place of the Trainer's),
from_pretrained (the model is read from a folder, at stage 3 within zero.Init), offload (the
optimizer's state in host memory), bf16.
"""

import os
import tempfile

from libraries import OPTIONS, ds_config, log, log_history, make_llama

import torch
from transformers import LlamaForCausalLM, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __init__(self, first, count):
        self.items = []
        for index in range(first, first + count):
            generator = torch.Generator().manual_seed(index)
            tokens = torch.randint(3, 64, (16,), generator=generator)
            self.items.append({"input_ids": tokens, "labels": tokens.clone()})

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def make_model(folder):
    if "from_pretrained" not in OPTIONS:
        return make_llama()
    path = os.path.join(folder, "model")
    if os.environ["RANK"] == "0":
        make_llama().save_pretrained(path)
    torch.distributed.barrier()
    return LlamaForCausalLM.from_pretrained(path)


def make_trainer(folder):
    sections = {}
    if "config_optimizer" in OPTIONS:
        sections = {
            "optimizer": {"type": "AdamW", "params": {
                "lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
            "scheduler": {"type": "WarmupDecayLR", "params": {
                "total_num_steps": "auto", "warmup_min_lr": "auto", "warmup_max_lr": "auto",
                "warmup_num_steps": "auto"}}}
    if "offload" in OPTIONS:
        sections["zero_force_ds_cpu_optimizer"] = True
    config = ds_config(**sections)
    if "offload" in OPTIONS:
        config["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
    arguments = TrainingArguments(
        output_dir=folder, deepspeed=config, bf16="bf16" in OPTIONS,
        per_device_train_batch_size=2, per_device_eval_batch_size=2,
        gradient_accumulation_steps=2, max_grad_norm=0.7, learning_rate=1e-3, weight_decay=0.01,
        warmup_steps=2, lr_scheduler_type="linear", max_steps=6, logging_steps=1,
        eval_strategy="steps", eval_steps=3, save_steps=3, save_strategy="steps",
        report_to=[], seed=5, disable_tqdm=True)
    return Trainer(model=make_model(folder), args=arguments, train_dataset=Tokens(0, 64),
                   eval_dataset=Tokens(900, 8))


def main():
    # The ranks share one folder.
    folder = os.path.join(tempfile.gettempdir(), f"hf_trainer.{os.environ['MASTER_PORT']}")
    first = make_trainer(folder)
    first.train()
    log_history(first)
    state = first.accelerator.get_state_dict(first.deepspeed)
    if os.environ["RANK"] == "0":
        log({"weights": sum(value.double().abs().sum().item() for value in state.values())})
    resumed = make_trainer(folder)
    resumed.train(resume_from_checkpoint=os.path.join(folder, "checkpoint-3"))
    log_history(resumed)


if __name__ == "__main__":
    main()
