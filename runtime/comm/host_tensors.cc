#include "runtime/comm/host_tensors.h"

#include <numeric>

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
              "CPU collectives need dense contiguous CPU tensors, not ", tensor.sizes(), " of ",
              tensor.scalar_type(), " on ", tensor.device());
}

}  // namespace

Elements ElementsOf(const at::Tensor& tensor) {
  CheckUsable(tensor);
  return {.count = static_cast<std::size_t>(tensor.numel()), .type = TypeOf(tensor)};
}

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

std::byte* BytesOf(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

const at::Tensor& OnlyTensor(const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK(tensors.size() == 1, "one tensor per rank is expected, not ", tensors.size());
  return tensors[0];
}

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

std::vector<std::byte*> PartData(const at::Tensor& full, int size, const at::Tensor& part) {
  CheckUsable(full);
  TORCH_CHECK(full.scalar_type() == part.scalar_type() && full.numel() == part.numel() * size,
              "a tensor of ", full.numel(), " elements of ", full.scalar_type(), " is not ", size,
              " parts of ", part.numel(), " elements of ", part.scalar_type());
  std::vector<std::byte*> data;
  for (int rank = 0; rank < size; ++rank) data.push_back(BytesOf(full) + rank * part.nbytes());
  return data;
}

std::vector<const std::byte*> AsReadOnly(const std::vector<std::byte*>& data) {
  return {data.begin(), data.end()};
}

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

}  // namespace ds::comm
