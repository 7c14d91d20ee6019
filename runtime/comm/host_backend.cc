#include "runtime/comm/host_backend.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "runtime/base/fnv.h"
#include "runtime/base/status.h"
#include "runtime/comm/host_tensors.h"

namespace ds::comm {
namespace {

// Converts the core's Status to LibTorch's exception; the only function that does. Requires an
// error.
std::exception_ptr ToException(const Status& status) {
  const c10::SourceLocation here = {__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)};
  if (status.code() == StatusCode::kUnavailable) {
    return std::make_exception_ptr(c10::DistNetworkError(here, status.message()));
  }
  return std::make_exception_ptr(c10::DistBackendError(here, status.message()));
}

// HostWork: the c10d::Work of a call on the host backend. wait() throws the error of a failed call;
// the future holds the tensors that the call has written. Thread-safe.
class HostWork : public c10d::Work {
 public:
  HostWork(int rank, c10d::OpType op, std::vector<at::Tensor> changed);

  // Call once, when the call has ended.
  void Finish(const Status& status);

  std::vector<at::Tensor> result() override { return changed_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  std::vector<at::Tensor> changed_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

HostWork::HostWork(int rank, c10d::OpType op, std::vector<at::Tensor> changed)
    : c10d::Work(rank, op),
      changed_(std::move(changed)),
      future_(
          c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {
}

void HostWork::Finish(const Status& status) {
  if (status.ok()) {
    finish();
    future_->markCompleted(c10::IValue(changed_));
    return;
  }
  const std::exception_ptr error = ToException(status);
  finish(error);
  future_->setError(error);
}

int CheckRank(std::int64_t rank, int size) {
  TORCH_CHECK(rank >= 0 && rank < size, "rank ", rank, " is not in a group of ", size);
  return static_cast<int>(rank);
}

using Tensors = HostBackend::Tensors;

// Requires tensors of one type.
std::int64_t CountAll(const Tensors& tensors) {
  TORCH_CHECK(!tensors.empty(), "a call of many tensors has none");
  std::int64_t count = 0;
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(ElementsOf(tensor).type == ElementsOf(tensors[0]).type,
                "tensors that are reduced together differ in type");
    count += tensor.numel();
  }
  return count;
}

// Checks the pairs of a call: equally many, and each tensor of `longer` is `factor` times as long.
void CheckPairs(const Tensors& longer, const Tensors& shorter, std::int64_t factor) {
  TORCH_CHECK(longer.size() == shorter.size() && !longer.empty(), "a call of many tensors has ",
              longer.size(), " on one side and ", shorter.size(), " on the other");
  for (std::size_t i = 0; i < longer.size(); ++i) {
    PartData(longer[i], static_cast<int>(factor), shorter[i]);
  }
}

// Copies part `part` of each tensor's `parts` to (from) `packed`, one after the other.
std::byte* Pack(const Tensors& tensors, int part, int parts, std::byte* packed) {
  for (const at::Tensor& tensor : tensors) {
    const std::size_t bytes = tensor.nbytes() / static_cast<std::size_t>(parts);
    if (bytes > 0) std::memcpy(packed, BytesOf(tensor) + part * bytes, bytes);
    packed += bytes;
  }
  return packed;
}
const std::byte* Unpack(const std::byte* packed, int part, int parts, const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) {
    const std::size_t bytes = tensor.nbytes() / static_cast<std::size_t>(parts);
    if (bytes > 0) std::memcpy(BytesOf(tensor) + part * bytes, packed, bytes);
    packed += bytes;
  }
  return packed;
}

}  // namespace

HostBackend::HostBackend(std::unique_ptr<CpuGroup> group)
    : c10d::Backend(group->rank(), group->size()), group_(std::move(group)), queue_(group_.get()) {}

c10::intrusive_ptr<HostBackend> HostBackend::MakeSubgroup(const std::string& name,
                                                          const std::vector<int>& members) {
  TORCH_CHECK(std::is_sorted(members.begin(), members.end()) &&
                  std::find(members.begin(), members.end(), rank_) != members.end(),
              "group ", name, ": its ranks are not in order, or this one is not among them");
  CheckRank(members.front(), size_);
  CheckRank(members.back(), size_);
  std::unique_ptr<CpuGroup> made;
  const Status status = queue_.Run([&](CpuGroup& group) -> Status {
    DS_ASSIGN_OR_RETURN(made, group.MakeSubgroup(name, members));
    return OkStatus();
  });
  if (!status.ok()) std::rethrow_exception(ToException(status));
  return c10::make_intrusive<HostBackend>(std::move(made));
}

void HostBackend::Abort(std::string_view reason) {
  group_->Abort(group_->NameOf(rank_) + " has given up: " + std::string(reason));
}

void HostBackend::WatchForEnd() {
  watch_ = std::jthread([group = group_.get()](const std::stop_token& stop) {
    const std::string cause = group->AwaitEnd(stop);
    if (!cause.empty()) group->Abort(cause);
  });
}

HostBackend::WorkPtr HostBackend::Launch(const CallInfo& info, CallQueue::Call call) {
  if (!next_tag_.text().empty()) {
    call = [tag = std::exchange(next_tag_, {}), call = std::move(call)](CpuGroup& group) {
      group.TagNextCall(tag);
      return call(group);
    };
  }
  auto work = c10::make_intrusive<HostWork>(rank_, info.op, info.changed);
  if (info.is_async) {
    queue_.Post(std::move(call), [work](const Status& status) { work->Finish(status); });
    return work;
  }
  const Status status = queue_.Run(call);
  if (!status.ok()) std::rethrow_exception(ToException(status));
  work->Finish(status);
  return work;
}

HostBackend::WorkPtr HostBackend::allreduce(Tensors& tensors,
                                            const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = OnlyTensor(tensors);
  const ReduceOp op = ToReduceOp(options.reduceOp, tensor);
  const Elements elements = ElementsOf(tensor);
  return Launch({c10d::OpType::ALLREDUCE, options.asyncOp, {tensor}},
                [tensor, elements, op](CpuGroup& group) {
                  return group.AllReduce(BytesOf(tensor), elements, op);
                });
}

HostBackend::WorkPtr HostBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = OnlyTensor(tensors);
  const ReduceOp op = ToReduceOp(options.reduceOp, tensor);
  const Elements elements = ElementsOf(tensor);
  const int root = CheckRank(options.rootRank, size_);
  return Launch({c10d::OpType::REDUCE, options.asyncOp, {tensor}},
                [tensor, elements, op, root](CpuGroup& group) {
                  return group.Reduce(BytesOf(tensor), elements, op, root);
                });
}

