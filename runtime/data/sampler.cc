#include "runtime/data/sampler.h"

#include <bit>

#include "runtime/base/check.h"
#include "runtime/base/split_mix.h"

namespace ds::data {

Permutation::Permutation(std::int64_t size, std::uint64_t key)
    : size_(static_cast<std::uint64_t>(size)) {
  DS_CHECK(size >= 1);
  half_bits_ = (static_cast<int>(std::bit_width(size_ - 1)) + 1) / 2;
  for (std::uint64_t& round_key : round_keys_) round_key = key = SplitMix(key);
}

std::uint64_t Permutation::Encrypt(std::uint64_t value) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_, right = value & mask;
  for (const std::uint64_t round_key : round_keys_) {
    const std::uint64_t next = left ^ (SplitMix(right ^ round_key) & mask);
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

std::int64_t Sampler::At(std::int64_t place) {
  const std::int64_t pass = place / samples_, index = place % samples_;
  if (!options_.shuffle) return index;
  if (pass != pass_) {
    permutation_.emplace(samples_,
                         options_.seed + 0x9e3779b97f4a7c15ULL * static_cast<std::uint64_t>(pass));
    pass_ = pass;
  }
  return permutation_->At(index);
}

}  // namespace ds::data
