#include "runtime/plan/model/quantized_layout.h"

#include <vector>

#include "runtime/base/suggest.h"

namespace ds::models {
namespace {

constexpr std::int64_t kFloatBytes = 4;

std::int64_t DivideUp(std::int64_t count, std::int64_t by) { return (count + by - 1) / by; }

}  // namespace

StatusOr<BaseFormat> ParseBaseFormat(std::string_view name) {
  static const std::vector<std::string> kNames = {"nf4", "nf4-double", "int8"};
  if (name == "nf4") return BaseFormat::kNf4;
  if (name == "nf4-double") return BaseFormat::kNf4Double;
  if (name == "int8") return BaseFormat::kInt8;
  return InvalidArgumentError("must be nf4, nf4-double or int8, not '" + std::string(name) + "'" +
                              DidYouMean(std::string(name), kNames));
}

std::int64_t QuantizedLayout::scales() const {
  return format == BaseFormat::kInt8 ? rows : DivideUp(numel(), kNf4Block);
}

std::int64_t QuantizedLayout::scales_of_scales() const {
  return format == BaseFormat::kNf4Double ? DivideUp(scales(), kScalesBlock) : 0;
}

std::int64_t QuantizedLayout::code_bytes() const {
  return format == BaseFormat::kInt8 ? numel() : DivideUp(numel(), 2);
}

std::int64_t QuantizedLayout::bytes() const {
  if (format != BaseFormat::kNf4Double) return code_bytes() + kFloatBytes * scales();
  return code_bytes() + scales() + kFloatBytes * (scales_of_scales() + 1);
}

}  // namespace ds::models
