#include "runtime/optim/kernels/flat_update.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/device/rank_device.h"

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

FlatView ViewOf(const at::Tensor& view, const at::Tensor& parameter) {
  if (!view.defined()) return {};
  DS_CHECK(view.is_contiguous() && view.numel() == parameter.numel() &&
           view.device() == parameter.device());
  return {.data = view.data_ptr(), .type = TypeOf(view)};
}

}  // namespace

FlatUpdate CudaFlatUpdate() {
  const StatusOr<void*> entry = device::FindInCudaPlugin(kFlatUpdateEntry);
  TORCH_CHECK(entry.ok(), "no optimizer on a GPU: ", entry.status().message());
  const FlatUpdate update = reinterpret_cast<FlatUpdateEntry>(*entry)(kFlatUpdateVersion);
  TORCH_CHECK(update != nullptr,
              "the CUDA plugin's optimizers belong to another version of dsrun; rebuild it");
  return update;
}

FlatViews ViewsOf(const Part& part) {
  const auto view = [&](const at::Tensor& each) { return ViewOf(each, part.parameter); };
  FlatViews views{.parameter = view(part.parameter),
                  .gradient = view(part.gradient),
                  .published = view(part.published),
                  .count = part.parameter.numel(),
                  .device = std::max<int>(0, part.parameter.device().index())};
  for (std::size_t i = 0; i < std::min(part.state.size(), std::size(views.state)); ++i) {
    views.state[i] = view(part.state[i]);
  }
  return views;
}

}  // namespace ds::optim
