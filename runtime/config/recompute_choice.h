#pragma once

// RecomputeChoice: which activations of a step are not kept but computed again in the backward pass
// (`train --recompute`, EngineOptions::recompute), and what a ds_config says of it.

#include <cstdint>
#include <string_view>

#include "runtime/base/status.h"

namespace ds::config {

struct DsConfig;

struct RecomputeChoice {
  enum class Kind {
    kNone,
    kBlocks,     // of whole blocks: what a block was given is kept, and no more of it
    kAttention,  // of attention, in the blocks of the known families: its q, k and v are kept
    kByConfig,   // as the ds_config says: no choice before DecideRecompute has made it one
  };

  Kind kind = Kind::kNone;
  int every = 1;  // of kBlocks: each so manieth block, the second of the model first

  friend bool operator==(const RecomputeChoice&, const RecomputeChoice&) = default;
};

// Reads "none", "full", "attention", "every:N" with N of at least 1, or "auto" (kByConfig).
StatusOr<RecomputeChoice> ParseRecompute(std::string_view text);

// Returns `choice`, which rules, none included. Where the ds_config is to say it: all blocks if a
// key of activation_checkpointing is not at its default, or stages of a pipeline have an
// activation_checkpoint_interval; else none.
RecomputeChoice DecideRecompute(const RecomputeChoice& choice, const DsConfig& config);

// Tells whether block `index` of a model with so many is computed again as a whole. The first one
// never is, for what it makes of the batch is its only activation in a language model, nor is the
// last, with whose loss the backward pass begins.
bool IsRecomputed(const RecomputeChoice& choice, int index, int blocks);

// OK where the buffer of contiguous_memory_optimization has a part for each of the layers that a
// rank recomputes in a pass. The error names the numbers that do.
Status CheckBufferedParts(std::int64_t parts, std::int64_t recomputed_layers);

}  // namespace ds::config
