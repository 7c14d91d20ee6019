#!/usr/bin/env python3
"""Saves adapters with PEFT, of every kind of description, and what models compute with them.

    /tmp/goldens/bin/pip install torch==2.11.0 transformers==5.24.0 peft==0.21.2
    /tmp/goldens/bin/python scripts/goldens/make_adapter_goldens.py tests/numerics/goldens

The bases are the models there (make_transformers_goldens.py, make_family_goldens.py). adapters/CASE is a folder of save_pretrained,
adapters/goldens.json has of each case its base, how many elements PEFT trains on going on from the folder, and every tenth logit behind the
last of the tokens 0 to 23, with the adapter.
"""

import json
import pathlib
import shutil
import sys

import peft
import torch
import transformers

TOKENS = torch.arange(24).view(1, 24)
ATTENTION = ["q_proj", "v_proj"]
# (base, options of LoraConfig, options of save_pretrained)
CASES = {
    "dropout": ("llama", dict(target_modules=ATTENTION, lora_dropout=0.05)),
    "regex": ("llama", dict(target_modules=r".*layers\.\d+\.self_attn\.(q|v)_proj")),
    "regex_lookahead": ("llama", dict(target_modules=r"model\.layers\.(?!0)\d+\..*(up|down)_proj")),
    "full_names": ("llama", dict(target_modules=["model.layers.1.mlp.down_proj", "model.layers.0.self_attn.k_proj"])),
    "partial_names": ("llama", dict(target_modules=["mlp.gate_proj", "0.self_attn.o_proj"])),
    "all_linear": ("llama", dict(target_modules="all-linear")),
    "unknown_targets": ("llama", dict(target_modules=["q_proj", "query_key_value", "w1"])),
    "one_layer": ("llama", dict(target_modules=["q_proj"], layers_to_transform=[1])),
    "layer_number": ("llama", dict(target_modules=ATTENTION, layers_to_transform=0, layers_pattern="layers")),
    "excluded": ("llama", dict(target_modules="all-linear", exclude_modules=["down_proj", "model.layers.0.self_attn.q_proj"])),
    "excluded_regex": ("llama", dict(target_modules=["q_proj", "up_proj"], exclude_modules=r".*\.1\..*up.*")),
    "rank_pattern": ("llama", dict(target_modules=ATTENTION, rank_pattern={"v_proj": 2})),
    "alpha_pattern": ("llama", dict(target_modules=ATTENTION, alpha_pattern={"layers.1.self_attn.q_proj": 32, "v_.*": 4})),
    "patterns_rslora": ("llama", dict(target_modules=ATTENTION, use_rslora=True, rank_pattern={r"layers\.0\..*": 6}, alpha_pattern={"q_proj": 3})),
    "dora": ("llama", dict(target_modules=["q_proj", "down_proj"], use_dora=True, lora_dropout=0.1)),
    "dora_ranks": ("llama", dict(target_modules=["q_proj", "k_proj"], use_dora=True, rank_pattern={"k_proj": 1})),
    "saves_head": ("llama", dict(target_modules=ATTENTION, modules_to_save=["lm_head"])),
    "saves_both_tables": ("llama", dict(target_modules=["o_proj"], modules_to_save=["embed_tokens", "lm_head"])),
    "saves_norms": ("llama", dict(target_modules=["q_proj"], modules_to_save=["input_layernorm", "norm"])),
    "saves_a_layer": ("llama", dict(target_modules="all-linear", modules_to_save=["k_proj"])),
    "ties_embedding": ("families/qwen2", dict(target_modules=["q_proj"], modules_to_save=["embed_tokens"], ensure_weight_tying=True)),
    "ties_head": ("families/gemma2", dict(target_modules=["v_proj"], modules_to_save=["lm_head"], ensure_weight_tying=True)),
    "embeddings_too": ("llama", dict(target_modules=["q_proj"])),
    "tied_embeddings_too": ("families/qwen2", dict(target_modules=["q_proj"])),
    "gaussian": ("llama", dict(target_modules=["q_proj"], init_lora_weights="gaussian")),
    "gpt2": ("gpt2", dict(target_modules=["c_attn"], fan_in_fan_out=True, lora_dropout=0.1)),
    "gpt2_all": ("gpt2", dict(target_modules="all-linear", fan_in_fan_out=True)),
    "gpt2_regex": ("gpt2", dict(target_modules=r"transformer\.h\.1\.(attn\.c_attn|mlp\.c_proj)", fan_in_fan_out=True, use_rslora=True)),
    "gpt2_layers": ("gpt2", dict(target_modules=["attn.c_proj"], layers_to_transform=[0], layers_pattern=["h"], fan_in_fan_out=True)),
    "gpt2_biases": ("gpt2", dict(target_modules=["c_attn"], fan_in_fan_out=True, bias="all")),
    "gpt2_own_biases": ("gpt2", dict(target_modules=["c_fc"], fan_in_fan_out=True, bias="lora_only")),
    "qwen2_biases": ("families/qwen2", dict(target_modules=["q_proj", "up_proj"], bias="lora_only")),
    "qwen3": ("families/qwen3", dict(target_modules="all-linear", rank_pattern={"gate_proj": 1})),
    "mixtral": ("families/mixtral", dict(target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], lora_dropout=0.05)),
    "phi3": ("families/phi3", dict(target_modules=["qkv_proj", "gate_up_proj"], layers_to_transform=[0, 1])),
    "gemma2": ("families/gemma2", dict(target_modules=r".*(q_proj|down_proj)")),
    "gpt_neox": ("families/gpt_neox", dict(target_modules=["query_key_value"], alpha_pattern={"0.attention.query_key_value": 2})),
    "opt": ("families/opt", dict(target_modules=["q_proj", "fc1"], bias="all")),
}


