"""TRL's SFTTrainer with gradient checkpointing. Option: lora (adapters of PEFT)."""

import os
import tempfile

from libraries import OPTIONS, ds_config, log, log_history, make_llama, make_tokenizer, sentence

from datasets import Dataset
from trl import SFTConfig, SFTTrainer


def main():
    peft_config = None
    if "lora" in OPTIONS:
        from peft import LoraConfig
        peft_config = LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, task_type="CAUSAL_LM",
                                 target_modules=["q_proj", "v_proj"])
    folder = os.path.join(tempfile.gettempdir(), f"trl_sft.{os.environ['MASTER_PORT']}")
    arguments = SFTConfig(
        output_dir=folder, deepspeed=ds_config(), per_device_train_batch_size=2,
        per_device_eval_batch_size=2, gradient_accumulation_steps=2, learning_rate=2e-3,
        max_steps=4, logging_steps=1, eval_strategy="steps", eval_steps=2, save_strategy="no",
        max_length=24, gradient_checkpointing=True, bf16=False, report_to=[], seed=5,
        disable_tqdm=True)
    train = Dataset.from_dict({"prompt": [sentence(i, 4) for i in range(32)],
                               "completion": [" " + sentence(100 + i, 8) for i in range(32)]})
    evaluation = Dataset.from_dict({"prompt": [sentence(300 + i, 4) for i in range(8)],
                                    "completion": [" " + sentence(400 + i, 8) for i in range(8)]})
    trainer = SFTTrainer(model=make_llama(), args=arguments, train_dataset=train,
                         eval_dataset=evaluation, processing_class=make_tokenizer(),
                         peft_config=peft_config)
    trainer.train()
    log_history(trainer)
    trainer.save_model(folder)
    if "lora" in OPTIONS and os.environ["RANK"] == "0":
        from safetensors.torch import load_file
        state = load_file(os.path.join(folder, "adapter_model.safetensors"))
        log({"adapters": len(state),
             "weights": sum(value.double().abs().sum().item() for value in state.values())})


if __name__ == "__main__":
    main()
