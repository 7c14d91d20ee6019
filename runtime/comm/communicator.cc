#include "runtime/comm/communicator.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/log.h"
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

std::size_t CountBytes(const std::vector<at::Tensor>& tensors) {
  std::size_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += tensor.nbytes();
  return bytes;
}

// Ends a backend. Runs on any thread, possibly one that still uses the group.
void EndSafely(c10d::Backend& backend) {
  try {
    backend.abort();
  } catch (const std::exception& error) {
    LogWarning(std::string("ending it failed: ") + error.what());
  }
}

}  // namespace

Communicator::Communicator(c10::intrusive_ptr<c10d::Backend> backend, c10::Device device,
                           std::unique_ptr<Communicator> control, MakeBackend make)
    : backend_(std::move(backend)),
      host_(dynamic_cast<HostBackend*>(backend_.get())),
      device_(device),
      control_(std::move(control)),
      make_(std::move(make)),
      counters_(control_ ? control_->counters_ : std::make_shared<TrafficCounters>()) {
  if (control_ == nullptr) return;
  DS_CHECK(control_->host_ != nullptr);
  control_->host_->family().AddListener(this, [this](const std::string& cause) {
    LogWarning("communication between the ranks' devices ends: " + cause);
    EndSafely(*backend_);
  });
}

Communicator::~Communicator() {
  if (control_ != nullptr) control_->host_->family().RemoveListener(this);
}

int Communicator::rank() const { return backend_->getRank(); }
int Communicator::size() const { return backend_->getSize(); }
bool Communicator::spans_hosts() const { return host_ != nullptr && host_->spans_hosts(); }

// Implements the calls. Only the host backend uses the tag; NCCL cannot compare tags.
struct Communicator::Launch {
  Launch(Communicator* communicator, std::string_view tag)
      : backend(*communicator->backend_),
        host(communicator->host_),
        counters(*communicator->counters_) {
    if (host != nullptr) host->TagNextCall(tag);
  }

  Work AllReduce(const at::Tensor& tensor, ReduceOp op, bool is_async) const {
    counters.Count(TrafficKind::kAllReduce, tensor.nbytes());
    std::vector<at::Tensor> tensors = {tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = ToC10d(op);
    options.asyncOp = is_async;
    return Work(backend.allreduce(tensors, options));
  }
  Work AllGather(at::Tensor output, at::Tensor input, bool is_async) const {
    counters.Count(TrafficKind::kAllGather, output.nbytes());
    return Work(backend._allgather_base(output, input, {.asyncOp = is_async}));
  }
  Work ReduceScatter(at::Tensor output, at::Tensor input, ReduceOp op, bool is_async) const {
    counters.Count(TrafficKind::kReduceScatter, input.nbytes());
    c10d::ReduceScatterOptions options;
    options.reduceOp = ToC10d(op);
    options.asyncOp = is_async;
    return Work(backend._reduce_scatter_base(output, input, options));
  }
  Work AllToAll(at::Tensor output, at::Tensor input, Splits output_splits, Splits input_splits,
                bool is_async) const {
    counters.Count(TrafficKind::kAllToAll, input.nbytes());
    return Work(
        backend.alltoall_base(output, input, output_splits, input_splits, {.asyncOp = is_async}));
  }
  Work Send(const at::Tensor& tensor, int peer, bool is_async) const {
    counters.Count(TrafficKind::kPointToPoint, tensor.nbytes());
    if (host != nullptr) return Work(host->Send(tensor, peer, is_async));
    std::vector<at::Tensor> tensors = {tensor};
    return Work(backend.send(tensors, peer, /*tag=*/0));
  }
  Work Recv(const at::Tensor& tensor, int peer, bool is_async) const {
    counters.Count(TrafficKind::kPointToPoint, tensor.nbytes());
    if (host != nullptr) return Work(host->Receive(tensor, peer, is_async));
    std::vector<at::Tensor> tensors = {tensor};
    return Work(backend.recv(tensors, peer, /*tag=*/0));
  }
  // NCCL calls between the two brackets have no Work of their own.
  Work SendRecv(const at::Tensor& outgoing, int to, const at::Tensor& incoming, int from,
                bool is_async) const {
    if (host != nullptr) {
      counters.Count(TrafficKind::kPointToPoint, outgoing.nbytes());
      counters.Count(TrafficKind::kPointToPoint, incoming.nbytes());
      return Work(host->SendReceive(outgoing, to, incoming, from, is_async));
    }
    backend.startCoalescing();
    Send(outgoing, to, is_async);
    Recv(incoming, from, is_async);
    return Work(backend.endCoalescing());
  }

  c10d::Backend& backend;
  HostBackend* host;
  TrafficCounters& counters;
};

void Communicator::AllReduce(const at::Tensor& tensor, ReduceOp op, std::string_view tag) {
  Launch(this, tag).AllReduce(tensor, op, /*is_async=*/false).wait();
}

void Communicator::AllGather(const at::Tensor& output, const at::Tensor& input,
                             std::string_view tag) {
  Launch(this, tag).AllGather(output, input, /*is_async=*/false).wait();
}

void Communicator::ReduceScatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op,
                                 std::string_view tag) {
  Launch(this, tag).ReduceScatter(output, input, op, /*is_async=*/false).wait();
}

