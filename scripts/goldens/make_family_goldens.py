#!/usr/bin/env python3
"""Makes the goldens of tests/numerics/goldens/families with PyTorch and transformers.

    python scripts/goldens/make_family_goldens.py tests/numerics/goldens [NAME ...]

Needs torch 2.11 and transformers 5 from PyPI. NAME/ is a tiny random model as transformers saves it,
of every family and with config values off the beaten track; NAME.json holds
  forward: as in make_transformers_goldens.py, and of the first sample's logits, per token, the L2
           norm and the sum of logit[i] * cos(i);
  packed:  the loss and the gradients of the same tokens as packed documents: sample i is cut behind
           its token 5 + 3 i and its token 20, and the last label of each document does not count.
           Every document is computed on its own, so no mask of transformers' is relied on; where the
           family detects packed samples by their positions, the script checks that it agrees;
  padded:  of models that judge the balance of experts, the loss and the gradients with an attention
           mask: the last 1 + 3 i tokens of sample i are padding;
  bf16:    the distance of transformers' gradients in bf16 from those in fp32;
  runs:    as in make_transformers_goldens.py, of global batch 8.
"""

import copy
import json
import pathlib
import sys

import torch
import transformers

from make_transformers_goldens import (
    RUNS, SEQ_LEN, STEPS, VOCAB, batch_of, gradients_of, loss_of, make_tokens, randomise_vectors, save,
    training_golden)

SAMPLES = 8
PAD = 5  # a token that the data has
IDS = {"bos_token_id": 0, "eos_token_id": 0}
SMALL = {"vocab_size": VOCAB, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
         "max_position_embeddings": 64, "initializer_range": 0.3, **IDS}
