#pragma once

// The element types that the CPU collectives move and reduce.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ds::comm {

enum class ElementType : std::uint8_t {
  kFloat32,
  kFloat64,
  kBFloat16,
  kFloat16,
  kInt8,
  kUInt8,
  kInt16,
  kInt32,
  kInt64,
  kBool,
};

std::size_t ElementBytes(ElementType type);
// "float32", "bfloat16", "int64", ...
std::string_view ElementTypeName(ElementType type);
bool IsFloatingPoint(ElementType type);

}  // namespace ds::comm
