#pragma once

// HashFnv1a is the 64-bit FNV-1a hash of Fowler, Noll and Vo. It must never change: saved runs, the
// names of cached files and the names of process groups depend on it.
//
// Pure. Not safe against deliberately chosen collisions.

#include <cstdint>
#include <string_view>

namespace ds {

constexpr std::uint64_t HashFnv1a(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return hash;
}

}  // namespace ds
