#include "runtime/inference/generation_config.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "runtime/base/files.h"
#include "runtime/base/json_fault.h"

namespace ds::inference {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20;
constexpr double kLargest = 1e6;

// Keys that do not change the text computed here.
constexpr std::array kHarmless = {"bos_token_id",
                                  "pad_token_id",
                                  "decoder_start_token_id",
                                  "transformers_version",
                                  "_from_model_config",
                                  "use_cache",
                                  "cache_implementation",
                                  "cache_config",
                                  "max_time",
                                  "length_penalty",  // for beams
                                  "early_stopping",
                                  "return_dict_in_generate",
                                  "output_scores",
                                  "output_logits",
                                  "output_attentions",
                                  "output_hidden_states",
                                  "num_return_sequences",
                                  "disable_compile",
                                  "compile_config"};

// Keys that change the text unless they have this value.
struct Neutral {
  const char* key;
  double value;
};
constexpr Neutral kNeutral[] = {{"num_beams", 1},
                                {"num_beam_groups", 1},
                                {"typical_p", 1},
                                {"epsilon_cutoff", 0},
                                {"eta_cutoff", 0},
                                {"min_p", 0},
                                {"diversity_penalty", 0},
                                {"encoder_repetition_penalty", 1},
                                {"no_repeat_ngram_size", 0},
                                {"encoder_no_repeat_ngram_size", 0},
                                {"min_length", 0},
                                {"min_new_tokens", 0},
                                {"guidance_scale", 1},
                                {"penalty_alpha", 0},
                                {"renormalize_logits", 0},
                                {"remove_invalid_values", 0},
                                {"low_memory", 0}};

// Reader: reads the keys of one file and remembers the first error.
class Reader {
 public:
  Reader(const Json& json, const std::string& file_name) : json_(json), file_name_(file_name) {}

  void Flag(const char* key, bool* value) {
    const Json* const found = Find(key);
    if (found == nullptr) return;
    if (found->is_boolean()) *value = found->get<bool>();
    if (!found->is_boolean()) Refuse(key, "must be true or false");
  }
  void Number(const char* key, double most, double* value, bool may_be_zero = false) {
    const Json* const found = Find(key);
    if (found == nullptr) return;
    const bool is_number = found->is_number();
    if (is_number) *value = found->get<double>();
    if (is_number && *value <= most && (*value > 0.0 || (may_be_zero && *value == 0.0))) return;
    Refuse(key, std::string("must be a number ") + (may_be_zero ? "from 0.0" : "above 0.0") +
                    ", up to " + Json(most).dump());
  }
  std::optional<std::int64_t> Count(const char* key, std::int64_t least) {
    const Json* const found = Find(key);
    if (found == nullptr) return std::nullopt;
    if (IsId(*found) && found->get<std::int64_t>() >= least) return found->get<std::int64_t>();
    Refuse(key, "must be a whole number from " + std::to_string(least));
    return std::nullopt;
  }
  std::vector<std::int64_t> Ids(const char* key) {
    const Json* const found = Find(key);
    if (found == nullptr) return {};
    const Json list = found->is_array() ? *found : Json::array({*found});
    std::vector<std::int64_t> ids;
    for (const Json& id : list) {
      if (IsId(id)) ids.push_back(id.get<std::int64_t>());
      if (!IsId(id)) Refuse(key, "must be a token id or a list of them");
    }
    return ids;
  }
  // Rejects keys that were not read above and do not have the neutral value.
  void RefuseOthers() {
    for (const auto& [key, value] : json_.items()) {
      const bool known = std::find(asked_.begin(), asked_.end(), key) != asked_.end() ||
                         std::find(kHarmless.begin(), kHarmless.end(), key) != kHarmless.end();
      if (known || value.is_null() || value.empty() || IsNeutral(key, value)) continue;
      Refuse(key, "= " + value.dump() +
                      ": this is not built, and the text would be another without it; "
                      "--ignore_generation_config leaves the file out");
    }
  }
  const Status& status() const { return status_; }

 private:
  static bool IsId(const Json& value) {
    return value.is_number_integer() && value >= 0 &&
           value <= std::numeric_limits<std::int32_t>::max();
  }
  static bool IsNeutral(const std::string& key, const Json& value) {
    if (!value.is_number() && !value.is_boolean()) return false;
    const double number = value.is_boolean() ? (value.get<bool>() ? 1 : 0) : value.get<double>();
    return std::any_of(std::begin(kNeutral), std::end(kNeutral), [&](const Neutral& neutral) {
      return neutral.key == key && neutral.value == number;
    });
  }
  const Json* Find(const char* key) {
    asked_.emplace_back(key);
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  void Refuse(const std::string& key, const std::string& why) {
    if (status_.ok()) status_ = InvalidArgumentError(file_name_ + ": " + key + " " + why);
  }

  const Json& json_;
  const std::string& file_name_;
  std::vector<std::string> asked_;
  Status status_;
};

StatusOr<Json> ParseObject(std::string_view text, const std::string& file_name) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return InvalidArgumentError(file_name + ": not valid JSON: " + DescribeJsonFault(text));
  }
  if (!json.is_object()) return InvalidArgumentError(file_name + ": no JSON object");
  return json;
}

StatusOr<std::vector<std::int64_t>> ReadEndTokens(const Json& json, const std::string& file_name) {
  Reader reader(json, file_name);
  std::vector<std::int64_t> ids = reader.Ids("eos_token_id");
  if (!reader.status().ok()) return reader.status();
  return ids;
}

}  // namespace

StatusOr<GenerationConfig> ParseGenerationConfig(std::string_view text,
                                                 const std::string& file_name) {
  DS_ASSIGN_OR_RETURN(const Json json, ParseObject(text, file_name));
  GenerationConfig config;
  SamplingOptions& sampling = config.sampling;
  Reader reader(json, file_name);
  reader.Flag("do_sample", &sampling.draws);
  reader.Number("repetition_penalty", kLargest, &sampling.repetition_penalty);
  // Configs of models that do not sample set 0. It is an error only when sampling is used.
  reader.Number("temperature", kLargest, &sampling.temperature, /*may_be_zero=*/true);
  reader.Number("top_p", 1.0, &sampling.top_p);
  sampling.top_k = reader.Count("top_k", 0).value_or(sampling.top_k);
  config.max_new_tokens = reader.Count("max_new_tokens", 1);
  config.max_length = reader.Count("max_length", 1);
  config.end_tokens = reader.Ids("eos_token_id");
  reader.RefuseOthers();
  if (!reader.status().ok()) return reader.status();
  return config;
}

StatusOr<GenerationConfig> ReadGenerationConfig(const fs::path& folder, const Json& model,
                                                bool only_end_tokens) {
  GenerationConfig config;
  const fs::path file = folder / "generation_config.json";
  std::error_code error;
  if (!folder.empty() && fs::exists(file, error)) {
    DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kMostBytes));
    if (only_end_tokens) {
      DS_ASSIGN_OR_RETURN(const Json json, ParseObject(text, file.string()));
      DS_ASSIGN_OR_RETURN(config.end_tokens, ReadEndTokens(json, file.string()));
    } else {
      DS_ASSIGN_OR_RETURN(config, ParseGenerationConfig(text, file.string()));
    }
  }
  if (!config.end_tokens.empty()) return config;
  DS_ASSIGN_OR_RETURN(config.end_tokens, ReadEndTokens(model, (folder / "config.json").string()));
  return config;
}

}  // namespace ds::inference
