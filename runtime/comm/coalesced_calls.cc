// HostBackend's calls of many tensors: their elements side by side in one buffer, for one call.

#include <ATen/ops/empty.h>

#include <cstring>
#include <string>

#include "runtime/base/fnv.h"
#include "runtime/comm/host_backend.h"
#include "runtime/comm/host_tensors.h"

namespace ds::comm {
namespace {

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
