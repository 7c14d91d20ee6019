#pragma once

// The format of the header of an .idx file of rows of numbers, as Megatron-LM (tokens) and
// DeepSpeed's data analyzer (samples) write it. Little-endian: "MMIDIDX\0\0"; uint64 version, 1;
// uint8 dtype, with codes specific to each writer; uint64 rows; uint64 document ends. After the
// header: int32 count of numbers in each row; int64 offset of each row in the .bin file, in bytes;
// int64 first row of every document.

#include <cstddef>
#include <cstring>
#include <string_view>

namespace ds::data {

inline constexpr std::string_view kIndexMagic("MMIDIDX\0\0", 9);
inline constexpr std::size_t kIndexHeaderBytes = 9 + 8 + 1 + 8 + 8;

// Reads a number at an address that need not be aligned.
template <typename Number>
Number NumberAt(const char* bytes) {
  Number number;
  std::memcpy(&number, bytes, sizeof(number));
  return number;
}

}  // namespace ds::data
