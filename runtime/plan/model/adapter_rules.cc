#include "runtime/plan/model/adapter_rules.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "runtime/base/parse_number.h"

namespace ds::models {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kVocabularyModules[] = {"embed_tokens", "lm_head"};

Status KeyError(const char* key, const std::string& must) {
  return InvalidArgumentError("'" + std::string(key) + "' must be " + must);
}

// Returns null if the key is absent, null or empty.
const Json* FindKey(const Json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null() || found->empty() || *found == "") return nullptr;
  return &*found;
}

StatusOr<std::vector<std::string>> ReadNames(const Json& value, const char* key) {
  std::vector<std::string> names;
  if (!value.is_array()) return KeyError(key, "a list of names");
  for (const Json& name : value) {
    if (!name.is_string()) return KeyError(key, "a list of names");
    names.push_back(name.get<std::string>());
  }
  return names;
}

StatusOr<ModulePattern> CompileKey(const std::string& pattern, const char* key) {
  auto compiled = ModulePattern::Compile(pattern);
  if (!compiled.ok()) return compiled.status().WithContext("'" + std::string(key) + "'");
  return compiled;
}

std::vector<std::string> SplitName(const std::string& name) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('.', at), name.size());
    parts.push_back(name.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

// True if the layer is the module or inside it.
bool IsWithin(const std::string& module, const std::string& layer) {
  return ("." + layer + ".").find("." + module + ".") != std::string::npos;
}

}  // namespace

bool NamesModule(const std::string& name, const std::string& layer) {
  return layer.ends_with(name) &&
         (layer.size() == name.size() || layer[layer.size() - name.size() - 1] == '.');
}

bool IsSavedWith(std::string_view module, std::string_view parameter) {
  for (std::size_t end = parameter.rfind('.'); end != std::string_view::npos && end > 0;
       end = parameter.rfind('.', end - 1)) {
    if (parameter.substr(0, end).ends_with(module)) return true;
  }
  return false;
}

StatusOr<bool> AdapterRules::Modules::Match(const std::string& layer) const {
  if (pattern) return pattern->Matches(layer);
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return NamesModule(name, layer); });
}

StatusOr<std::optional<AdapterRules::Modules>> AdapterRules::ReadModules(const Json& config,
                                                                         const char* key) {
  const Json* const value = FindKey(config, key);
  if (value == nullptr || *value == kAllLinear) return std::optional<Modules>();
  Modules modules;
  if (value->is_string()) {
    DS_ASSIGN_OR_RETURN(modules.pattern, CompileKey(value->get<std::string>(), key));
  } else {
    DS_ASSIGN_OR_RETURN(modules.names, ReadNames(*value, key));
  }
  return std::optional(std::move(modules));
}

// Each key of the object is matched at the end of a layer's name, after a dot or from its start.
StatusOr<AdapterRules::Values> AdapterRules::ReadValues(const Json& config, const char* key) {
  Values values;
  const Json* const object = FindKey(config, key);
  if (object == nullptr) return values;
  if (!object->is_object()) return KeyError(key, "an object of patterns and numbers");
  for (const auto& [pattern, number] : object->items()) {
    if (!number.is_number() || !(number.get<double>() > 0.0)) {
      return KeyError(key, "an object of patterns and numbers above 0");
    }
    DS_ASSIGN_OR_RETURN(ModulePattern compiled, CompileKey("(.*\\.)?(" + pattern + ")$", key));
    values.emplace_back(std::move(compiled), number.get<double>());
  }
  return values;
}

Status AdapterRules::ReadLayers(const Json& config) {
  constexpr char kKey[] = "layers_to_transform";
  const Json* const layers = FindKey(config, kKey);
  if (layers == nullptr) return OkStatus();
  layers_.emplace();
  for (const Json& layer : layers->is_array() ? *layers : Json::array({*layers})) {
    if (!layer.is_number_integer()) return KeyError(kKey, "a number of a layer, or a list of them");
    layers_->push_back(layer.get<std::int64_t>());
  }
  const Json* const patterns = FindKey(config, "layers_pattern");
  if (patterns == nullptr) return OkStatus();
  const Json list = patterns->is_string() ? Json::array({*patterns}) : *patterns;
  DS_ASSIGN_OR_RETURN(layers_patterns_, ReadNames(list, "layers_pattern"));
  return OkStatus();
}

