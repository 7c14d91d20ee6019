#include "runtime/models/batch.h"

#include <algorithm>
#include <vector>

#include "runtime/base/suggest.h"

namespace ds::models {

const at::Tensor& FindTensor(const Batch& batch, std::string_view name) {
  static const at::Tensor none;
  const auto found = batch.find(name);
  return found == batch.end() ? none : found->second;
}

std::int64_t CountSamples(const Batch& batch) {
  for (const auto& [name, tensor] : batch) {
    if (tensor.defined() && tensor.dim() > 0) return tensor.size(0);
  }
  return 0;
}

void CheckNames(const Batch& batch, std::span<const std::string_view> known) {
  const std::vector<std::string> names(known.begin(), known.end());
  for (const auto& [name, tensor] : batch) {
    TORCH_CHECK(std::find(names.begin(), names.end(), name) != names.end(),
                "the model has no input \"", name, "\" of a batch", DidYouMean(name, names));
  }
}

}  // namespace ds::models
