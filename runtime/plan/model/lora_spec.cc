#include "runtime/plan/model/lora_spec.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "runtime/base/files.h"
#include "runtime/base/json_fault.h"
#include "runtime/base/suggest.h"
#include "runtime/plan/model/adapter_layout.h"

namespace ds::models {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMostAdapterConfigBytes = std::uint64_t{1} << 20;

// Keys that change neither the computed function nor its initial values.
constexpr std::string_view kIgnored[] = {
    "auto_mapping",    "base_model_name_or_path", "corda_config", "eva_config",
    "fan_in_fan_out",  "inference_mode",          "loftq_config", "lora_ga_config",
    "megatron_config", "megatron_core",           "peft_version", "qalora_group_size",
    "revision",        "runtime_config",          "task_type",    "tp_layer"};

// Keys that have to be absent, null, false, 0, empty or "none".
constexpr std::string_view kRefused[] = {"alora_invocation_tokens",
                                         "arrow_config",
                                         "kasa_config",
                                         "layer_replication",
                                         "lora_bias",
                                         "monteclora_config",
                                         "target_parameters",
                                         "use_bdlora",
                                         "trainable_token_indices",
                                         "use_qalora",
                                         "velora_config"};

constexpr std::string_view kRead[] = {"alpha_pattern",
                                      "bias",
                                      "ensure_weight_tying",
                                      "exclude_modules",
                                      "init_lora_weights",
                                      "layers_pattern",
                                      "layers_to_transform",
                                      "lora_alpha",
                                      "lora_dropout",
                                      "modules_to_save",
                                      "peft_type",
                                      "r",
                                      "rank_pattern",
                                      "target_modules",
                                      "use_dora",
                                      "use_rslora"};

// Initializations that leave the layer's function and its trained part unchanged.
constexpr std::string_view kDrawsAdapterOnly[] = {"gaussian", "eva", "orthogonal"};

// The values with which PEFT disables a part of an adapter.
bool DisablesFeature(const Json& value) {
  return value.is_null() || value == Json(false) || (value.is_number() && value == Json(0)) ||
         ((value.is_array() || value.is_object()) && value.empty()) || value == Json("none");
}

template <typename Names>
bool Contains(const Names& names, const std::string& name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

Status CheckKeys(const Json& config) {
  for (const auto& [key, value] : config.items()) {
    if (Contains(kIgnored, key) || Contains(kRead, key) || DisablesFeature(value)) continue;
    if (Contains(kRefused, key)) {
      return UnimplementedError("'" + key + "' is " + value.dump() + ", which is not built");
    }
    std::vector<std::string> known(std::begin(kRead), std::end(kRead));
    known.insert(known.end(), std::begin(kRefused), std::end(kRefused));
    return UnimplementedError("unknown key '" + key + "'" + DidYouMean(key, known));
  }
  return OkStatus();
}

// Other methods (pissa, olora, corda, loftq) move part of the layer's weight into the adapter each
// time PEFT loads the folder: the tensors then belong to weights other than the base model's.
Status CheckFirstValues(const Json& config) {
  const Json init = config.value("init_lora_weights", Json(true));
  if (init.is_null() || init.is_boolean()) return OkStatus();
  if (init.is_string() && Contains(kDrawsAdapterOnly, init.get<std::string>())) return OkStatus();
  return UnimplementedError(
      "'init_lora_weights' is " + init.dump() +
      ": such adapters change the base model's weights, too, which is not built; have PEFT convert "
      "them (save_pretrained with path_initial_model_for_weight_conversion)");
}

// Returns the names in target_modules, if it is a list.
std::vector<std::string> ReadTargets(const Json& config) {
  std::vector<std::string> targets;
  const auto found = config.find("target_modules");
  if (found == config.end() || !found->is_array()) return targets;
  for (const Json& name : *found) {
    if (name.is_string()) targets.push_back(name.get<std::string>());
  }
  std::sort(targets.begin(), targets.end());
  return targets;
}

Status ReadFlags(const Json& config, LoraSpec* spec) {
  for (const auto& [key, set] :
       {std::pair{"use_rslora", &spec->rank_stabilised}, std::pair{"use_dora", &spec->magnitudes},
        std::pair{"ensure_weight_tying", &spec->ties_weights}}) {
    const Json value = config.value(key, Json(false));
    if (value.is_null()) continue;
    if (!value.is_boolean()) {
      return InvalidArgumentError("'" + std::string(key) + "' must be true or false");
    }
    *set = value.get<bool>();
  }
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
  const Json dropout = config.value("lora_dropout", Json(0.0));
  if (!dropout.is_number() || dropout.get<double>() < 0.0 || dropout.get<double>() >= 1.0) {
    return InvalidArgumentError("'lora_dropout' must be a number from 0 to below 1");
  }
  spec.dropout = dropout.get<double>();
  DS_RETURN_IF_ERROR(ReadFlags(config, &spec));
  spec.targets = ReadTargets(config);
  DS_ASSIGN_OR_RETURN(spec.rules, AdapterRules::Parse(config));
  return spec;
}

constexpr char kHeadMatrix[] = "lm_head.weight";

// True if PEFT trains the table and the tied head separately. With ensure_weight_tying it keeps
// them tied and saves both, if it finds the head; for GPT-2's wte it does not find it.
bool PartsTiedHead(const LoraSpec& spec, const std::string& table) {
  if (!spec.TrainsInFull(table) && !spec.TrainsInFull(kHeadMatrix)) return false;
  const bool has_both =
      spec.copies.contains(table) || (spec.full.contains(table) && spec.full.contains(kHeadMatrix));
  return !spec.ties_weights || !has_both;
}

Status RefuseParting(const LoraSpec& spec, const std::string& table) {
  const std::string has = spec.full.contains(table) ? table : kHeadMatrix;
  return UnimplementedError(
      std::string(kAdapterWeightsFile) + " has " + has +
      " in full, to train it, and PEFT then unties the head from the embedding, which is not "
      "built; train with PEFT's ensure_weight_tying=True, or have the base model untied first (a "
      "config.json with \"tie_word_embeddings\": false, and weights with " +
      kHeadMatrix + ")");
}

}  // namespace

double LoraSpec::ScaleOf(std::int64_t of_rank, double of_alpha) const {
  const auto ranks = static_cast<double>(of_rank);
  return of_alpha / (rank_stabilised ? std::sqrt(ranks) : ranks);
}

bool LoraSpec::TrainsInFull(const std::string& parameter) const {
  return full.contains(parameter) && rules->TrainsInFull(parameter);
}

std::optional<LoraSpec::Layer> LoraSpec::Find(const std::string& layer) const {
  if (!layers.empty()) {
    const auto found = layers.find(layer);
    return found == layers.end() ? std::nullopt : std::optional(found->second);
  }
  const std::string name = layer.substr(layer.rfind('.') + 1);
  if (!targets.empty() && !Contains(targets, name)) return std::nullopt;
  return Layer{.rank = rank, .scale = scale()};
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
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostAdapterConfigBytes));
  const Json config = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  auto spec =
      config.is_discarded()
          ? StatusOr<LoraSpec>(InvalidArgumentError("not valid JSON: " + DescribeJsonFault(text)))
          : ParseSpec(config);
  if (!spec.ok()) return spec.status().WithContext(path.string());
  spec->config_text = text;
  DS_RETURN_IF_ERROR(ReadAdapterLayout(folder, &*spec));
  return spec;
}

