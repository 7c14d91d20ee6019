#include "runtime/plan/memory/product_scratch.h"

#include <algorithm>

namespace ds::models {

std::int64_t CountProductScratch(const MicroBatch& batch, std::int64_t inner,
                                 std::int64_t columns) {
  constexpr std::int64_t kFloatBytes = 4;
  if (batch.on_gpu) return kDeviceScratch;
  if (batch.type != config::DataType::kFp16) return kProductScratch;
  const std::int64_t a = std::min(batch.tokens(), kWidenedTile), b = std::min(inner, kWidenedTile),
                     c = std::min(columns, kWidenedTile);
  return kProductScratch + (columns == 0 ? 0 : (a * b + b * c + a * c) * kFloatBytes);
}

}  // namespace ds::models
