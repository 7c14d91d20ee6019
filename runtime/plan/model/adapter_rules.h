#pragma once

// AdapterRules: the layers that an adapter_config.json adapts, their ranks and alphas, and the
// parameters saved in full. Follows PEFT 0.21 (check_target_module_exists, get_pattern_key). Layers
// have full names: "model.layers.0.self_attn.q_proj".
//
// Threads: const functions may be called concurrently.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/model/module_pattern.h"

namespace ds::models {

// PEFT's INCLUDE_LINEAR_LAYERS_SHORTHAND: as target_modules, all linear layers except the head.
inline constexpr char kAllLinear[] = "all-linear";

// True when `name` matches the layer as an element of target_modules does: it is the full name, or
// the part of it after some dot.
bool NamesModule(const std::string& name, const std::string& layer);

// True when the name of a module around the parameter ends with `module`: the rule of
// modules_to_save.
bool IsSavedWith(std::string_view module, std::string_view parameter);

class AdapterRules {
 public:
  // Errors name the offending key.
  static StatusOr<AdapterRules> Parse(const nlohmann::ordered_json& config);

  // True when the config adapts the linear layer. Without targets ("all-linear", null) every layer
  // qualifies, unless exclude_modules or modules_to_save covers it.
  StatusOr<bool> Targets(const std::string& layer) const;
  // False when the config names no targets; the weights file then decides.
  bool has_targets() const { return targets_.has_value(); }

  // The layer's value in rank_pattern or alpha_pattern; nullopt means r or lora_alpha applies.
  StatusOr<std::optional<double>> RankOf(const std::string& layer) const;
  StatusOr<std::optional<double>> AlphaOf(const std::string& layer) const;

  // True when modules_to_save or bias marks the parameter as trained, so the file has it in full.
  bool TrainsInFull(const std::string& parameter) const;
  // Like TrainsInFull, but also true of the embedding and the head: PEFT may save them untrained.
  bool SavesInFull(const std::string& parameter) const;
  const std::vector<std::string>& modules_to_save() const { return modules_to_save_; }

 private:
  // A list of names, or one pattern.
  struct Modules {
    std::vector<std::string> names;
    std::optional<ModulePattern> pattern;
    StatusOr<bool> Match(const std::string& layer) const;
  };
  using Values = std::vector<std::pair<ModulePattern, double>>;  // the first match applies

  static StatusOr<std::optional<Modules>> ReadModules(const nlohmann::ordered_json& config,
                                                      const char* key);
  static StatusOr<Values> ReadValues(const nlohmann::ordered_json& config, const char* key);
  static StatusOr<std::optional<double>> Find(const Values& values, const std::string& layer);
  Status ReadLayers(const nlohmann::ordered_json& config);
  Status ReadSavedModules(const nlohmann::ordered_json& config);
  bool HasLayer(const std::string& layer) const;

  std::optional<Modules> targets_, excluded_;
  std::optional<std::vector<std::int64_t>> layers_;  // layers_to_transform
  std::vector<std::string> layers_patterns_;
  Values ranks_, alphas_;
  std::vector<std::string> modules_to_save_;
  bool saves_biases_ = false;
};

}  // namespace ds::models
