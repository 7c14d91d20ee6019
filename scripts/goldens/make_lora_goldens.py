#!/usr/bin/env python3
"""Makes tests/numerics/goldens/lora with PEFT: adapters, and what training them gives.

    python scripts/goldens/make_lora_goldens.py tests/numerics/goldens

Needs torch 2.11, transformers 5, peft 0.21 and bitsandbytes 0.50, and the goldens of
make_transformers_goldens.py, whose models are the frozen bases. Where a case names a format, the weights of
its linear layers are what bitsandbytes gives back of them, quantised. Its own layers multiply no matrices so
small on a CPU. For every case: lora/CASE/ is the adapter that the run starts from, as PEFT
saves it (with B not zero, so that the first step has gradients for A, too), lora/CASE.json holds
  base:     the folder of the frozen model, and its format, if it has one;
  runs:     losses and gradient norms of 20 AdamW steps, as in FAMILY.json;
  trained:  of every tensor of the trained adapter, under PEFT's names, its norm and probe; a head that
            PEFT keeps tied is the embedding's;
  merged:   the same of every weight that merge_and_unload changes.
"""

import importlib.util
import json
import pathlib
import sys

import bitsandbytes.functional
import peft
import torch
import transformers

spec = importlib.util.spec_from_file_location(
    "transformers_goldens", pathlib.Path(__file__).with_name("make_transformers_goldens.py"))
base_goldens = importlib.util.module_from_spec(spec)
spec.loader.exec_module(base_goldens)

CASES = {
    "llama": ("llama", "", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"])),
    "gpt2_rslora": ("gpt2", "", dict(r=3, lora_alpha=5, use_rslora=True, fan_in_fan_out=True,
                                     target_modules=["c_attn", "c_proj"])),
    "llama_dora": ("llama", "", dict(r=4, lora_alpha=8, use_dora=True, target_modules=["q_proj", "down_proj"])),
    "llama_saves": ("llama", "", dict(r=4, lora_alpha=8, target_modules=r".*self_attn\.(q|v)_proj", rank_pattern={"v_proj": 2},
                                      alpha_pattern={"q_proj": 4}, modules_to_save=["lm_head", "norm"])),
    "qwen2_ties": ("families/qwen2", "", dict(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"],
                                             modules_to_save=["embed_tokens"], ensure_weight_tying=True)),
    "llama_nf4": ("llama", "nf4", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"])),
    "llama_nf4_double": ("llama", "nf4-double", dict(r=4, lora_alpha=8, target_modules=["o_proj", "up_proj"])),
    "gpt2_dora_int8": ("gpt2", "int8", dict(r=3, lora_alpha=5, use_dora=True, fan_in_fan_out=True,
                                            target_modules=["c_attn", "c_proj"])),
}
GLOBAL_BATCH, MICRO_BATCH = 8, 8


def measure(tensor):
    flat = tensor.detach().double().flatten()
    waves = torch.cos(torch.arange(flat.numel(), dtype=torch.float64))
    return {"norm": flat.norm().item(), "probe": torch.dot(flat, waves).item()}


def quantised(weight, kind):
    if kind == "int8":
        codes, scales, _ = bitsandbytes.functional.int8_vectorwise_quant(weight)
        return bitsandbytes.functional.int8_vectorwise_dequant(codes, scales)
    # Blocks run over the ends of rows, which bitsandbytes 0.50 does not take into account on a CPU.
    codes, state = bitsandbytes.functional.quantize_4bit(
        weight.view(-1, 64), blocksize=64, quant_type="nf4", compress_statistics=kind == "nf4-double")
    return bitsandbytes.functional.dequantize_4bit(codes, state).view(weight.shape)


def load(folder, kind, adapter=None):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager")
    for name, layer in model.named_modules():
        is_stored_in_out = isinstance(layer, transformers.pytorch_utils.Conv1D)
        if not kind or name == "lm_head" or not (is_stored_in_out or isinstance(layer, torch.nn.Linear)):
            continue
        weight = layer.weight.data
        layer.weight.data = (quantised(weight.t().contiguous(), kind).t().contiguous() if is_stored_in_out
                             else quantised(weight, kind))
    return model if adapter is None else peft.PeftModel.from_pretrained(model, adapter, is_trainable=True)


def make(out, tokens, name, family, kind, options):
    torch.manual_seed(1234)
    config = peft.LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, bias="none", **options)
    model = peft.get_peft_model(load(out / family, kind), config)
    for key, parameter in model.named_parameters():
        if "lora_B" in key:
            torch.nn.init.normal_(parameter, std=0.05)
    folder = out / "lora" / name
    model.peft_config["default"].base_model_name_or_path = family
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    model = load(out / family, kind, folder).train()
    golden = {"torch": torch.__version__, "peft": peft.__version__, "base": family, "quantized": kind,
              "seq_len": base_goldens.SEQ_LEN,
              "runs": [base_goldens.training_golden(model, tokens, GLOBAL_BATCH, MICRO_BATCH)]}
    state = peft.get_peft_model_state_dict(model)
    ties = options.get("ensure_weight_tying", False)
    golden["trained"] = {key: measure(value) for key, value in state.items() if not (ties and "lm_head" in key)}
    before = dict(load(out / family, kind).named_parameters())
    golden["merged"] = {key: measure(value) for key, value in model.merge_and_unload().named_parameters()
                        if not torch.equal(value, before[key])}
    (out / "lora" / f"{name}.json").write_text(json.dumps(golden, indent=1) + "\n")


def main():
    out = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    tokens = base_goldens.make_tokens(max(base_goldens.RUNS) * base_goldens.STEPS * base_goldens.SEQ_LEN + 1)
    for name, (family, kind, options) in CASES.items():
        make(out, tokens, name, family, kind, options)


if __name__ == "__main__":
    main()
