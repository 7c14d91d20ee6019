#pragma once

// FlatParameters: the parameters of one bucket, as views of a flat buffer; this rank owns one shard
// of the buffer.
//
// If parameters are unsharded, the buffer is always present and the shard is a view of it. If they
// are sharded, only the shard is kept; Gather materialises the buffer and Release frees it.
//
// A method that starts a collective may return before it has ended; Await waits for it. Until then
// do not read or write the buffer, and do not write the shard.
//
// Threads: one thread at a time. Gather and Publish are collective.

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/zero/flat_layout.h"
#include "runtime/zero/exchange/shard_gather.h"
#include "runtime/zero/parameter_unit.h"
#include "runtime/zero/storage/buffer_pool.h"
#include "runtime/zero/storage/context.h"
#include "runtime/zero/storage/store.h"

namespace ds::zero {

// Returns whether this process holds the values of a parameter now. A built-in block has none
// before its engine is built.
bool HasValues(const at::Tensor& parameter);

// Returns whether the parameter has no values because they are sharded among the ranks of an
// engine, or were when that engine was destroyed.
bool IsReleased(const at::Tensor& parameter);

class FlatParameters {
 public:
  // Moves the parameters into the buffer and converts them to the training dtype, except for
  // quantised weights of kByte. The parameters keep their identity, and their values if they have
  // any. The buffer is present until Release. `starts` is passed to FlatLayout. `storage_tier` is
  // the tier that stores the shard of sharded parameters. Requires parameters on context.device
  // with a floating dtype, or frozen parameters of kByte.
  FlatParameters(const Context& context, BufferPool& pool, std::vector<NamedParameter> parameters,
                 const std::vector<int>& starts, StorageTier storage_tier);
  ~FlatParameters();
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;

  const FlatLayout& layout() const { return layout_; }
  const NamedParameter& parameter(int i) const {
    return parameters_.at(static_cast<std::size_t>(i));
  }
  const at::Tensor& full() const { return pooled_ ? pooled_->tensor() : stored_.tensor(); }
  // Returns this rank's shard, or a range of it, and loads it if it is offloaded. Requires that the
  // shard is not kept quantized.
  Lease AcquireShard(Access access = Access::kUpdate);
  Lease AcquireShard(const FlatRange& range, Access access);
  // Starts loading the range.
  void PrefetchShard(const FlatRange& range);
  // Offloads the range to the shard's tier.
  void OffloadShard(const FlatRange& range);
  // The kept values, and their range in the layout: this rank's shard if parameters are sharded,
  // otherwise everything. The values are 8 bits each if frozen parameters are kept quantized.
  Store& store() { return store_; }
  bool keeps_quantized() const { return keeps_quantized_; }
  FlatRange stored_range() const {
    return pooled_ ? layout_.shard(context_.groups.shards->rank()) : layout_.full_range();
  }

  // Copies rank 0's parameters to all ranks. Collective.
  void Broadcast();
  // Copies this rank's part of the buffer into the shard. Call it after the first values have been
  // set.
  void KeepShard();

  // Parameters have no memory while the buffer is released: operators that read one throw, and
  // name it. So do operators that read an alias of a parameter (detach, view) that was made while
  // the buffer was present; it has the values again when the parameter has. An alias that was made
  // while the buffer was released never gets memory. Gather may use quantized communication
  // (ShardGather); GatherExactly(true) disables that.
  void Gather();
  void Release();  // waits for a running gather first
  void Await();
  void GatherExactly(bool exactly) { exactly_ = exactly; }

  // Fetch starts loading this rank's shard ahead of a lease. Offload moves it to its tier, if that
  // is not the device. Offload requires that there is no lease except that of a running gather: the
  // shard is then offloaded once Await has waited for the gather.
  void Fetch();
  void Offload();
  bool is_offloaded() const { return pooled_ != nullptr && store_.is_offloaded(); }

  // Moves the kept values to host memory, until MoveBack: reading a parameter throws meanwhile.
  // Call it between steps, with the buffer of sharded parameters released. Unsharded parameters
  // lose their values if this object ends meanwhile.
  void MoveToHost();
  void MoveBack();

  // Call it after the shards have changed: starts gathering them on all ranks. Does nothing if the
  // buffer of sharded parameters is released; the next Gather then brings the new values.
  void Publish();
  // Returns whether a gather started by Publish or Gather is still running.
  bool is_arriving() const { return gather_.is_pending(); }

 private:
  void Attach(int i);
  void AcquireFull();
  void MakeGuards(const std::string& error);
  void AttachGuards();
  void AttachBuffer();
  void Bring();
  void GatherInPieces(std::int64_t elements);
  Lease AcquireStored(Access access);
  const std::string& tag() const { return parameters_[0].name; }  // for its collectives

  const Context& context_;
  std::vector<NamedParameter> parameters_;
  FlatLayout layout_;
  const bool keeps_quantized_;
  std::unique_ptr<PooledTensor> pooled_;  // the full buffer, if parameters are sharded
  std::vector<at::Storage> guards_;       // the parameters' storages while they have no values
  Store store_;                           // the shard then, otherwise the full buffer
  Lease stored_;                          // of store_, unless that is on another tier
  ShardGather gather_;                    // destroyed before the members that it uses
  bool exactly_ = false;
  bool offloads_ = false;  // offload once the gather has ended
};

}  // namespace ds::zero