Work Communicator::AllReduceAsync(const at::Tensor& tensor, ReduceOp op, std::string_view tag) {
  return Launch(this, tag).AllReduce(tensor, op, /*is_async=*/true);
}

Work Communicator::AllGatherAsync(const at::Tensor& output, const at::Tensor& input,
                                  std::string_view tag) {
  return Launch(this, tag).AllGather(output, input, /*is_async=*/true);
}

Work Communicator::ReduceScatterAsync(const at::Tensor& output, const at::Tensor& input,
                                      ReduceOp op, std::string_view tag) {
  return Launch(this, tag).ReduceScatter(output, input, op, /*is_async=*/true);
}

void Communicator::AllReduceMany(const Tensors& tensors, ReduceOp op, std::string_view tag) {
  if (host_ != nullptr) host_->TagNextCall(tag);
  counters_->Count(TrafficKind::kAllReduce, CountBytes(tensors));
  std::vector<at::Tensor> all = tensors;
  c10d::AllreduceCoalescedOptions options;
  options.reduceOp = ToC10d(op);
  options.asyncOp = false;
  Work(backend_->allreduce_coalesced(all, options)).wait();
}

void Communicator::AllGatherMany(const std::vector<at::Tensor>& outputs,
                                 const std::vector<at::Tensor>& inputs, std::string_view tag) {
  if (host_ != nullptr) host_->TagNextCall(tag);
  std::vector<at::Tensor> to = outputs;
  std::vector<at::Tensor> from = inputs;
  counters_->Count(TrafficKind::kAllGather, CountBytes(outputs));
  Work(backend_->allgather_into_tensor_coalesced(to, from, {.asyncOp = false})).wait();
}

void Communicator::ReduceScatterMany(const std::vector<at::Tensor>& outputs,
                                     const std::vector<at::Tensor>& inputs, ReduceOp op,
                                     std::string_view tag) {
  if (host_ != nullptr) host_->TagNextCall(tag);
  std::vector<at::Tensor> to = outputs;
  std::vector<at::Tensor> from = inputs;
  counters_->Count(TrafficKind::kReduceScatter, CountBytes(inputs));
  c10d::ReduceScatterOptions options;
  options.reduceOp = ToC10d(op);
  options.asyncOp = false;
  Work(backend_->reduce_scatter_tensor_coalesced(to, from, options)).wait();
}

void Communicator::Broadcast(const at::Tensor& tensor, int root, std::string_view tag) {
  if (host_ != nullptr) host_->TagNextCall(tag);
  counters_->Count(TrafficKind::kBroadcast, tensor.nbytes());
  std::vector<at::Tensor> tensors = {tensor};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  options.asyncOp = false;
  Work(backend_->broadcast(tensors, options)).wait();
}

void Communicator::Reduce(const at::Tensor& tensor, int root, ReduceOp op, std::string_view tag) {
  if (host_ != nullptr) host_->TagNextCall(tag);
  counters_->Count(TrafficKind::kReduce, tensor.nbytes());
  std::vector<at::Tensor> tensors = {tensor};
  c10d::ReduceOptions options;
  options.rootRank = root;
  options.asyncOp = false;
  options.reduceOp = ToC10d(op);
  Work(backend_->reduce(tensors, options)).wait();
}

void Communicator::Gather(std::vector<at::Tensor> outputs, const at::Tensor& input, int root,
                          std::string_view tag) {
  if (host_ != nullptr) host_->TagNextCall(tag);
  counters_->Count(TrafficKind::kGather, input.nbytes() * static_cast<std::size_t>(size()));
  std::vector<std::vector<at::Tensor>> to;
  if (rank() == root) to.push_back(std::move(outputs));
  std::vector<at::Tensor> from = {input};
  c10d::GatherOptions options;
  options.rootRank = root;
  options.asyncOp = false;
  Work(backend_->gather(to, from, options)).wait();
}

