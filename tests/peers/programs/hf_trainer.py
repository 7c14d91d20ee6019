"""Hugging Face Trainer on a tiny random GPT-2; nothing in it knows who starts it."""

import gc
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        tokens = (torch.arange(16) + index) % 64
        return {"input_ids": tokens, "labels": tokens}


def train():
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2,
                                       bos_token_id=0, eos_token_id=0))
    arguments = TrainingArguments(output_dir=sys.argv[1], max_steps=4, per_device_train_batch_size=4,
                                  use_cpu=True, report_to=[], save_strategy="no", logging_steps=2,
                                  disable_tqdm=True)
    trainer = Trainer(model=model, args=arguments, train_dataset=Samples())
    result = trainer.train()
    assert result.global_step == 4
    print(f"rank {arguments.process_index} of {arguments.world_size} finished, "
          f"local rank {arguments.local_process_index}", flush=True)


def main():
    train()
    # The trainer's DDP holds the process group and is part of a cycle: see torch_ddp.py.
    gc.collect()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