LLAMA = {**SMALL, "intermediate_size": 20, "num_key_value_heads": 2, "pad_token_id": PAD}
ROPE = {"rope_theta": 100.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, **ROPE}
LONG = {"rope_type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 5.0], **ROPE}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
LATENT = {**{key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}, "kv_lora_rank": 12,
          "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5, "n_routed_experts": 6,
          "num_experts_per_tok": 2, "moe_intermediate_size": 12}
GPT2 = {"vocab_size": VOCAB, "n_positions": 64, "n_embd": 16, "n_layer": 2, "n_head": 2,
        "initializer_range": 0.3, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, **IDS}

# Name: model type and its keys. Names of packed samples by positions are in DETECTS.
MODELS = {
    "bloom": ("bloom", {"vocab_size": VOCAB, "hidden_size": 18, "n_layer": 2, "n_head": 6,
                        "initializer_range": 0.3, **IDS}),
    "deepseek_v2": ("deepseek_v2", {**LATENT, "q_lora_rank": 10, "n_group": 3, "topk_group": 2,
                                    "topk_method": "group_limited_greedy", "first_k_dense_replace": 1,
                                    "routed_scaling_factor": 2.5, "n_shared_experts": 2}),
    "deepseek_v2_lite": ("deepseek_v2", {**LATENT, "q_lora_rank": None, "attention_bias": True,
                                         "n_shared_experts": 1, "rope_parameters": {
                                             **YARN, "mscale": 0.7, "mscale_all_dim": 0.9}}),
    "falcon_7b": ("falcon", {**SMALL}),
    "falcon_40b": ("falcon", {**SMALL, "new_decoder_architecture": True, "num_kv_heads": 2, "bias": True,
                              "tie_word_embeddings": False, "ffn_hidden_size": 24}),
    "falcon_one_norm": ("falcon", {**SMALL, "new_decoder_architecture": True, "num_kv_heads": 4,
                                   "num_ln_in_parallel_attn": 1}),
    "falcon_rw": ("falcon", {**SMALL, "alibi": True, "multi_query": False, "parallel_attn": False,
                             "bias": True}),
    "gemma": ("gemma", {**LLAMA, "head_dim": 6}),
    "gemma2": ("gemma2", {**LLAMA, "head_dim": 6, "sliding_window": 8, "query_pre_attn_scalar": 9,
                          "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}),
    "gemma3": ("gemma3_text", {**LLAMA, "head_dim": 6, "sliding_window": 8, "query_pre_attn_scalar": 9,
                               "layer_types": ["sliding_attention", "full_attention"]}),
    "gemma3_linear": ("gemma3_text", {
        **LLAMA, "head_dim": 6, "sliding_window": 8, "attn_logit_softcapping": 2.0,
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, **ROPE},
                            "sliding_attention": {"rope_type": "default", "rope_theta": 30.0}}}),
    "gpt_neox": ("gpt_neox", {**SMALL, "intermediate_size": 20}),
    "gpt_neox_in_turn": ("gpt_neox", {**SMALL, "intermediate_size": 20, "hidden_act": "gelu_new",
                                      "use_parallel_residual": False, "attention_bias": False,
                                      "rope_parameters": {"partial_rotary_factor": 0.5, **ROPE}}),
    "gpt2_wide": ("gpt2", {**GPT2, "n_head": 4}),
    "llama_dynamic": ("llama", {**LLAMA, "max_position_embeddings": 16,
                                "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, **ROPE}}),
    "llama_yarn": ("llama", {**LLAMA, "rope_parameters": YARN}),
    "llama_yarn_scaled": ("llama", {**LLAMA, "head_dim": 12, "rope_parameters": {
        **YARN, "mscale": 0.7, "mscale_all_dim": 1.3, "beta_fast": 4, "beta_slow": 0.5, "truncate": False}}),
    "llama_longrope": ("llama", {**LLAMA, "rope_parameters": {
        **LONG, "original_max_position_embeddings": 16}}),
    "mistral": ("mistral", {**LLAMA, "sliding_window": 8}),
    "mistral_whole": ("mistral", {**LLAMA, "sliding_window": None, "head_dim": 6}),
    "mixtral": ("mixtral", {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "mixtral_balanced": ("mixtral", {**LLAMA, "num_local_experts": 5, "num_experts_per_tok": 3,
                                     "output_router_logits": True, "router_aux_loss_coef": 0.2}),
    "olmo2": ("olmo2", {**LLAMA}),
    "opt": ("opt", {**{key: value for key, value in SMALL.items() if key != "initializer_range"},
                    "init_std": 0.3, "ffn_dim": 20, "dropout": 0.0, "pad_token_id": PAD}),
    "opt_norm_behind": ("opt", {**{key: value for key, value in SMALL.items() if key != "initializer_range"},
                                "init_std": 0.3, "ffn_dim": 20, "dropout": 0.0, "pad_token_id": PAD,
                                "do_layer_norm_before": False, "enable_bias": False,
                                "activation_function": "gelu", "tie_word_embeddings": False}),
    "phi3": ("phi3", {**LLAMA, "sliding_window": 12}),
    "phi3_longrope": ("phi3", {**LLAMA, "original_max_position_embeddings": 48, "rope_parameters": LONG}),
    "phi3_partial": ("phi3", {**LLAMA, "hidden_size": 32, "rope_parameters": {
        "partial_rotary_factor": 0.75, **ROPE}}),
    "qwen2": ("qwen2", {**LLAMA, "tie_word_embeddings": True}),
    "qwen2_windowed": ("qwen2", {**LLAMA, "use_sliding_window": True, "sliding_window": 8,
                                 "max_window_layers": 1}),
    "qwen2_moe": ("qwen2_moe", {**LLAMA, **EXPERTS, "shared_expert_intermediate_size": 14,
                                "output_router_logits": True, "router_aux_loss_coef": 0.1}),
    "qwen2_moe_some": ("qwen2_moe", {**LLAMA, **EXPERTS, "num_hidden_layers": 4, "decoder_sparse_step": 2,
                                     "mlp_only_layers": [1], "shared_expert_intermediate_size": 14,
                                     "qkv_bias": False, "num_experts_per_tok": 1,
                                     "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 3}),
    "qwen3_moe": ("qwen3_moe", {**LLAMA, **EXPERTS, "head_dim": 6, "norm_topk_prob": True}),
    "qwen3": ("qwen3", {**LLAMA, "head_dim": 6, "attention_bias": True}),
    "smollm3": ("smollm3", {**LLAMA, "no_rope_layer_interval": 2}),
}
# Those whose angles depend on the length of a document.
FOLLOW_LENGTH = {"llama_dynamic", "llama_longrope", "phi3_longrope"}
# Those whose loss is not that of the documents alone, for the experts' balance is judged over a batch.
JUDGE_BATCH = {"mixtral_balanced", "qwen2_moe"}
# Those that take no positions, or whose masks do not see them.
BLIND = {"bloom", "falcon_7b", "falcon_40b", "falcon_one_norm", "falcon_rw", "opt", "opt_norm_behind"}


def build(name):
    model_type, keys = MODELS[name]
    config = transformers.AutoConfig.for_model(model_type, **keys)
    torch.manual_seed(1234)
    # Eager has the soft caps of Gemma, which sdpa has not; for Falcon it adds ALiBi twice.
    attention = "sdpa" if name == "falcon_rw" else "eager"
    # Grouped products want rows of a multiple of 16 bytes.
    experts = {"experts_implementation": "eager"} if hasattr(config, "num_experts_per_tok") else {}
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention, **experts)
    randomise_vectors(model)
    return model.eval()


def waves(count):
    return torch.cos(torch.arange(count, dtype=torch.float64))


def documents(sample):
    """(first token, end) of each document of a sample."""
    cuts = sorted({0, 6 + 3 * sample, 21, SEQ_LEN})
    return list(zip(cuts[:-1], cuts[1:]))


def packed_golden(name, model, tokens):
    inputs, labels = batch_of(tokens, 0, SAMPLES)
    labels = labels.clone()
    for sample in range(SAMPLES):
        for _, end in documents(sample):
            labels[sample, end - 1] = -100
    total, counted = 0.0, 0
    for sample in range(SAMPLES):
        for first, end in documents(sample):
            kept = labels[sample : sample + 1, first:end]
            count = int((kept != -100).sum())
            counted += count
            if count:
                total = total + loss_of(model, inputs[sample : sample + 1, first:end], kept) * count
    loss = total / counted
    loss.backward()
    golden = {"loss": loss.item(), "gradients": gradients_of(model)}
    if name not in BLIND:
        positions = torch.cat([torch.arange(end - first) for sample in range(SAMPLES)
                               for first, end in documents(sample)]).view(SAMPLES, SEQ_LEN)
        whole = model(input_ids=inputs, position_ids=positions, labels=labels,
                      shift_labels=labels.contiguous(), use_cache=False).loss
        assert abs(whole.item() - loss.item()) < 2e-6, (name, whole.item(), loss.item())
    return golden


def padded_golden(model, tokens):
    inputs, labels = (each.clone() for each in batch_of(tokens, 0, SAMPLES))
    mask = torch.ones_like(inputs)
    for sample in range(SAMPLES):
        length = SEQ_LEN - 1 - 3 * sample
        inputs[sample, length:], mask[sample, length:] = PAD, 0
        labels[sample, length - 1:] = -100
    loss = model(input_ids=inputs, attention_mask=mask, labels=labels, shift_labels=labels, use_cache=False).loss
    loss.backward()
    return {"loss": loss.item(), "gradients": gradients_of(model)}


def bf16_golden(model, inputs, labels):
    """How far the gradients in bf16 are from those in fp32, as a share of their norm."""
    def flat_gradients(some):
        loss_of(some, inputs, labels).backward()
        flat = torch.cat([parameter.grad.float().flatten() for parameter in some.parameters()])
        some.zero_grad()
        return flat
    exact = flat_gradients(model)
    rounded = flat_gradients(copy.deepcopy(model).to(torch.bfloat16))
    return {"gradient_error": ((rounded - exact).norm() / exact.norm()).item()}


def make(name, out, tokens):
    model = build(name)
    save(model, out / name)
    inputs, labels = batch_of(tokens, 0, SAMPLES)
    loss = loss_of(model, inputs, labels)
    loss.backward()
    forward = {"batch": SAMPLES, "loss": loss.item(), "gradients": gradients_of(model)}
    with torch.no_grad():
        logits = model(input_ids=inputs[:1]).logits[0].double()
    forward["logits"] = [{"norm": row.norm().item(), "probe": row.dot(waves(VOCAB)).item()}
                         for row in logits]
    golden = {"seq_len": SEQ_LEN, "forward": forward, "bf16": bf16_golden(model, inputs, labels)}
    if name not in FOLLOW_LENGTH | JUDGE_BATCH:
        golden["packed"] = packed_golden(name, model, tokens)
    if name in JUDGE_BATCH:
        golden["padded"] = padded_golden(model, tokens)
    golden["runs"] = [training_golden(model, tokens, SAMPLES, SAMPLES)]
    (out / f"{name}.json").write_text(json.dumps(golden, indent=1) + "\n")


def main():
    out = pathlib.Path(sys.argv[1]) / "families"
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    tokens = make_tokens(max(RUNS) * STEPS * SEQ_LEN + 1)
    for name in sys.argv[2:] or MODELS:
        make(name, out, tokens)
        print(name, flush=True)


if __name__ == "__main__":
    main()
