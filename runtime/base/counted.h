#pragma once

// Counted names a number of things: "1 host", "2 hosts".

#include <cstdint>
#include <string>
#include <string_view>

namespace ds {

// The plural of `noun` must end with one more s.
inline std::string Counted(std::int64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

}  // namespace ds
