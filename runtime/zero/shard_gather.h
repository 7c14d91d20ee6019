#pragma once

// ShardGather: brings a flat buffer whole to the ranks that have its shards; plainly, or as ZeRO++
// does (arXiv 2306.10209):
//
//   qwZ  what travels is quantised to 8 bits; every rank, the owner too, gets what comes back
//   hpZ  this rank keeps a second, larger shard of the first gather after an update; the gathers
//        until the next one are among the few ranks that have all of these (Context::groups.near)
//
// Threads: one thread at a time. Bring is collective. The context outlives this.

#include <ATen/core/Tensor.h>

#include <string>

#include "runtime/zero/context.h"
#include "runtime/zero/store.h"

namespace ds::zero {

class ShardGather {
 public:
  // `quantized`: travels as qwZ has it.
  ShardGather(const Context& context, bool quantized) : context_(context), quantized_(quantized) {}

  // Fills `whole` from the ranks' equal shards, in rank order.
  void Bring(const at::Tensor& whole, const at::Tensor& shard, const std::string& tag);
  // The same, bit for bit what the shards hold, for readers of the weights.
  void BringExactly(const at::Tensor& whole, const at::Tensor& shard, const std::string& tag);

  // The shards have changed: what hpZ has kept is no longer true.
  void Forget() { near_is_true_ = false; }

 private:
  void BringQuantized(const at::Tensor& whole, const at::Tensor& shard, const std::string& tag);
  void KeepNearShard(const at::Tensor& whole);

  const Context& context_;
  const bool quantized_;
  Store near_;  // hpZ's shard
  bool near_is_true_ = false;
};

}  // namespace ds::zero
