// The modules of each family, as transformers 5 builds them.

#include <algorithm>
#include <string>

#include "cli/estimate/model_size.h"

namespace ds::cli {
namespace {

// No extent of a model is larger, so that the product of two, three times over, cannot overflow.
constexpr std::int64_t kMostExtent = 1 << 30;
constexpr std::int64_t kMostParams = 1'000'000'000'000'000;

// Adds up modules and remembers the first key that makes no sense.
class ModuleSum {
 public:
  explicit ModuleSum(const nlohmann::json& config) : config_(config) {}

  std::int64_t Int(const char* key, std::int64_t absent) {
    const auto found = config_.find(key);
    if (found == config_.end() || found->is_null()) return absent;
    const bool fits = found->is_number_integer() && *found >= 1 && *found <= kMostExtent;
    if (fits) return *found;
    Refuse("'" + std::string(key) + "' must be a whole number of at least 1, not " + found->dump());
    return 1;
  }

  bool Bool(const char* key, bool absent) {
    const auto found = config_.find(key);
    if (found == config_.end() || found->is_null()) return absent;
    if (found->is_boolean()) return *found;
    Refuse("'" + std::string(key) + "' must be true or false, not " + found->dump());
    return absent;
  }

  // `times` modules with a weight of `rows` x `columns`, and a bias of `rows` if it has one.
  void Add(std::int64_t times, std::int64_t rows, std::int64_t columns, bool bias = false) {
    std::int64_t module = 0;
    if (bias) columns += 1;
    const bool fits = !__builtin_mul_overflow(rows, columns, &module) && module <= kMostParams &&
                      !__builtin_mul_overflow(module, times, &times) && times <= kMostParams &&
                      total_ <= kMostParams;
    if (!fits) return Refuse("a model of more than 1e15 parameters");
    largest_ = std::max(largest_, module);
    total_ += times;
  }

  void Refuse(const std::string& message) {
    if (problem_.empty()) problem_ = message;
  }

  StatusOr<ModelSize> Result() const {
    if (!problem_.empty()) return InvalidArgumentError(problem_);
    return ModelSize{total_, largest_};
  }

