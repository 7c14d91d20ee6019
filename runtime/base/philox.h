#pragma once

// Philox4x32-10 is a counter-based random number generator. A number depends only on its counter
// and key, not on earlier draws, so any process can compute any number. Results are equal on every
// machine.
//
// Source: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC
// 2011. A key has 64 bits; a counter yields four words.
//
// Pure; thread-safe.

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/base/fnv.h"
#include "runtime/base/split_mix.h"

namespace ds {

// Four words, the lowest first.
using PhiloxCounter = std::array<std::uint32_t, 4>;

// Each round multiplies words 0 and 2 by the factors and adds the steps to the halves of the key.
inline constexpr std::uint32_t kPhiloxFactors[] = {0xD2511F53, 0xCD9E8D57};
inline constexpr std::uint32_t kPhiloxKeySteps[] = {0x9E3779B9, 0xBB67AE85};
inline constexpr int kPhiloxRounds = 10;

constexpr PhiloxCounter Philox(PhiloxCounter counter, std::uint64_t key) {
  auto low = static_cast<std::uint32_t>(key), high = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t a = std::uint64_t{kPhiloxFactors[0]} * counter[0];
    const std::uint64_t b = std::uint64_t{kPhiloxFactors[1]} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ low, static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ high, static_cast<std::uint32_t>(a)};
    low += kPhiloxKeySteps[0];
    high += kPhiloxKeySteps[1];
  }
  return counter;
}

// Derives the key of a substream of `key`. It must never change: saved runs depend on it.
constexpr std::uint64_t ExtendKey(std::uint64_t key, std::uint64_t word) {
  return SplitMix(SplitMix(key) ^ word);
}
constexpr std::uint64_t ExtendKey(std::uint64_t key, std::string_view name) {
  return ExtendKey(key, HashFnv1a(name));
}

// Fills `out` with the words of consecutive counters. Each counter is one more than the previous
// one in its lower 64 bits. Requires that the size of `out` is a multiple of 4.
void DrawWords(std::uint64_t key, PhiloxCounter counter, std::span<std::uint32_t> out);

// Fills `out` with the numbers first, first + 1, ... of the stream of `key`: independent and
// normally distributed with mean 0 and variance 1. Number i depends on (key, i) only.
void DrawNormal(std::uint64_t key, std::uint64_t first, std::span<float> out);

}  // namespace ds
