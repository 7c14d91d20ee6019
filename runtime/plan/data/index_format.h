#pragma once

// The beginning of an .idx file of rows of numbers, as Megatron-LM writes it of tokens and
// DeepSpeed's data analyzer of samples, little-endian: "MMIDIDX\0\0"; uint64 version, 1; uint8
// dtype, whose codes are each writer's own; uint64 rows; uint64 ends of documents. Behind it: int32
// numbers of each row; int64 first byte of each row in the .bin file; int64 of every document the
// row that it begins with.

#include <cstddef>
#include <cstring>
#include <string_view>

namespace ds::data {

inline constexpr std::string_view kIndexMagic("MMIDIDX\0\0", 9);
inline constexpr std::size_t kIndexHeaderBytes = 9 + 8 + 1 + 8 + 8;

// Reads a number where it need not be aligned.
template <typename Number>
Number NumberAt(const char* bytes) {
  Number number;
  std::memcpy(&number, bytes, sizeof(number));
  return number;
}

}  // namespace ds::data
