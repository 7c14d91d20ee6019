#include "runtime/base/byte_size.h"

#include <fmt/format.h>

#include <array>

namespace ds {

std::string ByteSize(std::uint64_t bytes) {
  constexpr std::array<const char*, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024.0;
  std::size_t unit = 0;
  // 1023.5 would be printed as 1024.
  while (value >= 1023.5 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  if (value < 9.995) return fmt::format("{:.2f} {}", value, kUnits[unit]);
  if (value < 99.95) return fmt::format("{:.1f} {}", value, kUnits[unit]);
  return fmt::format("{:.0f} {}", value, kUnits[unit]);
}

}  // namespace ds
