#include "runtime/plan/memory/product_scratch.h"

#include <algorithm>

#include "runtime/base/isa_probe.h"

namespace ds::models {
namespace {

// AMD's AVX-512 multiplies bf16 twice as fast as fp32. Other processors have not been measured.
bool MultipliesFp32FasterThanBf16() {
#if defined(__x86_64__)
  const bool has_fast_bf16 = __builtin_cpu_is("amd") && __builtin_cpu_supports("avx512bf16");
  return !has_fast_bf16 && !MayUseAmx();
#else
  return false;
#endif
}

bool LacksFp16Products() {
#if defined(__x86_64__)
  return !__builtin_cpu_supports("avx512fp16");
#else
  return false;
#endif
}

}  // namespace

bool IsMultipliedInFp32(config::DataType type) {
  static const bool bf16 = MultipliesFp32FasterThanBf16(), fp16 = LacksFp16Products();
  return type == config::DataType::kBf16 ? bf16 : type == config::DataType::kFp16 && fp16;
}

std::int64_t CountProductScratch(const MicroBatch& batch) {
  if (batch.on_gpu) return kDeviceScratch;
  return batch.multiplied_in_fp32 ? 0 : kProductScratch;
}

std::int64_t CountWidenedTiles(const MicroBatch& batch, std::int64_t inner, std::int64_t columns) {
  constexpr std::int64_t kFloatBytes = 4;
  if (batch.on_gpu || !batch.multiplied_in_fp32) return 0;
  const std::int64_t a = std::min(batch.tokens(), kWidenedTile), b = std::min(inner, kWidenedTile),
                     c = std::min(columns, kWidenedTile);
  return (a * b + b * c + a * c) * kFloatBytes;
}

}  // namespace ds::models
