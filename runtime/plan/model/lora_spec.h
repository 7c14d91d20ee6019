#pragma once

// LoraSpec: low-rank adapters of a model as PEFT describes them: a frozen linear layer W gets A
// [rank, in] and B [out, rank], and becomes W x + scale * B A x. https://arxiv.org/abs/2106.09685
// Of a PEFT folder the shapes in adapter_model.safetensors say which layers have adapters of which
// ranks; adapter_config.json must agree.

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/model/adapter_rules.h"

namespace ds::models {

inline constexpr char kAdapterConfigFile[] = "adapter_config.json";
inline constexpr char kAdapterWeightsFile[] = "adapter_model.safetensors";

inline constexpr std::int64_t kMostLoraRank = std::int64_t{1} << 20;

struct LoraSpec {
  std::int64_t rank = 8;
  double alpha = 16.0;
  bool rank_stabilised = false;  // rsLoRA: https://arxiv.org/abs/2312.03732
  bool magnitudes = false;       // DoRA: https://arxiv.org/abs/2402.09353
  double dropout = 0.0;          // of the input of A, while training
  // Names of linear layers, as PEFT's target_modules has them; empty: all of every layer.
  std::vector<std::string> targets;
  std::string target_pattern = {};  // in their place, a regular expression of full names

  struct Layer {
    std::int64_t rank = 0;
    double scale = 1.0;
  };
  // By full name; filled from a PEFT folder, or by ChooseLayers. Empty before: the targets' last
  // names say.
  std::map<std::string, Layer> layers;

  // These are filled from a PEFT folder.
  std::map<std::string, std::string>
      whole;  // parameters that the file has whole, their names there
  // Names in the file of second copies: the tied head's matrix, by the table's name. TakeTiedHead
  // fills it.
  std::map<std::string, std::string> copies;
  std::optional<AdapterRules> rules;
  bool ties_weights = false;  // ensure_weight_tying
  std::string config_text;    // adapter_config.json

  double scale() const { return ScaleOf(rank, alpha); }
  double ScaleOf(std::int64_t of_rank, double of_alpha) const;
  bool is_read() const { return rules.has_value(); }
  // True of a parameter that the file has whole to train it, as modules_to_save and bias say.
  bool TrainsWhole(const std::string& parameter) const;
  // The adapter of the linear layer with this full name; nothing: none.
  std::optional<Layer> Find(const std::string& layer) const;
};

// Tells adapters' parameters ("...q_proj.lora_A.weight") from all others, by their names.
bool IsLoraParameter(std::string_view name);
// The same of one of DoRA's magnitudes, and of bytes that stand for a weight (QuantizedLayout).
bool IsMagnitudeParameter(std::string_view name);
bool IsQuantizedParameter(std::string_view name);

// The parameter that a tensor of adapter_model.safetensors is: an adapter's, or the model's own.
StatusOr<std::string> ParameterOfStored(std::string_view stored_name);

// Reads a PEFT folder: its description and the header of its tensors. Refuses by name settings that
// are not built or not known, and tensors that contradict the description.
StatusOr<LoraSpec> ReadLoraSpec(const std::filesystem::path& folder);

// The names of a model, in full: linear layers that take adapters, parameters, and the table that a
// tied head shares ("" without one).
struct ModelNames {
  std::vector<std::string> layers, parameters;
  std::string tied_table;
};

// Takes a tied head's matrix out of `whole` where PEFT keeps it tied: it is the table once more.
// What it holds is AdapterReader's to compare.
void TakeTiedHead(const ModelNames& model, LoraSpec* spec);

// Refuses a PEFT folder that does not fit the model. A spec that was not read fits any. Requires
// TakeTiedHead.
Status CheckFits(const LoraSpec& spec, const ModelNames& model);

// The description that PEFT reads. Of a spec that was read it is the folder's own, of `base_model`;
// else `targets` are those that have been found in the model.
nlohmann::ordered_json MakeAdapterConfig(const LoraSpec& spec, const std::string& base_model,
                                         bool weights_are_in_out);

}  // namespace ds::models
