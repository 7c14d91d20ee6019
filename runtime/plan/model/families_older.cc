// GPT-2, OPT, BLOOM, GPT-NeoX and Falcon: LayerNorm, plain MLPs, and names specific to each family.

#include "runtime/plan/model/families.h"

namespace ds::models {
namespace {

constexpr ConfigKey kGpt2Keys[] = {
    Key("vocab_size", &DecoderSpec::vocabulary),
    Key("n_positions", &DecoderSpec::max_positions),
    Key("n_embd", &DecoderSpec::width),
    Key("n_layer", &DecoderSpec::layers),
    Key("n_head", &DecoderSpec::heads),
    KeyOrNone("n_inner", &DecoderSpec::mlp_width),
    Key("activation_function", &DecoderSpec::activation),
    Key("layer_norm_epsilon", &DecoderSpec::norm_epsilon),
    Key("initializer_range", &DecoderSpec::initializer_range, 1e3),
    Key("resid_pdrop", &DecoderSpec::residual_dropout),
    Key("embd_pdrop", &DecoderSpec::embedding_dropout),
    Key("attn_pdrop", &DecoderSpec::attention_dropout),
    Key("scale_attn_weights", &DecoderSpec::scales_scores),
    Key("scale_attn_by_inverse_layer_idx", &DecoderSpec::scales_by_layer),
    Key("tie_word_embeddings", &DecoderSpec::tied_head),
    Only("reorder_and_upcast_attn", false),
    Only("add_cross_attention", false),
    // Names from other families, which take precedence.
    Key("max_position_embeddings", &DecoderSpec::max_positions),
    Key("hidden_size", &DecoderSpec::width),
    Key("num_hidden_layers", &DecoderSpec::layers),
    Key("num_attention_heads", &DecoderSpec::heads),
    // Heads other than the language model head, and an old name.
    Ignored("n_ctx"),
    Ignored("summary_activation"),
    Ignored("summary_first_dropout"),
    Ignored("summary_proj_to_labels"),
    Ignored("summary_type"),
    Ignored("summary_use_proj"),
};

DecoderSpec Gpt2() {
  return {.model_type = "gpt2",
          .architecture = "GPT2LMHeadModel",
          .vocabulary = 50257,
          .width = 768,
          .layers = 12,
          .heads = 12,
          .max_positions = 1024,
          .positions = Positions::kLearned,
          .embedding_dropout = 0.1,
          .norm = NormKind::kLayer,
          .norm_epsilon = 1e-5,
          .residual_dropout = 0.1,
          .qkv = QkvLayout::kConcatenated,
          .qkv_bias = true,
          .attention_output_bias = true,
          .attention_dropout = 0.1,
          .gated_mlp = false,
          .mlp_bias = true,
          .activation = Activation::kGeluTanh,
          .tied_head = true,
          .weights_are_in_out = true,
          .shrinks_residual_init = true,
          .names = {.base = "transformer",
                    .layers = "h",
                    .tokens = "wte",
                    .positions = "wpe",
                    .final_norm = "ln_f",
                    .attention = "attn",
                    .qkv = "c_attn",
                    .attention_output = "c_proj",
                    .up = "c_fc",
                    .down = "c_proj",
                    .attention_norm = "ln_1",
                    .mlp_norm = "ln_2"}};
}

constexpr ConfigKey kOptKeys[] = {
    Key("vocab_size", &DecoderSpec::vocabulary),
    Key("hidden_size", &DecoderSpec::width),
    Key("num_hidden_layers", &DecoderSpec::layers),
    Key("ffn_dim", &DecoderSpec::mlp_width),
    Key("max_position_embeddings", &DecoderSpec::max_positions),
    Key("num_attention_heads", &DecoderSpec::heads),
    Key("activation_function", &DecoderSpec::activation),
    Key("dropout", &DecoderSpec::residual_dropout),
    Key("attention_dropout", &DecoderSpec::attention_dropout),
    Key("init_std", &DecoderSpec::initializer_range, 1e3),
    Key("enable_bias", &DecoderSpec::qkv_bias),
    Key("enable_bias", &DecoderSpec::attention_output_bias),
    Key("enable_bias", &DecoderSpec::mlp_bias),
    Key("tie_word_embeddings", &DecoderSpec::tied_head),
    Only("layerdrop", 0.0),
    Only("layer_norm_elementwise_affine", true),
    Ignored("activation_dropout"),  // transformers has no such dropout
};

DecoderSpec Opt() {
  return {.model_type = "opt",
          .architecture = "OPTForCausalLM",
          .vocabulary = 50272,
          .width = 768,
          .layers = 12,
          .heads = 12,
          .mlp_width = 3072,
          .max_positions = 2048,
          .positions = Positions::kLearned,
          .first_position = 2,
          .padding_token = 1,
          .norm = NormKind::kLayer,
          .norm_epsilon = 1e-5,
          .residual_dropout = 0.1,
          .qkv_bias = true,
          .attention_output_bias = true,
          .gated_mlp = false,
          .mlp_bias = true,
          .activation = Activation::kRelu,
          .tied_head = true,
          .names = {.base = "model.decoder",
                    .final_norm = "final_layer_norm",
                    .attention_output = "out_proj",
                    .mlp = "",
                    .up = "fc1",
                    .down = "fc2",
                    .attention_norm = "self_attn_layer_norm",
                    .mlp_norm = "final_layer_norm"}};
}

void DeriveOpt(ConfigReader& reader, DecoderSpec* spec) {
  const bool norm_before = reader.Bool("do_layer_norm_before", true);
  const bool removed = reader.Bool("_remove_final_layer_norm", false);
  if (!norm_before) spec->norm_position = NormPosition::kAfterSum;
  spec->final_norm = norm_before && !removed;
  if (reader.Int("word_embed_proj_dim", spec->width) != spec->width) {
    reader.Refuse(
        "'word_embed_proj_dim' must equal 'hidden_size': embeddings of another width "
        "are not supported");
  }
}

constexpr ConfigKey kBloomKeys[] = {
    Key("vocab_size", &DecoderSpec::vocabulary),
    Key("hidden_size", &DecoderSpec::width),
    Key("n_embed", &DecoderSpec::width),  // the old name takes precedence
    Key("n_layer", &DecoderSpec::layers),
    Key("num_hidden_layers", &DecoderSpec::layers),
    Key("n_head", &DecoderSpec::heads),
    Key("num_attention_heads", &DecoderSpec::heads),
    Key("layer_norm_epsilon", &DecoderSpec::norm_epsilon),
    Key("initializer_range", &DecoderSpec::initializer_range, 1e3),
    Key("hidden_dropout", &DecoderSpec::residual_dropout),
    Key("attention_dropout", &DecoderSpec::attention_dropout),
    Key("tie_word_embeddings", &DecoderSpec::tied_head),
    Only("apply_residual_connection_post_layernorm", false),
    // Keys that change how products are split and fused, not their values; and Megatron's keys.
    Ignored("pretraining_tp"),
    Ignored("slow_but_exact"),
    Ignored("attention_softmax_in_fp32"),
    Ignored("masked_softmax_fusion"),
    Ignored("bias_dropout_fusion"),
    Ignored("offset_alibi"),
    Ignored("skip_bias_add"),
    Ignored("skip_bias_add_qkv"),
    Ignored("seq_length"),
    Ignored("n_inner"),
    Ignored("unk_token_id"),
};

// Positions are distances, without an upper limit.
constexpr std::int64_t kAnyLength = 1 << 30;

DecoderSpec Bloom() {
  return {.model_type = "bloom",
          .architecture = "BloomForCausalLM",
          .vocabulary = 250880,
          .width = 64,
          .layers = 2,
          .heads = 8,
          .max_positions = kAnyLength,
          .positions = Positions::kAlibi,
          .embedding_norm = true,
          .norm = NormKind::kLayer,
          .norm_epsilon = 1e-5,
          .qkv = QkvLayout::kByGroup,
          .qkv_bias = true,
          .attention_output_bias = true,
          .gated_mlp = false,
          .mlp_bias = true,
          .activation = Activation::kGeluTanh,
          .tied_head = true,
          .names = {.base = "transformer",
                    .layers = "h",
                    .tokens = "word_embeddings",
                    .final_norm = "ln_f",
                    .attention = "self_attention",
                    .qkv = "query_key_value",
                    .attention_output = "dense",
                    .up = "dense_h_to_4h",
                    .down = "dense_4h_to_h"}};
}

constexpr ConfigKey kNeoxKeys[] = {
    Key("vocab_size", &DecoderSpec::vocabulary),
    Key("hidden_size", &DecoderSpec::width),
    Key("num_hidden_layers", &DecoderSpec::layers),
    Key("num_attention_heads", &DecoderSpec::heads),
    Key("intermediate_size", &DecoderSpec::mlp_width),
    Key("max_position_embeddings", &DecoderSpec::max_positions),
    Key("hidden_act", &DecoderSpec::activation),
    Key("layer_norm_eps", &DecoderSpec::norm_epsilon),
    Key("initializer_range", &DecoderSpec::initializer_range, 1e3),
    Key("hidden_dropout", &DecoderSpec::residual_dropout),
    Key("hidden_dropout", &DecoderSpec::embedding_dropout),
    Key("attention_dropout", &DecoderSpec::attention_dropout),
    Key("attention_bias", &DecoderSpec::qkv_bias),
    Key("attention_bias", &DecoderSpec::attention_output_bias),
    Key("tie_word_embeddings", &DecoderSpec::tied_head),
    Ignored("classifier_dropout"),
};

DecoderSpec GptNeox() {
  DecoderSpec spec = Bloom();
  spec.model_type = "gpt_neox";
  spec.architecture = "GPTNeoXForCausalLM";
  spec.vocabulary = 50432;
  spec.width = 6144;
  spec.layers = 44;
  spec.heads = 64;
  spec.mlp_width = 24576;
  spec.max_positions = 2048;
  spec.positions = Positions::kRotary;
  spec.rope.rotated_share = 0.25;
  spec.embedding_norm = false;
  spec.residual = Residual::kParallel;
  spec.activation = Activation::kGeluErf;
  spec.tied_head = false;
  spec.names.base = "gpt_neox";
  spec.names.layers = "layers";
  spec.names.tokens = "embed_in";
  spec.names.final_norm = "final_layer_norm";
  spec.names.head = "embed_out";
  spec.names.attention = "attention";
  return spec;
}

void DeriveNeox(ConfigReader& reader, DecoderSpec* spec) {
  if (!reader.Bool("use_parallel_residual", true)) spec->residual = Residual::kSequential;
}

constexpr ConfigKey kFalconKeys[] = {
    Key("vocab_size", &DecoderSpec::vocabulary), Key("hidden_size", &DecoderSpec::width),
    Key("n_embed", &DecoderSpec::width), Key("num_hidden_layers", &DecoderSpec::layers),
    Key("num_attention_heads", &DecoderSpec::heads),
    KeyOrNone("ffn_hidden_size", &DecoderSpec::mlp_width),
    Key("max_position_embeddings", &DecoderSpec::max_positions),
    Key("activation", &DecoderSpec::activation),
    Key("layer_norm_epsilon", &DecoderSpec::norm_epsilon),
    Key("initializer_range", &DecoderSpec::initializer_range, 1e3),
    Key("bias", &DecoderSpec::qkv_bias), Key("bias", &DecoderSpec::attention_output_bias),
    Key("bias", &DecoderSpec::mlp_bias), Key("tie_word_embeddings", &DecoderSpec::tied_head),
    // Falcon applies dropout to the sum of attention and MLP; this decoder does not.
    Only("hidden_dropout", 0.0), Only("attention_dropout", 0.0),
    Ignored("apply_residual_connection_post_layernorm"),  // transformers does not read it
};

DecoderSpec Falcon() {
  DecoderSpec spec = Bloom();
  spec.model_type = "falcon";
  spec.architecture = "FalconForCausalLM";
  spec.vocabulary = 65024;
  spec.width = 4544;
  spec.layers = 32;
  spec.heads = 71;
  spec.max_positions = 2048;
  spec.positions = Positions::kRotary;
  spec.embedding_norm = false;
  spec.activation = Activation::kGeluErf;
  spec.qkv_bias = false;
  spec.attention_output_bias = false;
  spec.mlp_bias = false;
  return spec;
}

// Three generations: falcon-rw (sequential, ALiBi), 7b (one norm, one key head), 40b and later.
void DeriveFalcon(ConfigReader& reader, DecoderSpec* spec) {
  if (reader.Bool("alibi", false)) {
    spec->positions = Positions::kAlibiRounded;
    spec->max_positions = kAnyLength;
    for (const char* unused : {"rope_theta", "rope_scaling", "rope_parameters"}) {
      reader.IgnoreKey(unused);
    }
  }
  const bool is_new = reader.Bool("new_decoder_architecture", false);
  const bool one_kv_head = reader.Bool("multi_query", true);
  const bool parallel = reader.Bool("parallel_attn", true);
  const std::int64_t norms = reader.Int("num_ln_in_parallel_attn", is_new ? 2 : 1);
  const std::int64_t kv_heads = reader.Int("num_kv_heads", spec->heads);
  spec->kv_heads = is_new ? kv_heads : (one_kv_head ? 1 : spec->heads);
  if (!parallel && !is_new) return;
  if (!parallel || norms > 2 || (norms == 2 && !is_new)) {
    return reader.Refuse(
        "'parallel_attn' and 'num_ln_in_parallel_attn' do not fit "
        "'new_decoder_architecture'");
  }
  spec->residual = norms == 2 ? Residual::kParallel : Residual::kParallelOneNorm;
  if (norms == 2) {
    spec->names.attention_norm = "ln_attn";
    spec->names.mlp_norm = "ln_mlp";
  }
}

}  // namespace

std::vector<Family> OlderFamilies() {
  return {{.spec = Bloom(), .keys = {kBloomKeys}},
          {.spec = Falcon(), .keys = {kFalconKeys}, .derive = DeriveFalcon},
          {.spec = Gpt2(), .keys = {kGpt2Keys}},
          {.spec = GptNeox(),
           .keys = {kNeoxKeys},
           .rope_keys = {.theta = "rotary_emb_base", .rotated_share = "rotary_pct"},
           .derive = DeriveNeox},
          {.spec = Opt(), .keys = {kOptKeys}, .has_padding_row = true, .derive = DeriveOpt}};
}

}  // namespace ds::models
