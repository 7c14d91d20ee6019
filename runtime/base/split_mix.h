#pragma once

#include <cstdint>

namespace ds {

// SplitMix64's output function (Steele, Lea, Flood, 2014): maps neighbouring values to unrelated
// ones. It must never change: the order of shuffled data and the seeds of saved runs depend on it.
constexpr std::uint64_t SplitMix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

}  // namespace ds