void Communicator::Scatter(const at::Tensor& output, std::vector<at::Tensor> inputs, int root) {
  counters_->Count(TrafficKind::kScatter, output.nbytes() * static_cast<std::size_t>(size()));
  std::vector<at::Tensor> to = {output};
  std::vector<std::vector<at::Tensor>> from;
  if (rank() == root) from.push_back(std::move(inputs));
  c10d::ScatterOptions options;
  options.rootRank = root;
  options.asyncOp = false;
  Work(backend_->scatter(to, from, options)).wait();
}

void Communicator::AllToAll(const at::Tensor& output, const at::Tensor& input, Splits output_splits,
                            Splits input_splits, std::string_view tag) {
  Launch(this, tag)
      .AllToAll(output, input, std::move(output_splits), std::move(input_splits),
                /*is_async=*/false)
      .wait();
}

Work Communicator::AllToAllAsync(const at::Tensor& output, const at::Tensor& input,
                                 Splits output_splits, Splits input_splits, std::string_view tag) {
  return Launch(this, tag).AllToAll(output, input, std::move(output_splits),
                                    std::move(input_splits), /*is_async=*/true);
}

void Communicator::Barrier() {
  c10d::BarrierOptions options;
  options.asyncOp = false;
  Work(backend_->barrier(options)).wait();
}

void Communicator::Send(const at::Tensor& tensor, int peer, std::string_view tag) {
  Launch(this, tag).Send(tensor, peer, /*is_async=*/false).wait();
}

void Communicator::Recv(const at::Tensor& tensor, int peer, std::string_view tag) {
  Launch(this, tag).Recv(tensor, peer, /*is_async=*/false).wait();
}

void Communicator::SendRecv(const at::Tensor& outgoing, int to, const at::Tensor& incoming,
                            int from, std::string_view tag) {
  Launch(this, tag).SendRecv(outgoing, to, incoming, from, /*is_async=*/false).wait();
}

Work Communicator::SendAsync(const at::Tensor& tensor, int peer, std::string_view tag) {
  return Launch(this, tag).Send(tensor, peer, /*is_async=*/true);
}

Work Communicator::RecvAsync(const at::Tensor& tensor, int peer, std::string_view tag) {
  return Launch(this, tag).Recv(tensor, peer, /*is_async=*/true);
}

Work Communicator::SendRecvAsync(const at::Tensor& outgoing, int to, const at::Tensor& incoming,
                                 int from, std::string_view tag) {
  return Launch(this, tag).SendRecv(outgoing, to, incoming, from, /*is_async=*/true);
}

Communicator& Communicator::Group(const std::string& name, const std::vector<int>& members) {
  std::unique_ptr<Communicator>& group = groups_[name];
  if (group == nullptr) {
    auto made = MakeGroup(name, members);
    made->members_ = members;
    made->counters_ = counters_;
    if (made->control_ != nullptr) made->control_->counters_ = counters_;
    group = std::move(made);
  }
  TORCH_CHECK(group->members_ == members, "group ", name, " has other ranks on this rank already");
  return *group;
}

std::unique_ptr<Communicator> Communicator::MakeGroup(const std::string& name,
                                                      const std::vector<int>& members) {
  if (host_ != nullptr) {
    return std::make_unique<Communicator>(host_->MakeSubgroup(name, members), device_);
  }
  TORCH_CHECK(control_ != nullptr && make_, "group ", name,
              ": this communicator cannot make groups");
  auto control = std::make_unique<Communicator>(control_->Group(name, members).backend());
  auto backend = make_(*control);
  return std::make_unique<Communicator>(std::move(backend), device_, std::move(control), make_);
}

void Communicator::Abort(std::string_view reason) {
  if (host_ != nullptr) return host_->Abort(reason);
  if (control_ != nullptr) return control_->Abort(reason);
  backend_->abort();
}

Traffic Communicator::traffic() const {
  Traffic traffic = counters_->Read();
  if (host_ != nullptr && spans_hosts()) traffic.between_hosts = host_->bytes_between_hosts();
  return traffic;
}

std::size_t Communicator::shared_bytes() const {
  std::size_t bytes = host_ != nullptr ? host_->shared_bytes() : 0;
  if (control_ != nullptr) bytes += control_->shared_bytes();
  for (const auto& [name, group] : groups_) bytes += group == nullptr ? 0 : group->shared_bytes();
  return bytes;
}

Absence Communicator::absence() const {
  if (host_ != nullptr) return host_->family().absence();
  return control_ == nullptr ? Absence() : control_->absence();
}

}  // namespace ds::comm
