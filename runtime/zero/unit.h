#pragma once

// Unit: one block's parameters on this rank, in buckets.

#include <memory>
#include <string>
#include <vector>

#include "runtime/zero/bucket.h"
#include "runtime/zero/parameter_unit.h"

namespace ds::zero {

// Calls Add of the buckets' gradients from the autograd engine: attaches itself to the parameters
// for as long as it lives.
class Unit {
 public:
  // `rest`: where the shards of sharded parameters do.
  Unit(const Context& context, BufferPool& pool, const ParameterUnit& described, Rest rest);
  ~Unit();
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  // Tells whether a Unit that still lives has attached itself to the parameter.
  static bool HasHookOn(const at::Tensor& parameter);

  const std::string& name() const { return name_; }
  const std::vector<int>& also_reads() const { return also_reads_; }
  bool backward_reads() const { return backward_reads_; }
  const std::vector<std::unique_ptr<Bucket>>& buckets() const { return buckets_; }

  // Gather and EndMicroBatch may only begin what AwaitParameters and AwaitGradients wait for.
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
