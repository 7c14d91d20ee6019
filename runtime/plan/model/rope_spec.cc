#include "runtime/plan/model/rope_spec.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

namespace ds::models {
namespace {

using Scaling = RopeSpec::Scaling;

// Llama 3: frequencies with wavelengths far beyond the original context are divided by `factor`,
// short wavelengths are unchanged, and those between are interpolated.
double Llama3Frequency(const RopeSpec& rope, double frequency) {
  const double turns = rope.original_positions * frequency / (2.0 * std::numbers::pi);
  if (turns < rope.low_frequency_factor) return frequency / rope.factor;
  if (turns > rope.high_frequency_factor) return frequency;
  const double smooth = (turns - rope.low_frequency_factor) /
                        (rope.high_frequency_factor - rope.low_frequency_factor);
  return (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
}

// YaRN (arXiv 2309.00071): the weight of the unscaled frequency falls along a ramp, between the
// pairs that make fast_turns and slow_turns rotations within the original context.
class YarnRamp {
 public:
  YarnRamp(const RopeSpec& rope, double width) : rope_(rope), width_(width) {
    first_ = PairThatTurns(rope.fast_turns);
    last_ = PairThatTurns(rope.slow_turns);
    if (rope.whole_bounds) {
      first_ = std::floor(first_);
      last_ = std::ceil(last_);
    }
    first_ = std::max(first_, 0.0);
    last_ = std::min(last_, width - 1.0);
    if (first_ == last_) last_ += 0.001;
  }
  double Stretch(double frequency, std::int64_t pair) const {
    const double place = (static_cast<double>(pair) - first_) / (last_ - first_);
    const double stretched = std::clamp(place, 0.0, 1.0);
    return frequency * (1.0 - stretched) + frequency / rope_.factor * stretched;
  }

 private:
  double PairThatTurns(double turns) const {
    return width_ * std::log(rope_.original_positions / (turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope_.theta));
  }

  const RopeSpec& rope_;
  double width_, first_ = 0.0, last_ = 0.0;
};

// Returns the base of the powers; under dynamic NTK scaling it grows with the sequence length.
double Base(const RopeSpec& rope, double width, double length) {
  if (rope.scaling != Scaling::kDynamic || length <= rope.original_positions) return rope.theta;
  const double growth = rope.factor * length / rope.original_positions - (rope.factor - 1.0);
  return rope.theta * std::pow(growth, width / (width - 2.0));
}

std::int64_t RotatedWidth(const RopeSpec& rope, std::int64_t head_width) {
  return static_cast<std::int64_t>(static_cast<double>(head_width) * rope.rotated_share);
}

}  // namespace

std::int64_t RotatedPairs(const RopeSpec& rope, std::int64_t head_width) {
  return (RotatedWidth(rope, head_width) + 1) / 2;
}

std::vector<float> RopeFrequencies(const RopeSpec& rope, std::int64_t head_width,
                                   std::int64_t length) {
  const std::int64_t pairs = RotatedPairs(rope, head_width);
  const auto width = static_cast<double>(RotatedWidth(rope, head_width));
  const auto tokens = static_cast<double>(length);
  const double base = Base(rope, width, tokens);
  std::optional<YarnRamp> ramp;
  if (rope.scaling == Scaling::kYarn) ramp.emplace(rope, width);
  const auto& factors = tokens > rope.original_positions ? rope.long_factors : rope.short_factors;
  std::vector<float> frequencies;
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    double frequency = std::pow(base, -static_cast<double>(2 * pair) / width);
    if (rope.scaling == Scaling::kLinear) frequency /= rope.factor;
    if (rope.scaling == Scaling::kLlama3) frequency = Llama3Frequency(rope, frequency);
    if (ramp) frequency = ramp->Stretch(frequency, pair);
    if (rope.scaling == Scaling::kLongRope) frequency /= factors[static_cast<std::size_t>(pair)];
    frequencies.push_back(static_cast<float>(frequency));
  }
  return frequencies;
}

bool HaveSameFrequencies(const RopeSpec& rope, std::int64_t a, std::int64_t b) {
  if (!DependsOnLength(rope) || a == b) return true;
  const double shorter = static_cast<double>(std::min(a, b)),
               longer = static_cast<double>(std::max(a, b));
  if (rope.scaling == Scaling::kDynamic) return longer <= rope.original_positions;
  return (shorter > rope.original_positions) == (longer > rope.original_positions);
}

}  // namespace ds::models
