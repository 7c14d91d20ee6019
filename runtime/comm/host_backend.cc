#include "runtime/comm/host_backend.h"

#include <cstdint>
#include <numeric>
#include <utility>

namespace ds::comm {
namespace {

ElementType TypeOf(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return ElementType::kFloat32;
    case at::kDouble:
      return ElementType::kFloat64;
    case at::kBFloat16:
      return ElementType::kBFloat16;
    case at::kHalf:
      return ElementType::kFloat16;
    case at::kChar:
      return ElementType::kInt8;
    case at::kByte:
      return ElementType::kUInt8;
    case at::kShort:
      return ElementType::kInt16;
    case at::kInt:
      return ElementType::kInt32;
    case at::kLong:
      return ElementType::kInt64;
    case at::kBool:
      return ElementType::kBool;
    default:
      TORCH_CHECK(false, "CPU collectives do not support tensors of ", tensor.scalar_type());
  }
}

void CheckUsable(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.device().is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous(),
              "CPU collectives take dense contiguous CPU tensors, not ", tensor.sizes(), " of ",
              tensor.scalar_type(), " on ", tensor.device());
}

// Refuses reductions that the core does not have, and averages of integers.
ReduceOp ToReduceOp(const c10d::ReduceOp& op, const at::Tensor& tensor) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      TORCH_CHECK(tensor.is_floating_point(), "an average of ", tensor.scalar_type(),
                  " is not defined; use a sum");
      return ReduceOp::kAvg;
    case c10d::ReduceOp::MAX:
      return ReduceOp::kMax;
    case c10d::ReduceOp::MIN:
      return ReduceOp::kMin;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::kProduct;
    default:
      TORCH_CHECK(false, "CPU collectives reduce by sum, average, maximum, minimum or product");
  }
}

// Tensors as the torch-free core sees them. Refuses those that are not dense, contiguous, on the
// CPU and of a supported type.
Elements ElementsOf(const at::Tensor& tensor) {
  CheckUsable(tensor);
  return {.count = static_cast<std::size_t>(tensor.numel()), .type = TypeOf(tensor)};
}

std::byte* BytesOf(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

const at::Tensor& OnlyTensor(const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK(tensors.size() == 1, "one tensor per rank is expected, not ", tensors.size());
  return tensors[0];
}

// One pointer per rank, into tensors that all match `like`.
std::vector<std::byte*> ListData(const std::vector<at::Tensor>& tensors, int size,
                                 const at::Tensor& like) {
  TORCH_CHECK(tensors.size() == static_cast<std::size_t>(size), "one tensor for each of the ", size,
              " ranks is expected, not ", tensors.size());
  std::vector<std::byte*> data;
  for (const at::Tensor& tensor : tensors) {
    CheckUsable(tensor);
    TORCH_CHECK(tensor.scalar_type() == like.scalar_type() && tensor.numel() == like.numel(),
                "the tensors of a list differ from ", like.numel(), " elements of ",
                like.scalar_type());
    data.push_back(BytesOf(tensor));
  }
  return data;
}

// One pointer per rank, into equal parts of `whole`, each as large as `part`.
std::vector<std::byte*> PartData(const at::Tensor& whole, int size, const at::Tensor& part) {
  CheckUsable(whole);
  TORCH_CHECK(whole.scalar_type() == part.scalar_type() && whole.numel() == part.numel() * size,
              "a tensor of ", whole.numel(), " elements of ", whole.scalar_type(), " is not ", size,
              " parts of ", part.numel(), " elements of ", part.scalar_type());
  std::vector<std::byte*> data;
  for (int rank = 0; rank < size; ++rank) data.push_back(BytesOf(whole) + rank * part.nbytes());
  return data;
}

std::vector<const std::byte*> AsReadOnly(const std::vector<std::byte*>& data) {
  return {data.begin(), data.end()};
}

int CheckRank(std::int64_t rank, int size) {
  TORCH_CHECK(rank >= 0 && rank < size, "rank ", rank, " is not in a group of ", size);
  return static_cast<int>(rank);
}

// The collective has ended by the time its Work exists.
class FinishedWork : public c10d::Work {
 public:
  FinishedWork(int rank, c10d::OpType op) : c10d::Work(rank, op) { finish(); }
};

// The one place where the core's Status becomes LibTorch's exception.
c10::intrusive_ptr<c10d::Work> Finish(const Status& status, int rank, c10d::OpType op) {
  if (status.code() == StatusCode::kUnavailable) {
    C10_THROW_ERROR(DistNetworkError, status.message());
  }
  if (!status.ok()) C10_THROW_ERROR(DistBackendError, status.message());
  return c10::make_intrusive<FinishedWork>(rank, op);
}

// Rows of dimension 0 that go to each rank; equal ones unless `splits` says otherwise.
std::vector<std::uint64_t> PartCounts(const at::Tensor& tensor, const std::vector<int64_t>& splits,
                                      int size) {
  const int64_t rows = tensor.dim() == 0 ? 0 : tensor.size(0);
  const int64_t row = rows == 0 ? 0 : tensor.numel() / rows;
  std::vector<std::uint64_t> counts;
  if (splits.empty()) {
    TORCH_CHECK(rows % size == 0, "all-to-all: dimension 0 of ", rows,
                " rows is not a multiple of ", size, " ranks");
    counts.assign(static_cast<std::size_t>(size), static_cast<std::uint64_t>(rows / size * row));
    return counts;
  }
  TORCH_CHECK(splits.size() == static_cast<std::size_t>(size) &&
                  std::accumulate(splits.begin(), splits.end(), int64_t{0}) == rows,
              "all-to-all: the splits do not add up to the ", rows, " rows of dimension 0");
  for (const int64_t split : splits) {
    TORCH_CHECK(split >= 0, "all-to-all: a split is negative");
    counts.push_back(static_cast<std::uint64_t>(split * row));
  }
  return counts;
}

// Where each rank's part of `tensor` begins.
std::vector<std::byte*> PartStarts(const at::Tensor& tensor,
                                   const std::vector<std::uint64_t>& counts) {
  std::vector<std::byte*> starts;
  std::byte* next = BytesOf(tensor);
  for (const std::uint64_t count : counts) {
    starts.push_back(next);
    next += count * tensor.element_size();
  }
  return starts;
}

}  // namespace

