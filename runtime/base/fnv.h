#pragma once

// HashFnv1a: the 64-bit hash FNV-1a of Fowler, Noll and Vo, equal in all processes and for ever:
// saved runs, the names of cached files and those of groups of ranks depend on it.
//
// Pure. Not for bytes that somebody may choose to collide.

#include <cstdint>
#include <string_view>

namespace ds {

constexpr std::uint64_t HashFnv1a(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return hash;
}

}  // namespace ds
