#pragma once

// QuantizedReduction: the sum or mean over ranks, of which each gets its part, with gradients that
// travel in 4 bits (ZeRO++'s qgZ, arXiv 2306.10209). A value is quantised once, added up in fp32
// where it arrives, and, with two levels, quantised and added up a second time.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/comm/communicator.h"
#include "runtime/comm/work.h"
#include "runtime/config/ds_config.h"
#include "runtime/zero/storage/store.h"

namespace ds::zero {

// LossFeedback: what quantising has taken from a rank's values, for the next time (LoCo,
// arXiv 2407.04480). Values travel with the error e added; then e becomes beta e + (1 - beta) times
// what was lost now. It is kept in 8 bits, and forgotten now and then. Not part of checkpoints, as
// in DeepSpeed.
//
// Threads: one at a time. The context outlives this.
class LossFeedback {
 public:
  LossFeedback(const Context& context, const config::LocoConfig& loco)
      : context_(context), loco_(loco) {}

  // Begins a reduction of `slots` times `count` values: always the same.
  void Begin(std::int64_t count, int slots);
  // Quantises the values of one slot, with what was lost before, into `bytes`.
  void Quantize(const at::Tensor& values, int slot, const at::Tensor& bytes);

 private:
  const Context& context_;
  const config::LocoConfig loco_;
  Store errors_;  // quantised; by slot
  std::int64_t uses_ = 0;
};

// One for each time that values travel.
struct LossFeedbacks {
  LossFeedback first;
  LossFeedback second;
};

// Names what is reduced; `tag` says what that is about to ranks that compare their calls.
struct QuantizedCall {
  at::Tensor part;
  at::Tensor whole;
  comm::ReduceOp op = comm::ReduceOp::kSum;
  std::string_view tag = {};
};

// Overwrites `part` with this rank's part of `whole`, which has one for each rank of
// context.groups.shards, in their order, of a multiple of 8 elements. Where there are secondary
// groups the sum has two levels: within them, then across. `feedbacks` may be null; they belong to
// this `whole`. Beside `whole` it needs twice its quantised bytes, and two fp32 sums of as many
// elements as whole / within has (part's, with one level).
//
// With context.overlap the last exchange, which is the far one, goes on beside the computation
// until Await; of two levels the near one has ended before. Both are collective.
class QuantizedReduction {
 public:
  QuantizedReduction(const QuantizedCall& call, const Context& context,
                     LossFeedbacks* feedbacks = nullptr);
  // The part is there after it. Once.
  void Await();

 private:
  // Between the ranks of a group, each of which has something for every other.
  struct Exchange {
    std::int64_t count = 0;  // values for one rank
    at::Tensor outgoing = {};
    at::Tensor incoming = {};
    device::LedgerEntry booked = {};
  };
  // `for_rank(r)` is what this rank has for rank r: `count` values.
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
