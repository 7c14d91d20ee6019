#include "runtime/data/permutation.h"

#include <bit>

#include "runtime/base/check.h"

namespace ds::data {
namespace {

// SplitMix64's output function (Steele, Lea, Flood, 2014).
std::uint64_t Mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace

Permutation::Permutation(std::int64_t size, std::uint64_t key)
    : size_(static_cast<std::uint64_t>(size)) {
  DS_CHECK(size >= 1);
  half_bits_ = (static_cast<int>(std::bit_width(size_ - 1)) + 1) / 2;
  for (std::uint64_t& round_key : round_keys_) round_key = key = Mix(key);
}

std::uint64_t Permutation::Encrypt(std::uint64_t value) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_, right = value & mask;
  for (const std::uint64_t round_key : round_keys_) {
    const std::uint64_t next = left ^ (Mix(right ^ round_key) & mask);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

std::int64_t Permutation::At(std::int64_t index) const {
  std::uint64_t value = static_cast<std::uint64_t>(index);
  do value = Encrypt(value);
  while (value >= size_);
  return static_cast<std::int64_t>(value);
}

}  // namespace ds::data
