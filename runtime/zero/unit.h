#pragma once

// Unit: one block's parameters on this rank, in buckets.

#include <memory>
#include <string>
#include <vector>

#include "runtime/zero/bucket.h"
#include "runtime/zero/parameter_unit.h"

namespace ds::zero {

// A Unit attaches hooks to its trained parameters while it lives. The autograd engine calls them,
// and they add each gradient to its bucket.
class Unit {
 public:
  // `rest` is the tier that stores the shards of sharded parameters.
  Unit(const Context& context, BufferPool& pool, const ParameterUnit& described, Rest rest);
  ~Unit();
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  // Returns whether a living Unit has attached its hook to the parameter.
  static bool HasHookOn(const at::Tensor& parameter);

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
  void Stow();
  void EndMicroBatch(MicroBatchEnd end);

 private:
  void AttachHooks(Bucket& bucket);

  std::string name_;
  std::vector<int> also_reads_;
  bool backward_reads_;
  std::vector<std::unique_ptr<Bucket>> buckets_;
};

}  // namespace ds::zero