HostBackend::WorkPtr HostBackend::broadcast(Tensors& tensors,
                                            const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = OnlyTensor(tensors);
  const Elements elements = ElementsOf(tensor);
  const int root = CheckRank(options.rootRank, size_);
  return Launch({c10d::OpType::BROADCAST, options.asyncOp, {tensor}},
                [tensor, elements, root](CpuGroup& group) {
                  return group.Broadcast(BytesOf(tensor), elements, root);
                });
}

HostBackend::WorkPtr HostBackend::LaunchAllGather(const Tensors& outputs, const at::Tensor& input,
                                                  std::vector<std::byte*> parts,
                                                  const CallInfo& info) {
  const Elements each = ElementsOf(input);
  return Launch(info, [outputs, input, parts = std::move(parts), each](CpuGroup& group) {
    return group.AllGather(parts, BytesOf(input), each);
  });
}

HostBackend::WorkPtr HostBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                            const c10d::AllgatherOptions& options) {
  const at::Tensor& input = OnlyTensor(inputs);
  TORCH_CHECK(outputs.size() == 1, "one list of outputs is expected, not ", outputs.size());
  return LaunchAllGather(outputs[0], input, ListData(outputs[0], size_, input),
                         {c10d::OpType::ALLGATHER, options.asyncOp, outputs[0]});
}

