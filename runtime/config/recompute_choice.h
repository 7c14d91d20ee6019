#pragma once

// RecomputeChoice selects the activations that are recomputed in the backward pass instead of being
// kept (`train --recompute`, EngineOptions::recompute), and reads the choice of a ds_config.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::config {

struct DsConfig;

struct RecomputeChoice {
  enum class Kind {
    kNone,
    kBlocks,     // full blocks: only the input of a block is kept
    kAttention,  // attention in blocks of the known families: q, k and v are kept
    kByConfig,   // as in the ds_config; DecideRecompute replaces it
  };

  Kind kind = Kind::kNone;
  int every = 1;  // kBlocks: recomputes every Nth block, from the model's second block on

  friend bool operator==(const RecomputeChoice&, const RecomputeChoice&) = default;
};

// Returns the forms that a user writes: "none", "full", "attention", "every:N".
const std::vector<std::string>& RecomputeForms();

// Reads "none", "full", "attention", "every:N" with N of at least 1, or "auto" (kByConfig).
StatusOr<RecomputeChoice> ParseRecompute(std::string_view text);

// Returns `choice` unless it is kByConfig; an explicit kNone is kept, too. For kByConfig, returns
// all blocks if a key of activation_checkpointing differs from its default, or if pipeline stages
// have an activation_checkpoint_interval; else none.
RecomputeChoice DecideRecompute(const RecomputeChoice& choice, const DsConfig& config);

// Returns true if block `index` of a model with `blocks` blocks is recomputed in full. The first
// block never is: in a language model its output is its only activation. Nor is the last, since the
// backward pass begins with its loss.
bool IsRecomputed(const RecomputeChoice& choice, int index, int blocks);

// Returns OK if the buffer of contiguous_memory_optimization has a part for each of the layers that
// a rank recomputes in a pass. The error names a number of parts that suffices.
Status CheckBufferedPartitions(std::int64_t parts, std::int64_t recomputed_layers);

}  // namespace ds::config
