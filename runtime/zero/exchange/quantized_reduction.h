#pragma once

// QuantizedReduction: reduce-scatter (sum or mean) of gradients that are sent in 4 bits (ZeRO++'s
// qgZ, arXiv 2306.10209). A value is quantized once and summed in fp32 by the receiver. With two
// levels it is quantized and summed a second time.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/comm/communicator.h"
#include "runtime/comm/work.h"
#include "runtime/config/ds_config.h"
#include "runtime/zero/storage/store.h"

namespace ds::zero {

// LossFeedback: error feedback for the quantization (LoCo, arXiv 2407.04480). The error e of
// earlier steps is added before quantization; then e becomes beta e + (1 - beta) times the new
// error. It is stored in 8 bits, and reset periodically. It is not part of checkpoints, as in
// DeepSpeed.
//
// Threads: one thread at a time. The context must outlive this object.
class LossFeedback {
 public:
  LossFeedback(const Context& context, const config::LocoConfig& loco)
      : context_(context), loco_(loco) {}

  // Begins a reduction of `slots` times `count` values. Both must be the same in every call.
  void Begin(std::int64_t count, int slots);
  // Quantizes the values of one slot, plus their error feedback, into `bytes`.
  void Quantize(const at::Tensor& values, int slot, const at::Tensor& bytes);

 private:
  const Context& context_;
  const config::LocoConfig loco_;
  Store errors_;  // quantized; by slot
  std::int64_t uses_ = 0;
};

// The error feedback of each of the two levels.
struct LossFeedbacks {
  LossFeedback first;
  LossFeedback second;
};

// The arguments of one reduction; `tag` identifies it to ranks that compare their calls.
struct QuantizedCall {
  at::Tensor part;
  at::Tensor full;
  comm::ReduceOp op = comm::ReduceOp::kSum;
  std::string_view tag = {};
};

// Overwrites `part` with this rank's part of the reduced `full`. `full` has one part for each
// rank of context.groups.shards, in their order, each a multiple of 8 elements. If there are
// secondary groups, the sum has two levels: within them, then across. `feedbacks` may be null; it
// belongs to this `full`. Memory in addition to `full`: twice its quantized bytes, and two fp32
// sums of full / within elements (part's size with one level).
//
// With context.overlap the last exchange (with two levels the far one) overlaps with computation
// until Await; the near one has ended when the constructor returns. Constructor and Await are
// collective.
class QuantizedReduction {
 public:
  QuantizedReduction(const QuantizedCall& call, const Context& context,
                     LossFeedbacks* feedbacks = nullptr);
  // Waits; the result is in `part` afterwards. Call it once.
  void Await();

 private:
  // An all-to-all exchange between the ranks of a group.
  struct Exchange {
    std::int64_t count = 0;  // values for one rank
    at::Tensor outgoing = {};
    at::Tensor incoming = {};
    device::LedgerEntry booked = {};
  };
  // `for_rank(r)` returns the `count` values that this rank sends to rank r.
  template <typename ForRank>
  static Exchange Pack(int ranks, std::int64_t count, ForRank for_rank, const Context& context,
                       LossFeedback* feedback);
  static at::Tensor AddUp(const Exchange& exchange);

  at::Tensor part_;
  int divisor_ = 1;
  Exchange last_;
  std::optional<comm::Work> work_;  // none: the last exchange has ended
};

}  // namespace ds::zero
