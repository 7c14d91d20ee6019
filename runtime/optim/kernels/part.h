#pragma once

// Part: what one rank updates of parameters that lie side by side in a flat buffer and are trained
// alike, as flat views.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/optim/kernels/flat_ops.h"

namespace ds::optim {

// The properties that set some parameters apart from others under the same optimizer.
struct ParameterGroup {
  double lr_factor = 1.0;            // times the scheduled rate
  double weight_decay_factor = 1.0;  // times the configured decay; 0 switches it off
  bool muon = false;                 // type Muon: matrices, which Muon updates, not AdamW
  // The index of Update::groups that has its rate and momentum, where each group has its own
  // schedule.
  std::optional<std::size_t> schedule = {};

  friend bool operator==(const ParameterGroup&, const ParameterGroup&) = default;
};

// The rates of one update of a part, the part's group taken into account.
struct PartRates {
  double lr = 0.0;
  double beta1 = 0.0;  // SGD and Muon: momentum
  double weight_decay = 0.0;
  double gradient_scale = 1.0;  // gradients are multiplied by it: the clip factor
  std::int64_t step = 1;        // this update's number, from 1
  // On the part's device, in place of gradient_scale (Optimizer::takes_decision); null: none.
  const UpdateDecision* decision = nullptr;
};

// A run of elements of one parameter in the views.
struct Segment {
  std::int64_t parameter = 0;  // ordinal among the model's trainable parameters
  std::int64_t start = 0;
  std::int64_t count = 0;
};

// The position of one parameter in the whole buffer.
struct WholeParameter {
  std::string name;
  std::int64_t start = 0;
  std::vector<std::int64_t> shape;
};

// The views have equal lengths, are 1-D, contiguous and on one device, and hold fp32, bf16 or fp16.
// Every element is updated in fp32 and rounded to nearest once, as DeepSpeed's Adam kernels do.
// 16-bit weights are updated by gradients that were rounded to their dtype after gradient_scale,
// too, as there; this requires an optimizer that computes each element from that element's values.
struct Part {
  at::Tensor parameter;
  at::Tensor gradient;            // unchanged
  std::vector<at::Tensor> state;  // one for each of Optimizer::state_names
  at::Tensor published;           // narrow copy of `parameter` to write, or undefined
  FlatUpdate launch =
      nullptr;  // what updates the views: FindFlatUpdate (flat_update.h) their device

  // In order; what no segment covers is padding: zeros in all views.
  std::vector<Segment> segments;
  // The segments, cut to what this rank owns: all of the views where they are sharded, this rank's
  // shard of them where they are not. Over the ranks every element is owned once, so that sums over
  // elements add in the same order whatever is sharded.
  std::vector<Segment> owned;

  ParameterGroup group;

  // The buffer that the views are of. They begin at element `whole_start` of it: where it is cut
  // into equal shards they are what this rank's shard has of the parameters, which may be nothing
  // (then they begin where that does), otherwise all of these.
  bool sharded = false;
  std::int64_t whole_start = 0;
  std::int64_t whole_numel = 0;
  std::vector<WholeParameter> whole_parameters;  // those that this or another rank's part is of
};

// Writes the narrow copy of the parameters, where there is one.
void Publish(const Part& part);

// Elements [start, start + count) of the views; without segments and whole parameters.
Part Cut(const Part& part, std::int64_t start, std::int64_t count);

}  // namespace ds::optim
