#pragma once

// HostBackend: the collectives of CPU ranks as a c10d::Backend.
//
// Every call runs to its end before it returns and hands back a finished Work. Tensors are dense,
// contiguous and on the CPU. See shm/cpu_group.h for what the ranks are promised.
// Threads: one thread at a time. Errors: c10::DistNetworkError when a peer has ended,
// left or not come, else c10::DistBackendError.

#include <memory>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "runtime/comm/shm/cpu_group.h"

namespace ds::comm {

class HostBackend : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  explicit HostBackend(std::unique_ptr<CpuGroup> group);

  const std::string getBackendName() const override { return "host"; }
  // Makes `tag` a part of the next collective's signature, which ranks compare.
  void TagNextCall(std::string_view tag) { group_->TagNextCall(CallTag(tag)); }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int peer, int tag) override;
  WorkPtr recv(Tensors& tensors, int peer, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;

 private:
  void CheckMessage(int peer, int tag) const;

  std::unique_ptr<CpuGroup> group_;
};

}  // namespace ds::comm
