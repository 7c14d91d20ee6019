#pragma once

// LoraSpec: low-rank adapters of a model as PEFT describes them (adapter_config.json): beside a
// frozen linear layer W stand A [rank, in] and B [out, rank], and the layer becomes
// W x + scale * B A x. https://arxiv.org/abs/2106.09685

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::models {

inline constexpr char kAdapterConfigFile[] = "adapter_config.json";
inline constexpr char kAdapterWeightsFile[] = "adapter_model.safetensors";

inline constexpr std::int64_t kMostLoraRank = std::int64_t{1} << 20;

struct LoraSpec {
  std::int64_t rank = 8;
  double alpha = 16.0;
  bool rank_stabilised = false;      // rsLoRA: https://arxiv.org/abs/2312.03732
  bool magnitudes = false;           // DoRA: https://arxiv.org/abs/2402.09353
  std::vector<std::string> targets;  // last names of linear layers; empty: all of every layer

  double scale() const;  // alpha / rank, or alpha / sqrt(rank)
};

// Tells adapters' parameters ("...q_proj.lora_A.weight") from all others, by their names.
bool IsLoraParameter(std::string_view name);
// The same of one of DoRA's magnitudes, and of bytes that stand for a weight (QuantizedLayout).
bool IsMagnitudeParameter(std::string_view name);
bool IsQuantizedParameter(std::string_view name);

// Reads a PEFT folder's description. Refuses by name what changes the mathematics and is not built
// (dropout, trained biases, ranks of their own, ...), and set keys that nobody here knows.
StatusOr<LoraSpec> ReadLoraSpec(const std::filesystem::path& folder);

// The description that PEFT reads; `targets` are those that have been found in the model.
nlohmann::ordered_json MakeAdapterConfig(const LoraSpec& spec, const std::string& base_model,
                                         bool weights_are_in_out);

}  // namespace ds::models