HostBackend::HostBackend(std::unique_ptr<CpuGroup> group)
    : c10d::Backend(group->rank(), group->size()), group_(std::move(group)) {}

HostBackend::WorkPtr HostBackend::allreduce(Tensors& tensors,
                                            const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = OnlyTensor(tensors);
  const ReduceOp op = ToReduceOp(options.reduceOp, tensor);
  return Finish(group_->AllReduce(BytesOf(tensor), ElementsOf(tensor), op), rank_,
                c10d::OpType::ALLREDUCE);
}

HostBackend::WorkPtr HostBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = OnlyTensor(tensors);
  const ReduceOp op = ToReduceOp(options.reduceOp, tensor);
  return Finish(
      group_->Reduce(BytesOf(tensor), ElementsOf(tensor), op, CheckRank(options.rootRank, size_)),
      rank_, c10d::OpType::REDUCE);
}

HostBackend::WorkPtr HostBackend::broadcast(Tensors& tensors,
                                            const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = OnlyTensor(tensors);
  return Finish(
      group_->Broadcast(BytesOf(tensor), ElementsOf(tensor), CheckRank(options.rootRank, size_)),
      rank_, c10d::OpType::BROADCAST);
}

HostBackend::WorkPtr HostBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                            const c10d::AllgatherOptions& /*options*/) {
  const at::Tensor& input = OnlyTensor(inputs);
  TORCH_CHECK(outputs.size() == 1, "one list of outputs is expected, not ", outputs.size());
  return Finish(
      group_->AllGather(ListData(outputs[0], size_, input), BytesOf(input), ElementsOf(input)),
      rank_, c10d::OpType::ALLGATHER);
}

HostBackend::WorkPtr HostBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                  const c10d::AllgatherOptions& /*options*/) {
  return Finish(
      group_->AllGather(PartData(output, size_, input), BytesOf(input), ElementsOf(input)), rank_,
      c10d::OpType::_ALLGATHER_BASE);
}

HostBackend::WorkPtr HostBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                 const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = OnlyTensor(outputs);
  TORCH_CHECK(inputs.size() == 1, "one list of inputs is expected, not ", inputs.size());
  const ReduceOp op = ToReduceOp(options.reduceOp, output);
  return Finish(
      group_->ReduceScatter(BytesOf(output), AsReadOnly(ListData(inputs[0], size_, output)),
                            ElementsOf(output), op),
      rank_, c10d::OpType::REDUCE_SCATTER);
}

HostBackend::WorkPtr HostBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                       const c10d::ReduceScatterOptions& options) {
  const ReduceOp op = ToReduceOp(options.reduceOp, output);
  return Finish(group_->ReduceScatter(BytesOf(output), AsReadOnly(PartData(input, size_, output)),
                                      ElementsOf(output), op),
                rank_, c10d::OpType::_REDUCE_SCATTER_BASE);
}

