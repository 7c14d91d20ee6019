#pragma once

// DecoderSlice: what one rank builds of a decoder, and with whom. A decoder that is not cut is a
// slice of its own.

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/placement.h"
#include "runtime/parallel/expert/token_exchange.h"
#include "runtime/parallel/sequence/group.h"
#include "runtime/parallel/tensor/group.h"
#include "runtime/plan/model/tensor_plan.h"

namespace ds::models {

struct DecoderSlice {
  std::shared_ptr<const TensorPlan> plan;
  tensor_parallel::Group group;         // of as many ranks as the plan has parts
  sequence_parallel::Group sequence;    // whose ranks have the same slice and other tokens
  sequence_parallel::HeadShares heads;  // of the slice, by rank of that group
  moe::ExpertGroup experts = {};        // whose ranks have a layer's experts between them
  // Stages that hold the table of tokens, where its first block and its last are on several.
  std::vector<int> table_stages = {};

  const DecoderSpec& spec() const { return plan->slice(); }
  // The heads of the slice for which this rank computes attention.
  const sequence_parallel::HeadRange& own_heads() const {
    return heads.queries[static_cast<std::size_t>(sequence.rank())];
  }
  std::string NameTokenTable() const;  // in full
  // Tells what a parameter with this full name, whose local tensor has this shape, is of the
  // decoder's.
  checkpoint::Placement PlacementOf(const std::string& name, checkpoint::Shape shape) const;
};

}  // namespace ds::models
