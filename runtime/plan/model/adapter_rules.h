#pragma once

// AdapterRules: the layers that an adapter_config.json adapts, their ranks and alphas, and the
// parameters that are saved whole, as PEFT 0.21 decides it (check_target_module_exists,
// get_pattern_key). Layers are named in full: "model.layers.0.self_attn.q_proj".
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

// PEFT's INCLUDE_LINEAR_LAYERS_SHORTHAND: target_modules that are all linear layers but the head.
inline constexpr char kAllLinear[] = "all-linear";

// True when `name` names the layer as an element of target_modules does: in full, or its end after
// a dot.
bool NamesModule(const std::string& name, const std::string& layer);

// True when the parameter is in a module with a name that ends so: the rule of modules_to_save.
bool IsSavedWith(std::string_view module, std::string_view parameter);

class AdapterRules {
 public:
  // Errors name the key.
  static StatusOr<AdapterRules> Parse(const nlohmann::ordered_json& config);

  // True when the config adapts the linear layer. Where it names no targets ("all-linear", null),
  // every layer may be.
  StatusOr<bool> Targets(const std::string& layer) const;
  // False when the config names no targets: then the file decides.
  bool has_targets() const { return targets_.has_value(); }

  // The layer's values in rank_pattern and alpha_pattern; nothing: r and lora_alpha hold.
  StatusOr<std::optional<double>> RankOf(const std::string& layer) const;
  StatusOr<std::optional<double>> AlphaOf(const std::string& layer) const;

  // True when modules_to_save or bias says that the parameter is trained, so that the file has it
  // whole.
  bool TrainsWhole(const std::string& parameter) const;
  // The same, and true of the embedding and the head, which PEFT may save without training them.
  bool SavesWhole(const std::string& parameter) const;
  const std::vector<std::string>& modules_to_save() const { return modules_to_save_; }

 private:
  // A list of names, or one pattern.
  struct Modules {
    std::vector<std::string> names;
    std::optional<ModulePattern> pattern;
    StatusOr<bool> Match(const std::string& layer) const;
  };
  using Values = std::vector<std::pair<ModulePattern, double>>;  // the first that matches counts

  static StatusOr<std::optional<Modules>> ReadModules(const nlohmann::ordered_json& config,
                                                      const char* key);
  static StatusOr<Values> ReadValues(const nlohmann::ordered_json& config, const char* key);
  static StatusOr<std::optional<double>> Find(const Values& values, const std::string& layer);
  Status ReadLayers(const nlohmann::ordered_json& config);
  Status ReadWhole(const nlohmann::ordered_json& config);
  bool HasLayer(const std::string& layer) const;

  std::optional<Modules> targets_, excluded_;
  std::optional<std::vector<std::int64_t>> layers_;  // layers_to_transform
  std::vector<std::string> layers_patterns_;
  Values ranks_, alphas_;
  std::vector<std::string> modules_to_save_;
  bool saves_biases_ = false;
};

}  // namespace ds::models
