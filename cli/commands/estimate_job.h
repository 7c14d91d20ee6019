#pragma once

// EstimateJob: the part of `dsrun estimate` that predicts a training job from its ds_config.

#include <cstdint>
#include <optional>
#include <string>

#include "cli/flags/launch_flags.h"
#include "runtime/base/status.h"

namespace CLI {
class App;
}

namespace ds::cli {

struct EstimateJobFlags {
  std::string deepspeed_config;  // "" = no job is asked about
  LaunchFlags launch;            // hosts and their slots
  std::optional<std::int64_t> micro_batch;
  std::int64_t seq_len = 256;
  std::string recompute = "none";
  std::int64_t mlp_tiles = 1;
  std::optional<std::int64_t> tensor_ranks;
  std::string device = "auto";
  std::string memory;  // that a rank may have; "" = not said
};

// Declares those that concern a job alone.
void AddEstimateJobFlags(CLI::App& app, EstimateJobFlags* flags);

// Prints the prediction for `model`, a folder, a config.json or a preset, on as many hosts as the
// hostfile has, or else on `nodes` of `ranks_per_node` ranks. Returns the exit status: kExitOk.
StatusOr<int> EstimateJob(const EstimateJobFlags& flags, const std::string& model,
                          std::int64_t nodes, std::int64_t ranks_per_node, bool json);

}  // namespace ds::cli
