#pragma once

// FlatParameters: the parameters of one bucket as views of a flat buffer of which this rank owns a
// shard.
//
// Unsharded, the buffer is there for good and the shard is a view of it. Sharded, only the shard is
// kept, and Gather and Release bring the buffer and take it away.
//
// What begins a collective may return before that has ended; Await waits for it. Until then nobody
// may read or write the buffer, or write the shard.
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

class FlatParameters {
 public:
  // Moves the parameters into the buffer, converted to the training dtype, unless they are bytes
  // that stand for weights, all of them: they keep their identity and values, if they have values.
  // The buffer is present until Release. `starts`: as FlatLayout's. `rest`: where the shard of
  // sharded ones does. Requires parameters on context.device with a floating dtype, or, frozen,
  // kByte.
  FlatParameters(const Context& context, BufferPool& pool, std::vector<NamedParameter> parameters,
                 const std::vector<int>& starts, Rest rest);

  const FlatLayout& layout() const { return layout_; }
  const NamedParameter& parameter(int i) const {
    return parameters_.at(static_cast<std::size_t>(i));
  }
  const at::Tensor& full() const { return pooled_ ? pooled_->tensor() : kept_.tensor(); }
  // This rank's part, or a range of that; it is brought where it is not there. Requires that it is
  // not kept quantized.
  Lease AcquireShard(Access access = Access::kUpdate);
  Lease AcquireShard(const FlatRange& range, Access access);
  // Begins to bring the range.
  void PrefetchShard(const FlatRange& range);
  // Takes the range to where the shard rests.
  void StowShard(const FlatRange& range);
  // The kept values, and the part of the layout that they are: this rank's shard of sharded
  // parameters, otherwise everything.
  // In 8 bits each, where frozen ones are kept so.
  Store& store() { return store_; }
  bool keeps_quantized() const { return keeps_quantized_; }
  FlatRange kept_range() const {
    return pooled_ ? layout_.shard(context_.groups.shards->rank()) : layout_.whole();
  }

  // Makes the parameters of all ranks equal rank 0's. Collective.
  void Broadcast();
  // Copies this rank's part of the buffer into the shard, after the first values have been set.
  void KeepShard();

  // While the buffer is away the parameters have no bytes. What Gather begins to bring may have
  // travelled rounded (ShardGather), unless `exactly` has been asked for.
  void Gather();
  void Release();  // awaits what it takes away
  void Await();
  void GatherExactly(bool exactly) { exactly_ = exactly; }

  // Bring this rank's part ahead of a lease, and take it away to where it rests, if that is not the
  // device. Stow requires that there is no lease but that of what Await waits for, behind which it
  // takes it.
  void Fetch();
  void Stow();
  bool rests_away() const { return pooled_ != nullptr && store_.rests_away(); }

  // Between steps, the buffer of sharded ones released: what is kept goes to host memory, until
  // MoveBack.
  void MoveToHost();
  void MoveBack();

  // The shards have changed: begins to bring them to all ranks, unless the buffer is away (Gather
  // will).
  void Publish();
  // Tells whether that, or Gather, has begun what Await waits for.
  bool is_arriving() const { return gather_.is_under_way(); }

 private:
  void Attach(int i);
  void Bring();
  void BringInParts(std::int64_t elements);
  Lease AcquireKept(Access access);
  const std::string& tag() const { return parameters_[0].name; }  // of its collectives

  const Context& context_;
  std::vector<NamedParameter> parameters_;
  FlatLayout layout_;
  const bool keeps_quantized_;
  std::unique_ptr<PooledTensor> pooled_;  // the whole, when the parameters are sharded
  Store store_;                           // the shard then, otherwise the whole
  Lease kept_;                            // of the store, unless that is or rests on the host
  ShardGather gather_;                    // ends before what it uses does
  bool exactly_ = false;
  bool stows_ = false;  // once that has ended
};

}  // namespace ds::zero
