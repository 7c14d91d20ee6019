#pragma once

// RecomputeChoice: which activations of a step are not kept but computed again in the backward pass
// (`train --recompute`, EngineOptions::recompute).

#include <string_view>

#include "runtime/base/status.h"

namespace ds::config {

struct RecomputeChoice {
  enum class Kind {
    kNone,
    kBlocks,     // of whole blocks: what a block was given is kept, and no more of it
    kAttention,  // of attention, in the blocks of the known families: its q, k and v are kept
  };

  Kind kind = Kind::kNone;
  int every = 1;  // of kBlocks: each so manieth block, the second of the model first

  friend bool operator==(const RecomputeChoice&, const RecomputeChoice&) = default;
};

// Reads "none", "full", "attention" or "every:N" with N of at least 1.
StatusOr<RecomputeChoice> ParseRecompute(std::string_view text);

// Tells whether block `index` of a model with so many is computed again as a whole. The first one
// never is, for what it makes of the batch is its only activation in a language model, nor is the
// last, with whose loss the backward pass begins.
bool IsRecomputed(const RecomputeChoice& choice, int index, int blocks);

}  // namespace ds::config