void TakeTiedHead(const ModelNames& model, LoraSpec* spec) {
  const std::string& table = model.tied_table;
  const auto head = spec->full.find(kHeadMatrix);
  if (table.empty() || head == spec->full.end() || !spec->full.contains(table)) return;
  if (PartsTiedHead(*spec, table)) return;
  spec->copies[table] = head->second;
  spec->full.erase(head);
}

Status CheckFits(const LoraSpec& spec, const ModelNames& model) {
  if (!spec.is_read()) return OkStatus();
  if (!model.tied_table.empty() && PartsTiedHead(spec, model.tied_table)) {
    return RefuseParting(spec, model.tied_table);
  }
  for (const auto& [layer, of] : spec.layers) {
    if (Contains(model.layers, layer)) continue;
    return InvalidArgumentError(std::string(kAdapterWeightsFile) + " has an adapter of " + layer +
                                ": the model has no such linear layer for one");
  }
  for (const std::string& layer : model.layers) {
    if (!spec.rules->has_targets() || spec.layers.contains(layer)) continue;
    DS_ASSIGN_OR_RETURN(const bool targeted, spec.rules->Targets(layer));
    if (!targeted) continue;
    return InvalidArgumentError("target_modules of " + std::string(kAdapterConfigFile) +
                                " covers " + layer + ", but " + kAdapterWeightsFile +
                                " has no tensors of it");
  }
  for (const auto& [name, stored] : spec.full) {
    if (Contains(model.parameters, name)) continue;
    return InvalidArgumentError(std::string(kAdapterWeightsFile) + " has " + name +
                                " in full, and the model has no such parameter of its own (a head "
                                "that is tied to the embedding is not one)");
  }
  return OkStatus();
}

nlohmann::ordered_json MakeAdapterConfig(const LoraSpec& spec, const std::string& base_model,
                                         bool weights_are_in_out) {
  if (!spec.config_text.empty()) {
    Json config = Json::parse(spec.config_text);
    config["base_model_name_or_path"] = base_model;
    config["inference_mode"] = true;
    config["lora_dropout"] = spec.dropout;
    return config;
  }
  const Json targets = spec.target_pattern.empty() ? Json(spec.targets) : Json(spec.target_pattern);
  return {{"peft_type", "LORA"},
          {"task_type", "CAUSAL_LM"},
          {"base_model_name_or_path", base_model},
          {"r", spec.rank},
          {"lora_alpha", spec.alpha},
          {"lora_dropout", spec.dropout},
          {"use_rslora", spec.rank_stabilised},
          {"use_dora", spec.magnitudes},
          {"target_modules", targets},
          {"fan_in_fan_out", weights_are_in_out},
          {"bias", "none"},
          {"init_lora_weights", true},
          {"inference_mode", true}};
}

}  // namespace ds::models
