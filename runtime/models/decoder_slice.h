#pragma once

// DecoderSlice: the part of a decoder that one rank builds, and the groups of ranks that have the
// others. An unsharded decoder is a slice, too.

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
  tensor_parallel::TensorGroup group;         // as many ranks as the plan has parts
  sequence_parallel::SequenceGroup sequence;  // ranks with the same slice and other tokens
  sequence_parallel::HeadShares heads;        // of the slice, by sequence rank
  moe::ExpertGroup experts = {};              // ranks that share each layer's experts
  // The stages that hold the token table, if the first and the last block are on different stages.
  std::vector<int> table_stages = {};

  const DecoderSpec& spec() const { return plan->slice(); }
  // The heads of the slice that this rank computes attention for.
  const sequence_parallel::HeadRange& own_heads() const {
    return heads.queries[static_cast<std::size_t>(sequence.rank())];
  }
  std::string NameTokenTable() const;  // its full name
  // Returns which part of the decoder's global parameter the local tensor is. `name` is the full
  // name, `shape` the local shape.
  checkpoint::Placement PlacementOf(const std::string& name, checkpoint::Shape shape) const;
};

}  // namespace ds::models
