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

void Communicator::TagNextCall(std::string_view tag) {
  if (host_ != nullptr) host_->TagNextCall(tag);
}

void Communicator::AllReduce(const at::Tensor& tensor, ReduceOp op, std::string_view tag) {
  TagNextCall(tag);
  std::vector<at::Tensor> tensors = {tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = ToC10d(op);
  backend_->allreduce(tensors, options)->wait();
}

void Communicator::AllGather(const at::Tensor& output, const at::Tensor& input,
                             std::string_view tag) {
  TagNextCall(tag);
  at::Tensor to = output;
  at::Tensor from = input;
  backend_->_allgather_base(to, from)->wait();
}

void Communicator::ReduceScatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op,
                                 std::string_view tag) {
  TagNextCall(tag);
  at::Tensor to = output;
  at::Tensor from = input;
  c10d::ReduceScatterOptions options;
  options.reduceOp = ToC10d(op);
  backend_->_reduce_scatter_base(to, from, options)->wait();
}

void Communicator::Broadcast(const at::Tensor& tensor, int root, std::string_view tag) {
  TagNextCall(tag);
  std::vector<at::Tensor> tensors = {tensor};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  backend_->broadcast(tensors, options)->wait();
}

void Communicator::Reduce(const at::Tensor& tensor, int root, ReduceOp op) {
  std::vector<at::Tensor> tensors = {tensor};
  c10d::ReduceOptions options;
  options.rootRank = root;
  options.reduceOp = ToC10d(op);
  backend_->reduce(tensors, options)->wait();
}

void Communicator::Gather(std::vector<at::Tensor> outputs, const at::Tensor& input, int root) {
  std::vector<std::vector<at::Tensor>> to;
  if (rank() == root) to.push_back(std::move(outputs));
  std::vector<at::Tensor> from = {input};
  c10d::GatherOptions options;
  options.rootRank = root;
  backend_->gather(to, from, options)->wait();
}

void Communicator::Scatter(const at::Tensor& output, std::vector<at::Tensor> inputs, int root) {
  std::vector<at::Tensor> to = {output};
  std::vector<std::vector<at::Tensor>> from;
  if (rank() == root) from.push_back(std::move(inputs));
  c10d::ScatterOptions options;
  options.rootRank = root;
  backend_->scatter(to, from, options)->wait();
}

void Communicator::AllToAll(const at::Tensor& output, const at::Tensor& input,
                            std::vector<std::int64_t> output_splits,
                            std::vector<std::int64_t> input_splits) {
  at::Tensor to = output;
  at::Tensor from = input;
  backend_->alltoall_base(to, from, output_splits, input_splits)->wait();
}

void Communicator::Barrier() { backend_->barrier()->wait(); }

void Communicator::Send(const at::Tensor& tensor, int peer) {
  std::vector<at::Tensor> tensors = {tensor};
  backend_->send(tensors, peer, /*tag=*/0)->wait();
}

void Communicator::Recv(const at::Tensor& tensor, int peer) {
  std::vector<at::Tensor> tensors = {tensor};
  backend_->recv(tensors, peer, /*tag=*/0)->wait();
}

}  // namespace ds::comm