 private:
  const nlohmann::json& config_;
  std::int64_t largest_ = 0;
  std::int64_t total_ = 0;
  std::string problem_;
};

void Gpt2(ModuleSum& sum) {
  const std::int64_t width = sum.Int("n_embd", 768);
  const std::int64_t layers = sum.Int("n_layer", 12);
  const std::int64_t mlp = sum.Int("n_inner", 4 * width);
  const std::int64_t vocabulary = sum.Int("vocab_size", 50257);
  sum.Add(1, vocabulary, width);
  sum.Add(1, sum.Int("n_positions", 1024), width);
  sum.Add(2 * layers + 1, width, 1, true);  // norms
  sum.Add(layers, 3 * width, width, true);  // query, key and value in one
  sum.Add(layers, width, width, true);
  sum.Add(layers, mlp, width, true);
  sum.Add(layers, width, mlp, true);
  if (!sum.Bool("tie_word_embeddings", true)) sum.Add(1, vocabulary, width);
}

// The differences between the families of Llama's shape.
struct LlamaKind {
  const char* model_type;
  std::int64_t vocabulary, width, mlp, layers, heads, kv_heads;  // transformers' defaults
  std::int64_t head_width = 0;                                   // 0: width / heads
  bool attention_bias_key = false;  // "attention_bias": on all four products
  bool mlp_bias_key = false;        // "mlp_bias"
  bool query_bias = false;          // on query, key and value, always
  bool query_norm = false;          // on the heads of query and key
  bool experts = false;
};

// kv_heads 0: as many as heads.
constexpr LlamaKind kLlamaKinds[] = {
    {.model_type = "llama",
     .vocabulary = 32000,
     .width = 4096,
     .mlp = 11008,
     .layers = 32,
     .heads = 32,
     .kv_heads = 0,
     .attention_bias_key = true,
     .mlp_bias_key = true},
    {.model_type = "mistral",
     .vocabulary = 32000,
     .width = 4096,
     .mlp = 14336,
     .layers = 32,
     .heads = 32,
     .kv_heads = 8},
    {.model_type = "qwen2",
     .vocabulary = 151936,
     .width = 4096,
     .mlp = 22016,
     .layers = 32,
     .heads = 32,
     .kv_heads = 32,
     .query_bias = true},
    {.model_type = "qwen3",
     .vocabulary = 151936,
     .width = 4096,
     .mlp = 22016,
     .layers = 32,
     .heads = 32,
     .kv_heads = 32,
     .head_width = 128,
     .attention_bias_key = true,
     .query_norm = true},
    {.model_type = "mixtral",
     .vocabulary = 32000,
     .width = 4096,
     .mlp = 14336,
     .layers = 32,
     .heads = 32,
     .kv_heads = 8,
     .experts = true},
};

void Attention(ModuleSum& sum, const LlamaKind& kind, std::int64_t width, std::int64_t layers) {
  const std::int64_t heads = sum.Int("num_attention_heads", kind.heads);
  const std::int64_t default_kv_heads = kind.kv_heads == 0 ? heads : kind.kv_heads;
  const std::int64_t kv_heads = sum.Int("num_key_value_heads", default_kv_heads);
  const std::int64_t head =
      sum.Int("head_dim", kind.head_width > 0 ? kind.head_width : width / heads);
  const bool bias = kind.attention_bias_key && sum.Bool("attention_bias", false);
  sum.Add(layers, heads * head, width, bias || kind.query_bias);
  sum.Add(2 * layers, kv_heads * head, width, bias || kind.query_bias);
  sum.Add(layers, width, heads * head, bias);
  if (kind.query_norm) sum.Add(2 * layers, head, 1);
}

void LlamaShaped(ModuleSum& sum, const LlamaKind& kind) {
  const std::int64_t width = sum.Int("hidden_size", kind.width);
  const std::int64_t layers = sum.Int("num_hidden_layers", kind.layers);
  const std::int64_t mlp = sum.Int("intermediate_size", kind.mlp);
  const std::int64_t vocabulary = sum.Int("vocab_size", kind.vocabulary);
  sum.Add(1, vocabulary, width);
  sum.Add(2 * layers + 1, width, 1);  // norms
  Attention(sum, kind, width, layers);
  if (kind.experts) {
    const std::int64_t experts = sum.Int("num_local_experts", 8);
    sum.Add(layers, experts, width);            // the gate
    sum.Add(layers, experts * 3 * mlp, width);  // all experts of a layer are one module
  } else {
    const bool bias = kind.mlp_bias_key && sum.Bool("mlp_bias", false);
    sum.Add(2 * layers, mlp, width, bias);
    sum.Add(layers, width, mlp, bias);
  }
  if (!sum.Bool("tie_word_embeddings", false)) sum.Add(1, vocabulary, width);
}

std::string ModelType(const nlohmann::json& config) {
  const auto found = config.is_object() ? config.find("model_type") : config.end();
  return found != config.end() && found->is_string() ? found->get<std::string>() : "";
}

const LlamaKind* FindLlamaKind(const std::string& model_type) {
  for (const LlamaKind& kind : kLlamaKinds) {
    if (kind.model_type == model_type) return &kind;
  }
  return nullptr;
}

}  // namespace

bool IsKnownFamily(const nlohmann::json& config) {
  const std::string model_type = ModelType(config);
  return model_type == "gpt2" || FindLlamaKind(model_type) != nullptr;
}

StatusOr<ModelSize> SizeOfConfig(const nlohmann::json& config) {
  const std::string model_type = ModelType(config);
  ModuleSum sum(config);
  if (model_type == "gpt2") {
    Gpt2(sum);
  } else if (const LlamaKind* kind = FindLlamaKind(model_type)) {
    LlamaShaped(sum, *kind);
  } else {
    return UnimplementedError("model_type \"" + model_type + "\" is not known");
  }
  return sum.Result();
}

}  // namespace ds::cli
