#!/usr/bin/env python3
"""Makes tests/numerics/goldens/lora with PEFT: adapters, and what training them gives.

    python scripts/goldens/make_lora_goldens.py tests/numerics/goldens

Needs torch 2.11, transformers 5 and peft 0.21, and the goldens of make_transformers_goldens.py, whose
models are the frozen bases. For every case: lora/CASE/ is the adapter that the run starts from, as PEFT
saves it (with B not zero, so that the first step has gradients for A, too), lora/CASE.json holds
  base:     the folder of the frozen model;
  runs:     losses and gradient norms of 20 AdamW steps, as in FAMILY.json;
  trained:  of every tensor of the trained adapter, under PEFT's names, its norm and probe;
  merged:   the same of every weight that merge_and_unload changes.
"""

import importlib.util
import json
import pathlib
import sys

import peft
import torch
import transformers

spec = importlib.util.spec_from_file_location(
    "transformers_goldens", pathlib.Path(__file__).with_name("make_transformers_goldens.py"))
base_goldens = importlib.util.module_from_spec(spec)
spec.loader.exec_module(base_goldens)

CASES = {
    "llama": ("llama", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"])),
    "gpt2_rslora": ("gpt2", dict(r=3, lora_alpha=5, use_rslora=True, fan_in_fan_out=True,
                                 target_modules=["c_attn", "c_proj"])),
}
GLOBAL_BATCH, MICRO_BATCH = 8, 8


def measure(tensor):
    flat = tensor.detach().double().flatten()
    waves = torch.cos(torch.arange(flat.numel(), dtype=torch.float64))
    return {"norm": flat.norm().item(), "probe": torch.dot(flat, waves).item()}


def load(folder, adapter=None):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager")
    return model if adapter is None else peft.PeftModel.from_pretrained(model, adapter, is_trainable=True)


def make(out, tokens, name, family, options):
    torch.manual_seed(1234)
    config = peft.LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, bias="none", **options)
    model = peft.get_peft_model(load(out / family), config)
    for key, parameter in model.named_parameters():
        if "lora_B" in key:
            torch.nn.init.normal_(parameter, std=0.05)
    folder = out / "lora" / name
    model.peft_config["default"].base_model_name_or_path = family
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    model = load(out / family, folder).train()
    golden = {"torch": torch.__version__, "peft": peft.__version__, "base": family,
              "seq_len": base_goldens.SEQ_LEN,
              "runs": [base_goldens.training_golden(model, tokens, GLOBAL_BATCH, MICRO_BATCH)]}
    state = peft.get_peft_model_state_dict(model)
    golden["trained"] = {key: measure(value) for key, value in state.items()}
    before = dict(load(out / family).named_parameters())
    golden["merged"] = {key: measure(value) for key, value in model.merge_and_unload().named_parameters()
                        if not torch.equal(value, before[key])}
    (out / "lora" / f"{name}.json").write_text(json.dumps(golden, indent=1) + "\n")


def main():
    out = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    tokens = base_goldens.make_tokens(max(base_goldens.RUNS) * base_goldens.STEPS * base_goldens.SEQ_LEN + 1)
    for name, (family, options) in CASES.items():
        make(out, tokens, name, family, options)


if __name__ == "__main__":
    main()
