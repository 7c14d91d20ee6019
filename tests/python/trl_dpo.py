"""TRL's DPOTrainer with a reference model: a second engine, which only evaluates.

Options: precompute (the reference log-probabilities are computed before training).
"""

import os
import tempfile

from libraries import OPTIONS, ds_config, log_history, make_llama, make_tokenizer, sentence

from datasets import Dataset
from trl import DPOConfig, DPOTrainer


def make_pairs(first, count):
    for i in range(first, first + count):
        yield {"prompt": sentence(i, 4), "chosen": " " + sentence(100 + i, 6),
               "rejected": " " + sentence(200 + i, 6)}


def pairs(folder, first, count):
    # On disk: TRL's main process precomputes into the data set's folder, where all ranks read.
    return Dataset.from_generator(make_pairs, gen_kwargs={"first": first, "count": count},
                                  cache_dir=os.path.join(folder, "data"))


def main():
    folder = os.path.join(tempfile.gettempdir(), f"trl_dpo.{os.environ['MASTER_PORT']}")
    precompute = "precompute" in OPTIONS
    arguments = DPOConfig(
        output_dir=folder, deepspeed=ds_config(), per_device_train_batch_size=2,
        per_device_eval_batch_size=2, learning_rate=2e-3, max_steps=4, logging_steps=1,
        eval_strategy="steps", eval_steps=2, save_strategy="no", max_length=24, bf16=False,
        gradient_checkpointing=False, report_to=[], seed=5, disable_tqdm=True,
        precompute_ref_log_probs=precompute)
    trainer = DPOTrainer(model=make_llama(), ref_model=None if precompute else make_llama(),
                         args=arguments, train_dataset=pairs(folder, 0, 32),
                         eval_dataset=pairs(folder, 500, 8), processing_class=make_tokenizer())
    trainer.train()
    log_history(trainer)


if __name__ == "__main__":
    main()