HostBackend::WorkPtr HostBackend::gather(TensorLists& outputs, Tensors& inputs,
                                         const c10d::GatherOptions& options) {
  const at::Tensor& input = OnlyTensor(inputs);
  const int root = CheckRank(options.rootRank, size_);
  std::vector<std::byte*> data;
  if (rank_ == root) {
    TORCH_CHECK(outputs.size() == 1, "the root of a gather needs one list of outputs");
    data = ListData(outputs[0], size_, input);
  }
  return Finish(group_->Gather(data, BytesOf(input), ElementsOf(input), root), rank_,
                c10d::OpType::GATHER);
}

HostBackend::WorkPtr HostBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                          const c10d::ScatterOptions& options) {
  const at::Tensor& output = OnlyTensor(outputs);
  const int root = CheckRank(options.rootRank, size_);
  std::vector<const std::byte*> data;
  if (rank_ == root) {
    TORCH_CHECK(inputs.size() == 1, "the root of a scatter needs one list of inputs");
    data = AsReadOnly(ListData(inputs[0], size_, output));
  }
  return Finish(group_->Scatter(BytesOf(output), data, ElementsOf(output), root), rank_,
                c10d::OpType::SCATTER);
}

HostBackend::WorkPtr HostBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                std::vector<int64_t>& output_splits,
                                                std::vector<int64_t>& input_splits,
                                                const c10d::AllToAllOptions& /*options*/) {
  const ElementType type = ElementsOf(input).type;
  TORCH_CHECK(ElementsOf(output).type == type, "all-to-all: input and output differ in type");
  const std::vector<std::uint64_t> output_counts = PartCounts(output, output_splits, size_);
  const std::vector<std::uint64_t> input_counts = PartCounts(input, input_splits, size_);
  return Finish(group_->AllToAll({.outputs = PartStarts(output, output_counts),
                                  .output_counts = output_counts,
                                  .inputs = AsReadOnly(PartStarts(input, input_counts)),
                                  .input_counts = input_counts,
                                  .type = type}),
                rank_, c10d::OpType::ALLTOALL_BASE);
}

HostBackend::WorkPtr HostBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                           const c10d::AllToAllOptions& /*options*/) {
  TORCH_CHECK(inputs.size() == static_cast<std::size_t>(size_) && outputs.size() == inputs.size(),
              "all-to-all needs one input and one output tensor per rank");
  const ElementType type = ElementsOf(inputs[0]).type;
  std::vector<std::byte*> to;
  std::vector<const std::byte*> from;
  std::vector<std::uint64_t> output_counts;
  std::vector<std::uint64_t> input_counts;
  for (std::size_t peer = 0; peer < inputs.size(); ++peer) {
    const Elements incoming = ElementsOf(outputs[peer]);
    const Elements outgoing = ElementsOf(inputs[peer]);
    TORCH_CHECK(incoming.type == type && outgoing.type == type,
                "all-to-all: the tensors differ in type");
    to.push_back(BytesOf(outputs[peer]));
    from.push_back(BytesOf(inputs[peer]));
    output_counts.push_back(incoming.count);
    input_counts.push_back(outgoing.count);
  }
  return Finish(group_->AllToAll({.outputs = to,
                                  .output_counts = output_counts,
                                  .inputs = from,
                                  .input_counts = input_counts,
                                  .type = type}),
                rank_, c10d::OpType::ALLTOALL);
}

void HostBackend::CheckMessage(int peer, int tag) const {
  TORCH_CHECK(tag == 0, "CPU messages are matched in order and carry no tag");
  TORCH_CHECK(peer != rank_, "rank ", rank_, " cannot send to itself");
}

HostBackend::WorkPtr HostBackend::send(Tensors& tensors, int peer, int tag) {
  const at::Tensor& tensor = OnlyTensor(tensors);
  CheckMessage(peer, tag);
  return Finish(group_->Send(BytesOf(tensor), ElementsOf(tensor), CheckRank(peer, size_)), rank_,
                c10d::OpType::SEND);
}

HostBackend::WorkPtr HostBackend::recv(Tensors& tensors, int peer, int tag) {
  const at::Tensor& tensor = OnlyTensor(tensors);
  CheckMessage(peer, tag);
  return Finish(group_->Receive(BytesOf(tensor), ElementsOf(tensor), CheckRank(peer, size_)), rank_,
                c10d::OpType::RECV);
}

HostBackend::WorkPtr HostBackend::barrier(const c10d::BarrierOptions& /*options*/) {
  return Finish(group_->Barrier(), rank_, c10d::OpType::BARRIER);
}

}  // namespace ds::comm