Status AdapterRules::ReadSavedModules(const Json& config) {
  if (const Json* const modules = FindKey(config, "modules_to_save"); modules != nullptr) {
    DS_ASSIGN_OR_RETURN(modules_to_save_, ReadNames(*modules, "modules_to_save"));
  }
  const std::string bias = config.value("bias", Json("none")).dump();
  saves_biases_ = bias == "\"all\"" || bias == "\"lora_only\"";
  if (saves_biases_ || bias == "\"none\"") return OkStatus();
  return KeyError("bias", "\"none\", \"all\" or \"lora_only\", not " + bias);
}

StatusOr<AdapterRules> AdapterRules::Parse(const Json& config) {
  AdapterRules rules;
  DS_ASSIGN_OR_RETURN(rules.targets_, ReadModules(config, "target_modules"));
  DS_ASSIGN_OR_RETURN(rules.excluded_, ReadModules(config, "exclude_modules"));
  DS_ASSIGN_OR_RETURN(rules.ranks_, ReadValues(config, "rank_pattern"));
  DS_ASSIGN_OR_RETURN(rules.alphas_, ReadValues(config, "alpha_pattern"));
  DS_RETURN_IF_ERROR(rules.ReadLayers(config));
  DS_RETURN_IF_ERROR(rules.ReadSavedModules(config));
  return rules;
}

// The first number after a name (one of layers_pattern, if given) is the layer's index.
bool AdapterRules::HasLayer(const std::string& layer) const {
  const std::vector<std::string> parts = SplitName(layer);
  for (std::size_t i = 1; i + 1 < parts.size(); ++i) {
    const auto number = ParseNumber<std::int64_t>(parts[i]);
    if (!number) continue;
    const auto& patterns = layers_patterns_;
    if (!patterns.empty() &&
        std::find(patterns.begin(), patterns.end(), parts[i - 1]) == patterns.end()) {
      continue;
    }
    return std::find(layers_->begin(), layers_->end(), *number) != layers_->end();
  }
  return false;
}

StatusOr<bool> AdapterRules::Targets(const std::string& layer) const {
  if (excluded_) {
    DS_ASSIGN_OR_RETURN(const bool excluded, excluded_->Match(layer));
    if (excluded) return false;
  }
  for (const std::string& module : modules_to_save_) {
    if (IsWithin(module, layer)) return false;
  }
  if (!targets_) return true;
  DS_ASSIGN_OR_RETURN(const bool matches, targets_->Match(layer));
  // PEFT checks the layer's index only if the targets are a list.
  return matches && (!layers_ || targets_->pattern || HasLayer(layer));
}

StatusOr<std::optional<double>> AdapterRules::Find(const Values& values, const std::string& layer) {
  for (const auto& [pattern, value] : values) {
    DS_ASSIGN_OR_RETURN(const bool matches, pattern.Matches(layer));
    if (matches) return std::optional(value);
  }
  return std::optional<double>();
}

StatusOr<std::optional<double>> AdapterRules::RankOf(const std::string& layer) const {
  return Find(ranks_, layer);
}

StatusOr<std::optional<double>> AdapterRules::AlphaOf(const std::string& layer) const {
  return Find(alphas_, layer);
}

bool AdapterRules::TrainsInFull(const std::string& parameter) const {
  if (saves_biases_ && parameter.ends_with(".bias")) return true;
  return std::any_of(modules_to_save_.begin(), modules_to_save_.end(),
                     [&](std::string_view module) { return IsSavedWith(module, parameter); });
}

bool AdapterRules::SavesInFull(const std::string& parameter) const {
  return TrainsInFull(parameter) ||
         std::any_of(std::begin(kVocabularyModules), std::end(kVocabularyModules),
                     [&](std::string_view module) { return IsSavedWith(module, parameter); });
}

}  // namespace ds::models
