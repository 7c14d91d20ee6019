#pragma once

// Part: what one rank updates of one group of parameters, as flat views.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/device/memory_ledger.h"

namespace ds::optim {

// What sets some parameters apart from others under the same optimizer.
struct ParameterGroup {
  double lr_factor = 1.0;            // times the scheduled rate
  double weight_decay_factor = 1.0;  // times the configured decay; 0 switches it off
  bool muon = false;                 // type Muon: matrices, which Muon updates, not AdamW
  // Which of Update::groups has its rate and momentum, where each group has its own schedule.
  std::optional<std::size_t> schedule = {};

  friend bool operator==(const ParameterGroup&, const ParameterGroup&) = default;
};

// Where elements of one parameter lie in the views.
struct Segment {
  std::int64_t parameter = 0;  // ordinal among the model's trainable parameters
  std::int64_t start = 0;
  std::int64_t count = 0;
};

// Where one parameter lies in the whole buffer.
struct Place {
  std::int64_t start = 0;
  std::vector<std::int64_t> shape;
};

// The views have equal lengths and are 1-D, contiguous and on one device. An optimizer is given
// parameter and state in fp32; where they are kept in 16 bit, apply_in_fp32.h stands between.
struct Part {
  at::Tensor parameter;           // fp32
  at::Tensor gradient;            // fp32, bf16 or fp16; unchanged
  std::vector<at::Tensor> state;  // fp32, one for each of Optimizer::state_names
  at::Tensor published;           // bf16 or fp16 copy of `parameter` to write, or undefined

  // In order; what no segment covers is padding: zeros in all views.
  std::vector<Segment> segments;
  // The segments, cut to what this rank owns: all of the views where they are sharded, this rank's
  // shard of them where they are not. Over the ranks every element is owned once, so that sums over
  // elements add in the same order whatever is sharded.
  std::vector<Segment> owned;

  ParameterGroup group;

  // The buffer that the views are of: this rank's shard of it, or all of it.
  bool sharded = false;
  std::int64_t whole_numel = 0;
  std::vector<Place> places;  // of all the group's parameters
};

// All parts of one rank.
struct RankParts {
  std::vector<Part> parts;           // in the model's order, the same groups on every rank
  std::int64_t parameter_count = 0;  // trainable parameters of the model
  comm::Communicator* world = nullptr;
  device::MemoryLedger* ledger = nullptr;
};

// Writes the narrow copy of the parameters, where there is one.
void Publish(const Part& part);

// Books bytes that lie where the parts do, for as long as the result lives.
device::LedgerEntry Book(const RankParts& all, device::MemoryUse use, std::int64_t bytes);

// Elements [start, start + count) of the views; without segments and places.
Part Cut(const Part& part, std::int64_t start, std::int64_t count);

}  // namespace ds::optim
