#include "runtime/comm/communicator.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/comm/host_backend.h"

namespace ds::comm {
namespace {

c10d::ReduceOp ToC10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return c10d::ReduceOp::SUM;
    case ReduceOp::kAvg:
      return c10d::ReduceOp::AVG;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kProduct:
      return c10d::ReduceOp::PRODUCT;
  }
  DS_CHECK_MSG(false, "unknown reduction");
}

}  // namespace

Communicator::Communicator(c10::intrusive_ptr<c10d::Backend> backend, c10::Device device,
                           std::unique_ptr<Communicator> control)
    : backend_(std::move(backend)),
      host_(dynamic_cast<HostBackend*>(backend_.get())),
      device_(device),
      control_(std::move(control)) {}

Communicator::~Communicator() = default;

int Communicator::rank() const { return backend_->getRank(); }
int Communicator::size() const { return backend_->getSize(); }
bool Communicator::spans_hosts() const { return host_ != nullptr && host_->spans_hosts(); }

void Communicator::TagNextCall(std::string_view tag) {
  if (host_ != nullptr) host_->TagNextCall(tag);
}

Communicator::WorkPtr Communicator::LaunchAllReduce(at::Tensor tensor, ReduceOp op, bool is_async) {
  std::vector<at::Tensor> tensors = {std::move(tensor)};
  c10d::AllreduceOptions options;
  options.reduceOp = ToC10d(op);
  options.asyncOp = is_async;
  return backend_->allreduce(tensors, options);
}

Communicator::WorkPtr Communicator::LaunchAllGather(at::Tensor output, at::Tensor input,
                                                    bool is_async) {
  return backend_->_allgather_base(output, input, {.asyncOp = is_async});
}

Communicator::WorkPtr Communicator::LaunchReduceScatter(at::Tensor output, at::Tensor input,
                                                        ReduceOp op, bool is_async) {
  c10d::ReduceScatterOptions options;
  options.reduceOp = ToC10d(op);
  options.asyncOp = is_async;
  return backend_->_reduce_scatter_base(output, input, options);
}

void Communicator::AllReduce(const at::Tensor& tensor, ReduceOp op, std::string_view tag) {
  TagNextCall(tag);
  LaunchAllReduce(tensor, op, /*is_async=*/false)->wait();
}

void Communicator::AllGather(const at::Tensor& output, const at::Tensor& input,
                             std::string_view tag) {
  TagNextCall(tag);
  LaunchAllGather(output, input, /*is_async=*/false)->wait();
}

void Communicator::ReduceScatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op,
                                 std::string_view tag) {
  TagNextCall(tag);
  LaunchReduceScatter(output, input, op, /*is_async=*/false)->wait();
}

Work Communicator::AllReduceAsync(const at::Tensor& tensor, ReduceOp op, std::string_view tag) {
  TagNextCall(tag);
  return Work(LaunchAllReduce(tensor, op, /*is_async=*/true));
}

Work Communicator::AllGatherAsync(const at::Tensor& output, const at::Tensor& input,
                                  std::string_view tag) {
  TagNextCall(tag);
  return Work(LaunchAllGather(output, input, /*is_async=*/true));
}

Work Communicator::ReduceScatterAsync(const at::Tensor& output, const at::Tensor& input,
                                      ReduceOp op, std::string_view tag) {
  TagNextCall(tag);
  return Work(LaunchReduceScatter(output, input, op, /*is_async=*/true));
}

void Communicator::AllReduceMany(const std::vector<at::Tensor>& tensors, ReduceOp op,
                                 std::string_view tag) {
  TagNextCall(tag);
  std::vector<at::Tensor> all = tensors;
  c10d::AllreduceCoalescedOptions options;
  options.reduceOp = ToC10d(op);
  options.asyncOp = false;
  backend_->allreduce_coalesced(all, options)->wait();
}

void Communicator::AllGatherMany(const std::vector<at::Tensor>& outputs,
                                 const std::vector<at::Tensor>& inputs, std::string_view tag) {
  TagNextCall(tag);
  std::vector<at::Tensor> to = outputs;
  std::vector<at::Tensor> from = inputs;
  backend_->allgather_into_tensor_coalesced(to, from, {.asyncOp = false})->wait();
}