HostBackend::WorkPtr HostBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                  const c10d::AllgatherOptions& options) {
  return LaunchAllGather({output}, input, PartData(output, size_, input),
                         {c10d::OpType::_ALLGATHER_BASE, options.asyncOp, {output}});
}

HostBackend::WorkPtr HostBackend::LaunchReduceScatter(const at::Tensor& output,
                                                      const Tensors& inputs,
                                                      const std::vector<std::byte*>& parts,
                                                      const ReduceInfo& info) {
  const Elements each = ElementsOf(output);
  return Launch({info.op, info.is_async, {output}}, [output, inputs, parts = AsReadOnly(parts),
                                                     each, op = info.reduce_op](CpuGroup& group) {
    return group.ReduceScatter(BytesOf(output), parts, each, op);
  });
}

HostBackend::WorkPtr HostBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                 const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = OnlyTensor(outputs);
  TORCH_CHECK(inputs.size() == 1, "one list of inputs is expected, not ", inputs.size());
  return LaunchReduceScatter(
      output, inputs[0], ListData(inputs[0], size_, output),
      {c10d::OpType::REDUCE_SCATTER, options.asyncOp, ToReduceOp(options.reduceOp, output)});
}

HostBackend::WorkPtr HostBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                       const c10d::ReduceScatterOptions& options) {
  return LaunchReduceScatter(
      output, {input}, PartData(input, size_, output),
      {c10d::OpType::_REDUCE_SCATTER_BASE, options.asyncOp, ToReduceOp(options.reduceOp, output)});
}

HostBackend::WorkPtr HostBackend::gather(TensorLists& outputs, Tensors& inputs,
                                         const c10d::GatherOptions& options) {
  const at::Tensor& input = OnlyTensor(inputs);
  const int root = CheckRank(options.rootRank, size_);
  std::vector<std::byte*> data;
  Tensors changed;
  if (rank_ == root) {
    TORCH_CHECK(outputs.size() == 1, "the root of a gather needs one list of outputs");
    data = ListData(outputs[0], size_, input);
    changed = outputs[0];
  }
  const Elements each = ElementsOf(input);
  return Launch({c10d::OpType::GATHER, options.asyncOp, changed},
                [changed, input, data, each, root](CpuGroup& group) {
                  return group.Gather(data, BytesOf(input), each, root);
                });
}

HostBackend::WorkPtr HostBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                          const c10d::ScatterOptions& options) {
  const at::Tensor& output = OnlyTensor(outputs);
  const int root = CheckRank(options.rootRank, size_);
  std::vector<const std::byte*> data;
  Tensors parts;
  if (rank_ == root) {
    TORCH_CHECK(inputs.size() == 1, "the root of a scatter needs one list of inputs");
    data = AsReadOnly(ListData(inputs[0], size_, output));
    parts = inputs[0];
  }
  const Elements each = ElementsOf(output);
  return Launch({c10d::OpType::SCATTER, options.asyncOp, {output}},
                [parts, output, data, each, root](CpuGroup& group) {
                  return group.Scatter(BytesOf(output), data, each, root);
                });
}

HostBackend::WorkPtr HostBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                std::vector<int64_t>& output_splits,
                                                std::vector<int64_t>& input_splits,
                                                const c10d::AllToAllOptions& options) {
  const ElementType type = ElementsOf(input).type;
  TORCH_CHECK(ElementsOf(output).type == type, "all-to-all: input and output differ in type");
  AllToAllLists lists{.type = type,
                      .output_counts = PartCounts(output, output_splits, size_),
                      .input_counts = PartCounts(input, input_splits, size_)};
  lists.outputs = PartStarts(output, lists.output_counts);
  lists.inputs = AsReadOnly(PartStarts(input, lists.input_counts));
  return LaunchAllToAll({c10d::OpType::ALLTOALL_BASE, options.asyncOp, {output}}, {input},
                        std::move(lists));
}

