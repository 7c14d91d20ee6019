#include "runtime/models/spec/lora_spec.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "runtime/base/files.h"
#include "runtime/base/suggest.h"

namespace ds::models {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMostConfigBytes = std::uint64_t{1} << 20;

// Keys that say nothing about the function that is computed, or how it starts.
constexpr std::string_view kIgnored[] = {"auto_mapping",    "base_model_name_or_path",
                                         "corda_config",    "ensure_weight_tying",
                                         "eva_config",      "fan_in_fan_out",
                                         "inference_mode",  "layers_pattern",
                                         "loftq_config",    "lora_ga_config",
                                         "megatron_config", "megatron_core",
                                         "peft_version",    "qalora_group_size",
                                         "revision",        "runtime_config",
                                         "task_type",       "tp_layer"};

// Keys that have to be absent, null, false, 0, empty or "none".
constexpr std::string_view kRefused[] = {"alora_invocation_tokens",
                                         "alpha_pattern",
                                         "arrow_config",
                                         "bias",
                                         "exclude_modules",
                                         "kasa_config",
                                         "layer_replication",
                                         "layers_to_transform",
                                         "lora_bias",
                                         "lora_dropout",
                                         "modules_to_save",
                                         "monteclora_config",
                                         "rank_pattern",
                                         "target_parameters",
                                         "use_bdlora",
                                         "trainable_token_indices",
                                         "use_qalora",
                                         "velora_config"};

constexpr std::string_view kRead[] = {"init_lora_weights", "lora_alpha", "peft_type", "r",
                                      "target_modules",    "use_dora",   "use_rslora"};

// Ways to draw an adapter's first values that leave the layer beside it as it is, and what is
// trained of it.
constexpr std::string_view kDrawsAdapterOnly[] = {"gaussian", "eva", "orthogonal"};

bool SaysNothing(const Json& value) {
  return value.is_null() || value == Json(false) || (value.is_number() && value == Json(0)) ||
         ((value.is_array() || value.is_object()) && value.empty()) || value == Json("none");
}

template <typename Names>
bool Contains(const Names& names, const std::string& name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

Status CheckKeys(const Json& config) {
  for (const auto& [key, value] : config.items()) {
    if (Contains(kIgnored, key) || Contains(kRead, key) || SaysNothing(value)) continue;
    if (Contains(kRefused, key)) {
      return UnimplementedError("'" + key + "' is " + value.dump() + ", which is not built");
    }
    std::vector<std::string> known(std::begin(kRead), std::end(kRead));
    known.insert(known.end(), std::begin(kRefused), std::end(kRefused));
    return UnimplementedError("unknown key '" + key + "'" + DidYouMean(key, known));
  }
  return OkStatus();
}

// Others (pissa, olora, corda, loftq) take from the layer what the adapter begins with, each time
// PEFT loads the folder: its tensors belong to weights that are not the base model's.
Status CheckFirstValues(const Json& config) {
  const Json init = config.value("init_lora_weights", Json(true));
  if (init.is_null() || init.is_boolean()) return OkStatus();
  if (init.is_string() && Contains(kDrawsAdapterOnly, init.get<std::string>())) return OkStatus();
  return UnimplementedError(
      "'init_lora_weights' is " + init.dump() +
      ": such adapters change the base model's weights, too, which is not built; have PEFT convert "
      "them (save_pretrained with path_initial_model_for_weight_conversion)");
}

Status ReadTargets(const Json& config, LoraSpec* spec) {
  const auto found = config.find("target_modules");
  if (found == config.end() || found->is_null() || *found == Json("all-linear")) return OkStatus();
  if (!found->is_array()) {
    return UnimplementedError("'target_modules' is a pattern, which is not built; list the names");
  }
  for (const Json& name : *found) {
    if (!name.is_string()) return InvalidArgumentError("'target_modules' must be a list of names");
    spec->targets.push_back(name.get<std::string>());
  }
  std::sort(spec->targets.begin(), spec->targets.end());
  return OkStatus();
}

StatusOr<LoraSpec> ParseSpec(const Json& config) {
  if (!config.is_object()) return InvalidArgumentError("no JSON object");
  if (config.value("peft_type", Json()) != Json("LORA")) {
    return UnimplementedError("its 'peft_type' is not LORA");
  }
  DS_RETURN_IF_ERROR(CheckKeys(config));
  DS_RETURN_IF_ERROR(CheckFirstValues(config));
  LoraSpec spec;
  const Json rank = config.value("r", Json(spec.rank));
  if (!rank.is_number_integer() || rank < Json(1) || rank > Json(kMostLoraRank)) {
    return InvalidArgumentError("'r' must be a whole number from 1 to " +
                                std::to_string(kMostLoraRank));
  }
  spec.rank = rank.get<std::int64_t>();
  const Json alpha = config.value("lora_alpha", Json(8));
  if (!alpha.is_number() || !(alpha.get<double>() > 0.0)) {
    return InvalidArgumentError("'lora_alpha' must be a number above 0");
  }
  spec.alpha = alpha.get<double>();
  for (const auto& [key, set] :
       {std::pair{"use_rslora", &spec.rank_stabilised}, std::pair{"use_dora", &spec.magnitudes}}) {
    const Json value = config.value(key, Json(false));
    if (!value.is_boolean()) {
      return InvalidArgumentError("'" + std::string(key) + "' must be true or false");
    }
    *set = value.get<bool>();
  }
  DS_RETURN_IF_ERROR(ReadTargets(config, &spec));
  return spec;
}

}  // namespace

double LoraSpec::scale() const {
  const auto ranks = static_cast<double>(rank);
  return alpha / (rank_stabilised ? std::sqrt(ranks) : ranks);
}

bool IsLoraParameter(std::string_view name) {
  return name.ends_with(".lora_A.weight") || name.ends_with(".lora_B.weight") ||
         IsMagnitudeParameter(name);
}

bool IsMagnitudeParameter(std::string_view name) {
  return name.ends_with(".lora_magnitude_vector");
}

bool IsQuantizedParameter(std::string_view name) { return name.ends_with(".quantized_weight"); }

StatusOr<LoraSpec> ReadLoraSpec(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kAdapterConfigFile;
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostConfigBytes));
  auto spec = ParseSpec(Json::parse(text, nullptr, /*allow_exceptions=*/false));
  if (!spec.ok()) return spec.status().WithContext(path.string());
  return spec;
}

nlohmann::ordered_json MakeAdapterConfig(const LoraSpec& spec, const std::string& base_model,
                                         bool weights_are_in_out) {
  return {{"peft_type", "LORA"},
          {"task_type", "CAUSAL_LM"},
          {"base_model_name_or_path", base_model},
          {"r", spec.rank},
          {"lora_alpha", spec.alpha},
          {"lora_dropout", 0.0},
          {"use_rslora", spec.rank_stabilised},
          {"use_dora", spec.magnitudes},
          {"target_modules", spec.targets},
          {"fan_in_fan_out", weights_are_in_out},
          {"bias", "none"},
          {"init_lora_weights", true},
          {"inference_mode", true}};
}

}  // namespace ds::models
