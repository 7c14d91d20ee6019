#include "runtime/optim/kernels/blockwise_state.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/config/model_state.h"

namespace ds::optim {
namespace {

constexpr int kDecades = 7;

// bitsandbytes.functional.create_dynamic_map: in decade i, the means of 2^i equal parts of [0.1, 1]
// with either sign (unsigned: of twice as many), plus zero and one.
std::array<float, 256> MakeNumbers(StateMap map) {
  std::vector<double> numbers = {0.0, 1.0};
  for (int i = 0; i < kDecades; ++i) {
    const int parts = map == StateMap::kSigned ? 1 << i : 2 << i;
    const double size = std::pow(10.0, i - (kDecades - 1));
    for (int part = 0; part < parts; ++part) {
      const double mean = size * (0.1 + 0.9 * (part + 0.5) / parts);
      numbers.push_back(mean);
      if (map == StateMap::kSigned) numbers.push_back(-mean);
    }
  }
  std::sort(numbers.begin(), numbers.end());
  std::array<float, 256> result{};
  std::transform(numbers.begin(), numbers.end(), result.begin(),
                 [](double number) { return static_cast<float>(number); });
  return result;
}

// Finds the nearest number of a map by the first 16 bits of a value in [-1, 1]. Values with the
// same bits have at most two nearest numbers, and a comparison selects between these.
class Finder {
 public:
  explicit Finder(StateMap map) : numbers_(MakeNumbers(map)) {
    for (std::size_t i = 0; i + 1 < numbers_.size(); ++i) {
      middles_[i] = (numbers_[i] + numbers_[i + 1]) / 2;
    }
    middles_.back() = std::numeric_limits<float>::infinity();
    for (std::uint32_t bits = 0; bits < first_.size(); ++bits) {
      const auto one = std::bit_cast<float>(bits << 16),
                 other = std::bit_cast<float>(bits << 16 | 0xFFFFU);
      const float least = std::min(one, other);
      const auto above = std::lower_bound(middles_.begin(), middles_.end(), least);
      const auto byte = std::min<std::ptrdiff_t>(255, above - middles_.begin());
      first_[bits] = static_cast<std::uint8_t>(byte);
    }
  }

  const std::array<float, 256>& numbers() const { return numbers_; }
  std::uint8_t Find(float value) const {
    std::uint8_t byte = first_[std::bit_cast<std::uint32_t>(value) >> 16];
    while (value > middles_[byte]) ++byte;
    return byte;
  }

 private:
  std::array<float, 256> numbers_;
  std::array<float, 256> middles_{};  // midpoint between a number and the next one
  std::array<std::uint8_t, 1 << 16> first_{};
};

const Finder& FinderOf(StateMap map) {
  static const Finder kSigned(StateMap::kSigned), kUnsigned(StateMap::kUnsigned);
  return map == StateMap::kSigned ? kSigned : kUnsigned;
}

}  // namespace

const std::array<float, 256>& NumbersOf(StateMap map) { return FinderOf(map).numbers(); }

void QuantizeState(const float* values, std::int64_t count, StateMap map, std::uint8_t* bytes,
                   float* scales) {
  const Finder& finder = FinderOf(map);
  for (std::int64_t start = 0; start < count; start += config::kStateBlock) {
    const std::int64_t end = std::min(start + config::kStateBlock, count);
    float largest = 0.0F;
    for (std::int64_t i = start; i < end; ++i) largest = std::max(largest, std::abs(values[i]));
    *scales++ = largest;
    const float factor = largest > 0.0F ? 1.0F / largest : 0.0F;
    for (std::int64_t i = start; i < end; ++i) bytes[i] = finder.Find(values[i] * factor);
  }
}

void DequantizeState(const std::uint8_t* bytes, const float* scales, std::int64_t count,
                     StateMap map, float* values) {
  const std::array<float, 256>& numbers = NumbersOf(map);
  for (std::int64_t i = 0; i < count; ++i) {
    values[i] = numbers[bytes[i]] * scales[i / config::kStateBlock];
  }
}

}  // namespace ds::optim
