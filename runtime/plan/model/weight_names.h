#pragma once

// WeightNames: what the weights of a decoder are called. Those that it does not have are never
// asked for. A dot parts a module from what is in it; where the name of a part is empty, what is in
// it stands in the layer itself.

namespace ds::models {

struct WeightNames {
  const char* base = "model";     // of everything but the head's matrix
  const char* layers = "layers";  // in the base; a layer's number follows
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
  // Latent projections (decoder_attention.h) have these.
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
  // A layer with experts has these in its MLP; an expert's number follows `experts`.
  const char* router = "gate";
  const char* experts = "experts";
  const char* shared_expert = "shared_expert";
  const char* shared_expert_gate = "shared_expert_gate";  // or what weights it and the others
  // Where there is one norm of a part, it is the first.
  const char* attention_norm = "input_layernorm";
  const char* attention_norm_behind = "post_attention_layernorm";
  const char* mlp_norm = "post_attention_layernorm";
  const char* mlp_norm_behind = "post_feedforward_layernorm";
};

}  // namespace ds::models
