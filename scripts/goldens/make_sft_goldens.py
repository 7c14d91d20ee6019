#!/usr/bin/env python3
"""Makes tests/numerics/goldens/sft with TRL: what its SFTTrainer computes in twenty steps.

    python scripts/goldens/make_sft_goldens.py tests/numerics/goldens

Needs torch 2.11, transformers 5 and trl 1.16 from PyPI. The model is goldens/llama; a token is a word.
  prompts.jsonl, chats.jsonl  the same conversations as prompt and completion, and as messages; what is
                              learnt is the completion, or what the assistant says, with its end
  tokenizer.json ...          their tokenizer, with a chat template that marks what the assistant says
  trl.json                    losses and gradient norms of both, of four samples a step in their order
"""

import json
import pathlib
import random
import sys
import tempfile

import datasets
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from trl import SFTConfig, SFTTrainer

STEPS, BATCH, SEQ_LEN, VOCABULARY = 20, 4, 32, 320
SPECIAL = ["</s>", "<unk>", "<pad>"]
TEMPLATE = ("{% for message in messages %}{% if message.role == 'user' %}{{ 'w9 ' + message.content + ' w8 ' }}"
            "{% else %}{% generation %}{{ message.content + '</s>' }}{% endgeneration %}{{ ' ' }}{% endif %}"
            "{% endfor %}")


def conversations():
    """Prompts and answers of several lengths, each of which fits into a sample (TRL cuts the rest off)."""
    draw = random.Random(5)
    words = lambda count: " ".join(f"w{draw.randrange(10, VOCABULARY)}" for _ in range(count))
    return [(words(draw.randrange(1, 12)), words(draw.randrange(1, 18))) for _ in range(STEPS * BATCH)]


def make_tokenizer(folder):
    vocabulary = {name: i for i, name in enumerate(SPECIAL + [f"w{i}" for i in range(3, VOCABULARY)])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>", pad_token="<pad>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    return fast


class InOrder(SFTTrainer):
    def _get_train_sampler(self, dataset=None):
        return torch.utils.data.SequentialSampler(dataset if dataset is not None else self.train_dataset)


def run(model_folder, tokenizer, rows, **more):
    model = transformers.AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        return train(model, tokenizer, rows, folder, **more)


def train(model, tokenizer, rows, folder, **more):
    arguments = SFTConfig(
        output_dir=folder, max_length=SEQ_LEN, packing=False, per_device_train_batch_size=BATCH,
        max_steps=STEPS, learning_rate=1e-2, lr_scheduler_type="constant", optim="adamw_torch", weight_decay=0.0,
        max_grad_norm=1.0, logging_steps=1, save_strategy="no", report_to=[], use_cpu=True, bf16=False,
        gradient_checkpointing=False, disable_tqdm=True, seed=1, **more)
    trainer = InOrder(model=model, args=arguments, train_dataset=datasets.Dataset.from_list(rows),
                      processing_class=tokenizer)
    trainer.train()
    logs = [row for row in trainer.state.log_history if "loss" in row]
    return {"losses": [row["loss"] for row in logs], "grad_norms": [row["grad_norm"] for row in logs]}


def main():
    torch.set_num_threads(1)
    goldens = pathlib.Path(sys.argv[1])
    out = goldens / "sft"
    out.mkdir(exist_ok=True)
    tokenizer = make_tokenizer(out)
    prompts = [{"prompt": prompt + " ", "completion": answer} for prompt, answer in conversations()]
    chats = [{"messages": [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]}
             for prompt, answer in conversations()]
    for name, rows in (("prompts", prompts), ("chats", chats)):
        (out / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    golden = {"prompts": run(goldens / "llama", tokenizer, prompts),
              "chats": run(goldens / "llama", tokenizer, chats, assistant_only_loss=True)}
    (out / "trl.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
