#pragma once

// WeightNames: the names of a decoder's weights. Names of weights that a decoder lacks are unused.
// A dot separates a module from its children; the children of a module with an empty name are
// direct children of the layer.

namespace ds::models {

struct WeightNames {
  const char* base = "model";     // prefix of everything except the head's matrix
  const char* layers = "layers";  // in the base; the layer's number follows
  const char* tokens = "embed_tokens";
  const char* positions = "embed_positions";
  const char* embedding_norm = "word_embeddings_layernorm";
  const char* final_norm = "norm";
  const char* head = "lm_head";
  const char* attention = "self_attn";
  const char* query = "q_proj";
  const char* key = "k_proj";
  const char* value = "v_proj";
  const char* qkv = "qkv_proj";
  const char* attention_output = "o_proj";
  // Latent projections (decoder_attention.h) use these.
  const char* query_latent = "q_a_proj";
  const char* query_latent_norm = "q_a_layernorm";
  const char* query_wide = "q_b_proj";
  const char* latent = "kv_a_proj_with_mqa";
  const char* latent_norm = "kv_a_layernorm";
  const char* latent_wide = "kv_b_proj";
  const char* query_norm = "q_norm";
  const char* key_norm = "k_norm";
  const char* mlp = "mlp";
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* gate_up = "gate_up_proj";
  const char* down = "down_proj";
  // A layer with experts has these in its MLP; the expert's number follows `experts`.
  const char* router = "gate";
  const char* experts = "experts";
  const char* shared_expert = "shared_expert";
  const char* shared_expert_gate = "shared_expert_gate";  // or the module that weights both outputs
  // A sublayer with a single norm uses the first name.
  const char* attention_norm = "input_layernorm";
  const char* attention_norm_behind = "post_attention_layernorm";
  const char* mlp_norm = "post_attention_layernorm";
  const char* mlp_norm_behind = "post_feedforward_layernorm";
};

}  // namespace ds::models
