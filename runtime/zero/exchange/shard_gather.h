#pragma once

// ShardGather: gathers a flat buffer from the ranks that hold its shards, exactly or as ZeRO++ does
// (arXiv 2306.10209):
//
//   qwZ  the shards are sent quantized to 8 bits; every rank, the owner included, gets the
//        dequantized values. Frozen weights are also stored in these 8 bits (MixZ++)
//   hpZ  after the first gather that follows an update, this rank keeps a secondary, larger shard.
//        Later gathers run among the few ranks that hold all secondary shards (SecondaryGroups)
//
// Threads: one thread at a time. Begin is collective. The context must outlive this object. The
// destructor waits for a running call.

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "runtime/comm/work.h"
#include "runtime/zero/storage/context.h"
#include "runtime/zero/storage/store.h"

namespace ds::zero {

class ShardGather {
 public:
  // The form of the shards, and of the data that is sent.
  enum class Form {
    kExact,
    kQuantized,        // exact shards, sent as qwZ does
    kStoredQuantized,  // the shards are kByte (Quantize), sent as they are
  };
  ShardGather(const Context& context, Form form) : context_(context), form_(form) {}
  ~ShardGather();
  ShardGather(const ShardGather&) = delete;
  ShardGather& operator=(const ShardGather&) = delete;

  // Fills `full` from the ranks' equal shards, in rank order. The result is there on return, or,
  // with Context::overlap, after Await. `exactly` sends the shards bit for bit, for readers of the
  // weights.
  void Begin(const at::Tensor& full, Lease shard, const std::string& tag, bool exactly);
  void Await();
  bool is_pending() const { return pending_.has_value(); }

  // Invalidates hpZ's secondary shard. Call it after the shards have changed.
  void ForgetSecondary() { secondary_is_current_ = false; }
  // Frees its memory as well.
  void DropSecondary();

 private:
  struct PendingGather {
    at::Tensor full;
    Lease shard;
    at::Tensor quantized = {};            // all shards, if sent quantized
    device::LedgerEntry booked = {};      // its bytes
    bool keeps_secondary = false;         // keep hpZ's shard of it
    std::optional<comm::Work> work = {};  // none: the call has ended
  };
  void AllGather(comm::Communicator& group, const at::Tensor& full, const at::Tensor& shard,
                 const std::string& tag);
  void BeginQuantized(const std::string& tag);
  void Book(std::int64_t bytes);
  void KeepSecondaryShard(const at::Tensor& full);

  const Context& context_;
  const Form form_;
  std::optional<PendingGather> pending_;
  Store secondary_;  // hpZ's shard
  bool secondary_is_current_ = false;
};

}  // namespace ds::zero
