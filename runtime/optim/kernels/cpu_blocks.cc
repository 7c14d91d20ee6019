#include "runtime/optim/kernels/cpu_blocks.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>

#include "runtime/base/check.h"
#include "runtime/optim/kernels/widen.h"

namespace ds::optim {
namespace {

constexpr std::int64_t kBlock = FlatBlock::kMaxCount;

// The gradient of one block in fp32: where it lies, or converted into `room`.
const float* Widened(const at::Tensor& gradient, std::int64_t start, std::int64_t count,
                     std::array<float, kBlock>& room) {
  if (!gradient.defined()) return nullptr;
  switch (gradient.scalar_type()) {
    case at::kFloat:
      return gradient.const_data_ptr<float>() + start;
    case at::kBFloat16:
      Widen(gradient.const_data_ptr<c10::BFloat16>() + start, count, room.data());
      return room.data();
    default:
      Widen(gradient.const_data_ptr<c10::Half>() + start, count, room.data());
      return room.data();
  }
}

void Publish(const float* parameter, const at::Tensor& published, std::int64_t start,
             std::int64_t count) {
  if (!published.defined()) return;
  if (published.scalar_type() == at::kBFloat16) {
    Round(parameter, count, published.mutable_data_ptr<c10::BFloat16>() + start);
  } else {
    Round(parameter, count, published.mutable_data_ptr<c10::Half>() + start);
  }
}

}  // namespace

void ForEachBlock(const Part& part, c10::function_ref<void(const FlatBlock&)> update) {
  DS_CHECK(part.state.size() <= FlatBlock::kMaxStates);
  FlatBlock whole{.parameter = part.parameter.mutable_data_ptr<float>()};
  for (std::size_t i = 0; i < part.state.size(); ++i) {
    whole.state[i] = part.state[i].mutable_data_ptr<float>();
  }
  const std::int64_t numel = part.parameter.numel();
  const auto run = [&](std::int64_t start) {
    std::array<float, kBlock> room;
    FlatBlock block = whole;
    block.count = std::min(kBlock, numel - start);
    block.parameter += start;
    for (std::size_t i = 0; i < part.state.size(); ++i) block.state[i] += start;
    block.gradient = Widened(part.gradient, start, block.count, room);
    update(block);
    Publish(block.parameter, part.published, start, block.count);
  };
  at::parallel_for(0, (numel + kBlock - 1) / kBlock, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) run(i * kBlock);
  });
}

}  // namespace ds::optim
