#pragma once

// Bucket: parameters of one unit in one flat buffer, which one collective gathers and one reduces:
// those of one dtype, cut among the same ranks (experts' among others than dense ones), whose
// gradients travel alike, between the same stages if there are several. Parameters that are
// trained alike are a range of it (TrainingRange).

#include <memory>
#include <vector>

#include "runtime/zero/flat_gradients.h"
#include "runtime/zero/flat_parameters.h"
#include "runtime/zero/parameter_unit.h"

namespace ds::zero {

// Consecutive parameters of a bucket with the same optim::ParameterGroup and the same axes of their
// placements.
struct TrainingRange {
  int first = 0;    // of the bucket's parameters
  FlatRange range;  // of the buffer; it begins and ends at multiples of kShardMultiple
};

class Bucket {
 public:
  // Takes members of BucketParameters, which are all trained or all frozen, and their context.
  // `rest`: FlatParameters'.
  Bucket(const Context& context, BufferPool& pool, std::vector<NamedParameter> members, Rest rest);

  // Its parameters have this one (Context::For).
  const Context& context() const { return context_; }
  bool trainable() const { return gradients_ != nullptr; }
  FlatParameters& parameters() { return parameters_; }
  const FlatParameters& parameters() const { return parameters_; }
  FlatGradients& gradients() const { return *gradients_; }  // requires a trainable bucket
  // In order, of the whole buffer. Empty when frozen.
  const std::vector<TrainingRange>& ranges() const { return ranges_; }
  // Shows how all parameters of a range are trained and placed.
  const NamedParameter& member_of(const TrainingRange& range) const {
    return parameters_.parameter(range.first);
  }

 private:
  const Context& context_;
  FlatParameters parameters_;
  std::unique_ptr<FlatGradients> gradients_;  // null when frozen
  std::vector<TrainingRange> ranges_;
};

// Sorts a unit's parameters into buckets, in order of first appearance, what is frozen last; in
// each of them, those of one training range side by side.
std::vector<std::vector<NamedParameter>> BucketParameters(
    const std::vector<NamedParameter>& parameters);

}  // namespace ds::zero
