#pragma once

// Bucket: parameters of one unit in one flat buffer, which one collective gathers and one reduces.
// They have the same dtype, are sharded among the same ranks (experts among others than dense
// parameters), have the same kind of gradient reduction, and are held by the same pipeline stages.
// Parameters that are trained alike form a range of the buffer (TrainingRange).

#include <memory>
#include <vector>

#include "runtime/zero/flat_gradients.h"
#include "runtime/zero/flat_parameters.h"
#include "runtime/zero/parameter_unit.h"

namespace ds::zero {

// Consecutive parameters of a bucket with the same optim::ParameterGroup and the same mesh axes in
// their placements.
struct TrainingRange {
  int first = 0;    // index of its first parameter in the bucket
  FlatRange range;  // in the buffer; starts and ends at multiples of kShardMultiple
};

class Bucket {
 public:
  // Takes one list of BucketParameters and its context. The parameters are either all trained or
  // all frozen. `storage_tier` is passed to FlatParameters.
  Bucket(const Context& context, BufferPool& pool, std::vector<NamedParameter> members,
         StorageTier storage_tier);

  // The context of its parameters (Context::For).
  const Context& context() const { return context_; }
  bool trainable() const { return gradients_ != nullptr; }
  FlatParameters& parameters() { return parameters_; }
  const FlatParameters& parameters() const { return parameters_; }
  FlatGradients& gradients() const { return *gradients_; }  // requires a trainable bucket
  // The training ranges of the full buffer, in order. Empty if the bucket is frozen.
  const std::vector<TrainingRange>& ranges() const { return ranges_; }
  // Returns a parameter that represents how all parameters of the range are trained and placed.
  const NamedParameter& member_of(const TrainingRange& range) const {
    return parameters_.parameter(range.first);
  }

 private:
  const Context& context_;
  FlatParameters parameters_;
  std::unique_ptr<FlatGradients> gradients_;  // null if frozen
  std::vector<TrainingRange> ranges_;
};

// Sorts a unit's parameters into buckets, in order of first appearance, frozen ones last. In each
// bucket the parameters of one training range are contiguous.
std::vector<std::vector<NamedParameter>> BucketParameters(
    const std::vector<NamedParameter>& parameters);

}  // namespace ds::zero