HostBackend::WorkPtr HostBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                           const c10d::AllToAllOptions& options) {
  TORCH_CHECK(inputs.size() == static_cast<std::size_t>(size_) && outputs.size() == inputs.size(),
              "all-to-all needs one input and one output tensor per rank");
  AllToAllLists lists{.type = ElementsOf(inputs[0]).type};
  for (std::size_t peer = 0; peer < inputs.size(); ++peer) {
    const Elements incoming = ElementsOf(outputs[peer]);
    const Elements outgoing = ElementsOf(inputs[peer]);
    TORCH_CHECK(incoming.type == lists.type && outgoing.type == lists.type,
                "all-to-all: the tensors differ in type");
    lists.outputs.push_back(BytesOf(outputs[peer]));
    lists.inputs.push_back(BytesOf(inputs[peer]));
    lists.output_counts.push_back(incoming.count);
    lists.input_counts.push_back(outgoing.count);
  }
  return LaunchAllToAll({c10d::OpType::ALLTOALL, options.asyncOp, outputs}, inputs,
                        std::move(lists));
}

HostBackend::WorkPtr HostBackend::LaunchAllToAll(const CallInfo& info, const Tensors& inputs,
                                                 AllToAllLists lists) {
  return Launch(info, [changed = info.changed, inputs, lists = std::move(lists)](CpuGroup& group) {
    return group.AllToAll({.outputs = lists.outputs,
                           .output_counts = lists.output_counts,
                           .inputs = lists.inputs,
                           .input_counts = lists.input_counts,
                           .type = lists.type});
  });
}

int HostBackend::CheckMessage(int peer, int tag) const {
  TORCH_CHECK(tag == 0, "CPU messages are matched in order and carry no tag");
  TORCH_CHECK(peer != rank_, "rank ", rank_, " cannot send to itself");
  return CheckRank(peer, size_);
}

HostBackend::WorkPtr HostBackend::Send(const at::Tensor& tensor, int peer, bool is_async) {
  const int to = CheckMessage(peer, /*tag=*/0);
  const Elements elements = ElementsOf(tensor);
  return Launch({c10d::OpType::SEND, is_async, {}}, [tensor, elements, to](CpuGroup& group) {
    return group.Send(BytesOf(tensor), elements, to);
  });
}

HostBackend::WorkPtr HostBackend::Receive(const at::Tensor& tensor, int peer, bool is_async) {
  const int from = CheckMessage(peer, /*tag=*/0);
  const Elements elements = ElementsOf(tensor);
  return Launch({c10d::OpType::RECV, is_async, {tensor}},
                [tensor, elements, from](CpuGroup& group) {
                  return group.Receive(BytesOf(tensor), elements, from);
                });
}

HostBackend::WorkPtr HostBackend::send(Tensors& tensors, int peer, int tag) {
  CheckMessage(peer, tag);
  return Send(OnlyTensor(tensors), peer, /*is_async=*/false);
}

HostBackend::WorkPtr HostBackend::recv(Tensors& tensors, int peer, int tag) {
  CheckMessage(peer, tag);
  return Receive(OnlyTensor(tensors), peer, /*is_async=*/false);
}

HostBackend::WorkPtr HostBackend::SendReceive(const at::Tensor& outgoing, int to,
                                              const at::Tensor& incoming, int from, bool is_async) {
  const OutgoingMessage out{BytesOf(outgoing), ElementsOf(outgoing), CheckMessage(to, 0)};
  const IncomingMessage in{BytesOf(incoming), ElementsOf(incoming), CheckMessage(from, 0)};
  return Launch(
      {c10d::OpType::SEND, is_async, {incoming}},
      [outgoing, incoming, out, in](CpuGroup& group) { return group.SendReceive(out, in); });
}

