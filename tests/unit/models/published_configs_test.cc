// The config.json files that people have are read as they are, and the models that they describe
// have as many parameters as were published.

#include <gtest/gtest.h>

#include <ostream>

#include "runtime/plan/model/count_parameters.h"
#include "runtime/plan/model/families.h"

namespace ds::models {
namespace {

struct Published {
  const char* name;
  std::int64_t parameters;  // a tied head counts once
  const char* config;
};
std::ostream& operator<<(std::ostream& out, const Published& model) { return out << model.name; }

const Published kPublished[] = {
    {"llama_3_1_8b", 8030261248, R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": [128001, 128008],
      "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
      "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
      "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
      "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 8.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
      "rope_type": "llama3"}, "rope_theta": 500000.0, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "transformers_version": "4.42.3", "use_cache": true,
      "vocab_size": 128256})"},
    {"smollm2_135m", 134515008, R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "silu",
      "hidden_size": 576, "initializer_range": 0.041666666666666664, "intermediate_size": 1536,
      "is_llama_config": true, "max_position_embeddings": 8192, "model_type": "llama",
      "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3,
      "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_interleaved": false, "rope_scaling": null,
      "rope_theta": 100000, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
      "transformers_version": "4.40.1", "use_cache": true, "vocab_size": 49152})"},
    {"mistral_7b", 7241732096, R"({"architectures": ["MistralForCausalLM"], "bos_token_id": 1,
      "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
      "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
      "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
      "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.34.0.dev0",
      "use_cache": true, "vocab_size": 32000})"},
    {"mixtral_8x7b", 46702792704, R"({"architectures": ["MixtralForCausalLM"],
      "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
      "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
      "max_position_embeddings": 32768, "model_type": "mixtral", "num_attention_heads": 32,
      "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8,
      "num_local_experts": 8, "output_router_logits": false, "rms_norm_eps": 1e-05,
      "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "sliding_window": null,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.36.0.dev0",
      "use_cache": true, "vocab_size": 32000})"},
    {"deepseek_v2_lite", 15706484224,
     R"({"architectures": ["DeepseekV2ForCausalLM"], "attention_bias": false, "attention_dropout":
      0.0, "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV2Config", "AutoModel":
      "modeling_deepseek.DeepseekV2Model", "AutoModelForCausalLM":
      "modeling_deepseek.DeepseekV2ForCausalLM"}, "aux_loss_alpha": 0.001, "bos_token_id": 100000,
      "eos_token_id": 100001, "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 2048,
      "initializer_range": 0.02, "intermediate_size": 10944, "kv_lora_rank": 512,
      "max_position_embeddings": 163840, "model_type": "deepseek_v2", "moe_intermediate_size": 1408,
      "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2,
      "norm_topk_prob": false, "num_attention_heads": 16, "num_experts_per_tok": 6,
      "num_hidden_layers": 27, "num_key_value_heads": 16, "pretraining_tp": 1, "q_lora_rank": null,
      "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_scaling":
      {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707,
      "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000,
      "routed_scaling_factor": 1.0, "scoring_func": "softmax", "seq_aux": true,
      "tie_word_embeddings": false, "topk_group": 1, "topk_method": "greedy", "torch_dtype":
      "bfloat16", "transformers_version": "4.33.1", "use_cache": true, "v_head_dim": 128,
      "vocab_size": 102400})"},
    {"qwen1_5_moe_a2_7b", 14315784192, R"({"architectures": ["Qwen2MoeForCausalLM"],
      "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151643, "hidden_act": "silu",
      "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 5632,
      "max_position_embeddings": 8192, "max_window_layers": 21, "model_type": "qwen2_moe",
      "num_attention_heads": 16, "num_hidden_layers": 24, "num_key_value_heads": 16,
      "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.39.0.dev0",
      "use_cache": true, "use_sliding_window": false, "vocab_size": 151936,
      "decoder_sparse_step": 1, "moe_intermediate_size": 1408,
      "shared_expert_intermediate_size": 5632, "num_experts_per_tok": 4, "num_experts": 60,
      "norm_topk_prob": false, "output_router_logits": false, "router_aux_loss_coef": 0.001})"},
    {"qwen3_30b_a3b", 30532122624, R"({"architectures": ["Qwen3MoeForCausalLM"],
      "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643,
      "decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
      "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 6144,
      "max_position_embeddings": 40960, "max_window_layers": 48, "mlp_only_layers": [],
      "model_type": "qwen3_moe", "moe_intermediate_size": 768, "norm_topk_prob": true,
      "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
      "num_hidden_layers": 48, "num_key_value_heads": 4, "output_router_logits": false,
      "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000.0,
      "router_aux_loss_coef": 0.001, "sliding_window": null, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true,
      "use_sliding_window": false, "vocab_size": 151936})"},
    {"qwen2_5_7b", 7615616512, R"({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0,
      "bos_token_id": 151643, "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 3584,
      "initializer_range": 0.02, "intermediate_size": 18944, "max_position_embeddings": 131072,
      "max_window_layers": 28, "model_type": "qwen2", "num_attention_heads": 28,
      "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
      "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "transformers_version": "4.40.1", "use_cache": true,
      "use_mrope": false, "use_sliding_window": false, "vocab_size": 152064})"},
    {"qwen3_8b", 8190735360, R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128,
      "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
      "intermediate_size": 12288, "max_position_embeddings": 40960, "max_window_layers": 36,
      "model_type": "qwen3", "num_attention_heads": 32, "num_hidden_layers": 36,
      "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
      "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
      "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false,
      "vocab_size": 151936})"},
    {"phi_3_mini_4k", 3821079552, R"({"_name_or_path": "Phi-3-mini-4k-instruct",
      "architectures": ["Phi3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"}, "bos_token_id": 1,
      "embd_pdrop": 0.0, "eos_token_id": 32000, "hidden_act": "silu", "hidden_size": 3072,
      "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 4096,
      "model_type": "phi3", "num_attention_heads": 32, "num_hidden_layers": 32,
      "num_key_value_heads": 32, "original_max_position_embeddings": 4096, "pad_token_id": 32000,
      "resid_pdrop": 0.0, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0,
      "sliding_window": 2047, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
      "transformers_version": "4.40.2", "use_cache": true, "vocab_size": 32064})"},
    {"gemma_2b", 2506172416, R"({"architectures": ["GemmaForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "bos_token_id": 2, "eos_token_id": 1, "head_dim": 256,
      "hidden_act": "gelu", "hidden_activation": null, "hidden_size": 2048, "initializer_range": 0.02,
      "intermediate_size": 16384, "max_position_embeddings": 8192, "model_type": "gemma",
      "num_attention_heads": 8, "num_hidden_layers": 18, "num_key_value_heads": 1, "pad_token_id": 0,
      "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 10000.0,
      "torch_dtype": "bfloat16", "transformers_version": "4.38.0.dev0", "use_cache": true,
      "vocab_size": 256000})"},
    {"gemma_2_9b", 9241705984, R"({"architectures": ["Gemma2ForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "attn_logit_softcapping": 50.0, "bos_token_id": 2,
      "cache_implementation": "hybrid", "eos_token_id": 1, "final_logit_softcapping": 30.0,
      "head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
      "hidden_size": 3584, "initializer_range": 0.02, "intermediate_size": 14336,
      "max_position_embeddings": 8192, "model_type": "gemma2", "num_attention_heads": 16,
      "num_hidden_layers": 42, "num_key_value_heads": 8, "pad_token_id": 0,
      "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
      "sliding_window": 4096, "sliding_window_size": 4096, "torch_dtype": "float32",
      "transformers_version": "4.42.0.dev0", "use_cache": true, "vocab_size": 256000})"},
    {"gemma_3_1b", 999885952, R"({"architectures": ["Gemma3ForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "attn_logit_softcapping": null, "bos_token_id": 2,
      "cache_implementation": "hybrid", "eos_token_id": 1, "final_logit_softcapping": null,
      "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152,
      "initializer_range": 0.02, "intermediate_size": 6912, "max_position_embeddings": 32768,
      "model_type": "gemma3_text", "num_attention_heads": 4, "num_hidden_layers": 26,
      "num_key_value_heads": 1, "pad_token_id": 0, "query_pre_attn_scalar": 256,
      "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000, "rope_scaling": null,
      "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6,
      "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0", "use_cache": true,
      "vocab_size": 262144})"},
    {"opt_125m", 125239296, R"({"_name_or_path": "facebook/opt-125m", "activation_dropout": 0.0,
      "activation_function": "relu", "architectures": ["OPTForCausalLM"], "attention_dropout": 0.0,
      "bos_token_id": 2, "do_layer_norm_before": true, "dropout": 0.1, "eos_token_id": 2,
      "ffn_dim": 3072, "hidden_size": 768, "init_std": 0.02, "layerdrop": 0.0,
      "max_position_embeddings": 2048, "model_type": "opt", "num_attention_heads": 12,
      "num_hidden_layers": 12, "pad_token_id": 1, "prefix": "</s>", "torch_dtype": "float16",
      "transformers_version": "4.21.0.dev0", "use_cache": true, "vocab_size": 50272,
      "word_embed_proj_dim": 768})"},
    {"bloom_560m", 559214592, R"({"apply_residual_connection_post_layernorm": false,
      "attention_dropout": 0.0, "attention_softmax_in_fp32": true, "bias_dropout_fusion": true,
      "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3, "unk_token_id": 0,
      "hidden_dropout": 0.0, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
      "masked_softmax_fusion": true, "model_type": "bloom", "n_embed": 1024, "n_inner": null,
      "n_layer": 24, "num_attention_heads": 16, "offset_alibi": 100, "pretraining_tp": 1,
      "skip_bias_add": true, "skip_bias_add_qkv": false, "transformers_version": "4.20.0",
      "use_cache": true, "vocab_size": 250880})"},
    {"pythia_70m", 70426624, R"({"architectures": ["GPTNeoXForCausalLM"], "bos_token_id": 0,
      "eos_token_id": 0, "hidden_act": "gelu", "hidden_size": 512, "initializer_range": 0.02,
      "intermediate_size": 2048, "layer_norm_eps": 1e-05, "max_position_embeddings": 2048,
      "model_type": "gpt_neox", "num_attention_heads": 8, "num_hidden_layers": 6,
      "rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": false,
      "torch_dtype": "float16", "transformers_version": "4.24.0", "use_cache": true,
      "use_parallel_residual": true, "vocab_size": 50304})"},
    {"falcon_7b", 6921720704, R"({"alibi": false, "apply_residual_connection_post_layernorm": false,
      "architectures": ["FalconForCausalLM"], "attention_dropout": 0.0, "bias": false,
      "bos_token_id": 11, "eos_token_id": 11, "hidden_dropout": 0.0, "hidden_size": 4544,
      "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "falcon",
      "multi_query": true, "new_decoder_architecture": false, "num_attention_heads": 71,
      "num_hidden_layers": 32, "parallel_attn": true, "torch_dtype": "bfloat16",
      "transformers_version": "4.27.4", "use_cache": true, "vocab_size": 65024})"},
    {"olmo_2_7b", 7298617344, R"({"architectures": ["Olmo2ForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "eos_token_id": 100257, "hidden_act": "silu", "hidden_size": 4096,
      "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 4096,
      "model_type": "olmo2", "num_attention_heads": 32, "num_hidden_layers": 32,
      "num_key_value_heads": 32, "pad_token_id": 100277, "rms_norm_eps": 1e-06,
      "rope_scaling": null, "rope_theta": 500000, "tie_word_embeddings": false,
      "torch_dtype": "float32", "transformers_version": "4.47.0.dev0", "use_cache": true,
      "vocab_size": 100352})"},
    {"smollm3_3b", 3075098624, R"({"architectures": ["SmolLM3ForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": 128012,
      "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
      "intermediate_size": 11008, "layer_types": ["full_attention", "full_attention"],
      "max_position_embeddings": 65536, "max_window_layers": 28, "mlp_bias": false,
      "model_type": "smollm3", "no_rope_layer_interval": 4, "num_attention_heads": 16,
      "num_hidden_layers": 36, "num_key_value_heads": 4, "pad_token_id": 128004,
      "pretraining_tp": 2, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 5000000.0,
      "sliding_window": null, "torch_dtype": "bfloat16", "transformers_version": "4.54.0.dev0",
      "use_cache": true, "use_sliding_window": false, "vocab_size": 128256})"},
};

class PublishedConfig : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedConfig, HasAsManyParametersAsPublished) {
  auto json = nlohmann::ordered_json::parse(GetParam().config);
  // The file has one element for each of the 36 layers.
  if (json.contains("layer_types")) {
    json["layer_types"] = std::vector<std::string>(json["num_hidden_layers"], "full_attention");
  }
  const auto spec = ReadDecoderSpec(json, "config.json");
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(CountParameters(*spec)->all, GetParam().parameters);
  std::int64_t of_blocks = 0;
  const std::vector<BlockCount> blocks = CountBlocks(*spec).value();
  for (const BlockCount& block : blocks) of_blocks += block.parameters;
  EXPECT_EQ(of_blocks, GetParam().parameters);
}

INSTANTIATE_TEST_SUITE_P(Models, PublishedConfig, ::testing::ValuesIn(kPublished),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ds::models
