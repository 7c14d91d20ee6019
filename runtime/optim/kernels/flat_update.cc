#include "runtime/optim/kernels/flat_update.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/device/rank_device.h"
#include "runtime/optim/kernels/flat_block.h"

namespace ds::optim {
namespace {

FlatType TypeOf(const at::Tensor& view) {
  switch (view.scalar_type()) {
    case at::kFloat:
      return FlatType::kFloat;
    case at::kBFloat16:
      return FlatType::kBFloat16;
    default:
      DS_CHECK(view.scalar_type() == at::kHalf);
      return FlatType::kHalf;
  }
}

FlatView ViewTensor(const at::Tensor& view, const at::Tensor& parameter) {
  if (!view.defined()) return {};
  DS_CHECK(view.is_contiguous() && view.numel() == parameter.numel() &&
           view.device() == parameter.device());
  return {.data = view.data_ptr(), .type = TypeOf(view)};
}

// Returns the views that the op uses. The gradient of 16-bit parameters is scaled when it is
// rounded.
template <typename Op>
FlatViews TakeViews(Op* op, const OptimizerSlice& slice) {
  constexpr Streams kStreams = Op::kStreams;
  OptimizerSlice used{.parameter = slice.parameter};
  if (kStreams.reads_gradient) used.gradient = slice.gradient;
  if (kStreams.writes_parameter) used.published = slice.published;
  for (std::size_t i = 0; i < kStreams.states; ++i) used.state.push_back(slice.state.at(i));
  FlatViews views = ViewSlice(used);
  if constexpr (requires { op->c.gradient_scale; }) {
    if (views.parameter.type != FlatType::kFloat) {
      views.narrow_scale = std::exchange(op->c.gradient_scale, 1.0F);
    }
  }
  return views;
}

}  // namespace

FlatUpdate FindFlatUpdate(const at::Device& device) {
  if (device.is_cpu()) return nullptr;
  const StatusOr<void*> entry = device::FindInCudaPlugin(kFlatUpdateEntry);
  TORCH_CHECK(entry.ok(), "no optimizer on a GPU: ", entry.status().message());
  const FlatUpdate update = reinterpret_cast<FlatUpdateEntry>(*entry)(kFlatUpdateVersion);
  TORCH_CHECK(update != nullptr,
              "the CUDA plugin's optimizers belong to another version of dsrun; rebuild it");
  return update;
}

FlatViews ViewSlice(const OptimizerSlice& slice) {
  const auto view = [&](const at::Tensor& each) { return ViewTensor(each, slice.parameter); };
  FlatViews views{.parameter = view(slice.parameter),
                  .gradient = view(slice.gradient),
                  .published = view(slice.published),
                  .count = slice.parameter.numel(),
                  .device = std::max<int>(0, slice.parameter.device().index())};
  for (std::size_t i = 0; i < std::min(slice.state.size(), std::size(views.state)); ++i) {
    views.state[i] = view(slice.state[i]);
  }
  return views;
}

void UpdateSlice(FlatOp op, const OptimizerSlice& slice, const UpdateDecision* decision) {
  FlatViews views = std::visit([&](auto& each) { return TakeViews(&each, slice); }, op);
  views.decision = decision;
  const FlatUpdate update = slice.launch != nullptr ? slice.launch : &UpdateOnCpu;
  update(op, views);
}

}  // namespace ds::optim