HostBackend::WorkPtr HostBackend::barrier(const c10d::BarrierOptions& options) {
  return Launch({c10d::OpType::BARRIER, options.asyncOp, {}},
                [](CpuGroup& group) { return group.Barrier(); });
}

// Calls of many tensors: their elements side by side in one buffer, for one call.

// Tags the call with the tensors' lengths. Ranks with equal total length but different tensors must
// not accept each other's data.
void HostBackend::TagLayout(const Tensors& tensors) {
  std::string lengths;
  for (const at::Tensor& tensor : tensors) {
    lengths += std::to_string(tensor.numel()) + c10::toString(tensor.scalar_type()) + " ";
  }
  next_tag_ = CallTag(std::string(next_tag_.text()) + " (" + std::to_string(tensors.size()) +
                      " tensors, " + std::to_string(HashFnv1a(lengths) % 1'000'000) + ")");
}

HostBackend::WorkPtr HostBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  const std::int64_t count = CountAll(tensors);
  std::vector<at::Tensor> packed = {at::empty({count}, tensors[0].options())};
  const ReduceOp op = ToReduceOp(options.reduceOp, packed[0]);
  const Elements elements = ElementsOf(packed[0]);
  TagLayout(tensors);
  return Launch({c10d::OpType::ALLREDUCE_COALESCED, options.asyncOp, tensors},
                [tensors, buffer = packed[0], elements, op](CpuGroup& group) -> Status {
                  Pack(tensors, 0, 1, BytesOf(buffer));
                  DS_RETURN_IF_ERROR(group.AllReduce(BytesOf(buffer), elements, op));
                  Unpack(BytesOf(buffer), 0, 1, tensors);
                  return OkStatus();
                });
}

HostBackend::WorkPtr HostBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  CheckPairs(outputs, inputs, size_);
  std::int64_t bytes = 0;
  for (const at::Tensor& input : inputs) bytes += static_cast<std::int64_t>(input.nbytes());
  const at::Tensor mine = at::empty({bytes}, at::kByte);
  const at::Tensor all = at::empty({size_ * bytes}, at::kByte);
  TagLayout(inputs);
  return Launch({c10d::OpType::ALLGATHER_COALESCED, options.asyncOp, outputs},
                [outputs, inputs, mine, all](CpuGroup& group) -> Status {
                  Pack(inputs, 0, 1, BytesOf(mine));
                  DS_RETURN_IF_ERROR(group.AllGather(PartData(all, group.size(), mine),
                                                     BytesOf(mine), ElementsOf(mine)));
                  const std::byte* next = BytesOf(all);
                  for (int rank = 0; rank < group.size(); ++rank) {
                    next = Unpack(next, rank, group.size(), outputs);
                  }
                  return OkStatus();
                });
}

HostBackend::WorkPtr HostBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  CheckPairs(inputs, outputs, size_);
  const at::Tensor mine = at::empty({CountAll(outputs)}, outputs[0].options());
  const at::Tensor all = at::empty({CountAll(inputs)}, outputs[0].options());
  const ReduceOp op = ToReduceOp(options.reduceOp, mine);
  TagLayout(outputs);
  return Launch(
      {c10d::OpType::COALESCED, options.asyncOp, outputs},
      [outputs, inputs, mine, all, op](CpuGroup& group) -> Status {
        std::byte* next = BytesOf(all);
        for (int rank = 0; rank < group.size(); ++rank) {
          next = Pack(inputs, rank, group.size(), next);
        }
        const auto parts = AsReadOnly(PartData(all, group.size(), mine));
        DS_RETURN_IF_ERROR(group.ReduceScatter(BytesOf(mine), parts, ElementsOf(mine), op));
        Unpack(BytesOf(mine), 0, 1, outputs);
        return OkStatus();
      });
}

}  // namespace ds::comm
