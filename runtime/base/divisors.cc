#include "runtime/base/divisors.h"

#include <algorithm>

namespace ds {

std::string NameNearestDivisors(std::int64_t count, std::int64_t wanted) {
  std::int64_t below = std::min(wanted - 1, count);
  while (below > 1 && count % below != 0) --below;
  const std::string lower = below >= 1 ? std::to_string(below) : "";
  for (std::int64_t above = std::max<std::int64_t>(wanted, 1); above <= count; ++above) {
    if (count % above != 0) continue;
    return lower + (lower.empty() ? "" : " or ") + std::to_string(above);
  }
  return lower;
}

}  // namespace ds
