#include "runtime/precision/finite_check.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/nonzero.h>

#include <cmath>

namespace ds::precision {

std::optional<NonFinite> FindFirstNonFinite(const at::Tensor& flat) {
  const at::Tensor places = at::nonzero(at::isfinite(flat).logical_not());
  if (places.size(0) == 0) return std::nullopt;
  const auto index = places[0].item<std::int64_t>();
  const auto value = flat[index].item<double>();
  return NonFinite{.index = index, .kind = std::isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf"};
}

}  // namespace ds::precision
