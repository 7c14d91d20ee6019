#include "runtime/base/philox.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "runtime/base/check.h"

namespace ds {
namespace {

// Results must be equal on every machine (philox.h). The functions below therefore use +, -, *, /
// and sqrt only, which IEEE 754 defines to the last bit. log, sin and cos of libm have variants for
// different CPUs, which may differ in rounding.
//
// Integers are converted to double as signed 32-bit values, the only integers for which SSE2 and
// AVX2 have such an instruction. So the loops vectorise.

// The number of counters that DrawNormal computes at once.
constexpr std::size_t kCounters = 64;

// Returns -log(x / 2^32) for x in (0, 2^32), to 1e-14. With x = m * 2^e this is (32 - e) log 2 -
// log m.
double MinusLog(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const double mantissa =
      std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFULL) | 0x3FF0000000000000ULL);  // [1, 2)
  // Converts the 64-bit exponent by its bits: they become the mantissa of 2^52 + exponent.
  const double exponent =
      std::bit_cast<double>((bits >> 52) | 0x4330000000000000ULL) - (4503599627370496.0 + 1023.0);
  // log m = 2 artanh(s), s in [0, 1/3): the sum is the Taylor series of artanh(s) / s.
  const double s = (mantissa - 1.0) / (mantissa + 1.0), square = s * s;
  double sum = 0.0;
  for (int odd = 27; odd >= 1; odd -= 2) sum = sum * square + 1.0 / odd;
  return (32.0 - exponent) * 0.69314718055994530942 - 2.0 * s * sum;
}

struct Point {
  double cosine, sine;
};

// Maps a word to a point of the unit circle: the lowest bit selects the half, the other bits the
// angle t in it. The loop sums the Taylor series of cos(t) and sin(t) / t.
Point PointOnCircle(std::uint32_t word) {
  constexpr double kStep = 3.14159265358979323846 / 2147483648.0;
  const double uniform = static_cast<double>(static_cast<std::int32_t>(word >> 1));
  const double t = (uniform + 0.5 - 1073741824.0) * kStep;  // (-pi/2, pi/2)
  const double square = t * t;
  double cosine = 1.0, sine = 1.0;
  for (int n = 20; n >= 2; n -= 2) {
    cosine = 1.0 - cosine * square * (1.0 / (n * (n - 1)));
    sine = 1.0 - sine * square * (1.0 / (n * (n + 1)));
  }
  const double half = 1.0 - 2.0 * static_cast<double>(static_cast<std::int32_t>(word & 1));
  return {.cosine = half * cosine, .sine = half * sine * t};
}

}  // namespace

void DrawWords(std::uint64_t key, PhiloxCounter counter, std::span<std::uint32_t> out) {
  DS_CHECK(out.size() % 4 == 0);
  std::uint64_t next = counter[0] | std::uint64_t{counter[1]} << 32;
  for (std::size_t i = 0; i < out.size(); i += 4, ++next) {
    const PhiloxCounter words =
        Philox({static_cast<std::uint32_t>(next), static_cast<std::uint32_t>(next >> 32),
                counter[2], counter[3]},
               key);
    std::copy(words.begin(), words.end(), &out[i]);
  }
}

void DrawNormal(std::uint64_t key, std::uint64_t first, std::span<float> out) {
  std::array<std::uint32_t, 4 * kCounters> words;
  std::array<float, 4 * kCounters> numbers;
  for (std::uint64_t at = first; at < first + out.size();) {
    const std::uint64_t counter = at / 4;
    DrawWords(key, {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32)},
              words);
    for (std::size_t i = 0; i < words.size(); i += 2) {
      // The Box-Muller transform makes two normal numbers of two words: the first word gives the
      // radius, the second the direction. u is the first word + 0.5, so that its logarithm is
      // finite.
      const double u = static_cast<double>(static_cast<std::int32_t>(words[i] ^ 0x80000000U)) +
                       2147483648.5;  // in (0, 2^32)
      const double radius = std::sqrt(2.0 * MinusLog(u));
      const Point point = PointOnCircle(words[i + 1]);
      numbers[i] = static_cast<float>(radius * point.cosine);
      numbers[i + 1] = static_cast<float>(radius * point.sine);
    }
    const std::size_t skip = at % 4;
    const std::size_t count = std::min<std::size_t>(numbers.size() - skip, first + out.size() - at);
    std::copy_n(&numbers[skip], count, &out[at - first]);
    at += count;
  }
}

}  // namespace ds
