#pragma once

#include <cstdint>
#include <string>

namespace ds {

// "512 B", "1.50 KiB", "47.5 MiB", "475 GiB": three significant digits, binary units.
std::string ByteSize(std::uint64_t bytes);

}  // namespace ds
