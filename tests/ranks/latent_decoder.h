#pragma once

namespace ds::tests {

// Keys and values of four heads that come from one row a token, values narrower than keys. The
// second layer has experts.
inline constexpr char kLatentDecoder[] =
    R"({"model_type":"deepseek_v2","vocab_size":48,"hidden_size":24,"intermediate_size":20,
        "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":4,
        "max_position_embeddings":16,"q_lora_rank":10,"kv_lora_rank":12,"qk_nope_head_dim":6,
        "qk_rope_head_dim":4,"v_head_dim":5,"first_k_dense_replace":1,"n_routed_experts":4,
        "n_shared_experts":2,"num_experts_per_tok":2,"moe_intermediate_size":12,
        "norm_topk_prob":false,"topk_method":"greedy","routed_scaling_factor":2.5,
        "initializer_range":0.1})";

}  // namespace ds::tests
