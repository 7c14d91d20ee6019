#include "runtime/device/finite_check.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/nonzero.h>

#include <algorithm>
#include <cmath>

namespace ds::precision {

namespace {

// After an overflow every element may be non-finite, so indexes are listed for a chunk at a time.
// Other devices use larger chunks, to synchronise less often.
constexpr std::int64_t kChunkOnCpu = std::int64_t{1} << 14;
constexpr std::int64_t kChunkElsewhere = std::int64_t{1} << 22;

}  // namespace

std::optional<NonFinite> FindFirstNonFinite(const at::Tensor& flat) {
  const std::int64_t chunk = flat.is_cpu() ? kChunkOnCpu : kChunkElsewhere;
  for (std::int64_t start = 0; start < flat.numel(); start += chunk) {
    const at::Tensor part = flat.narrow(0, start, std::min(chunk, flat.numel() - start));
    const at::Tensor indices = at::nonzero(at::isfinite(part).logical_not());
    if (indices.size(0) == 0) continue;
    const std::int64_t index = start + indices[0].item<std::int64_t>();
    const auto value = flat[index].item<double>();
    return NonFinite{.index = index,
                     .kind = std::isnan(value) ? "NaN"
                             : value > 0       ? "+Inf"
                                               : "-Inf"};
  }
  return std::nullopt;
}

}  // namespace ds::precision
