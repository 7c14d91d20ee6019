#!/usr/bin/env python3
"""Makes tests/unit/cli/goldens/model_sizes.json with transformers and DeepSpeed.

    python scripts/goldens/make_model_size_goldens.py tests/unit/cli/goldens

Needs transformers 5, torch and deepspeed (0.19.6 or 0.19.8). A line is [config.json, parameters, largest
layer], both as DeepSpeed's model_to_params counts them: parameters that modules share once, and the most
that one module holds itself. The models are built without memory.
"""

import json
import pathlib
import sys

import torch
from deepspeed.runtime.zero.stage3 import model_to_params
from transformers import AutoConfig, AutoModelForCausalLM

SMALL = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 100}
CONFIGS = [
    {"model_type": "gpt2"},
    {"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25},
    {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_inner": 96, "vocab_size": 77,
     "n_positions": 33, "tie_word_embeddings": False},
    {"model_type": "llama"},
    {"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
     "num_attention_heads": 64, "num_key_value_heads": 8},
    {"model_type": "llama", **SMALL, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    {"model_type": "llama", **SMALL, "num_key_value_heads": None, "head_dim": 16},
    {"model_type": "mistral"},
    {"model_type": "mistral", **SMALL, "head_dim": 20},
    {"model_type": "qwen2"},
    {"model_type": "qwen2", **SMALL, "tie_word_embeddings": True},
    {"model_type": "qwen3", **SMALL},
    {"model_type": "qwen3", **SMALL, "head_dim": 32, "attention_bias": True},
    {"model_type": "mixtral"},
    {"model_type": "mixtral", **SMALL, "num_local_experts": 5},
    {"model_type": "qwen2_moe"},
    {"model_type": "qwen2_moe", **SMALL, "num_experts": 6, "moe_intermediate_size": 20,
     "shared_expert_intermediate_size": 28, "mlp_only_layers": [1]},
    {"model_type": "qwen3_moe", **SMALL, "num_hidden_layers": 6, "num_experts": 6, "moe_intermediate_size": 20,
     "num_experts_per_tok": 2, "decoder_sparse_step": 2},
    {"model_type": "deepseek_v2", "num_experts_per_tok": 6, "first_k_dense_replace": 1},
    {"model_type": "deepseek_v2", **SMALL, "num_key_value_heads": 4, "q_lora_rank": None, "kv_lora_rank": 20,
     "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 9, "n_routed_experts": 5,
     "num_experts_per_tok": 2, "moe_intermediate_size": 12, "attention_bias": True},
    {"model_type": "phi3"},
    {"model_type": "phi3", **SMALL, "pad_token_id": 1},
    {"model_type": "gemma"},
    {"model_type": "gemma2"},
    {"model_type": "gemma2", **SMALL, "head_dim": 10, "attention_bias": True},
    {"model_type": "gemma3_text"},
    {"model_type": "olmo2"},
    {"model_type": "smollm3"},
    {"model_type": "opt"},
    {"model_type": "opt", "hidden_size": 48, "ffn_dim": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
     "word_embed_proj_dim": 48, "do_layer_norm_before": False, "enable_bias": False},
    {"model_type": "bloom", "hidden_size": 64, "n_layer": 3, "n_head": 8},
    {"model_type": "gpt_neox"},
    {"model_type": "falcon"},
    {"model_type": "falcon", "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
     "new_decoder_architecture": True, "num_kv_heads": 2, "bias": True, "tie_word_embeddings": False},
    {"model_type": "falcon", "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "alibi": True,
     "multi_query": False, "parallel_attn": False},
]


def size(config):
    arguments = {key: value for key, value in config.items() if key != "model_type"}
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(config["model_type"], **arguments))
    # Shared parameters are told apart by address, which a tensor without memory has none of.
    _, largest = model_to_params(model)
    return sum(parameter.numel() for parameter in model.parameters()), largest


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    lines = [json.dumps([config, *size(config)]) for config in CONFIGS]
    path = pathlib.Path(sys.argv[1]) / "model_sizes.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
