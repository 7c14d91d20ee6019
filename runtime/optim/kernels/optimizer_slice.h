#pragma once

// OptimizerSlice is one rank's piece, as flat views, of parameters that are adjacent in a flat
// buffer and trained alike.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/optim/kernels/flat_ops.h"

namespace ds::optim {

// The properties of a subset of the parameters under the same optimizer.
struct ParameterGroup {
  double lr_factor = 1.0;            // times the scheduled rate
  double weight_decay_factor = 1.0;  // times the configured decay; 0 switches it off
  bool muon = false;                 // type Muon: matrices that Muon updates instead of AdamW
  // The index in Update::groups of its rate and momentum, if each group has its own schedule.
  std::optional<std::size_t> schedule = {};

  friend bool operator==(const ParameterGroup&, const ParameterGroup&) = default;
};

// The rates of one update of a slice, adjusted for the slice's group.
struct SliceRates {
  double lr = 0.0;
  double beta1 = 0.0;  // SGD and Muon: momentum
  double weight_decay = 0.0;
  double gradient_scale = 1.0;  // the gradients' factor: the clip factor
  std::int64_t step = 1;        // this update's number, from 1
  // On the slice's device, replaces gradient_scale (Optimizer::takes_decision); null: none.
  const UpdateDecision* decision = nullptr;
};

// A run of elements of one parameter in the views.
struct Segment {
  std::int64_t parameter = 0;  // ordinal among the model's trainable parameters
  std::int64_t start = 0;
  std::int64_t count = 0;
};

// The position of one parameter in the unsharded buffer.
struct FullParameter {
  std::string name;
  std::int64_t start = 0;
  std::vector<std::int64_t> shape;
};

// The views have equal lengths, are 1-D, contiguous and on one device, and hold fp32, bf16 or fp16.
// Every element is updated in fp32 and rounded to nearest once, as DeepSpeed's Adam kernels do. For
// 16-bit weights, gradients are also rounded to the weights' dtype after gradient_scale, as there.
// This requires an optimizer that computes each element from that element's values only.
struct OptimizerSlice {
  at::Tensor parameter;
  at::Tensor gradient;            // unchanged
  std::vector<at::Tensor> state;  // one for each of Optimizer::state_names
  at::Tensor published;           // low-precision copy of `parameter` to write, or undefined
  FlatUpdate launch = nullptr;    // FindFlatUpdate (flat_update.h) of the device

  // In order. Elements outside all segments are padding: zeros in all views.
  std::vector<Segment> segments;
  // The segments, limited to the elements that this rank owns: all of the views if they are
  // sharded, this rank's shard otherwise. Each element is owned by exactly one rank, so
  // sums over elements are added in the same order with any sharding.
  std::vector<Segment> owned;

  ParameterGroup group;

  // The buffer of the views, which begin at its element `full_start`. If it is sharded, the views
  // are the intersection of this rank's shard and the parameters. It may be empty; the views then
  // begin at the shard's start. If it is not sharded, the views cover all of the parameters.
  bool sharded = false;
  std::int64_t full_start = 0;
  std::int64_t full_numel = 0;
  std::vector<FullParameter> full_parameters;  // with a piece on this or another rank
};

// Writes the low-precision copy of the parameters, if there is one.
void Publish(const OptimizerSlice& slice);

// Returns elements [start, start + count) of the views, without segments and full parameters.
OptimizerSlice Cut(const OptimizerSlice& slice, std::int64_t start, std::int64_t count);

}  // namespace ds::optim
