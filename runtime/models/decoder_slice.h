#pragma once

// DecoderSlice: what one rank builds of a decoder, and with whom. A decoder that is not cut is a
// slice of its own.

#include <memory>
#include <string>

#include "runtime/base/status.h"
#include "runtime/checkpoint/placement.h"
#include "runtime/models/spec/tensor_plan.h"
#include "runtime/tensor_parallel/group.h"

namespace ds::models {

struct DecoderSlice {
  std::shared_ptr<const TensorPlan> plan;
  tensor_parallel::Group group;  // of as many ranks as the plan has parts

  const DecoderSpec& spec() const { return plan->slice(); }
  // Tells what a parameter with this full name, whose local tensor has this shape, is of the
  // decoder's.
  checkpoint::Placement PlacementOf(const std::string& name, checkpoint::Shape shape) const;
};

}  // namespace ds::models
