"""Seq2SeqTrainer with a ds_config of "auto" values, which evaluates by generate(), as transformers' guide has it."""

import json
import os
import sys

import torch
from transformers import (DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments, T5Config,
                          T5ForConditionalGeneration)


class Pairs(torch.utils.data.Dataset):
    """The target is the source's first half."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(2, 32, (count, 8), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index].tolist(), "attention_mask": [1] * 8,
                "labels": self.tokens[index][:4].tolist()}


class PadTokens:
    padding_side = "right"

    def pad(self, features, **options):
        return {name: torch.tensor([feature[name] for feature in features]) for name in features[0]}


def main():
    folder, config = sys.argv[1:]
    arguments = Seq2SeqTrainingArguments(
        output_dir=folder, deepspeed=config, per_device_train_batch_size=4, per_device_eval_batch_size=4,
        learning_rate=3e-3, warmup_steps=2, max_steps=6, logging_steps=1, eval_strategy="steps", eval_steps=3,
        save_strategy="no", predict_with_generate=True, generation_max_length=6, report_to=[], seed=3,
        disable_tqdm=True)
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(T5Config(
        d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=32, dropout_rate=0.0,
        decoder_start_token_id=0, pad_token_id=0, eos_token_id=1))

    def compute_metrics(result):
        predictions, labels = result
        return {"tokens": int(predictions.sum()), "equal": int((predictions[:, 1:5] == labels[:, :4]).sum())}

    trainer = Seq2SeqTrainer(
        model=model, args=arguments, train_dataset=Pairs(64, 1), eval_dataset=Pairs(8, 2),
        data_collator=DataCollatorForSeq2Seq(PadTokens(), model=model, padding=False),
        compute_metrics=compute_metrics)
    trainer.train()
    if os.environ["RANK"] == "0":
        for record in trainer.state.log_history:
            print("LOG", json.dumps({name: value for name, value in record.items() if name in (
                "loss", "grad_norm", "learning_rate", "eval_loss", "eval_tokens", "eval_equal")}), flush=True)


if __name__ == "__main__":
    main()
