#pragma once

// SeedGenerators: LibTorch's generators start from all 64 bits of a seed. at::manual_seed takes the
// lower 32 for the CPU's, so that among a million streams some hundred would be equal.

#include <cstdint>

namespace ds::engine {

// Seeds the default generators of all devices.
void SeedGenerators(std::uint64_t seed);

}  // namespace ds::engine
