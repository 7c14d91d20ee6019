#pragma once

// Unit: one block's parameters on this rank, in buckets.

#include <memory>
#include <string>
#include <vector>

#include "runtime/autograd/put_gradient.h"
#include "runtime/zero/bucket.h"
#include "runtime/zero/parameter_unit.h"

namespace ds::zero {

// A Unit attaches a sink to each trained parameter while it lives, which adds the gradients of the
// parameter to its bucket.
class Unit {
 public:
  // `storage_tier` is the tier that stores the shards of sharded parameters.
  Unit(const Context& context, BufferPool& pool, const ParameterUnit& described,
       StorageTier storage_tier);
  ~Unit() = default;
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  // Returns whether a living Unit has attached its sink to the parameter.
  static bool IsTrained(const at::Tensor& parameter);

  const std::string& name() const { return name_; }
  const std::vector<int>& also_reads() const { return also_reads_; }
  bool backward_reads() const { return backward_reads_; }
  const std::vector<std::unique_ptr<Bucket>>& buckets() const { return buckets_; }

  // Gather and EndMicroBatch may return early; AwaitParameters and AwaitGradients wait for them.
  void Gather();
  void AwaitParameters();
  void AwaitGradients();
  void Release();
  void Fetch();
  void Offload();
  void EndMicroBatch(MicroBatchEnd end);
  // Sets whether gradients may arrive (default: yes). A backward pass that brings one when they may
  // not throws.
  void AcceptGradients(bool accepts);

 private:
  void AttachSinks(Bucket& bucket);

  std::string name_;
  std::vector<int> also_reads_;
  bool backward_reads_;
  std::vector<std::unique_ptr<Bucket>> buckets_;
  std::vector<gradients::AttachedSink> sinks_;
};

}  // namespace ds::zero
