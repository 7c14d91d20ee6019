#pragma once

// LoraSpec: low-rank adapters of a model, as in PEFT: a frozen linear layer W gets A [rank, in] and
// B [out, rank], and computes W x + scale * B A x (https://arxiv.org/abs/2106.09685). For a PEFT
// folder the shapes in adapter_model.safetensors determine which layers have adapters and their
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
  double dropout = 0.0;          // of the input of A, in training
  // Names of linear layers, in the form of PEFT's target_modules; empty: all linear layers.
  std::vector<std::string> targets;
  std::string target_pattern = {};  // a regular expression of full names, instead of `targets`

  struct Layer {
    std::int64_t rank = 0;
    double scale = 1.0;
  };
  // By full name; filled from a PEFT folder or by ChooseLayers. Empty until then: the last
  // components of the targets' names apply.
  std::map<std::string, Layer> layers;

  // The fields below are filled from a PEFT folder.
  std::map<std::string, std::string> full;  // full parameters in the file, with their names there
  // Names in the file of second copies: the tied head's matrix, keyed by the table's name. Filled
  // by TakeTiedHead.
  std::map<std::string, std::string> copies;
  std::optional<AdapterRules> rules;
  bool ties_weights = false;  // ensure_weight_tying
  std::string config_text;    // adapter_config.json

  double scale() const { return ScaleOf(rank, alpha); }
  double ScaleOf(std::int64_t of_rank, double of_alpha) const;
  bool is_read() const { return rules.has_value(); }
  // True of a parameter that the file has in full because it is trained (modules_to_save, bias).
  bool TrainsInFull(const std::string& parameter) const;
  // Returns the adapter of the linear layer with this full name, or nullopt.
  std::optional<Layer> Find(const std::string& layer) const;
};

// True for the name of an adapter's parameter ("...q_proj.lora_A.weight").
bool IsLoraParameter(std::string_view name);
// These recognize DoRA's magnitudes, and the bytes of a quantized weight (QuantizedLayout).
bool IsMagnitudeParameter(std::string_view name);
bool IsQuantizedParameter(std::string_view name);

// Maps the name of a tensor in adapter_model.safetensors to a parameter: an adapter's or the
// model's.
StatusOr<std::string> ParameterOfStored(std::string_view stored_name);

// Reads a PEFT folder: its config and the header of its tensors. Unsupported and unknown settings
// fail by name; tensors that contradict the config fail.
StatusOr<LoraSpec> ReadLoraSpec(const std::filesystem::path& folder);

// The full names in a model: linear layers that take adapters, parameters, and the table that a
// tied head shares ("" without one).
struct ModelNames {
  std::vector<std::string> layers, parameters;
  std::string tied_table;
};

// Removes a tied head's matrix from `full` where PEFT keeps it tied: it duplicates the table.
// AdapterReader compares the two values.
void TakeTiedHead(const ModelNames& model, LoraSpec* spec);

// Fails if a PEFT folder does not fit the model. A spec that was not read from a folder fits any.
// Call TakeTiedHead first.
Status CheckFits(const LoraSpec& spec, const ModelNames& model);

// Returns the config that PEFT reads. A spec read from a folder keeps that folder's config, with
// `base_model`; for any other spec `targets` are the layers found in the model.
nlohmann::ordered_json MakeAdapterConfig(const LoraSpec& spec, const std::string& base_model,
                                         bool weights_are_in_out);

}  // namespace ds::models
