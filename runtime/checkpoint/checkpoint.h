#pragma once

// Saves and loads the state of a training job; FORMAT.md describes the format.
//
// SaveCheckpoint and LoadCheckpoint are collective: every rank of `world` calls them with the same
// arguments and its own parts, and every rank returns the same status. The ranks agree on errors
// before they continue, so no rank waits for a failed one.
//
// Throws only the exceptions that `world` throws when a peer is gone.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint/stateful.h"
#include "runtime/checkpoint_format/lineage.h"
#include "runtime/comm/communicator.h"

namespace ds::checkpoint {

// Returns whether the tensor is optimizer state ("<parameter>/exp_avg"), not a weight or a buffer.
inline bool IsOptimizerState(const std::string& name) {
  return name.find('/') != std::string::npos;
}

struct SaveRequest {
  std::filesystem::path root;  // folder of all checkpoints of the job; created if missing
  std::int64_t step = 0;       // finished optimizer steps; the checkpoint is root/step-N
  // Informational, never read back: {"program", "zero_stage", ...}. The save adds the world size.
  nlohmann::json written_by = nlohmann::json::object();
  // The job's own past. Each save extends it, and LoadCheckpoint sets it. Without it, a checkpoint
  // is assumed to descend from all lower steps. Only rank 0's value is written.
  Lineage* lineage = nullptr;
  // Writes more files (IsCheckpointFile) to the folder of rank 0's save before it is renamed. If
  // empty, there are none. Only rank 0's is called.
  std::function<Status(const std::filesystem::path& folder)> write_more = {};
  FileSystem* file_system = &FileSystem::System();
};

// Saves a checkpoint. Each rank writes its own file to the folder root/step-N.tmp-..., and reads it
// back to verify it. Rank 0 then renames the folder to root/step-N (which replaces an older step-N
// in one move) and names it in root/latest. Returns the path of the checkpoint. On failure the
// temporary folder is removed and earlier checkpoints are unchanged. A full disk is
// kResourceExhausted, with the needed and the free bytes. All ranks must see the same `root`.
StatusOr<std::filesystem::path> SaveCheckpoint(const SaveRequest& request,
                                               std::span<Stateful* const> parts,
                                               comm::Communicator& world);

// Differences between a checkpoint and the parts that a load accepts.
struct LoadRules {
  // Returns whether a tensor is skipped that the parts do not have. If empty, none is.
  std::function<bool(const std::string& name)> skips;
  bool keeps_missing = false;  // tensors that the checkpoint does not have keep their values
  bool converts = false;       // from one floating-point dtype to another
};

// Fills first the shards and then the states of all parts from the checkpoint folder `directory`.
// The checkpoint may come from any world size and ZeRO stage. Each rank reads only the chunks that
// overlap its shards, and verifies their checksums. Call VerifyCheckpoint() first to verify all
// chunks.
//
// An error names the tensor: missing in the checkpoint, unknown to the parts, other shape or dtype.
// `rules` say which of these differences are none.
// After an error the parts hold a mixture of old and new values and must not be used.
//
// `lineage` must hold the generation that loads. On success it is set to descend from this
// checkpoint.
Status LoadCheckpoint(const std::filesystem::path& directory, std::span<Stateful* const> parts,
                      comm::Communicator& world, Lineage* lineage = nullptr,
                      const LoadRules& rules = {});

// Returns the weights and buffers of a checkpoint, unsharded, by name. It leaves out optimizer
// state. Verifies the checksums of what it reads: kDataLoss. Not collective.
StatusOr<std::map<std::string, at::Tensor>> ReadWeights(const std::filesystem::path& directory);

}  // namespace ds::checkpoint
