#pragma once

// HostBackend: the collectives of CPU ranks as a c10d::Backend.
//
// A call with asyncOp in its options returns at once. A thread runs such calls in order and the
// Work keeps their tensors alive; the first such call starts the thread. Any other call, and always
// send and recv, runs after the pending calls and returns when it is finished. Tensors are dense,
// contiguous and on the CPU. shm/cpu_group.h lists the guarantees. Not thread-safe, except that
// Abort may be called from any thread. Destroying the backend while calls are pending ends the
// group; their Work gets an error. Errors: c10::DistNetworkError when a peer has ended, left or not
// arrived, otherwise c10::DistBackendError. The call itself throws it, or the wait for its Work.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "runtime/comm/shm/call_queue.h"
#include "runtime/comm/shm/cpu_group.h"

namespace ds::comm {

class HostBackend : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  explicit HostBackend(std::unique_ptr<CpuGroup> group);

  const std::string getBackendName() const override { return "host"; }
  bool spans_hosts() const { return group_->spans_hosts(); }
  BytesBetweenHosts bytes_between_hosts() const { return group_->bytes_between_hosts(); }
  std::size_t shared_bytes() const { return group_->shared_bytes(); }
  // Adds `tag` to the signature of the next collective, which ranks compare.
  void TagNextCall(std::string_view tag) { next_tag_ = CallTag(tag); }
  // These send and receive, also asynchronously, which send and recv of c10d::Backend cannot.
  WorkPtr Send(const at::Tensor& tensor, int peer, bool is_async);
  WorkPtr Receive(const at::Tensor& tensor, int peer, bool is_async);
  WorkPtr SendReceive(const at::Tensor& outgoing, int to, const at::Tensor& incoming, int from,
                      bool is_async);
  // Implement Communicator::Group and Communicator::Abort.
  c10::intrusive_ptr<HostBackend> MakeSubgroup(const std::string& name,
                                               const std::vector<int>& members);
  void Abort(std::string_view reason);
  // Starts a thread that ends the family when another rank has ended this group, even if this rank
  // waits for nothing in it.
  void WatchForEnd();
  GroupFamily& family() const { return *group_->family(); }

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
  // These run in one round. The signature covers the tensor layout, so mismatched tensors are
  // detected.
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
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
  struct CallInfo {
    c10d::OpType op;
    bool is_async;
    Tensors changed;  // the tensors that the call writes
  };
  struct ReduceInfo {
    c10d::OpType op;
    bool is_async;
    ReduceOp reduce_op;
  };
  struct AllToAllLists {
    ElementType type;
    std::vector<std::uint64_t> output_counts = {};
    std::vector<std::uint64_t> input_counts = {};
    std::vector<std::byte*> outputs = {};
    std::vector<const std::byte*> inputs = {};
  };
  // `call` must hold the tensors that it uses.
  WorkPtr Launch(const CallInfo& info, CallQueue::Call call);
  WorkPtr LaunchAllGather(const Tensors& outputs, const at::Tensor& input,
                          std::vector<std::byte*> parts, const CallInfo& info);
  WorkPtr LaunchReduceScatter(const at::Tensor& output, const Tensors& inputs,
                              const std::vector<std::byte*>& parts, const ReduceInfo& info);
  WorkPtr LaunchAllToAll(const CallInfo& info, const Tensors& inputs, AllToAllLists lists);
  int CheckMessage(int peer, int tag) const;
  void TagLayout(const Tensors& tensors);

  std::unique_ptr<CpuGroup> group_;
  CallTag next_tag_;
  CallQueue queue_;
  std::jthread watch_;
};

}  // namespace ds::comm
