#pragma once

#include <cstdint>

namespace ds {

// The most bytes of a configuration that are read: ds_configs and models' config.json. What is
// larger is another kind of file, given by mistake.
inline constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{16} << 20;

}  // namespace ds