void Communicator::ReduceScatterMany(const std::vector<at::Tensor>& outputs,
                                     const std::vector<at::Tensor>& inputs, ReduceOp op,
                                     std::string_view tag) {
  TagNextCall(tag);
  std::vector<at::Tensor> to = outputs;
  std::vector<at::Tensor> from = inputs;
  c10d::ReduceScatterOptions options;
  options.reduceOp = ToC10d(op);
  options.asyncOp = false;
  backend_->reduce_scatter_tensor_coalesced(to, from, options)->wait();
}

void Communicator::Broadcast(const at::Tensor& tensor, int root, std::string_view tag) {
  TagNextCall(tag);
  std::vector<at::Tensor> tensors = {tensor};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  options.asyncOp = false;
  backend_->broadcast(tensors, options)->wait();
}

void Communicator::Reduce(const at::Tensor& tensor, int root, ReduceOp op) {
  std::vector<at::Tensor> tensors = {tensor};
  c10d::ReduceOptions options;
  options.rootRank = root;
  options.asyncOp = false;
  options.reduceOp = ToC10d(op);
  backend_->reduce(tensors, options)->wait();
}

void Communicator::Gather(std::vector<at::Tensor> outputs, const at::Tensor& input, int root) {
  std::vector<std::vector<at::Tensor>> to;
  if (rank() == root) to.push_back(std::move(outputs));
  std::vector<at::Tensor> from = {input};
  c10d::GatherOptions options;
  options.rootRank = root;
  options.asyncOp = false;
  backend_->gather(to, from, options)->wait();
}

void Communicator::Scatter(const at::Tensor& output, std::vector<at::Tensor> inputs, int root) {
  std::vector<at::Tensor> to = {output};
  std::vector<std::vector<at::Tensor>> from;
  if (rank() == root) from.push_back(std::move(inputs));
  c10d::ScatterOptions options;
  options.rootRank = root;
  options.asyncOp = false;
  backend_->scatter(to, from, options)->wait();
}

void Communicator::AllToAll(const at::Tensor& output, const at::Tensor& input,
                            std::vector<std::int64_t> output_splits,
                            std::vector<std::int64_t> input_splits) {
  at::Tensor to = output;
  at::Tensor from = input;
  backend_->alltoall_base(to, from, output_splits, input_splits, {.asyncOp = false})->wait();
}

void Communicator::Barrier() {
  c10d::BarrierOptions options;
  options.asyncOp = false;
  backend_->barrier(options)->wait();
}

void Communicator::Send(const at::Tensor& tensor, int peer) {
  std::vector<at::Tensor> tensors = {tensor};
  backend_->send(tensors, peer, /*tag=*/0)->wait();
}

void Communicator::Recv(const at::Tensor& tensor, int peer) {
  std::vector<at::Tensor> tensors = {tensor};
  backend_->recv(tensors, peer, /*tag=*/0)->wait();
}

void Communicator::SendRecv(const at::Tensor& outgoing, int to, const at::Tensor& incoming,
                            int from) {
  if (host_ != nullptr) return host_->SendReceive(outgoing, to, incoming, from);
  backend_->startCoalescing();
  Send(outgoing, to);
  Recv(incoming, from);
  backend_->endCoalescing()->wait();
}

Communicator& Communicator::Group(const std::string& name, const std::vector<int>& members) {
  TORCH_CHECK(host_ != nullptr, "group ", name, ": groups of some ranks are built for CPUs only");
  NamedGroup& known = groups_[name];
  if (known.group == nullptr) {
    known.group = std::make_unique<Communicator>(host_->MakeSubgroup(name, members), device_);
    known.members = members;
  }
  TORCH_CHECK(known.members == members, "group ", name, " has other ranks on this rank already");
  return *known.group;
}

void Communicator::Abort(std::string_view reason) {
  if (host_ != nullptr) return host_->Abort(reason);
  if (control_ != nullptr) control_->Abort(reason);
}

Absence Communicator::absence() const {
  if (host_ != nullptr) return host_->absence();
  return control_ == nullptr ? Absence() : control_->absence();
}

}  // namespace ds::comm
