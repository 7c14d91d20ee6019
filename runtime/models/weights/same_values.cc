#include "runtime/models/weights/same_values.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <algorithm>

namespace ds::models {
namespace {

constexpr std::int64_t kComparedAtOnce = std::int64_t{1} << 22;  // elements

}  // namespace

StatusOr<bool> HoldSameValues(std::int64_t count, const SliceReader& one,
                              const SliceReader& other) {
  for (std::int64_t first = 0; first < count; first += kComparedAtOnce) {
    const std::int64_t part = std::min(kComparedAtOnce, count - first);
    const at::Tensor a = at::empty({part}, at::kFloat), b = at::empty({part}, at::kFloat);
    DS_RETURN_IF_ERROR(one(first, a));
    DS_RETURN_IF_ERROR(other(first, b));
    if (!at::equal(a, b)) return false;
  }
  return true;
}

}  // namespace ds::models
