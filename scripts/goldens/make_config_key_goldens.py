#!/usr/bin/env python3
"""Writes what transformers takes from a config.json with two keys for one thing.

    /tmp/goldens/bin/pip install torch==2.11.0 transformers==5.24.0
    /tmp/goldens/bin/python scripts/goldens/make_config_key_goldens.py tests/unit/models/goldens/config_keys.json

"rope": configs with rope_scaling, rope_parameters, bases and shares, and the frequencies for short and long texts;
"sizes": configs with a key and its other name, and the sizes of the model that transformers builds.
"""

import importlib
import itertools
import json
import pathlib
import sys

import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

FAMILIES = ["bloom", "deepseek_v2", "falcon", "gemma", "gemma2", "gemma3_text", "gpt2", "gpt_neox", "llama", "mistral", "mixtral",
            "olmo2", "opt", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3"]
ROTARY = [name for name in FAMILIES if name not in ("bloom", "gpt2", "opt")]
LENGTHS = [16, 100]
SMALL = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64}
OWN = {
    "bloom": {"vocab_size": 64, "hidden_size": 64, "n_layer": 2, "n_head": 4},
    "deepseek_v2": {**SMALL, "num_key_value_heads": 4, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
                    "kv_lora_rank": 16, "q_lora_rank": 16, "num_experts_per_tok": 2, "n_routed_experts": 4,
                    "moe_intermediate_size": 32, "n_shared_experts": 1},
    "falcon": {key: value for key, value in SMALL.items() if key not in ("num_key_value_heads", "intermediate_size")},
    "gemma": {**SMALL, "head_dim": 16}, "gemma2": {**SMALL, "head_dim": 16}, "gemma3_text": {**SMALL, "head_dim": 16},
    "gpt2": {"vocab_size": 64, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "gpt_neox": {key: value for key, value in SMALL.items() if key != "num_key_value_heads"},
    "opt": {"vocab_size": 64, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 128,
            "max_position_embeddings": 64},
    "phi3": {**SMALL, "pad_token_id": 0}, "olmo2": {**SMALL, "pad_token_id": 0}, "smollm3": {**SMALL, "pad_token_id": 0},
    "qwen2_moe": {**SMALL, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
                  "shared_expert_intermediate_size": 32},
    "qwen3": {**SMALL, "head_dim": 16},
    "qwen3_moe": {**SMALL, "head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    "mixtral": {**SMALL, "head_dim": 16, "num_local_experts": 4},
}
PHI3_LISTS = {"short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7], "long_factor": [2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5]}
OBJECTS = {
    "default": {"rope_type": "default"},
    "default_theta": {"rope_type": "default", "rope_theta": 5000.0},
    "linear_old": {"type": "linear", "factor": 2.0},
    "linear": {"rope_type": "linear", "factor": 4.0, "rope_theta": 20000.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    "yarn_short": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 3000.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 32},
    "longrope": {"rope_type": "longrope", "original_max_position_embeddings": 32, **PHI3_LISTS},
    "longrope_old": {"type": "su", "original_max_position_embeddings": 32, **PHI3_LISTS},
}
# (rope_scaling, rope_parameters, base outside); "-" is absent, "null" and "{}" are themselves.
PAIRS = [("yarn", "default_theta", None), ("linear_old", "default_theta", 7000.0), ("linear", "yarn", 7000.0), ("null", "linear", None),
         ("{}", "yarn_short", 7000.0), ("linear_old", "-", 7000.0), ("-", "linear_old", 7000.0), ("-", "linear", 7000.0),
         ("llama3", "linear", None), ("dynamic", "default", 9000.0), ("default", "yarn", None), ("yarn_short", "{}", None),
         ("-", "null", 7000.0), ("linear", "null", None)]
PHI3_PAIRS = [("longrope", "default_theta", None), ("longrope_old", "default", 7000.0), ("default", "longrope", None),
              ("-", "longrope", 7000.0), ("-", "longrope_old", None), ("null", "default_theta", 7000.0), ("default_theta", "longrope", None)]


def value(name):
    return {"null": None, "{}": {}}.get(name, OBJECTS.get(name))


def small(family):
    return {"model_type": family, **OWN.get(family, SMALL)}


def load(config):
    return transformers.AutoConfig.for_model(**json.loads(json.dumps(config)))


def frequencies(config, made, length, layer_type=None):
    module = importlib.import_module(type(made).__module__.replace("configuration_", "modeling_"))
    rotary = next(each for name, each in vars(module).items() if name.endswith("RotaryEmbedding"))
    parameters = made.rope_parameters if layer_type is None else made.rope_parameters[layer_type]
    make = rotary.compute_default_rope_parameters if parameters["rope_type"] == "default" else ROPE_INIT_FUNCTIONS[parameters["rope_type"]]
    options = {} if layer_type is None else {"layer_type": layer_type}
    return make(made, device="cpu", seq_len=length, **options)


def rope_cases():
    cases = []
    for family in ROTARY:
        for (scaling, parameters, theta), share in itertools.product(PHI3_PAIRS if family == "phi3" else PAIRS, [None, 0.5]):
            if share is not None and family not in ("gpt_neox", "phi3"):
                continue
            config = small(family)
            if scaling != "-":
                config["rope_scaling"] = value(scaling)
            if parameters != "-":
                config["rope_parameters"] = value(parameters)
                if family == "gemma3_text" and config["rope_parameters"]:
                    config["rope_parameters"] = {"full_attention": config["rope_parameters"],
                                                 "sliding_attention": {"rope_type": "default", "rope_theta": 12345.0}}
            if theta is not None:
                config["rotary_emb_base" if family == "gpt_neox" else "rope_theta"] = theta
            if share is not None:
                if family == "phi3" and "longrope" in scaling + parameters:
                    continue
                config["rotary_pct" if family == "gpt_neox" else "partial_rotary_factor"] = share
            case = {"config": config}
            try:
                made = load(config)
                for key, layer in ([("full", "full_attention"), ("windowed", "sliding_attention")] if family == "gemma3_text" else [("full", None)]):
                    got = [frequencies(config, made, length, layer) for length in LENGTHS]
                    case[key] = [[float(f"{each:.9g}") for each in values.tolist()] for values, _ in got]
                    case[key + "_factor"] = got[0][1]
            except Exception as error:  # transformers refuses it, or cannot compute it
                case = {"config": config, "error": f"{type(error).__name__}: {error}"[:120]}
            cases.append(case)
    return cases


SIZES = {"vocab_size": "vocab_size", "hidden_size": "hidden_size", "layers": "num_hidden_layers", "heads": "num_attention_heads",
         "kv_heads": "num_key_value_heads", "max_positions": "max_position_embeddings", "experts": "num_experts",
         "tied": "tie_word_embeddings"}
# Another value for each key: no golden can be right by accident.
OTHER = {"hidden_size": 32, "n_embd": 32, "n_embed": 32, "num_hidden_layers": 3, "n_layer": 3, "num_attention_heads": 8, "n_head": 8,
         "max_position_embeddings": 128, "n_positions": 128, "num_experts": 8, "num_local_experts": 8, "n_routed_experts": 8}


def size_cases():
    cases = []
    for family in FAMILIES:
        base = small(family)
        names = dict(type(load(base)).attribute_map)
        if family in ("bloom", "falcon"):
            names["n_embed"] = "hidden_size"
        if family == "qwen3_moe":
            names["num_local_experts"] = "num_experts"
        for alias, name in names.items():
            if name not in OTHER:
                continue
            for both in (True, False):
                config = {key: value for key, value in base.items() if both or key not in (name, alias)}
                config[alias] = OTHER[alias]
                if both:
                    config.setdefault(name, base.get(alias, base.get(name)))
                made = load(config)
                cases.append({"config": config, "sizes": {
                    key: getattr(made, each) for key, each in SIZES.items() if isinstance(getattr(made, each, None), int)}})
    return cases


def main():
    goldens = {"transformers": transformers.__version__, "lengths": LENGTHS, "rope": rope_cases(), "sizes": size_cases()}
    lines = [f'"transformers": {json.dumps(goldens["transformers"])}', f'"lengths": {json.dumps(LENGTHS)}']
    for key in ("rope", "sizes"):
        lines.append(f'"{key}": [\n' + ",\n".join(json.dumps(each) for each in goldens[key]) + "\n]")
    pathlib.Path(sys.argv[1]).write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
