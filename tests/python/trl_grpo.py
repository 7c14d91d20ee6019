"""TRL's GRPOTrainer, which generates with the trained weights. Option: ref (a model that is loaded
from a folder, and its reference model)."""

import os
import tempfile

from libraries import OPTIONS, ds_config, log_history, make_llama, make_tokenizer, sentence

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer


def reward_even_tokens(completion_ids, **_):
    return [sum(token % 2 == 0 for token in ids) / 8 for ids in completion_ids]


def main():
    folder = os.path.join(tempfile.gettempdir(), f"trl_grpo.{os.environ['MASTER_PORT']}")
    model = make_llama()
    if "ref" in OPTIONS:
        path = os.path.join(folder, f"model-{os.environ['RANK']}")
        model.save_pretrained(path)
        model = path
    arguments = GRPOConfig(
        output_dir=folder, deepspeed=ds_config(), per_device_train_batch_size=2, num_generations=2,
        gradient_accumulation_steps=2, max_completion_length=8, learning_rate=2e-3, max_steps=3,
        beta=0.1 if "ref" in OPTIONS else 0.0, logging_steps=1, save_strategy="no", bf16=False,
        report_to=[], seed=5, disable_tqdm=True)
    train = Dataset.from_dict({"prompt": [sentence(i, 4) for i in range(16)]})
    trainer = GRPOTrainer(model=model, reward_funcs=reward_even_tokens, args=arguments,
                          train_dataset=train, processing_class=make_tokenizer())
    trainer.train()
    log_history(trainer)


if __name__ == "__main__":
    main()