def make(out, name, base, options):
    torch.manual_seed(sum(map(ord, name)))
    model = transformers.AutoModelForCausalLM.from_pretrained(out / base, dtype=torch.float32, attn_implementation="eager")
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **{"r": 4, "lora_alpha": 8, **options}))
    for key, parameter in model.named_parameters():
        if parameter.requires_grad:
            with torch.no_grad():
                parameter.add_(torch.randn_like(parameter) * (0.3 if "lora_" in key and "magnitude" not in key else 0.05))
    model.peft_config["default"].base_model_name_or_path = base
    folder = out / "adapters" / name
    model.save_pretrained(folder, **({"save_embedding_layers": True} if name.endswith("embeddings_too") else {}))
    (folder / "README.md").unlink(missing_ok=True)
    # As it is loaded: PEFT leaves out what the folder has not.
    model = transformers.AutoModelForCausalLM.from_pretrained(out / base, dtype=torch.float32, attn_implementation="eager")
    before = model(TOKENS).logits[0, -1]
    model = peft.PeftModel.from_pretrained(model, folder).eval()
    with torch.no_grad():
        logits = model(TOKENS).logits[0, -1]
    assert not torch.allclose(before, logits, atol=1e-2), name
    again = transformers.AutoModelForCausalLM.from_pretrained(out / base, dtype=torch.float32)
    again = peft.PeftModel.from_pretrained(again, folder, is_trainable=True)
    return {"base": base, "trained": sum(each.numel() for each in again.parameters() if each.requires_grad), "logits": [float(f"{each:.7g}") for each in logits[::10].tolist()]}


def main():
    out = pathlib.Path(sys.argv[1])
    shutil.rmtree(out / "adapters", ignore_errors=True)
    torch.set_num_threads(1)
    goldens = {name: make(out, name, base, options) for name, (base, options) in CASES.items()}
    lines = [f'"peft": {json.dumps(peft.__version__)}'] + [f"{json.dumps(name)}: {json.dumps(case)}" for name, case in goldens.items()]
    (out / "adapters/goldens.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
