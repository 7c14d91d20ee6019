#pragma once

#include <cstdint>
#include <string>

namespace ds {

// Formats a size with three significant digits and binary units: "512 B", "1.50 KiB", "47.5 MiB",
// "475 GiB".
std::string ByteSize(std::uint64_t bytes);

}  // namespace ds
