#include "runtime/zero/shared_memory.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdint>

#include "runtime/zero/flat_parameters.h"

namespace ds::zero {
namespace {

// The byte range from a parameter's first element to the end of its last one.
struct ParameterBytes {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  int index = 0;  // index of the parameter in the model
  const NamedParameter* parameter = nullptr;
};

std::vector<ParameterBytes> SortByBegin(const std::vector<ParameterUnit>& units) {
  std::vector<ParameterBytes> ranges;
  int index = 0;
  for (const ParameterUnit& unit : units) {
    for (const NamedParameter& parameter : unit.parameters) {
      const at::Tensor& tensor = parameter.tensor;
      ++index;
      if (tensor.numel() == 0 || !HasValues(tensor)) continue;
      std::int64_t last = 0;  // element offset from the first one
      for (std::int64_t d = 0; d < tensor.dim(); ++d) {
        last += (tensor.size(d) - 1) * tensor.stride(d);
      }
      const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
      const auto bytes = static_cast<std::uintptr_t>(last + 1) * tensor.itemsize();
      ranges.push_back({begin, begin + bytes, index, &parameter});
    }
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const ParameterBytes& a, const ParameterBytes& b) { return a.begin < b.begin; });
  return ranges;
}

// Returns whether two parameters with overlapping ranges have an element in common; `a` begins
// first. Columns of one matrix interleave without having one.
bool ShareElements(const ParameterBytes& a, const ParameterBytes& b) {
  const at::Tensor& first = a.parameter->tensor;
  const at::Tensor& second = b.parameter->tensor;
  const auto width = static_cast<std::uintptr_t>(first.itemsize());
  const std::uintptr_t distance = b.begin - a.begin;
  if (first.itemsize() != second.itemsize() || distance % width != 0) return true;
  if (first.is_non_overlapping_and_dense() && second.is_non_overlapping_and_dense()) return true;
  const std::uintptr_t elements = (std::max(a.end, b.end) - a.begin) / width;
  const at::Tensor taken = at::zeros({static_cast<std::int64_t>(elements)}, at::kBool);
  taken.as_strided(first.sizes(), first.strides(), 0).fill_(true);
  return taken
      .as_strided(second.sizes(), second.strides(), static_cast<std::int64_t>(distance / width))
      .any()
      .item<bool>();
}

}  // namespace

std::optional<std::pair<std::string, std::string>> FindSharedMemory(
    const std::vector<ParameterUnit>& units) {
  const std::vector<ParameterBytes> ranges = SortByBegin(units);
  for (auto a = ranges.begin(); a != ranges.end(); ++a) {
    for (auto b = a + 1; b != ranges.end() && b->begin < a->end; ++b) {
      if (!ShareElements(*a, *b)) continue;
      const auto [first, second] =
          std::minmax(*a, *b, [](const ParameterBytes& one, const ParameterBytes& other) {
            return one.index < other.index;
          });
      return std::pair(first.parameter->name, second.parameter->name);
    }
  }
  return std::nullopt;
}

}  // namespace ds::zero
