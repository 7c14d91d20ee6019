#pragma once

// ShardGather: brings a flat buffer whole to the ranks that have its shards; plainly, or as ZeRO++
// does (arXiv 2306.10209):
//
//   qwZ  what travels is quantised to 8 bits; every rank, the owner too, gets what comes back
//        frozen weights are kept in these 8 bits, and travel as they are kept (MixZ++)
//   hpZ  this rank keeps a secondary, larger shard of the first gather after an update; the gathers
//        until the next one are among the few ranks that have all of these (SecondaryGroups)
//
// Threads: one thread at a time. Begin is collective. The context outlives this; its destructor
// waits for a call that is still under way.

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "runtime/comm/work.h"
#include "runtime/zero/storage/context.h"
#include "runtime/zero/storage/store.h"

namespace ds::zero {

class ShardGather {
 public:
  // Form says what the shards are, and what of them travels.
  enum class Form {
    kExact,
    kQuantized,      // as qwZ has it
    kKeptQuantized,  // the shards are kByte (Quantize), and are exact
  };
  ShardGather(const Context& context, Form form) : context_(context), form_(form) {}
  ~ShardGather();
  ShardGather(const ShardGather&) = delete;
  ShardGather& operator=(const ShardGather&) = delete;

  // Fills `whole` from the ranks' equal shards, in rank order: is done when it returns, or, where
  // calls go on beside the computation, after Await. `exactly`: bit for bit what the shards hold,
  // for readers of the weights.
  void Begin(const at::Tensor& whole, Lease shard, const std::string& tag, bool exactly);
  void Await();
  bool is_under_way() const { return under_way_.has_value(); }

  // The shards have changed: what hpZ has kept is no longer true.
  void ForgetSecondary() { secondary_is_current_ = false; }
  // Gives its memory back as well.
  void DropSecondary();

 private:
  struct UnderWay {
    at::Tensor whole;
    Lease shard;
    at::Tensor quantized = {};            // all shards, where they travel so
    device::LedgerEntry booked = {};      // its bytes
    bool keeps_secondary = false;         // a secondary shard of it
    std::optional<comm::Work> work = {};  // none: the call has ended
  };
  void AllGather(comm::Communicator& group, const at::Tensor& whole, const at::Tensor& shard,
                 const std::string& tag);
  void BeginQuantized(const std::string& tag);
  void Book(std::int64_t bytes);
  void KeepSecondaryShard(const at::Tensor& whole);

  const Context& context_;
  const Form form_;
  std::optional<UnderWay> under_way_;
  Store secondary_;  // hpZ's shard
  bool secondary_is_current_ = false;
};

}  // namespace ds::zero
